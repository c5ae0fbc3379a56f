"""A shard that pushes its exports, over `shardcache ctl push`: docs/push-protocol.md, and no more of it than
a first sync and a sign of life need. It answers no barrier, so nobody learns from it how far its source is."""
import hashlib
import json
import subprocess
import threading

CLUSTER = "root"
# Seconds between two signs of life; a stream that has none for 60 s ends.
BEAT = 10
GROUP, VERSION, RESOURCE, KIND = "apis.kcp.io", "v1alpha2", "apiexports", "APIExport"


class Stream:
    """One push stream; its end is the end of its process."""

    def __init__(self, server, shard, resource=None, **hello):
        command = [server.binary, "ctl", "push", "--shard", shard, "--cache-url", f"http://127.0.0.1:{server.port}/services/cache"]
        if resource:
            command += ["--resource", resource]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.count = 0
        self.send("hello", holder=f"pusher-of-{shard}", instance=f"instance-of-{shard}", **hello)
        self.welcome = self.until("welcome")

    def send(self, kind, **frame):
        self.count += 1
        self.process.stdin.write(json.dumps({"type": kind, "seq": self.count, **frame}) + "\n")
        self.process.stdin.flush()

    def until(self, kind, **fields):
        """Reads to a frame of this type with these fields."""
        while line := self.process.stdout.readline():
            frame = json.loads(line)
            if frame["type"] == kind and all(frame.get(name) == value for name, value in fields.items()):
                return frame
            assert frame["type"] not in ("error", "fenced", "resync"), frame
        raise SystemExit(f"FAILED: the stream ended before {kind}")

    def settle(self):
        """Everything that was sent is durable and shown."""
        return self.until("ack", seq=self.count)

    def end(self):
        self.process.kill()
        self.process.wait()


class Pusher:
    """A shard with these objects, announced and synced."""

    def __init__(self, server, shard, names):
        self.control = Stream(server, shard)
        self.control.send("catalog", types=[{"group": GROUP, "resource": RESOURCE}])
        self.control.settle()
        version = str(100 + len(names))
        self.cell = Stream(server, shard, f"{GROUP}/{VERSION}/{RESOURCE}", source={"id": f"source-of-{shard}", "headRV": version})
        assert self.cell.welcome["needSync"], self.cell.welcome
        self.cell.send("syncStart", sync=1)
        total = 0
        for number, name in enumerate(names, 101):
            uid = f"uid-of-{name}"
            metadata = {"name": name, "uid": uid, "resourceVersion": str(number)}
            self.cell.send("upsert", rv=str(number), cluster=CLUSTER, object={
                "apiVersion": f"{GROUP}/{VERSION}", "kind": KIND, "metadata": metadata, "spec": {}})
            entry = "\0".join([CLUSTER, "", name, uid, str(number)])
            total += int.from_bytes(hashlib.sha256(entry.encode()).digest()[:16], "big")
        self.sum = {"rv": version, "count": len(names), "digest": f"{total % (1 << 128):032x}"}
        self.cell.send("syncEnd", sync=1, **self.sum)
        ack = self.cell.settle()
        assert ack["position"] == version, ack
        self.ended = threading.Event()
        self.beating = threading.Thread(target=self.beat, daemon=True)
        self.beating.start()

    def beat(self):
        while not self.ended.wait(BEAT):
            self.control.send("progress")
            self.cell.send("progress", **self.sum)

    def end(self):
        self.ended.set()
        self.beating.join()
        self.cell.end()
        self.control.end()
