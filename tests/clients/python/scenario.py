"""The shared scenario: one server, one client behind a cutter, and everything that can happen to them.

    scenario.py --binary target/debug/shardcache --name client-go-dynamic -- /path/to/client --flags

The client is started with `--server URL` added. At the end its cache must equal the server's LIST; the
number of LISTs it needed is printed, and must not grow by a mere restart of the server.
"""
import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request

from cutter import Cutter

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
DEADLINE = 90


class Server:
    """The real binary on a directory of its own; keeps its port over restarts."""

    def __init__(self, binary, directory, extra=(), resource="apiexports"):
        self.binary, self.directory, self.extra, self.port = binary, directory, list(extra), 0
        self.resource, self.group = resource, TYPES[resource][0]

    def start(self):
        log = open(os.path.join(self.directory, "server.log"), "ab")
        self.process = subprocess.Popen(
            [self.binary, "serve", "--listen", f"127.0.0.1:{self.port}", "--data-dir", os.path.join(self.directory, "data"), *self.extra],
            stdout=subprocess.PIPE, stderr=log)
        line = self.process.stdout.readline().decode()
        assert line.startswith("listening on http://127.0.0.1:"), f"first line: {line!r}"
        self.port = int(line.rsplit(":", 1)[1])
        until("the server is ready", lambda: self.get("/readyz", raw=True) == b"ok")

    def stop(self, with_signal):
        self.process.send_signal(with_signal)
        code = self.process.wait(timeout=45)
        assert with_signal != signal.SIGTERM or code == 0, f"exit code {code} after SIGTERM"

    def get(self, path, raw=False):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=30) as answer:
            body = answer.read()
        return body if raw else json.loads(body)

    def send(self, verb, path, body=None, content="application/json"):
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}", method=verb,
            data=None if body is None else json.dumps(body).encode(), headers={"Content-Type": content})
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.loads(answer.read())

    def list(self, selector):
        query = urllib.parse.urlencode({"labelSelector": selector})
        return self.get(f"/services/cache/shards/*/clusters/*/{self.group}/{self.resource}?{query}")

    def items(self, selector):
        listed = self.list(selector)
        keys = {}
        for item in listed["items"]:
            metadata = item["metadata"]
            where = metadata["annotations"]
            keys["|".join([where["kcp.io/shard"], where["kcp.io/cluster"], "", metadata["name"]])] = metadata["resourceVersion"]
        return keys


def until(what, holds, deadline=DEADLINE):
    """Waits for a condition; polling is all a black box allows."""
    end = time.monotonic() + deadline
    last = None
    while time.monotonic() < end:
        try:
            if holds():
                return
        except (OSError, urllib.error.URLError) as error:
            last = error
        time.sleep(0.05)
    raise SystemExit(f"FAILED: not within {deadline} s: {what} ({last})")


class Churn:
    """Random writes whose names are unique over all shards; labels walk in and out of selectors."""

    def __init__(self, server, seed):
        self.server, self.random, self.live, self.count = server, random.Random(seed), {}, 0

    def step(self):
        choice = self.random.random()
        if choice < 0.5 or not self.live:
            self.create(self.tier())
        elif choice < 0.8:
            name = self.random.choice(list(self.live))
            patch = {"metadata": {"labels": {"tier": self.tier()}, "annotations": {"round": str(self.random.randrange(10**6))}}}
            self.server.send("PATCH", f"{self.live[name]}/{name}", patch, "application/merge-patch+json")
        else:
            name = self.random.choice(list(self.live))
            self.server.send("DELETE", f"{self.live.pop(name)}/{name}")

    def create(self, tier):
        self.count += 1
        shard, cluster = self.random.choice(SHARDS), self.random.choice(CLUSTERS)
        path = f"/services/cache/shards/{shard}/clusters/{cluster}/{self.server.group}/{self.server.resource}"
        name = f"object-{self.count}"
        self.server.send("POST", path, self.body(name, tier))
        self.live[name] = path

    def run(self, steps):
        for _ in range(steps):
            self.step()

    def tier(self):
        return self.random.choice(["gold", "silver"])

    def body(self, name, tier):
        group, kind, rest = TYPES[self.server.resource]
        annotations = {"padding": "x" * self.random.randrange(2000)}
        return {"apiVersion": group.removeprefix("apis/"), "kind": kind, **rest,
                "metadata": {"name": name, "labels": {"tier": tier}, "annotations": annotations}}


class Client:
    """The program under test; answers `dump` with what it holds."""

    def __init__(self, command, port):
        url = f"http://127.0.0.1:{port}/services/cache/shards/*/clusters/*"
        self.process = subprocess.Popen([*command, "--server", url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def dump(self):
        if self.process.poll() is not None:
            raise SystemExit(f"FAILED: the client ended with code {self.process.returncode}")
        self.process.stdin.write("dump\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit("FAILED: the client ended")
        return json.loads(line)

    def end(self):
        self.process.stdin.write("quit\n")
        self.process.stdin.flush()
        self.process.wait(timeout=20)


def converge(what, server, client, selector):
    def equal():
        held = client.dump()
        return held["synced"] and held["items"] == server.items(selector)
    until(f"the client's cache equals the server's LIST {what}", equal)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--resource", default="apiexports", choices=TYPES)
    parser.add_argument("--selector", default="")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        try:
            run(options, directory)
        except BaseException:
            with open(os.path.join(directory, "server.log"), "rb") as log:
                sys.stderr.write(log.read()[-4000:].decode(errors="replace"))
            raise


def run(options, directory):
    server = Server(options.binary, directory, resource=options.resource)
    server.start()
    cutter = Cutter(("127.0.0.1", server.port))
    client = Client(options.command, cutter.port)
    try:
        until("the client is synced on an empty store", lambda: client.dump()["synced"])
        churn = Churn(server, options.seed)
        churn.run(options.steps)
        converge("after churn", server, client, options.selector)

        def whole_reads():
            return cutter.lists(options.resource) + cutter.initial_streams(options.resource)

        before = whole_reads()
        def everyone_saw_something():
            # client-go lists again when a watch of less than a second brought it nothing; that is its rule,
            # so no connection is cut before it has brought something that every selector here selects.
            churn.create("gold")
            converge("before the connection goes", server, client, options.selector)

        for _ in range(3):
            churn.run(options.steps // 3)
            everyone_saw_something()
            cutter.cut()
        converge("after forced disconnects", server, client, options.selector)
        for stop in (signal.SIGTERM, signal.SIGKILL):
            churn.run(options.steps // 3)
            everyone_saw_something()
            server.stop(stop)
            server.start()
            churn.run(options.steps // 3)
            converge(f"after {stop.name}", server, client, options.selector)
        restarts = whole_reads() - before

        cutter.slow(20_000)
        churn.run(options.steps)
        cutter.slow(None)
        converge("after slow consumption", server, client, options.selector)

        before = whole_reads()
        held_at = server.list(options.selector)["metadata"]["resourceVersion"]
        cutter.hold()
        server.stop(signal.SIGTERM)
        server.extra = ["--history-age", "1s", "--history-bytes", "64KiB"]
        server.start()
        churn.run(4 * options.steps)
        until("history is trimmed", lambda: expired(server, held_at))
        cutter.release()
        converge("after forced expiry", server, client, options.selector)
        expiry = whole_reads() - before
        client.end()
    finally:
        client.process.kill()
        server.process.kill()
    print(f"{options.name}: converged; whole reads after disconnects and restarts: {restarts}, after forced expiry: {expiry}", flush=True)
    if restarts:
        raise SystemExit(f"FAILED: {options.name} read a whole list again after a mere disconnect or restart")
    if not expiry:
        raise SystemExit(f"FAILED: {options.name} was never made to relist; the expiry part tested nothing")


def expired(server, version):
    """Whether a watch from a version is answered 410 Expired in the stream."""
    path = f"/services/cache/shards/*/clusters/*/{server.group}/{server.resource}?watch=1&timeoutSeconds=1&resourceVersion={version}"
    first = server.get(path, raw=True).partition(b"\n")[0]
    return bool(first) and json.loads(first)["object"].get("code") == 410


if __name__ == "__main__":
    main()
