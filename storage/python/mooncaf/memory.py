"""Memory of this process, for engines that ask the store's package for it."""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import threading

__all__ = ["MooncakeDistributedNoFRegister", "MooncakeHostMemAllocator", "bind_to_numa_node", "get_alloc_func_addr", "get_free_func_addr"]


class MooncakeHostMemAllocator:
    """Page-aligned memory for an engine's host pool. The store copies from and to any address, so it is ordinary memory."""

    def __init__(self) -> None:
        self._regions: dict[int, mmap.mmap] = {}
        self._lock = threading.Lock()

    def alloc(self, size: int) -> int:
        """Returns the address of `size` zero bytes; 0 where there is no memory, or for no bytes."""
        if not isinstance(size, int) or size <= 0:
            return 0
        try:
            region = mmap.mmap(-1, size)
        except (OSError, ValueError, OverflowError):
            return 0
        address = ctypes.addressof(ctypes.c_char.from_buffer(region))
        with self._lock:
            self._regions[address] = region
        return address

    def free(self, ptr: int) -> int:
        """Returns 0, or -600 for an address that `alloc` did not return. The memory goes when nothing in Python refers to it."""
        with self._lock:
            return 0 if self._regions.pop(ptr, None) is not None else -600


def get_alloc_func_addr() -> int:
    """The address of a C function `void *(size_t)` that gives memory which begins at a page, or NULL."""
    return _function("valloc")


def get_free_func_addr() -> int:
    """The address of a C function `void (void *)` that takes it back."""
    return _function("free")


def _function(name: str) -> int:
    return ctypes.cast(getattr(ctypes.CDLL(None), name), ctypes.c_void_p).value or 0


class MooncakeDistributedNoFRegister:
    """There are no segments of NVMe over fabrics: both answer -1012."""

    def real_register(self, *about: object) -> int:
        return -1012

    def real_unregister_by_endpoint(self, *about: object) -> int:
        return -1012


def bind_to_numa_node(node: int) -> None:
    """Lets this thread run on the node's processors and take its memory from there first; nothing where there is no such
    node."""
    try:
        with open(f"/sys/devices/system/node/node{int(node)}/cpulist") as f:
            spans = [part.split("-") for part in f.read().strip().split(",") if part]
    except OSError:
        return
    processors = {p for s in spans for p in range(int(s[0]), int(s[-1]) + 1)} & os.sched_getaffinity(0)
    if processors:
        os.sched_setaffinity(0, processors)
    set_mempolicy, preferred = {"x86_64": 238, "aarch64": 237}.get(platform.machine()), 1
    if set_mempolicy is not None and node < 1024:
        mask = (ctypes.c_ulong * 16)()
        mask[node // 64] = 1 << node % 64
        ctypes.CDLL(None).syscall(set_mempolicy, preferred, mask, 16 * 64)
