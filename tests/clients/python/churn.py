"""Writes that the scenario makes, and which events each of them is to a client with a selector."""
import collections
import random

# Where the objects are that come and go, and what they are besides their metadata.
TYPES = {
    "apiexports": ("apis/apis.kcp.io/v1alpha2", "APIExport", {"spec": {}}),
    "clusterroles": ("apis/rbac.authorization.k8s.io/v1", "ClusterRole", {
        "rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]}),
    "validatingwebhookconfigurations": ("apis/admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", {
        "webhooks": [{"name": "a.example.io", "sideEffects": "None", "admissionReviewVersions": ["v1"], "clientConfig": {"url": "https://example.io"}}]}),
}
SHARDS = ["amber", "sapphire", "ruby"]
CLUSTERS = ["root", "2f9k3hq1"]
PADDING = 2000

# Labels before and after are None where there is no object.
Write = collections.namedtuple("Write", "name before after version")


class Churn:
    """Random writes whose names are unique over all shards; labels walk in and out of selectors."""

    def __init__(self, server, seed):
        self.server, self.random, self.count = server, random.Random(seed), 0
        self.live = {}  # name: (path of the collection, labels)
        self.writes = []

    def run(self, steps, deletions=True):
        for _ in range(steps):
            choice = self.random.random()
            if choice < 0.5 or not self.live:
                self.create(self.tier())
            elif choice < 0.8 or not deletions:
                self.change(self.random.choice(list(self.live)), self.tier())
            else:
                self.delete(self.random.choice(list(self.live)))

    def create(self, tier, padding=None):
        self.count += 1
        shard, cluster = self.random.choice(SHARDS), self.random.choice(CLUSTERS)
        path = f"/services/cache/shards/{shard}/clusters/{cluster}/{self.server.group}/{self.server.resource}"
        name, labels = f"object-{self.count}", {"tier": tier}
        group, kind, rest = TYPES[self.server.resource]
        annotations = {"padding": "x" * (padding or self.random.randrange(PADDING))}
        answer = self.server.send("POST", path, {
            "apiVersion": group.removeprefix("apis/"), "kind": kind, **rest,
            "metadata": {"name": name, "labels": labels, "annotations": annotations}})
        self.live[name] = path, labels
        self.note(name, None, labels, answer)
        return name

    def change(self, name, tier):
        path, before = self.live[name]
        labels = {"tier": tier}
        patch = {"metadata": {"labels": labels, "annotations": {"change": str(len(self.writes))}}}
        answer = self.server.send("PATCH", f"{path}/{name}", patch, "application/merge-patch+json")
        self.live[name] = path, labels
        self.note(name, before, labels, answer)

    def delete(self, name):
        path, before = self.live.pop(name)
        # The answer to a deletion tells its version, as that of any write.
        self.note(name, before, None, self.server.send("DELETE", f"{path}/{name}"))

    def note(self, name, before, after, answer):
        self.writes.append(Write(name, before, after, answer["metadata"]["resourceVersion"]))

    def tier(self):
        return self.random.choice(["gold", "silver"])


def events(writes, selector):
    """The events of writes to who watches with a selector (`label=value` or empty): (type, name, version)."""
    label, _, value = selector.partition("=")

    def selected(labels):
        return labels is not None and (not label or labels.get(label) == value)
    kinds = {(False, True): "ADDED", (True, True): "MODIFIED", (True, False): "DELETED"}
    found = ((kinds.get((selected(w.before), selected(w.after))), w) for w in writes)
    return [(kind, write.name, write.version) for kind, write in found if kind]
