#!/usr/bin/env python3
"""A KV connector for an engine of one's own: whole blocks of tokens, found by what stands before them, read layer by layer
while the engine computes, and written behind its back. What an engine asks of it has the names of vLLM's connectors.

    mooncaf --role=conductor &
    mooncaf --role=cache --join 127.0.0.1:7400 --store-dram 256MiB --metrics-listen 127.0.0.1:0 &
    pip install ./storage/python
    python3 examples/engine_connector.py

prints

    engine 1: 128 tokens asked, 0 from the store, 128 computed, 8 blocks saved
    engine 2: 160 tokens asked, 128 from the store in 4 layers, 32 computed, 2 blocks saved

For vLLM, SGLang and LMCache there are `mooncaf.vllm`, `mooncaf.sglang` and `mooncaf.lmcache` (storage/python/README.md).
"""
import concurrent.futures
import ctypes
import hashlib
import os
import sys

from mooncaf.store import MooncakeDistributedStore, ReplicateConfig

DIRECTORY = os.environ.get("MOONCAF_DIRECTORY", "127.0.0.1:7460")
LAYERS, BLOCK_TOKENS, LAYER_BYTES = 4, 16, 64 << 10  # of one block in one layer


class Connector:
    """Keeps blocks of all layers in the store, under a hash of all tokens up to their end."""

    def __init__(self, address_of):
        self.address_of = address_of  # (layer, block) -> where the engine has it
        self.store = MooncakeDistributedStore()
        if self.store.setup("127.0.0.1", "P2PHANDSHAKE", 0, 1 << 20, "tcp", "", DIRECTORY) != 0:
            sys.exit(f"no store at {DIRECTORY}: {self.store.last_error()}")
        self.behind = concurrent.futures.ThreadPoolExecutor(1)  # the calls do not hold the interpreter
        self.under_way = {}

    @staticmethod
    def keys_of(tokens):
        chain, keys = hashlib.sha256(b"the model, its weights and its layout"), []
        for begin in range(0, len(tokens) - BLOCK_TOKENS + 1, BLOCK_TOKENS):
            chain.update(repr(tokens[begin:begin + BLOCK_TOKENS]).encode())
            keys.append(chain.hexdigest())
        return keys

    def get_num_new_matched_tokens(self, tokens):
        """What the scheduler asks: how far the store can take over. To ask protects what is there for a while."""
        there = self.store.batch_is_exist(self.keys_of(tokens))
        return next((i for i, yes in enumerate(there) if yes != 1), len(there)) * BLOCK_TOKENS

    def start_load_kv(self, keys):
        self.loading = keys
        if keys:
            self.store.batch_get_session_start(keys)
            self.under_way[0] = self.behind.submit(self._read, 0)

    def wait_for_layer_load(self, layer):
        """Its blocks are there; the next layer's are on their way while this one is computed. Returns whether they are whole."""
        if not self.loading:
            return True
        if layer + 1 < LAYERS:
            self.under_way[layer + 1] = self.behind.submit(self._read, layer + 1)
        else:
            self.behind.submit(self.store.batch_get_session_end, self.loading)
        return all(n == LAYER_BYTES for n in self.under_way.pop(layer).result())

    def _read(self, layer):
        places = [[self.address_of(layer, i)] for i in range(len(self.loading))]
        return self.store.batch_get_into_multi_buffer_ranges(self.loading, places, [[LAYER_BYTES]] * len(places), [[layer * LAYER_BYTES]] * len(places))

    def start_save_kv(self, keys, first):
        """Nobody sees a block before its last layer is there."""
        self.saving, self.first, how = keys[first:], first, ReplicateConfig()
        how.parents = [keys[i - 1] if i else "" for i in range(first, len(keys))]  # without which nobody wants a block
        self.behind.submit(self.store.batch_put_session_start, self.saving, [LAYERS * LAYER_BYTES] * len(self.saving), how)

    def save_kv_layer(self, layer):
        places = [[self.address_of(layer, self.first + i)] for i in range(len(self.saving))]
        self.behind.submit(self.store.batch_put_from_multi_buffer_ranges, self.saving, places, [[LAYER_BYTES]] * len(places), [[layer * LAYER_BYTES]] * len(places))

    def wait_for_save(self):
        return sum(code == 0 for code in self.behind.submit(self.store.batch_put_session_end, self.saving).result())


def compute(layer, key):
    """What a model would take a while for."""
    return hashlib.sha256(f"{layer} {key}".encode()).digest() * (LAYER_BYTES // 32)


def engine(number, tokens):
    keys = Connector.keys_of(tokens)
    caches = [ctypes.create_string_buffer(LAYER_BYTES * len(keys)) for _ in range(LAYERS)]
    connector = Connector(lambda layer, block: ctypes.addressof(caches[layer]) + block * LAYER_BYTES)
    found = connector.get_num_new_matched_tokens(tokens)
    here = found // BLOCK_TOKENS
    connector.start_load_kv(keys[:here])
    connector.start_save_kv(keys, here)
    for layer in range(LAYERS):
        assert connector.wait_for_layer_load(layer), "a block went meanwhile: an engine computes it"
        for i in range(here, len(keys)):
            ctypes.memmove(connector.address_of(layer, i), compute(layer, keys[i]), LAYER_BYTES)
        assert caches[layer].raw == b"".join(compute(layer, key) for key in keys), "what was found is what would have been computed"
        connector.save_kv_layer(layer)
    saved = connector.wait_for_save()
    loaded = f"{found} from the store" + (f" in {LAYERS} layers" if found else "")
    print(f"engine {number}: {len(tokens)} tokens asked, {loaded}, {len(tokens) - found} computed, {saved} blocks saved", flush=True)
    connector.store.close()


if __name__ == "__main__":
    prompt = list(range(1000, 1128))
    engine(1, prompt)
    engine(2, prompt + list(range(32)))
