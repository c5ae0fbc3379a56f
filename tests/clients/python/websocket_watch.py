"""A watch over WebSocket with the library that the Python client brings along, which sends an Origin as
fabric8 does: every event is one text message, the server answers pings, and an error comes inside.

    websocket_watch.py URL      (URL of a logical cluster of a shard)
"""
import json
import sys
import urllib.request

import websocket

PATIENCE = 60
NAMESPACES = "/api/v1/namespaces"


def send(url, method, body=None, kind="application/json"):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data=data, method=method, headers={"Content-Type": kind})
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        return json.load(answer)


def watch(url, query, **options):
    socket = url.replace("http://", "ws://") + f"{NAMESPACES}?watch=true&{query}"
    return websocket.create_connection(socket, timeout=PATIENCE, **options)


def event(connection):
    opcode, data = connection.recv_data()
    assert opcode == websocket.ABNF.OPCODE_TEXT, (opcode, data)
    return json.loads(data)


def main():
    url = sys.argv[1]
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "one"}}
    listed = send(url + NAMESPACES, "GET")["metadata"]["resourceVersion"]
    connection = watch(url, f"resourceVersion={listed}", subprotocols=["v4.channel.k8s.io"])
    assert connection.getsubprotocol() == "v4.channel.k8s.io", connection.getsubprotocol()
    send(url + NAMESPACES, "POST", namespace)
    send(f"{url}{NAMESPACES}/one", "PATCH", {"metadata": {"labels": {"a": "b"}}}, "application/merge-patch+json")
    connection.ping("x")
    assert connection.recv_data(control_frame=True) is not None
    send(f"{url}{NAMESPACES}/one", "DELETE")
    connection.close()

    connection = watch(url, f"resourceVersion={listed}")
    seen = [event(connection) for _ in range(3)]
    assert [e["type"] for e in seen] == ["ADDED", "MODIFIED", "DELETED"], seen
    versions = [int(e["object"]["metadata"]["resourceVersion"]) for e in seen]
    assert versions == sorted(set(versions)), versions
    connection.close()

    connection = watch(url, "timeoutSeconds=1")
    assert connection.recv_data(control_frame=True)[0] == websocket.ABNF.OPCODE_CLOSE, "the deadline ends it properly"

    connection = watch(url, "resourceVersion=9999999999999999999")
    error = event(connection)
    assert error["type"] == "ERROR" and error["object"]["code"] == 410, error
    try:
        watch(url, "", origin="http://elsewhere.example")
        raise AssertionError("a page from elsewhere got a socket")
    except websocket.WebSocketBadStatusException as refused:
        assert refused.status_code == 403, refused
    print("websocket: passed", flush=True)


if __name__ == "__main__":
    main()
