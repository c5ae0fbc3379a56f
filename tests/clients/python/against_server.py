"""Starts the server and runs a command against it; the command's exit code is the result.

    against_server.py --binary target/debug/shardcache [--crd] -- command …

`{url}` in the command is the base URL of shard amber, cluster root; `KUBECONFIG` names a file for it.
"""
import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile

from scenario import Server

KUBECONFIG = {"apiVersion": "v1", "kind": "Config", "current-context": "c", "users": [{"name": "u", "user": {}}],
              "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}]}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", required=True)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    command = [piece for piece in options.command if piece != "--"]
    with tempfile.TemporaryDirectory() as directory:
        server = Server(options.binary, directory)
        server.start()
        try:
            url = f"http://127.0.0.1:{server.port}/services/cache/shards/amber/clusters/root"
            kubeconfig = os.path.join(directory, "kubeconfig")
            with open(kubeconfig, "w") as file:
                json.dump({**KUBECONFIG, "clusters": [{"name": "c", "cluster": {"server": url}}]}, file)
            environment = {**os.environ, "KUBECONFIG": kubeconfig, "HOME": directory}
            command = [piece.replace("{url}", url) for piece in command]
            return subprocess.run(command, env=environment, timeout=180).returncode
        finally:
            server.stop(signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
