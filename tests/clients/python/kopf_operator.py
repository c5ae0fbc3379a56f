"""A kopf operator, unmodified kopf, in-process: it starts from legacy discovery (R19), sees a type and a
namespace, and patches what it handled.

    kopf_operator.py            (KUBECONFIG names the server)
"""
import threading

import kopf
import kubernetes

SEEN = {"namespace": threading.Event(), "export": threading.Event()}


@kopf.on.event("namespaces")
def namespace(name, **_):
    if name == "default":
        SEEN["namespace"].set()


@kopf.on.create("apis.kcp.io", "v1alpha2", "apiexports")
def export(name, patch, **_):
    patch.metadata.labels["handled"] = "yes"
    SEEN["export"].set()


def main():
    kubernetes.config.load_kube_config()
    core = kubernetes.client.CoreV1Api()
    custom = kubernetes.client.CustomObjectsApi()
    core.create_namespace({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}})
    stop = threading.Event()
    operator = threading.Thread(target=lambda: kopf.run(clusterwide=True, standalone=True, stop_flag=stop))
    operator.start()
    try:
        body = {"apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIExport", "metadata": {"name": "cowboys"}, "spec": {}}
        custom.create_cluster_custom_object("apis.kcp.io", "v1alpha2", "apiexports", body)
        for what, event in SEEN.items():
            assert event.wait(60), f"kopf never saw the {what}"
        watch = kubernetes.watch.Watch()
        arguments = ("apis.kcp.io", "v1alpha2", "apiexports")
        for event in watch.stream(custom.list_cluster_custom_object, *arguments, timeout_seconds=60):
            if event["object"]["metadata"].get("labels", {}).get("handled") == "yes":
                break
        else:
            raise AssertionError("kopf's patch never arrived")
    finally:
        stop.set()
        operator.join()
    print("kopf: passed", flush=True)


main()
