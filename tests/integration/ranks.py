#!/usr/bin/env python3
"""Groups of several processes: ranks with a part of the layers or a share of them each, and a leader that is an instance of the
cluster. Answers are those of one device, whoever dies and wherever the prefix comes from."""
import os
import subprocess
import sys
import threading

sys.path.insert(0, os.path.dirname(__file__))
from cluster import BINARY, MODEL, Cluster, free_port, free_ports, main, one_server, text_of, wait_until  # noqa: E402

OWN = ("--data-listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0")
SMALL = ("--model", "dummy:layers=6,dim=256,heads=4,kv_heads=2,ffn=512,vocab=1024,ctx=4096", "--block-tokens", "16", "--threads", "1")
MIXTURE = ("--model", "dummy:gpt-oss-20b,layers=3,dim=256,heads=8,kv_heads=2,ffn=256,vocab=1024", "--block-tokens", "16", "--threads", "1",
           "--context-length", "4096")
REAL = ("--model", MODEL, "--threads", "1", "--context-length", "2048")
STORY = " ".join(f"Ship {i} came in with {i * 37 % 101} barrels." for i in range(60))  # some 700 tokens of words, 2,000 of bytes


def answer(client, prompt, tokens=16):
    body = client.complete(prompt=prompt, max_tokens=tokens, temperature=0, ignore_eos=True, logprobs=2)
    return ((text_of(body), body["choices"][0]["logprobs"]["token_logprobs"]),
            body["usage"]["prompt_tokens_details"]["cached_tokens"])


def start_ranks(cluster, stages, *options, name="rank", tensor=1):
    """All but the last stage, or the first rank of it. @returns what their leader is told."""
    places = [(stage, rank) for stage in range(stages) for rank in range(tensor) if (stage, rank) != (stages - 1, 0)]
    ports = [free_port() for _ in places]
    for i, (port, (stage, rank)) in enumerate(zip(ports, places)):
        share = ("--tensor", str(tensor), "--tensor-rank", str(rank + 1)) if tensor > 1 else ()
        cluster.start(f"{name}{i + 1}", "--role", "rank", "--pipeline", str(stages), "--stage", str(stage + 1), *share, "--listen",
                      f"127.0.0.1:{port}", *OWN, *options)
    return ("--ranks", ",".join(f"127.0.0.1:{p}" for p in ports), *(("--tensor", str(tensor)) if tensor > 1 else ()))


def front(cluster, *options):
    port, control = free_port(), free_port()
    cluster.start("front", "--role", "conductor,gateway", "--listen", f"127.0.0.1:{control}", "--metrics-listen", "127.0.0.1:0",
                  "--http", f"127.0.0.1:{port}", *options)
    return port, ("--join", f"127.0.0.1:{control}", "--listen", "127.0.0.1:0", *OWN, *options)


_expected = {}


def expected(prompt, *options):
    """Of one device, in a process of its own."""
    if (prompt, options) not in _expected:
        with Cluster() as cluster:
            client = one_server(cluster, "--prefill-instances", "1", *options)
            for p in (STORY, STORY + " And then", "The capital of France is"):
                _expected[p, options] = answer(client, p)[0]
    return _expected[prompt, options]


def groups_of_processes_give_the_tokens_of_one_device_and_read_what_others_wrote():
    """Prefill and decode are groups of several processes, stages and ranks; then the same prefix from the cache of both."""
    int8 = (*REAL, "--kv-dtype", "int8")
    for prefill, decode, options, own in (((3, 1), (2, 1), REAL, ()), ((1, 3), (1, 3), REAL, ("--no-shm",)), ((2, 3), (1, 3), int8, ()),
                                          ((2, 2), (1, 2), MIXTURE, ("--expert", "2"))):
        with Cluster() as cluster:
            port, join = front(cluster, *options)
            cluster.start("prefill", "--role", "prefill,cache", "--prefill-instances", "1", "--chunk-tokens", "128", *join, *own,
                          *start_ranks(cluster, prefill[0], *options, *own, name="prefill-rank", tensor=prefill[1]))
            cluster.start("decode", "--role", "decode,cache", *join, *own,
                          *start_ranks(cluster, decode[0], *options, *own, name="decode-rank", tensor=decode[1]))
            client = cluster.wait_healthy("127.0.0.1", port)
            for prompt in (STORY, "The capital of France is", STORY + " And then"):
                got, cached = answer(client, prompt)
                assert got == expected(prompt, *options), (options, own, prompt[:20], got)
            assert cached > 500, cached
            cluster.wait_idle()


def requests_go_elsewhere_when_a_rank_dies_and_the_group_serves_again():
    """The leader of a group with nothing else to do ends with its rank, as one does whose device fails; started again, it finds
    the other ranks with their weights loaded: of three stages, of four ranks, and of four that divide the experts."""
    a_rank_dies(stages=3, tensor=1, victim="rank2", stays="rank1")
    a_rank_dies(stages=1, tensor=4, victim="rank2", stays="rank3")
    a_rank_dies(stages=1, tensor=4, victim="rank1", stays="rank3", model=MIXTURE, expert=("--expert", "4"))


def a_rank_dies(stages, tensor, victim, stays, model=SMALL, expert=()):
    with Cluster() as cluster:
        port, join = front(cluster, *model)
        ranks = start_ranks(cluster, stages, *model, *expert, tensor=tensor)
        leader = cluster.start("leader", "--role", "prefill", "--prefill-instances", "1", "--chunk-tokens", "64", *join, *ranks, *expert)
        cluster.start("decode", "--role", "decode,cache", *join)
        client = cluster.wait_healthy("127.0.0.1", port)
        wait_until("the group is there", lambda: any(i["role"] == "prefill" for i in client.cluster()["instances"]))
        cluster.start("other", "--role", "prefill", "--prefill-instances", "1", *join)
        prompts = [f"{i} {STORY}" for i in range(12)]
        wait_until("both are there", lambda: len(client.cluster()["instances"]) == 3)
        wanted = {p: answer(client, p)[0] for p in prompts[:2]}
        got, threads = {}, []

        def ask(prompt):
            got[prompt] = answer(client, prompt)[0]

        for p in prompts:
            threads.append(threading.Thread(target=ask, args=(p,)))
            threads[-1].start()
        wait_until("the group computes", lambda: any(
            i["running"] for i in client.cluster()["instances"] if i["role"] == "prefill" and i["node"] == leader.node()))
        cluster.processes[victim].kill9()
        for t in threads:
            t.join()
        assert len(got) == 12, sorted(got)
        assert all(got[p] == wanted[p] for p in wanted), "other tokens"
        assert leader.process.wait(20) == 70, leader.output()[-2000:]
        assert "rank lost" in leader.output() or "device failed" in leader.output(), leader.output()[-2000:]
        cluster.processes[victim].start()
        leader.start()
        wait_until("the group is back", lambda: len(client.cluster()["instances"]) == 3)
        survivor = cluster.processes[stays].output()
        assert survivor.count(" loading model=") == 1 and survivor.count(" leader name=") == 2, survivor
        cluster.processes.pop("other").stop()
        wait_until("the other has left", lambda: len(client.cluster()["instances"]) == 2)
        assert answer(client, prompts[0])[0] == wanted[prompts[0]]
        cluster.wait_idle()


def a_prompt_of_32000_tokens_is_that_of_one_device():
    """By two stages and by two ranks, in bounded memory."""
    options = ("--model", "dummy:layers=2,dim=64,heads=2,kv_heads=2,ffn=128,vocab=512,ctx=33000", "--threads", "1")
    prompt, answers = [i * 7919 % 500 for i in range(32000)], []
    for stages, tensor in ((1, 1), (2, 1), (1, 2)):
        with Cluster() as cluster:
            ranks = start_ranks(cluster, stages, *options, tensor=tensor) if stages * tensor > 1 else ()
            client = one_server(cluster, "--prefill-instances", "1", "--chunk-tokens", "512", "--cache-dram", "128MiB", *options, *ranks)
            answers.append(answer(client, prompt, tokens=8)[0])
            resident = {p.name: p.rss_bytes() / 1e6 for p in cluster.processes.values()}
            assert max(resident.values()) < 200, resident
    assert answers[1] == answers[0] and answers[2] == answers[0], answers


def an_idle_group_misses_its_rank_at_once():
    """Nobody asks for anything: what ends without its rank is started again before the next request comes."""
    with Cluster() as cluster:
        _, join = front(cluster, *SMALL)
        keeps_cache = cluster.start("keeps-cache", "--role", "prefill,cache", "--prefill-instances", "1", *join,
                                    *start_ranks(cluster, 2, *SMALL, name="one-rank"))
        stays = cluster.start("stays", "--role", "conductor,gateway,decode,cache", "--listen", "127.0.0.1:0", *OWN, "--http",
                              f"127.0.0.1:{free_port()}", *SMALL, *start_ranks(cluster, 2, *SMALL, name="other-rank"))
        for process in (keeps_cache, stays):
            wait_until(f"{process.name} is ready", lambda p=process: " ready roles=" in p.output())
        cluster.processes["one-rank1"].kill9()
        assert keeps_cache.process.wait(20) == 70, keeps_cache.output()[-2000:]
        assert "rank lost" in keeps_cache.output()
        cluster.processes["other-rank1"].kill9()
        wait_until("the other says so", lambda: "rank lost" in stays.output())
        assert stays.alive()
        cluster.processes.pop("keeps-cache")


def a_leader_that_is_killed_finds_its_ranks_again():
    with Cluster() as cluster:
        port, join = front(cluster, *SMALL)
        leader = cluster.start("leader", "--role", "prefill,decode,cache", "--prefill-instances", "1", *join, *start_ranks(cluster, 2, *SMALL))
        client = cluster.wait_healthy("127.0.0.1", port)
        wait_until("the group is there", lambda: len(client.cluster()["instances"]) == 2)
        first = answer(client, STORY)[0]
        leader.kill9()
        wait_until("it is missed", lambda: not client.cluster()["instances"])
        leader.start()
        wait_until("the group is back", lambda: len(client.cluster()["instances"]) == 2)
        got, cached = answer(client, STORY)
        assert got == first and cached == 0, (first, got, cached)
        cluster.wait_idle()


def a_group_that_does_not_fit_together_says_why():
    def refused(cluster, ranks, *options):
        done = subprocess.run([BINARY, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", *OWN, *ranks, *options],
                              capture_output=True, text=True, timeout=60,
                              env={**os.environ, "XDG_CONFIG_HOME": os.path.join(cluster.folder.name, "config")})
        assert done.returncode not in (0, -6, -11), done
        return done.stderr

    with Cluster() as cluster:
        ranks = start_ranks(cluster, 3, *SMALL)
        wait_until("they listen", lambda: all(" ready roles=rank" in p.output() for p in cluster.processes.values()))
        other = tuple(o.replace("layers=6", "layers=5") for o in SMALL)
        assert "this rank dummy:layers=6" in (text := refused(cluster, ranks, *other)), text
        assert "this rank is stage" in (text := refused(cluster, ("--ranks", ",".join(reversed(ranks[1].split(",")))), *SMALL)), text
        assert "of 2, this rank is stage 1 of 3" in (text := refused(cluster, ("--ranks", ranks[1].split(",")[0]), *SMALL)), text
        assert "device-kv" in (text := refused(cluster, ranks, *SMALL[:2], "--block-tokens", "32")) or "this rank" in text, text
        gone = ("--ranks", ranks[1].split(",")[0] + f",127.0.0.1:{free_port()}", "--ranks-wait", "1s")
        text = refused(cluster, gone, *SMALL)
        assert "ranks: " in text and gone[1].split(",")[1] in text, text
        assert all(p.alive() for p in cluster.processes.values())
        client = one_server(cluster, *SMALL, *ranks, "--prefill-instances", "1")  # and with the right one they compute
        assert answer(client, STORY)[0] == expected(STORY, *SMALL)
        two = start_ranks(cluster, 1, *SMALL, name="share", tensor=2)
        assert "this rank is stage 1 of 1, rank 2 of 2" in (text := refused(cluster, two[:2], *SMALL)), text
        divided = start_ranks(cluster, 1, *MIXTURE, "--expert", "2", name="divided", tensor=2)
        assert "rank 2 of 2, this rank is stage 1 of 1, rank 2 of 2 with whole experts" in (text := refused(cluster, divided, *MIXTURE)), text
    for options, words in ((("--role", "rank", "--pipeline", "3", "--stage", "3"), "the last is the leader's"),
                           (("--role", "rank"), "give --pipeline or --tensor"),
                           (("--role", "rank", "--tensor", "2"), "tensor-rank: "),
                           (("--role", "rank", "--tensor", "2", "--tensor-rank", "1"), "first of the last stage is the leader"),
                           (("--ranks", "127.0.0.1:1", "--tensor", "3"), "no stages of 3 ranks"), (("--stage", "1"), "give --role rank"),
                           (("--ranks", "127.0.0.1:1", "--pipeline", "2"), "leave out --pipeline"),
                           (("--role", "rank", "--pipeline", "2", "--stage", "1", "--device", "cuda"), "a rank computes in the host's memory")):
        with Cluster() as cluster:
            assert words in (text := refused(cluster, options, *SMALL)), (options, text)


def the_example_runs_as_it_says():
    control, port = free_ports(4)[0], free_port()
    run = subprocess.run([os.path.join(os.path.dirname(__file__), "../../examples/groups.sh"), "--once"], capture_output=True, text=True,
                         timeout=120, env={**os.environ, "MOONCAF_PORT": str(port), "MOONCAF_CONTROL_PORT": str(control),
                                           "MOONCAF_BINARY": os.path.abspath(BINARY)})
    assert run.returncode == 0 and "Paris" in run.stdout, (run.stdout, run.stderr[-3000:])
    for layers in ("1 to 15", "16 to 30", "1 to 30, rank 1 of 3", "1 to 30, rank 2 of 3", "1 to 30, rank 3 of 3"):
        assert run.stdout.count(f"layers {layers} of the group") == 1, run.stdout


if __name__ == "__main__":
    main([groups_of_processes_give_the_tokens_of_one_device_and_read_what_others_wrote,
          requests_go_elsewhere_when_a_rank_dies_and_the_group_serves_again,
          a_prompt_of_32000_tokens_is_that_of_one_device,
          an_idle_group_misses_its_rank_at_once,
          a_leader_that_is_killed_finds_its_ranks_again,
          a_group_that_does_not_fit_together_says_why,
          the_example_runs_as_it_says])
