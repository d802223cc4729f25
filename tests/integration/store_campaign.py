#!/usr/bin/env python3
"""The whole object store against a simple model: random operations of clients in processes of their own, while clients,
holders and the directory are killed, links to the directory and to holders' memory are cut or stall, the directory stands
still, bits of the mounted memory and of what is on SSD flip, and memory is full, with an SSD behind it or without. The directory
is in one, two or three shards. Some objects belong to groups, or have a parent; some
objects are wider than a segment; replicas are copied and moved by tasks; where this runs as root some clients are another
user's processes, which may not map the memory and go through the network.

    store_campaign.py --seeds 1-50              # what CI runs
    store_campaign.py --seeds 1-500 --seconds 2 # more, longer
    store_campaign.py --seed 17 --keep          # one again, with its history left behind

Every operation is noted before and after; when all is over `store_model.py` says what cannot have happened: a wrong byte, a
value that was replaced or removed before it was asked for, an object that is gone though a replica was there all the time,
memory that nobody has and that is not free.
"""
import argparse
import concurrent.futures
import ctypes
import json
import os
import pathlib
import random
import select
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.dirname(__file__))
import store_client_process as clients  # noqa: E402
import store_model as model  # noqa: E402
from cluster import PATIENCE, TEMPORARY, Cluster, free_ports, give_back_ports, wait_until  # noqa: E402
from store_proxy import Proxy  # noqa: E402
from store_world import Store, package, ready  # noqa: E402

CLIENTS = 3
NOBODY = 65534


def memory_of(pid):
    """The descriptor of what a process mounts."""
    folder = f"/proc/{pid}/fd"
    return next(path for path in (os.path.join(folder, n) for n in os.listdir(folder)) if "mooncaf-segment" in os.readlink(path))


class Nursery:
    """Makes clients: a process without threads, which has the package already, forks for each."""

    def __init__(self):
        self.ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.lock = threading.Lock()
        if os.fork() == 0:
            self.ours.close()
            self.serve(theirs)
            os._exit(0)
        theirs.close()

    @staticmethod
    def serve(line):
        import mooncaf.store  # noqa: F401

        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them here
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])  # until they know what to do
        while job := line.recv(1 << 16):
            pid = os.fork()
            if pid == 0:
                line.close()
                ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: nobody outlives the campaign
                clients.work(json.loads(job))
                os._exit(0)
            line.send(str(pid).encode())

    def client(self, job):
        with self.lock:
            self.ours.send(json.dumps(job).encode())
            return Worker(int(self.ours.recv(100)), job["history"])


class Worker:
    def __init__(self, pid, history):
        self.pid, self.history, self.handle = pid, history, os.pidfd_open(pid)

    def signal(self, number):
        try:
            signal.pidfd_send_signal(self.handle, number)
        except ProcessLookupError:
            pass

    def join(self, seconds):
        ended, _, _ = select.select([self.handle], [], [], seconds)
        assert ended, f"client {self.pid} does not end"

    def __del__(self):
        os.close(self.handle)

    def closed(self):
        """Whether it came to its end by itself."""
        return '"closed"' in self.noted()

    def noted(self):
        history = pathlib.Path(self.history)
        return history.read_text() if history.exists() else ""


class Run:
    """One world with its faults, all drawn by the seed. What takes how long is the machine's business."""

    def __init__(self, seed, seconds, nursery):
        self.nursery = nursery
        self.seed, self.seconds, self.dice = seed, seconds, random.Random(seed)
        self.full = self.dice.random() < 0.3  # then objects make way for others
        self.segments = self.dice.choice((2, 3))
        self.policy = self.dice.choice(("write_back", "write_through", "write_through_selective"))
        self.ssd = "64MiB" if self.dice.random() < 0.3 else None  # behind each segment: what leaves memory, and what is killed, may come back
        self.shards = random.Random(f"shards of {seed}").choice((1, 1, 2, 3))
        self.strangers = [os.geteuid() == 0 and self.dice.random() < 0.3 for _ in range(CLIENTS)]
        self.events = []  # (time, what, whom), of faults
        self.folder = tempfile.mkdtemp(prefix=f"mooncaf-campaign-{seed}-", dir=TEMPORARY)
        self.workers, self.lives = {}, [0] * CLIENTS

    def __call__(self):
        with Cluster() as cluster:
            # A holder's memory is reached at one address of this host, where a proxy passes on to another: that of each shard.
            ports = [free_ports(self.shards) for _ in range(self.segments)]
            self.links = [Proxy(port, "127.0.0.2", port) for of_holder in ports for port in of_holder]
            self.world = Store(cluster, segments=self.segments, size="4MiB" if self.full else "48MiB", lease="200ms", recovery="0.1s",
                               ssd=self.ssd, mount=("--write-policy", self.policy), data=[(f"127.0.0.2:{first}", "127.0.0.1") for first, *_ in ports], shards=self.shards)
            again = self.world.directory.args = list(self.world.directory.args)
            again[again.index("--recovery") + 1] = "2s"  # when it has been killed: until then there is nothing that holders could tell
            self.proxies = [Proxy(self.world.port) for _ in range(CLIENTS)]
            for i in range(CLIENTS):
                self.start_client(i)
            try:
                wait_until("all clients work", lambda: all('"end"' in w.noted() for w in self.workers.values()))
                self.disturb()
                self.end_clients()
                self.settle()
            finally:
                for worker in self.workers.values():
                    worker.signal(signal.SIGKILL)
                for proxy in (*self.proxies, *self.links):
                    proxy.close()
        give_back_ports([*(port for of_holder in ports for port in of_holder), self.world.port])
        operations = [op for name in sorted(os.listdir(self.folder)) for op in model.read_history(os.path.join(self.folder, name))]
        problems = model.judge(operations, self.events, evicts=self.full)
        assert not problems, "; ".join(problems[:5])
        shutil.rmtree(self.world.folder)
        return operations

    # ---- clients

    def start_client(self, i):
        self.lives[i] += 1
        job = {"number": i, "life": self.lives[i], "clients": CLIENTS, "seed": self.seed * 1000 + i * 100 + self.lives[i],
               "address": f"127.0.0.1:{self.proxies[i].port}", "secret": self.secret_of(i), "full": self.full,
               "user": NOBODY if self.strangers[i] else None, "segments": [f"s{n}" for n in range(self.segments)],
               "history": os.path.join(self.folder, f"client-{i}-{self.lives[i]:03}.jsonl"),
               "before": [os.path.join(self.folder, f"client-{i}-{n:03}.jsonl") for n in range(1, self.lives[i])]}
        self.workers[i] = self.nursery.client(job)

    def secret_of(self, i):
        """A stranger has a copy of his own."""
        if not self.strangers[i]:
            return self.world.secret
        home = os.path.join(self.world.folder, f"home-{i}")
        if not os.path.exists(home):
            for folder in (self.world.folder, os.path.dirname(self.world.folder)):  # the script's own temporary directory
                os.chmod(folder, 0o711)
            os.mkdir(home)
            shutil.copy(self.world.secret, os.path.join(home, "secret"))
            for path in (home, os.path.join(home, "secret")):
                os.chown(path, NOBODY, NOBODY)
        return os.path.join(home, "secret")

    def end_clients(self):
        for worker in self.workers.values():
            worker.signal(signal.SIGTERM)
        for worker in self.workers.values():
            worker.join(60 * PATIENCE)
            assert worker.closed(), f"client {worker.pid} did not come to its end"

    # ---- faults

    def disturb(self):
        kinds = [self.kill_client, self.kill_directory, self.kill_holder, self.cut, self.stall, self.stop_directory, self.flip]
        if any(self.strangers):  # others map the memory
            kinds += [self.cut_data, self.stall_data] * 2
        if self.ssd:
            kinds += [self.rot, self.rot_while_down]
        end = time.monotonic() + self.seconds
        for _ in range(self.dice.randrange(1, 2 + int(2 * self.seconds))):
            fault, pause = self.dice.choice(kinds), self.dice.uniform(0.1, 0.5)
            threading.Event().wait(max(0.0, min(pause, end - time.monotonic())))
            fault()
        threading.Event().wait(max(0.0, end - time.monotonic()))

    def note(self, what, whom=""):
        self.events.append((time.monotonic_ns(), what, whom))

    def kill_client(self):
        i = self.dice.randrange(CLIENTS)
        self.note("kill client", i)
        self.workers[i].signal(signal.SIGKILL)
        self.workers[i].join(10)
        self.start_client(i)

    def kill_directory(self):
        self.note("kill directory")
        self.world.directory.kill9()
        self.world.directory.start()
        ready(self.world.directory)

    def kill_holder(self):
        i = self.dice.randrange(self.segments)
        self.world.holders[i].kill9()
        self.note("kill holder", f"s{i}")  # now that it has ended: what was written until then went with it
        self.world.holders[i].start()

    def cut(self):
        self.proxies[self.dice.randrange(CLIENTS)].cut()
        self.note("cut")

    def stall(self):
        self.note("stall")
        self.proxies[self.dice.randrange(CLIENTS)].stall(self.dice.uniform(0.02, 0.3))

    def cut_data(self):
        self.dice.choice(self.links).cut()
        self.note("cut data")

    def stall_data(self):
        self.note("stall data")
        self.dice.choice(self.links).stall(self.dice.uniform(0.02, 0.5))

    def stop_directory(self):
        self.note("stop directory")
        process = self.world.directory.process
        process.send_signal(signal.SIGSTOP)
        threading.Event().wait(self.dice.uniform(0.02, 0.2))
        process.send_signal(signal.SIGCONT)

    def flip(self):
        """Bits of a segment's memory, wherever: whoever reads what lies there finds out."""
        i = self.dice.randrange(self.segments)
        self.note("flip", f"s{i}")
        try:
            with open(memory_of(self.world.holders[i].process.pid), "r+b", buffering=0) as memory:
                size = memory.seek(0, os.SEEK_END)
                for _ in range(200):  # where objects are, which is at the beginning
                    at = self.dice.randrange(min(size, 4 << 20))
                    (byte,) = os.pread(memory.fileno(), 1, at)
                    os.pwrite(memory.fileno(), bytes([byte ^ 1 << self.dice.randrange(8)]), at)
        except (OSError, StopIteration):
            pass  # it was being started

    def rot(self):
        """Bits of what lies on SSD, while its holder reads and writes there."""
        i = self.dice.randrange(self.segments)
        self.note("rot", f"s{i}")
        self.flip_files(i, "*.blob")

    def rot_while_down(self):
        """Bits of any file of it, between a holder's end and its next start."""
        i = self.dice.randrange(self.segments)
        self.world.holders[i].kill9()
        self.note("kill holder", f"s{i}")
        self.note("rot", f"s{i}")
        self.flip_files(i, "*")
        self.world.holders[i].start()

    def flip_files(self, i, pattern):
        files = sorted(p for p in pathlib.Path(self.world.ssd_path(i)).rglob(pattern) if p.is_file())
        for path in self.dice.sample(files, min(len(files), 2)):
            try:
                with open(path, "r+b", buffering=0) as file:
                    size = file.seek(0, os.SEEK_END)
                    for _ in range(self.dice.choice((1, 20)) if size else 0):
                        at = self.dice.randrange(size)
                        (byte,) = os.pread(file.fileno(), 1, at)
                        os.pwrite(file.fileno(), bytes([byte ^ 1 << self.dice.randrange(8)]), at)
            except (OSError, ValueError):
                pass  # RocksDB has dropped the file, or cut it

    # ---- quiescence

    def settle(self):
        """Nobody is there any more: no reservation is left, and all memory is of objects, resting, or free."""
        for holder in self.world.holders:
            if not holder.alive():  # its directory was not there when it began
                holder.start()
            ready(holder)
        # A wait for a directory that waits for a holder that is gone is part of it.
        there = self.segments * (2 if self.ssd else 1)
        wait_until("all segments are mounted", lambda: len(self.world.json("segments")) == there, 30)
        wait_until("no reservation is left", lambda: self.world.json("stat")["reserved"] == 0, 30)
        wait_until("everything is removed", self.removed, 30)
        free_or_resting = lambda s: s["objects"] == s["ssd_bytes"] == 0 and s["free_bytes"] + s["resting_bytes"] == s["capacity_bytes"]  # noqa: E731
        wait_until("all memory is free, or rests", lambda: free_or_resting(self.world.json("stat")), 20)

    def removed(self):
        try:
            return self.world.run("rm", "--matching", ".", "--force") is not None
        except AssertionError:  # where nothing is scheduled for seconds, a greeting may come too late
            return False


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--seeds", default="1-50")
    arguments.add_argument("--seed", type=int)
    arguments.add_argument("--seconds", type=float, default=0.3, help="of faults and work in each run")
    arguments.add_argument("--jobs", type=int, default=4)
    arguments.add_argument("--keep", action="store_true", help="leave the histories behind")
    given = arguments.parse_args()
    first, _, last = given.seeds.partition("-")
    seeds = [given.seed] if given.seed else range(int(first), int(last or first) + 1)
    model.notices_what_is_wrong()
    package()
    nursery = Nursery()
    counts = {"passed": 0, "failed": 0, "operations": 0, "faults": 0}

    stopped = threading.Event()  # by SIGTERM: what was run until then is told
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())

    def one(seed):
        if stopped.is_set():
            return None
        run = Run(seed, given.seconds, nursery)
        try:
            operations = run()
            if not given.keep:
                shutil.rmtree(run.folder)
            return None, len(operations), len(run.events)
        except Exception as e:  # whatever it is, the seed is what matters
            return f"seed {seed}: {type(e).__name__}: {e} (history in {run.folder})", 0, len(run.events)

    with concurrent.futures.ThreadPoolExecutor(given.jobs) as pool:
        for problem, operations, faults in filter(None, pool.map(one, seeds)):
            counts["operations"] += operations
            counts["faults"] += faults
            counts["failed" if problem else "passed"] += 1
            if problem:
                print(problem, flush=True)
    print(f"RUNS: {counts['passed']} passed, {counts['failed']} failed, {counts['operations']} operations, {counts['faults']} faults")
    print(f"{int(not counts['failed'])} passed, {int(bool(counts['failed']))} failed, 0 skipped")
    sys.exit(1 if counts["failed"] else 0)


if __name__ == "__main__":
    main()
