#!/usr/bin/env python3
"""BufferPool of the Python package; `store_calls.py` has its answers beside the reference's."""
import ctypes
import os
import sys
import threading

sys.path.insert(0, os.path.dirname(__file__))
from cluster import Cluster, main  # noqa: E402
from store_world import Store, noise, package  # noqa: E402


def refused(call):
    try:
        call()
    except RuntimeError as e:
        return str(e)
    raise AssertionError("it was not refused")


def test_a_pool_s_buffers_are_used_again():
    from mooncake.buffer_pool import BufferPool

    with Cluster() as cluster:
        store = Store(cluster, segments=1).client()
        pool, data = BufferPool(store, max_bytes=256 << 10, alignment=4096), noise(100_000, 1)
        with pool.acquire(len(data)) as lease:
            at = lease.ptr
            assert at % 4096 == 0
            lease.buffer[:] = data
            assert store.put_from("k", at, len(data)) == 0 and store.get("k") == data
        with pool.buffer(70_000) as again:  # of the same class
            assert again.ptr == at and again.size == 70_000
            with pool.acquire(100_000) as second:  # and that is all there may be
                assert store.get_into("k", second.ptr, second.size) == len(data) and bytes(second.buffer) == data
                assert refused(lambda: pool.acquire(10, block=False)) == "buffer pool is exhausted"
                assert refused(lambda: pool.acquire(10, timeout=0.01)) == "timed out waiting for buffer"
                assert "active leases" in refused(pool.close)
            # A buffer of another class, which nobody has, makes room.
            assert pool.acquire(10).size == 10
        pool.close()
        store.close()


def test_what_can_never_be_had_is_refused_at_once():
    from mooncaf.store import BufferPool

    with Cluster() as cluster:
        store = Store(cluster, segments=1).client()  # with a local buffer of 16 MiB
        pool = BufferPool(store, 1 << 20, min_size_class=4096, alignment=4096)
        with pool.acquire(1 << 20), pool.acquire(2 << 20) as more:  # more than it keeps, for who asks alone
            assert more.size == 2 << 20
            more.buffer[-1] = 1
        assert pool.acquire(10, block=False).size == 10
        for never in (17 << 20, 1 << 40, (1 << 64) - 1):
            assert "never" in refused(lambda: pool.acquire(never)), never
        for free in (BufferPool(store), BufferPool(store, max_regions=0)):
            assert refused(lambda: free.acquire((1 << 64) - 1))
        assert refused(lambda: BufferPool(store, max_regions=0).acquire(1))
        for wrong in (-1, 1 << 64, "many", None):
            try:
                pool.acquire(wrong)
                raise AssertionError(f"{wrong} is no size")
            except TypeError:
                pass
        store.close()


def test_who_waits_for_a_buffer_gets_the_next_that_is_free():
    from mooncaf.store import BufferPool

    with Cluster() as cluster:
        store = Store(cluster, segments=1).client()
        pool, wrong = BufferPool(store, max_regions=2), []

        def work(number):
            for _ in range(50):
                with pool.acquire(64, timeout=30) as lease:
                    lease.buffer[:8] = number.to_bytes(8, "little")
                    if ctypes.string_at(lease.ptr, 8) != number.to_bytes(8, "little"):
                        wrong.append(number)

        workers = [threading.Thread(target=work, args=(i,)) for i in range(8)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(60)
        assert not wrong and not any(w.is_alive() for w in workers)
        # What is left to the collector is no loss, but a view of it keeps its bytes from the next.
        lease = pool.acquire(64)
        view = lease.buffer
        view[:3] = b"old"
        del lease
        with pool.acquire(64) as other:
            other.buffer[:3] = b"new"
            assert bytes(view[:3]) == b"old"
        pool.close()
        assert refused(lambda: pool.acquire(1)) == "buffer pool is closed"
        store.close()


if __name__ == "__main__":
    package()
    main([value for name, value in sorted(globals().items()) if name.startswith("test_")])
