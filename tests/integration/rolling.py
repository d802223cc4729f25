#!/usr/bin/env python3
"""Processes that are told to stop, one after the other, while clients ask all the time: nothing is lost.

The devices are modelled: an answer depends on every token before it and on the KV that its worker was given, so lost, torn
or mixed-up state shows as other tokens."""
import concurrent.futures
import contextlib
import http.client
import json
import os
import signal
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(__file__))
from cluster import Client, Cluster, free_port, main, modelled, one_server, wait_until  # noqa: E402

FIRST_LENGTH_WORD = 512  # runtime/sim/modelled_pass.hpp
LOCAL = ("--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0")


def prompt_of(number, tokens):
    """Its last token says how long the answer is."""
    return [(number * 37 + i * 11) % 256 for i in range(30 + number * 7)] + [FIRST_LENGTH_WORD + tokens - 1]


PROMPTS = [prompt_of(n, (30, 90, 250)[n % 3]) for n in range(12)]


def tokens_of(connection, prompt):
    """A streamed answer; raises whatever keeps it from being whole."""
    body = {"prompt": prompt, "max_tokens": 2000, "stream": True, "return_token_ids": True, "temperature": 0}
    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    response = connection.getresponse()
    data = response.read().decode()
    assert response.status == 200, (response.status, data)
    events = [line[6:] for line in data.splitlines() if line.startswith("data: ")]
    assert events and events[-1] == "[DONE]", data[-400:]
    tokens = []
    for event in map(json.loads, events[:-1]):
        assert "error" not in event, event
        for choice in event["choices"]:
            tokens += choice.get("token_ids") or []
    return tokens


def answer_to(port, prompt):
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        return tokens_of(connection, prompt)


class Crowd:
    """Clients that ask one thing after the other; every second one keeps its connection."""

    def __init__(self, ports, size):
        with concurrent.futures.ThreadPoolExecutor(len(PROMPTS)) as pool:
            self.expected = list(pool.map(lambda p: answer_to(ports[0], p), PROMPTS))
        for prompt, answer in zip(PROMPTS, self.expected):
            assert len(answer) >= prompt[-1] - FIRST_LENGTH_WORD, (prompt[-1], len(answer))
        self.over, self.whole, self.broken, self.longest = threading.Event(), 0, [], 0.0
        self.lock = threading.Lock()
        self.threads = [threading.Thread(target=self.ask, args=(i, ports[i % len(ports)])) for i in range(size)]
        for t in self.threads:
            t.start()

    def ask(self, number, port):
        keeps, turn = number % 4 < 2, number
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=90)
        while not self.over.is_set():
            turn += 5
            began, wrong = time.monotonic(), None
            try:
                if tokens_of(connection, PROMPTS[turn % len(PROMPTS)]) != self.expected[turn % len(PROMPTS)]:
                    wrong = "other tokens"
            except (OSError, AssertionError, http.client.HTTPException) as e:
                wrong = f"{type(e).__name__}: {e}"
            if wrong or not keeps:
                connection.close()
            with self.lock:
                self.whole += wrong is None
                self.longest = max(self.longest, time.monotonic() - began)
                if wrong:
                    self.broken.append(f"at {began:.1f} s, port {port}: {wrong}")
        connection.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.over.set()
        for t in self.threads:
            t.join()

    def more(self, count):
        """Waits for so many more answers: the cluster works."""
        before = self.whole + len(self.broken)
        wait_until(f"{count} more answers", lambda: self.whole + len(self.broken) >= before + count, 60)

    def end(self):
        self.__exit__()
        assert not self.broken, (len(self.broken), self.whole, self.broken[:8])
        return self.whole


def ready(process):
    wait_until(f"{process.name} is ready", lambda: b"ready roles=" in
               process.log_path.read_bytes()[process.log_before:] or not process.alive())
    assert process.alive(), process.output()[-3000:]


def told_to_stop(process, limit=40):
    process.process.terminate()
    assert process.process.wait(limit) == 0, process.output()[-3000:]


def members(cluster):
    """By name; none while there is no conductor to ask."""
    status, body = cluster.client.json("GET", "/cluster")
    return {n["name"]: n for n in body["nodes"]} if status == 200 else {}


class Eight:
    """Two gateways, a conductor, two prefill and two decode processes, and a cache node, each by itself."""

    def __init__(self, cluster, *workers, every=()):
        self.cluster, self.device = cluster, (*modelled(cluster.folder.name), *every)
        self.ports, self.control = [free_port(), free_port()], free_port()
        common = (*self.device, "--join", f"127.0.0.1:{self.control}", *LOCAL)
        cluster.start("conductor", "--role", "conductor", "--listen", f"127.0.0.1:{self.control}", *self.device,
                      "--metrics-listen", "127.0.0.1:0", "--name", "conductor")
        for n in range(2):
            for role in ("prefill", "decode"):
                cluster.start(f"{role}-{n}", "--role", role, *common, "--name", f"{role}-{n}", *workers)
        cluster.start("cache", "--role", "cache", *common, "--name", "cache")
        for n, port in enumerate(self.ports):
            cluster.start(f"gateway-{n}", "--role", "gateway", *common, "--name", f"gateway-{n}", "--http",
                          f"127.0.0.1:{port}", "--http-handover", os.path.join(cluster.folder.name, f"front-{n}"))
        for port in self.ports:
            cluster.wait_healthy("127.0.0.1", port)
        wait_until("all are members", lambda: len(members(cluster)) == 8)

    def restart(self, name):
        process = self.cluster.processes[name]
        told_to_stop(process)
        process.log.close()
        process.start()
        ready(process)
        # Its predecessor's name may still be there; a new member has not been told to stop.
        wait_until(f"{name} is back", lambda: not members(self.cluster).get(name, {"draining": True})["draining"])

    def succeed(self, name):
        """A gateway's successor listens before the gateway is told to stop."""
        old = self.cluster.processes.pop(name)
        new = self.cluster.start(f"{name}-next", *old.args)
        self.cluster.processes[name] = self.cluster.processes.pop(new.name)
        ready(new)
        told_to_stop(old)
        old.log.close()


def a_rolling_restart_loses_no_request():
    with Cluster() as cluster:
        eight = Eight(cluster)
        with Crowd(eight.ports, 33) as crowd:
            crowd.more(33)
            began = time.monotonic()
            for name in ("prefill-0", "prefill-1", "decode-0", "decode-1", "cache", "conductor"):
                eight.restart(name)
                crowd.more(20)
            for name in ("gateway-0", "gateway-1"):
                eight.succeed(name)
                crowd.more(20)
            took = time.monotonic() - began
            whole = crowd.end()
            print(f"    {whole} requests, the longest took {crowd.longest:.1f} s; eight restarts took {took:.1f} s")
        cluster.wait_idle()


def versions(cluster):
    """Of the messages that each process sends, as they report it; 0 of one that does not tell."""
    return {name: member["speaks"] for name, member in members(cluster).items()}


def an_upgrade_and_its_way_back_lose_no_request():
    """Eight processes that know no later messages than the release before are replaced by ones of this release: what both know
    is said until the last old one is gone, and again when one comes back."""
    before = ("--wire-version", "14")
    with Cluster() as cluster:
        eight = Eight(cluster, every=before)

        def replace(name, args):
            cluster.processes[name].args = args
            (eight.succeed if name.startswith("gateway") else eight.restart)(name)
            crowd.more(20)

        with Crowd(eight.ports, 33) as crowd:
            crowd.more(33)
            for name in ("prefill-0", "decode-0", "cache", "gateway-0", "conductor", "prefill-1", "gateway-1", "decode-1"):
                assert set(versions(cluster).values()) == {14}, versions(cluster)
                replace(name, [a for a in cluster.processes[name].args if a not in before])
            wait_until("all say what is new", lambda: set(versions(cluster).values()) == {15})
            assert all(m["release"] for m in members(cluster).values()), members(cluster)
            crowd.more(33)
            replace("decode-0", [*cluster.processes["decode-0"].args, *before])
            wait_until("all say what it knows", lambda: set(versions(cluster).values()) == {14})
            crowd.more(33)
            print(f"    {crowd.end()} requests")
        cluster.wait_idle()


def what_runs_longer_than_the_timeout_is_handed_over():
    with Cluster() as cluster:
        eight = Eight(cluster, "--drain-timeout", "300ms")
        with Crowd(eight.ports, 12) as crowd:
            crowd.more(12)
            for name in ("decode-0", "prefill-0", "decode-1"):
                eight.restart(name)
                crowd.more(12)
            crowd.end()
        assert "requests to be handed over" in cluster.processes["decode-0"].output(), "nothing had to be"
        cluster.wait_idle()


def the_last_instance_of_a_role_is_waited_for():
    with Cluster() as cluster:
        eight = Eight(cluster)
        for name in ("decode-1", "prefill-1"):
            told_to_stop(cluster.processes[name])
        with Crowd(eight.ports, 8) as crowd:
            crowd.more(8)
            for name in ("decode-0", "prefill-0"):
                eight.restart(name)
                crowd.more(8)
            crowd.end()
        cluster.wait_idle()


def a_draining_process_says_so():
    with Cluster() as cluster:
        eight = Eight(cluster)
        answer = []
        running = threading.Thread(target=lambda: answer.extend(answer_to(eight.ports[0], prompt_of(1, 300))))
        running.start()
        wait_until("it decodes", lambda: cluster.client.cluster()["requests"]["running"] == 1)
        used = next(i["node"] for i in cluster.client.cluster()["instances"] if i["role"] == "decode" and i["running"])
        cluster.processes[used].process.terminate()
        cluster.processes["gateway-0"].process.terminate()
        for name in (used, "gateway-0"):
            wait_until(f"{name} is shown as draining", lambda: members(cluster)[name]["draining"])
        states = {i["node"]: i["state"] for i in cluster.client.cluster()["instances"]}
        assert states.pop(used) == "draining" and set(states.values()) == {"live"}, states
        assert cluster.client.healthy()
        running.join()
        assert len(answer) >= 299, len(answer)
        assert all(cluster.processes[name].process.wait(20) == 0 for name in (used, "gateway-0"))


def a_gateway_alone_ends_what_it_has_and_takes_no_more():
    with Cluster() as cluster:
        client = one_server(cluster, *modelled(cluster.folder.name))
        process = cluster.processes["all"]
        keeps = http.client.HTTPConnection("127.0.0.1", client.port, timeout=60)
        keeps.request("GET", "/health")
        assert keeps.getresponse().read()
        answer = []
        running = threading.Thread(target=lambda: answer.extend(answer_to(client.port, prompt_of(2, 150))))
        running.start()
        wait_until("it runs", lambda: client.cluster()["requests"]["running"] == 1)
        process.process.terminate()
        wait_until("it drains", lambda: "draining waits" in process.output())
        keeps.request("GET", "/health")
        told = keeps.getresponse()
        assert (told.status, told.getheader("Connection")) == (503, "close"), told.status
        assert "draining" in json.loads(told.read())["error"]["message"]
        try:
            client.request("GET", "/health")
            raise AssertionError("a connection was taken")
        except ConnectionRefusedError:
            pass
        running.join()
        assert len(answer) >= 149, len(answer)
        assert process.process.wait(20) == 0


def a_second_signal_ends_it_at_once():
    with Cluster() as cluster:
        client = one_server(cluster, *modelled(cluster.folder.name))
        process = cluster.processes["all"]
        stream = client.stream("/v1/completions", {"prompt": prompt_of(3, 1500), "max_tokens": 2000})
        next(stream)
        process.process.terminate()
        wait_until("it drains", lambda: "draining waits" in process.output())
        process.process.send_signal(signal.SIGINT)
        assert process.process.wait(5) == 128 + signal.SIGINT
        stream.close()


if __name__ == "__main__":
    main([a_rolling_restart_loses_no_request, an_upgrade_and_its_way_back_lose_no_request, what_runs_longer_than_the_timeout_is_handed_over,
          the_last_instance_of_a_role_is_waited_for, a_draining_process_says_so,
          a_gateway_alone_ends_what_it_has_and_takes_no_more, a_second_signal_ends_it_at_once])
