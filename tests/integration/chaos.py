#!/usr/bin/env python3
"""Processes are killed with -9 while they work: streams end with the right tokens, nothing leaks, and what was killed
comes back and serves."""
import os
import sys
import threading

sys.path.insert(0, os.path.dirname(__file__))
from cluster import PATIENCE, Cluster, free_port, main, text_of, wait_until  # noqa: E402

PROMPT = "A list of rivers and the seas that they flow into, one on each line, with a remark on each of them:\n" * 12
LONG = "The history of measuring instruments, in many chapters, each longer than the one before it. " * 180
TOKENS = 160


class Deployment:
    """A conductor, a gateway, two prefill and two decode nodes, all of them processes of their own."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.control, self.http = free_port(), free_port()
        self.start("conductor", "--ttft-slo", f"{30 * PATIENCE}s")
        self.start("gateway", "--http", f"127.0.0.1:{self.http}")
        for role in ("prefill", "decode"):
            for i in range(2):
                self.start(f"{role}{i}", "--prefill-instances", "1", role=role)
        self.client = cluster.wait_healthy("127.0.0.1", self.http)
        self.wait_members(6)

    def start(self, name, *more, role=None):
        join = () if name == "conductor" else ("--join", f"127.0.0.1:{self.control}")
        listen = ("--listen", f"127.0.0.1:{self.control if name == 'conductor' else 0}")
        self.cluster.start(name, "--role", role or name, "--name", name, "--metrics-listen", "127.0.0.1:0",
                           "--threads", "1", *join, *listen, *more)

    def wait_members(self, count):
        def all_there():
            try:
                status, body = self.client.json("GET", "/cluster")
            except OSError:
                return False
            return status == 200 and len(body["nodes"]) == count
        wait_until(f"{count} nodes are in the cluster", all_there, 90)

    def node_of(self, role):
        """Name of the process that runs the newest placement's prefill or decode."""
        return self.client.cluster()["recent"][0][role].split("/")[0]

    def stream(self, prompt, on_token=None, tokens=TOKENS):
        """Streams a completion; calls on_token(count) after each piece. Returns the text."""
        text, count = "", 0
        for event in self.client.stream("/v1/completions", {"prompt": prompt, "temperature": 0, "max_tokens": tokens,
                                                            "ignore_eos": True}):
            if event is None:
                return text
            assert "error" not in event, event
            for choice in event["choices"]:
                text += choice["text"]
                count += 1
                if on_token:
                    on_token(count)
        raise AssertionError("the stream ended without [DONE]")


def killed_workers_cost_a_pause_and_nothing_else():
    with Cluster() as cluster:
        d = Deployment(cluster)
        expected = d.stream(PROMPT)

        def kill_decode(count):
            if count == 20:
                cluster.processes[d.node_of("decode")].kill9()

        assert d.stream(PROMPT, kill_decode) == expected
        d.wait_members(5)

        # A prefill worker dies while it computes a long prompt.
        before = d.client.cluster()["counters"]["placed"]
        wanted = {}
        long_answer = threading.Thread(target=lambda: wanted.update(text=d.stream(LONG, tokens=16)))
        long_answer.start()
        wait_until("the long prompt is placed", lambda: d.client.cluster()["counters"]["placed"] > before)
        cluster.processes[d.node_of("prefill")].kill9()
        long_answer.join(120 * PATIENCE)
        assert not long_answer.is_alive() and "text" in wanted, "the long prompt was not answered"
        d.wait_members(4)
        cluster.wait_idle(60)
        assert d.stream(LONG, tokens=16) == wanted["text"]

        # What was killed comes back and serves.
        for name, process in cluster.processes.items():
            if not process.alive():
                process.start()
        d.wait_members(6)
        assert d.stream(PROMPT) == expected
        cluster.wait_idle(60)


def a_killed_conductor_is_missed_by_nobody_who_is_served():
    with Cluster() as cluster:
        d = Deployment(cluster)
        expected = d.stream(PROMPT)

        def kill(count):
            if count == 20:
                cluster.processes["conductor"].kill9()

        assert d.stream(PROMPT, kill) == expected
        cluster.processes["conductor"].start()
        d.wait_members(6)
        assert d.stream(PROMPT) == expected
        # The shards told the new conductor what they hold.
        body = d.client.complete(prompt=PROMPT, temperature=0, max_tokens=4)
        assert body["usage"]["prompt_tokens_details"]["cached_tokens"] > 0, body["usage"]
        cluster.wait_idle(60)


def clients_that_leave_free_everything():
    with Cluster() as cluster:
        d = Deployment(cluster)

        class Left(Exception):
            pass

        def leave(count):
            if count == 5:
                raise Left

        for _ in range(5):
            try:
                d.stream(PROMPT, leave)
            except Left:
                pass
        cluster.wait_idle(60)


TESTS = [killed_workers_cost_a_pause_and_nothing_else, a_killed_conductor_is_missed_by_nobody_who_is_served,
         clients_that_leave_free_everything]

if __name__ == "__main__":
    main(TESTS)
