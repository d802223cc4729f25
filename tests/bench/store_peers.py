#!/usr/bin/env python3
"""The object store beside Mooncake Store, Redis and memcached, each in a process of its own on this host, from one Python
client: puts and gets of bytes, existence alone and in batches.

    python3 tests/bench/store_peers.py      in an environment with mooncaf's package, and of the peers what there is:
                                            mooncake-transfer-engine-non-cuda, redis, pymemcache; redis-server, memcached
"""
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "integration"))
from cluster import BINARY, free_port, wait_until  # noqa: E402

SIZES = (4 << 10, 160 << 10, 1 << 20, 16 << 20)
POOL = 2 << 30
ROUNDS = int(os.environ.get("ROUNDS", "3"))


class Ours:
    name = "mooncaf"

    def __init__(self, start):
        from mooncaf.store import MooncakeDistributedStore

        folder = tempfile.mkdtemp()
        secret = os.environ["MOONCAF_CLUSTER_SECRET_FILE"] = os.path.join(folder, "secret")
        with open(os.open(secret, os.O_WRONLY | os.O_CREAT, 0o600), "w") as f:
            f.write("a secret of this bench alone, 0123456789")
        at = f"127.0.0.1:{free_port()}"
        common = ["--cluster-secret-file", secret]
        start([BINARY, "store", "directory", "--listen", at, *common])
        wait_until("the directory listens", lambda: subprocess.run(
            [BINARY, "store", "stat", "--directory", at, *common], capture_output=True).returncode == 0)
        start([BINARY, "store", "lend", "--size", f"{POOL >> 20}MiB", "--directory", at, *common])
        wait_until("a segment is lent", lambda: json.loads(subprocess.run(
            [BINARY, "store", "segments", "--json", "--directory", at, *common], capture_output=True).stdout or "[]"))
        self.store = MooncakeDistributedStore()
        assert self.store.setup("bench", "P2PHANDSHAKE", 0, 64 << 20, "tcp", "", at) == 0, self.store.last_error()
        self.exists, self.exists_many = self.store.is_exist, self.store.batch_is_exist

    def put(self, key, value):
        assert self.store.put(key, value) == 0

    def get(self, key):
        return self.store.get(key)


class Mooncake(Ours):
    name = "Mooncake Store, tcp"

    def __init__(self, start):
        from mooncake.store import MooncakeDistributedStore

        port, metrics = free_port(), free_port()
        start([shutil.which("mooncake_master", path=os.path.dirname(sys.executable) + ":" + os.environ["PATH"]),
               f"--rpc_port={port}", f"--metrics_port={metrics}"])
        lend = ("import sys, time\nfrom mooncake.store import MooncakeDistributedStore\ns = MooncakeDistributedStore()\n"
                f"assert s.setup('127.0.0.1', 'P2PHANDSHAKE', {POOL}, 0, 'tcp', '', '127.0.0.1:{port}') == 0\n"
                "while True: time.sleep(60)\n")
        wait_until("the master listens", lambda: port_open(port))
        start([sys.executable, "-c", lend])
        self.store = MooncakeDistributedStore()
        assert self.store.setup("127.0.0.1", "P2PHANDSHAKE", 0, 256 << 20, "tcp", "", f"127.0.0.1:{port}") == 0
        wait_until("a segment is mounted", lambda: self.store.put("first", b"x" * 4096) == 0)
        self.exists, self.exists_many = self.store.is_exist, self.store.batch_is_exist


class Redis:
    name = "Redis"

    def __init__(self, start):
        import redis

        port = free_port()
        start(["redis-server", "--port", str(port), "--save", "", "--appendonly", "no"])
        wait_until("Redis listens", lambda: port_open(port))
        self.client = redis.Redis(port=port)
        self.put, self.get = self.client.set, self.client.get
        self.exists = self.client.exists

    def exists_many(self, keys):
        pipe = self.client.pipeline(transaction=False)
        for key in keys:
            pipe.exists(key)
        return pipe.execute()


class Memcached:
    name = "memcached"

    def __init__(self, start):
        from pymemcache.client.base import Client

        port = free_port()
        start(["memcached", "-u", "root", "-p", str(port), "-U", "0", "-m", str(POOL >> 20), "-I", "32m"])
        wait_until("memcached listens", lambda: port_open(port))
        self.client = Client(("127.0.0.1", port), no_delay=True)
        self.put = lambda key, value: self.client.set(key, value, noreply=False)
        self.get = self.client.get
        self.exists, self.exists_many = self.client.get, self.client.get_many


def port_open(port):
    import socket

    with socket.socket() as s:
        return s.connect_ex(("127.0.0.1", port)) == 0


def timed(count, step):
    """(seconds of each)"""
    took = []
    for i in range(count):
        begin = time.perf_counter()
        step(i)
        took.append(time.perf_counter() - begin)
    return took


def measure(peer, size, round_number):
    count = max(4, min(200, (64 << 20) // size))
    value = os.urandom(size)
    key = lambda i: f"bench/{size}/{round_number}/{i}"
    put = timed(count, lambda i: peer.put(key(i), value))
    assert peer.get(key(0)) == value
    return put, timed(count, lambda i: peer.get(key(i)))


def main():
    processes, found = [], []

    def start(command):
        processes.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))

    try:
        for kind in (Ours, Mooncake, Redis, Memcached):
            try:
                found.append(kind(start))
            except (ImportError, FileNotFoundError, TypeError) as e:
                print(f"without {kind.name}: {e}")
        for peer in found:  # ours maps what others lend when it is first needed
            peer.put("warm", b"x" * 4096)
        time.sleep(5)  # whatever fills memory ahead of need
        print(f"{'':22}{'bytes':>10}{'put GB/s':>10}{'p50 us':>9}{'p99 us':>9}{'get GB/s':>10}{'p50 us':>9}{'p99 us':>9}")
        for size in SIZES:
            rows = {peer.name: ([], []) for peer in found}
            for r in range(ROUNDS):  # by turns, so that what else the machine does hits all
                for peer in found:
                    for all_of, now in zip(rows[peer.name], measure(peer, size, r)):
                        all_of.extend(now)
            for name, (put, get) in rows.items():
                print(f"{name:22}{size:10}" + "".join(
                    f"{size / statistics.median(t) / 1e9:10.2f}{statistics.median(t) * 1e6:9.0f}{sorted(t)[len(t) * 99 // 100] * 1e6:9.0f}"
                    for t in (put, get)), flush=True)
        keys = [f"bench/{SIZES[0]}/0/{i}" for i in range(128)]
        rows = {peer.name: ([], []) for peer in found}
        for _ in range(3 * ROUNDS):
            for peer in found:
                rows[peer.name][0].extend(timed(1000, lambda i: peer.exists(keys[i % 128])))
                rows[peer.name][1].extend(timed(100, lambda i: peer.exists_many(keys)))
        for name, (one, many) in rows.items():
            print(f"{name:22} exists {1 / statistics.median(one):9.0f}/s   "
                  f"in batches of 128 {128 / statistics.median(many):10.0f} keys/s")
    finally:
        for process in processes:
            process.terminate()


if __name__ == "__main__":
    main()
