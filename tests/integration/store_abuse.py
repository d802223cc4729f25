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
        assert [store.register_buffer(at, 4000), store.register_buffer(at + 100, 4000 - 100)] == [0, -600], "they overlap"
        assert [store.unregister_buffer(a) for a in (at + 100, at, at)] == [-600, 0, -600]
        assert store.put_from("unregistered", at, 4000) == 0, "nothing has to be registered"
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
        assert store.register_buffer(at, 8192) == 0 and store.get_into_ranges([at], [["k"]], [[[0]]], [[[0]]], [[[10]]]) == [[[-600]]]
        assert store.batch_get_into_multi_buffer_ranges(["k"], [[at]], [[10]], [[0]]) == [-600]
        assert store.put_from("zeros", at, 8192) == 0 and store.get("zeros") == bytes(8192), "it may be read"
        for wrong in (-1, 2**64, 1.5, "at"):
            try:
                store.get_into("k", wrong, 10)
                raise AssertionError(f"{wrong} is no address")
            except TypeError:
                pass
        store.close()


def test_nothing_is_written_past_the_end_of_what_is_registered():
    """Every call that writes to an address, with destinations at random in and around buffers: what it says it wrote is there, and no byte else changes."""
    import ctypes
    import random

    with Cluster() as cluster:
        world = Store(cluster, segments=2)
        store, data = world.client(), bytes(i % 255 + 1 for i in range(600))
        keys = {"short": data[:7], "k": data[:64], "long": data}
        assert all(store.put(key, value) == 0 for key, value in keys.items()) and store.batch_get_session_start(list(keys)) == [0] * 3
        room = ctypes.create_string_buffer(4096)
        at, registered = ctypes.addressof(room), [(100, 32), (132, 200), (1000, 64), (2000, 600)]  # the second begins where the first ends
        assert [store.register_buffer(at + begin, size) for begin, size in registered] == [0] * 4
        inside = lambda begin, size: any(b <= begin and begin + size <= b + s for b, s in registered)  # noqa: E731
        touches = lambda begin, size: any(begin < b + s and b < begin + size for b, s in registered)  # noqa: E731
        seed = random.randrange(1 << 32)
        print(f"seed {seed}", flush=True)
        dice, good = random.Random(seed), 0
        for _ in range(3000):
            key = dice.choice(list(keys))
            begin = max(0, dice.choice([b + dice.choice([0, s, s // 2]) for b, s in registered] + [3000]) + dice.randrange(-40, 40))
            source = dice.choice([0, dice.randrange(len(keys[key]))])
            size = min(dice.choice([1, 4, 31, 32, 33, len(keys[key])]), len(keys[key]) - source)
            ctypes.memset(at, 0, 4096)
            whole, strict, to, wrote = len(keys[key]), False, begin, size
            form = dice.randrange(5)
            if form == 0:
                said, source, wrote = store.get_into(key, at + begin, dice.choice([whole, whole + 50])), 0, whole
            elif form == 1:
                said, source, wrote = store.batch_get_into([key], [at + begin], [whole])[0], 0, whole
            elif form == 2:
                half = whole // 2
                said, source, wrote = store.batch_get_into_multi_buffers([key], [[at + begin, at + begin + half]], [[half, whole - half]])[0], 0, whole
            elif form == 3:
                said = store.batch_get_into_multi_buffer_ranges([key], [[at + begin]], [[size]], [[source]])[0]
            else:
                base = dice.choice(registered)[0]
                to, strict = min(base + abs(begin - base), 4096 - size), True
                said = store.get_into_ranges([at + base], [[key]], [[[to - base]]], [[[source]]], [[[size]]])[0][0][0]
            pieces = [(to, wrote // 2), (to + wrote // 2, wrote - wrote // 2)] if form == 2 else [(to, wrote)]
            allowed = all(inside(*piece) if strict else inside(*piece) or not touches(*piece) for piece in pieces)
            assert said == (wrote if allowed else -600), (form, key, to, wrote, said)
            expected = bytearray(4096)
            expected[to:to + wrote] = keys[key][source:source + wrote] if allowed else bytes(wrote)
            assert room.raw == bytes(expected), (form, key, to, wrote)
            good += allowed
        assert 500 < good < 2700, good
        for begin, size in registered:
            assert store.unregister_buffer(at + begin) == 0
        assert store.get_into("long", at + 90, 600) == 600 and room.raw[90:690] == data, "what is registered no more binds nobody"
        # Lists of different lengths: an error for each range that there would be, as Mooncake Store has them.
        assert store.register_buffer(at, 4096) == 0
        one = [[[0]]]
        for args, said in (((["k", "k"], [[0], [0]], [[0], [0]], [[4], []]), [[4], [-600]]), ((["k", "k"], [[0], []], [[0], []], [[4], []]), [[4], []]),
                           ((["k"], [[0, 1]], [[0]], [[4]]), [[-600, -600]]), ((["k"], [[0]], [[0]], [[4, 4, 4]]), [[-600]]), ((["k"], [], [[0]], [[4]]), [[-600]]),
                           ((["k", "absent"], [[0], [0, 1]], [[0], [0, 0]], [[4], [4, 4]]), [[4], [-704, -704]])):
            assert store.get_into_ranges([at], *([part] for part in args)) == [said], (args, said)
        assert store.get_into_ranges([at, at], [["k"]], one, one, [[[4]]]) == [[[-600]], [[-600]]] and store.get_into_ranges([], [], [], [], []) == []
        assert store.batch_get_tensor_into(["a", "b"], [at], [4]) == store.batch_get_tensor_with_tp_into(["a", "b"], [at], [4]) == [-600, -600]
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
