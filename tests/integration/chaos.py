#!/usr/bin/env python3
"""Processes are killed with -9 while they work: streams end with the right tokens, nothing leaks, and what was killed
comes back and serves."""
import os
import sys
import threading

sys.path.insert(0, os.path.dirname(__file__))
from cluster import PATIENCE, Client, Cluster, free_port, main, one_server, text_of, wait_until  # noqa: E402

PROMPT = "A list of rivers and the seas that they flow into, one on each line, with a remark on each of them:\n" * 12
LONG = "The history of measuring instruments, in many chapters, each longer than the one before it. " * 150
TOKENS = 160


class Deployment:
    """A conductor, a gateway, prefill and decode nodes (two of each), all of them processes of their own."""

    def __init__(self, cluster, workers=2):
        self.cluster = cluster
        self.control, self.http = free_port(), free_port()
        self.start("conductor", "--ttft-slo", f"{30 * PATIENCE}s")
        self.start("gateway", "--http", f"127.0.0.1:{self.http}")
        for role in ("prefill", "decode"):
            for i in range(workers):
                self.start(f"{role}{i}", "--prefill-instances", "1", role=role)
        self.client = cluster.wait_healthy("127.0.0.1", self.http)
        self.wait_members(2 + 2 * workers)

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

    def prefills(self, name):
        """Requests that a prefill node says it works on, in its last report."""
        return sum(i["running"] for i in self.client.cluster()["instances"] if i["node"] == name and i["role"] == "prefill")

    def stream(self, prompt, on_token=None, tokens=TOKENS, client=None, errors=None):
        """Streams a completion; calls on_token(count) after each piece. Returns the text; an error in the stream goes to
        `errors` and ends it."""
        text, count = "", 0
        for event in (client or self.client).stream("/v1/completions", {"prompt": prompt, "temperature": 0,
                                                                        "max_tokens": tokens, "ignore_eos": True}):
            if event is None:
                return text
            if "error" in event and errors is not None:
                errors.append(event)
                return text
            assert "error" not in event, event
            for choice in event["choices"]:
                text += choice["text"]
                count += 1
                if on_token:
                    on_token(count)
        raise AssertionError("the stream ended without [DONE]")


def undisturbed(prompt, tokens):
    """What one process answers that nobody disturbs."""
    with Cluster() as cluster:
        body = one_server(cluster).complete(prompt=prompt, temperature=0, max_tokens=tokens, ignore_eos=True)
        return text_of(body)


def killed_workers_cost_a_pause_and_nothing_else():
    expected_long = undisturbed(LONG, 16)
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
        wanted, arrived = {}, []
        long_answer = threading.Thread(
            target=lambda: wanted.update(text=d.stream(LONG, on_token=arrived.append, tokens=16)))
        long_answer.start()
        wait_until("the long prompt is placed", lambda: d.client.cluster()["counters"]["placed"] > before)
        victim = d.node_of("prefill")
        wait_until("the long prompt is being computed", lambda: d.prefills(victim) > 0)
        cluster.processes[victim].kill9()
        assert not arrived, "the first token came before the kill: it hit no prefill"
        long_answer.join(120 * PATIENCE)
        assert not long_answer.is_alive() and "text" in wanted, "the long prompt was not answered"
        assert wanted["text"] == expected_long, (wanted["text"], expected_long)
        d.wait_members(4)
        cluster.wait_idle(60)
        assert d.stream(LONG, tokens=16) == expected_long

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


def a_killed_gateway_takes_its_own_streams_and_no_more():
    with Cluster() as cluster:
        d = Deployment(cluster, workers=1)
        other = free_port()
        d.start("gateway2", "--http", f"127.0.0.1:{other}", role="gateway")
        d.wait_members(5)
        second = Client("127.0.0.1", other)
        wait_until("the second gateway serves", second.healthy, 60)
        expected = d.stream(PROMPT)
        lost = []

        def doomed():
            try:
                d.stream(PROMPT, client=second)
            except Exception as e:  # the connection ends in whatever way it does
                lost.append(e)

        threads = [threading.Thread(target=doomed) for _ in range(4)]

        def kill(count):
            if count == 5:
                for t in threads:
                    t.start()
                wait_until("the doomed requests are placed",
                           lambda: d.client.cluster()["counters"]["charged_requests"] >= 5)
                cluster.processes["gateway2"].kill9()

        assert d.stream(PROMPT, kill, tokens=TOKENS) == expected
        for t in threads:
            t.join(60 * PATIENCE)
        assert len(lost) == 4, lost
        # Nothing stays charged for requests whose gateway is gone.
        wait_until("no request is charged any more",
                   lambda: d.client.cluster()["counters"]["charged_requests"] == 0, 60)
        cluster.wait_idle(60)
        cluster.processes["gateway2"].start()
        wait_until("the second gateway serves again", second.healthy, 90)
        assert d.stream(PROMPT, client=second) == expected
        cluster.wait_idle(60)


def the_only_instance_of_a_role_is_missed_until_it_is_back():
    with Cluster() as cluster:
        d = Deployment(cluster, workers=1)
        expected = d.stream(PROMPT)
        for name in ("decode0", "prefill0"):
            killed = []

            def kill(count):
                if count == 20 and not killed:
                    cluster.processes[name].kill9()
                    killed.append(name)
                    cluster.processes[name].start()

            # The stream goes on once the node is back: a gateway places a request again for 15 s, a start takes two.
            assert d.stream(PROMPT, kill) == expected, name
            d.wait_members(4)
            wait_until("requests are served again", d.client.healthy, 90)
            assert d.stream(PROMPT) == expected, name
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
         a_killed_gateway_takes_its_own_streams_and_no_more, the_only_instance_of_a_role_is_missed_until_it_is_back,
         clients_that_leave_free_everything]

if __name__ == "__main__":
    main(TESTS)
