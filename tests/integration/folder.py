#!/usr/bin/env python3
"""A Hugging Face folder as a user has it: the server reads its weights, tokenizer and chat template, and gives the tokens
of `transformers` (tests/golden/model/hf_served*.json and the script beside them that made them); what it cannot serve it
refuses when it starts, with the reason.
"""
import json
import os
import pathlib
import shutil
import sys

sys.path.insert(0, os.path.dirname(__file__))
from cluster import Cluster, free_port, main, one_server  # noqa: E402

TESTS = pathlib.Path(__file__).resolve().parents[1]
MODELS = TESTS / "data" / "model"


def check_answers(client, name):
    """The greedy answers of transformers; returns how many tokens of prompts came out of the cache."""
    cached = 0
    for golden in json.loads((TESTS / "golden" / "model" / (name.replace("-", "_") + ".json")).read_text()):
        body = client.chat([{"role": "user", "content": golden["text"]}], temperature=0, return_token_ids=True,
                           max_tokens=len(golden["token_ids"]))
        assert body["prompt_token_ids"] == golden["prompt_token_ids"], (body, golden)
        assert body["choices"][0]["token_ids"] == golden["token_ids"], (body, golden)
        cached += body["usage"]["prompt_tokens_details"]["cached_tokens"]
    return cached


def a_folder_is_served_with_its_tokenizer_template_and_weights():
    with Cluster() as cluster:
        client = one_server(cluster, "--model", str(MODELS / "hf-served"))
        check_answers(client, "hf-served")
        status, models = client.json("GET", "/v1/models")
        assert status == 200 and models["data"][0]["id"] == "hf-served", models
        cluster.wait_idle()


def kv_travels_between_devices_and_is_reused(name):
    with Cluster() as cluster:
        control, port = free_port(), free_port()
        own = ("--model", str(MODELS / name), "--block-tokens", "16", "--metrics-listen", "127.0.0.1:0",
               "--data-listen", "127.0.0.1:0")
        cluster.start("front", "--role", "conductor,gateway", "--http", f"127.0.0.1:{port}", "--listen",
                      f"127.0.0.1:{control}", *own)
        for role, device in (("prefill", "linked"), ("decode", "host")):
            cluster.start(role, "--role", role, "--device", device, "--join", f"127.0.0.1:{control}", *own)
        client = cluster.wait_healthy("127.0.0.1", port)
        check_answers(client, name)
        assert check_answers(client, name) >= 16 * 3
        cluster.wait_idle()


def deepseek_is_served_and_its_latents_travel():
    kv_travels_between_devices_and_is_reused("hf-served-deepseek")


def gpt_oss_is_served():
    kv_travels_between_devices_and_is_reused("hf-served-gpt-oss")


def refused(cluster, name, folder, reason):
    process = cluster.start(name, "--model", str(folder))
    assert process.process.wait(30) != 0
    assert reason in process.output(), process.output()


def what_cannot_be_served_is_refused_with_the_reason():
    with Cluster() as cluster:
        root = pathlib.Path(cluster.folder.name)
        refused(cluster, "no-words", MODELS / "hf-llama", "hf-llama/tokenizer.json: is missing")
        shutil.copytree(MODELS / "hf-served", root / "other")
        config = json.loads((root / "other" / "config.json").read_text())
        (root / "other" / "config.json").write_text(json.dumps({**config, "model_type": "mamba"}))
        refused(cluster, "family", root / "other", "model_type 'mamba' is not offered; llama, mistral")
        (root / "other" / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 3}))
        refused(cluster, "layers", root / "other", "tensor 'model.layers.2.input_layernorm.weight' is missing")
        weights = root / "other" / "model.safetensors"
        weights.write_bytes(weights.read_bytes()[:50_000])
        refused(cluster, "cut", root / "other", "model.safetensors: tensor ")
        cluster.processes.clear()


if __name__ == "__main__":
    main([a_folder_is_served_with_its_tokenizer_template_and_weights, deepseek_is_served_and_its_latents_travel,
          gpt_oss_is_served, what_cannot_be_served_is_refused_with_the_reason])
