"""SGLang's HiCache on the store: pages of the host's KV pool, written and read where they lie.

    python -m sglang.launch_server --model-path MODEL --enable-hierarchical-cache --hicache-storage-backend dynamic
        --hicache-storage-backend-extra-config '{"backend_name": "mooncaf", "module_path": "mooncaf.sglang", "class_name": "MooncafStorage",
        "interface_v1": 1, "directory": "127.0.0.1:7460"}'

An object is one page with everything that its pool keeps of it (keys, values, layers), under SGLang's hash of all tokens up to its end. Each names
the page before it as its parent: what `--eviction cost_aware` goes by.
"""

from __future__ import annotations

import re

from sglang.srt.mem_cache.hicache_storage import HiCacheStorage, PoolHitPolicy, PoolName, PoolTransferResult

from .patient import PatientStore
from .types import ReplicateConfig

__all__ = ["MooncafStorage"]


class MooncafStorage(HiCacheStorage):
    """Of `extra_config` it reads `directory` (HOST:PORT), `lend` (bytes that this process gives to the store), `local_hostname`, under which what
    it lends is reached, `token_file` (a tenant's) and `replicas`. A store that is not there is an empty one: SGLang goes on.
    """

    def __init__(self, storage_config, kwargs=None):
        extra, config = storage_config.extra_config or {}, storage_config
        self._store = PatientStore(extra.get("directory", "127.0.0.1:7460"), host=extra.get("local_hostname", "127.0.0.1"),
                                   lend=extra.get("lend", 0), token_file=extra.get("token_file", ""))
        self._replicas, self._pools = int(extra.get("replicas", 1)), {}
        self._base = f"sglang/{config.model_name}/pp{config.pp_rank}of{config.pp_size}/cp{config.attn_cp_rank}of{config.attn_cp_size}"
        self._sharded = f"tp{config.tp_rank}of{config.tp_size}"
        dcp = getattr(config, "dcp_size", 1)
        # Latent attention has the same pages on every rank of a group, and one of them writes.
        self._shared = f"dcp{config.dcp_rank}of{dcp}" if dcp > 1 else "all"
        self._shard = self._shared if config.is_mla_model else self._sharded

    # ---- pools

    def register_mem_pool_host(self, mem_pool_host):
        super().register_mem_pool_host(mem_pool_host)
        self._learn(PoolName.KV, mem_pool_host)

    def register_mem_host_pool_v2(self, host_pool, host_pool_name):
        super().register_mem_host_pool_v2(host_pool, host_pool_name)
        self._learn(host_pool_name, host_pool)

    def _learn(self, name, pool):
        known, self._pools[name] = self._pools.get(name), pool
        if known is not pool and hasattr(getattr(pool, "kv_buffer", None), "data_ptr"):
            self._store.register(pool.kv_buffer)

    def _prefix(self, pool):
        """Pages of another size or layout have other names. State of recurrent layers is cut by tensor-parallel rank in any model."""
        host = self._pools[pool]
        shard = self._sharded if pool == PoolName.MAMBA else self._shard
        return f"{self._base}/{shard}/{pool}/{getattr(host, 'layout', '')}/{getattr(host, 'dtype', '')}/{host.page_size}/"

    def _keys(self, keys, pool=PoolName.KV):
        prefix = self._prefix(pool)
        return [prefix + key for key in keys]

    def _places(self, keys, indices, pool):
        """For each page the addresses and sizes of its parts, or None where they do not fit the keys."""
        pointers, sizes = self._pools[pool].get_page_buffer_meta(indices)
        parts = len(pointers) // len(keys)
        if parts == 0 or parts * len(keys) != len(pointers) or len(indices) != len(keys) * self._pools[pool].page_size:
            return None
        cut = range(0, len(pointers), parts)
        return [pointers[i:i + parts] for i in cut], [sizes[i:i + parts] for i in cut]

    def _how(self, keys, before=()):
        how = ReplicateConfig()
        how.replica_num, how.parents = self._replicas, [*before[-1:], *keys][:len(keys)] if before else ["", *keys[:-1]]
        return how

    # ---- pages where they lie

    def batch_set_v1(self, keys, host_indices, extra_info=None):
        before = self._keys((getattr(extra_info, "prefix_keys", None) or [])[-1:])
        return self._write(keys, host_indices, PoolName.KV, before)

    def batch_get_v1(self, keys, host_indices, extra_info=None):
        return self._read(keys, host_indices, PoolName.KV)

    def _write(self, keys, indices, pool, before=()):
        places = self._places(keys, indices, pool) if keys else None
        if places is None:
            return [False] * len(keys)
        named = self._keys(keys, pool)
        return [code == 0 for code in self._store.batch_put_from_multi_buffers(named, *places, self._how(named, before))]

    def _read(self, keys, indices, pool):
        places = self._places(keys, indices, pool) if keys else None
        if places is None:
            return [False] * len(keys)
        codes = self._store.batch_get_into_multi_buffers(self._keys(keys, pool), *places)
        return [code == sum(sizes) for code, sizes in zip(codes, places[1])]

    # ---- several pools: a page is of use where every pool has its part

    def batch_exists_v2(self, keys, pool_transfers=None, extra_info=None):
        anchor = getattr(self._pools[PoolName.KV], "kv_buffer", True) is not None  # else there are no pages of it, and the others decide
        pages = self.batch_exists(keys, extra_info) if anchor else len(keys)
        usable, hits = set(range(1, pages + 1)), {PoolName.KV: pages} if pages else {}
        for transfer in pool_transfers or [] if pages else []:
            there = self._store.exists(self._keys(keys[:pages], transfer.name))
            if transfer.hit_policy == PoolHitPolicy.ALL_PAGES:
                ends = set(range(1, (there + [False]).index(False) + 1))
            elif transfer.hit_policy == PoolHitPolicy.TRAILING_PAGES:
                wanted = max(1, len(transfer.keys or ()))
                ends = {end for end in range(1, pages + 1) if all(there[max(0, end - wanted):end])}
            else:  # it never limits the pages that can be used
                continue
            usable &= ends
            if ends:
                hits[transfer.name] = max(ends)
        return PoolTransferResult(max(usable, default=0), hits, sorted(usable))

    def batch_set_v2(self, transfers, extra_info=None):
        return {t.name: self._write(t.keys or [], t.host_indices, t.name) for t in transfers}

    def batch_get_v2(self, transfers, extra_info=None):
        return {t.name: self._read(t.keys or [], t.host_indices, t.name) for t in transfers}

    # ---- pages that SGLang has copied, without "interface_v1"

    def batch_set(self, keys, values=None, target_locations=None, target_sizes=None):
        places = self._given(values if values is not None else target_locations, target_sizes)
        named = self._keys(keys)
        return all(code == 0 for code in self._store.batch_put_from_multi_buffers(named, *places, self._how(named)))

    def batch_get(self, keys, target_locations=None, target_sizes=None):
        """Into tensors: they, or None. Into addresses: they, or None."""
        places = self._given(target_locations, target_sizes)
        codes = self._store.batch_get_into_multi_buffers(self._keys(keys), *places)
        return [place if code == size else None for code, place, (size,) in zip(codes, target_locations, places[1])]

    @staticmethod
    def _given(places, sizes):
        if sizes is not None:
            return [[p] for p in places], [[s] for s in sizes]
        if not all(p.is_contiguous() for p in places):
            raise ValueError("a page is contiguous memory")
        return [[p.data_ptr()] for p in places], [[p.numel() * p.element_size()] for p in places]

    def set(self, key, value=None, target_location=None, target_sizes=None):
        place = value if value is not None else target_location
        return self.batch_set([key], [place], None, None if target_sizes is None else [target_sizes])

    def get(self, key, target_location=None, target_sizes=None):
        return self.batch_get([key], [target_location], None if target_sizes is None else [target_sizes])[0]

    # ---- look-ups

    def exists(self, key):
        return self.batch_exists([key]) == 1

    def batch_exists(self, keys, extra_info=None):
        return self._store.leading(self._keys(keys))

    def clear(self):
        """Removes the pages of this model, of every rank."""
        return self._store.remove_matching("^" + re.escape(self._base.split("/pp")[0] + "/pp"))

    def close(self):
        self._store.close()
