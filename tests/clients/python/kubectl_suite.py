"""kubectl, unmodified and without flags that soften it, against real kcp objects.

    kubectl_suite.py --binary target/debug/shardcache --kubectl kubectl --data ../shared/data/kcp
"""
import argparse
import json
import os
import pathlib
import signal
import subprocess
import tempfile

from scenario import Server, until

parser = argparse.ArgumentParser()
parser.add_argument("--binary", required=True)
parser.add_argument("--kubectl", default="kubectl")
parser.add_argument("--data", default="")
options = parser.parse_args()

EXPORT = {"apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIExport", "metadata": {"name": "cowboys", "labels": {"tier": "gold"}}, "spec": {"resources": []}}

# Core objects that a shard keeps to itself, and a template that is not YAML before it is filled in.
NOT_FOR_THE_CACHE = {"metrics-2-service-account.yaml", "metrics-4-service-account-secret.yaml", "workspacetype-root.yaml"}


class Kubectl:
    """kubectl with its caches in a directory of the test."""

    def __init__(self, server, directory, shard, cluster):
        self.url = f"http://127.0.0.1:{server.port}/services/cache/shards/{shard}/clusters/{cluster}"
        self.environment = {**os.environ, "HOME": directory, "TMPDIR": directory, "KUBECONFIG": os.path.join(directory, "absent")}

    def command(self, *arguments):
        return [options.kubectl, "--server", self.url, *arguments]

    def __call__(self, *arguments, stdin=None, code=0, editor="false"):
        environment = {**self.environment, "KUBE_EDITOR": editor}
        done = subprocess.run(self.command(*arguments), input=stdin, capture_output=True, text=True, env=environment, timeout=120)
        assert done.returncode == code, f"kubectl {' '.join(arguments)}: code {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr


def main():
    with tempfile.TemporaryDirectory() as directory:
        server = Server(options.binary, directory)
        server.start()
        try:
            amber = Kubectl(server, directory, "amber", "root")
            everywhere = Kubectl(server, directory, "*", "*")
            verbs(amber, everywhere)
            outputs(amber, everywhere)
            edit(amber)
            not_offered(amber)
            watch(amber, everywhere, directory)
            custom_types(amber)
            tables(amber, everywhere, directory)
            typed(amber)
            discovery(amber, everywhere)
            real_data(server, directory, everywhere)
        finally:
            server.stop(signal.SIGTERM)
    print("kubectl: passed", flush=True)


def verbs(amber, everywhere):
    manifest = json.dumps(EXPORT)
    assert "created" in amber("apply", "-f", "-", stdin=manifest)
    assert "unchanged" in amber("apply", "-f", "-", stdin=manifest)
    changed = json.dumps({**EXPORT, "spec": {"resources": [], "maximalPermissionPolicy": {"local": {}}}})
    difference = amber("diff", "-f", "-", stdin=changed, code=1)
    assert "maximalPermissionPolicy" in difference, difference
    assert "configured" in amber("apply", "-f", "-", stdin=changed)
    assert "AlreadyExists" in amber("create", "-f", "-", stdin=manifest, code=1)
    assert "created" in amber("create", "-f", "-", stdin=json.dumps({**EXPORT, "metadata": {"name": "second"}}))
    assert "patched" in amber("patch", "apiexport", "second", "--type", "merge", "-p", '{"metadata":{"labels":{"tier":"silver"}}}')
    assert "patched" in amber("patch", "apiexport", "second", "--type", "json", "-p", '[{"op":"add","path":"/metadata/labels/more","value":"x"}]')
    assert "accepted media types" in amber("patch", "apiexport", "second", "--type", "strategic", "-p", "{}", code=1)
    assert "labeled" in amber("label", "apiexport", "second", "tier=bronze", "--overwrite")
    assert "annotated" in amber("annotate", "apiexport", "second", "note=x")
    assert "cowboys" in amber("get", "apiexports") and "cowboys" in everywhere("get", "apiexports")
    assert "second" not in amber("get", "apiexports", "-l", "tier=gold", "-o", "name")
    held = json.loads(amber("get", "apiexport", "cowboys", "-o", "json"))
    assert held["metadata"]["annotations"]["kcp.io/shard"] == "amber" and held["metadata"]["annotations"]["kcp.io/cluster"] == "root"
    assert "replaced" in amber("replace", "-f", "-", stdin=json.dumps(held))
    assert "Name:" in amber("describe", "apiexport", "cowboys")
    assert "condition met" in amber("wait", "apiexport/cowboys", "--for=jsonpath={.metadata.name}=cowboys", "--timeout=20s")
    assert "(server dry run)" in amber("create", "--dry-run=server", "-f", "-", stdin=json.dumps({**EXPORT, "metadata": {"name": "third"}}))
    assert "NotFound" in amber("get", "apiexport", "third", code=1)
    assert "apiexports" in amber("api-resources") and "apis.kcp.io/v1alpha2" in amber("api-versions")
    assert "deleted" in amber("delete", "apiexport", "second", "--timeout=20s")
    assert "deleted" in amber("delete", "apiexports", "--all", "--timeout=20s")
    refused = everywhere("create", "--validate=false", "-f", "-", stdin=manifest, code=1)
    assert "MethodNotAllowed" in refused or "does not allow this method" in refused, refused


def outputs(amber, everywhere):
    amber("create", "-f", "-", stdin=json.dumps(EXPORT))
    wide = amber("get", "apiexports", "-o", "wide").split()
    assert wide[0] == "NAME" and "cowboys" in wide, wide
    shown = amber("get", "apiexport", "cowboys", "-o", "yaml").splitlines()
    assert shown[:2] == ["apiVersion: apis.kcp.io/v1alpha2", "kind: APIExport"] and "    tier: gold" in shown, shown
    assert "kcp.io/shard: amber" in everywhere("get", "apiexports", "-o", "yaml")
    assert amber("get", "apiexports", "-o", "jsonpath={.items[*].metadata.name}") == "cowboys"
    amber("delete", "apiexport", "cowboys", "--timeout=20s")


def edit(amber):
    """The editor is a script; what it leaves is sent as a merge patch."""
    amber("create", "-f", "-", stdin=json.dumps(EXPORT))
    assert "cancelled, no changes made" in amber("edit", "apiexport", "cowboys", editor="true")
    assert "edited" in amber("edit", "apiexport", "cowboys", editor="sed -i s/gold/silver/")
    assert amber("get", "apiexport", "cowboys", "-o", "jsonpath={.metadata.labels.tier}") == "silver"
    # It asks again with what the server said, and gives up when the editor leaves that alone.
    refused = amber("edit", "apiexport", "cowboys", editor="sed -i s/silver$/silver_/", code=1)
    assert "is invalid" in refused and "Edit cancelled" in refused, refused
    assert amber("get", "apiexport", "cowboys", "-o", "jsonpath={.metadata.labels}") == '{"tier":"silver"}'
    amber("delete", "apiexport", "cowboys", "--timeout=20s")


def not_offered(amber):
    """Server-side apply and strategic merge patches, which kubectl says and which change nothing."""
    manifest = json.dumps(EXPORT)
    for before in ("absent", "present"):
        applied = amber("apply", "--server-side", "-f", "-", stdin=manifest, code=1)
        assert "the body of the request was in an unknown format" in applied and "accepted media types include" in applied, applied
        if before == "absent":
            assert "NotFound" in amber("get", "apiexport", "cowboys", code=1)
            amber("create", "-f", "-", stdin=manifest)
    amber("delete", "apiexport", "cowboys", "--timeout=20s")
    # Of its own types kubectl knows how to make a strategic patch, and insists.
    amber("create", "clusterrole", "edited", "--verb=get", "--non-resource-url=/before")
    refused = amber("edit", "clusterrole", "edited", editor="sed -i s/before/after/", code=1)
    assert "accepted media types include" in refused, refused
    assert "/before" in amber("get", "clusterrole", "edited", "-o", "yaml")
    amber("delete", "clusterrole", "edited", "--timeout=20s")


def watch(amber, everywhere, directory):
    with open(os.path.join(directory, "watch.out"), "w+") as out:
        watching = subprocess.Popen(everywhere.command("get", "apiexports", "-w", "-o", "name"), stdout=out, env=everywhere.environment)
        try:
            amber("apply", "-f", "-", stdin=json.dumps({**EXPORT, "metadata": {"name": "live"}}))

            def seen():
                out.seek(0)
                return "live" in out.read()
            until("kubectl get -w shows an object created after it started", seen)
        finally:
            watching.kill()
            watching.wait()


def custom_types(amber):
    crd = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "widgets.example.io"}, "spec": {
        "group": "example.io", "scope": "Namespaced", "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
        "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}}]}}
    amber("apply", "-f", "-", stdin=json.dumps(crd))
    widget = {"apiVersion": "example.io/v1", "kind": "Widget", "metadata": {"name": "w", "namespace": "default"}, "spec": {"size": 3}}
    amber("apply", "-f", "-", stdin=json.dumps(widget))
    assert "w" in amber("get", "widgets", "-A", "-o", "name")


COLUMNS = [
    {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
    {"name": "Ready", "type": "string", "jsonPath": '.status.conditions[?(@.type=="Ready")].status'},
    {"name": "Note", "type": "string", "jsonPath": r".metadata.annotations['example\.io/note']", "priority": 1},
    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
]


GAUGE = {"type": "object", "description": "Where gauges are read.", "properties": {
    "spec": {"type": "object", "description": "What is wanted.", "required": ["size"], "properties": {
        "size": {"type": "integer", "description": "How much is measured."},
        "level": {"type": "string", "enum": ["High", "Low"]}}},
    "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}}


def tables(amber, everywhere, directory):
    crd = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "gauges.example.io"}, "spec": {
        "group": "example.io", "scope": "Namespaced", "names": {"plural": "gauges", "singular": "gauge", "kind": "Gauge", "listKind": "GaugeList"},
        "versions": [{"name": "v1", "served": True, "storage": True, "additionalPrinterColumns": COLUMNS,
                      "selectableFields": [{"jsonPath": ".spec.size"}], "schema": {"openAPIV3Schema": GAUGE}}]}}
    amber("apply", "-f", "-", stdin=json.dumps(crd))
    explained = amber("explain", "gauges.spec")
    assert "size\t<integer> -required-" in explained and "How much is measured." in explained, explained
    assert "Where gauges are read." in everywhere("explain", "gauges"), "one definition counts everywhere"
    level = amber("explain", "gauge.spec.level")
    assert "High" in level and "Low" in level, level
    assert "ownerReferences" in amber("explain", "gauge.metadata") and "<map[string]string>" in amber("explain", "gauge.metadata")
    assert "policyRule" not in amber("explain", "clusterrole.rules") and "resourceNames" in amber("explain", "clusterrole.rules")
    gauge = {"apiVersion": "example.io/v1", "kind": "Gauge", "metadata": {"name": "g", "namespace": "default", "annotations": {"example.io/note": "hello"}},
             "spec": {"size": 3}, "status": {"conditions": [{"type": "Synced", "status": "False"}, {"type": "Ready", "status": "True"}]}}
    amber("create", "-f", "-", stdin=json.dumps(gauge))

    def rows(text):
        return [line.split() for line in text.splitlines() if line.strip()]
    assert rows(amber("get", "gauges"))[0] == ["NAME", "SIZE", "READY", "AGE"]
    assert rows(amber("get", "gauge", "g"))[1][:3] == ["g", "3", "True"]
    assert rows(amber("get", "gauges", "-o", "wide"))[1][:4] == ["g", "3", "True", "hello"]
    assert rows(everywhere("get", "gauges", "-A"))[0] == ["NAMESPACE", "NAME", "SHARD", "CLUSTER", "SIZE", "READY", "AGE"]
    assert rows(everywhere("get", "gauges", "-A"))[1][:6] == ["default", "g", "amber", "root", "3", "True"]
    assert rows(amber("get", "gauges", "--sort-by=.metadata.name"))[1][0] == "g"
    assert rows(amber("get", "gauges", "--field-selector", "spec.size=3"))[1][0] == "g"
    assert "No resources found" in amber("get", "gauges", "--field-selector", "spec.size=4")
    assert "No resources found" in amber("get", "gauges", "-n", "empty")
    # One heading, then a row per change; the last one is the deletion.
    with open(os.path.join(directory, "table.out"), "w+") as out:
        watching = subprocess.Popen(amber.command("get", "gauges", "-w", "--output-watch-events"), stdout=out, env=amber.environment)
        try:
            def seen():
                out.seek(0)
                return rows(out.read())
            until("the watch shows what there is", lambda: len(seen()) == 2)
            amber("patch", "gauge", "g", "--type", "merge", "-p", '{"spec":{"size":4}}')
            until("the watch shows a change", lambda: len(seen()) == 3)
            amber("delete", "gauge", "g", "--timeout=20s")
            until("the watch shows a deletion", lambda: len(seen()) == 4)
            assert [row[:4] for row in seen()] == [["EVENT", "NAME", "SIZE", "READY"], ["ADDED", "g", "3", "True"], ["MODIFIED", "g", "4", "True"], ["DELETED", "g", "4", "True"]], seen()
        finally:
            watching.kill()
            watching.wait()


def typed(amber):
    """What kubectl makes with typed clients, it sends as protobuf."""
    assert "created" in amber("create", "namespace", "typed")
    assert "AlreadyExists" in amber("create", "namespace", "typed", code=1)
    assert "created" in amber("create", "clusterrole", "hello", "--verb=get", "--non-resource-url=/hello")
    assert "created" in amber("create", "clusterrolebinding", "hello", "--clusterrole=hello", "--user=me")
    assert "created" in amber("create", "role", "r", "--verb=get,list", "--resource=namespaces", "-n", "typed")
    assert amber("get", "namespaces").split()[:4] == ["NAME", "STATUS", "AGE", "typed"], amber("get", "namespaces")
    assert amber("get", "clusterrolebindings", "-o", "wide").split()[:4] == ["NAME", "ROLE", "AGE", "USERS"]
    role = json.loads(amber("get", "clusterrole", "hello", "-o", "json"))
    assert role["rules"] == [{"nonResourceURLs": ["/hello"], "verbs": ["get"]}], role
    assert "r" in amber("get", "roles", "-A", "-o", "name")


def discovery(amber, everywhere):
    writable = amber("api-resources", "--verbs=create,patch,list,watch", "-o", "name").split()
    assert {"apiexports.apis.kcp.io", "namespaces", "events", "leases.coordination.k8s.io", "widgets.example.io"} <= set(writable), writable
    readable = everywhere("api-resources", "--verbs=list,watch", "-o", "name").split()
    # What the server alone writes can be read by everybody.
    assert sorted(readable) == sorted([*writable, "shardviews.cache.shardcache.dev"]), readable
    assert everywhere("api-resources", "--verbs=create", "-o", "name").split() == []
    assert "FIELDS:" in amber("explain", "apiexports")
    unknown = json.dumps({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "typed"}})
    assert 'no matches for kind "Secret"' in amber("apply", "-f", "-", stdin=unknown, code=1)
    assert "v1.37.0" in amber("version")
    assert "readyz check passed" in amber("get", "--raw", "/readyz?verbose")


def real_data(server, directory, everywhere):
    data = pathlib.Path(options.data)
    if not options.data or not data.is_dir():
        print("SKIPPED: kubectl over real kcp objects: no data directory", flush=True)
        return
    files = sorted(str(f) for folder in ("crds", "root") for f in (data / folder).glob("*.yaml") if f.name not in NOT_FOR_THE_CACHE)
    files += [str(data / "examples/cowboys" / name) for name in ("apiexport.yaml", "apiresourceschema.yaml")]
    arguments = [piece for file in files for piece in ("-f", file)]
    for shard, cluster in (("amber", "root"), ("sapphire", "root"), ("sapphire", "2f9k3hq1")):
        Kubectl(server, directory, shard, cluster)("apply", *arguments)
    listed = json.loads(everywhere("get", "apiexports", "-o", "json"))["items"]
    places = {(i["metadata"]["annotations"]["kcp.io/shard"], i["metadata"]["annotations"]["kcp.io/cluster"]) for i in listed}
    assert {("amber", "root"), ("sapphire", "root"), ("sapphire", "2f9k3hq1")} <= places, places


if __name__ == "__main__":
    main()
