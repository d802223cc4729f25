"""One of the engines' own classes at work on the store: run by store_engines.py with an interpreter that has the engine.

    calls.py sglang|lmcache HOST:PORT

Prints what the engine asked of `mooncake.store` and was answered, a JSON line for each call: addresses as the buffer that was registered
and the offset in it.
"""
import asyncio
import bisect
import ctypes
import inspect
import json
import os
import sys
import threading
import weakref

import torch

import mooncake.store

METHODS = ("setup", "register_buffer", "unregister_buffer", "put", "put_parts", "put_from", "get", "is_exist", "batch_is_exist", "batch_put_from",
           "batch_get_into", "batch_put_from_multi_buffers", "batch_get_into_multi_buffers", "batch_get_buffer", "batch_get_replica_desc",
           "batch_put_session_start", "batch_put_from_multi_buffer_ranges", "batch_put_session_end", "batch_get_session_start",
           "batch_get_into_multi_buffer_ranges", "batch_get_session_end", "remove", "remove_all", "close")
POINTERS = ("buffer_ptr", "buffer_ptrs", "all_buffer_ptrs")


class Recorder:
    """Stands between the engine and the store."""

    def __init__(self):
        self.stores, self.made = weakref.WeakKeyDictionary(), 0
        self.calls, self.buffers, self.lock, self.within = [], [], threading.Lock(), threading.local()
        for name in METHODS:
            self.watch(name)

    def watch(self, name):
        plain = getattr(mooncake.store.MooncakeDistributedStore, name)
        signature = inspect.signature(plain)

        def call(store, *args, **kwargs):
            if getattr(self.within, "a_call", False):  # of the store to itself
                return plain(store, *args, **kwargs)
            self.within.a_call = True
            try:
                answer = plain(store, *args, **kwargs)
            finally:
                self.within.a_call = False
            given = signature.bind(store, *args, **kwargs).arguments
            given.pop("self")
            with self.lock:
                if name == "register_buffer":
                    bisect.insort(self.buffers, (given["buffer_ptr"], given["size"]))
                which = self.stores.setdefault(store, self.made)
                self.made += which == self.made
                self.calls.append((name, given, answer, which))
            return answer

        setattr(mooncake.store.MooncakeDistributedStore, name, call)

    def place(self, pointer):
        if isinstance(pointer, (list, tuple)):
            return [self.place(p) for p in pointer]
        i = bisect.bisect_right(self.buffers, (pointer, 1 << 62)) - 1
        return [i, pointer - self.buffers[i][0]] if i >= 0 and pointer < sum(self.buffers[i]) else [-1, 0]

    def plain(self, value):
        if isinstance(value, mooncake.store.ReplicateConfig):
            new = mooncake.store.ReplicateConfig()
            return {n: getattr(value, n) for n in ("replica_num", "preferred_segment", "group_ids") if getattr(value, n) != getattr(new, n)}
        if isinstance(value, (list, tuple)):
            return [self.plain(v) for v in value]
        if isinstance(value, dict):
            return {str(k): self.plain(v) for k, v in value.items()}
        if isinstance(value, (bytes, bytearray, memoryview)):
            return {"bytes": len(memoryview(value).cast("B"))}
        if isinstance(value, mooncake.store.BufferHandle):
            return {"bytes": value.size()}
        return value if value is None or isinstance(value, (int, float, str, bool)) else type(value).__name__

    def dump(self):
        for name, given, answer, which in self.calls:
            shown = {n: self.place(v) if n in POINTERS else self.plain(v) for n, v in given.items()}
            print("CALL " + json.dumps([name, shown, self.plain(answer), which, [size for _, size in self.buffers]]), flush=True)


def sglang(at):
    """Its HiCache backend: pages of a host pool, written and read again, alone and in batches, with groups."""
    from sglang.srt.mem_cache.hicache_storage import HiCacheStorageConfig
    from sglang.srt.mem_cache.storage.mooncake_store.mooncake_store import MooncakeStore

    elements, pages = 256, 13

    class Pool:
        layout, page_size, entries_per_page = "page_first", 1, 2
        page_elements = elements

        def __init__(self):
            self.kv_buffer = torch.randn(4 * pages * elements, generator=torch.Generator().manual_seed(1))

        def get_page_buffer_meta(self, indices):
            starts = [(2 * int(i) + e) * elements for i in indices for e in range(2)]
            return [self.kv_buffer[s:].data_ptr() for s in starts], [4 * elements] * len(starts)

        def get_ksize_per_token(self):
            return 4 * elements

    for groups in (False, True):
        extra = {"master_server_address": at, "local_hostname": "127.0.0.1", "metadata_server": "P2PHANDSHAKE", "protocol": "tcp",
                 "global_segment_size": 32 << 20, "enable_group_semantics": groups}
        store = MooncakeStore(HiCacheStorageConfig(
            tp_rank=0, tp_size=1, pp_rank=0, pp_size=1, attn_cp_rank=0, attn_cp_size=1, is_mla_model=False, enable_storage_metrics=False,
            is_page_first_layout=True, model_name="a/model", extra_config=extra))
        pool = Pool()
        store.register_mem_pool_host(pool)
        keys = [f"page-{groups}-{i}" for i in range(pages)]
        assert all(store.batch_set_v1(keys, torch.arange(pages)))
        assert store.batch_exists(keys + ["absent"]) == pages
        assert all(store.batch_get_v1(keys, torch.arange(pages, 2 * pages)))
        half = 2 * pages * elements
        assert torch.equal(pool.kv_buffer[:half], pool.kv_buffer[half:]), "what came back is what was written"
        if not groups:
            one = f"single-{groups}"
            assert store.set(one, target_location=pool.kv_buffer.data_ptr(), target_sizes=4 * elements) and store.exists(one)
            assert store.get(one, target_location=pool.kv_buffer.data_ptr(), target_sizes=4 * elements)
        store.clear()
        if hasattr(store, "close"):
            store.close()
    return "sglang"


def lmcache(at):
    """Its remote connector, made by its own factory from a mooncakestore:// URL."""
    from lmcache.utils import CacheEngineKey
    from lmcache.v1.config import LMCacheEngineConfig
    from lmcache.v1.memory_management import MemoryFormat
    from lmcache.v1.metadata import LMCacheMetadata
    from lmcache.v1.storage_backend.connector import CreateConnector
    from lmcache.v1.storage_backend.local_cpu_backend import LocalCPUBackend

    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    run = lambda job: asyncio.run_coroutine_threadsafe(job, loop).result(30)  # noqa: E731
    for meta in (True, False):
        config = LMCacheEngineConfig.from_defaults(
            chunk_size=16, local_cpu=True, max_local_cpu_size=0.05, remote_url=f"mooncakestore://{at}/", remote_serde="naive",
            extra_config={"local_hostname": "127.0.0.1", "metadata_server": "P2PHANDSHAKE", "protocol": "tcp", "device_name": "",
                          "master_server_address": at, "global_segment_size": 32 << 20, "local_buffer_size": 16 << 20,
                          "save_chunk_meta": meta, "use_exists_sync": True})
        metadata = LMCacheMetadata(model_name="a/model", world_size=1, local_world_size=1, worker_id=0, local_worker_id=0,
                                   kv_dtype=torch.bfloat16, kv_shape=(4, 2, 16, 8, 16), chunk_size=16)
        backend = LocalCPUBackend(config, metadata, dst_device="cpu")
        connector = CreateConnector(f"mooncakestore://{at}/", loop, backend, config, metadata)
        keys = [CacheEngineKey("a/model", 1, 0, 1000 + i + 100 * meta, torch.bfloat16) for i in range(3)]
        values = []
        for i, key in enumerate(keys):
            chunk = backend.allocate(torch.Size([2, 4, 16, 128]), torch.bfloat16, MemoryFormat.KV_2LTD)
            chunk.raw_data.view(torch.uint8).copy_(torch.arange(chunk.raw_data.numel(), dtype=torch.int64).mul(i + 3).to(torch.uint8))
            values.append(chunk.raw_data.clone())
            assert not run(connector.exists(key))
            if i == 0:
                run(connector.put(key, chunk))
            else:
                run(connector.batched_put([key], [chunk]))
            chunk.ref_count_down()
        assert all(run(connector.exists(k)) for k in keys)
        back = run(connector.batched_get(keys))
        for was, now in zip(values, back):
            assert now is not None and torch.equal(was.view(torch.uint8), now.raw_data.view(torch.uint8)[:was.numel()])
        run(connector.close())
    loop.call_soon_threadsafe(loop.stop)
    thread.join()


if __name__ == "__main__":
    recorder = Recorder()
    globals()[sys.argv[1]](sys.argv[2])
    recorder.dump()
    sys.stdout.flush()
    os._exit(0)  # the engines' threads have no end
