"""A kopf operator that remembers the newest state of every API export that it was told of. Answers its
driver, scenario.py. kopf hands a handler the newest of what came in a moment, so its events are not told,
and when it lists again it does not notice what is gone.
"""
import argparse
import json
import logging
import sys
import threading

import kopf

parser = argparse.ArgumentParser()
parser.add_argument("--server", required=True)
options = parser.parse_args()

lock = threading.Lock()
items = {}
ready, stop = threading.Event(), threading.Event()


@kopf.on.login()
def login(**_):
    return kopf.ConnectionInfo(server=options.server)


@kopf.on.startup()
def configure(settings, **_):
    # Nothing is written back, and nobody has to wait long for it after an error.
    settings.posting.enabled = False
    settings.networking.error_backoffs = [0.2] * 500


@kopf.on.event("apis.kcp.io", "v1alpha2", "apiexports")
def export(event, meta, **_):
    place = meta["annotations"]
    key = "|".join([place["kcp.io/shard"], place["kcp.io/cluster"], "", meta["name"]])
    with lock:
        if event["type"] == "DELETED":
            items.pop(key, None)
        else:
            items[key] = meta["resourceVersion"]


logging.disable()
operator = threading.Thread(target=lambda: kopf.run(clusterwide=True, standalone=True, stop_flag=stop, ready_flag=ready))
operator.start()
for line in sys.stdin:
    question = line.strip()
    if question == "dump":
        with lock:
            answer = {"synced": ready.is_set() and operator.is_alive(), "items": items}
    elif question == "events":
        answer = {"streams": []}
    else:
        break
    print(json.dumps(answer), flush=True)
stop.set()
