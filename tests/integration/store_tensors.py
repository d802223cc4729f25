#!/usr/bin/env python3
"""Tensors in the store: whole, and as shards of one number of which any other number is read. With torch or numpy where this interpreter has
them, else with the language's own arrays."""
import ctypes
import itertools
import os
import struct
import sys

sys.path.insert(0, os.path.dirname(__file__))
from cluster import Cluster, Skipped, main  # noqa: E402
from store_world import INVALID, NOT_SUPPORTED, REFERENCE, Store, package  # noqa: E402

HEADER = 304


def tensor(*shape, letter="f"):
    n = 1
    for extent in shape:
        n *= extent
    return memoryview(struct.pack(f"{n}{letter}", *range(n))).cast("B").cast(letter, shape)


def part(whole, rank, size, dim):
    """The elements of a shard, in order."""
    n = whole.shape[dim] // size
    return [whole[i] for i in itertools.product(*[range(rank * n, (rank + 1) * n) if d == dim else range(e)
                                                  for d, e in enumerate(whole.shape)])]


def elements(found):
    if hasattr(found, "flatten"):
        return found.flatten().tolist()
    return list(struct.unpack(f"{found.nbytes // found.itemsize}{found.format}", found.tobytes()))


def axis(rank, size, dim, kind="tp"):
    from mooncaf.store import ParallelAxis, TensorParallelism

    one, all_of_them = ParallelAxis(), TensorParallelism()
    one.kind, one.rank, one.size, one.split_dim = kind, rank, size, dim
    all_of_them.axes = [one]
    return all_of_them


def target(mode, parallelism=None):
    from mooncaf.store import ReadTarget

    wanted = ReadTarget()
    wanted.mode, wanted.parallelism = mode, parallelism
    return wanted


class Moved:
    """How many bytes the store was asked for, while this is open."""

    def __init__(self, store):
        self.store, self.bytes = store, 0

    def __enter__(self):
        plain = self.store._read_parts

        def read(keys, parts, offsets):
            self.bytes += sum(n for some in parts for _, n in some)
            return plain(keys, parts, offsets)

        self.store._read_parts = read
        return self

    def __exit__(self, *_):
        del self.store._read_parts


def test_a_tensor_comes_back_as_it_was():
    with Cluster() as cluster:
        world = Store(cluster, segments=1)
        store = world.client()
        for i, (letter, shape) in enumerate(itertools.product("fdbBhHiIqQ", [(3,), (2, 3, 4)])):
            whole = tensor(*shape, letter=letter)
            assert store.put_tensor(f"t{i}", whole) == 0
            found = store.get_tensor(f"t{i}")
            assert list(found.shape) == list(shape) and elements(found) == list(range(len(elements(found)))), (letter, shape)
        first = tensor(4, 6)
        assert store.put_tensor("t", first) == 0 and store.put_tensor("t", tensor(2)) == 0, "as every put, and the first stays"
        assert list(store.get_tensor("t").shape) == [4, 6] and store.get_size("t") == HEADER + 96
        assert store.upsert_tensor("t", tensor(5)) == 0 and elements(store.get_tensor("t")) == [0, 1, 2, 3, 4]
        assert store.put_tensor("bad", [1, 2]) == store.put_tensor("bad", b"bytes") == INVALID
        assert store.get_tensor("absent") is None and store.put("raw", b"x" * 400) == 0 and store.get_tensor("raw") is None
        buffer = ctypes.create_string_buffer(4096)
        at = ctypes.addressof(buffer)
        assert elements(store.get_tensor_into("t", at, 4096)) == [0, 1, 2, 3, 4]
        assert store.put_tensor_from("again", at, HEADER + 20) == 0 and elements(store.get_tensor("again")) == [0, 1, 2, 3, 4]
        assert store.get_tensor_into("t", at, 100) is None and store.put_tensor_from("short", at, 200) == INVALID
        assert store.put_tensor_from("nowhere", 4096, 400) == INVALID
        assert store.batch_put_tensor(["a", "b"], [first, tensor(2)]) == [0, 0] and store.batch_put_tensor(["a"], []) == [INVALID]
        assert [t is None for t in store.batch_get_tensor(["a", "absent", "b"])] == [False, True, False]
        assert store.get_tensor_into_cuda("t", first) == NOT_SUPPORTED
        # What is no header, or one of something else, is no tensor, whatever it says.
        good = store.get("a")
        for i, (place, value) in enumerate(itertools.product((0, 4, 8, 12, 16, 24, 32, 40, 104, 168), (0, 7, 0xFFFFFFFF))):
            bent = bytearray(good)
            bent[place:place + 4] = struct.pack("<I", value)
            if bent != good:
                assert store.upsert("bent", bytes(bent)) == 0
                found = store.get_tensor("bent")
                assert found is None or elements(found) is not None
        store.close()


def test_any_number_of_shards_is_read_from_any_other():
    with Cluster() as cluster:
        world = Store(cluster, segments=2)
        store = world.client()
        whole = tensor(8, 12, 4)
        total = whole.nbytes
        for dim, written in itertools.product((0, 1), (1, 2, 4)):
            key = f"w{dim}x{written}"
            assert store.put_tensor_with_tp(key, whole, tp_rank=0, tp_size=written, split_dim=dim) == 0
            for size in (1, 2, 4):
                for rank in range(size):
                    with Moved(store) as moved:
                        found = store.get_tensor_with_tp(key, rank, size, split_dim=dim)
                    assert elements(found) == part(whole, rank, size, dim), (key, rank, size)
                    assert total // size <= moved.bytes <= total // size + HEADER * (written + 2), (key, rank, size, moved.bytes)
            # Along another dimension, too.
            for rank in range(4):
                found = store.get_tensor_with_parallelism(key, target("shard", axis(rank, 4, 1 - dim)))
                assert elements(found) == part(whole, rank, 4, 1 - dim), (key, rank)
            assert elements(store.get_tensor_with_parallelism(key, target("full"))) == list(range(8 * 12 * 4))
        assert store.get_tensor_with_tp("w0x2", 0, 3) is None, "eight rows are not three shards"
        assert store.put_tensor_with_tp("w", whole, tp_size=5) == INVALID
        assert store.get_tensor_with_tp("absent", 0, 2) is None and store.get_tensor_with_tp("w0x2", 2, 2) is None
        store.close()


def test_each_writes_its_own_shard_and_another_process_reads_others():
    with Cluster() as cluster:
        world = Store(cluster, segments=1)
        store = world.client()
        whole = tensor(6, 8)
        for rank in range(2):
            assert store.put_tensor_with_parallelism("own", whole, writer_partition=axis(rank, 2, 1).axes[0]) == 0
        assert elements(store.get_tensor_with_parallelism("own", target("as_stored", axis(1, 2, 1)))) == part(whole, 1, 2, 1)
        assert elements(store.get_tensor_with_tp("own", 3, 4)) == part(whole, 3, 4, 1)
        # What a process has of a tensor is its shard, too, as it is.
        for rank in range(2):
            mine = memoryview(struct.pack("24f", *part(whole, rank, 2, 1))).cast("B").cast("f", (6, 4))
            assert store.put_tensor_with_parallelism("had", mine, axis(rank, 2, 1)) == 0
        assert elements(store.get_tensor_with_parallelism("had", target("full"))) == list(range(48))
        assert elements(store.get_tensor_with_parallelism("had", target("shard", axis(2, 3, 0)))) == part(whole, 2, 3, 0)
        # A tensor in a buffer, of which each process stores its shard.
        buffer = ctypes.create_string_buffer(4096)
        at = ctypes.addressof(buffer)
        assert store.put_tensor("whole", whole) == 0 and store.get_tensor_into("whole", at, 4096) is not None
        for rank in range(2):
            assert store.put_tensor_with_tp_from("joined", at, HEADER + 192, rank, 2, 0) == 0
        out = world.python(
            "found = store.get_tensor_with_tp('joined', 2, 3)\n"
            "print(*(found.flatten().tolist() if hasattr(found, 'flatten') else [x for row in found.tolist() for x in row]))\n")
        assert [float(x) for x in out.split()] == part(whole, 2, 3, 0)
        into = store.get_tensor_with_tp_into("joined", at, 4096, 0, 1)
        assert elements(into) == list(range(48)) and store.upsert_tensor_from("whole", at, HEADER + 192) == 0
        assert elements(store.get_tensor("whole")) == list(range(48))
        assert store.get_tensor_with_tp_into("joined", at, 300, 0, 1) is None
        # A shard of which another tensor has taken the place is not mixed with the others.
        assert store.upsert_tensor_with_parallelism("own", tensor(6, 6), writer_partition=axis(1, 2, 1).axes[0]) == 0
        assert store.get_tensor_with_tp("own", 0, 1) is None and elements(store.get_tensor_with_tp("own", 0, 2)) == part(whole, 0, 2, 1)
        assert store.remove("own_tp_1", True) == 0 and store.get_tensor_with_tp("own", 0, 1) is None
        store.close()


def test_a_whole_in_a_buffer_is_divided_for_all_ranks():
    with Cluster() as cluster:
        store = Store(cluster, segments=1).client()
        whole, buffer = tensor(8), ctypes.create_string_buffer(4096)
        at = ctypes.addressof(buffer)
        assert store.put_tensor("whole", whole) == 0 and store.get_tensor_into("whole", at, 4096) is not None
        assert store.put_tensor_with_tp_from("one", at, HEADER + 32, 0, 2, 0) == 0 and store.batch_put_tensor_with_tp_from(["two"], [at], [HEADER + 32], 1, 4, 0) == [0]
        assert [elements(store.get_tensor_with_tp("one", rank, 2)) for rank in range(2)] == [[0, 1, 2, 3], [4, 5, 6, 7]]
        assert [elements(store.get_tensor_with_tp("two", rank, 4)) for rank in range(4)] == [[0, 1], [2, 3], [4, 5], [6, 7]]
        assert store.put_tensor_with_tp_from("three", at, HEADER + 32, 0, 3, 0) == INVALID
        store.close()


def of(*axes):
    """kind, rank, size, and what the kind has beside them."""
    from mooncaf.store import ParallelAxis, TensorParallelism

    made = TensorParallelism()
    for kind, rank, size, *which in axes:
        one = ParallelAxis()
        one.kind, one.rank, one.size = kind, rank, size
        if which:
            setattr(one, {"tp": "split_dim", "ep": "expert_id", "pp": "stage_id"}.get(kind, "split_dim"), which[0])
        made.axes.append(one)
    return made


def test_axes_of_other_kinds_say_whose_a_tensor_is():
    """Keys, headers and refusals are those that Mooncake Store 0.3.13 was seen to write and give."""
    with Cluster() as cluster:
        store = Store(cluster, segments=2).client()
        whole = tensor(4, 6)
        for axes, key in (((("dp", 1, 2),), "__dp_1of2"), ((("ep", 1, 4, 3),), "__ep_1of4_eid3"), ((("pp", 1, 2, 1),), "__pp_1of2_sid1"),
                          ((("tp", 0, 2, 0), ("dp", 1, 2)), "__dp_1of2__tp_0of2_sd0"), ((("tp", 1, 2, 1), ("ep", 0, 2, 0)), "__tp_1of2_sd1__ep_0of2_eid0"),
                          ((("tp", 1, 2, 1), ("pp", 0, 2, 0), ("dp", 1, 2), ("ep", 1, 2, 5)), "__dp_1of2__tp_1of2_sd1__ep_1of2_eid5__pp_0of2_sid0")):
            name, how = "t" + str(len(axes)) + axes[0][0] + axes[-1][0], of(*axes)
            assert store.put_tensor_with_parallelism(name, whole, how) == 0 and store.is_exist(name + key) == 1, axes
            tp = next((axis for axis in axes if axis[0] == "tp"), None)
            shard = part(whole, *tp[1:]) if tp else list(range(24))
            for mode in ("shard", "as_stored"):
                assert elements(store.get_tensor_with_parallelism(name, target(mode, how))) == shard, (axes, mode)
            header = store.get(name + key)[:HEADER]
            assert struct.unpack_from("<I", header, 168) == (len(axes),) and header[8:20] == struct.pack("<III", 0, 2, 1)
            for i, (kind, rank, size, *which) in enumerate(axes):
                dim, number = (which[0], 0) if kind == "tp" else (-1, (which or [0])[0])
                extent = (4, 6)[dim] // size if kind == "tp" else 0
                packed = struct.pack("<IIiiiiq", ("dp", "tp", "ep", "pp").index(kind), 0, rank, size, dim, number, extent)
                assert header[176 + 32 * i:208 + 32 * i] == packed, (axes, i)
            assert store.get_tensor_with_parallelism(name, target("full", how)) is None, "not all shards are there, or there are none"
        for rank in range(2):
            assert store.put_tensor_with_parallelism("all", whole, of(("dp", 1, 2), ("tp", rank, 2, 1))) == 0
        buffer = ctypes.create_string_buffer(4096)
        for found in (store.get_tensor_with_parallelism("all", target("full", of(("dp", 1, 2), ("tp", 0, 2, 1)))),
                      store.get_tensor_with_parallelism_into("all", ctypes.addressof(buffer), 4096, target("full", of(("dp", 1, 2), ("tp", 1, 2, 1))))):
            assert elements(found) == list(range(24)) and list(found.shape) == [4, 6]
        assert store.get_tensor_with_parallelism("all", target("full", of(("dp", 0, 2), ("tp", 0, 2, 1)))) is None, "another copy's"
        assert store.put_tensor("w", whole) == 0 and store.get_tensor_into("w", ctypes.addressof(buffer), 4096) is not None
        assert store.put_tensor_with_parallelism_from("from", ctypes.addressof(buffer), HEADER + 96, of(("pp", 0, 2, 7))) == 0 and store.is_exist("from__pp_0of2_sid7") == 1
        for wrong in ((("tp", 1, 2, 1), ("tp", 0, 2, 0)), (("xx", 0, 2),), (("dp", 0, 2, 0),), (("ep", 0, 2),), (("pp", 0, 2),), (("tp", 0, 2),), (), (("dp", 2, 2),),
                      (("dp", 0, 0),), (("dp", 0, 2), ("tp", 0, 5, 0))):
            assert store.put_tensor_with_parallelism("wrong", whole, of(*wrong)) == INVALID, wrong
            assert store.get_tensor_with_parallelism("wrong", target("shard", of(*wrong))) is None, wrong
        store.close()


def test_a_tensor_goes_to_a_file_and_comes_from_one():
    import importlib.util

    sys.path += [REFERENCE] * bool(REFERENCE)  # brings both along, behind our own package
    if importlib.util.find_spec("safetensors") is None or importlib.util.find_spec("numpy") is None:
        raise Skipped("safetensors or numpy is not installed")
    with Cluster() as cluster:
        world = Store(cluster, segments=1)
        store, file = world.client(), os.path.join(world.folder, "t.safetensors")
        assert store.put_tensor("t", tensor(2, 3)) == 0 and store.save_tensor_to_safetensor("t", file) == 0
        assert elements(store.load_tensor_from_safetensor("t2", file)) == elements(store.get_tensor("t2")) == [0, 1, 2, 3, 4, 5]
        assert elements(store.load_tensor_from_safetensor(file_name=file)) == [0, 1, 2, 3, 4, 5]
        assert store.load_tensor_from_safetensor("t3", file + ".absent") is None
        store.close()


if __name__ == "__main__":
    package()
    main([value for name, value in sorted(globals().items()) if name.startswith("test_")])
