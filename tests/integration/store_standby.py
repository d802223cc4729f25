#!/usr/bin/env python3
"""The object store of a cluster with three conductors: the directory goes with the leader, which is killed or stopped while clients
put, get and remove. No call fails, nothing that was put is lost, and nothing that was removed is there again."""
import json
import os
import signal
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(__file__))
from cluster import Cluster, Process, free_port, main, wait_until  # noqa: E402
from store_world import Store, noise, package, ready  # noqa: E402

SIZE = 120_000
GAP = 5.0  # s that a call may take while another directory takes over; most of it is for a loaded machine


class Trio(Store):
    """Three conductors, each with a directory's seat and a folder for its notes, and two caches with SSDs."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.make_secret()
        self.control, self.seats = [free_port() for _ in range(3)], [free_port() for _ in range(3)]
        self.join = ",".join(f"127.0.0.1:{p}" for p in self.control)
        self.at = ",".join(f"127.0.0.1:{p}" for p in self.seats)
        for n in range(3):
            self.node(f"conductor-{n}", "--role", "conductor", "--listen", f"127.0.0.1:{self.control[n]}", "--store-listen",
                      f"127.0.0.1:{self.seats[n]}", "--store-state", os.path.join(self.folder, f"state-{n}"), "--store-lease", "200ms")
        for n in range(2):
            self.node(f"cache-{n}", "--role", "cache", "--store-dram", "16MiB", "--store-ssd-path", self.ssd_path(n), "--store-ssd-size",
                      "256MiB", "--store-write-policy", "write_through")
        wait_until("both mount", self.all_mounted)

    def node(self, name, *args):
        process = Process(name, (*args, "--join", self.join, "--name", name, "--metrics-listen", "127.0.0.1:0", "--cluster-secret-file",
                                 self.secret), self.folder)
        self.cluster.processes[name] = process
        return process

    def all_mounted(self):
        return sorted(s["name"] for s in self.json("segments")) == ["cache-0", "cache-0/ssd", "cache-1", "cache-1/ssd"]

    def leader(self):
        """The conductor that opened its directory last, and runs; None while there is none."""
        opened = {}
        for n in range(3):
            process = self.cluster.processes[f"conductor-{n}"]
            terms = [int(word.removeprefix("term=")) for line in process.output().splitlines() if "directory=" in line
                     for word in line.split() if word.startswith("term=")]
            if process.alive() and terms:
                opened[terms[-1]] = process
        return opened[max(opened)] if opened else None


class Writers:
    """Clients that put, get and remove, and know what must be there. The longest call tells how long nobody served."""

    def __init__(self, world, count=3):
        self.world, self.stopping, self.longest, self.wrong, self.kept, self.gone = world, False, 0.0, [], {}, set()
        self.threads = [threading.Thread(target=self.run, args=(i,), daemon=True) for i in range(count)]
        for t in self.threads:
            t.start()

    def timed(self, call, *args):
        begin = time.monotonic()
        out = call(*args)
        self.longest = max(self.longest, time.monotonic() - begin)
        return out

    def run(self, i):
        store, number = self.world.client(), 0
        while not self.stopping:
            number += 1
            key, value = f"w{i}-{number}", noise(SIZE, number * 10 + i)
            if (code := self.timed(store.put, key, value)) != 0:
                self.wrong.append(("put", key, code, store.last_error()))
            if (got := self.timed(store.get, key)) != value:
                self.wrong.append(("get", key, len(got), store.last_error()))
            if number % 3 == 0:
                code = self.timed(store.remove, key, True)
                if code not in (0, -704):  # the answer was lost, and the object is gone
                    self.wrong.append(("remove", key, code))
                self.gone.add(key)
                if self.timed(store.is_exist, key) != 0:
                    self.wrong.append(("removed, and there", key))
            else:
                self.kept[key] = value
            time.sleep(0.02)
        store.close()

    def stop(self):
        self.stopping = True
        for t in self.threads:
            t.join()
        return self


def check_everything(store, writers):
    lost = [key for key, value in writers.kept.items() if store.get(key) != value]
    back = [key for key in writers.gone if store.is_exist(key) != 0]
    assert not lost and not back and not writers.wrong, (lost[:5], back[:5], writers.wrong[:5])


def test_the_directory_goes_with_the_leader_through_kills():
    with Cluster() as cluster:
        world = Trio(cluster)
        writers, gaps = Writers(world), []
        for round_ in range(4):
            wait_until("some are written", lambda: len(writers.kept) > 100 * (round_ + 1))
            before = world.leader()
            before.kill9()
            wait_until("another one leads", lambda: world.leader() not in (None, before))
            wait_until("both are back", world.all_mounted)
            wait_until("it goes on", lambda: len(writers.kept) > 100 * (round_ + 1) + 30)
            gaps.append(writers.longest)
            before.start()
            ready(before)
        writers.stop()
        store = world.client()
        check_everything(store, writers)
        assert len(writers.kept) * SIZE > 32 << 20, "more than their memory holds"
        assert max(gaps) < GAP, gaps
        print(f"  {len(writers.kept)} objects through four takeovers, longest call {max(gaps):.2f} s")
        store.close()


def test_a_leader_that_stood_still_serves_nobody_when_it_goes_on():
    with Cluster() as cluster:
        world = Trio(cluster)
        store = world.client()
        assert store.put("stays", b"a") == 0 and store.put("goes", b"b") == 0
        before = world.leader()
        os.kill(before.process.pid, signal.SIGSTOP)
        assert store.get("stays") == b"a"  # it notices by itself
        wait_until("both are with the next", world.all_mounted)
        assert store.remove("goes", True) == 0 and store.put("new", b"c") == 0
        os.kill(before.process.pid, signal.SIGCONT)
        late = world.client()
        for one in (store, late):
            assert [one.is_exist(k) for k in ("stays", "goes", "new")] == [1, 0, 1]
        wait_until("it stands by", lambda: "another conductor may lead" in before.output())
        assert store.get("new") == b"c"
        late.close()
        store.close()


def test_what_lies_on_ssds_outlives_the_whole_cluster():
    """The conductor that led last leads again: the others' notes are not the latest."""
    with Cluster() as cluster:
        world = Trio(cluster)
        world.leader().kill9()
        store = None
        wait_until("both are with the next", world.all_mounted)
        for process in list(cluster.processes.values()):
            if not process.alive():
                process.start()
                ready(process)
        store = world.client()
        values = {f"k{i}": noise(100_000, i) for i in range(100)}
        for n, (key, value) in enumerate(values.items(), 1):
            assert store.put(key, value) == 0
            if n % 10 == 0:  # what comes faster than it can be written stays in memory until it has to leave
                wait_until("they are written", lambda: json.loads(world.run("stat", "--json"))["ssd_objects"] == n)  # noqa: B023
        assert store.remove("k7", True) == 0
        store.close()
        last = world.leader()
        for process in cluster.processes.values():
            process.kill9()
        for process in cluster.processes.values():
            process.start()
        wait_until("all are back", world.all_mounted)
        assert world.leader() is last
        store = world.client()
        values.pop("k7")
        lost = [key for key, value in values.items() if store.get(key) != value]
        assert not lost and store.is_exist("k7") == 0, (len(lost), lost[:5])
        store.close()


if __name__ == "__main__":
    package()
    main([value for name, value in sorted(globals().items()) if name.startswith("test_")])
