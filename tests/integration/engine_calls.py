"""Calls of a transfer engine, and what each answers, a line of JSON each: of whichever `mooncake.engine` is on the path.

Two engines of one process talk to each other. Addresses and ports are not told, but what they are good for.
"""
import ctypes
import json
import time

import mooncake.engine
from mooncake.engine import TransferEngine, TransferNotify, TransferOpcode


def tell(what, answer):
    print("CALL " + json.dumps([what, answer]), flush=True)


def until(check, wanted, seconds=10):
    end = time.monotonic() + seconds
    while (got := check()) not in wanted and time.monotonic() < end:
        time.sleep(0.001)
    return got


size = 1 << 20
one, two = TransferEngine(), TransferEngine()
tell("initialize", [e.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") for e in (one, two)])
there = f"127.0.0.1:{two.get_rpc_port()}"
tell("get_rpc_port in range", [15000 <= e.get_rpc_port() <= 17000 for e in (one, two)])
source, sink, other = (ctypes.create_string_buffer(size) for _ in range(3))
a, b, c = (ctypes.addressof(x) for x in (source, sink, other))
source.raw = bytes(i * 7 % 251 for i in range(size))
tell("register_memory", [one.register_memory(a, size), two.register_memory(b, size), two.register_memory(b, size) != 0])
tell("batch_register_memory", one.batch_register_memory([c], [size]))
tell("transfer_sync_write", [one.transfer_sync_write(there, a, b, size), sink.raw == source.raw])
tell("transfer_sync_read", [one.transfer_sync_read(there, c, b + 100, 1000), other.raw[:1000] == source.raw[100:1100]])
tell("transfer_sync", [one.transfer_sync(there, a + 5, b, 10, TransferOpcode.Write), sink.raw[:10] == source.raw[5:15]])
tell("batch_transfer_sync_write", [one.batch_transfer_sync_write(there, [a, a + 500_000], [b + 500_000, b], [1000, 2000]),
                                   sink.raw[500_000:501_000] == source.raw[:1000], sink.raw[:2000] == source.raw[500_000:502_000]])
tell("batch_transfer_sync_read", [one.batch_transfer_sync_read(there, [c, c + 10], [b, b + 500_000], [10, 20]),
                                  other.raw[:30] == source.raw[500_000:500_010] + source.raw[:20]])
tell("batch_transfer_sync", one.batch_transfer_sync(there, [a], [b], [10], TransferOpcode.Read))
batch = one.batch_transfer_async_write(there, [a], [b], [size])
tell("batch_transfer_async_write", [batch > 0, one.get_batch_transfer_status([batch])])
batch = one.batch_transfer_async_read(there, [c], [b], [size])
tell("batch_transfer_async_read", [batch > 0, one.get_batch_transfer_status([batch]), other.raw == sink.raw])
tell("get_batch_transfer_status of none", one.get_batch_transfer_status([]))
number = one.transfer_submit_write(there, a, b, 1000)
tell("transfer_submit_write", [number > 0, until(lambda: one.transfer_check_status(number), (1, -1))])
tell("get_first_buffer_address", one.get_first_buffer_address(there) == b)
managed = one.allocate_managed_buffer(100_000)
tell("managed buffer", [managed > 0, one.write_bytes_to_buffer(managed, "words", 5), one.read_bytes_from_buffer(managed, 5).decode(),
                        one.transfer_sync_write(there, managed, b, 5), sink.raw[:5].decode(), one.free_managed_buffer(managed, 100_000)])
tell("send_probe", [one.send_probe(there), one.send_probe("127.0.0.1:1") != 0])
tell("an address that the peer did not register", one.transfer_sync_write(there, a, b + size, 10) != 0)
tell("more than it registered", one.transfer_sync_write(there, a, b + size - 5, 10) != 0)
tell("beyond what is registered here", [one.transfer_sync_write(there, ctypes.addressof(mine := ctypes.create_string_buffer(b"mine")), b, 4),
                                       sink.raw[:4].decode()])
word = TransferNotify()
word.name, word.msg = "name", "message"
tell("notify", [one.transfer_sync(there, a, b, 10, TransferOpcode.Write, word), [(w.name, w.msg) for w in two.get_notifies()], two.get_notifies()])
tell("register what overlaps", [one.register_memory(a + 10, 10), one.register_memory(c, 0), one.unregister_memory(a + 10), one.unregister_memory(4)])
tell("no bytes", [one.transfer_sync_write(there, a, b, 0), one.read_bytes_from_buffer(a, 0).decode(), one.allocate_managed_buffer(0) > 0])
tell("codes of failures", [one.transfer_sync_write(there, a, b + size, 10), one.batch_transfer_sync_write(there, [a, a], [b], [10, 10]),
                           one.batch_transfer_async_write("127.0.0.1:1", [a], [b], [10]), one.transfer_submit_write("127.0.0.1:1", a, b, 10),
                           one.get_first_buffer_address("127.0.0.1:1"), one.free_managed_buffer(a, 10)])
tell("send_probe to nobody, and to no name", [one.send_probe("127.0.0.1:1"), one.send_probe("nonsense")])
tell("register no address", one.register_memory(0, 10))
tell("a peer that is not there", one.transfer_sync_write("127.0.0.1:1", a, b, 10) != 0)
tell("lists of different lengths", one.batch_transfer_sync_write(there, [a, a], [b], [10, 10]) != 0)
tell("unregister_memory", [one.unregister_memory(a), one.unregister_memory(a) != 0, one.batch_unregister_memory([c])])
tell("unregistered by the peer", [two.unregister_memory(b), one.register_memory(a, size)])
tell("get_local_topology is JSON", sorted(json.loads(one.get_local_topology()))[:1])
tell("get_notifies", one.get_notifies())
tell("opcodes", [int(TransferOpcode.Read), int(TransferOpcode.Write)])
tell("initialize with a name that has no address", TransferEngine().initialize("no.such.name.invalid", "P2PHANDSHAKE", "tcp", ""))
tell("attributes", [getattr(mooncake.engine, "SUPPORT_" + n) for n in ("EFA", "HIP", "MNNVL", "MUSA", "INTRA_NVLINK", "CUDA")])
tell("initialize again", one.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", ""))
