"""A list-then-watch loop on the stock Python client, as its users write it.

Speaks the same lines as the Go informer: `dump` prints what it holds, `quit` ends.
"""
import argparse
import json
import sys
import threading

from kubernetes import client, watch
from kubernetes.client.rest import ApiException

parser = argparse.ArgumentParser()
parser.add_argument("--server", required=True)
parser.add_argument("--group", default="apis.kcp.io")
parser.add_argument("--version", default="v1alpha2")
parser.add_argument("--resource", default="apiexports")
parser.add_argument("--selector", default="")
options = parser.parse_args()

lock = threading.Lock()
state = {"synced": False, "items": {}}


def key(item):
    metadata = item["metadata"]
    annotations = metadata.get("annotations", {})
    return "|".join([annotations["kcp.io/shard"], annotations["kcp.io/cluster"], metadata.get("namespace", ""), metadata["name"]])


def follow():
    configuration = client.Configuration()
    configuration.host = options.server
    configuration.retries = False
    api = client.CustomObjectsApi(client.ApiClient(configuration))
    where = (options.group, options.version, options.resource)
    version = None
    while True:
        try:
            if version is None:
                listed = api.list_cluster_custom_object(*where, label_selector=options.selector)
                with lock:
                    state["items"] = {key(i): i["metadata"]["resourceVersion"] for i in listed["items"]}
                    state["synced"] = True
                version = listed["metadata"]["resourceVersion"]
            stream = watch.Watch()
            for event in stream.stream(
                api.list_cluster_custom_object, *where, label_selector=options.selector, resource_version=version,
                allow_watch_bookmarks=True, timeout_seconds=300, _request_timeout=(5, 310),
            ):
                item = event["object"]
                version = item["metadata"]["resourceVersion"]
                if event["type"] == "BOOKMARK":
                    continue
                with lock:
                    if event["type"] == "DELETED":
                        state["items"].pop(key(item), None)
                    else:
                        state["items"][key(item)] = version
        except ApiException as error:
            if error.status == 410:
                version = None
            elif error.status not in (429, 503):
                raise
            threading.Event().wait(0.2)  # the client's own back-off between attempts
        except Exception:  # any broken connection: go on from the last version, as the client's users do
            threading.Event().wait(0.2)


threading.Thread(target=follow, daemon=True).start()
for line in sys.stdin:
    if line.strip() == "dump":
        with lock:
            print(json.dumps(state), flush=True)
    elif line.strip() == "quit":
        break
