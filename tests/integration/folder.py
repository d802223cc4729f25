#!/usr/bin/env python3
"""A Hugging Face folder as a user has it: the server reads its weights, tokenizer and chat template, and gives the tokens
of `transformers` (tests/golden/model/hf_served.json and the script beside it that made it); what it cannot serve it
refuses when it starts, with the reason. All families: families.py.
"""
import json
import os
import pathlib
import shutil
import sys

sys.path.insert(0, os.path.dirname(__file__))
from cluster import Cluster, main, one_server  # noqa: E402

TESTS = pathlib.Path(__file__).resolve().parents[1]
MODELS = TESTS / "data" / "model"


def a_folder_is_served_with_its_tokenizer_template_and_weights():
    with Cluster() as cluster:
        client = one_server(cluster, "--model", str(MODELS / "hf-served"))
        for golden in json.loads((TESTS / "golden" / "model" / "hf_served.json").read_text()):
            body = client.chat([{"role": "user", "content": golden["text"]}], temperature=0, return_token_ids=True,
                               max_tokens=len(golden["token_ids"]))
            assert body["prompt_token_ids"] == golden["prompt_token_ids"], (body, golden)
            assert body["choices"][0]["token_ids"] == golden["token_ids"], (body, golden)
        status, models = client.json("GET", "/v1/models")
        assert status == 200 and models["data"][0]["id"] == "hf-served", models
        cluster.wait_idle()


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
    main([a_folder_is_served_with_its_tokenizer_template_and_weights, what_cannot_be_served_is_refused_with_the_reason])
