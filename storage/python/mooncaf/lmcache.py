"""LMCache's chunks in the store: a remote backend that LMCache loads as a plugin.

    remote_storage_plugins: ["mooncaf"]
    remote_serde: "naive"
    extra_config:
      remote_storage_plugin.mooncaf.module_path: mooncaf.lmcache
      remote_storage_plugin.mooncaf.class_name: MooncafAdapter
      remote_storage_plugin.mooncaf.directory: 127.0.0.1:7460

is its configuration file; `LMCACHE_CONFIG_FILE=… vllm serve MODEL --kv-transfer-config '{"kv_connector": "LMCacheConnectorV1", "kv_role":
"kv_both"}'` uses it. An object is one chunk after LMCache's own description of it, written from and read into LMCache's memory.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import ctypes

from lmcache.v1.protocol import RemoteMetadata
from lmcache.v1.storage_backend.connector import ConnectorAdapter
from lmcache.v1.storage_backend.connector.base_connector import RemoteConnector

from .patient import PatientStore

__all__ = ["MooncafAdapter", "MooncafConnector"]

_OPTIONS = "remote_storage_plugin.mooncaf."


class MooncafAdapter(ConnectorAdapter):
    """For `plugin://mooncaf`, which LMCache makes of the plugin's name, and `mooncaf://HOST:PORT`."""

    def __init__(self):
        super().__init__("mooncaf://")

    def can_parse(self, url):
        return url.startswith(self.schema) or url == "plugin://mooncaf"

    def create_connector(self, context):
        return MooncafConnector(context)


class MooncafConnector(RemoteConnector):
    """Of `extra_config` it reads, after `remote_storage_plugin.mooncaf.`: `directory` (HOST:PORT), `lend` (bytes that this process gives to the
    store), `local_hostname`, under which what it lends is reached, and `token_file` (a tenant's). A store that is not there is an empty one.
    """

    def __init__(self, context):
        super().__init__(context.config, context.metadata)
        extra = {k[len(_OPTIONS):]: v for k, v in (context.config.extra_config or {}).items() if k.startswith(_OPTIONS)}
        _, named, at = context.url.partition("mooncaf://")
        directory = at.rstrip("/") if named else extra.get("directory", "127.0.0.1:7460")
        self._store = PatientStore(directory, host=extra.get("local_hostname", "127.0.0.1"), lend=extra.get("lend", 0),
                                   token_file=extra.get("token_file", ""))
        self._loop, self._memory = context.loop, context.local_cpu_backend
        pool = getattr(getattr(getattr(self._memory, "memory_allocator", None), "pin_allocator", None), "buffer", None)
        if hasattr(pool, "data_ptr"):
            self._store.register(pool)
        self._threads = concurrent.futures.ThreadPoolExecutor(4, thread_name_prefix="mooncaf-lmcache")

    def _behind(self, call, *args):
        return asyncio.get_running_loop().run_in_executor(self._threads, call, *args)

    @staticmethod
    def _keys(keys):
        return ["lmcache/" + key.to_string() for key in keys]

    # ---- look-ups

    def exists_sync(self, key):
        return self.batched_contains([key]) == 1

    async def exists(self, key):
        return await self._behind(self.exists_sync, key)

    def support_batched_contains(self):
        return True

    def batched_contains(self, keys):
        return self._store.leading(self._keys(keys))

    async def batched_async_contains(self, lookup_id, keys, pin=False):
        return await self._behind(self.batched_contains, keys)

    def remove_sync(self, key):
        return self._store.batch_remove(self._keys([key]), True) == [0]

    async def list(self):
        raise NotImplementedError("a client of the store does not list it: `mooncaf store ls` does")

    # ---- chunks

    def support_batched_put(self):
        return True

    async def put(self, key, memory_obj):
        await self.batched_put([key], [memory_obj])

    async def batched_put(self, keys, memory_objs):
        """A chunk that the store refuses is not kept: a cache has no other answer."""
        await self._behind(self._write, keys, memory_objs)

    def _write(self, keys, chunks):
        heads = [RemoteMetadata(len(c.byte_array), c.get_shapes(), c.get_dtypes(), c.get_memory_format()).serialize() for c in chunks]
        kept = [ctypes.create_string_buffer(head, len(head)) for head in heads]
        pointers = [[ctypes.addressof(head), c.data_ptr] for head, c in zip(kept, chunks)]
        self._store.batch_put_from_multi_buffers(self._keys(keys), pointers, [[len(h), len(c.byte_array)] for h, c in zip(kept, chunks)])

    def support_batched_get(self):
        return True

    async def get(self, key):
        return (await self.batched_get([key]))[0]

    async def batched_get(self, keys):
        return await self._behind(self._read, keys)

    async def batched_get_non_blocking(self, lookup_id, keys):
        """The chunks up to the first that is missing."""
        chunks = await self.batched_get(keys)
        there = (chunks + [None]).index(None)
        for chunk in chunks[there:]:
            if chunk is not None:
                chunk.ref_count_down()
        return chunks[:there]

    def _read(self, keys):
        """Into memory for whole chunks, since most are; a part of a chunk is copied once more."""
        memory = []
        for _ in keys:
            chunk = self._memory.allocate(self.meta_shapes, self.meta_dtypes, self.meta_fmt, busy_loop=False)
            if chunk is None:  # a chunk without room is not read
                break
            memory.append(chunk)
        heads = [ctypes.create_string_buffer(self.remote_metadata_bytes) for _ in memory]
        pointers = [[ctypes.addressof(head), c.data_ptr] for head, c in zip(heads, memory)]
        codes = self._store.batch_get_into_multi_buffers(self._keys(keys[:len(memory)]), pointers,
                                                         [[len(head), self.full_chunk_size_bytes] for head in heads])
        chunks = [self._as_written(c, head.raw, code) for c, head, code in zip(memory, heads, codes)]
        return chunks + [None] * (len(keys) - len(chunks))

    def _as_written(self, chunk, head, code):
        told = RemoteMetadata.deserialize(head) if code >= len(head) else None
        if told is None or told.length != code - len(head):
            chunk.ref_count_down()
            return None
        if (told.shapes, told.dtypes, told.fmt) == (self.meta_shapes, self.meta_dtypes, self.meta_fmt):
            return chunk
        exact = self._memory.allocate(told.shapes, told.dtypes, told.fmt, busy_loop=False)
        if exact is not None:
            ctypes.memmove(exact.data_ptr, chunk.data_ptr, told.length)
        chunk.ref_count_down()
        return exact

    async def close(self):
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._store.close()
