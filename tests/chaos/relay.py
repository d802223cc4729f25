"""Links that lose, delay, double and reorder packets, for kernels without netem: while it lasts, all that a host sends
and gets goes through this process."""
import heapq
import os
import random
import select
import socket
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "integration"))
import hosts  # noqa: E402

SOL_PACKET, PACKET_VNET_HDR, PACKET_IGNORE_OUTGOING, ETH_P_ALL = 263, 15, 23, 3


class BadLink:
    """Between a port of the bridge and the bridge.

    `loss` and `twice` are shares of packets, `delay` and `jitter` seconds; `ways`: "both", "in" (to the host) or "out".
    """

    def __init__(self, switch, number, seed, loss=0.0, twice=0.0, delay=0.0, jitter=0.0, ways="both"):
        self.switch, self.port, self.inner = switch, f"port{number}", f"relay{number}"
        self.dice = random.Random(seed)
        self.loss, self.twice, self.delay, self.jitter, self.ways = loss, twice, delay, jitter, ways
        self.ended, self.wake = os.pipe()
        self._ip("link", "add", self.inner, "type", "veth", "peer", "name", f"{self.inner}b")
        self._ip("link", "set", self.inner, "up")
        self._ip("link", "set", f"{self.inner}b", "up")
        ready = threading.Event()
        self.thread = threading.Thread(target=self._carry, args=(ready,), daemon=True)
        self.thread.start()
        ready.wait(10)
        self._ip("link", "set", self.port, "nomaster")
        self._ip("link", "set", f"{self.inner}b", "master", "bridge")

    def end(self):
        """The link is a wire again."""
        os.close(self.wake)
        self.thread.join(10)
        os.close(self.ended)
        self._ip("link", "set", self.port, "master", "bridge")
        self._ip("link", "del", self.inner)

    def _ip(self, *args):
        subprocess.run(["ip", "-n", self.switch, *args], check=True, capture_output=True)

    def _socket(self, device):
        # Frames come as the kernel has them: unfinished checksums and all, which a header in front tells.
        s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        s.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
        s.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
        s.bind((device, ETH_P_ALL))
        s.setblocking(False)
        return s

    def _carry(self, ready):
        hosts.enter(f"/var/run/netns/{self.switch}")
        host, net = self._socket(self.port), self._socket(self.inner)
        ready.set()
        on_the_way, count = [], 0
        with host, net:
            while True:
                left = max(on_the_way[0][0] - time.monotonic(), 0) if on_the_way else None
                readable, _, _ = select.select([host, net, self.ended], [], [], left)
                if self.ended in readable:
                    return
                for source, target, way in ((host, net, "out"), (net, host, "in")):
                    for packet in self._received(source) if source in readable else ():
                        for when in self._fates(way):
                            heapq.heappush(on_the_way, (when, count, target, packet))
                            count += 1
                while on_the_way and on_the_way[0][0] <= time.monotonic():
                    _, _, target, packet = heapq.heappop(on_the_way)
                    try:
                        target.send(packet)
                    except OSError:
                        pass  # the device is down or full: a packet lost

    def _received(self, source):
        for _ in range(64):
            try:
                yield source.recv(70000)
            except OSError:  # nothing more, or the device is down
                return

    def _fates(self, way):
        """When a packet arrives: at one time, at two, or never."""
        now = time.monotonic()
        if self.ways not in ("both", way):
            return [now]
        if self.dice.random() < self.loss:
            return []
        arrivals = 2 if self.dice.random() < self.twice else 1
        return [now + max(0.0, self.delay + self.dice.uniform(-1, 1) * self.jitter) for _ in range(arrivals)]
