#!/usr/bin/env python3
"""The SSD tier of the object store, with processes killed: what was stored is there, what was removed is not."""
import ctypes
import os
import pathlib
import random
import struct
import sys

sys.path.insert(0, os.path.dirname(__file__))
from cluster import Cluster, Skipped, main, wait_until  # noqa: E402
from store_world import NOT_FOUND, Store, noise, package, ready  # noqa: E402

SIZE = 200_000


def restart(process):
    process.kill9()
    process.start()
    ready(process)


def put_all(store, values):
    for key, value in values.items():
        code = store.put(key, value)
        assert code == 0, (key, code)


def quiet(world):
    """The disk has written what it was told to."""
    def seen():
        now = world.json("stat")
        return now["ssd_saved"] + now["ssd_save_failures"], now["ssd_loaded"]
    last = [None]

    def still():
        before, last[0] = last[0], seen()
        return before == last[0]
    wait_until("the disk is quiet", still, 30, every=0.3)


def test_more_than_the_memory_holds_is_read_from_ssd():
    from mooncaf.store import TaskStatus

    with Cluster() as cluster:
        world = Store(cluster, segments=1, size="8MiB", ssd="256MiB", lease="0.3s")
        store = world.client()
        values = {f"k{i}": noise(SIZE, i) for i in range(160)}
        put_all(store, values)
        stat = world.json("stat")
        assert stat["objects"] == 160 and stat["evictions"] == 0 and stat["ssd_objects"] > 100, stat
        for key, value in values.items():
            assert store.get(key) == value, key
        # Four times what memory holds in one question, of which one is not there, and one finds no room in its buffer.
        keys = [*values, "nowhere"]
        random.Random(1).shuffle(keys)
        wrong = [key for key, got in zip(keys, store.get_batch(keys)) if got != values.get(key, b"")]
        assert not wrong, wrong
        into = [bytearray(SIZE - (key == "k7")) for key in keys]
        places = [ctypes.addressof(ctypes.c_char.from_buffer(b)) for b in into]
        wanted = [{"k7": -600, "nowhere": NOT_FOUND}.get(key, SIZE) for key in keys]
        assert store.batch_get_into(keys, places, [len(b) for b in into]) == wanted
        assert all(b == values[key] for key, b, n in zip(keys, into, wanted) if n > 0)
        stat = world.json("stat")
        assert stat["ssd_loaded"] > 100 and stat["ssd_damaged"] == 0 and stat["misses"] == 2, stat
        # People see where things are.
        on_ssd = [o for o in world.json("ls") if o["on_ssd"]]
        assert len(on_ssd) == stat["ssd_objects"] or world.json("stat")["ssd_objects"] != stat["ssd_objects"]
        media = {s["name"]: s["medium"] for s in world.json("segments")}
        assert media == {"s0": "dram", "s0/ssd": "ssd"}, media
        key = on_ssd[0]["key"]
        assert [d["segment"] for d in world.json("stat", key)[0]["ssd"]] == ["s0/ssd"]
        # Nobody holds it in memory who could carry out a task about it.
        quiet(world)
        alone = next(o["key"] for o in world.json("ls") if o["on_ssd"] and o["replicas"] == o["on_ssd"])
        # Who asks where it is hears that, and it stays there.
        loaded = world.json("stat")["ssd_loaded"]
        [where] = store.get_replica_desc(alone)
        assert where.is_local_disk_replica() and not where.is_memory_replica() and not where.is_disk_replica() and where.segments == ["s0/ssd"]
        assert world.json("stat")["ssd_loaded"] == loaded
        assert store.put("fresh", b"v") == 0 and [d.is_memory_replica() for d in store.get_replica_desc("fresh")][0]
        task, code = store.create_copy_task(alone, ["s0"])
        assert code == 0, code
        wait_until("the task has ended", lambda: store.query_task(task)[0].status in (TaskStatus.SUCCESS, TaskStatus.FAILED))
        assert store.query_task(task)[0].status == TaskStatus.FAILED and store.get(alone) == values[alone]
        # An object that is removed leaves the disk, too.
        assert store.remove("k0", True) == 0 and store.get("k0") == b""
        world.run("rm", "--matching", ".", "--force")
        wait_until("nothing is left", lambda: (lambda s: s["objects"] == s["ssd_bytes"] == 0)(world.json("stat")))
        store.close()


def bf16_numbers():
    """As a tensor has them: near zero, in no order."""
    chance = random.Random(1)
    return b"".join(struct.pack("<f", chance.gauss(0, 1))[2:] for _ in range(SIZE // 2))


def test_an_ssd_holds_more_bf16_numbers_than_it_has_bytes_for():
    with Cluster() as cluster:
        world = Store(cluster, segments=1, size="8MiB", ssd="16MiB", lease="0.3s")
        store = world.client()
        room = world.json("stat")["ssd_capacity_bytes"]
        assert room == 16 << 20, room
        numbers = bf16_numbers()
        values = {f"k{i}": numbers[2 * i:] + numbers[:2 * i] for i in range(160)}
        put_all(store, values)
        quiet(world)
        stat = world.json("stat")
        assert stat["ssd_capacity_bytes"] > 1.25 * room and stat["ssd_bytes"] > 1.1 * room, stat
        got = {key: store.get(key) for key in values}
        assert not [key for key, value in got.items() if value not in (values[key], b"")]
        assert sum(len(value) for value in got.values()) > 1.1 * room


def test_what_lies_in_pieces_in_memory_goes_to_ssd_and_outlives_its_holder():
    from mooncaf.store import ReplicateConfig

    with Cluster() as cluster:
        world = Store(cluster, segments=1, size="8MiB", ssd="256MiB", lease="0.3s", mount=("--write-policy", "write_through"))
        store = world.client()
        hard = ReplicateConfig()
        hard.with_hard_pin = True
        small = 64 << 10
        for i in range(100):  # every second stays: what is free then is in runs of this length, but for the last
            assert store.put(f"small-{i}", noise(small, i), *([hard] if i % 2 else [])) == 0
        for i in range(0, 100, 2):
            assert store.remove(f"small-{i}", True) == 0
        values = {f"wide-{i}": noise(1_900_000 + i, i) for i in range(12)}
        for key, value in values.items():
            assert store.put(key, value) == 0
            pieces = len(world.json("stat", key)[0]["places"])
            assert pieces > 1, (key, pieces)
            wait_until("it is on SSD", lambda: world.json("stat", key)[0]["ssd"])  # noqa: B023
        assert store.get_batch(list(values)) == list(values.values())
        assert world.json("stat")["ssd_loaded"] >= 8 and world.json("stat")["evictions"] == 0
        # Small ones that came faster than the disk writes are saved when they have to leave, which they never had.
        saved = [int(o["key"].removeprefix("small-")) for o in world.json("ls", "small-") if o["on_ssd"]]
        assert saved
        restart(world.holders[0])
        assert store.get_batch(list(values)) == list(values.values())
        assert [store.get(f"small-{i}") for i in saved] == [noise(small, i) for i in saved]
        store.close()


def test_what_lies_with_several_holders_goes_to_all_their_ssds_and_is_there_when_all_are():
    with Cluster() as cluster:
        world = Store(cluster, segments=2, size="8MiB", ssd="256MiB", lease="0.3s", mount=("--write-policy", "write_through", "--page-cache"))
        store = world.client()
        values = {f"wide-{i}": noise(11_000_000 + i, i) for i in range(3)}  # no segment holds one, both together do
        where = {"s0/ssd", "s1/ssd"}

        def back(holder):
            holder.start()
            ready(holder)
            wait_until("the SSD is back", lambda: len(world.json("segments")) == 4)

        for key, value in values.items():
            assert store.put(key, value) == 0
            on_ssd = lambda: {d["segment"] for d in world.json("stat", key)[0]["ssd"]}  # noqa: B023, E731
            wait_until("it is on both SSDs", lambda: on_ssd() == where)  # noqa: B023
        assert store.get_batch(list(values)) == list(values.values())
        stat = world.json("stat")
        assert stat["evictions"] == stat["ssd_damaged"] == 0 and stat["ssd_loaded"] >= 2, stat
        # Half of an object is a miss, and is half of it again when its other half is back.
        for holder in world.holders:
            holder.kill9()
            wait_until("the directory misses it", lambda: len(world.json("segments")) == 2)
            assert store.get_batch(list(values)) == [b""] * 3 and world.json("stat")["ssd_bytes"] > 10_000_000
            back(holder)
            assert store.get_batch(list(values)) == list(values.values())
        # So it is for a directory that is new, and what was removed while half of it was away stays away.
        for holder in world.holders:
            holder.kill9()
        restart(world.directory)
        world.holders[0].start()
        ready(world.holders[0])
        wait_until("the store answers", lambda: store.is_exist("k-none") == 0, 20)
        assert store.batch_is_exist(list(values)) == [0] * 3
        assert store.remove("wide-0", True) in (0, NOT_FOUND)
        back(world.holders[1])
        wait_until("the store answers", lambda: store.is_exist("k-none") == 0, 20)
        del values["wide-0"]
        assert store.get_batch(["wide-0", *values]) == [b"", *values.values()]
        # Bits that flip in one half cost the object, and free the other.
        quiet(world)
        restart(world.holders[1])  # what was in its log lies in files of its own now
        world.holders[1].kill9()
        for file in pathlib.Path(world.ssd_path(1)).glob("*.blob"):
            data = bytearray(file.read_bytes())
            for at in range(100_000, len(data) - 100_000, 500_000):
                data[at] ^= 16
            file.write_bytes(data)
        back(world.holders[1])
        assert store.get_batch(list(values)) == [b""] * 2
        wait_until("nothing is left", lambda: (lambda s: s["objects"] == s["ssd_bytes"] == 0 and s["ssd_damaged"] == 2)(world.json("stat")))
        store.close()


def test_what_is_on_ssd_outlives_kills_of_everybody_in_any_order_and_what_was_removed_does_not():
    with Cluster() as cluster:
        world = Store(cluster, segments=2, size="8MiB", ssd="256MiB", lease="0.3s", recovery="1s",
                      mount=("--write-policy", "write_through"))
        store = world.client()
        dice = random.Random(12)
        values = {f"k{i}": noise(SIZE // 4, i) for i in range(60)}
        put_all(store, values)
        gone = {}

        def change(tag):
            """Some are removed, some replaced, some are there for the first time."""
            for key in dice.sample(sorted(values), 6):
                gone.setdefault(key, []).append(values.pop(key))
                code = store.remove(key, True)
                assert code in (0, NOT_FOUND), code
            for key in dice.sample(sorted(values), 6):
                value = noise(SIZE // 4, f"{tag}{key}")
                if store.upsert(key, value) == 0:
                    gone.setdefault(key, []).append(values[key])
                    values[key] = value
            fresh = {f"{tag}-{i}": noise(SIZE // 4, f"{tag}{i}") for i in range(4)}
            put_all(store, fresh)
            values.update(fresh)

        def check(lost):
            """What was killed in memory alone may be lost; nothing else, and nothing old is there."""
            missing = 0
            for key in sorted(set(values) | set(gone)):
                got = store.get(key)
                assert got not in gone.get(key, []), ("stale", key)
                assert got == b"" or got == values.get(key), ("wrong", key)
                if got == b"" and key in values:
                    missing += 1
                    del values[key]
            assert missing <= lost, missing

        def found():
            wait_until("the store answers", lambda: store.is_exist("k-none") == 0, 20)
            wait_until("both SSDs are back", lambda: sum(s["medium"] == "ssd" for s in world.json("segments")) == 2, 20)

        quiet(world)
        for turn, order in enumerate(["holder", "directory", "holder directory", "directory holder", "both holders directory"]):
            if order == "holder":
                world.holders[0].kill9()
                change(f"t{turn}")
                world.holders[0].start()
                ready(world.holders[0])
            elif order == "directory":
                restart(world.directory)
            elif order == "holder directory":
                world.holders[1].kill9()
                change(f"t{turn}")
                world.directory.kill9()
                world.directory.start()
                ready(world.directory)
                found_one = lambda: store.is_exist("k-none") == 0  # noqa: E731
                wait_until("the store answers", found_one, 20)
                change(f"u{turn}")
                world.holders[1].start()
                ready(world.holders[1])
            elif order == "directory holder":
                world.directory.kill9()
                world.holders[0].kill9()
                world.holders[0].start()
                world.directory.start()
                ready(world.directory)
                ready(world.holders[0])
            else:
                for holder in world.holders:
                    holder.kill9()
                restart(world.directory)
                wait_until("the store answers", lambda: store.is_exist("k-none") == 0, 20)
                for key in sorted(values)[:5]:  # nobody has it, and yet it is not to come back
                    assert store.remove(key, True) in (0, NOT_FOUND)
                    gone.setdefault(key, []).append(values.pop(key))
                for holder in world.holders:
                    holder.start()
                for holder in world.holders:
                    ready(holder)
            found()
            # Whose holder died with what replaced it in memory alone is a miss: 10 at most were so young.
            check(lost=16)
            quiet(world)
        stat = world.json("stat")
        assert stat["ssd_recovered"] > 20, stat
        assert len(values) > 25
        store.close()


def test_a_directory_without_notes_takes_nothing_that_it_cannot_know_of():
    import shutil

    with Cluster() as cluster:
        world = Store(cluster, segments=1, size="8MiB", ssd="64MiB", mount=("--write-policy", "write_through"))
        store = world.client()
        put_all(store, {f"k{i}": noise(SIZE, i) for i in range(10)})
        quiet(world)
        world.directory.kill9()
        world.holders[0].kill9()
        shutil.rmtree(os.path.join(world.folder, "state"))
        world.directory.start()
        ready(world.directory)
        world.holders[0].start()
        ready(world.holders[0])
        wait_until("the SSD is back", lambda: len(world.json("segments")) == 2)
        wait_until("the store answers", lambda: store.is_exist("k-none") == 0, 20)
        assert store.batch_is_exist([f"k{i}" for i in range(10)]) == [0] * 10
        assert "count no more" in world.holders[0].output()
        assert store.put("k1", b"new") == 0 and store.get("k1") == b"new"
        store.close()


def test_flipped_bits_are_a_miss_and_counted():
    with Cluster() as cluster:
        world = Store(cluster, segments=1, size="8MiB", ssd="256MiB", lease="0.3s",
                      mount=("--write-policy", "write_through", "--page-cache"))
        store = world.client()
        values = {f"k{i}": noise(SIZE, i) for i in range(30)}
        put_all(store, values)
        quiet(world)
        restart(world.holders[0])  # what was in its log lies in files of its own now
        world.holders[0].kill9()
        dice, flipped = random.Random(5), 0
        for file in pathlib.Path(world.ssd_path(0)).iterdir():
            size = file.stat().st_size
            if file.suffix != ".blob" or size < 100_000:
                continue
            with open(file, "r+b") as f:
                for _ in range(3):
                    f.seek(dice.randrange(4096, size))
                    byte = f.read(1)[0]
                    f.seek(-1, os.SEEK_CUR)
                    f.write(bytes([byte ^ 16]))
                    flipped += 1
        assert flipped
        world.holders[0].start()
        ready(world.holders[0])
        wait_until("the SSD is back", lambda: len(world.json("segments")) == 2)
        got = {key: store.get(key) for key in values}
        assert all(value in (b"", values[key]) for key, value in got.items())
        missing = sum(value == b"" for value in got.values())
        assert 0 < missing < 30, missing
        store.close()


LENDS = """
import os, random, sys
from mooncaf.store import MooncakeDistributedStore
def value(i):
    return random.Random(i).randbytes(200_000)
def mount(path, memory="16MiB", **more):
    store = MooncakeDistributedStore()
    code = store.setup("127.0.0.1:9", "P2PHANDSHAKE", memory, 16 << 20, "tcp", "", AT, enable_ssd_offload=True, ssd_offload_path=path, **more)
    return code, store
def there(store, n):
    return sum(store.get(f"k{i}") == value(i) for i in range(n))
"""


def test_a_python_process_mounts_an_ssd_beside_its_memory():
    with Cluster() as cluster:
        world = Store(cluster, segments=0, lease="0.3s")
        head = LENDS.replace("AT", repr(world.at)) + f"path = {world.ssd_path(0)!r}\n"
        wait = "print('ready', flush=True)\nsys.stdin.readline()\n"
        first = world.python(head + """
code, store = mount(path)
expect(code, 0)
for i in range(160):
    expect(store.put(f"k{i}", value(i)), 0)
expect(there(store, 160), 160)
""" + wait, wait=False)
        assert first.stdout.readline() == "ready\n", first.communicate()
        assert {s["medium"] for s in world.json("segments")} == {"dram", "ssd"}
        stat = world.json("stat")
        assert stat["objects"] == 160 and stat["evictions"] == 0 and stat["ssd_loaded"] > 50, stat
        quiet(world)
        # What cannot be mounted is refused, with a reason, and another process' folder is one of them.
        world.python(head + f"""
sys.modules["mooncaf._ssd"] = None
got, store = mount(path)
assert got == -1012 and "RocksDB" in store.last_error(), (got, store.last_error())
del sys.modules["mooncaf._ssd"]
for code, given in ((-1300, [path]), (-1300, ["/dev/null/x"]), (-600, [path, 0]), (-600, [""])):
    got, store = mount(*given)
    assert got == code and store.last_error(), (given, got, store.last_error())
got, store = mount(path, token_file={world.secret!r})
expect(got, -1012)
os.environ["MOONCAKE_OFFLOAD_FILE_STORAGE_PATH"] = path + "-of-the-environment"
got, store = mount("")
expect([got, os.path.isdir(path + "-of-the-environment")], [0, True])
""")
        first.kill()
        first.communicate()
        wait_until("its holder is gone", lambda: world.json("segments") == [])
        # The next process has it all. One that ends without closing, and a child that it forked before, end well.
        world.python(head + """
code, store = mount(path)
expect(code, 0)
assert there(store, 160) >= 150, there(store, 160)
child = os.fork()
if child == 0:
    expect(store.put("k", b"x"), -600)
    expect(mount(path + "-of-a-child")[0], -1012)
    sys.exit(7)
expect(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 7)
expect(store.put("last", b"x" * 1000), 0)
""")
        wait_until("its holder is gone", lambda: world.json("segments") == [])


def test_a_full_disk_is_left_alone_and_memory_serves():
    from ssd import small_disk

    with Cluster() as cluster, small_disk(pathlib.Path(cluster.folder.name, "full"), 100) as mounted:
        if not mounted:
            raise Skipped("no small file system can be mounted here")
        world = Store(cluster, segments=0)
        world.holders.append(world.start("s0", "store", "mount", "--name", "s0", "--size", "8MiB", "--directory", world.at, "--ssd-path",
                                         os.path.join(cluster.folder.name, "full"), "--ssd-size", "1GiB", "--cluster-secret-file",
                                         world.secret))
        ready(world.holders[0])
        store = world.client()
        values = {f"k{i}": noise(SIZE, i) for i in range(160)}
        put_all(store, values)
        # Newest first: the watermarks let go of what was used least lately, which the newest would be once the
        # others were read.
        got = {key: store.get(key) for key in reversed(values)}
        assert all(value in (b"", values[key]) for key, value in got.items()) and got["k159"] == values["k159"]
        stat = world.json("stat")
        assert stat["ssd_objects"] == 0 and stat["ssd_save_failures"] > 0 and stat["evictions"] > 100, stat
        assert "cannot save" in world.holders[0].output()
        store.close()
        world.holders[0].stop()  # it has files open there


def test_a_tenant_takes_no_more_of_the_ssd_than_its_share():
    from store_tenants import World

    with Cluster() as cluster:
        world = World(cluster, quota="2MiB", ssd_quota="3MiB", segments=1, size="16MiB", ssd="64MiB",
                      mount=("--write-policy", "write_through"))
        red, blue = world.of("red"), world.of("blue")
        assert blue.put("k", noise(SIZE, "blue")) == 0
        values = {f"k{i}": noise(SIZE, i) for i in range(40)}
        put_all(red, values)
        quiet(world)
        seen = {t["name"]: t for t in world.json("tenants")}
        assert seen["red"]["quota_ssd_bytes"] == 3 << 20 and (2 << 20) < seen["red"]["ssd_bytes"] <= 3 << 20, seen
        assert seen["blue"]["ssd_bytes"] == SIZE, seen
        there = [key for key, value in values.items() if red.get(key) == value]
        assert 10 <= len(there) <= 26 and "k39" in there, there
        assert blue.get("k") == noise(SIZE, "blue")
        red.close()
        blue.close()


def test_what_a_tenant_s_quota_has_no_room_for_lies_on_ssd():
    from store_tenants import World

    with Cluster() as cluster:
        world = World(cluster, quota="2MiB", segments=1, size="16MiB", ssd="64MiB", mount=("--write-policy", "write_through"))
        red, blue = world.of("red"), world.of("blue")
        values = {f"k{i}": noise(SIZE, i) for i in range(40)}
        put_all(red, values)
        assert blue.put("k1", b"another") == 0
        stat = world.json("stat")
        assert stat["objects"] == 41 and stat["evictions"] == 0 and stat["ssd_objects"] > 25, stat
        for key, value in values.items():
            assert red.get(key) == value, key
        used = {t["name"]: t["used_bytes"] for t in world.json("tenants")}
        assert 0 < used["red"] <= 2 << 20, used
        assert blue.get("k1") == b"another" and blue.get("k2") == b""
        # Kill both: it is the tenant's again, and nobody else's. What it removes meanwhile is gone, and only that.
        quiet(world)
        world.holders[0].kill9()
        assert red.remove_by_regex("^k1", True) >= 0
        restart(world.directory)
        world.holders[0].start()
        ready(world.holders[0])
        wait_until("the SSD is back", lambda: len(world.json("segments")) == 2)
        wait_until("the store answers", lambda: red.is_exist("none") == 0, 20)
        assert [key for key in values if red.get(key)] == [], "all of a tenant's that is away counts as removed"
        wait_until("the store answers the other", lambda: blue.is_exist("k1") == 1, 20)
        assert blue.get("k1") == b"another"
        red.close()
        blue.close()


if __name__ == "__main__":
    package()
    main([value for name, value in sorted(globals().items()) if name.startswith("test_")])
