"""A KV connector of vLLM that keeps blocks of KV in the store, layer by layer, through the host's memory.

    vllm serve MODEL --kv-transfer-config '{"kv_connector": "MooncafConnector", "kv_connector_module_path": "mooncaf.vllm",
        "kv_role": "kv_both", "kv_load_failure_policy": "recompute", "kv_connector_extra_config": {"directory": "127.0.0.1:7460"}}'

An object is one block of tokens with all layers that this worker has, under a hash of all tokens up to its end. While layer n is computed, what
layer n + 1 needs is read, and what layer n - 1 left is written. A block that cannot be read is reported, and vLLM computes it, if its
`kv_load_failure_policy` says so (else the request fails); a store that is not there is an empty one. A server that only produces (`kv_producer`)
waits until what it computed is there for a consumer.
"""

from __future__ import annotations

import concurrent.futures
import hashlib
import itertools
import logging
import time
from dataclasses import dataclass, field

import torch
from vllm.distributed.kv_transfer.kv_connector.v1 import base

from .patient import PatientStore
from .types import ReplicateConfig

__all__ = ["MooncafConnector"]

_LOAD_SECONDS = 20  # of one step: blocks that have not come by then are computed
_SAVE_SECONDS = 20  # that a producer waits for the store after a step
_log = logging.getLogger("mooncaf")


@dataclass
class _Blocks:
    """Hashes of blocks, and where the worker has them."""

    hashes: list[str] = field(default_factory=list)
    before: list[str] = field(default_factory=list)  # the hash of the block before each, or ""
    ids: list[int] = field(default_factory=list)

    def add(self, hashes, ids, first, end):
        """A request's blocks from `first` on, before `end`."""
        self.hashes += hashes[first:end]
        self.before += ["", *hashes][first:end]
        self.ids += ids[first:end]


@dataclass
class MooncafMetadata(base.KVConnectorMetadata):
    load: _Blocks = field(default_factory=_Blocks)
    save: _Blocks = field(default_factory=_Blocks)


class _Layer:
    """One layer's part of every block."""

    def __init__(self, cache, blocks, offset):
        if blocks not in cache.shape[:2]:
            raise ValueError(f"a layer of shape {tuple(cache.shape)} has no dimension for {blocks} blocks")
        self.cache, self.offset = cache.movedim(cache.shape.index(blocks), 0), offset
        self.bytes = self.cache[0].numel() * self.cache.element_size()

    def take(self, ids):
        """The content of these blocks, on the host: a row of bytes for each."""
        chosen = self.cache.index_select(0, torch.tensor(ids, device=self.cache.device)).contiguous().cpu()
        return chosen.view(len(ids), -1).view(torch.uint8)

    def give(self, ids, rows):
        values = rows.view(self.cache.dtype).view(len(ids), *self.cache.shape[1:])
        self.cache.index_copy_(0, torch.tensor(ids, device=self.cache.device), values.to(self.cache.device))


class MooncafConnector(base.KVConnectorBase_V1):
    if hasattr(base, "CacheHitSource"):
        _cache_hit_source = base.CacheHitSource.HOST

    def __init__(self, vllm_config, role, kv_cache_config):
        super().__init__(vllm_config=vllm_config, role=role, kv_cache_config=kv_cache_config)
        if role == base.KVConnectorRole.SCHEDULER and getattr(self._kv_transfer_config, "kv_load_failure_policy", "recompute") != "recompute":
            _log.warning("a request whose blocks are lost while they are loaded will fail: kv_load_failure_policy is not \"recompute\"")
        if len(kv_cache_config.kv_cache_groups) > 1:
            raise ValueError("MooncafConnector keeps models whose layers all have blocks of one kind")
        option = self._kv_transfer_config.get_from_extra_config
        lend = option("lend", 0) if role == base.KVConnectorRole.WORKER else 0
        self._store = PatientStore(option("directory", "127.0.0.1:7460"), host=option("local_hostname", "127.0.0.1"), lend=lend,
                                   token_file=option("token_file", ""))
        parallel = vllm_config.parallel_config
        self._model = f"vllm/{vllm_config.model_config.model}/{vllm_config.model_config.dtype}"
        self._tp, self._pp, self._rank = parallel.tensor_parallel_size, parallel.pipeline_parallel_size, parallel.rank
        self._tokens = vllm_config.cache_config.block_size
        # Scheduler: hashes and blocks of the requests that run, and how many tokens each will find in the store.
        self._hashes, self._ids, self._found = {}, {}, {}
        # Worker.
        self._layers, self._pending, self._failed, self._saves, self._begun = {}, {}, set(), None, []
        self._reader, self._writer = (concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix=f"mooncaf-{n}") for n in ("load", "save"))

    @classmethod
    def requires_piecewise_for_cudagraph(cls, extra_config):
        """Loads and saves of a layer are Python's, which a graph of the whole step would leave out."""
        return True

    @property
    def requires_kv_delivery(self):
        """What is not saved is computed by whoever misses it."""
        return False

    def _key(self, block, rank):
        return f"{self._model}/{rank % self._tp}of{self._tp}/{rank // self._tp % self._pp}of{self._pp}/{block}"

    # ---- scheduler

    def _hashes_of(self, request):
        """Of each full block of the prompt, with everything before it."""
        other = [getattr(request.lora_request, "lora_name", None), getattr(request, "cache_salt", None), self._tokens]
        other += [f.identifier for f in getattr(request, "mm_features", None) or []]
        last, hashes, tokens = repr(other).encode(), [], request.prompt_token_ids or []
        for at in range(0, len(tokens) - self._tokens + 1, self._tokens):
            block = b"".join(t.to_bytes(8, "little") for t in tokens[at:at + self._tokens])
            last = hashlib.blake2b(last + block, digest_size=16).digest()
            hashes.append(last.hex())
        return hashes

    def get_num_new_matched_tokens(self, request, num_computed_tokens):
        hashes = self._hashes[request.request_id] = self._hashes_of(request)
        first, end = num_computed_tokens // self._tokens, (len(request.prompt_token_ids or []) - 1) // self._tokens  # one token is left to compute
        ranks = range(self._tp * self._pp)
        keys = [self._key(h, rank) for h in hashes[first:end] for rank in ranks] if self._kv_transfer_config.is_kv_consumer else []
        there = self._store.exists(keys)
        whole = (all(there[i:i + len(ranks)]) for i in range(0, len(there), len(ranks)))
        return sum(1 for _ in itertools.takewhile(bool, whole)) * self._tokens, False

    def update_state_after_alloc(self, request, blocks, num_external_tokens):
        if num_external_tokens > 0:
            self._found[request.request_id] = num_external_tokens

    def build_connector_meta(self, scheduler_output):
        meta = MooncafMetadata()
        for new in scheduler_output.scheduled_new_reqs:
            self._ids[new.req_id] = list(new.block_ids[0])
            self._plan(meta, new.req_id, new.num_computed_tokens, scheduler_output)
        cached = scheduler_output.scheduled_cached_reqs
        for request, fresh, computed in zip(cached.req_ids, cached.new_block_ids, cached.num_computed_tokens):
            if request in cached.resumed_req_ids:
                self._ids[request] = []
            self._ids.setdefault(request, []).extend(fresh[0] if fresh else [])
            self._plan(meta, request, computed, scheduler_output)
        return meta

    def _plan(self, meta, request, computed, scheduler_output):
        """What is computed by then lies in the first blocks, the last of it yet to be loaded; the full blocks after this step are saved."""
        hashes, ids, end = self._hashes.get(request, []), self._ids[request], computed // self._tokens
        producer = self._kv_transfer_config.is_kv_producer
        loaded = (computed - self._found.pop(request, 0)) // self._tokens
        meta.load.add(hashes, ids, loaded, end)
        full = min((computed + scheduler_output.num_scheduled_tokens[request]) // self._tokens, len(hashes), len(ids))
        meta.save.add(hashes, ids, end, full if producer else end)

    def request_finished(self, request, block_ids):
        for known in (self._hashes, self._ids, self._found):
            known.pop(request.request_id, None)
        return False, None

    # ---- worker

    def register_kv_caches(self, kv_caches):
        offset = 0
        for name, cache in kv_caches.items():
            self._layers[name] = _Layer(cache, self._kv_cache_config.num_blocks, offset)
            offset += self._layers[name].bytes
        self._block_bytes = offset

    def start_load_kv(self, forward_context, **kwargs):
        load = self._get_connector_metadata().load
        if not load.ids:
            return
        keys = [self._key(h, self._rank) for h in load.hashes]
        self._load_until = time.monotonic() + _LOAD_SECONDS
        self._reader.submit(self._store.batch_get_session_start, keys)
        for name, layer in self._layers.items():
            self._pending[name] = (load.ids, self._reader.submit(self._read, keys, layer))
        self._reader.submit(self._store.batch_get_session_end, keys)

    def _read(self, keys, layer):
        rows = torch.empty(len(keys), layer.bytes, dtype=torch.uint8)
        places = [[rows[i].data_ptr()] for i in range(len(keys))]
        codes = self._store.batch_get_into_multi_buffer_ranges(keys, places, [[layer.bytes]] * len(keys), [[layer.offset]] * len(keys))
        return rows, [code == layer.bytes for code in codes]

    def wait_for_layer_load(self, layer_name):
        ids, reading = self._pending.pop(layer_name, (None, None))
        if ids is None:
            return
        try:
            rows, came = reading.result(max(0, self._load_until - time.monotonic()))
        except concurrent.futures.TimeoutError:
            rows, came = None, [False] * len(ids)
        good = [i for i, there in enumerate(came) if there]
        self._failed.update(block for block, there in zip(ids, came) if not there)
        if good:
            self._layers[layer_name].give([ids[i] for i in good], rows[good])

    def get_block_ids_with_load_errors(self):
        failed, self._failed = self._failed, set()
        return failed

    def save_kv_layer(self, layer_name, kv_layer, attn_metadata, **kwargs):
        save = self._get_connector_metadata().save
        if not save.ids:
            return
        layer = self._layers[layer_name]
        if self._saves is None:
            self._saves = [self._key(h, self._rank) for h in save.hashes]
            self._writer.submit(self._begin, self._saves, [h and self._key(h, self._rank) for h in save.before])
        self._writer.submit(self._write, layer, self._saves, layer.take(save.ids))  # the blocks may change from here on

    def _begin(self, keys, parents):
        how = ReplicateConfig()
        how.parents = parents
        codes = self._store.batch_put_session_start(keys, [self._block_bytes] * len(keys), how)
        self._begun = [code == 0 for code in codes]  # the others are there, or another writer has them, or there is no room

    def _write(self, layer, keys, rows):
        mine = [i for i, begun in enumerate(self._begun) if begun]
        self._store.batch_put_from_multi_buffer_ranges([keys[i] for i in mine], [[rows[i].data_ptr()] for i in mine], [[layer.bytes]] * len(mine),
                                                       [[layer.offset]] * len(mine))

    def _end(self, keys):
        self._store.batch_put_session_end([key for key, begun in zip(keys, self._begun) if begun])

    def wait_for_save(self):
        """Only a producer waits, for whom a consumer will be asked next; the blocks to be saved have been copied already."""
        if self._saves is not None:
            saved = self._writer.submit(self._end, self._saves)
            self._saves = None
            if not self._kv_transfer_config.is_kv_consumer:
                concurrent.futures.wait([saved], _SAVE_SECONDS)

    def shutdown(self):
        self._reader.shutdown()
        self._writer.shutdown()
        self._store.close()
