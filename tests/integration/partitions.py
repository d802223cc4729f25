#!/usr/bin/env python3
"""Links that break while both ends live, and processes that are stopped and go on: who is a member is together again
within seconds, nothing is placed across a broken link, nothing stays charged.

The links are those of network namespaces (see hosts.py), cut in one or both directions without a word to anybody.
"""
import contextlib
import os
import signal
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(__file__))
import hosts  # noqa: E402
import serving  # noqa: E402
from cluster import PATIENCE, Cluster, free_port, main, modelled, one_server, text_of, wait_until  # noqa: E402

NOWHERE = "02:00:00:00:00:01"  # no port of the bridge has it: what is sent there is gone


def cut(name, address):
    """Nothing that this host sends to the address arrives any more."""
    hosts.ip("-n", name, "neigh", "replace", address, "lladdr", NOWHERE, "dev", "eth", "nud", "permanent")


def heal(name, address):
    hosts.ip("-n", name, "neigh", "del", address, "dev", "eth")


@contextlib.contextmanager
def cluster_of(roles):
    """A host for each role; yields what a test needs to know of them."""
    with hosts.network(len(roles)) as (names, addresses, _), Cluster() as cluster:
        secret = hosts.secret_in(cluster, "secret", hosts.SECRET)
        control, http = free_port(), free_port()
        for i, role in enumerate(roles):
            more = ["--join", f"{addresses[0]}:{control}"] if i else []
            if "gateway" in role:
                more += ["--http", f"{addresses[i]}:{http}"]
                front = addresses[i]
            if role == "prefill":
                more += ["--prefill-instances", "1"]
            cluster.start(role, "--role", role, "--name", role, "--listen", f"{addresses[i]}:{0 if i else control}",
                          "--data-listen", f"{addresses[i]}:0", "--metrics-listen", "127.0.0.1:0", "--threads", "1",
                          "--cluster-secret-file", secret, *modelled(cluster.folder.name), *more, netns=names[i])
        client = cluster.wait_healthy(front, http)
        wait_until("all nodes are there", lambda: len(client.cluster()["nodes"]) == len(roles), 60)
        wait_until("all nodes can talk", lambda: client.cluster()["broken_links"] == [], 20)
        yield cluster, client, dict(zip(roles, names)), dict(zip(roles, addresses))


def ask(client, prompt, tokens=24):
    return text_of(client.complete(prompt=prompt, temperature=0, max_tokens=tokens, ignore_eos=True))


def in_background(work):
    """Runs it on a thread; the returned function waits for its result."""
    outcome = {}

    def run():
        try:
            outcome["value"] = work()
        except BaseException as e:  # told to whoever waits
            outcome["error"] = e
    thread = threading.Thread(target=run, daemon=True)
    thread.start()

    def wait(seconds):
        thread.join(seconds * PATIENCE)
        assert not thread.is_alive(), f"no end within {seconds} s"
        if "error" in outcome:
            raise outcome["error"]
        return outcome["value"]
    return wait


def a_cut_pair_is_together_again_after_any_kind_of_cut():
    with cluster_of(["conductor,gateway", "prefill", "decode"]) as (cluster, client, names, addresses):
        expected = {n: ask(client, f"Question {n}. {serving.STORY}") for n in range(3)}
        long_prompt = "A long answer. " + serving.STORY
        long_answer = ask(client, long_prompt, 300)
        for kind, ways in enumerate(([("prefill", "decode"), ("decode", "prefill")], [("prefill", "decode")],
                                     [("decode", "prefill")])):
            # A stream whose KV has gone over does not need the link any more.
            stream = in_background(lambda: ask(client, long_prompt, 300))
            wait_until("it decodes", lambda: any(i["running"] for i in client.cluster()["instances"]
                                                 if i["role"] == "decode"))
            for one, other in ways:
                cut(names[one], addresses[other])
            during = in_background(lambda: ask(client, f"Question {kind}. {serving.STORY}"))
            wait_until(f"cut {kind} is noticed", lambda: client.cluster()["broken_links"] == [["decode", "prefill"]] or
                       client.cluster()["broken_links"] == [["prefill", "decode"]], 20)
            for one, other in ways:
                heal(names[one], addresses[other])
            began = time.monotonic()
            wait_until(f"they are together again after cut {kind}", lambda: client.cluster()["broken_links"] == [], 30)
            print(f"     cut {kind}: together again {time.monotonic() - began:.1f} s after it healed", flush=True)
            assert during(30) == expected[kind], kind
            assert stream(60) == long_answer, kind
            assert ask(client, f"Question {kind}. {serving.STORY}") == expected[kind]
            cluster.wait_idle(60)


def a_gateway_that_lost_a_decode_node_while_nothing_happened_finds_it_again():
    with cluster_of(["conductor", "gateway", "prefill", "decode"]) as (cluster, client, names, addresses):
        expected = ask(client, serving.STORY)
        cut(names["gateway"], addresses["decode"])
        cut(names["decode"], addresses["gateway"])
        wait_until("the cut is noticed", lambda: len(client.cluster()["broken_links"]) == 1, 20)
        waiting = in_background(lambda: ask(client, serving.STORY))
        wait_until("it is refused a place", lambda: client.cluster()["counters"]["rejected_unavailable"] > 0)
        heal(names["gateway"], addresses["decode"])
        heal(names["decode"], addresses["gateway"])
        assert waiting(30) == expected
        assert ask(client, serving.STORY) == expected
        cluster.wait_idle(60)


def stopped(process, until):
    """SIGSTOP until something is so, then SIGCONT."""
    process.process.send_signal(signal.SIGSTOP)
    try:
        wait_until("the others noticed", until, 30)
    finally:
        process.process.send_signal(signal.SIGCONT)


def a_prefill_node_that_was_stopped_under_load_serves_again():
    for path in ("shm", "tcp"):
        with Cluster() as cluster:
            client = cluster.wait_healthy(*serving.three_processes(
                cluster, *modelled(cluster.folder.name), *(("--no-shm",) if path == "tcp" else ())))
            prompts = [f"Round {i}. {serving.STORY}" for i in range(6)]
            expected = [ask(client, p) for p in prompts]
            members = lambda: {n["name"] for n in client.cluster()["nodes"]}
            prefill = cluster.processes["prefill"]

            for prefix in ("Once more. ", "And again. "):
                load = [in_background(lambda p=p: client.json("POST", "/v1/completions",
                                                              {"prompt": prefix + p, "max_tokens": 8})) for p in prompts]
                stopped(prefill, lambda: prefill.node() not in members())
                began = time.monotonic()
                for one in load:
                    status, body = one(60)
                    assert status in (200, 503), (status, body)
                print(f"     {path}: what was under way ended within {time.monotonic() - began:.1f} s", flush=True)
                wait_until("it is a member again",
                           lambda: len(members()) == 3 and client.cluster()["broken_links"] == [], 30)
                assert [ask(client, p) for p in prompts] == expected
                # Nothing of it is in a cache: its KV has to go over.
                ask(client, f"Something new, {path}, {prefix}. {serving.STORY}")
                cluster.wait_idle(60)


def a_server_of_one_process_that_was_stopped_for_longer_than_silence_is_borne():
    with Cluster() as cluster:
        client = one_server(cluster, *modelled(cluster.folder.name))
        expected = ask(client, serving.STORY)
        awake = time.monotonic() + 17
        stopped(cluster.processes["all"], lambda: time.monotonic() > awake)
        assert ask(client, serving.STORY) == expected
        assert len(client.cluster()["nodes"]) == 1
        cluster.wait_idle()


def gateways_that_die_or_are_stopped_leave_nothing_charged():
    with Cluster() as cluster:
        control, ports = free_port(), [free_port() for _ in range(2)]
        common = ["--metrics-listen", "127.0.0.1:0", *modelled(cluster.folder.name)]
        cluster.start("workers", "--role", "conductor,prefill,decode", "--listen", f"127.0.0.1:{control}", *common)
        for i, port in enumerate(ports):
            cluster.start(f"gateway{i}", "--role", "gateway", "--name", f"gateway{i}", "--join", f"127.0.0.1:{control}",
                          "--listen", "127.0.0.1:0", "--http", f"127.0.0.1:{port}", *common)
        first, other = (cluster.wait_healthy("127.0.0.1", port) for port in ports)
        wait_until("all are there", lambda: len(other.cluster()["nodes"]) == 3)
        charged = lambda: other.cluster()["counters"]["charged_requests"]
        expected = ask(other, serving.STORY, 250)

        # Stopped while its streams flow: it loses everybody, and finds them again.
        streams = [in_background(lambda: ask(first, serving.STORY, 250)) for _ in range(4)]
        wait_until("they flow", lambda: charged() >= 4)
        stopped(cluster.processes["gateway0"], lambda: charged() == 0)
        for one in streams:
            assert one(90) == expected
        wait_until("nothing is charged", lambda: charged() == 0)

        lost = [in_background(lambda: ask(first, serving.STORY, 250)) for _ in range(4)]
        wait_until("they flow", lambda: charged() >= 4)
        cluster.processes["gateway0"].kill9()
        wait_until("nothing is charged", lambda: charged() == 0, 20)
        for one in lost:
            with contextlib.suppress(OSError, Exception):
                one(10)
        assert ask(other, serving.STORY, 250) == expected
        cluster.client = other
        cluster.wait_idle(60)


def a_node_says_once_that_nobody_is_there_and_ends_if_it_is_of_another_cluster():
    shape = "dummy:layers=2,dim=128,heads=4,kv_heads=2,ffn=256,vocab={}"
    with Cluster() as cluster:
        control, http = free_port(), free_port()
        common = ["--metrics-listen", "127.0.0.1:0"]
        join = ["--join", f"127.0.0.1:{control}", "--listen", "127.0.0.1:0", *common]
        worker = cluster.start("worker", "--role", "decode", "--name", "worker", "--model", shape.format(512), *join)
        wait_until("it says that nobody is there", lambda: "join 127.0.0.1" in worker.output())
        first = cluster.start("front", "--role", "conductor,gateway", "--name", "front", "--model", shape.format(512),
                              "--listen", f"127.0.0.1:{control}", "--http", f"127.0.0.1:{http}", *common)
        wait_until("it joined", lambda: "joined member=worker" in first.output())
        complaints = [line for line in worker.output().splitlines() if "problem=" in line]
        assert len(complaints) == len(set(line.split(" ", 1)[1] for line in complaints)) <= 3, complaints

        stranger = cluster.start("stranger", "--role", "prefill", "--name", "stranger", "--prefill-instances", "1",
                                 "--model", shape.format(600), "--served-model-name", "another", *join)
        assert stranger.process.wait(60 * PATIENCE) == 7, stranger.output()
        assert "front" in stranger.output() and "another" in stranger.output(), stranger.output()
        assert stranger.output().count("WARN") + stranger.output().count(" W ") <= 3, stranger.output()


TESTS = [a_node_says_once_that_nobody_is_there_and_ends_if_it_is_of_another_cluster,
         a_server_of_one_process_that_was_stopped_for_longer_than_silence_is_borne,
         a_prefill_node_that_was_stopped_under_load_serves_again,
         gateways_that_die_or_are_stopped_leave_nothing_charged]
IN_NAMESPACES = [a_cut_pair_is_together_again_after_any_kind_of_cut,
                 a_gateway_that_lost_a_decode_node_while_nothing_happened_finds_it_again]

if __name__ == "__main__":
    if hosts.possible():
        TESTS += IN_NAMESPACES
    else:
        print(f"{len(IN_NAMESPACES)} tests of broken links are left out")
    main(TESTS, at_once=6)  # they wait, mostly
