#!/usr/bin/env python3
"""One client of one store, in a process of its own: `store_peers.py` starts as many as it wants and tells them by lines
of JSON what to time. Answers one line of JSON each: seconds by name of what was asked."""
import json
import mmap
import os
import socket
import sys
import threading
import time

OWN_HOST = os.environ.get("STORE_PEERS_HOST", "127.0.0.1")


def host_and_port(at):
    host, _, port = at.rpartition(":")
    return host, int(port)


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
        assert self.store.setup(OWN_HOST, "P2PHANDSHAKE", 0, 256 << 20, "tcp", "", at) == 0
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

        host, port = host_and_port(at)
        self.client = redis.Redis(host=host, port=port)
        self.put, self.get, self.exists = self.client.set, self.client.get, self.client.exists

    def exists_many(self, keys):
        pipe = self.client.pipeline(transaction=False)
        for key in keys:
            pipe.exists(key)
        return pipe.execute()


class Memcached:
    def __init__(self, at):
        from pymemcache.client.base import Client

        self.client = Client(host_and_port(at), no_delay=True)
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


def receive(connection, size):
    bytes_, have = bytearray(size), 0
    with memoryview(bytes_) as view:
        while have < size:
            got = connection.recv_into(view[have:])
            if not got:
                raise SystemExit("bare TCP: closed")
            have += got
    return bytes_


class BareTcp:
    """The limit between hosts: bytes to a process that has one value for each client, and from it."""

    def __init__(self, at):
        self.connection = socket.create_connection(host_and_port(at))
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def put(self, key, value):
        self.size = len(value)
        self.connection.sendall(b"p" + self.size.to_bytes(8, "little"))
        self.connection.sendall(value)
        receive(self.connection, 1)

    def get(self, key):
        self.connection.sendall(b"g" + bytes(8))
        return receive(self.connection, self.size)


def serve(connection):
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    value = b""
    try:
        while True:
            head = receive(connection, 9)
            if head[:1] == b"p":
                value = receive(connection, int.from_bytes(head[1:], "little"))
                connection.sendall(b"k")
            else:
                connection.sendall(value)
    except (SystemExit, OSError):
        connection.close()


def serve_all(host, port):
    with socket.create_server((host, int(port))) as listener:
        while True:
            threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()


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
    if sys.argv[1] == "serve":
        return serve_all(*sys.argv[2:])
    kind, at, who = sys.argv[1:]
    peer = {c.__name__: c for c in (Mooncaf, Mooncake, MooncakeDummy, Redis, Memcached, Copies, BareTcp)}[kind](at)
    peer.put(f"warm/{who}", b"x" * 4096)  # ours maps what others mount when it is first needed
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        what, *rest = json.loads(line)
        print(json.dumps({"moved": moved, "asked": asked}[what](peer, who, *rest)), flush=True)
    os._exit(0)  # some of these end with an abort where the process that has their data is gone


if __name__ == "__main__":
    main()
