#!/usr/bin/env python3
"""How long the object store is without its directory: killed with many objects over several holders, started again, and
asked at once. With several conductors the leader's directory is killed, and started again when another has taken over.

    python3 tests/bench/store_recovery.py     OBJECTS=1000000 HOLDERS=8 ROUNDS=3 SHARDS=1 CONDUCTORS=0; with mooncaf's package on the path
"""
import os
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "integration"))
from cluster import BINARY, free_port, wait_until  # noqa: E402
from mooncaf.store import MooncakeDistributedStore  # noqa: E402

OBJECTS, HOLDERS, ROUNDS, SHARDS, CONDUCTORS = (int(os.environ.get(*d)) for d in (
    ("OBJECTS", "1000000"), ("HOLDERS", "8"), ("ROUNDS", "3"), ("SHARDS", "1"), ("CONDUCTORS", "0")))
BATCH = 10_000


def cpu_seconds(process):
    fields = open(f"/proc/{process.pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def answers(at):
    host, port = at.split(":")
    with socket.socket() as s:
        return s.connect_ex((host, int(port))) == 0


def commands(seats, secret, folder):
    """Of the processes that carry a directory each."""
    common = ["--cluster-secret-file", secret]
    if not CONDUCTORS:
        return [[BINARY, "store", "directory", "--listen", seats[0], "--recovery", "10s", "--shards", str(SHARDS), *common]]
    control = [f"127.0.0.1:{free_port()}" for _ in seats]
    return [[BINARY, "--role", "conductor", "--join", ",".join(control), "--listen", control[i], "--store-listen", at, "--store-recovery",
             "10s", "--store-shards", str(SHARDS), "--store-state", os.path.join(folder, f"state-{i}"), "--metrics-listen", "127.0.0.1:0",
             *common] for i, at in enumerate(seats)]


def main():
    folder = tempfile.mkdtemp()
    secret = os.environ["MOONCAF_CLUSTER_SECRET_FILE"] = os.path.join(folder, "secret")
    with open(os.open(secret, os.O_WRONLY | os.O_CREAT, 0o600), "w") as f:
        f.write("a secret of this bench alone, 0123456789")
    seats = [f"127.0.0.1:{free_port()}" for _ in range(max(CONDUCTORS, 1))]
    at, directories = ",".join(seats), commands(seats, secret, folder)
    log = open(os.path.join(folder, "log"), "wb")
    running = [subprocess.Popen(d, stderr=log) for d in directories]
    try:
        store = MooncakeDistributedStore()
        wait_until("the directory listens", lambda: store.setup("bench", "P2PHANDSHAKE", 0, 1 << 20, "tcp", "", at) == 0)
        size = OBJECTS * 64 // HOLDERS * 5 // 4 + (SHARDS << 21)  # which a holder divides in pieces of 2 MiB
        for i in range(HOLDERS):
            running.append(subprocess.Popen([BINARY, "store", "mount", "--name", f"s{i}", "--size", f"{size // 1024}KiB",
                                             "--directory", at, "--cluster-secret-file", secret], stderr=log))
        wait_until("an object finds room", lambda: store.put("first", b"x") == 0, 60)
        keys = [[f"prefix-hash-{i:012}-layer" for i in range(b, min(b + BATCH, OBJECTS))] for b in range(0, OBJECTS, BATCH)]
        began = time.monotonic()
        for batch in keys:
            assert store.put_batch(batch, [k.encode() for k in batch]) == 0
        print(f"{OBJECTS} objects put in {time.monotonic() - began:.1f} s", flush=True)
        for _ in range(ROUNDS):
            victim = next(i for i, seat in enumerate(seats) if answers(seat))
            running[victim].kill()
            running[victim].wait()
            before = sum(map(cpu_seconds, running[len(seats):]))
            began = time.monotonic()
            if not CONDUCTORS:
                running[victim] = subprocess.Popen(directories[victim], stderr=log)
            while (first := store.is_exist(keys[0][0])) < 0:
                time.sleep(0.002)
            store.batch_is_exist(keys[0][:1000])  # answered when all shards are complete
            took = time.monotonic() - began
            serving = next(i for i, seat in enumerate(seats) if answers(seat))
            spent = cpu_seconds(running[serving]), sum(map(cpu_seconds, running[len(seats):])) - before
            if CONDUCTORS:
                running[victim] = subprocess.Popen(directories[victim], stderr=log)
                time.sleep(3)  # until it votes: of three the other two would be no majority
            there = sum(sum(store.batch_is_exist(batch)) for batch in keys)
            assert first == 1 and there == OBJECTS, (first, there)
            value = store.get(keys[-1][-1])
            assert value == keys[-1][-1].encode(), value
            print(f"complete again {took:.2f} s after the directory was killed, with {spent[0]:.2f} s of CPU time in it "
                  f"and {spent[1]:.2f} s in the holders; load {os.getloadavg()[0]:.1f}", flush=True)
    finally:
        for p in running:
            p.kill()


main()
