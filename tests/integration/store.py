#!/usr/bin/env python3
"""The object store over processes: a directory, two that mount memory, and Python clients that share objects."""
import ctypes
import json
import os
import pathlib
import sys

sys.path.insert(0, os.path.dirname(__file__))
from cluster import Cluster, free_port, main, wait_until  # noqa: E402
from store_world import INVALID, LEASED, NOT_FOUND, ROOT, Store, noise, package, ready  # noqa: E402


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


def test_a_chain_leaves_from_its_end_and_what_is_dear_stays():
    from mooncaf.store import ReplicateConfig

    with Cluster() as cluster:
        world = Store(cluster, segments=1, size="4MiB", lease="0.001s",
                      directory=("--eviction", "cost_aware", "--high-watermark", "1"))
        value = noise(1 << 20, 5)
        world.run("put", "first", "--cost", "1", stdin=value)
        world.run("put", "second", "--parent", "first", "--cost", "1", stdin=value)
        store = world.client()
        config = ReplicateConfig()
        config.parents, config.costs = ["", ""], [1000, 1000]
        assert store.put_batch(["dear", "dear too"], [value, value], config) == 0
        config.parents = [""]
        assert store.put_batch(["one", "too many"], [value, value], config) == INVALID, "one parent for each key"
        there = lambda: [k for k in ("first", "second", "dear", "dear too") if world.run("ls", f"^{k}$")]  # noqa: E731
        assert store.put("more", value) == 0
        assert there() == ["first", "dear", "dear too"], "the end of the chain is cheapest to lose"
        assert store.put("and more", value) == 0
        assert {"dear", "dear too"} <= set(there())
        world.run("put", "second", stdin=value)
        assert world.json("stat")["regretted"] >= 1, "it was put again"


def test_what_is_drained_stays_so_when_the_directory_is_killed():
    with Cluster() as cluster:
        world = Store(cluster)
        store = world.client()
        assert all(store.put(f"before-{i}", noise(10_000, i)) == 0 for i in range(20))
        draining = lambda: {s["name"]: s["draining"] for s in world.json("segments")}  # noqa: E731

        def kill_the_directory():
            world.directory.kill9()
            world.directory.start()
            ready(world.directory)
            wait_until("both holders are back", lambda: len(draining()) == 2)

        world.run("drain", "s0")
        kill_the_directory()
        assert draining() == {"s0": True, "s1": False}
        wait_until("the client is back", lambda: store.put("again", b"x") == 0)
        assert all(store.put(f"after-{i}", noise(10_000, i)) == 0 for i in range(20))
        assert all(p["segment"] == "s1" for o in world.json("ls") for p in world.json("stat", o["key"])[0]["places"])
        world.run("drain", "s0", "--undo")
        kill_the_directory()
        assert draining() == {"s0": False, "s1": False}
        store.close()


def test_what_lies_in_a_drained_segment_outlives_its_process():
    with Cluster() as cluster:
        world = Store(cluster)
        store = world.client()
        values = {f"key-{i}": noise(100_000 + i, i) for i in range(40)}
        assert all(store.put(k, v) == 0 for k, v in values.items())
        told = world.json("drain", "s0")
        assert told["left"] == 0 and 0 < told["moved"] < 40, told
        assert {s["name"]: s["draining"] for s in world.json("segments")} == {"s0": True, "s1": False}
        cluster.processes["s0"].kill9()
        wait_until("the directory misses it", lambda: len(world.json("segments")) == 1, 20)
        assert all(store.get(k) == v for k, v in values.items()), "nothing was lost with it"
        world.run("drain", "s0", status=1)
        world.run("drain", "s1", status=1)  # there is no other segment
        world.run("drain", "s1", "--undo")
        assert all(store.get(k) == v for k, v in values.items())
        whole = [(s["name"], s["bytes"]) for s in world.json("segments")]
        world.start("s2", "store", "mount", "--name", "s2", "--size", "64MiB", "--directory", world.at,
                    "--cluster-secret-file", world.secret)
        wait_until("another segment is there, in each shard of the directory",
                   lambda: sorted((s["name"], s["bytes"]) for s in world.json("segments")) == [*whole, ("s2", whole[0][1])], 20)
        assert world.json("replicas", "key-7", "--number", "2", "--to", "s2")["moved"] == 1
        places = {p["segment"] for p in world.json("stat", "key-7")[0]["places"]}
        assert places == {"s1", "s2"} and store.get("key-7") == values["key-7"]
        world.run("replicas", "absent", status=1)


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
        assert store.create_copy_task("k2", ["nowhere"]) == ((0, 0), INVALID)
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
        assert store.register_buffer(to, size) == 0
        codes = store.get_into_ranges([to], [["kv"]], [[[0, 5]]], [[[1, 3]]], [[[3, 2]]])
        assert codes == [[[3, 2]]] and back.raw[:3] == b"not" and back.raw[5:7] == b"th"
        assert store.batch_put_session_start(["left"], [1 << 20]) == [0] and world.json("stat")["reserved"] == 1
        store.close()
        wait_until("a session ends with its store", lambda: world.json("stat")["reserved"] == 0)


def test_an_object_that_has_outlived_its_time_is_not_there():
    from mooncaf.store import ReplicateConfig

    with Cluster() as cluster:
        world = Store(cluster, segments=1, size="4MiB", lease="1ms")
        store, soon, later = world.client(), ReplicateConfig(), ReplicateConfig()
        soon.ttl_ms, later.ttl_ms = 300, 3_600_000
        assert store.put("soon", b"x", soon) == 0 and store.put("later", b"x", later) == 0 and store.put("always", b"x") == 0
        wait_until("it is gone", lambda: store.is_exist("soon") == 0, every=0.01)
        assert store.batch_is_exist(["soon", "later", "always"]) == [0, 1, 1] and store.put("soon", b"y") == 0 and store.get("soon") == b"y"
        later.ttl_ms = 11 * 365 * 24 * 3_600_000
        assert store.put("k", b"x", later) == INVALID and "300" not in str(soon)
        store.close()


def test_tasks_copy_and_move_what_others_wrote():
    from mooncaf.store import ReplicateConfig, TaskStatus, TaskType

    with Cluster() as cluster:
        world = Store(cluster, segments=0)
        first, second, other = world.client(64 << 20), world.client(64 << 20), world.client()
        here, there = first.get_hostname(), second.get_hostname()
        preferred = ReplicateConfig()
        preferred.preferred_segment = here
        assert first.put("k", noise(3_000_000, 1), preferred) == 0

        def ended(made):
            task, code = made
            assert code == 0, code
            wait_until("the task has ended", lambda: other.query_task(task)[0].status in (TaskStatus.SUCCESS, TaskStatus.FAILED))
            answer, code = other.query_task(task)
            assert code == 0 and answer.id == task and answer.created_at_ms_epoch <= answer.last_updated_at_ms_epoch, answer.message
            return answer.type, answer.status, answer.message

        def lies_in():
            return sorted(d.get_memory_descriptor().buffer_descriptor.transport_endpoint for d in other.get_replica_desc("k"))

        done = TaskStatus.SUCCESS, "Task completed successfully"
        assert ended(other.create_copy_task("k", [there])) == (TaskType.REPLICA_COPY, *done) and lies_in() == sorted([here, there])
        assert ended(other.create_move_task("k", here, there)) == (TaskType.REPLICA_MOVE, *done) and lies_in() == [there]
        assert other.create_move_task("k", here, there) == ((0, 0), INVALID) and other.create_move_task("k", there, there) == ((0, 0), INVALID)
        assert other.query_task((1, 2)) == (None, -1400) and other.get("k") == noise(3_000_000, 1)
        for store in (first, second, other):
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
        assert sum(there) in (6, 4, 2) and all(there[i] == there[i + 1] for i in range(0, 8, 2)), there
        store.close()


def test_an_engine_mounts_memory_through_the_package():
    with Cluster() as cluster:
        world = Store(cluster, segments=0)
        engine = world.client(mount=32 << 20)
        assert engine.put("k", b"value" * 1000) == 0
        assert world.run("get", "k") == b"value" * 1000
        assert [s["bytes"] for s in world.json("segments")] == [32 << 20]
        engine.close()
        wait_until("its segment is gone", lambda: world.json("segments") == [])
        # Where its host stands is the environment's word, and has to be one.
        from mooncaf.store import MooncakeDistributedStore

        for location, code in (("row2/rack7", 0), ("row2//rack7", INVALID)):
            os.environ["MOONCAF_STORE_LOCATION"] = location
            try:
                engine = MooncakeDistributedStore()
                assert engine.setup("127.0.0.1", "P2PHANDSHAKE", 32 << 20, 16 << 20, "tcp", "", world.at) == code, engine.last_error()
            finally:
                del os.environ["MOONCAF_STORE_LOCATION"]
            assert [s["host"].rpartition("/")[0] for s in world.json("segments")] == (["row2/rack7"] if code == 0 else []), location
            engine.close()
            wait_until("its segment is gone", lambda: world.json("segments") == [])


def test_stores_of_one_process_have_names_and_errors_of_their_own():
    from mooncaf.store import MooncakeDistributedStore

    with Cluster() as cluster:
        world = Store(cluster, segments=0)
        first, second, third = world.client(mount=16 << 20), MooncakeDistributedStore(), MooncakeDistributedStore()
        host, _, port = first.get_hostname().rpartition(":")
        assert host == "127.0.0.1" and 12300 <= int(port) <= 14300, first.get_hostname()
        others = [world.client() for _ in range(20)]
        assert len({one.get_hostname() for one in others}) == 20, "each has a port that no other store of this host has"
        for one in others:
            one.close()
        # A name that is taken is no reason to refuse a store: its memory has another one.
        assert second.setup(first.get_hostname(), "P2PHANDSHAKE", 16 << 20, 16 << 20, "tcp", "", world.at) == 0, second.last_error()
        assert second.get_hostname() == first.get_hostname() and len({s["name"] for s in world.json("segments")}) == 2
        assert second.put("k", b"v") == 0 and first.get("k") == b"v"
        # Who was refused knows why, and nobody else.
        os.environ["MOONCAF_CLUSTER_SECRET_FILE"] = "/no/such/file"
        assert third.setup("127.0.0.1", "P2PHANDSHAKE", 0, 16 << 20, "tcp", "", world.at) != 0 and "/no/such/file" in third.last_error()
        assert first.last_error() == second.last_error() == MooncakeDistributedStore().last_error() == ""
        first.close()
        second.close()


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
        for source in ("/dev/zero", world.folder, source + ".none"):  # without an end, no file, not there
            world.run("put", "c", source, status=1)
        world.run("rm", "b", status=1)
        world.run("rm", "b", "--force")
        assert world.json("rm", "--matching", ".", "--force") == {"removed": 2}
        assert world.json("stat")["objects"] == 0
        rates = world.json("bench", "--time", "0.05s")
        assert rates["exists"]["pipelined"]["per_s"] > 0 and len(rates["objects"]) == 4


def test_coroutines_share_a_store():
    import asyncio

    from mooncake.async_store import MooncakeDistributedStore, MooncakeDistributedStoreAsync

    async def talk(at):
        store = MooncakeDistributedStoreAsync()
        assert await store.async_setup("127.0.0.1", "P2PHANDSHAKE", 0, 16 << 20, "tcp", "", at) == 0
        values = {f"k{i}": noise(1000 + i, i) for i in range(50)}
        assert await asyncio.gather(*(store.async_put(k, v) for k, v in values.items())) == [0] * 50
        assert await asyncio.gather(*(store.async_get(k) for k in values)) == list(values.values())
        assert await store.async_is_exist("absent") == 0 and await store.async_remove("absent") == NOT_FOUND
        # It is a store as well, as Mooncake's is, and may be one that is there already.
        assert isinstance(store, MooncakeDistributedStore) and store.get("k1") == values["k1"] and store.put("sync", b"v") == 0
        other = MooncakeDistributedStoreAsync(store)
        assert await other.async_get("sync") == other.get("sync") == b"v"
        del other
        assert await store.async_close() == 0 and store.is_exist("k1") == -600
        assert not hasattr(store, "async_nothing") and not hasattr(store, "nothing")
        pooled = MooncakeDistributedStoreAsync()
        assert await pooled.async_setup_dummy(1 << 20, 1 << 20, at) == 0 and await pooled.async_alloc_from_mem_pool(4096) > 0
        assert await pooled.async_get("sync") == b"v" and await pooled.async_close() == 0
        assert await store.async_setup("127.0.0.1", "P2PHANDSHAKE", 0, 16 << 20, "tcp", "", at) == 0 and await store.async_get("sync") == b"v"
        assert store.close() == 0

    with Cluster() as cluster:
        world = Store(cluster, segments=1)
        os.environ["MOONCAF_CLUSTER_SECRET_FILE"] = world.secret
        asyncio.run(talk(world.at))


def test_what_a_daemon_did_a_client_does_by_itself():
    """Memory of a dummy client's pool, and what a client says of itself over HTTP."""
    import ctypes
    import urllib.error
    import urllib.request

    import mooncake.store
    from mooncake.store import MooncakeDistributedStore

    with Cluster() as cluster:
        world = Store(cluster, segments=1)
        os.environ["MOONCAF_CLUSTER_SECRET_FILE"] = world.secret
        dummy, port = MooncakeDistributedStore(), free_port()
        assert dummy.setup_dummy(1 << 20, "16 MB", world.at) == 0
        at = dummy.alloc_from_mem_pool(1000)
        assert at != 0 and dummy.alloc_from_mem_pool(1 << 20) == 0 and [dummy.alloc_from_mem_pool(n) for n in (0, -1, None)] == [0, 0, 0]
        ctypes.memmove(at, noise(1000, 1), 1000)
        assert dummy.put_from("k", at, 1000) == 0 and dummy.get("k") == noise(1000, 1)
        assert dummy.close() == 0 and dummy.alloc_from_mem_pool(10) == 0
        take = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t)(mooncake.store.get_alloc_func_addr())
        at = take(100_000)
        assert at % 4096 == 0
        ctypes.memset(at, 1, 100_000)
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(mooncake.store.get_free_func_addr())(at)

        def ask(path):
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
                    return answer.status, answer.read().decode()
            except urllib.error.HTTPError as e:
                return e.code, ""

        store, more = MooncakeDistributedStore(), {"enable_client_http_server": True, "client_http_port": port}
        assert store.setup("127.0.0.1", "P2PHANDSHAKE", 0, 16 << 20, "tcp", "", world.at, **more) == 0
        assert MooncakeDistributedStore().setup("127.0.0.1", "P2PHANDSHAKE", 0, 16 << 20, "tcp", "", world.at, **more) == -600
        assert store.put("one", bytes(5000)) == 0 and store.put_batch(["two", "three"], [b"2", b"33"]) == 0 and len(store.get("one")) == 5000
        assert store.get("absent") == b"" and store.get_batch(["two", "three"]) == [b"2", b"33"]
        room = ctypes.create_string_buffer(8)
        here = ctypes.addressof(room)
        assert store.get_into("three", here, 8) == 2 and store.put_from("four", here, 2) == 0
        assert store.batch_get_into(["two", "three"], [here, here + 1], [1, 2]) == [1, 2] and store.batch_put_from(["5", "6"], [here] * 2, [3, 4]) == [0, 0]
        assert ask("/health") == (200, '{"status": "healthy", "code": 0}') and ask("/other")[0] == 404
        said = dict(line.rsplit(" ", 1) for line in ask("/metrics")[1].splitlines() if not line.startswith("#"))
        real = 'client_mode="real"'
        moved = [said[f"mooncake_transfer_{way}_bytes{{{real}}}"] for way in ("read", "write")]
        assert moved == ["5008", "5012"], moved
        counts = {what: int(said[f"mooncake_transfer_{what}_latency_count{{{real}}}"]) for what in ("get", "put", "batch_get", "batch_put")}
        assert counts == {"get": 3, "put": 2, "batch_get": 2, "batch_put": 2}, counts
        assert said[f'mooncake_transfer_get_latency_bucket{{{real},le="20000000.000000"}}'] == "3"
        assert "batch_put: 2, p95 <= " in ask("/metrics/summary")[1]
        world.directory.kill9()
        assert ask("/health")[0] == 503
        assert store.close() == 0
        try:
            ask("/health")
            raise AssertionError("the port is free again")
        except urllib.error.URLError:
            pass


def test_memory_that_is_taken_back_in_peace_leaves_its_objects_behind():
    from mooncaf.store import ReplicateConfig

    with Cluster() as cluster:
        world = Store(cluster, segments=1)
        store = world.client()
        mounted = [store.allocate_and_mount_segment(32 << 20)["segment_ids"] for _ in range(2)]
        where, values = ReplicateConfig(), {f"k{i}": noise(100_000, i) for i in range(40)}
        where.preferred_segment = mounted[0][0]
        assert all(store.put(key, value, where) == 0 for key, value in values.items())
        assert {d.segments[0] for d in store.get_replica_desc("k7")} == {mounted[0][0]}
        assert store.unmount_segment(mounted[0], 60) == 0 and all(store.get(key) == value for key, value in values.items())
        assert all(d.segments != mounted[0] for key in values for d in store.get_replica_desc(key))
        # At once, what lies there alone is gone; and what lies in one segment can be removed by its name.
        where.preferred_segment = mounted[1][0]
        assert store.put("gone", b"v", where) == store.put("cleared", b"v", where) == 0
        assert store.batch_replica_clear(["cleared", "absent"], mounted[1][0]) == ["cleared"]
        assert store.batch_replica_clear(["gone"], "s0") == [] and store.is_exist("gone") == 1
        assert store.unmount_segment(mounted[1]) == 0 and store.unmount_segment(mounted[1], 5) == -1
        wait_until("it is gone", lambda: store.is_exist("gone") == 0)
        store.close()


def test_of_threads_that_open_one_store_one_does():
    import threading

    from mooncaf.store import MooncakeDistributedStore

    with Cluster() as cluster:
        world = Store(cluster, segments=0)
        os.environ["MOONCAF_CLUSTER_SECRET_FILE"] = world.secret
        store, codes = MooncakeDistributedStore(), []
        threads = [threading.Thread(target=lambda: codes.append(store.setup("a:1", "P2PHANDSHAKE", 16 << 20, 1 << 20, "tcp", "", world.at))) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(codes) == [-600] * 5 + [0] and len(world.json("segments")) == 1, codes
        code = store.put("k", b"v")
        assert code == 0, code
        store.close()


def test_type_stubs_say_what_the_methods_take():
    import ast
    import inspect

    from mooncaf import engine, store

    def stubs(file, name):
        tree = ast.parse((ROOT / "storage/python/mooncaf" / file).read_text())
        found = next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == name)
        return {f.name: f.args for f in found.body if isinstance(f, (ast.FunctionDef, ast.AsyncFunctionDef))}

    def names(arguments):
        plain = [*arguments.posonlyargs, *arguments.args, *([arguments.vararg] if arguments.vararg else []), *arguments.kwonlyargs]
        return [a.arg for a in plain], [ast.literal_eval(ast.unparse(d)) if not isinstance(d, ast.BinOp) else eval(ast.unparse(d))
                                        for d in [*arguments.defaults, *[k for k in arguments.kw_defaults if k is not None]]]

    def agree(file, of):
        methods = {n: inspect.signature(m) for n, m in inspect.getmembers(of, callable)
                   if not isinstance(m, type) and (not n.startswith("_") or n == "__init__")}
        told = stubs(file, of.__name__)
        assert told.keys() == methods.keys(), told.keys() ^ methods.keys()
        for name, signature in methods.items():
            parameters = signature.parameters.values()
            defaults = [p.default for p in parameters if p.default is not p.empty]
            assert names(told[name]) == ([p.name for p in parameters], defaults), name
        return methods, told

    agree("engine.pyi", engine.TransferEngine)
    methods, told = agree("store.pyi", store.MooncakeDistributedStore)
    coroutines = stubs("async_store.pyi", "MooncakeDistributedStoreAsync")
    assert coroutines.keys() - {"__init__"} == {f"async_{n}" for n in methods.keys() - {"__init__"}}
    assert all(names(coroutines[f"async_{n}"]) == names(told[n]) for n in methods.keys() - {"__init__"})
    reached = ast.parse((ROOT / "storage/python/mooncaf/store.pyi").read_text()).body
    told_names = {a.asname for n in reached if isinstance(n, ast.ImportFrom) for a in n.names} | {
        n.target.id for n in reached if isinstance(n, ast.AnnAssign)} | {"MooncakeDistributedStore"}
    assert set(store.__all__) <= told_names, set(store.__all__) - told_names


if __name__ == "__main__":
    package()
    main([value for name, value in sorted(globals().items()) if name.startswith("test_")])
