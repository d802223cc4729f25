#!/usr/bin/env python3
"""The object store when its processes are killed: clients, holders, the directory."""
import os
import signal
import sys

sys.path.insert(0, os.path.dirname(__file__))
from cluster import Cluster, main, wait_until  # noqa: E402
from store_world import LEASED, UNREACHABLE, Store, noise, package, ready  # noqa: E402


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
        wait_until("all memory is free again", lambda: (lambda s: s["free_bytes"] == s["capacity_bytes"])(world.json("stat")), 30)
        store = world.client()
        assert store.put("k0", bytes(8 << 20)) == 0
        store.close()


def test_a_holder_that_is_killed_takes_only_what_had_no_replica():
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
        world.holders[0].kill9()
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


def test_an_idle_client_s_first_call_is_answered_by_the_new_directory():
    import store_world

    with Cluster() as cluster:
        for host, way in (("127.0.0.1", "near"), ("127.0.0.2", "TCP")):  # through memory that both map, and through a socket
            before, store_world.HOST = store_world.HOST, host
            try:
                world = Store(cluster, segments=1)
            finally:
                store_world.HOST = before
            calls = {"get": lambda s: s.get("k") == b"v", "is_exist": lambda s: s.is_exist("k") == 1, "put": lambda s: s.put("put", b"w") == 0,
                     "get_batch": lambda s: s.get_batch(["k"]) == [b"v"], "remove": lambda s: s.remove("gone", True) == 0,
                     "health_check": lambda s: s.health_check() == 0, "get_size": lambda s: s.get_size("k") == 1}
            idle = {name: world.client() for name in calls}
            for name, client in idle.items():
                assert client.put(f"of {name}", b"x") == 0 and client.get(f"of {name}") == b"x"
            busy = world.client()
            assert busy.put("k", b"v") == busy.put("gone", b"v") == 0
            world.directory.kill9()
            world.directory.start()
            wait_until("the new directory knows everything", lambda: busy.get("k") == b"v" and busy.is_exist("gone") == 1)
            wrong = [name for name, client in idle.items() if not calls[name](client)]
            assert not wrong, (way, wrong)
            for client in (busy, *idle.values()):
                client.close()
            for process in (world.directory, *world.holders):
                process.kill9()


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


def test_who_mounts_waits_for_its_directory():
    with Cluster() as cluster:
        world = Store(cluster, segments=0)
        world.directory.kill9()
        holder = world.start("early", "store", "lend", "--name", "early", "--size", "16MiB", "--directory", world.at,
                             "--cluster-secret-file", world.secret)
        wait_until("it says that it tries again", lambda: "trying again" in holder.output(), 30)
        assert holder.alive()
        world.start("directory", "store", "directory", "--listen", world.at, "--cluster-secret-file", world.secret)
        ready(holder)
        assert [s["name"] for s in world.json("segments")] == ["early"]
        holder.stop()
        assert not holder.alive()


if __name__ == "__main__":
    package()
    main([value for name, value in sorted(globals().items()) if name.startswith("test_")])
