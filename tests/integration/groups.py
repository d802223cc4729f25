#!/usr/bin/env python3
"""Pipeline and tensor groups: an instance whose stages have a part of the layers each, or whose ranks share every layer, gives the tokens and log-probabilities of one
device, whatever the sizes of the groups that computed the prefix, the prompt and the answer."""
import functools
import os
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(__file__))
from cluster import BINARY, MODEL, Cluster, free_port, main, modelled, one_server, text_of, wait_until  # noqa: E402

LOCAL = ("--listen", "127.0.0.1:0", "--data-listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0")
STORY = " ".join(f"Ship {i} came in with {i * 37 % 101} barrels." for i in range(120))  # some 1,400 tokens


def answer(client, prompt, tokens=24):
    """Tokens with their log-probabilities, and how much of the prompt was cached."""
    body = client.complete(prompt=prompt, max_tokens=tokens, temperature=0, ignore_eos=True, logprobs=3)
    logs = body["choices"][0]["logprobs"]
    return ((text_of(body), logs["tokens"], logs["token_logprobs"]),
            body["usage"]["prompt_tokens_details"]["cached_tokens"])


def prompts():
    return [STORY, "The capital of France is", STORY[:2000] + " Then"]


@functools.cache
def expected_of(*options):
    with Cluster() as cluster:
        client = one_server(cluster, "--prefill-instances", "1", *options)
        return [answer(client, p)[0] for p in prompts()] + [answer(client, STORY + " And then")[0]]


def sizes(pipeline, tensor):
    return ("--pipeline", str(pipeline), "--tensor", str(tensor))


def apart(cluster, prefill, decode, *options):
    """A cluster with prefill and decode in processes of their own, whose groups have these sizes, (pipeline, tensor)."""
    port, control = free_port(), free_port()
    join = ("--join", f"127.0.0.1:{control}")
    cluster.start("front", "--role", "conductor,gateway", "--listen", f"127.0.0.1:{control}", "--metrics-listen",
                  "127.0.0.1:0", "--http", f"127.0.0.1:{port}")
    cluster.start("prefill", "--role", "prefill,cache", *LOCAL, *join, "--prefill-instances", "1", *sizes(*prefill),
                  "--chunk-tokens", "128", *options)
    cluster.start("decode", "--role", "decode,cache", *LOCAL, *join, *sizes(*decode), *options)
    return cluster.wait_healthy("127.0.0.1", port)


def groups_of_every_size_give_the_same_tokens_and_probabilities():
    expected = expected_of()
    for prefill, decode, options in (((2, 1), (1, 1), ()), ((3, 1), (2, 1), ("--no-shm",)), ((2, 1), (2, 1), ("--device", "linked")), ((1, 3), (2, 3), ("--device", "linked")),
                                     ((30, 1), (1, 3), ()), ((2, 3), (1, 1), ())):
        with Cluster() as cluster:
            client = apart(cluster, prefill, decode, *options)
            for prompt, want in zip(prompts(), expected):
                got, _ = answer(client, prompt)
                assert got == want, (prefill, decode, options, prompt[:30], want, got)
            got, cached = answer(client, STORY + " And then")
            assert cached > 1000 and got == expected[-1], (prefill, decode, cached, expected[-1], got)
            cluster.wait_idle()


def a_prefix_is_read_by_groups_of_another_size_from_ssd_and_from_another_node():
    expected = expected_of()
    with Cluster() as cluster:
        ssd = ("--ssd-path", os.path.join(cluster.folder.name, "ssd"), "--cache-write-policy", "write_through",
               "--prefetch-threshold", "0", "--prefetch", "wait_complete", "--prefill-instances", "1")
        client = one_server(cluster, *ssd, "--pipeline", "2", name="two")
        assert answer(client, STORY)[0] == expected[0]
        wait_until("its blocks are on the SSD", lambda: client.cluster()["shards"][0]["ssd_blocks"] > 15)
        cluster.processes.pop("two").stop()
        client = one_server(cluster, *ssd, *sizes(1, 3), name="three")
        got, cached = answer(client, STORY + " And then")
        assert cached > 1000 and got == expected[-1], (cached, expected[-1], got)
        cluster.processes.pop("three").stop()
        client = one_server(cluster, *ssd, name="one")
        got, cached = answer(client, STORY + " And then")
        assert cached > 1000 and got == expected[-1], (cached, expected[-1], got)


def other_families_and_formats_give_the_tokens_of_one_device():
    shapes = ("dummy:gpt-oss-20b,layers=4,dim=256,heads=8,kv_heads=2,ffn=256,vocab=1024",
              "dummy:deepseek-v2-lite,layers=4,vocab=1024")
    for model, options in ((shapes[0], ()), (shapes[1], ()), (MODEL, ("--kv-dtype", "int8"))):
        seen = []
        groups = [sizes(1, 1), sizes(3, 1), sizes(1, 3 if model == MODEL else 4)]
        if model != MODEL:
            groups.append((*sizes(1, 4), "--expert", "4"))
        for size in groups:
            with Cluster() as cluster:
                client = one_server(cluster, "--model", model, "--prefill-instances", "1", *size,
                                    "--chunk-tokens", "64", "--context-length", "2048", *options)
                seen.append([answer(client, STORY[:length])[0] for length in (900, 40)])
        assert all(one == seen[0] for one in seen), (model, seen)


def requests_side_by_side_with_prompt_probabilities_and_embeddings_are_as_alone():
    seen = []
    for size in ((1, 1), (3, 1), (1, 3)):
        with Cluster() as cluster:
            client = one_server(cluster, "--prefill-instances", "1", *sizes(*size), "--chunk-tokens", "64")
            out, threads = {}, []

            def ask(n, client=client, out=out):
                if n % 3 == 0:
                    out[n] = client.json("POST", "/v1/embeddings", {"model": client.model, "input": STORY[n * 40:n * 40 + 900]})[1]["data"]
                elif n % 3 == 1:
                    body = client.complete(prompt=STORY[n * 40:n * 40 + 900], max_tokens=4, temperature=0, prompt_logprobs=1)
                    out[n] = (text_of(body), body["choices"][0]["prompt_logprobs"])
                else:
                    out[n] = answer(client, STORY[n * 40:n * 40 + 900])[0]

            client.model = client.json("GET", "/v1/models")[1]["data"][0]["id"]
            for n in range(9):
                threads.append(threading.Thread(target=ask, args=(n,)))
                threads[-1].start()
            for t in threads:
                t.join()
            assert len(out) == 9, sorted(out)
            seen.append(out)
            cluster.wait_idle()
    for n in range(9):
        for other in seen[1:]:
            assert seen[0][n] == other[n], (n, str(seen[0][n])[:300], str(other[n])[:300])


def a_long_prompt_is_sooner_there_from_a_modelled_group_and_a_short_one_no_later():
    """2,000 tokens in chunks of 64: 32 steps of 36 ms and more, of which four stages take one every 9 ms."""
    took = {}
    for size in (1, 4):
        with Cluster() as cluster:
            port, control = free_port(), free_port()
            common = (*modelled(cluster.folder.name), "--join", f"127.0.0.1:{control}")
            cluster.start("front", "--role", "conductor,gateway", *common[:2], "--listen", f"127.0.0.1:{control}",
                          "--metrics-listen", "127.0.0.1:0", "--http", f"127.0.0.1:{port}")
            cluster.start("prefill", "--role", "prefill,cache", *LOCAL, *common, "--prefill-instances", "1", "--pipeline", str(size))
            cluster.start("decode", "--role", "decode,cache", *LOCAL, *common)
            client = cluster.wait_healthy("127.0.0.1", port)
            texts = []
            for words in (2000, 50):
                times = []
                for turn in range(3):
                    began = time.monotonic()
                    body = client.complete(prompt=" ".join(f"w{(turn + 7 * i) % 90}" for i in range(words // 3)), max_tokens=2,
                                           temperature=0)
                    times.append(time.monotonic() - began)
                    texts.append(text_of(body))
                took[size, words] = min(times)
            took[size] = texts
            cluster.wait_idle()
    assert took[1] == took[4]
    assert took[4, 2000] < 0.7 * took[1, 2000], took  # 0.3 on a machine of its own
    assert took[4, 50] < took[1, 50] + 0.5, took      # the machine may be busy


def a_group_that_cannot_be_says_why_and_ends():
    def refusal(*options):
        done = subprocess.run([BINARY, *LOCAL, "--http", "127.0.0.1:0", *options], capture_output=True, text=True, timeout=60)
        assert done.returncode not in (0, -11, -6), (options, done)
        return done.stderr

    text = refusal("--model", "dummy:layers=4,dim=128,heads=4,kv_heads=2,ffn=320,vocab=1024", "--pipeline", "5")
    assert "pipeline: 5 stages are more than the model's 4 layers" in text, text
    for options in (("--mode", "coupled"), ("--lora-modules", "a=b"), ("--device", "linked", "--l2-layout", "page_first"),
                    ("--device", "linked", "--device-write-policy", "write_back")):
        text = refusal("--model", MODEL, "--pipeline", "2", *options)
        assert "pipeline: " in text, (options, text)
    for options, words in ((("--tensor", "2"), "tensor: 2 ranks cannot share the model's 9 attention heads"),
                           (("--tensor", "3", "--device", "linked", "--l2-layout", "page_first"), "leave out --l2-layout"),
                           (("--tensor", "3", "--device", "model:a800x8-llama70b"), "leave out --device"),
                           (("--tensor", "3", "--lora-modules", "a=b"), "tensor: "),
                           (("--tensor", "3", "--expert", "2"), "expert: the ranks that divide experts are those of a stage; give 1, or 3"),
                           (("--tensor", "3", "--expert", "3"), "expert: 3 ranks cannot divide the model's 0 experts")):
        text = refusal("--model", MODEL, *options)
        assert words in text, (options, text)
    text = refusal("--model", MODEL, "--pipeline", "65")
    assert "pipeline" in text and "64" in text, text


main([groups_of_every_size_give_the_same_tokens_and_probabilities,
      a_prefix_is_read_by_groups_of_another_size_from_ssd_and_from_another_node,
      other_families_and_formats_give_the_tokens_of_one_device,
      requests_side_by_side_with_prompt_probabilities_and_embeddings_are_as_alone,
      a_long_prompt_is_sooner_there_from_a_modelled_group_and_a_short_one_no_later,
      a_group_that_cannot_be_says_why_and_ends])
