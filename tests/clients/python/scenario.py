"""The shared scenario: one server, one client behind a cutter, and everything that can happen to them.

    scenario.py --binary target/debug/shardcache --name client-go-dynamic -- /path/to/client --flags

The client is started with `--server URL` added, on a store without objects, and answers two questions, one
line each way:

    dump    {"synced": true, "items": {"<shard>|<cluster>|<namespace>|<name>": "<resourceVersion>"}}
    events  {"streams": [[["ADDED", "<name>", "<resourceVersion>"], …], …]}: what its handlers saw since the
            last such question, a list for each watch that it has, in the order in which they saw it

After each part its cache must equal the server's LIST, and its events must be those of the writes, none
lost and none repeated. How often it read a whole list is printed: not once by mere disconnects and restarts.
"""
import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request

from churn import TYPES, Churn, events
from cutter import Cutter

DEADLINE = 90
# A stalled client is sent far more than any buffer between it and the server holds.
FLOOD_OBJECTS, FLOOD_BYTES = 40, 200_000
WATCH_EVENTS = "shardcache_watch_events_total "
PROTOBUF = "accept: application/vnd.kubernetes.protobuf"


class Server:
    """The real binary on a directory of its own; keeps its port over restarts."""

    def __init__(self, binary, directory, extra=(), resource="apiexports"):
        self.binary, self.directory, self.extra, self.port = binary, directory, extra, 0
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

    def metric(self, name):
        """The value of the one series whose name, labels included, begins so."""
        lines = self.get("/metrics", raw=True).decode().splitlines()
        return next(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name))

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


class Client:
    """The program under test."""

    def __init__(self, command, port, environment=()):
        url = f"http://127.0.0.1:{port}/services/cache/shards/*/clusters/*"
        self.process = subprocess.Popen(
            [*command, "--server", url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, **dict(environment)})

    def ask(self, question):
        if self.process.poll() is not None:
            raise SystemExit(f"FAILED: the client ended with code {self.process.returncode}")
        self.process.stdin.write(question + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit("FAILED: the client ended")
        return json.loads(line)

    def end(self):
        self.process.stdin.write("quit\n")
        self.process.stdin.flush()
        self.process.wait(timeout=20)


class Witness:
    """Compares what the client saw with what was written."""

    def __init__(self, client, churn, options):
        self.client, self.churn, self.selector, self.folds = client, churn, options.selector, options.folds
        self.ordered = not options.order_per_object
        self.count = 0
        self.forget()

    def forget(self):
        """After a whole list the client's events are differences of states; what follows is exact again."""
        self.client.ask("events")
        self.start, self.seen, self.newest = len(self.churn.writes), [], {}

    def check(self, what):
        if self.folds:
            return
        due = events(self.churn.writes[self.start:], self.selector)
        until(f"all {len(due)} events {what}, not {len(self.seen)}", lambda: self.collect() >= len(due))
        for at, (saw, wrote) in enumerate(zip(self.seen, due)):
            if saw != wrote:
                raise SystemExit(f"FAILED: {what}: event {at} is {saw} and should be {wrote}")
        if len(self.seen) > len(due):
            raise SystemExit(f"FAILED: {what}: events nobody made: {self.seen[len(due):]}")
        self.count += len(due)
        self.start, self.seen = len(self.churn.writes), []

    def collect(self):
        for number, stream in enumerate(self.client.ask("events")["streams"]):
            for event in stream:
                line = number if self.ordered else (number, event[1])
                if int(event[2]) <= self.newest.get(line, 0):
                    raise SystemExit(f"FAILED: {event} came after version {self.newest[line]}")
                self.newest[line] = int(event[2])
                self.seen.append(tuple(event))
        self.seen.sort(key=lambda event: int(event[2]))
        return len(self.seen)


class Scenario:
    """One client through all of it."""

    def __init__(self, options, directory):
        self.options = options
        self.server = Server(options.binary, directory, resource=options.resource)
        self.server.start()
        self.cutter = Cutter(("127.0.0.1", self.server.port))
        self.churn = Churn(self.server, options.seed)
        self.client = Client(options.command, self.cutter.port)
        self.apart = "not asked yet"

    def run(self):
        until("the client is synced on an empty store", lambda: self.client.ask("dump")["synced"])
        self.witness = Witness(self.client, self.churn, self.options)
        self.write(self.options.steps, "after churn")
        start = self.whole_reads()
        disconnects = self.reads_of(self.disconnects)
        restarts = self.reads_of(self.restarts)
        stall = self.reads_of(self.stall)
        expiry = self.reads_of(self.expiry)
        self.write(self.options.steps, "after all of it")
        self.client.end()
        transport = self.transport()
        count = "folded" if self.options.folds else self.witness.count
        print(f"{self.options.name}: converged; events: {count}; watches: {transport}; whole reads to start: {start}, after "
              f"disconnects: {disconnects}, restarts: {restarts}, a stall: {stall}, forced expiry: {expiry}", flush=True)
        if disconnects + restarts + stall:
            raise SystemExit(f"FAILED: {self.options.name} read a whole list again without need")
        if not expiry:
            raise SystemExit(f"FAILED: {self.options.name} was never made to relist; the expiry part tested nothing")

    def disconnects(self):
        for _ in range(3):
            self.write(self.options.steps // 3, "before the connection goes", last="gold")
            self.cutter.cut()
        self.converge("after forced disconnects")

    def restarts(self):
        for stop in (signal.SIGTERM, signal.SIGKILL):
            self.write(self.options.steps // 3, f"before {stop.name}", last="gold")
            self.server.stop(stop)
            self.server.start()
            self.write(self.options.steps // 3, f"after {stop.name}")

    def stall(self):
        """The client accepts nothing while far more is written than is buffered anywhere, then little."""
        before = self.server.metric(WATCH_EVENTS)
        self.cutter.stall()
        flood = [self.churn.create("gold", FLOOD_BYTES) for _ in range(FLOOD_OBJECTS)]
        for name in flood:
            self.churn.delete(name)
        # Who has this one has had all of the flood.
        self.churn.create("gold")
        sent = self.server.metric(WATCH_EVENTS) - before
        assert sent < 2 * FLOOD_OBJECTS, f"{sent} events went out to a client that reads nothing"
        self.cutter.flow(bytes_per_second=20_000_000)
        self.converge("after a stall")
        self.cutter.flow()

    def expiry(self):
        held_at = self.server.list(self.options.selector)["metadata"]["resourceVersion"]
        self.cutter.hold()
        self.reopen("--history-age", "1s", "--history-bytes", "64KiB")
        self.churn.run(4 * self.options.steps, deletions=not self.options.misses_deletions)
        until("history is trimmed", lambda: expired(self.server, held_at))
        self.reopen()
        self.cutter.release()
        until("the cache is equal after forced expiry", self.equal)
        self.witness.forget()

    def reopen(self, *extra):
        self.server.stop(signal.SIGTERM)
        self.server.extra = extra
        self.server.start()

    def write(self, steps, what, last=None):
        """client-go lists again when a watch of less than a second brought it nothing; that is its rule, so
        no connection is cut before it has brought something that every selector here selects: `last`."""
        self.churn.run(steps)
        if last:
            self.churn.create(last)
        self.converge(what)

    def converge(self, what):
        until(f"the client's cache equals the server's LIST {what}", self.equal)
        self.witness.check(what)

    def equal(self):
        held, items = self.client.ask("dump"), self.server.items(self.options.selector)
        apart = sorted(dict(held["items"].items() ^ items.items()))
        self.apart = f"synced: {held['synced']}, {len(apart)} objects apart: {apart[:5]}"
        return held["synced"] and not apart

    def reads_of(self, part):
        before = self.whole_reads()
        part()
        return self.whole_reads() - before

    def whole_reads(self):
        return self.cutter.lists(self.options.resource) + self.cutter.initial_streams(self.options.resource)

    def transport(self):
        """How the watches came, and whether that is as it was expected."""
        watches = self.cutter.watches(self.options.resource)
        sockets = sum(1 for request in watches if "upgrade: websocket" in request.head)
        if self.options.websocket:
            assert self.cutter.switches and sockets == len(watches), f"{sockets} of {len(watches)} watches asked for a WebSocket, {self.cutter.switches} got one"
        if self.options.protobuf_first:
            assert all(PROTOBUF in request.head for request in watches), watches[0].head
        return f"{len(watches)} ({self.cutter.switches} over WebSocket)" if self.cutter.switches else len(watches)

    def end(self):
        self.client.process.kill()
        self.server.process.kill()


def expired(server, version):
    """Whether a watch from a version is answered 410 Expired in the stream."""
    path = f"/services/cache/shards/*/clusters/*/{server.group}/{server.resource}?watch=1&timeoutSeconds=1&resourceVersion={version}"
    first = server.get(path, raw=True).partition(b"\n")[0]
    return bool(first) and json.loads(first)["object"].get("code") == 410


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--resource", default="apiexports", choices=TYPES)
    parser.add_argument("--selector", default="")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--folds", action="store_true", help="the client makes one event of several, so its events are not compared")
    parser.add_argument("--order-per-object", action="store_true", help="the client does not promise its handlers an order over all objects")
    parser.add_argument("--misses-deletions", action="store_true", help="the client does not see in a whole list what is gone, so nothing is deleted before one")
    parser.add_argument("--websocket", action="store_true", help="every watch must come over WebSocket")
    parser.add_argument("--protobuf-first", action="store_true", help="every watch must ask for protobuf before JSON")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        scenario = Scenario(options, directory)
        try:
            scenario.run()
        except BaseException:
            print(f"when last asked, {options.name} was {scenario.apart}", file=sys.stderr)
            with open(os.path.join(directory, "server.log"), "rb") as log:
                sys.stderr.write(log.read()[-4000:].decode(errors="replace"))
            raise
        finally:
            scenario.end()


if __name__ == "__main__":
    main()
