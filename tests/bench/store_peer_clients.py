#!/usr/bin/env python3
"""One client of one store, in a process of its own: `store_peers.py` starts as many as it wants and tells them by lines
of JSON what to time. Answers one line of JSON each: seconds by name of what was asked."""
import json
import mmap
import os
import sys
import time


class Mooncaf:
    def __init__(self, at):
        from mooncaf.store import MooncakeDistributedStore

        self.store = MooncakeDistributedStore()
        assert self.store.setup("bench", "P2PHANDSHAKE", 0, 64 << 20, "tcp", "", at) == 0, self.store.last_error()
        self.take()

    def take(self):
        self.get, self.exists, self.exists_many = self.store.get, self.store.is_exist, self.store.batch_is_exist
        self.where_many = self.store.batch_get_replica_desc

    def put(self, key, value):
        assert self.store.put(key, value) == 0

    def put_many(self, keys, values):
        assert self.store.put_batch(keys, values) == 0


class Mooncake(Mooncaf):
    def __init__(self, at):
        from mooncake.store import MooncakeDistributedStore

        self.store = MooncakeDistributedStore()
        assert self.store.setup("127.0.0.1", "P2PHANDSHAKE", 0, 256 << 20, "tcp", "", at) == 0
        self.take()


class MooncakeDummy(Mooncaf):
    def __init__(self, at):
        from mooncake.store import MooncakeDistributedStore

        self.store = MooncakeDistributedStore()
        assert self.store.setup_dummy(256 << 20, 256 << 20, at) == 0
        self.take()


class Redis:
    def __init__(self, at):
        import redis

        self.client = redis.Redis(port=int(at))
        self.put, self.get, self.exists = self.client.set, self.client.get, self.client.exists

    def exists_many(self, keys):
        pipe = self.client.pipeline(transaction=False)
        for key in keys:
            pipe.exists(key)
        return pipe.execute()


class Memcached:
    def __init__(self, at):
        from pymemcache.client.base import Client

        self.client = Client(("127.0.0.1", int(at)), no_delay=True)
        self.put = lambda key, value: self.client.set(key, value, noreply=False)
        self.get, self.exists, self.exists_many = self.client.get, self.client.get, self.client.get_many


class Copies:
    """The limit: bytes to and from memory of one's own that was touched before."""

    def __init__(self, at):
        self.memory, self.next, self.place = mmap.mmap(-1, int(at)), 0, {}
        view = memoryview(self.memory)
        for i in range(0, len(view), 4096):
            view[i] = 1
        self.view = view

    def put(self, key, value):
        if self.next + len(value) > len(self.view):
            self.next = 0
        at, self.next = self.next, self.next + len(value)
        self.view[at:self.next] = value
        self.place[key] = (at, self.next)

    def get(self, key):
        begin, end = self.place[key]
        return bytes(self.view[begin:end])


def timed(count, step):
    took = []
    for i in range(count):
        begin = time.perf_counter()
        step(i)
        took.append(time.perf_counter() - begin)
    return took


def moved(peer, who, size, count, round_number):
    value = os.urandom(size)
    key = lambda i: f"bench/{who}/{size}/{round_number}/{i}"
    put = timed(count, lambda i: peer.put(key(i), value))
    if peer.get(key(0)) != value:
        raise SystemExit(f"{type(peer).__name__}: other bytes than were put")
    return {"put": put, "get": timed(count, lambda i: peer.get(key(i)))}


def asked(peer, who, size, count, round_number):
    """Of `count` keys of this size that were put: existence and places; and puts of so many that are too small to count."""
    keys = [f"bench/{who}/{size}/{round_number}/{i}" for i in range(count)]
    took = {"exists": timed(1000, lambda i: peer.exists(keys[i % count])),
            "exists_many": timed(100, lambda i: peer.exists_many(keys))}
    if hasattr(peer, "where_many"):
        tiny = [b"x" * 64] * count
        took["where_many"] = timed(20, lambda i: peer.where_many(keys))
        took["put_many"] = timed(20, lambda i: peer.put_many([f"tiny/{who}/{time.time_ns()}/{k}" for k in keys], tiny))
    return took


def main():
    kind, at, who = sys.argv[1:]
    peer = {c.__name__: c for c in (Mooncaf, Mooncake, MooncakeDummy, Redis, Memcached, Copies)}[kind](at)
    peer.put(f"warm/{who}", b"x" * 4096)  # ours maps what others lend when it is first needed
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        what, *rest = json.loads(line)
        print(json.dumps({"moved": moved, "asked": asked}[what](peer, who, *rest)), flush=True)
    os._exit(0)  # some of these end with an abort where the process that has their data is gone


if __name__ == "__main__":
    main()
