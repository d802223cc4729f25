#!/usr/bin/env python3
"""Transfers between two processes of this host, of our transfer engine and of Mooncake's (over TCP), in alternating rounds.

    python3 tests/bench/engine_peers.py     MOONCAF_REFERENCE_STORE=DIR with the wheel (tests/integration/store_reference.py),
                                            MOONCAF_PYTHON_MODULE our extension; ROUNDS=3 SECONDS=0.5
"""
import json
import os
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "integration"))
from store_world import package, package_path  # noqa: E402

SIZES = (64 << 10, 1 << 20, 4 << 20)
BATCH = 16
CODE = """
import ctypes, json, os, subprocess, sys, time
from mooncake.engine import TransferEngine
managed, seconds, batch, sizes = sys.argv[2] == "managed", float(sys.argv[3]), int(sys.argv[4]), json.loads(sys.argv[5])
whole = batch * max(sizes)
e = TransferEngine()
assert e.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0
def memory():
    if managed:
        at = e.allocate_managed_buffer(whole)
        ctypes.memset(at, 1, whole)
        return at
    memory.kept = ctypes.create_string_buffer(whole)
    at = ctypes.addressof(memory.kept)
    ctypes.memset(at, 1, whole)
    assert e.register_memory(at, whole) == 0
    return at
mine = memory()
if sys.argv[1] == "peer":
    print("PEER", e.get_rpc_port(), mine, flush=True)
    sys.stdin.read()
    os._exit(0)
peer = subprocess.Popen([sys.executable, "-c", sys.argv[6], "peer", *sys.argv[2:]], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                        stderr=subprocess.DEVNULL, text=True)
while not (line := peer.stdout.readline()).startswith("PEER"):
    assert line
_, port, there = line.split()
name, there, out = f"127.0.0.1:{port}", int(there), {}
for what in ("write", "read"):
    call = getattr(e, f"batch_transfer_sync_{what}")
    for size in sizes:
        here, far, sizes_ = [mine + i * size for i in range(batch)], [there + i * size for i in range(batch)], [size] * batch
        assert call(name, here, far, sizes_) == 0
        count, began = 0, time.perf_counter()
        while (took := time.perf_counter() - began) < seconds:
            assert call(name, here, far, sizes_) == 0
            count += 1
        out[f"{what} {size >> 10} KiB"] = count * batch * size / took / 1e9
print("FIGURES " + json.dumps(out), flush=True)
peer.stdin.close()
peer.wait()
os._exit(0)
"""


def measure(path, kind, key):
    env = {**os.environ, "PYTHONPATH": path, "MOONCAF_CLUSTER_SECRET_FILE": key}
    done = subprocess.run([sys.executable, "-c", CODE, "self", kind, os.environ.get("SECONDS", "0.5"), str(BATCH), json.dumps(SIZES), CODE],
                          env=env, capture_output=True, text=True, timeout=300)
    lines = [line for line in done.stdout.splitlines() if line.startswith("FIGURES ")]
    assert lines, done.stderr[-2000:]
    return json.loads(lines[0][8:])


def main():
    package()
    key = os.path.join(tempfile.mkdtemp(prefix="mooncaf-engine-"), "secret")
    with open(os.open(key, os.O_WRONLY | os.O_CREAT, 0o600), "w") as f:
        f.write("a secret of this bench alone, 0123456789\n")
    ours = package_path()
    sides = {"mooncaf, TCP": (ours, "plain"), "mooncaf, managed": (ours, "managed")}
    if reference := os.environ.get("MOONCAF_REFERENCE_STORE"):
        sides["Mooncake, TCP"] = (reference, "plain")
    rounds = {side: [] for side in sides}
    for _ in range(int(os.environ.get("ROUNDS", "3"))):
        for side, (path, kind) in sides.items():
            rounds[side].append(measure(path, kind, key))
    print(f"GB/s, median and range of {len(next(iter(rounds.values())))} rounds, {BATCH} pieces a call; load {os.getloadavg()[0]:.0f}")
    for row in next(iter(rounds.values()))[0]:
        print(row, *(f"{side}: {statistics.median(v):.2f} ({min(v):.2f}-{max(v):.2f})"
                     for side, figures in rounds.items() for v in [[f[row] for f in figures]]), sep="  ")


if __name__ == "__main__":
    main()
