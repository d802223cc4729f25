#!/usr/bin/env python3
"""The object store over processes: a directory, two that lend memory, and Python clients that share objects.

Needs no model. The Python package is the one that was just built (MOONCAF_PYTHON_MODULE), put together in a folder.
"""
import ctypes
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(__file__))
from cluster import BINARY, Cluster, Process, free_port, main, wait_until  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODULE = os.environ.get("MOONCAF_PYTHON_MODULE") or next(iter(sorted((ROOT / "build/storage/python").glob("_store*.so"))), "")
NOT_FOUND, INVALID, UNREACHABLE, NOT_SUPPORTED, LEASED = -704, -600, -900, -1012, -706


class Store:
    """A directory and some segments of a cluster with a secret of its own."""

    def __init__(self, cluster, segments=2, size="64MiB", lease="10s", recovery="0.2s"):
        self.cluster = cluster
        self.folder = tempfile.mkdtemp(prefix="mooncaf-store-")
        self.secret = os.path.join(self.folder, "secret")
        with open(os.open(self.secret, os.O_WRONLY | os.O_CREAT, 0o600), "w") as f:
            f.write("a secret of this test alone, 0123456789\n")
        self.port = free_port()
        self.at = f"127.0.0.1:{self.port}"
        self.lease = lease
        self.directory = self.start("directory", "store", "directory", "--listen", self.at, "--lease", lease,
                                       "--recovery", recovery, "--cluster-secret-file", self.secret)
        ready(self.directory)
        self.lenders = [self.start(f"s{i}", "store", "lend", "--name", f"s{i}", "--size", size, "--directory", self.at,
                                      "--cluster-secret-file", self.secret) for i in range(segments)]
        for lender in self.lenders:
            ready(lender)

    def start(self, name, *args):
        process = self.cluster.processes[name] = Process(name, args, self.folder)
        return process

    def run(self, *args, stdin=b"", status=0):
        done = subprocess.run([BINARY, "store", *args, "--directory", self.at, "--cluster-secret-file", self.secret],
                              input=stdin, capture_output=True, timeout=60)
        assert done.returncode == status, (args, done.returncode, done.stderr)
        return done.stdout

    def json(self, *args):
        return json.loads(self.run(*args, "--json"))

    def python(self, code, *, wait=True):
        """Another process with `store`, a client that is set up, and `expect(a, b)`."""
        head = ("import os, signal, sys, ctypes\nfrom mooncake.store import MooncakeDistributedStore, ReplicateConfig\n"
                "def expect(a, b):\n    assert a == b, (a, b)\n"
                "store = MooncakeDistributedStore()\n"
                f"code = store.setup('child', 'P2PHANDSHAKE', 0, 1 << 20, 'tcp', '', '{self.at}')\n"
                "assert code == 0, (code, store.last_error())\n")
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path[:2]), "MOONCAF_CLUSTER_SECRET_FILE": self.secret}
        child = subprocess.Popen([sys.executable, "-c", head + code], env=env, stdin=subprocess.PIPE,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if not wait:
            return child
        out, err = child.communicate(timeout=60)
        assert child.returncode == 0, err
        return out

    def client(self, lend=0):
        from mooncaf.store import MooncakeDistributedStore

        os.environ["MOONCAF_CLUSTER_SECRET_FILE"] = self.secret
        store = MooncakeDistributedStore()
        code = store.setup("127.0.0.1", "P2PHANDSHAKE", lend, 16 << 20, "tcp", "", self.at)
        assert code == 0, (code, store.last_error())
        return store


def ready(process):
    wait_until(f"{process.name} is ready", lambda: " ready " in process.output() or not process.alive(), 30)
    assert process.alive(), process.output()


def noise(n, seed):
    import random

    return random.Random(seed).randbytes(n)


def test_two_processes_share_objects():
    with Cluster() as cluster:
        world = Store(cluster)
        ours = world.client()
        value = noise(3_000_000, 1)
        assert ours.put("ours", value) == 0
        out = world.python(
            "expect(len(store.get('ours')), 3000000)\n"
            "expect(store.put('theirs', store.get('ours')[::-1]), 0)\n"
            "expect(store.is_exist('theirs'), 1)\n"
            "import hashlib; print(hashlib.sha256(store.get('ours')).hexdigest())\n")
        import hashlib

        assert out.split() == [hashlib.sha256(value).hexdigest()], "and nothing else on standard output"
        assert ours.get("theirs") == value[::-1]
        assert ours.get_size("theirs") == len(value)
        assert ours.close() == 0 and ours.close() == 0
        assert ours.get("theirs") == b"" and ours.put("x", b"y") == INVALID and ours.is_exist("theirs") == INVALID


def test_every_form_of_put_and_get_moves_the_same_bytes():
    from mooncaf.store import ReplicateConfig

    with Cluster() as cluster:
        world = Store(cluster)
        store = world.client()
        data = noise(300_000, 2)
        buffer = ctypes.create_string_buffer(data, len(data))
        address = ctypes.addressof(buffer)
        back = ctypes.create_string_buffer(len(data))
        to = ctypes.addressof(back)
        two = ReplicateConfig()
        two.replica_num = 2
        assert store.register_buffer(address, len(data)) == 0
        assert store.put_parts("parts", data[:10], bytearray(data[10:20]), memoryview(data)[20:]) == 0
        assert store.put_parts("nothing") == 0 and store.put_parts("nothing", b"") == 0 and store.is_exist("nothing") == 0
        assert store.put_from("from", address, len(data), two) == 0
        assert store.put_batch(["b1", "b2"], [data, data[:5]]) == 0
        assert store.batch_put_from(["c1", "c2"], [address, address + 100], [100, 200]) == [0, 0]
        assert store.batch_put_from_multi_buffers(["m"], [[address, address + 200_000]], [[200_000, 100_000]]) == [0]
        assert [len(store.get(k)) for k in ("b2", "c1", "c2")] == [5, 100, 200]
        for key in ("parts", "from", "b1", "m"):
            assert store.get(key) == data, key
            ctypes.memset(to, 0, len(data))
            assert store.get_into(key, to, len(data)) == len(data) and back.raw == data, key
        assert store.get_into("from", to, len(data) - 1) == INVALID
        ctypes.memset(to, 0, len(data))
        assert store.batch_get_into_multi_buffers(["m"], [[to, to + 7]], [[7, len(data) - 7]]) == [len(data)]
        assert back.raw == data
        handle = store.get_buffer("from")
        assert bytes(handle) == data and handle.size() == len(handle) == len(data)
        assert ctypes.string_at(handle.ptr(), 10) == data[:10]
        assert store.get_batch(["from", "absent"]) == [data, b""] and store.get_buffer("absent") is None
        replicas = store.get_replica_desc("from")
        assert len(replicas) == 2 and all(r.is_memory_replica() for r in replicas)
        assert len({r.get_memory_descriptor().buffer_descriptor.transport_endpoint for r in replicas}) == 2
        assert store.batch_is_exist(["from", "absent"]) == [1, 0]
        store.close()


def test_refusals_have_the_codes_that_callers_know():
    from mooncaf.store import ReplicateConfig

    with Cluster() as cluster:
        world = Store(cluster, segments=1, size="4MiB")
        store = world.client()
        assert store.put("k", b"value") == 0 and store.put("k", b"other") == 0 and store.get("k") == b"value"
        assert store.remove("k") == LEASED and store.remove("absent") == NOT_FOUND
        assert store.remove("k", force=True) == 0 and store.get("k") == b"" and store.get_size("k") == NOT_FOUND
        assert store.put("", b"x") == INVALID and store.put("empty", b"") == INVALID and store.put(b"k" * 65537, b"x") == -400
        assert store.put(b"k" * 65536, b"x") == 0 and store.put(b"\x00\xff", b"any bytes") == 0
        assert store.get(b"\x00\xff") == b"any bytes"
        assert store.put("large", bytes(5 << 20)) == -200
        assert store.batch_put_from(["a", "b"], [1], [1]) == [INVALID, INVALID]
        assert store.put_from("nowhere", 4096, 10) == INVALID and store.get_into("k2", 1 << 62, 10) < 0
        assert store.register_buffer(1 << 46, 4096) == INVALID and store.batch_put_from(["w1"], [2**64 - 5], [100]) == [INVALID]
        assert store.put_from("null", 0, 10) == INVALID and store.put_from("negative", 10, -1) == INVALID
        same, odd = ReplicateConfig(), ReplicateConfig()
        same.prefer_alloc_in_same_node = True
        assert store.put("k2", b"x", same) == INVALID and store.put_batch(["k2"], [b"x"], same) == INVALID
        odd.soft_pin_ttl_ms = 5
        assert store.put("k2", b"x", odd) == INVALID
        for wrong in (-1, 1 << 64):
            try:
                odd.soft_pin_ttl_ms = wrong
                raise AssertionError("taken")
            except TypeError:
                pass
        for call in (lambda: store.put("k", "text"), lambda: store.put(5, b"x"), lambda: store.is_exist(None)):
            try:
                call()
                raise AssertionError("taken")
            except TypeError:
                pass
        assert store.create_copy_task("k2", ["s0"])[1] == NOT_FOUND and store.put("k2", b"x") == 0
        assert store.create_copy_task("k2", ["s0"]) == ((0, 0), NOT_SUPPORTED)
        hard = ReplicateConfig()
        hard.with_hard_pin = True
        assert store.put("hard", b"x", hard) == 0 and store.put("leased", b"x") == 0 and store.is_exist("leased") == 1
        assert store.remove_by_regex("^(hard|leased)$") == 0 and store.remove_by_regex("(") == INVALID
        assert store.remove_all(force=True) >= 3 and store.health_check() == 0
        assert store.setup("again", "P2PHANDSHAKE", 0, 0, "tcp", "", world.at) == INVALID
        store.close()


def test_a_model_s_layers_come_and_go_one_by_one():
    """One process writes an object layer by layer, another reads it so; nobody sees half of it."""
    with Cluster() as cluster:
        world = Store(cluster, segments=1, size="8MiB")
        store = world.client()
        layers, size = 4, 50_000
        data = noise(layers * size, 3)
        source = ctypes.create_string_buffer(data, len(data))
        back = ctypes.create_string_buffer(size)
        at, to = ctypes.addressof(source), ctypes.addressof(back)
        assert store.batch_put_session_start(["kv"], [layers * size]) == [0]
        for layer in (0, 2, 3, 1):
            assert store.batch_put_from_multi_buffer_ranges(["kv"], [[at + layer * size]], [[size]], [[layer * size]]) == [size]
            assert store.is_exist("kv") == 0
        assert store.batch_put_session_end(["kv"]) == [0]
        out = world.python(
            f"back = ctypes.create_string_buffer({size})\n"
            "expect(store.batch_get_session_start(['kv', 'absent']), [0, -704])\n"
            "import hashlib\n"
            f"for layer in range({layers}):\n"
            f"    expect(store.batch_get_into_multi_buffer_ranges(['kv'], [[ctypes.addressof(back)]], [[{size}]], [[layer * {size}]]), [{size}])\n"
            "    print(hashlib.sha256(back.raw).hexdigest())\n"
            "expect(store.upsert('kv', b'another'), 0)\n"
            f"expect(store.batch_get_into_multi_buffer_ranges(['kv'], [[ctypes.addressof(back)]], [[{size}]], [[0]]), [-707])\n"
            "expect(store.batch_get_session_end(['kv']), 0)\n")
        import hashlib

        assert out.split() == [hashlib.sha256(data[i * size:(i + 1) * size]).hexdigest() for i in range(layers)]
        assert store.get("kv") == b"another"
        codes = store.get_into_ranges([to], [["kv"]], [[[0, 5]]], [[[1, 3]]], [[[3, 2]]])
        assert codes == [[[3, 2]]] and back.raw[:3] == b"not" and back.raw[5:7] == b"th"
        assert store.batch_put_session_start(["left"], [1 << 20]) == [0] and world.json("stat")["reserved"] == 1
        store.close()
        wait_until("a session ends with its store", lambda: world.json("stat")["reserved"] == 0)


def test_what_replaced_an_object_is_what_is_there_after_the_directory_was_killed():
    with Cluster() as cluster:
        world = Store(cluster, segments=2, size="4MiB", recovery="2s")
        store = world.client()
        for i in range(20):
            assert store.put(f"k{i}", noise(1000, i)) == 0
        for i in range(0, 20, 2):
            assert store.upsert(f"k{i}", noise(3000 + i, i)) == 0 and store.get(f"k{i}") == noise(3000 + i, i)
        world.directory.kill9()
        world.directory.start()
        ready(world.directory)
        wait_until("the directory is found again", lambda: store.is_exist("k1") == 1, 10)
        assert all(store.get(f"k{i}") == noise(1000 if i % 2 else 3000 + i, i) for i in range(20))
        store.close()


def test_pages_of_a_group_leave_together():
    from mooncaf.store import ReplicateConfig

    with Cluster() as cluster:
        world = Store(cluster, segments=1, size="4MiB", lease="100ms")
        store, page = world.client(), ctypes.create_string_buffer(512 * 1024)
        for i in range(4):
            both = ReplicateConfig()
            both.group_ids = [f"g{i}", f"g{i}"]
            assert store.batch_put_from([f"k{i}", f"v{i}"], [ctypes.addressof(page)] * 2, [400_000] * 2, both) == [0, 0]
        wait_until("no lease protects them", lambda: store.put("another", bytes(1_500_000)) == 0)
        there = store.batch_is_exist([f"{kind}{i}" for i in range(4) for kind in "kv"])
        assert sum(there) in (4, 2) and all(there[i] == there[i + 1] for i in range(0, 8, 2)), there
        store.close()


def test_a_client_killed_in_the_middle_of_a_put_leaves_nothing():
    with Cluster() as cluster:
        world = Store(cluster, segments=1, size="32MiB")
        child = world.python(
            "import mmap, threading\n"
            "source = mmap.mmap(-1, 8 << 20)\n"
            "stop = threading.Thread(target=lambda: (sys.stdin.readline(), os.kill(os.getpid(), signal.SIGKILL)), daemon=True)\n"
            "stop.start()\n"
            "print('go', flush=True)\n"
            "address = ctypes.addressof(ctypes.c_char.from_buffer(source))\n"
            "keys = [f'k{i}' for i in range(3)]\n"
            "while True:\n"
            "    store.batch_put_from(keys, [address] * 3, [8 << 20] * 3)\n"
            "    store.batch_remove(keys, True)\n", wait=False)
        assert child.stdout.readline() == "go\n"
        wait_until("a put is under way", lambda: world.json("stat")["reserved"] > 0, 30, every=0)
        child.stdin.write("die\n")
        child.stdin.flush()
        child.wait(20)
        assert child.returncode == -signal.SIGKILL
        wait_until("no reservation is left", lambda: world.json("stat")["reserved"] == 0)
        world.run("rm", "--matching", ".", "--force")
        wait_until("all memory is free again", lambda: (lambda s: s["free_bytes"] == s["total_bytes"])(world.json("stat")), 30)
        store = world.client()
        assert store.put("k0", bytes(8 << 20)) == 0
        store.close()


def test_a_lender_that_is_killed_takes_only_what_had_no_replica():
    from mooncaf.store import ReplicateConfig

    with Cluster() as cluster:
        world = Store(cluster)
        store = world.client()
        two, first = ReplicateConfig(), ReplicateConfig()
        two.replica_num = 2
        first.preferred_segment = "s0"
        data = noise(200_000, 4)
        for i in range(20):
            assert store.put(f"both{i}", data, two) == 0 and store.put(f"alone{i}", data, first) == 0
        world.lenders[0].kill9()
        wait_until("its objects are gone", lambda: world.json("stat")["objects"] == 20)
        assert all(store.get(f"both{i}") == data for i in range(20))
        assert store.batch_is_exist([f"alone{i}" for i in range(20)]) == [0] * 20
        assert store.put("new", data) == 0 and store.get("new") == data
        store.close()


def test_what_was_stored_is_there_again_after_the_directory_was_killed():
    from mooncaf.store import ReplicateConfig

    with Cluster() as cluster:
        world = Store(cluster, segments=3, recovery="2s")
        store = world.client()
        two, hard = ReplicateConfig(), ReplicateConfig()
        two.replica_num = 2
        hard.with_hard_pin = True
        values = {f"k{i}": noise(1 + 700 * i, i) for i in range(150)}
        for key, value in values.items():
            assert store.put(key, value, two if key.endswith("7") else hard if key == "k1" else None) == 0
        for i in range(0, 150, 10):
            assert store.remove(f"k{i}") == 0
            del values[f"k{i}"]
        before = world.json("stat")
        world.directory.kill9()
        assert store.is_exist("k1") == UNREACHABLE and store.get("k1") == b"" and store.health_check() == 2
        world.directory.start()
        ready(world.directory)
        wait_until("the directory is found again", lambda: store.is_exist("k1") == 1, 10)
        for key, value in values.items():
            assert store.get(key) == value, key
        assert store.batch_is_exist([f"k{i}" for i in range(0, 150, 10)]) == [0] * 15
        assert len(store.get_replica_desc("k7")) == 2 and store.remove("k1") == LEASED
        after = world.json("stat")
        assert after["recovered"] == len(values) + 15 and after["objects"] == before["objects"] == len(values)
        assert store.put("new", b"value") == 0 and store.get("new") == b"value"
        store.close()


def test_clients_go_on_through_kills_of_the_directory():
    """One writes, removes and reads without a pause; what it was told is what it finds."""
    import random
    import threading

    with Cluster() as cluster:
        world = Store(cluster, segments=2, recovery="2s")
        store, stop, wrong, done = world.client(), threading.Event(), [], [0]

        def work():
            dice, there = random.Random(7), {}

            def look_again(key, *may_be):
                """The answer was lost: what it was about has happened, or not."""
                wait_until("the directory is found again", lambda: store.is_exist(key) != UNREACHABLE, 20)
                got = store.get(key)
                if got not in may_be:
                    wrong.append((key, len(got)))
                there.pop(key, None)
                if got:
                    there[key] = got

            while not stop.is_set() and not wrong:
                key = f"k{dice.randrange(40)}"
                if key not in there:
                    value = dice.randbytes(dice.randrange(1, 60_000))
                    if store.put(key, value) == 0:
                        there[key] = value
                        done[0] += 1
                    else:
                        look_again(key, b"", value)
                elif dice.random() < 0.5:
                    if store.remove(key, True) == 0:
                        del there[key]
                    else:
                        look_again(key, b"", there[key])
                elif store.get(key) != there[key]:
                    look_again(key, there[key])

        worker = threading.Thread(target=work)
        worker.start()
        for _ in range(4):
            had = done[0]
            wait_until("the client goes on", lambda: done[0] > had + 20 or wrong, 20)
            world.directory.kill9()
            world.directory.start()
            ready(world.directory)
        stop.set()
        worker.join()
        assert not wrong, wrong
        assert world.json("stat")["recovered"] > 0
        store.close()


def test_a_forked_child_is_refused_and_its_parent_goes_on():
    with Cluster() as cluster:
        world = Store(cluster, segments=1)
        world.python(
            "expect(store.put('k', b'v'), 0)\n"
            "pid = os.fork()\n"
            "if pid == 0:\n"
            "    fine = store.get('k') == b'' and store.put('x', b'y') == -600 and store.close() == 0\n"
            "    os._exit(0 if fine else 1)\n"
            "expect(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 0)\n"
            "expect(store.get('k'), b'v')\n")
        # A process that ends without closing anything ends as it meant to.
        world.python("store.put('l', b'v')\n")


def test_an_engine_lends_memory_through_the_package():
    with Cluster() as cluster:
        world = Store(cluster, segments=0)
        engine = world.client(lend=32 << 20)
        assert engine.put("k", b"value" * 1000) == 0
        assert world.run("get", "k") == b"value" * 1000
        assert [s["bytes"] for s in world.json("segments")] == [32 << 20]
        engine.close()
        wait_until("its segment is gone", lambda: world.json("segments") == [])


def test_the_commands_show_and_change_what_is_there():
    with Cluster() as cluster:
        world = Store(cluster, segments=2)
        data = noise(100_000, 5)
        source = os.path.join(world.folder, "file")
        pathlib.Path(source).write_bytes(data)
        assert world.json("put", "a/1", source, "--replicas", "2")["bytes"] == len(data)
        world.run("put", "a/2", stdin=b"short")
        world.run("put", "b", "--hard-pin", stdin=b"pinned")
        world.run("get", "a/1", source + ".back")
        assert pathlib.Path(source + ".back").read_bytes() == data
        assert world.run("get", "a/2") == b"short"
        assert sorted(o["key"] for o in world.json("ls", "^a/")) == ["a/1", "a/2"]
        assert len(world.json("stat", "a/1")[0]["places"]) == 2
        assert sum(s["used_bytes"] for s in world.json("segments")) >= 2 * len(data)
        world.run("get", "absent", status=1)
        world.run("rm", "b", status=1)
        world.run("rm", "b", "--force")
        assert world.json("rm", "--matching", ".", "--force") == {"removed": 2}
        assert world.json("stat")["objects"] == 0
        rates = world.json("bench", "--time", "0.05s")
        assert rates["exists"]["pipelined"]["per_s"] > 0 and len(rates["objects"]) == 4


def test_coroutines_share_a_store():
    import asyncio

    from mooncake.async_store import MooncakeDistributedStoreAsync

    async def talk(at):
        store = MooncakeDistributedStoreAsync()
        assert await store.async_setup("127.0.0.1", "P2PHANDSHAKE", 0, 16 << 20, "tcp", "", at) == 0
        values = {f"k{i}": noise(1000 + i, i) for i in range(50)}
        assert await asyncio.gather(*(store.async_put(k, v) for k, v in values.items())) == [0] * 50
        assert await asyncio.gather(*(store.async_get(k) for k in values)) == list(values.values())
        assert await store.async_is_exist("absent") == 0 and await store.async_remove("absent") == NOT_FOUND
        assert await store.async_close() == 0
        for name in ("put", "async_nothing"):
            assert not hasattr(store, name)

    with Cluster() as cluster:
        world = Store(cluster, segments=1)
        os.environ["MOONCAF_CLUSTER_SECRET_FILE"] = world.secret
        asyncio.run(talk(world.at))


def test_the_door_speaks_http():
    import http.client

    with Cluster() as cluster:
        world = Store(cluster)
        port, data = free_port(), noise(100_000, 6)
        token = os.path.join(world.folder, "token")
        pathlib.Path(token).write_text("a-token-of-this-test\n")
        door = ("store", "door", "--directory", world.at, "--cluster-secret-file", world.secret, "--listen")
        for name, at, more in (("door", port, ()), ("locked", free_port(), ("--token-file", token))):
            ready(world.start(name, *door, f"127.0.0.1:{at}", *more))
            locked = at

        def ask(method, path, body=None, headers=None, at=port):
            connection = http.client.HTTPConnection("127.0.0.1", at, timeout=30)
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            return answer.status, answer.read(), answer.headers

        key = "/objects/a%2Fb%00%ff"
        assert ask("GET", key)[0] == 404 and ask("PUT", key, data)[0] == 201 and ask("PUT", key, b"other")[0] == 200
        status, body, headers = ask("GET", key)
        assert status == 200 and body == data
        for wanted, part in (("bytes=10-19", data[10:20]), ("bytes=99990-", data[99990:]), ("bytes=-5", data[-5:]), ("bytes=5-999999", data[5:])):
            status, body, headers = ask("GET", key, headers={"Range": wanted})
            assert status == 206 and body == part and headers["Content-Range"].endswith("/100000"), wanted
        assert ask("GET", key, headers={"Range": "bytes=100000-"})[0] == 416 and ask("GET", key, headers={"Range": "lines=1-2"})[1] == data
        status, body, headers = ask("HEAD", key)
        assert status == 200 and headers["X-Object-Bytes"] == "100000"
        assert ask("PUT", "/objects/two?replicas=2", b"x")[0] == 201 and len(world.json("stat", "two")[0]["places"]) == 2
        assert ask("DELETE", key)[0] == 409 and ask("DELETE", key + "?force=1")[0] == 200 and ask("HEAD", key)[0] == 404
        assert ask("PUT", "/objects/", b"x")[0] == 400 and ask("PUT", "/objects/empty", b"")[0] == 400 and ask("GET", "/objects/%4")[0] == 400
        assert ask("PUT", "/objects/large", bytes(65 << 20))[0] == 507 and ask("POST", key, b"x")[0] == 405 and ask("GET", "/other")[0] == 404
        assert sorted(s["name"] for s in json.loads(ask("GET", "/segments")[1])) == ["s0", "s1"]
        assert sorted(ask("GET", "/get_all_segments")[1].split()) == [b"s0", b"s1"]
        text = ask("GET", "/metrics")[1].decode()
        values = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
        assert values["mooncaf_store_objects"] == values["master_key_count"] == "1"
        assert int(values["mooncaf_store_capacity_bytes"]) == int(values["master_total_capacity_bytes"]) == 128 << 20
        assert int(values['segment_allocated_bytes{segment="s0"}']) > 0 and int(values["mooncaf_store_hits_total"]) >= 6
        moved = [int(values[f"mooncake_transfer_{what}_latency_count"]) for what in ("get", "put")]
        assert moved == [6, 2], moved
        found = 'mooncaf_store_directory_seconds_%s{question="find"%s}'
        assert int(values[found % ("count", "")]) == int(values[found % ("bucket", ',le="+Inf"')]) >= 6
        assert 0 < float(values[found % ("sum", "")]) < 5 and int(values[found % ("bucket", ',le="20"')]) >= 6
        assert ask("GET", "/health")[0] == 200
        # The page needs no token; what it shows does.
        assert b"<title>mooncaf store" in ask("GET", "/store", at=locked)[1] and ask("GET", "/store/figures", at=locked)[0] == 401
        figures = json.loads(ask("GET", "/store/figures")[1])
        assert figures["counts"]["objects"] == 1 and [s["name"] for s in figures["segments"]] in (["s0", "s1"], ["s1", "s0"])
        assert {"reserve", "publish", "find"} <= {t["question"] for t in figures["times"]}
        # Web pages of elsewhere are refused, and with a token so is whoever has none.
        assert ask("GET", "/metrics", headers={"Host": "example.com"})[0] == 403
        assert ask("GET", "/metrics", headers={"Origin": "http://example.com"})[0] == 403
        assert ask("GET", "/metrics", at=locked)[0] == 401 and ask("GET", "/health", at=locked)[0] == 200
        assert ask("GET", "/metrics", headers={"Authorization": "Bearer a-token-of-this-test"}, at=locked)[0] == 200
        world.directory.kill9()
        assert ask("GET", "/objects/two")[0] == 503 and ask("GET", "/health")[0] == 503


def test_the_page_shows_what_is_there_and_asks_for_the_token():
    from browser import Browser

    with Cluster() as cluster, Browser() as browser:
        world = Store(cluster)
        store = world.client()
        assert store.put("a", bytes(1 << 20)) == 0 and store.get("a") and store.get("absent") == b""
        token = os.path.join(world.folder, "token")
        pathlib.Path(token).write_text("a-token-of-this-test\n")
        port = free_port()
        ready(world.start("door", "store", "door", "--directory", world.at, "--cluster-secret-file", world.secret, "--listen",
                          f"127.0.0.1:{port}", "--token-file", token))
        browser.open(f"http://127.0.0.1:{port}/store")
        text = lambda part: browser.run(f"return document.querySelector('{part}').innerText")  # noqa: E731
        wait_until("it asks for the token", lambda: "token" in text("#state"), 20)
        assert "1" not in text("#tiles")
        browser.run("document.getElementById('token').value='a-token-of-this-test'")
        wait_until("it lives", lambda: text("#state") == "live", 20)
        assert "Objects\n1" in text("#tiles") and "128.0 MiB" in text("#tiles") and "50.0 %" in text("#tiles")
        segments = text("#segments")
        assert "s0" in segments and "s1" in segments and "64.0 MiB" in segments and "find" in text("#times")
        store.put("b", b"x")
        wait_until("it follows", lambda: "Objects\n2" in text("#tiles"), 20)
        world.directory.kill9()
        wait_until("it says that the directory is gone", lambda: "does not answer" in text("#state"), 20)
        store.close()


def test_type_stubs_say_what_the_methods_take():
    import ast
    import inspect

    from mooncaf import store

    def stubs(file, name):
        tree = ast.parse((ROOT / "storage/python/mooncaf" / file).read_text())
        found = next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == name)
        return {f.name: f.args for f in found.body}

    def names(arguments):
        plain = [*arguments.posonlyargs, *arguments.args, *([arguments.vararg] if arguments.vararg else []), *arguments.kwonlyargs]
        return [a.arg for a in plain], [ast.literal_eval(ast.unparse(d)) if not isinstance(d, ast.BinOp) else eval(ast.unparse(d))
                                        for d in [*arguments.defaults, *[k for k in arguments.kw_defaults if k is not None]]]

    methods = {n: inspect.signature(m) for n, m in inspect.getmembers(store.MooncakeDistributedStore, callable)
               if not n.startswith("_") or n == "__init__"}
    told = stubs("store.pyi", "MooncakeDistributedStore")
    assert told.keys() == methods.keys(), told.keys() ^ methods.keys()
    for name, signature in methods.items():
        parameters = signature.parameters.values()
        defaults = [p.default for p in parameters if p.default is not p.empty]
        assert names(told[name]) == ([p.name for p in parameters], defaults), name
    coroutines = stubs("async_store.pyi", "MooncakeDistributedStoreAsync")
    assert coroutines.keys() - {"__init__"} == {f"async_{n}" for n in methods.keys() - {"__init__"}}
    assert all(names(coroutines[f"async_{n}"]) == names(told[n]) for n in methods.keys() - {"__init__"})
    reached = ast.parse((ROOT / "storage/python/mooncaf/store.pyi").read_text()).body
    told_names = {a.asname for n in reached if isinstance(n, ast.ImportFrom) for a in n.names} | {
        n.target.id for n in reached if isinstance(n, ast.AnnAssign)} | {"MooncakeDistributedStore"}
    assert set(store.__all__) <= told_names, set(store.__all__) - told_names


def package():
    """The package as it is installed: its sources and the extension in one folder."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="mooncaf-package-"))
    shutil.copytree(ROOT / "storage/python/mooncaf", folder / "mooncaf")
    shutil.copy(MODULE, folder / "mooncaf")
    sys.path[:0] = [str(folder), str(ROOT / "storage/python/compat")]


if __name__ == "__main__":
    package()
    main([value for name, value in sorted(globals().items()) if name.startswith("test_")])
