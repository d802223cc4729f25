#!/usr/bin/env python3
"""What inference engines do with Mooncake Store, on this store: their own connectors, unchanged, over `storage/python/compat`.

MOONCAF_ENGINES names an interpreter of the same version as this one that can import torch, sglang and lmcache: then their real classes
run, and what they asked of the store is compared with (or, with MOONCAF_RECORD=1, written to) tests/data/store/ENGINE.json. Without it those
recorded calls are made again, in their order.
"""
import ctypes
import json
import os
import pathlib
import subprocess
import sys

sys.path.insert(0, os.path.dirname(__file__))
from cluster import Cluster, main  # noqa: E402
from store_world import ROOT, Store, package, package_path  # noqa: E402

ENGINES = os.environ.get("MOONCAF_ENGINES", "")
RECORDED = ROOT / "tests/data/store"


def with_its_own_classes(engine):
    """The calls of the engine. It has itself compared what it read with what it wrote."""
    with Cluster() as cluster:
        world = Store(cluster, segments=1)
        env = {**os.environ, "PYTHONPATH": package_path(), "MOONCAF_CLUSTER_SECRET_FILE": world.secret, "CUDA_VISIBLE_DEVICES": ""}
        done = subprocess.run([ENGINES, str(pathlib.Path(__file__).parent / "engines/calls.py"), engine, world.at], env=env,
                              capture_output=True, text=True, timeout=180)
        assert done.returncode == 0, (done.stdout[-1000:], done.stderr[-3000:])
        calls = [json.loads(line[5:]) for line in done.stdout.splitlines() if line.startswith("CALL ")]
    for name, given, *_ in calls:
        if name == "setup":
            given.update({k: "HOST" for k in given if k in ("master_server_addr", "master_server_address")})
            if isinstance(given["local_hostname"], dict):
                given["local_hostname"]["master_server_address"] = given["local_hostname"]["master_server_addr"] = "HOST"
    return calls


def recorded(engine):
    return [json.loads(line) for line in (RECORDED / f"{engine}.jsonl").read_text().splitlines()]


def again(engine):
    """Makes the recorded calls: each is answered as it was, and what is read is what was written."""
    from mooncake.store import MooncakeDistributedStore, ReplicateConfig

    calls, written = recorded(engine), {}
    with Cluster() as cluster:
        world = Store(cluster, segments=1)
        os.environ["MOONCAF_CLUSTER_SECRET_FILE"] = world.secret
        sizes, stores = calls[-1][4], {}
        buffers = [ctypes.create_string_buffer(os.urandom(n), n) for n in sizes]
        for name, given, answer, which, _ in calls:
            store = stores.setdefault(which, MooncakeDistributedStore())
            found = replay(store, name, given, buffers, world.at, written, ReplicateConfig)
            assert found == answer, (name, given, found, answer)
        assert written, "something was read"


def address(place, buffers):
    if place and isinstance(place[0], list):
        return [address(p, buffers) for p in place]
    if place and place[0] == -1:  # memory that was not registered
        buffers.append(ctypes.create_string_buffer(os.urandom(1 << 16), 1 << 16))
        return ctypes.addressof(buffers[-1])
    return ctypes.addressof(buffers[place[0]]) + place[1] if place else []


def replay(store, name, given, buffers, at, written, config_class):
    args = dict(given)
    for n, v in args.items():
        if n in ("buffer_ptr", "buffer_ptrs", "all_buffer_ptrs"):
            args[n] = address(v, buffers)
        elif n == "config" and v is not None:
            args[n] = config_class()
            for field, value in v.items():
                setattr(args[n], field, value)
        elif n == "master_server_addr":
            args[n] = at
        elif isinstance(v, dict) and set(v) == {"bytes"}:
            args[n] = bytes(v["bytes"])
        elif n == "local_hostname" and isinstance(v, dict):
            args[n] = {**v, "master_server_addr": at}
    parts = [bytes(p["bytes"]) for p in args.pop("parts", [])]
    if parts:
        return store.put_parts(args.pop("key"), *parts, **args)
    answer = getattr(store, name)(**args)
    compare(name, args, answer, written)
    if name == "batch_get_buffer":
        return [{"bytes": a.size()} for a in answer]
    return {"bytes": len(answer)} if isinstance(answer, bytes) else answer


def compare(name, args, answer, written):
    """What was put under a key comes back from it."""
    keys, pointers, sizes = (args.get(n) for n in ("keys", "all_buffer_ptrs", "all_sizes"))
    if "buffer_ptr" in args and "key" in args:
        keys, pointers, sizes, answer = [args["key"]], [[args["buffer_ptr"]]], [[args["size"]]], [answer]
    elif pointers is None and "buffer_ptrs" in args:
        pointers, sizes = [[p] for p in args["buffer_ptrs"]], [[s] for s in args["sizes"]]
    if not keys or pointers is None:
        return
    for i, (key, ps, ss, code) in enumerate(zip(keys, pointers, sizes, answer)):
        value = b"".join(ctypes.string_at(p, s) for p, s in zip(ps, ss))
        if "ranges" in name:  # parts, each for itself
            key = (key, *(args.get("all_dst_offsets") or args["all_src_offsets"])[i])
        if "put" in name and (code > 0 if "ranges" in name else code == 0):
            written.setdefault(key, value)
        elif "get" in name and code > 0:
            assert value == written[key], key


def run(engine):
    if not ENGINES:
        return again(engine)
    calls = with_its_own_classes(engine)
    if os.environ.get("MOONCAF_RECORD"):
        RECORDED.mkdir(parents=True, exist_ok=True)
        (RECORDED / f"{engine}.jsonl").write_text("".join(json.dumps(c) + "\n" for c in calls))
    # Some of them have several threads: their calls are the same, in an order of their own.
    assert sorted(c[0] for c in calls) == sorted(c[0] for c in recorded(engine)), "it calls the store as it did when it was recorded"


def test_sglang_s_hicache_backend():
    run("sglang")


def test_lmcache_s_remote_connector():
    run("lmcache")


if __name__ == "__main__":
    package()
    main([value for name, value in sorted(globals().items()) if name.startswith("test_")])
