#!/usr/bin/env python3
"""A small random model of every family, served with prefill and decode apart, gives the tokens of `transformers` and their
log-probabilities: in answers, and over whole prompts. One of them is a GGUF file that the `gguf` package wrote.
(tests/golden/model/served and make_served.py beside it.)
"""
import json
import os
import pathlib
import sys

sys.path.insert(0, os.path.dirname(__file__))
from cluster import Cluster, free_port, main  # noqa: E402

GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "golden" / "model"
sys.path.insert(0, str(GOLDEN))
sys.dont_write_bytecode = True
import served_folder  # noqa: E402

# How far a log-probability may be off where queries, contexts and KV are rounded to 16 bits, and where weights of 8 bits are
# multiplied with activations of 8 bits; as measured, 0.12 and 0.84, for tokens that the models find very unlikely. Logits
# of these models are spread by 4.6, and each token of the answers leads by 0.1 or 0.3 at least.
PLAIN, EIGHT_BITS = 0.15, 1.0
FAMILIES = served_folder.names()
# A router that is near a tie picks another expert for KV of 16 bits (mixtral: at one position of 148, 1.3 off; never for KV
# in f32, within 0.014). So many positions may be beyond the bound, and none with KV in f32.
MIXTURES, TIES = {"deepseek2", "deepseek3", "gpt-oss", "mixtral", "qwen2-moe", "qwen3-moe", "qwen3-moe-window"}, 1


def apart(cluster, model, *more):
    """A client of three processes; prefill computes in a device's memory, decode in the host's."""
    control, port = free_port(), free_port()
    own = ("--model", str(model), "--block-tokens", "16", "--metrics-listen", "127.0.0.1:0", "--data-listen", "127.0.0.1:0", *more)
    cluster.start("front", "--role", "conductor,gateway", "--http", f"127.0.0.1:{port}", "--listen",
                  f"127.0.0.1:{control}", *own)
    for role, device in (("prefill", "linked"), ("decode", "host")):
        cluster.start(role, "--role", role, "--device", device, "--join", f"127.0.0.1:{control}", *own)
    return cluster.wait_healthy("127.0.0.1", port)


def held_to(client, answers):
    """Returns the distance of each log-probability, the largest first, and how many tokens of prompts came out of the cache."""
    off, cached = [], 0
    for golden in answers:
        ids, wanted = golden["prompt_token_ids"], golden["logprobs"]
        body = client.chat([{"role": "user", "content": golden["text"]}], temperature=0, return_token_ids=True,
                           max_tokens=len(golden["token_ids"]), logprobs=True, ignore_eos=True)
        choice = body["choices"][0]
        assert body["prompt_token_ids"] == ids, (body, golden)
        assert choice["token_ids"] == golden["token_ids"], (body, golden)
        cached += body["usage"]["prompt_tokens_details"]["cached_tokens"]
        told = [entry["logprob"] for entry in choice["logprobs"]["content"]]
        assert len(told) == len(golden["token_ids"]), (body, golden)
        off += [abs(a - b) for a, b in zip(told, wanted[len(ids) - 1:])]
        shown = client.complete(prompt=ids, echo=True, logprobs=0, max_tokens=1, temperature=0)
        told = shown["choices"][0]["logprobs"]["token_logprobs"][1:len(ids)]
        off += [abs(a - b) for a, b in zip(told, wanted)]
    return sorted(off, reverse=True), cached


def served(model, answers, bound, *more, ties=0):
    with Cluster() as cluster:
        client = apart(cluster, model, *more)
        first, _ = held_to(client, answers)
        second, cached = held_to(client, answers)
        assert cached >= 16 * len(answers), cached
        cluster.wait_idle()
    print(f"     {' '.join((model.name, *more))}: log-probabilities off by {max(first[0], second[0]):.4f} at most")
    assert max(first[ties], second[ties]) <= bound, (first[:4], second[:4])


def family(name):
    def test():
        with Cluster() as cluster:  # for its folder
            folder = pathlib.Path(cluster.folder.name) / name
            served_folder.write_folder(name, folder)
            answers = served_folder.recorded(name)["answers"]
            served(folder, answers, PLAIN, ties=TIES if name in MIXTURES else 0)
            if name in MIXTURES:
                served(folder, answers, PLAIN, "--kv-dtype", "f32")

    test.__name__ = f"{name.replace('-', '_')}_is_served"
    return test


def a_gguf_file_that_another_program_wrote_is_served():
    served(GOLDEN.parents[1] / "data" / "model" / "served.gguf", json.loads((GOLDEN / "served_gguf.json").read_text()),
           EIGHT_BITS)


if __name__ == "__main__":
    assert len(FAMILIES) == 17, FAMILIES
    main([*map(family, FAMILIES), a_gguf_file_that_another_program_wrote_is_served])
