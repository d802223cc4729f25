"""Calls of `mooncake.store`, one after the other, whoever provides it: what each answered, as JSON lines on standard output.

Left out is what ends the reference's process (0.3.13: any put before `setup`, most calls after `close`).

    python3 store_calls.py HOST:PORT-of-the-directory-or-master
"""
import ctypes
import json
import sys
import tempfile

import mooncake
from mooncake.mooncake_config import MooncakeConfig
from mooncake.store import (COMPLETE, GENERAL, KVCACHE, REPLICA_MOVE, BufferPool, MooncakeDistributedNoFRegister, MooncakeDistributedStore,
                            MooncakeHostMemAllocator, ReplicateConfig, SoftPinAction, bind_to_numa_node)

MIB = 1 << 20


def plain(answer):
    if isinstance(answer, (bytes, bytearray, memoryview)):
        return "bytes " + bytes(answer)[:16].hex() + f" of {len(answer)}"
    if isinstance(answer, (list, tuple)):
        return [plain(a) for a in answer]
    if isinstance(answer, dict):
        return {str(k): plain(v) for k, v in answer.items()}
    if hasattr(answer, "is_memory_replica"):
        d = answer.get_memory_descriptor().buffer_descriptor
        return {"memory": answer.is_memory_replica(), "disk": answer.is_disk_replica(), "local disk": answer.is_local_disk_replica(),
                "status": int(answer.status) if not hasattr(answer.status, "name") else str(answer.status.name), "size": d.size}
    if hasattr(answer, "ptr") and hasattr(answer, "size"):
        return "handle " + ctypes.string_at(answer.ptr(), answer.size())[:16].hex() + f" of {answer.size()}"
    return answer if answer is None or isinstance(answer, (int, str, bool)) else type(answer).__name__


def config(**fields):
    c = ReplicateConfig()
    for name, value in fields.items():
        setattr(c, name, value)
    return c


def calls(address):
    """Label and call, in order: what a call finds is what those before it left."""
    new, s = MooncakeDistributedStore(), MooncakeDistributedStore()
    size = 300_000
    data = bytes(range(256)) * (size // 256) + bytes(size % 256)
    there = ctypes.create_string_buffer(data, size)
    back = ctypes.create_string_buffer(size)
    a, b = ctypes.addressof(there), ctypes.addressof(back)
    space = ctypes.create_string_buffer(80 * MIB)
    huge = ctypes.addressof(space)
    own = ("127.0.0.1", "P2PHANDSHAKE", 64 * MIB, 16 * MIB, "tcp", "", address)

    def filled():
        """How much of the target agrees, and empties it."""
        same = back.raw == data
        ctypes.memset(b, 0, size)
        return same

    yield "before setup: health_check", new.health_check
    yield "before setup: close", new.close
    yield "setup", lambda: s.setup(*own)
    yield "health_check", s.health_check
    yield "get_hostname names a port", lambda: ":" in s.get_hostname()
    yield "put", lambda: s.put("k", data)
    yield "put of a key that exists", lambda: s.put("k", b"other")
    yield "get of what was put first", lambda: s.get("k")
    yield "get of an absent key", lambda: s.get("absent")
    yield "put of no bytes", lambda: s.put("empty", b"")
    yield "put under no key", lambda: s.put("", b"v")
    yield "get under no key", lambda: s.get("")
    yield "put of a bytearray", lambda: s.put("bytearray", bytearray(b"abc"))
    yield "put of a memoryview", lambda: s.put("memoryview", memoryview(b"abc"))
    yield "put of text", lambda: s.put("text", "abc")
    yield "put under a number", lambda: s.put(5, b"abc")
    yield "put with two replicas where there is one segment", lambda: s.put("two", b"abc", config(replica_num=2))
    yield "put with no replica", lambda: s.put("none", b"abc", config(replica_num=0))
    yield "put on the same node", lambda: s.put("same", b"abc", config(prefer_alloc_in_same_node=True))
    yield "put of more than the local buffer holds", lambda: s.put("huge", bytes(80 * MIB))
    yield "put with a hard pin", lambda: s.put("hard", b"abc", config(with_hard_pin=True))
    yield "put_parts", lambda: s.put_parts("parts", data[:7], bytearray(data[7:9]), memoryview(data)[9:])
    yield "get of parts", lambda: s.get("parts")
    yield "put_parts of nothing", lambda: s.put_parts("nothing")
    yield "put_parts of empty parts", lambda: s.put_parts("nothing", b"", b"")
    yield "put_batch", lambda: s.put_batch(["b1", "b2"], [data, b"x"])
    yield "put_batch of other lengths", lambda: s.put_batch(["b3", "b4"], [b"x"])
    yield "put_batch of nothing", lambda: s.put_batch([], [])
    yield "register_buffer", lambda: s.register_buffer(a, size)
    yield "register_buffer of the target", lambda: s.register_buffer(b, size)
    yield "put_from", lambda: s.put_from("from", a, size)
    yield "put_from of nothing", lambda: s.put_from("from0", a, 0)
    yield "is_exist of what was put from nothing", lambda: s.is_exist("from0")
    yield "put_from of more than a segment holds", lambda: s.put_from("huge", huge, 80 * MIB)
    yield "put_from_with_metadata", lambda: s.put_from_with_metadata("meta", a, b, 100, 8)
    yield "batch_put_from", lambda: s.batch_put_from(["f1", "f2"], [a, a + 100], [100, 200])
    yield "batch_put_from of other lengths", lambda: s.batch_put_from(["f3", "f4"], [a], [1])
    yield "batch_put_from of keys that exist", lambda: s.batch_put_from(["f1", "f5"], [a, a], [100, 5])
    yield "batch_put_from_multi_buffers", lambda: s.batch_put_from_multi_buffers(["m"], [[a, a + 200_000]], [[200_000, 100_000]])
    yield "batch_put_from_multi_buffers of other lengths", lambda: s.batch_put_from_multi_buffers(["m2", "m3"], [[a]], [[5]])
    yield "get_into", lambda: s.get_into("from", b, size)
    yield "what it brought", filled
    yield "get_into more than there is", lambda: s.get_into("f1", b, size)
    yield "get_into too little room", lambda: s.get_into("from", b, size - 1)
    yield "get_into of an absent key", lambda: s.get_into("absent", b, size)
    yield "batch_get_into", lambda: s.batch_get_into(["from", "absent"], [b, b], [size, size])
    yield "batch_get_into of other lengths", lambda: s.batch_get_into(["from", "f1"], [b], [size])
    yield "batch_get_into_multi_buffers", lambda: s.batch_get_into_multi_buffers(["m"], [[b, b + 7]], [[7, size - 7]])
    yield "what they brought", filled
    yield "get_batch", lambda: s.get_batch(["b1", "absent", "b2"])
    yield "get_batch of nothing", lambda: s.get_batch([])
    yield "get_buffer", lambda: s.get_buffer("f2")
    yield "get_buffer of an absent key", lambda: s.get_buffer("absent")
    yield "batch_get_buffer", lambda: s.batch_get_buffer(["f1", "absent"])
    yield "get_into_ranges", lambda: s.get_into_ranges([b], [["from", "absent"]], [[[0, 50], [100]]], [[[10, 1000], [0]]],
                                                       [[[20, 30], [5]]])
    yield "what the ranges brought", lambda: back.raw[:20] == data[10:30] and back.raw[50:80] == data[1000:1030]
    yield "get_into_ranges behind the end", lambda: s.get_into_ranges([b], [["f1"]], [[[0]]], [[[90]]], [[[20]]])
    yield "get_into_ranges of other lengths", lambda: s.get_into_ranges([b], [["f1"]], [[[0]]], [[[90, 5]]], [[[20]]])
    yield "upsert of a new key", lambda: s.upsert("up", b"first")
    yield "upsert of a key that exists", lambda: s.upsert("up", b"later")
    yield "get of what was upserted", lambda: s.get("up")
    yield "upsert_parts", lambda: s.upsert_parts("up2", b"a", b"b")
    yield "upsert_from", lambda: s.upsert_from("up3", a, 100)
    yield "upsert_batch", lambda: s.upsert_batch(["up4", "up5"], [b"a", b"b"])
    yield "batch_upsert_from", lambda: s.batch_upsert_from(["up6", "up7"], [a, a], [10, 10])
    yield "get of what was upserted from memory", lambda: [len(s.get(k)) for k in ("up2", "up3", "up4", "up7")]
    yield "upsert of what is being read", lambda: [s.put("upr", b"first"), s.is_exist("upr"), s.upsert("upr", b"other size"), s.get("upr")]
    yield "upsert of no bytes", lambda: s.upsert("up0", b"")
    yield "upsert under no key", lambda: s.upsert("", b"v")
    yield "upsert_parts of nothing", lambda: s.upsert_parts("up0")
    yield "upsert_from of nothing", lambda: s.upsert_from("up0", a, 0)
    yield "upsert_batch of other lengths", lambda: s.upsert_batch(["up0"], [b"a", b"b"])
    yield "batch_upsert_from of other lengths", lambda: s.batch_upsert_from(["up0"], [a, a], [1, 1])
    yield "upsert of what is pinned hard", lambda: [s.put("uph", b"1", config(with_hard_pin=True)), s.upsert("uph", b"2"), s.get("uph")]
    yield "batch_put_session_start", lambda: s.batch_put_session_start(["s1", "s2"], [1000, 2000])
    yield "batch_put_session_start of what has begun", lambda: s.batch_put_session_start(["s1"], [1000])
    yield "batch_put_session_start of what exists", lambda: s.batch_put_session_start(["k"], [1000])
    yield "batch_put_session_start of no bytes", lambda: s.batch_put_session_start(["s3"], [0])
    yield "batch_put_session_start of other lengths", lambda: s.batch_put_session_start(["s3", "s4"], [5])
    yield "is_exist of what is being written", lambda: s.batch_is_exist(["s1", "s2"])
    yield "batch_put_from_multi_buffer_ranges", lambda: s.batch_put_from_multi_buffer_ranges(
        ["s1", "s2"], [[a, a + 500], [a]], [[500, 500], [2000]], [[0, 500], [0]])
    yield "put ranges behind the end", lambda: s.batch_put_from_multi_buffer_ranges(["s1"], [[a]], [[500]], [[600]])
    yield "put ranges without a session", lambda: s.batch_put_from_multi_buffer_ranges(["s9"], [[a]], [[500]], [[0]])
    yield "put ranges of other lengths", lambda: s.batch_put_from_multi_buffer_ranges(["s1", "s2"], [[a]], [[500]], [[0]])
    yield "put ranges of other lengths within", lambda: s.batch_put_from_multi_buffer_ranges(["s1"], [[a]], [[500, 3]], [[0]])
    yield "batch_put_session_end", lambda: s.batch_put_session_end(["s1", "s2", "s9"])
    yield "batch_put_session_end again", lambda: s.batch_put_session_end(["s1"])
    yield "get of what was put in sessions", lambda: [s.get("s1") == data[:1000], s.get("s2") == data[:2000]]
    yield "a session that is not written to its end", lambda: [
        s.batch_put_session_start(["s5"], [1000]), s.batch_put_from_multi_buffer_ranges(["s5"], [[a]], [[500]], [[0]]),
        s.batch_put_session_end(["s5"]), s.is_exist("s5")]
    yield "batch_put_session_revoke", lambda: [s.batch_put_session_start(["s6"], [10]), s.batch_put_session_revoke(["s6", "s9"]), s.is_exist("s6")]
    yield "batch_get_session_start", lambda: s.batch_get_session_start(["s1", "s2", "absent"])
    yield "batch_get_into_multi_buffer_ranges", lambda: s.batch_get_into_multi_buffer_ranges(
        ["s1", "s2"], [[b, b + 10], [b + 100]], [[10, 20], [30]], [[0, 100], [50]])
    yield "what the get ranges brought", lambda: [back.raw[:10] == data[:10], back.raw[10:30] == data[100:120], back.raw[100:130] == data[50:80]]
    yield "get ranges behind the end", lambda: s.batch_get_into_multi_buffer_ranges(["s1"], [[b]], [[500]], [[600]])
    yield "get ranges without a session", lambda: s.batch_get_into_multi_buffer_ranges(["k"], [[b]], [[5]], [[0]])
    yield "get ranges of other lengths", lambda: s.batch_get_into_multi_buffer_ranges(["s1", "s2"], [[b]], [[5]], [[0]])
    yield "batch_get_session_end", lambda: s.batch_get_session_end(["s1", "absent"])
    yield "get ranges after the session", lambda: s.batch_get_into_multi_buffer_ranges(["s1"], [[b]], [[5]], [[0]])
    yield "batch_put_from in a group", lambda: s.batch_put_from(["g1", "g2"], [a, a], [10, 10], config(group_ids=["g", "g"]))
    yield "batch_put_from in groups of other lengths", lambda: s.batch_put_from(["g3", "g4"], [a, a], [10, 10], config(group_ids=["g"]))
    yield "put in a group", lambda: s.put("g5", b"v", config(group_ids=["g"]))
    yield "put in two groups", lambda: s.put("g6", b"v", config(group_ids=["g", "h"]))
    yield "put_batch in a group", lambda: s.put_batch(["g7", "g8"], [b"v", b"w"], config(group_ids=["g", "g"]))
    yield "sessions in a group", lambda: [s.batch_put_session_start(["g9"], [5], config(group_ids=["g"])), s.batch_put_session_revoke(["g9"])]
    yield "allocate_and_mount_segment", lambda: {k: v for k, v in s.allocate_and_mount_segment(32 * MIB).items() if k != "segment_ids"}
    yield "allocate_and_mount_segment of little", lambda: s.allocate_and_mount_segment(1 * MIB)["allocated_size"]
    yield "allocate_and_mount_segment of nothing", lambda: s.allocate_and_mount_segment(0)
    yield "unmount_and_free_segment", lambda: s.unmount_and_free_segment(s.allocate_and_mount_segment(16 * MIB)["segment_ids"])
    yield "unmount_segment of none", lambda: s.unmount_segment([])
    yield "unmount_segment of one that is not there", lambda: s.unmount_segment(["7-7"])
    yield "mount_segment of a file that is not there", lambda: s.mount_segment("/nowhere", 16 * MIB)
    yield "unmount_local_disk_segment", s.unmount_local_disk_segment
    yield "create_copy_task of an absent key", lambda: s.create_copy_task("absent", ["nowhere"])
    yield "create_copy_task to nowhere", lambda: s.create_copy_task("s1", ["nowhere"])
    yield "create_copy_task to no segment", lambda: s.create_copy_task("s1", [])
    yield "create_move_task to where it is", lambda: s.create_move_task("s1", s.get_hostname(), s.get_hostname())
    yield "create_move_task from nowhere", lambda: s.create_move_task("s1", "nowhere", s.get_hostname())
    yield "create_move_task of an absent key", lambda: s.create_move_task("absent", "here", "nowhere")
    yield "query_task of one that is not there", lambda: s.query_task((7, 7))
    yield "batch_replica_clear of what is leased", lambda: s.batch_replica_clear(["s1", "absent"])
    yield "batch_replica_clear", lambda: [s.put("clear", b"v"), s.batch_replica_clear(["clear"]), s.is_exist("clear")]
    yield "init_all without a size", lambda: s.init_all("tcp", "")
    yield "memory of the host", lambda: (lambda m: (lambda p: [p != 0, m.free(p)])(m.alloc(4096)))(MooncakeHostMemAllocator())
    yield "bind_to_numa_node", lambda: bind_to_numa_node(0)
    yield "a buffer is a buffer", lambda: (lambda v: [v.nbytes, v.readonly, v.format])(memoryview(s.get_buffer("s1")))
    yield "the values of enumerations", lambda: [int(e) for e in (KVCACHE, GENERAL, COMPLETE, REPLICA_MOVE, SoftPinAction.ENABLE)]
    yield "is_exist", lambda: s.is_exist("k")
    yield "is_exist of an absent key", lambda: s.is_exist("absent")
    yield "batch_is_exist", lambda: s.batch_is_exist(["k", "absent", "b1"])
    yield "batch_is_exist of nothing", lambda: s.batch_is_exist([])
    yield "get_size", lambda: s.get_size("from")
    yield "get_size of an absent key", lambda: s.get_size("absent")
    yield "get_replica_desc", lambda: s.get_replica_desc("f1")
    yield "get_replica_desc of an absent key", lambda: s.get_replica_desc("absent")
    yield "batch_get_replica_desc", lambda: s.batch_get_replica_desc(["f1", "absent"])
    yield "remove of what is leased", lambda: s.remove("k")
    yield "remove of what is leased, by force", lambda: s.remove("k", True)
    yield "get of what was removed", lambda: s.get("k")
    yield "put again", lambda: s.put("k", b"again")
    yield "get of what was put again", lambda: s.get("k")
    yield "remove of an absent key", lambda: s.remove("absent")
    yield "batch_remove", lambda: s.batch_remove(["b2", "absent"], True)
    yield "put for the expression", lambda: [s.put(f"re/{i}", b"v") for i in range(3)]
    yield "remove_by_regex", lambda: s.remove_by_regex("^re/[01]$")
    yield "remove_by_regex of no expression", lambda: s.remove_by_regex("(")
    yield "query_task of none", lambda: s.query_task("00000000-0000-0000-0000-000000000000")
    yield "alloc_from_mem_pool", lambda: s.alloc_from_mem_pool(64)
    yield "get_offload_rpc_read_count", s.get_offload_rpc_read_count
    yield "batch_replica_clear of an absent key", lambda: s.batch_replica_clear(["absent"])
    yield "unregister_buffer", lambda: s.unregister_buffer(b)
    yield "remove_all, not of what is leased", lambda: s.remove_all() >= 0 and s.is_exist("m") == 1
    yield "remove_all by force", lambda: s.remove_all(True) > 5
    yield "is_exist after it", lambda: s.batch_is_exist(["m", "hard", "from"])
    yield "soft pin for too short", lambda: setattr(config(), "soft_pin_ttl_ms", -1)
    yield "soft pin that is none", lambda: s.put("soft", b"v", config(soft_pin_ttl_ms=5))
    yield from pool_calls(s)
    yield from config_calls()
    yield "put from and get into the same memory, in parts", lambda: [
        s.batch_put_from_multi_buffers(["o"], [[a, a + 10, a]], [[100, 100, 100]]), s.batch_get_into_multi_buffers(["o"], [[b, b + 50, b]], [[100, 100, 100]])]
    yield "a configuration, printed", lambda: [str(config()), str(config(
        replica_num=2, soft_pin_action=SoftPinAction.ENABLE, soft_pin_ttl_ms=5, preferred_segments=["a", "b"], preferred_segment="z", group_ids=["g"],
        with_hard_pin=True, data_type=KVCACHE))]
    yield "values of enumerations, printed", lambda: [str(KVCACHE), str(SoftPinAction.ENABLE), str(COMPLETE), REPLICA_MOVE.name]
    yield "batch_replica_clear in a segment", lambda: [s.put("there", b"v"), s.batch_replica_clear(["there"], "nowhere"), s.is_exist("there")]
    yield "a name for NVMe over fabrics", lambda: type(MooncakeDistributedNoFRegister()).__name__
    yield "close", s.close
    yield "close again", s.close
    yield "get after close", lambda: s.get("k")


def config_calls():
    """Settings, out of a file."""
    def read(**given):
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(given, file)
            file.flush()
            found = MooncakeConfig.from_file(file.name)
        return [found.global_segment_size, found.local_buffer_size, found.protocol, found.device_name, found.tenant_id, found.enable_ssd_offload,
                found.ssd_offload_path, found.enable_client_http_server, found.client_http_port]

    needed = {"local_hostname": "a", "metadata_server": "P2PHANDSHAKE", "master_server_address": "b:1"}
    yield "MooncakeConfig: defaults", lambda: read(**needed)
    yield "MooncakeConfig: values", lambda: read(**needed, global_segment_size="3 GB", local_buffer_size="512m", protocol="RDMA", device_name="mlx5_0",
                                                 enable_ssd_offload="yes", ssd_offload_path="/ssd", tenant_id="t", client_http_port="1")
    yield "MooncakeConfig: nothing of some", lambda: read(**needed, tenant_id=None, ssd_offload_path=None)
    yield "MooncakeConfig: none of what is needed", lambda: read(local_hostname="a")
    for name, value in (("local_hostname", ""), ("global_segment_size", -1), ("global_segment_size", "many"), ("protocol", " "),
                        ("enable_ssd_offload", "perhaps"), ("local_buffer_size", "")):
        yield f"MooncakeConfig: {name} {value!r}", lambda: read(**{**needed, name: value})
    yield "names of the package", lambda: sorted(mooncake.__all__)


def pool_calls(s):
    """Buffers that are used again."""
    pool = BufferPool(s, max_regions=1, block_on_exhaustion=False)
    lease = pool.acquire(1000)
    yield "BufferPool: a lease", lambda: [lease.size, lease.ptr > 0, lease.buffer.nbytes, lease.buffer.readonly, lease.buffer.format]
    yield "BufferPool: a lease's bytes", lambda: [lease.buffer.__setitem__(slice(0, 5), b"hello"), s.put_from("pooled", lease.ptr, 5), s.get("pooled")]
    yield "BufferPool: exhausted", lambda: pool.acquire(1)
    yield "BufferPool: timeout", lambda: pool.acquire(1, True, 0.01)
    yield "BufferPool: close with a lease", pool.close
    view = lease.buffer
    yield "BufferPool: release with a view", lease.release
    view.release()
    at = lease.ptr
    yield "BufferPool: release, twice", lambda: [lease.release(), lease.release(), lease.size]
    yield "BufferPool: address of what was released", lambda: lease.ptr
    yield "BufferPool: bytes of what was released", lambda: lease.buffer
    with pool.acquire(10) as again:
        yield "BufferPool: the same again", lambda: again.ptr == at
    yield "BufferPool: no bytes", lambda: pool.acquire(0).size
    yield "BufferPool: less than none", lambda: pool.acquire(-1)
    yield "BufferPool: close, twice", lambda: [pool.close(), pool.close(), pool.prewarm(10, 1)]
    yield "BufferPool: acquire after close", lambda: pool.acquire(1)
    yield "BufferPool: arguments", lambda: BufferPool(s, min_size_class=0)
    yield "BufferPool: alignment", lambda: BufferPool(s, alignment=3)
    yield "BufferPool: without a store", lambda: BufferPool(None)
    yield "BufferPool: prewarm", lambda: BufferPool(s, max_regions=2, prewarm_size=100, prewarm_count=5).acquire(100).size


def say(label, call):
    try:
        answer = plain(call())
    except Exception as e:  # noqa: BLE001
        answer = f"raises {type(e).__name__}"
    print("CALL " + json.dumps([label, answer]), flush=True)


if __name__ == "__main__":
    for name, one in calls(sys.argv[1]):
        say(name, one)
