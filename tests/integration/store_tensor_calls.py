"""Calls of `mooncake.store` that take and give tensors of torch, whoever provides it: what each answered, as JSON lines on standard output.

    python3 store_tensor_calls.py HOST:PORT-of-the-directory-or-master
"""
import ctypes
import hashlib
import sys

import torch
from mooncake.store import MooncakeDistributedStore, ParallelAxis, ReadTarget, ReplicateConfig, TensorParallelism
from store_calls import MIB, say

TYPES = ("float32", "float64", "float16", "bfloat16", "int8", "uint8", "int16", "int32", "int64", "bool", "float8_e4m3fn", "float8_e5m2")


def made(shape, dtype="float32"):
    n = 1
    for extent in shape:
        n *= extent
    return torch.arange(n).remainder(97).to(getattr(torch, dtype)).reshape(shape)


def about(found):
    """A tensor's type, shape and elements; a list of those; or the answer itself."""
    if isinstance(found, (list, tuple)):
        return [about(f) for f in found]
    if not isinstance(found, torch.Tensor):
        return found
    raw = bytes(found.contiguous().cpu().flatten().view(torch.uint8).tolist()) if found.numel() else b""
    return f"{found.dtype} {list(found.shape)} {hashlib.sha256(raw).hexdigest()[:16]}"


def along(rank, size, dim):
    axis, all_of_them = ParallelAxis(), TensorParallelism()
    axis.kind, axis.rank, axis.size, axis.split_dim = "tp", rank, size, dim
    all_of_them.axes = [axis]
    return all_of_them


def target(mode, parallelism=None):
    wanted = ReadTarget()
    wanted.mode, wanted.parallelism = mode, parallelism
    return wanted


def calls(address):
    """Label and call, in order: what a call finds is what those before it left."""
    s = MooncakeDistributedStore()
    room = ctypes.create_string_buffer(MIB)
    at = ctypes.addressof(room)
    config = ReplicateConfig()
    yield "setup", lambda: s.setup("127.0.0.1", "P2PHANDSHAKE", 64 * MIB, 16 * MIB, "tcp", "", address)
    yield "register_buffer", lambda: s.register_buffer(at, MIB)
    for name in TYPES:
        yield f"{name}: put_tensor", lambda: s.put_tensor(f"t {name}", made((3, 5, 2), name))
        yield f"{name}: bytes", lambda: hashlib.sha256(s.get(f"t {name}")).hexdigest()
        yield f"{name}: get_tensor", lambda: s.get_tensor(f"t {name}")
    for label, shape in (("no dimension", ()), ("one element", (1,)), ("eight dimensions", (1, 2, 1, 2, 1, 2, 1, 2))):
        yield f"{label}: put_tensor", lambda: s.put_tensor(label, made(shape))
        yield f"{label}: get_tensor", lambda: s.get_tensor(label)
    yield "no element: put_tensor", lambda: s.put_tensor("none", torch.empty((0, 3)))
    yield "nine dimensions: put_tensor", lambda: s.put_tensor("nine", made((1,) * 9))
    yield "strided: put_tensor", lambda: s.put_tensor("strided", made((4, 6)).t())
    yield "strided: get_tensor", lambda: s.get_tensor("strided")
    yield "again: put_tensor", lambda: s.put_tensor("strided", made((2,)))
    yield "again: get_tensor", lambda: s.get_tensor("strided")
    yield "upsert_tensor", lambda: s.upsert_tensor("strided", made((2,)))
    yield "upsert_tensor: get_tensor", lambda: s.get_tensor("strided")
    yield "pub_tensor", lambda: s.pub_tensor("published", made((7,)), config)
    yield "upsert_pub_tensor", lambda: s.upsert_pub_tensor("published", made((8,)), config)
    yield "pub_tensor: get_tensor", lambda: s.get_tensor("published")
    yield "no tensor: put_tensor", lambda: s.put_tensor("no tensor", [1, 2])
    yield "absent: get_tensor", lambda: s.get_tensor("absent")
    yield "raw: put", lambda: s.put("raw", b"x" * 400)
    yield "raw: get_tensor", lambda: s.get_tensor("raw")
    yield "batch_put_tensor", lambda: s.batch_put_tensor(["a", "b"], [made((4, 6)), made((2,), "int64")])
    yield "batch_put_tensor of other lengths", lambda: s.batch_put_tensor(["a"], [])
    yield "batch_get_tensor", lambda: s.batch_get_tensor(["a", "absent", "b"])
    yield "batch_upsert_tensor", lambda: s.batch_upsert_tensor(["a"], [made((6, 4))])
    yield "batch_pub_tensor", lambda: s.batch_pub_tensor(["c"], [made((6, 4))], config)
    yield "get_tensor_into", lambda: s.get_tensor_into("a", at, MIB)
    yield "get_tensor_into too little", lambda: s.get_tensor_into("a", at, 100)
    yield "get_tensor_into: absent", lambda: s.get_tensor_into("absent", at, MIB)
    yield "put_tensor_from", lambda: [s.get_into("a", at, MIB), s.put_tensor_from("from", at, s.get_size("a"))]
    yield "put_tensor_from: get_tensor", lambda: s.get_tensor("from")
    yield "batch_get_tensor_into", lambda: s.batch_get_tensor_into(["a", "b"], [at, at + 4096], [4096, 4096])
    for dim, size in ((0, 2), (1, 2), (0, 4), (2, 2)):
        key, whole = f"tp {dim} {size}", made((8, 12, 4))
        yield f"{key}: put", lambda: [s.put_tensor_with_tp(key, whole, tp_rank=r, tp_size=size, split_dim=dim) for r in range(size)]
        yield f"{key}: get", lambda: [s.get_tensor_with_tp(key, tp_rank=r, tp_size=size, split_dim=dim) for r in range(size)]
        yield f"{key}: get of a rank that is none", lambda: s.get_tensor_with_tp(key, tp_rank=size, tp_size=size, split_dim=dim)
        yield f"{key}: full", lambda: s.get_tensor_with_parallelism(key, target=target("full"))
    yield "tp: one process", lambda: [s.put_tensor_with_tp("one", made((4, 4)), tp_rank=0, tp_size=1), s.get_tensor_with_tp("one", tp_rank=0, tp_size=1)]
    yield "tp: not even", lambda: s.put_tensor_with_tp("odd", made((5, 3)), tp_rank=0, tp_size=2)
    yield "tp: batch", lambda: s.batch_put_tensor_with_tp(["x", "y"], [made((4, 4)), made((8, 2))], tp_rank=0, tp_size=2, split_dim=0)
    yield "tp: batch, back", lambda: s.batch_get_tensor_with_tp(["x", "y", "absent"], tp_rank=0, tp_size=2)
    yield "tp: pub", lambda: s.pub_tensor_with_tp("p", made((4, 4)), config, tp_rank=0, tp_size=2, split_dim=1)
    yield "tp: into", lambda: s.get_tensor_with_tp_into("tp 0 2", at, MIB, tp_rank=1, tp_size=2, split_dim=0)
    shards = made((4, 6)).chunk(2, 1)
    for way in ("", "upsert "):
        put = s.upsert_tensor_with_parallelism if way else s.put_tensor_with_parallelism
        yield f"{way}parallelism: put", lambda: [put("by axis", shards[r].contiguous(), along(r, 2, 1)) for r in range(2)]
        yield f"{way}parallelism: bytes", lambda: [hashlib.sha256(s.get(f"by axis_tp_{r}")).hexdigest() for r in range(2)]
        yield f"{way}parallelism: put for a writer", lambda: [put("by writer", made((4, 6)), writer_partition=along(r, 2, 0).axes[0]) for r in range(2)]
    for key, dim in (("by axis", 1), ("by writer", 0)):
        yield f"{key}: by tp", lambda: [s.get_tensor_with_tp(key, tp_rank=r, tp_size=2, split_dim=dim) for r in range(2)]
        yield f"{key}: shard", lambda: [s.get_tensor_with_parallelism(key, target("shard", along(r, 2, dim))) for r in range(2)]
        yield f"{key}: shard of four", lambda: s.get_tensor_with_parallelism(key, target("shard", along(3, 4, 0)))
        yield f"{key}: as stored", lambda: s.get_tensor_with_parallelism(key, target("as_stored", along(1, 2, dim)))
        yield f"{key}: full", lambda: s.get_tensor_with_parallelism(key, target("full", along(0, 2, dim)))
        yield f"{key}: full, of nobody", lambda: s.get_tensor_with_parallelism(key, target("full"))
    yield "parallelism: no divisor", lambda: s.put_tensor_with_parallelism("odd", made((5, 3)), writer_partition=along(0, 2, 0).axes[0])
    yield "parallelism: both", lambda: s.put_tensor_with_parallelism("both", made((4, 4)), along(0, 2, 0), config, along(0, 2, 0).axes[0])
    yield "parallelism: a writer that is none", lambda: s.put_tensor_with_parallelism("none", made((4, 4)), writer_partition=(0, 2, 0))
    yield "parallelism: a rank that is none", lambda: s.put_tensor_with_parallelism("none", made((4, 4)), along(2, 2, 0))
    yield "parallelism: batch", lambda: s.batch_put_tensor_with_parallelism(["u", "v"], [made((4, 4)), made((2, 2))], [along(0, 2, 0), along(1, 2, 1)])
    yield "parallelism: batch, back", lambda: s.batch_get_tensor_with_parallelism(
        ["u", "v"], [target("shard", along(0, 2, 0)), target("shard", along(1, 2, 1))])
    yield "parallelism: nobody", lambda: [s.put_tensor_with_parallelism("whole", made((4, 6))), s.get_tensor_with_parallelism("whole", target("full"))]
    yield "parallelism: from", lambda: [s.get_into("whole", at, MIB), s.put_tensor_with_parallelism_from("from 1", at, s.get_size("whole"), along(1, 2, 0)),
                                        s.get_tensor_with_tp("from 1", tp_rank=1, tp_size=2)]
    yield "parallelism: from, for a writer", lambda: [
        s.put_tensor_with_parallelism_from("from 2", at, s.get_size("whole"), writer_partition=along(1, 2, 1).axes[0]),
        s.get_tensor_with_tp("from 2", tp_rank=1, tp_size=2, split_dim=1)]
    yield "parallelism: into", lambda: s.get_tensor_with_parallelism_into("by axis", at, MIB, target("shard", along(1, 2, 1)))
    yield "tp: from", lambda: [s.get_into("whole", at, MIB), s.put_tensor_with_tp_from("from 3", at, s.get_size("whole"), tp_rank=0, tp_size=2, split_dim=0),
                               s.get_tensor_with_tp("from 3", tp_rank=0, tp_size=2)]
    yield "tp: from a shard", lambda: [s.get_tensor_with_tp_into("tp 0 2", at, MIB, tp_rank=1, tp_size=2, split_dim=0) is not None,
                                       s.put_tensor_with_tp_from("from 4", at, 304 + 4 * 12 * 4 * 4, tp_rank=1, tp_size=2, split_dim=0),
                                       s.get_tensor_with_tp("from 4", tp_rank=1, tp_size=2)]
    yield "tp: from a shard, as another", lambda: [s.put_tensor_with_tp_from("from 5", at, 304 + 4 * 12 * 4 * 4, tp_rank=0, tp_size=2, split_dim=1),
                                                   s.get_tensor_with_tp("from 5", tp_rank=0, tp_size=2, split_dim=1)]
    yield "remove", lambda: s.remove_all(True) > 0


def main():
    for label, call in calls(sys.argv[1]):
        say(label, lambda: about(call()))


main()
