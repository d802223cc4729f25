#!/usr/bin/env python3
"""The Python package in wrong hands: whatever is passed to whichever method, on a store that is open, closed, never opened or another process's, the
answer is a code or an exception, the process goes on, and so does the store."""
import os
import sys

sys.path.insert(0, os.path.dirname(__file__))
from cluster import Cluster, main, wait_until  # noqa: E402
from store_world import Store, noise, package  # noqa: E402

# What is not called at random: it connects elsewhere, ends the store, takes memory of any size by intent, or writes files.
APART = ("setup", "setup_dummy", "init_all", "close", "allocate_and_mount_segment", "save_tensor_to_safetensor")

ABUSE = """
import inspect, random
APART = %r
dice = random.Random(%d)
room = ctypes.create_string_buffer(1 << 16)
at = ctypes.addressof(room)
odd = [None, True, 0, 1, -1, 2**63, 2**64, 2**70, 1.5, float('nan'), '', 'k', 'k' * 65536, 'k' * 65537, chr(0), chr(0xdc80), chr(0xd800), b'', b'\\xff\\0', b'v' * 1000,
       [], [[]], [None], ['k'], ['k', 'k'], [b'k', 5], [at], [[at]], [at, 1], [-1], [2**64], [[10]], [[10], [-1]], [10], [1 << 45], {}, object(), (), (1, 2), (2**64, 1),
       memoryview(b'abcd')[::2], bytearray(b'abc'), ReplicateConfig(), store, len, at, at + 1, 1, 4096, 1 << 47, (1 << 64) - 4096]
fit = {'key': ['k', b'k', 'l', ''], 'keys': [['k'], ['k', 'l'], []], 'value': [b'v', bytearray(b'w')], 'values': [[b'v'], [b'v', b'w']], 'buffer_ptr': [at], 'size': [10, 1 << 16],
       'buffer_ptrs': [[at], [at, at + 10]], 'sizes': [[10], [10, 20]], 'all_buffer_ptrs': [[[at, at]], [[at], [at + 5]]], 'all_sizes': [[[10, 10]], [[10], [10]]],
       'all_src_offsets': [[[0, 5]], [[0], [0]]], 'all_dst_offsets': [[[0, 10]], [[0], [0]]], 'config': [None, ReplicateConfig()]}

def given(parameter):
    if parameter.name in fit and dice.random() < 0.6:
        return dice.choice(fit[parameter.name])
    if parameter.name in ('size', 'sizes', 'all_sizes') or 'offset' in parameter.name:  # not a size that memory behind the buffer has, which would be written
        return dice.choice([o for o in odd if o is not at and not isinstance(o, int) or o in (0, -1, 10, 1 << 47, 2**63, 2**64, 2**70)])
    return dice.choice(odd)

def abuse(one, times):
    outcomes = {}
    methods = [(n, m) for n, m in inspect.getmembers(one, inspect.ismethod) if not n.startswith('_') and n not in APART]
    for _ in range(times):
        name, method = dice.choice(methods)
        parameters = [p for p in inspect.signature(method).parameters.values() if p.default is p.empty or dice.random() < 0.3]
        positional = [given(p) for p in parameters if p.kind not in (p.KEYWORD_ONLY, p.VAR_KEYWORD)]
        if dice.random() < 0.05:
            positional = positional[1:] + [None] * dice.randrange(3)
        try:
            method(*positional)
            outcomes[name] = outcomes.get(name, 0) + 1
        except (TypeError, ValueError, OverflowError, AttributeError, KeyError, IndexError, BufferError, MemoryError, ImportError, OSError):
            outcomes[name] = outcomes.get(name, 0)
    return outcomes

def all_there(outcomes):
    never = [n for n, k in outcomes.items() if k == 0]
    assert len(outcomes) > 60 and len(never) < 30, (len(outcomes), never)

all_there(abuse(store, 1500))
expect(store.health_check(), 0)
expect(store.remove_all(True) >= 0, True)
expect([store.put('after', b'it'), store.get('after')], [0, b'it'])
for wrong in (0, -1, None, 'x', 2**70, 1.5):
    try:
        expect(store.allocate_and_mount_segment(wrong)['ret'] != 0, True)
    except (TypeError, ValueError, OverflowError):
        pass
other = MooncakeDistributedStore()
for wrong in ((), (None,), ({},), ({'local_hostname': 5, 'metadata_server': 5, 'master_server_addr': 5},), ('a', 'b', -1, 0, 'tcp', '', '127.0.0.1:1'),
              ('a', 'b', 'many', 0, 'tcp', '', '127.0.0.1:1'), ('a', 'b', 0, 0, 'tcp', '', '127.0.0.1:99999'), ('a', 'b', 0, 0, 'tcp', '', ':'),
              ('a', 'b', 2**70, 0, 'tcp', '', '127.0.0.1:1'), (b'a', None, 0, 0, None, None, None)):
    try:
        expect(other.setup(*wrong) != 0, True)
    except (TypeError, ValueError, OverflowError):
        pass
abuse(other, 300)
expect([other.close(), other.close()], [0, 0])
pid = os.fork()
if pid == 0:
    abuse(store, 300)
    expect([store.put('child', b'v'), store.close(), store.close()], [-600, 0, 0])
    os._exit(0)
expect(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 0)
expect([store.get('after'), store.is_exist('child')], [b'it', 0])
expect([store.close(), store.close()], [0, 0])
abuse(store, 300)
print('survived')
"""


def test_whatever_is_passed_is_answered():
    with Cluster() as cluster:
        world = Store(cluster, segments=1)
        kept = noise(50_000, 1)
        world.run("put", "kept", "--hard-pin", stdin=kept)
        for seed in (1, 2):
            assert world.python(ABUSE % (APART, seed)).split() == ["survived"]
        wait_until("nothing is reserved", lambda: world.json("stat")["reserved"] == 0)
        ours = world.client()
        assert ours.put("again", kept) == 0 and ours.get("again") == kept and ours.remove_all(True) >= 1
        ours.close()


def test_memory_that_overlaps_is_read_and_written_part_by_part():
    import ctypes

    with Cluster() as cluster:
        world = Store(cluster, segments=1)
        store, data = world.client(), noise(3000, 2)
        room = ctypes.create_string_buffer(data, 4000)
        at = ctypes.addressof(room)
        assert store.batch_put_from_multi_buffers(["k"], [[at, at + 500, at]], [[1000, 1000, 1000]]) == [0]
        assert store.get("k") == data[:1000] + data[500:1500] + data[:1000]
        assert store.batch_get_into_multi_buffers(["k"], [[at, at, at + 1000]], [[1000, 1000, 1000]]) == [3000]
        assert room.raw[1000:2000] == data[:1000], "the last part lies by itself"
        assert store.batch_get_into(["k", "k"], [at, at + 500], [3000, 3000]) == [3000, 3000]
        assert room.raw[500:3500] == store.get("k"), "the last that was asked for"
        assert store.register_buffer(at, 4000) == 0 and store.register_buffer(at + 100, 4000 - 100) == 0
        assert store.unregister_buffer(at) == 0 and store.put_from("unregistered", at, 4000) == 0, "nothing has to be registered"
        store.close()


def test_memory_that_may_not_be_written_is_refused():
    import ctypes
    import mmap

    with Cluster() as cluster:
        world = Store(cluster, segments=1)
        store, data = world.client(), noise(5000, 3)
        assert store.put("k", data) == 0 and store.batch_get_session_start(["k"]) == [0]
        libc = ctypes.CDLL(None)
        libc.mmap.restype = ctypes.c_void_p
        at = libc.mmap(None, ctypes.c_size_t(8192), mmap.PROT_READ, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, ctypes.c_long(0))
        assert store.get_into("k", at, 8192) == -600 and store.batch_get_into(["k"], [at], [5000]) == [-600]
        assert store.get_into_ranges([at], [["k"]], [[[0]]], [[[0]]], [[[10]]]) == [[[-600]]]
        assert store.batch_get_into_multi_buffer_ranges(["k"], [[at]], [[10]], [[0]]) == [-600]
        assert store.put_from("zeros", at, 8192) == 0 and store.get("zeros") == bytes(8192), "it may be read"
        for wrong in (-1, 2**64, 1.5, "at"):
            try:
                store.get_into("k", wrong, 10)
                raise AssertionError(f"{wrong} is no address")
            except TypeError:
                pass
        store.close()


def test_the_interpreter_ends_while_threads_are_in_calls():
    """CPython ends such threads when they come back, and that must not end the process."""
    with Cluster() as cluster:
        world = Store(cluster, segments=1, size="256MiB")
        for _ in range(3):
            child = world.python("""
import threading, time
begun = threading.Barrier(5)
def work(n):
    begun.wait()
    while True:
        store.put(f'k{n}', bytes(2_000_000)); store.get(f'k{n}'); store.remove(f'k{n}', True)
for n in range(4):
    threading.Thread(target=work, args=(n,), daemon=True).start()
begun.wait()
while store.is_exist('k3') != 1:
    pass
""", wait=False)
            said = child.communicate(timeout=60)
            assert child.returncode == 0, (child.returncode, said)
        wait_until("nothing is reserved", lambda: world.json("stat")["reserved"] == 0)


if __name__ == "__main__":
    package()
    main([value for name, value in sorted(globals().items()) if name.startswith("test_")])
