#!/usr/bin/env python3
"""Objects of the store that lie on SSD, read by one Python client, beside raw reads of the same folder's disk: O_DIRECT, as many
bytes at once, in rounds that take turns.

    PYTHONPATH=... python3 tests/bench/store_ssd_reads.py [FOLDER]      with mooncaf's package; FOLDER on the disk in question
"""
import ctypes
import json
import mmap
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "integration"))
from cluster import BINARY, free_port, wait_until  # noqa: E402

SIZES = (160 << 10, 1 << 20, 16 << 20)
BATCH, TOTAL, MEMORY = 8, 768 << 20, 256 << 20
ROUNDS = int(os.environ.get("ROUNDS", "5"))


def raw(path, size, buffers):
    """Seconds for all of the file, in reads of `size`, `BATCH` of them at once."""
    fd, count = os.open(path, os.O_RDONLY | os.O_DIRECT), os.path.getsize(path) // size

    def reader(which):
        for i in range(which, count, BATCH):
            assert os.preadv(fd, [memoryview(buffers[which])[:size]], i * size) == size

    begin = time.perf_counter()
    threads = [threading.Thread(target=reader, args=(i,)) for i in range(BATCH)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    os.close(fd)
    return time.perf_counter() - begin


def ours(store, keys, size, buffers):
    begin = time.perf_counter()
    addresses = [ctypes.addressof(ctypes.c_char.from_buffer(b)) for b in buffers]
    for at in range(0, len(keys), BATCH):
        part = keys[at:at + BATCH]
        got = store.batch_get_into(part, addresses[:len(part)], [size] * len(part))
        assert got == [size] * len(part), got
    return time.perf_counter() - begin


def bench(folder, size):
    from mooncaf.store import MooncakeDistributedStore

    secret, at = os.path.join(folder, "secret"), f"127.0.0.1:{free_port()}"
    if not os.path.exists(secret):
        with open(os.open(secret, os.O_WRONLY | os.O_CREAT, 0o600), "w") as f:
            f.write("a secret of this bench alone, 0123456789")
    os.environ["MOONCAF_CLUSTER_SECRET_FILE"] = secret
    common = ["--directory", at, "--cluster-secret-file", secret]

    def asked(what):
        done = subprocess.run([BINARY, "store", what, "--json", *common], capture_output=True, text=True)
        return json.loads(done.stdout) if done.returncode == 0 else None

    disk, file = os.path.join(folder, f"ssd-{size}"), os.path.join(folder, "raw")
    started = [subprocess.Popen([BINARY, "store", "directory", "--listen", at, "--state", os.path.join(folder, "state"), "--lease",
                                 "0.2s", "--cluster-secret-file", secret], stderr=subprocess.DEVNULL)]
    try:
        wait_until("the directory listens", lambda: asked("stat") is not None)
        mount = [BINARY, "store", "mount", "--size", str(MEMORY) + "B", "--ssd-path", disk, "--ssd-size", "4GiB", "--write-policy",
                "write_through", "--promote-hits", "1000", *common]
        started.append(subprocess.Popen(mount, stderr=subprocess.DEVNULL))
        wait_until("both are mounted", lambda: len(asked("segments") or []) == 2)
        store = MooncakeDistributedStore()
        assert store.setup("bench", "P2PHANDSHAKE", 0, 64 << 20, "tcp", "", at) == 0
        keys = [f"k{i}" for i in range(TOTAL // size)]
        for i, key in enumerate(keys):
            assert store.put(key, os.urandom(size)) == 0
            if (i + 1) * size % (32 << 20) < size:
                wait_until("they are written", lambda: asked("stat")["ssd_objects"] == i + 1, 120)
        wait_until("all are written", lambda: asked("stat")["ssd_objects"] == len(keys), 120)
        started[1].terminate()  # memory is empty after this
        started[1].wait()
        wait_until("it is gone", lambda: asked("segments") == [])
        started[1] = subprocess.Popen(mount, stderr=subprocess.DEVNULL)
        wait_until("both are mounted again", lambda: len(asked("segments") or []) == 2)
        with open(file, "wb") as f:
            for _ in range(TOTAL >> 20):
                f.write(os.urandom(1 << 20))
            os.fsync(f.fileno())
        buffers = [mmap.mmap(-1, size) for _ in range(BATCH)]
        seconds = {"store": [], "raw": []}
        before = asked("stat")["ssd_loaded"]
        for _ in range(ROUNDS):
            seconds["store"].append(ours(store, keys, size, buffers))
            seconds["raw"].append(raw(file, size, buffers))
        loaded = asked("stat")["ssd_loaded"] - before
        store.close()
    finally:
        for process in reversed(started):
            process.terminate()
            process.wait()
    rate = {who: TOTAL / statistics.median(all) / 1e9 for who, all in seconds.items()}
    ratios = [r / s for s, r in zip(seconds["store"], seconds["raw"])]
    print(f"| {size >> 10} KiB | {rate['store']:.2f} | {rate['raw']:.2f} | {statistics.median(ratios):.2f} "
          f"({min(ratios):.2f} to {max(ratios):.2f}) | {loaded / ROUNDS / len(keys):.2f} |", flush=True)


def main():
    print(f"{TOTAL >> 20} MiB, memory {MEMORY >> 20} MiB, {BATCH} reads at once, medians of {ROUNDS} rounds that take turns")
    print("| size | store GB/s | raw O_DIRECT GB/s | store / raw | of it from SSD |\n| --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None, prefix="mooncaf-ssd-") as folder:
        for size in SIZES:
            bench(folder, size)


if __name__ == "__main__":
    main()
