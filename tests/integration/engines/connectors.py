"""An engine without a model: one of our connectors, driven as its engine drives it, by lines of JSON on standard input.

    connectors.py sglang|lmcache|vllm HOST:PORT

["serve", PAGES, SALT, WAIT] is a request: what the store has of its prefix is loaded, the rest is computed (out of SALT and the page's number), what
was computed is saved, and waited for where it is done behind the engine's back; the answer tells how many pages were found, and whether the memory
holds what it has to. ["forget", PAGE, SALT] removes a page. ["special", SALT] is what this engine alone does. Each answer tells how often the store
was out of reach until then. Where the engine is not installed recorded.py stands in for it.
"""
import asyncio
import ctypes
import importlib.util
import json
import os
import random
import sys
import threading
import traceback
from types import SimpleNamespace

REAL = importlib.util.find_spec(sys.argv[1]) is not None
if not REAL:
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    import recorded

    recorded.install(sys.argv[1])
else:
    import torch


def computed(salt, page, size, part=0):
    return random.Random(f"{salt}/{page}/{part}").randbytes(size)


class Engine:
    """`find`, `load`, `save` and `holds` are an engine's own."""

    def serve(self, pages, salt, wait=True):
        found = self.find(pages, salt)
        self.clear()
        for page in self.load(found, salt):  # which did not come
            self.compute(page, salt)
        for page in range(found, pages):
            self.compute(page, salt)
        self.save(found, pages, salt)
        return {"found": found, "right": all(self.holds(page, salt) for page in range(pages))}


# ---- SGLang

class Pool:
    """Of the host's memory: a page is its keys and, elsewhere, its values."""

    layout, dtype, page_size, kv_buffer = "page_first", "bfloat16", 4, ()

    def __init__(self, size, pages=64):
        self.half, self.pages = size // 2, pages
        self.memory = ctypes.create_string_buffer(size * pages)

    def places(self, page):
        return [ctypes.addressof(self.memory) + (page + side * self.pages) * self.half for side in (0, 1)]

    def get_page_buffer_meta(self, indices):
        pages = [int(i) // self.page_size for i in indices[::self.page_size]]
        return [at for page in pages for at in self.places(page)], [self.half] * 2 * len(pages)

    def put(self, page, data):
        for at, side in zip(self.places(page), (data[:self.half], data[self.half:])):
            ctypes.memmove(at, side, self.half)

    def get(self, page):
        return b"".join(ctypes.string_at(at, self.half) for at in self.places(page))

    def indices(self, first, end):
        tokens = range(first * self.page_size, end * self.page_size)
        return torch.tensor(list(tokens)) if REAL else list(tokens)


class Sglang(Engine):
    def __init__(self, at):
        from sglang.srt.mem_cache.hicache_storage import HiCacheStorageConfig

        extra = {"backend_name": "mooncaf", "module_path": "mooncaf.sglang", "class_name": "MooncafStorage", "interface_v1": 1, "directory": at}
        config = HiCacheStorageConfig(tp_rank=0, tp_size=1, pp_rank=0, pp_size=1, attn_cp_rank=0, attn_cp_size=1, is_mla_model=False,
                                      enable_storage_metrics=False, is_page_first_layout=True, model_name="a/model", extra_config=extra)
        self.pool = Pool(8192)
        if REAL:
            from sglang.srt.mem_cache.storage.backend_factory import StorageBackendFactory

            self.storage = StorageBackendFactory.create_backend("dynamic", config, self.pool)
        else:
            from mooncaf.sglang import MooncafStorage

            self.storage = MooncafStorage(config, {})
        self.storage.register_mem_pool_host(self.pool)

    def keys(self, first, end, salt):
        return [f"{salt}-{page}" for page in range(first, end)]

    def find(self, pages, salt):
        return self.storage.batch_exists(self.keys(0, pages, salt), SimpleNamespace(prefix_keys=[]))

    def clear(self):
        ctypes.memset(self.pool.memory, 0, len(self.pool.memory))

    def load(self, pages, salt):
        came = self.storage.batch_get_v1(self.keys(0, pages, salt), self.pool.indices(0, pages), SimpleNamespace(prefix_keys=[]))
        return [page for page, there in enumerate(came) if not there]

    def compute(self, page, salt):
        self.pool.put(page, computed(salt, page, 8192))

    def save(self, first, end, salt):
        before = SimpleNamespace(prefix_keys=self.keys(0, first, salt))
        codes = self.storage.batch_set_v1(self.keys(first, end, salt), self.pool.indices(first, end), before)
        assert len(codes) == end - first

    def holds(self, page, salt):
        return self.pool.get(page) == computed(salt, page, 8192)

    def forget(self, page, salt):
        self.storage._store.batch_remove(self.storage._keys(self.keys(page, page + 1, salt)), True)

    def special(self, salt):
        from sglang.srt.mem_cache.hicache_storage import PoolHitPolicy, PoolName, PoolTransfer

        storage = self.storage

        class Page:  # what SGLang has copied itself
            def __init__(self, data):
                self.memory = ctypes.create_string_buffer(data, len(data))

            data_ptr, numel = (lambda self: ctypes.addressof(self.memory)), (lambda self: len(self.memory))
            element_size, is_contiguous = (lambda self: 1), (lambda self: True)

        value, back = Page(computed("copied", 0, 5000)), Page(bytes(5000))
        assert storage.set("copied", value) and storage.exists("copied") and not storage.exists("absent")
        assert storage.get("copied", back) is back and back.memory.raw == value.memory.raw and storage.get("absent", back) is None
        assert storage.get("copied", value.data_ptr(), 5000) == value.data_ptr()
        assert storage.batch_set_v1(["odd"], self.pool.indices(0, 2)) == [False], "as many keys as pages"
        # State of recurrent layers: wanted where a prefix ends, and kept there alone.
        state = Pool(1024)
        storage.register_mem_host_pool_v2(state, PoolName.MAMBA)
        for page in range(6):
            self.compute(page, salt)
            state.put(page, computed("state", page, 1024))
        keys = self.keys(0, 6, salt)
        assert all(storage.batch_set_v1(keys, self.pool.indices(0, 6)))
        ends = PoolTransfer(PoolName.MAMBA, keys=[keys[3]], host_indices=state.indices(3, 4), hit_policy=PoolHitPolicy.TRAILING_PAGES)
        assert storage.batch_set_v2([ends]) == {PoolName.MAMBA: [True]}
        wanted = PoolTransfer(PoolName.MAMBA, keys=["any"], hit_policy=PoolHitPolicy.TRAILING_PAGES)
        found = storage.batch_exists_v2(keys, [wanted])
        assert (found.kv_hit_pages, found.restorable_prefix_pages) == (4, [4]) and found.extra_pool_hit_pages == {"kv": 6, "mamba": 4}, found
        whole = PoolTransfer(PoolName.MAMBA, hit_policy=PoolHitPolicy.ALL_PAGES)
        assert storage.batch_exists_v2(keys, [whole]).kv_hit_pages == 0 and storage.batch_exists_v2(keys).kv_hit_pages == 6
        state.put(3, bytes(1024))
        assert storage.batch_get_v2([ends]) == {PoolName.MAMBA: [True]} and state.get(3) == computed("state", 3, 1024)
        assert storage.clear() and storage.batch_exists(keys) == 0

    def close(self):
        self.storage.close()


# ---- LMCache

class Lmcache(Engine):
    SHAPE, DTYPE = (2, 4, 16, 128), 2  # keys and values, layers, tokens, width

    def __init__(self, at):
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()
        prefix = "remote_storage_plugin.mooncaf."
        extra = {prefix + "module_path": "mooncaf.lmcache", prefix + "class_name": "MooncafAdapter", prefix + "directory": at}
        self.memory = {}
        if REAL:
            self.make_real(extra)
        else:
            from mooncaf.lmcache import MooncafAdapter

            adapter, metadata = MooncafAdapter(), SimpleNamespace(kv_shape=self.SHAPE, kv_dtype=self.DTYPE)
            assert adapter.can_parse("plugin://mooncaf") and adapter.can_parse("mooncaf://a:1") and not adapter.can_parse("plugin://fs")
            self.allocate = lambda shapes, dtypes, fmt, busy_loop=True: recorded.Chunk(shapes, dtypes, fmt)
            backend = SimpleNamespace(allocate=self.allocate)
            self.connector = adapter.create_connector(SimpleNamespace(
                url="plugin://mooncaf", loop=self.loop, local_cpu_backend=backend, metadata=metadata,
                config=SimpleNamespace(extra_config=extra)))
            self.whole = [self.SHAPE], [self.DTYPE], 1

    def make_real(self, extra):
        from lmcache.v1.config import LMCacheEngineConfig
        from lmcache.v1.memory_management import MemoryFormat
        from lmcache.v1.metadata import LMCacheMetadata
        from lmcache.v1.storage_backend.connector import CreateConnector
        from lmcache.v1.storage_backend.local_cpu_backend import LocalCPUBackend

        config = LMCacheEngineConfig.from_defaults(chunk_size=16, local_cpu=True, max_local_cpu_size=0.05, remote_serde="naive",
                                                   remote_storage_plugins=["mooncaf"], extra_config=extra)
        metadata = LMCacheMetadata(model_name="a/model", world_size=1, local_world_size=1, worker_id=0, local_worker_id=0,
                                   kv_dtype=torch.bfloat16, kv_shape=(4, 2, 16, 8, 16), chunk_size=16)
        backend = LocalCPUBackend(config, metadata, dst_device="cpu")
        self.connector = CreateConnector("plugin://mooncaf", self.loop, backend, config, metadata, plugin_name="mooncaf")
        self.allocate = backend.allocate
        self.whole = [torch.Size(self.SHAPE)], [torch.bfloat16], MemoryFormat.KV_2LTD

    def run(self, job):
        return asyncio.run_coroutine_threadsafe(job, self.loop).result(60)

    def keys(self, first, end, salt):
        chunks = [abs(hash_of(f"{salt}-{page}")) for page in range(first, end)]
        if REAL:
            from lmcache.utils import CacheEngineKey

            return [CacheEngineKey("a/model", 1, 0, chunk, torch.bfloat16) for chunk in chunks]
        return [SimpleNamespace(to_string=lambda chunk=chunk: f"a/model@1@0@{chunk:x}@bfloat16") for chunk in chunks]

    def find(self, pages, salt):
        return self.run(self.connector.batched_async_contains("id", self.keys(0, pages, salt)))

    def clear(self):
        for chunk in self.memory.values():
            chunk.ref_count_down()
        self.memory = {}

    def load(self, pages, salt):
        came = self.run(self.connector.batched_get(self.keys(0, pages, salt)))
        self.memory = {page: chunk for page, chunk in enumerate(came) if chunk is not None}
        return [page for page, chunk in enumerate(came) if chunk is None]

    def compute(self, page, salt):
        chunk = self.memory[page] = self.allocate(*self.whole)
        ctypes.memmove(chunk.data_ptr, computed(salt, page, len(chunk.byte_array)), len(chunk.byte_array))

    def save(self, first, end, salt):
        chunks = [self.memory[page] for page in range(first, end)]
        if REAL:  # it lets go of what it has written
            for chunk in chunks:
                chunk.ref_count_up()
        if chunks:
            self.run(self.connector.batched_put(self.keys(first, end, salt), chunks))

    def holds(self, page, salt):
        data = self.memory[page].byte_array
        return bytes(data) == computed(salt, page, len(data))

    def forget(self, page, salt):
        self.connector.remove_sync(self.keys(page, page + 1, salt)[0])

    def special(self, salt):
        run, connector = self.run, self.connector
        shapes, dtypes, fmt = self.whole
        short = [type(shapes[0])((2, 4, 5, 128))]
        part = self.allocate(short, dtypes, fmt)
        ctypes.memmove(part.data_ptr, computed("part", 0, len(part.byte_array)), len(part.byte_array))
        (key,) = self.keys(0, 1, salt + "part")
        run(connector.put(key, part))
        back = run(connector.get(key))
        assert back.get_shapes() == short and bytes(back.byte_array) == computed("part", 0, len(back.byte_array)), "a prompt's last chunk is shorter"
        assert run(connector.exists(key)) and connector.exists_sync(key) and connector.batched_contains([key, key]) == 2
        # Those before a gap come; what lies after it is let go again.
        self.serve(5, salt)
        self.forget(2, salt)
        before = 0 if REAL else recorded.Chunk.alive
        chunks = run(connector.batched_get_non_blocking("id", self.keys(0, 5, salt)))
        assert len(chunks) == 2 and (REAL or recorded.Chunk.alive == before + 2)
        assert connector.remove_sync(key) and not connector.remove_sync(key) and run(connector.get(key)) is None

    def close(self):
        self.run(self.connector.close())


def hash_of(text):
    return int.from_bytes(random.Random(text).randbytes(7), "little")


# ---- vLLM

class Vllm(Engine):
    TOKENS, PAGE = 16, (2, 16, 8)

    def __init__(self, at):
        transfer = {"kv_connector": "MooncafConnector", "kv_connector_module_path": "mooncaf.vllm", "kv_role": "kv_both",
                    "kv_load_failure_policy": "recompute", "kv_connector_extra_config": {"directory": at}}
        if REAL:
            from vllm.config import KVTransferConfig
            from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory

            transfer, dtype = KVTransferConfig(**transfer), torch.bfloat16
            kind = KVConnectorFactory.get_connector_class(transfer)
        else:
            from mooncaf.vllm import MooncafConnector as kind

            extra = transfer["kv_connector_extra_config"]
            transfer, dtype = SimpleNamespace(get_from_extra_config=extra.get, is_kv_producer=True, is_kv_consumer=True), "bfloat16"
        from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorBase_V1, KVConnectorRole

        assert issubclass(kind, KVConnectorBase_V1) and kind.requires_piecewise_for_cudagraph({}), "a graph of a step would leave its calls out"
        self.transfer = transfer
        config = SimpleNamespace(kv_transfer_config=transfer, cache_config=SimpleNamespace(block_size=self.TOKENS),
                                 model_config=SimpleNamespace(model="a/model", dtype=dtype),
                                 parallel_config=SimpleNamespace(tensor_parallel_size=1, pipeline_parallel_size=1, rank=0))
        caches = SimpleNamespace(kv_cache_groups=[None], num_blocks=32)
        self.scheduler, self.worker = (kind(config, role, caches) for role in (KVConnectorRole.SCHEDULER, KVConnectorRole.WORKER))
        shape = (32, *self.PAGE)
        self.layers = {f"layer.{i}": torch.zeros(shape, dtype=torch.bfloat16) if REAL else recorded.Tensor(shape, 2) for i in range(4)}
        if REAL:
            self.layers["layer.3"] = torch.zeros(2, 32, 16, 8, dtype=torch.bfloat16)  # as other backends lay it out
        self.worker.register_kv_caches(self.layers)
        self.served = 0

    # What lies in a block of a layer.

    def block(self, layer, i):
        memory = self.layers[layer]
        return memory[:, i] if REAL and memory.shape[0] == 2 else memory[i]

    def put(self, layer, i, data):
        if REAL:
            self.block(layer, i).copy_(torch.frombuffer(bytearray(data), dtype=torch.uint8).view(torch.bfloat16).view(self.PAGE))
        else:
            self.block(layer, i).fill(data)

    def get(self, layer, i):
        block = self.block(layer, i)
        return block.contiguous().view(torch.uint8).numpy().tobytes() if REAL else block.bytes()

    def request(self, tokens):
        self.served += 1
        return SimpleNamespace(request_id=f"request-{self.served}", prompt_token_ids=tokens, lora_request=None, cache_salt=None, mm_features=[])

    def prompt(self, pages, salt):
        """And one token that is left to compute."""
        return [hash_of(f"{salt}/{i // self.TOKENS}") % 50_000 + i for i in range(pages * self.TOKENS)] + [1]

    @staticmethod
    def scheduled(tokens, new=(), cached=()):
        return SimpleNamespace(
            scheduled_new_reqs=[SimpleNamespace(req_id=n, block_ids=(ids,), num_computed_tokens=c) for n, ids, c in new],
            scheduled_cached_reqs=SimpleNamespace(req_ids=[n for n, _, _ in cached], new_block_ids=[(ids,) for _, ids, _ in cached],
                                                  num_computed_tokens=[c for _, _, c in cached], resumed_req_ids=set()),
            num_scheduled_tokens=tokens)

    def step(self, output, compute, wait=True):
        """One forward pass, layer by layer. Returns the blocks that could not be loaded."""
        self.worker.bind_connector_metadata(self.scheduler.build_connector_meta(output))
        self.worker.start_load_kv(None)
        for number, (name, layer) in enumerate(self.layers.items()):
            self.worker.wait_for_layer_load(name)
            compute(name, number)
            self.worker.save_kv_layer(name, layer, None)
        self.worker.wait_for_save()
        self.worker.clear_connector_metadata()
        if wait:
            self.worker._writer.submit(lambda: None).result()  # what was to be saved is
        return self.worker.get_block_ids_with_load_errors()

    def page(self, salt, i, number):
        return computed(salt, i, 512, number)

    def compute(self, salt, pages):
        def fill(name, number):
            for i in pages:
                self.put(name, i, self.page(salt, i, number))
        return fill

    def serve(self, pages, salt, wait=True):
        request = self.request(self.prompt(pages, salt))
        tokens, later = self.scheduler.get_num_new_matched_tokens(request, 0)
        assert not later and tokens % self.TOKENS == 0
        found = tokens // self.TOKENS
        for name in self.layers:
            for i in range(32):
                self.put(name, i, bytes(512))
        self.scheduler.update_state_after_alloc(request, None, tokens)
        name = request.request_id
        failed = self.step(self.scheduled({name: pages * self.TOKENS + 1 - tokens}, new=[(name, list(range(pages + 1)), tokens)]),
                           self.compute(salt, range(found, pages)), wait)
        for layer, number in zip(self.layers, range(4)):
            self.compute(salt, failed)(layer, number)
        self.scheduler.request_finished(request, [])
        right = all(self.get(layer, i) == self.page(salt, i, number) for number, layer in enumerate(self.layers) for i in range(pages))
        return {"found": found, "right": right}

    def forget(self, page, salt):
        block = self.scheduler._hashes_of(self.request(self.prompt(page + 1, salt)))[page]
        self.worker._store.batch_remove([self.worker._key(block, 0)], True)

    def special(self, salt):
        matched, prompt = self.scheduler.get_num_new_matched_tokens, self.prompt(4, salt)
        first = self.request(prompt)
        assert matched(first, 0) == (0, False)
        self.scheduler.update_state_after_alloc(first, None, 0)
        # In two steps, as long prompts are: what is full after each is saved.
        name = first.request_id
        assert self.step(self.scheduled({name: 40}, new=[(name, [0, 1, 2], 0)]), self.compute(salt, [0, 1])) == set()
        assert matched(self.request(prompt), 0) == (32, False)
        assert self.step(self.scheduled({name: 25}, cached=[(name, [3, 4], 40)]), self.compute(salt, [2, 3])) == set()
        self.scheduler.request_finished(first, [])
        assert matched(self.request(prompt), 32) == (32, False), "two blocks lie in the card already"
        assert matched(self.request(prompt[:64]), 0) == (48, False), "one token is left to compute"
        assert matched(self.request(prompt[:40]), 0) == (32, False) and matched(self.request(prompt[1:]), 0) == (0, False)
        third = self.request(prompt)
        assert matched(third, 0) == (64, False)
        self.scheduler.update_state_after_alloc(third, None, 64)
        self.forget(1, salt)
        name = third.request_id
        blocks = [20, 21, 22, 23, 24]
        assert self.step(self.scheduled({name: 1}, new=[(name, blocks, 64)]), lambda *_: None) == {21}, "it is computed again"
        assert all(self.get(layer, 20 + i) == self.page(salt, i, number) for number, layer in enumerate(self.layers) for i in (0, 2, 3))
        self.hand_over("handed over " + salt)

    def hand_over(self, salt):
        """A server that only produces has ended a step when what it computed is there."""
        prompt, request = self.prompt(4, salt), self.request(self.prompt(4, salt))
        self.role("kv_producer")
        assert self.scheduler.get_num_new_matched_tokens(request, 0) == (0, False)
        self.scheduler.update_state_after_alloc(request, None, 0)
        self.step(self.scheduled({request.request_id: 65}, new=[(request.request_id, [0, 1, 2, 3, 4], 0)]), self.compute(salt, range(4)), wait=False)
        self.role("kv_both")
        assert self.scheduler.get_num_new_matched_tokens(self.request(prompt), 0) == (64, False)

    def role(self, name):
        if REAL:
            self.transfer.kv_role = name
        else:
            self.transfer.is_kv_producer, self.transfer.is_kv_consumer = name != "kv_consumer", name != "kv_producer"

    def close(self):
        self.scheduler.shutdown()
        self.worker.shutdown()


def main():
    from mooncaf import patient

    engine = globals()[sys.argv[1].capitalize()](sys.argv[2])
    print("ANSWER true", flush=True)
    for line in sys.stdin:
        what, *given = json.loads(line)
        if what == "patience":
            patient._PATIENCE_S, = given
            print("ANSWER " + json.dumps({"answer": None, "wrong": ""}), flush=True)
            continue
        try:
            answer, wrong = getattr(engine, what)(*given), ""
        except AssertionError:
            answer, wrong = None, traceback.format_exc()
        print("ANSWER " + json.dumps({"answer": answer, "wrong": wrong}), flush=True)
    engine.close()
    sys.stdout.flush()
    os._exit(0)  # the engines' threads have no end


if __name__ == "__main__":
    main()
