#!/usr/bin/env python3
"""Two conductors, one of which leads: it is killed or stopped while clients stream, and no request is lost.

The devices are modelled: an answer depends on every token before it and on the KV that its worker was given, so lost, torn
or mixed-up state shows as other tokens."""
import contextlib
import os
import signal
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(__file__))
from cluster import PATIENCE, Cluster, free_port, main, modelled, wait_until  # noqa: E402
from rolling import Crowd, LOCAL, answer_to, prompt_of, ready  # noqa: E402

GAP = 1.0  # s: what a request may wait for a place when the leader is killed, at defaults; a loaded machine adds to it
SLACK = 2.0
SYSTEM = [(i * 13 + 5) % 256 for i in range(640)]  # ten blocks


class Pair:
    """Two conductors, two gateways, two prefill and two decode processes, each by itself."""

    def __init__(self, cluster, *more):
        self.cluster, self.device = cluster, modelled(cluster.folder.name)
        self.control, self.ports = [free_port(), free_port()], [free_port(), free_port()]
        common = (*self.device, "--join", ",".join(f"127.0.0.1:{p}" for p in self.control), *more)
        for n in range(2):
            cluster.start(f"conductor-{n}", "--role", "conductor", *common, "--name", f"conductor-{n}",
                          "--listen", f"127.0.0.1:{self.control[n]}", "--metrics-listen", "127.0.0.1:0")
        for n in range(2):
            for role in ("prefill", "decode"):
                cluster.start(f"{role}-{n}", "--role", role, *common, *LOCAL, "--name", f"{role}-{n}")
            cluster.start(f"gateway-{n}", "--role", "gateway", *common, *LOCAL, "--name", f"gateway-{n}",
                          "--http", f"127.0.0.1:{self.ports[n]}")
        for port in self.ports:
            cluster.wait_healthy("127.0.0.1", port)
        wait_until("all are members", lambda: len(cluster.client.cluster()["nodes"]) == 8)
        wait_until("the other stands by", lambda: len(self.leader()["standbys"]) == 1)

    def leader(self):
        with contextlib.suppress(OSError, AssertionError):
            return self.cluster.client.cluster()["leader"]
        return {"node": "", "standbys": [], "term": 0}

    def process(self, name):
        return self.cluster.processes[name]

    def restart(self, name):
        process = self.process(name)
        process.log.close()
        process.start()
        ready(process)
        wait_until(f"{name} stands by", lambda: name in self.leader()["standbys"])


class Probe:
    """Short requests, a few at once, each of which needs a place: the longest time between two that were answered."""

    def __init__(self, port, at_once=4):
        self.over, self.ends, self.problems, self.lock = threading.Event(), [], [], threading.Lock()
        self.threads = [threading.Thread(target=self.ask, args=(port, n)) for n in range(at_once)]

    def ask(self, port, number):
        prompt = prompt_of(number, 1)
        while not self.over.is_set():
            try:
                answer_to(port, prompt)
            except Exception as e:  # whatever it is, a client lost a request
                self.problems.append(f"{type(e).__name__}: {e}")
            with self.lock:
                self.ends.append(time.monotonic())

    def __enter__(self):
        for t in self.threads:
            t.start()
        wait_until("the probe runs", lambda: len(self.ends) > 8)
        return self

    def __exit__(self, *_):
        self.over.set()
        for t in self.threads:
            t.join()
        assert not self.problems, self.problems[:3]

    def gap_around(self, moment):
        """The longest pause that began before, or within two seconds after."""
        wait_until("answers come again", lambda: sum(e > moment + 2 for e in self.ends) > 4)
        with self.lock:
            ends = sorted(self.ends)
        return max(b - a for a, b in zip(ends, ends[1:]) if b > moment and a < moment + 2)


def a_killed_leader_is_replaced_within_a_second_and_nothing_is_lost():
    with Cluster() as cluster:
        pair = Pair(cluster)
        assert pair.leader()["node"] == "conductor-0", pair.leader()
        gaps, term = [], 0
        with Crowd(pair.ports, 12) as crowd, Probe(pair.ports[0]) as probe:
            crowd.more(12)
            for victim in ("conductor-0", "conductor-1", "conductor-0"):
                heir = "conductor-1" if victim == "conductor-0" else "conductor-0"
                assert pair.leader()["node"] == victim and pair.leader()["term"] > term, (pair.leader(), term)
                term = pair.leader()["term"]
                moment = time.monotonic()
                pair.process(victim).kill9()
                gaps.append(probe.gap_around(moment))
                wait_until(f"{heir} leads", lambda: pair.leader()["node"] == heir)
                crowd.more(12)
                pair.restart(victim)
                crowd.more(12)
            whole = crowd.end()
        print(f"    {whole} requests, none lost; no answer for {', '.join(f'{1000 * g:.0f}' for g in gaps)} ms")
        assert max(gaps) < (GAP + SLACK) * PATIENCE, gaps
        cluster.wait_idle()


def cached_tokens(port, client):
    """Of a prompt whose beginning everybody has asked for."""
    body = client.complete(prompt=SYSTEM + [512], max_tokens=4)
    return body["usage"]["prompt_tokens_details"]["cached_tokens"]


def the_index_of_a_standby_is_warm():
    with Cluster() as cluster:
        pair = Pair(cluster)
        client = cluster.client
        cached_tokens(pair.ports[1], client)
        blocks = wait_until("blocks are announced", lambda: client.cluster()["index"]["blocks"])
        wait_until("the prefix is found", lambda: cached_tokens(pair.ports[1], client) > 500)
        before = client.cluster()["index"]["blocks"]
        pair.process("conductor-0").kill9()
        # The first request that the other places.
        assert cached_tokens(pair.ports[1], client) > 500
        assert pair.leader()["node"] == "conductor-1"
        assert client.cluster()["index"]["blocks"] >= max(blocks, before - 1), (blocks, before)


def a_leader_that_was_stopped_is_no_leader_when_it_goes_on():
    with Cluster() as cluster:
        pair = Pair(cluster)
        first = pair.process("conductor-0")
        with Crowd(pair.ports, 8) as crowd:
            crowd.more(8)
            first.process.send_signal(signal.SIGSTOP)
            wait_until("the other leads", lambda: pair.leader()["node"] == "conductor-1")
            crowd.more(16)
            first.process.send_signal(signal.SIGCONT)
            wait_until("it stands by", lambda: "conductor-0" in pair.leader()["standbys"])
            crowd.more(16)
            assert pair.leader()["node"] == "conductor-1"
            crowd.end()
        # It said so as soon as it went on.
        assert 'stands="this conductor' in first.output(), first.output()[-2000:]
        cluster.wait_idle()


def without_most_of_the_cluster_nothing_is_placed_and_the_reason_is_told():
    with Cluster() as cluster:
        pair = Pair(cluster)
        others = [f"{role}-{n}" for role in ("prefill", "decode") for n in range(2)] + ["conductor-1"]
        for name in others:
            pair.process(name).process.send_signal(signal.SIGSTOP)
        client = cluster.client
        wait_until("it says so", lambda: client.request("GET", "/health")[0] == 503)
        status, body = client.json("GET", "/health")
        assert "cut off from most of the cluster: 3 of 8 voters" in body["error"]["message"], body
        status, body = client.json("POST", "/v1/completions", {"prompt": prompt_of(1, 3), "max_tokens": 5})
        assert status == 503 and "cut off from most" in body["error"]["message"], (status, body)
        for name in others:
            pair.process(name).process.send_signal(signal.SIGCONT)
        wait_until("it is whole again", lambda: client.request("GET", "/health")[0] == 200)
        assert len(answer_to(pair.ports[0], prompt_of(1, 3))) >= 2


if __name__ == "__main__":
    main([a_killed_leader_is_replaced_within_a_second_and_nothing_is_lost, the_index_of_a_standby_is_warm,
          a_leader_that_was_stopped_is_no_leader_when_it_goes_on,
          without_most_of_the_cluster_nothing_is_placed_and_the_reason_is_told])
