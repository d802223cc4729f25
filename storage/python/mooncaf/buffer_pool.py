"""Memory that is made once and used again, for calls that take addresses (`put_from`, `get_into`, …)."""

import ctypes
import mmap
import os
import sys
import threading
import time

__all__ = ["BufferLease", "BufferPool", "RegisteredBufferLease", "RegisteredBufferPool"]


_MEMORY = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")  # of this machine


class _Region:
    """Anonymous memory of one size class, which begins at a multiple of the pool's alignment."""

    def __init__(self, size, alignment):
        self.size = size
        self.memory = mmap.mmap(-1, size + alignment)
        base = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        self.offset = -base % alignment
        self.ptr = base + self.offset


class BufferLease:
    """A buffer of a pool, until `release`, the end of its `with`, or its own."""

    def __init__(self, pool, region, size):
        self._pool, self._region, self._size = pool, region, size
        self._array = (ctypes.c_char * size).from_buffer(region.memory, region.offset)

    def _open(self):
        if self._region is None:
            raise RuntimeError("buffer lease is closed")
        return self._region

    @property
    def ptr(self):
        return self._open().ptr

    @property
    def size(self):
        return self._size

    @property
    def buffer(self):
        """The bytes, to read and write. The lease cannot be released while this view is in use."""
        if self._region is None:
            raise BufferError("buffer lease is closed")
        return memoryview(self._array).cast("B")

    def release(self):
        """Gives the buffer back; again: nothing. RuntimeError while a view of it is in use."""
        if self._region is None:
            return
        if sys.getrefcount(self._array) > 2:  # a view holds it, too
            raise RuntimeError("cannot release buffer while exported views exist")
        region, self._region, self._array = self._region, None, None
        self._pool._take_back(region)

    def __enter__(self):
        self._open()
        return self

    def __exit__(self, *_):
        self.release()

    def __del__(self):
        if getattr(self, "_region", None) is None:
            return
        try:
            self.release()
        except RuntimeError:
            self._pool._lose(self._region)  # whoever has the view keeps the memory


class BufferPool:
    """Buffers for one store. Sizes are rounded up to powers of two from `min_size_class` on, above `max_size_class` to whole
    pages, and a buffer that is given back is for the next of its class.

    `max_bytes` and `max_regions` bound what there is at once; 0 and None: nothing does. At the bound `acquire` waits, for
    `timeout` seconds at most, or raises RuntimeError at once where it shall not `block`. What is larger than `max_bytes`, but not than the
    store's local buffer, is made for who asks, and gone when he gives it back; what can never be had is a RuntimeError. Thread-safe.
    """

    def __init__(self, store, max_bytes=0, min_size_class=64 << 10, max_size_class=None, alignment=8 << 20, block_on_exhaustion=True,
                 default_timeout=None, max_regions=None, prewarm_size=None, prewarm_count=0):
        if store is None or not store.get_hostname():
            raise RuntimeError("MooncakeDistributedStore is not initialized")
        if min_size_class <= 0 or alignment <= 0:
            raise RuntimeError("min_size_class and alignment must be positive")
        if alignment & (alignment - 1) or alignment < ctypes.sizeof(ctypes.c_void_p):
            raise RuntimeError("alignment must be a power of two and at least sizeof(void*)")
        self._store, self._max_bytes, self._max_regions = store, max_bytes, max_regions
        self._classes, self._alignment = (min_size_class, max_size_class), alignment
        self._blocks, self._timeout = block_on_exhaustion, default_timeout
        self._changed = threading.Condition(threading.RLock())  # a lease may end in the middle of anything
        self._free, self._regions, self._bytes, self._leased, self._closed = {}, 0, 0, 0, False
        if prewarm_size is not None:
            self.prewarm(prewarm_size, prewarm_count)

    def acquire(self, size, block=None, timeout=None):
        if not isinstance(size, int) or not 0 <= size < 1 << 64:
            raise TypeError("size is a number of bytes")
        wanted = self._class_of(size)
        alone = 0 < self._max_bytes < wanted
        most = max(self._max_bytes, self._store._staging) if alone else _MEMORY
        if wanted > min(most, _MEMORY) or self._max_regions is not None and self._max_regions < 1:
            raise RuntimeError("the pool can never give so large a buffer")
        block = self._blocks if block is None else block
        timeout = self._timeout if timeout is None else timeout
        end = None if timeout is None else time.monotonic() + timeout
        with self._changed:
            while True:
                if self._closed:
                    raise RuntimeError("buffer pool is closed")
                region = self._make(wanted, alone) if alone else self._get(wanted)
                if region is not None:
                    self._leased += 1
                    return BufferLease(self, region, size)
                if not block:
                    raise RuntimeError("buffer pool is exhausted")
                left = None if end is None else end - time.monotonic()
                if left is not None and left <= 0:
                    raise RuntimeError("timed out waiting for buffer")
                self._changed.wait(left)

    def buffer(self, size, block=None, timeout=None):
        return self.acquire(size, block, timeout)

    def prewarm(self, size, count):
        """Makes buffers ahead of need, so many as the bounds allow."""
        with self._changed:
            if self._closed:
                return
            made = [r for r in (self._make(self._class_of(size)) for _ in range(count)) if r is not None]
            for region in made:
                self._free.setdefault(region.size, []).append(region)

    def close(self):
        with self._changed:
            if self._leased:
                raise RuntimeError("cannot close buffer pool with active leases")
            self._closed = True
            for region in (r for regions in self._free.values() for r in regions):
                self._store.unregister_buffer(region.ptr)
            self._free.clear()
            self._changed.notify_all()

    def _class_of(self, size):
        least, most = self._classes
        size = max(size, 1)
        if most is not None and size > most:
            return -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
        return max(least, 1 << (size - 1).bit_length())

    def _get(self, size):
        free = self._free.get(size)
        if free:
            return free.pop()
        while (region := self._make(size)) is None:
            other = next((f for f in self._free.values() if f), None)
            if other is None:
                return None
            self._forget(other.pop())  # one of another class makes room
        return region

    def _make(self, size, beyond=False):
        full = 0 < self._max_bytes < self._bytes + size and not beyond
        if full or self._max_regions is not None and self._regions >= self._max_regions:
            return None
        try:
            region = _Region(size, self._alignment)
        except (OSError, ValueError, OverflowError) as why:
            raise RuntimeError(f"there is no memory for a buffer of {size} bytes: {why}") from None
        self._store.register_buffer(region.ptr, size)
        self._regions += 1
        self._bytes += size
        return region

    def _forget(self, region):
        self._store.unregister_buffer(region.ptr)
        self._regions -= 1
        self._bytes -= region.size

    def _take_back(self, region):
        with self._changed:
            self._leased -= 1
            if 0 < self._max_bytes < region.size:
                self._forget(region)
            else:
                self._free.setdefault(region.size, []).append(region)
            self._changed.notify_all()

    def _lose(self, region):
        with self._changed:
            self._leased -= 1
            self._forget(region)
            self._changed.notify_all()


RegisteredBufferPool, RegisteredBufferLease = BufferPool, BufferLease
