"""The stock Python client in each way that its users watch: a loop over `Watch`, the dynamic client, and
the informer. Answers its driver, scenario.py, about what it holds and what it saw.
"""
import argparse
import json
import logging
import sys
import threading

from kubernetes import client, dynamic, watch
from kubernetes.client.rest import ApiException
from kubernetes.informer import SharedInformer

# The client's own pause between attempts; it has none.
PAUSE = 0.2

parser = argparse.ArgumentParser()
parser.add_argument("--server", required=True)
parser.add_argument("--mode", default="watch", choices=["watch", "dynamic", "informer"])
parser.add_argument("--selector", default="")
options = parser.parse_args()

GROUP, VERSION, PLURAL = "apis.kcp.io", "v1alpha2", "apiexports"
lock = threading.Lock()
state = {"synced": False, "items": {}, "seen": []}


def api_client():
    configuration = client.Configuration()
    configuration.host = options.server
    configuration.retries = False
    return client.ApiClient(configuration)


def key(item):
    metadata = item["metadata"]
    annotations = metadata.get("annotations", {})
    return "|".join([annotations["kcp.io/shard"], annotations["kcp.io/cluster"], metadata.get("namespace") or "", metadata["name"]])


def listed(items):
    with lock:
        state["items"] = {key(i): i["metadata"]["resourceVersion"] for i in items}
        state["synced"] = True


def saw(kind, item):
    """Notes an event; a plain dictionary as it came over the wire."""
    name, version = item["metadata"]["name"], item["metadata"]["resourceVersion"]
    with lock:
        state["seen"].append((kind, name, version))
        if kind == "DELETED":
            state["items"].pop(key(item), None)
        else:
            state["items"][key(item)] = version


def follow(read, stream):
    """Lists, then watches from version to version, as its users write it; a list again only after 410."""
    version = None
    while True:
        try:
            if version is None:
                found = read()
                listed(found["items"])
                version = found["metadata"]["resourceVersion"]
            for event in stream(version):
                item = event["object"]
                version = item["metadata"]["resourceVersion"]
                if event["type"] != "BOOKMARK":
                    saw(event["type"], item)
        except ApiException as error:
            if error.status == 410:
                version = None
            elif error.status not in (429, 503):
                raise
            threading.Event().wait(PAUSE)
        except Exception:  # any broken connection: go on from the last version
            threading.Event().wait(PAUSE)


def with_watch():
    api = client.CustomObjectsApi(api_client())
    where = (GROUP, VERSION, PLURAL)

    def stream(version):
        return watch.Watch().stream(
            api.list_cluster_custom_object, *where, label_selector=options.selector, resource_version=version,
            allow_watch_bookmarks=True, timeout_seconds=300, _request_timeout=(5, 310))
    follow(lambda: api.list_cluster_custom_object(*where, label_selector=options.selector), stream)


def with_dynamic():
    resource = dynamic.DynamicClient(api_client()).resources.get(api_version=f"{GROUP}/{VERSION}", kind="APIExport")

    def stream(version):
        for event in resource.watch(label_selector=options.selector, resource_version=version, timeout=300):
            yield {"type": event["type"], "object": event["raw_object"]}
    follow(lambda: resource.get(label_selector=options.selector).to_dict(), stream)


def with_informer():
    """On a typed list of cluster roles: the informer wants attributes, which custom objects have not."""
    logging.disable()
    api = client.RbacAuthorizationV1Api(api_client())
    informer = SharedInformer(api.list_cluster_role, label_selector=options.selector)

    def note(kind):
        def handler(role):
            with lock:
                state["seen"].append((kind, role.metadata.name, role.metadata.resource_version))
        return handler
    for kind in ("ADDED", "MODIFIED", "DELETED"):
        informer.add_event_handler(kind, note(kind))
    informer.start()
    return informer


def held(informer):
    if informer:
        # It tells nobody that it has listed, but by the version that it watches from.
        roles = [role.to_dict() for role in informer.cache.list()]
        items = {key(role): role["metadata"]["resource_version"] for role in roles}
        return {"synced": informer._resource_version is not None, "items": items}
    with lock:
        return {"synced": state["synced"], "items": state["items"]}


def main():
    informer = None
    if options.mode == "informer":
        informer = with_informer()
    else:
        loop = {"watch": with_watch, "dynamic": with_dynamic}[options.mode]
        threading.Thread(target=loop, daemon=True).start()
    for line in sys.stdin:
        question = line.strip()
        if question == "dump":
            answer = held(informer)
        elif question == "events":
            with lock:
                answer, state["seen"] = {"streams": [state["seen"]]}, []
        else:
            break
        print(json.dumps(answer), flush=True)


main()
