"""A lost store and a dead shard delete nothing (D42), and a refusal reaches who asked (D41), with client-go.

    lost_store.py --binary target/debug/shardcache --informer FILE --refused FILE

Three informers of everything run while the store of ten shards is lost and nine of them come back. None may
see a deletion for as long as the tenth is away. Then an administrator excuses it, and what they do is judged.
"""
import argparse
import json
import os
import shutil
import signal
import subprocess
import tempfile
import urllib.error

from pusher import GROUP, RESOURCE, VERSION, Pusher
from scenario import Client, Server, until

SHARDS = [f"s{number}" for number in range(10)]
TENTH = SHARDS[-1]
NAMES = {shard: [f"{shard}-export-{number}" for number in range(5)] for shard in SHARDS}
# Of the library's two ways to list, and of its two kinds of clients without types.
INFORMERS = [("dynamic", "true"), ("metadata", "true"), ("dynamic", "false")]
# The library pauses for up to a minute between two attempts that fail.
PATIENCE = 180
# A read waits for 3 s. Who asks twice by itself waits at least twice as long.
TWICE = 6
REFUSALS = "shardcache_freshness_refusals_total"


def keys(shards):
    return {f"{shard}|root||{name}" for shard in shards for name in NAMES[shard]}


class Informer:
    """One informer of everything, and all that it has seen."""

    def __init__(self, program, server, kind, streams):
        self.name = f"{kind}, watch-list {streams}"
        self.client = Client([program, "--kind", kind], server.port, {"KUBE_FEATURE_WatchListClient": streams})

    def holds(self, shards):
        dump = self.client.ask("dump")
        return dump["synced"] and set(dump["items"]) == keys(shards)

    def deletions(self):
        """Since it was asked last."""
        streams = self.client.ask("events")["streams"]
        return sorted(name for stream in streams for kind, name, _ in stream if kind == "DELETED")

    def failures(self):
        return self.client.ask("failures")["failures"]


def causes_of(server, path):
    """Why a read is refused, and whom that names; nothing if it is not."""
    try:
        server.get(path)
    except urllib.error.HTTPError as error:
        status = json.loads(error.read())
        assert (error.code, status["reason"]) == (500, "ServerTimeout"), status
        return [(cause["reason"], cause["field"]) for cause in status["details"]["causes"]]
    return None


def refused(server, program):
    """client-go tells its caller once what it was told once."""
    shard = SHARDS[0]
    url = f"http://127.0.0.1:{server.port}/services/cache/shards/{shard}/clusters/root"
    counted = f'{REFUSALS}{{reason="unconfirmed"}} '
    before = server.metric(counted)
    answers = json.loads(subprocess.run([program, url, NAMES[shard][0]], check=True, timeout=120, stdout=subprocess.PIPE).stdout)
    asked = server.metric(counted) - before
    print(f"  a list and a get were refused after {', '.join(format(answer['seconds'], '.2f') for answer in answers)} s")
    assert len(answers) == 2 and asked == 2, f"{asked} requests for {answers}"
    for answer in answers:
        assert answer["serverTimeout"] and answer["seconds"] < TWICE, answer
        assert [(cause["reason"], cause["field"]) for cause in answer["causes"]] == [("ShardUnconfirmed", f"shards/{shard}")], answer


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", required=True)
    parser.add_argument("--informer", required=True)
    parser.add_argument("--refused", required=True)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        roster = os.path.join(directory, "roster")
        with open(roster, "w") as file:
            file.write("\n".join(SHARDS))
        server = Server(options.binary, directory, extra=("--roster", roster))
        server.start()
        try:
            run(server, options, directory)
        finally:
            server.process.kill()


def run(server, options, directory):
    pushers = [Pusher(server, shard, NAMES[shard]) for shard in SHARDS]
    informers = [Informer(options.informer, server, *how) for how in INFORMERS]
    for informer in informers:
        until(f"{informer.name} holds everything", lambda: informer.holds(SHARDS))
        assert informer.deletions() == []
    refused(server, options.refused)

    # Before the server, which would end their streams under them.
    for pusher in pushers:
        pusher.end()
    server.stop(signal.SIGKILL)
    shutil.rmtree(os.path.join(directory, "data"))
    server.start()
    pushers = [Pusher(server, shard, NAMES[shard]) for shard in SHARDS if shard != TENTH]
    everything = f"/services/cache/shards/*/clusters/*/apis/{GROUP}/{VERSION}/{RESOURCE}"
    for query in ["", "?resourceVersion=0", "?limit=3"]:
        assert causes_of(server, everything + query) == [("Incomplete", f"shards/{TENTH}")], query
    incomplete = f'{REFUSALS}{{reason="incomplete"}} '
    failed, before = [informer.failures() for informer in informers], server.metric(incomplete)
    for informer, failures in zip(informers, failed):
        # What fails from here on is refused: there is a server, without the tenth.
        until(f"{informer.name} asks again", lambda: informer.failures() > failures, deadline=PATIENCE)
    refusals = server.metric(incomplete) - before
    assert refusals >= len(informers), refusals
    for informer in informers:
        assert informer.deletions() == [], informer.name
        assert informer.holds(SHARDS), f"{informer.name} keeps what it had"
    print(f"  {len(informers)} informers kept everything while {refusals:.0f} of their reads were refused")

    excused = subprocess.run([options.binary, "ctl", "shards", "excuse", TENTH, "--data-dir", os.path.join(directory, "data")])
    assert excused.returncode == 0
    for informer in informers:
        rest = [shard for shard in SHARDS if shard != TENTH]
        until(f"{informer.name} syncs without the tenth", lambda: informer.holds(rest), deadline=PATIENCE)
        assert informer.deletions() == sorted(NAMES[TENTH]), "an administrator has said so, of nobody else"
    pushers.append(Pusher(server, TENTH, NAMES[TENTH]))
    for informer in informers:
        until(f"{informer.name} holds everything again", lambda: informer.holds(SHARDS))
        assert informer.deletions() == []
        informer.client.end()
    for pusher in pushers:
        pusher.end()
    server.stop(signal.SIGTERM)
    print("ok: a lost store and a dead shard, client-go")


if __name__ == "__main__":
    main()
