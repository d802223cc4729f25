"""A TCP link that a test can cut, and stop for a while."""
import select
import socket
import struct
import threading
import time


class Proxy:
    """Passes on what comes to its port, to another port or address of this host. One thread; all functions from any other."""

    def __init__(self, target, host="127.0.0.1", port=0):
        self.target = host, target
        self.listener = socket.create_server(("127.0.0.1", port))
        self.port = self.listener.getsockname()[1]
        self.pairs = {}  # socket -> the one on the other side
        self.held = {}  # socket -> what it has not taken yet
        self.lock = threading.Lock()
        self.stalled_until = 0.0
        self.ending = False
        self.wake, self.woken = socket.socketpair()
        self.thread = threading.Thread(target=self._carry, daemon=True)
        self.thread.start()

    def cut(self):
        """Every connection ends, in both directions at once."""
        with self.lock:
            for one in list(self.pairs):
                if one in self.pairs:  # else it went with the other
                    self._drop(one)
        self.wake.send(b"x")

    def stall(self, seconds):
        """Nothing is read or passed on for so long. Returns at once."""
        self.stalled_until = time.monotonic() + seconds
        self.wake.send(b"x")

    def close(self):
        self.ending = True
        self.wake.send(b"x")
        self.thread.join(10)
        self.cut()
        for one in (self.listener, self.wake, self.woken):
            one.close()

    def _carry(self):
        while not self.ending:
            left = self.stalled_until - time.monotonic()
            if left > 0:
                select.select([self.woken], [], [], left)
                continue
            with self.lock:
                writing = [s for s, bytes_left in self.held.items() if bytes_left]
                reading = [s for s, other in self.pairs.items() if not self.held[other]]
            try:
                readable, writable, _ = select.select([self.listener, self.woken, *reading], writing, [], 1)
            except (OSError, ValueError):  # one was cut meanwhile
                assert all(s.fileno() < 1024 for s in (*reading, *writing)), "more descriptors than select can take"
                continue
            with self.lock:
                if self.woken in readable:
                    self.woken.recv(100)
                if self.listener in readable:
                    self._accept()
                for one in readable:
                    if one in self.pairs:
                        self._read(one)
                for one in writable:
                    if one in self.pairs:
                        self._write(one)

    def _accept(self):
        near, _ = self.listener.accept()
        try:
            far = socket.create_connection(self.target, 5)
        except OSError:
            return near.close()
        for one, other in ((near, far), (far, near)):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            one.setblocking(False)
            self.pairs[one], self.held[one] = other, b""

    def _read(self, one):
        try:
            got = one.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            got = b""
        if not got:
            return self._drop(one)
        other = self.pairs[one]
        self.passes(one, got)
        self.held[other] += got
        self._write(other)

    def passes(self, one, got):
        """Called with what came from a socket, before it goes on."""

    def _write(self, one):
        try:
            self.held[one] = self.held[one][one.send(self.held[one]):]
        except BlockingIOError:
            pass
        except OSError:
            self._drop(one)

    def _drop(self, one):
        other = self.pairs.pop(one)
        self.pairs.pop(other)
        for s in (one, other):
            self.held.pop(s)
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            s.close()
