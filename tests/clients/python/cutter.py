"""A TCP relay that can be cut, held and slowed, and that counts the requests that pass.

It stands between a client and the server, so that a disconnect happens exactly when the scenario says
so, whatever the client library does with its connections.
"""
import re
import socket
import threading
import time

REQUEST = re.compile(rb"(?:^|\n)(GET|POST|PUT|PATCH|DELETE) (\S+) HTTP/1\.[01]\r\n")


class Cutter:
    """Relays `127.0.0.1:port` to `target`; plain HTTP/1.1 only."""

    def __init__(self, target):
        self.target = target
        self.pairs = set()
        self.lock = threading.Lock()
        self.open = threading.Event()
        self.open.set()
        self.bytes_per_second = None
        self.requests = []
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self):
        """Closes every connection at once."""
        with self.lock:
            pairs, self.pairs = self.pairs, set()
        for pair in pairs:
            for end in pair:
                try:
                    end.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass

    def hold(self):
        """Cuts, and refuses every new connection until `release`."""
        self.open.clear()
        self.cut()

    def release(self):
        self.open.set()

    def slow(self, bytes_per_second):
        """Limits what each client may read; None lifts the limit."""
        self.bytes_per_second = bytes_per_second

    def lists(self, resource):
        """How many reads of a resource's collection that are not watches have passed."""
        return sum(1 for path in self._reads(resource) if "watch=" not in path.lower())

    def initial_streams(self, resource):
        """How many watch-list requests for a resource have passed: each carries a whole list."""
        return sum(1 for path in self._reads(resource) if "sendInitialEvents=true" in path)

    def _reads(self, resource):
        with self.lock:
            return [path for verb, path in self.requests if verb == "GET" and path.partition("?")[0].endswith("/" + resource)]

    def _accept(self):
        while True:
            near, _ = self.listener.accept()
            threading.Thread(target=self._serve, args=(near,), daemon=True).start()

    def _serve(self, near):
        if not self.open.is_set():
            near.close()
            return
        try:
            far = socket.create_connection(self.target, timeout=5)
            far.settimeout(None)
        except OSError:
            near.close()
            return
        pair = (near, far)
        with self.lock:
            self.pairs.add(pair)
        threading.Thread(target=self._pump, args=(near, far, True), daemon=True).start()
        self._pump(far, near, False)

    def _pump(self, source, sink, is_request):
        try:
            while data := source.recv(65536):
                if is_request:
                    found = [(verb.decode(), path.decode()) for verb, path in REQUEST.findall(data)]
                    with self.lock:
                        self.requests.extend(found)
                elif (rate := self.bytes_per_second):
                    time.sleep(len(data) / rate)  # the limit itself, not a wait for something
                sink.sendall(data)
        except OSError:
            pass
        for end in (source, sink):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
