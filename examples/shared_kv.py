#!/usr/bin/env python3
"""Two Python processes share a KV cache: one computes the pages of a prompt and stores them, the other finds the longest
prefix that is there and computes the rest.

    mooncaf --role=conductor &
    mooncaf --role=cache --join 127.0.0.1:7400 --store-dram 256MiB --metrics-listen 127.0.0.1:0 &
    pip install ./storage/python
    python3 examples/shared_kv.py

prints

    first:  4 pages of 64 tokens, 0 found, 4 computed
    second: 6 pages of 64 tokens, 4 found, 2 computed
"""
import ctypes
import hashlib
import os
import subprocess
import sys

from mooncaf.store import MooncakeDistributedStore, ReplicateConfig

DIRECTORY = os.environ.get("MOONCAF_DIRECTORY", "127.0.0.1:7460")
PAGE_TOKENS, PAGE_BYTES = 64, 256 << 10


def pages(tokens):
    """A key for each full page of a prompt: of all tokens up to its end, so that equal keys mean equal prefixes."""
    chain = hashlib.sha256(b"the model, its weights and its layout")
    keys = []
    for begin in range(0, len(tokens) - PAGE_TOKENS + 1, PAGE_TOKENS):
        chain.update(b"".join(t.to_bytes(4, "little") for t in tokens[begin:begin + PAGE_TOKENS]))
        keys.append(chain.hexdigest())
    return keys


def compute(key):
    """What a model would take a while for."""
    return (hashlib.sha256(key.encode()).digest() * (PAGE_BYTES // 32))[:PAGE_BYTES]


def serve(name, tokens):
    store = MooncakeDistributedStore()
    if store.setup("127.0.0.1", "P2PHANDSHAKE", 0, 1 << 20, "tcp", "", DIRECTORY) != 0:
        sys.exit(f"no store at {DIRECTORY}: {store.last_error()}")
    keys = pages(tokens)
    memory = ctypes.create_string_buffer(PAGE_BYTES * len(keys))
    places = [ctypes.addressof(memory) + i * PAGE_BYTES for i in range(len(keys))]
    found = 0  # a page may be gone by now: what counts is what was read
    for code in store.batch_get_into(keys, places, [PAGE_BYTES] * len(keys)):
        if code != PAGE_BYTES:
            break
        found += 1
    for i in range(found, len(keys)):
        ctypes.memmove(places[i], compute(keys[i]), PAGE_BYTES)
    # A page is useless without the one before it; the store may know that when it makes room.
    how = ReplicateConfig()
    how.parents = [keys[i - 1] if i else "" for i in range(found, len(keys))]
    codes = store.batch_put_from(keys[found:], places[found:], [PAGE_BYTES] * (len(keys) - found), how) if found < len(keys) else []
    assert not any(codes), codes
    assert memory.raw == b"".join(map(compute, keys)), "what was found is what would have been computed"
    print(f"{name + ':':7} {len(keys)} pages of {PAGE_TOKENS} tokens, {found} found, {len(keys) - found} computed", flush=True)
    store.close()


if __name__ == "__main__":
    prompt = list(range(1000, 1256))
    if sys.argv[1:] == ["second"]:
        serve("second", prompt + list(range(128)))
    else:
        serve("first", prompt)
        sys.exit(subprocess.run([sys.executable, __file__, "second"]).returncode)
