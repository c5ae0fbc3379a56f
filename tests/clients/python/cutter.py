"""A TCP relay that can be cut, held, stalled and slowed, and that notes the requests that pass.

It stands between a client and the server, so that a disconnect happens exactly when the scenario says
so, whatever the client library does with its connections.
"""
import collections
import re
import socket
import threading
import time

REQUEST = re.compile(rb"(GET|POST|PUT|PATCH|DELETE) (\S+) HTTP/1\.[01]\r\n((?:[^\r\n]+\r\n)*)\r\n")
SWITCHED = b"HTTP/1.1 101 "
# Of what a connection sent and no request was found in yet; heads are far shorter.
UNREAD_MAX = 1 << 16
# What the relay holds of an answer that nobody reads: little, so that a stall reaches the server.
BUFFER = 1 << 17

# `head` is everything between the first line and the empty one, in lower case.
Request = collections.namedtuple("Request", "verb path head")


class Cutter:
    """Relays `127.0.0.1:port` to `target`; plain HTTP/1.1 only."""

    def __init__(self, target):
        self.target = target
        self.pairs = set()
        self.lock = threading.Lock()
        self.open = threading.Event()
        self.open.set()
        self.flowing = threading.Event()
        self.flowing.set()
        self.bytes_per_second = None
        self.requests = []
        self.switches = 0
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self):
        """Closes every connection at once: no request slips through on another one while they close."""
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

    def stall(self):
        """No client gets a byte until `flow`."""
        self.flowing.clear()

    def flow(self, bytes_per_second=None):
        """Ends a stall; each connection gets so much at most, or all there is."""
        self.bytes_per_second = bytes_per_second
        self.flowing.set()

    def lists(self, resource):
        """How many reads of a resource's collection that are not watches have passed."""
        return sum(1 for request in self.reads(resource) if not is_watch(request))

    def initial_streams(self, resource):
        """How many watch-list requests for a resource have passed: each carries a whole list."""
        return sum(1 for request in self.reads(resource) if "sendInitialEvents=true" in request.path)

    def watches(self, resource):
        return [request for request in self.reads(resource) if is_watch(request)]

    def reads(self, resource):
        with self.lock:
            return [r for r in self.requests if r.verb == "GET" and r.path.partition("?")[0].endswith("/" + resource)]

    def _accept(self):
        while True:
            near, _ = self.listener.accept()
            threading.Thread(target=self._serve, args=(near,), daemon=True).start()

    def _serve(self, near):
        if not self.open.is_set():
            near.close()
            return
        far = socket.socket()
        try:
            far.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER)
            far.settimeout(5)
            far.connect(self.target)
            far.settimeout(None)
        except OSError:
            far.close()
            near.close()
            return
        pair = (near, far)
        with self.lock:
            self.pairs.add(pair)
        threading.Thread(target=self._forward, args=pair, daemon=True).start()
        self._answer(*pair)

    def _forward(self, near, far):
        unread = b""

        def note(data):
            nonlocal unread
            with self.lock:
                if (near, far) not in self.pairs:
                    raise ConnectionAbortedError
            unread += data
            end = 0
            for found in REQUEST.finditer(unread):
                verb, path, head = (piece.decode() for piece in found.groups())
                with self.lock:
                    self.requests.append(Request(verb, path, head.lower()))
                end = found.end()
            unread = unread[end:][-UNREAD_MAX:]
        relay(near, far, note)

    def _answer(self, near, far):
        def pace(data):
            self.flowing.wait()
            if (rate := self.bytes_per_second):
                time.sleep(len(data) / rate)  # the limit itself, not a wait for something
            if data.startswith(SWITCHED):
                with self.lock:
                    self.switches += 1
        relay(far, near, pace)


def is_watch(request):
    return "watch=" in request.path.lower()


def relay(source, sink, look):
    """Copies until either end is closed; `look` sees the bytes first, and may take its time."""
    try:
        while data := source.recv(65536):
            look(data)
            sink.sendall(data)
    except OSError:
        pass
    for end in (source, sink):
        try:
            end.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
