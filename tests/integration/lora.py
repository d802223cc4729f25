#!/usr/bin/env python3
"""Adapters by request: their names are models, their answers PEFT's, their cached prefixes apart; prefill and decode may
be processes of their own. And how a folder wants its tokens drawn, where requests do not say.
(tests/golden/model/lora_served.json and the script beside it that made it.)
"""
import concurrent.futures
import json
import os
import pathlib
import shutil
import sys

sys.path.insert(0, os.path.dirname(__file__))
from cluster import Cluster, free_port, main, one_server  # noqa: E402
from python_client import with_packages  # noqa: E402

with_packages("python-forms", ["openai==3.52.0", "jsonschema==4.23.0", "pydantic==2.11.0"])
import openai  # noqa: E402

TESTS = pathlib.Path(__file__).resolve().parents[1]
MODELS = TESTS / "data" / "model"
BASE = ["--model", str(MODELS / "hf-served"), "--block-tokens", "16"]
ADAPTERS = ["--lora-modules", f"one={MODELS / 'lora-served'}, two={MODELS / 'lora-second'}"]
NAMES = {"": "hf-served", "lora-served": "one", "lora-second": "two"}
GOLDEN = json.loads((TESTS / "golden" / "model" / "lora_served.json").read_text())


def ask(client, golden, **fields):
    return client.chat([{"role": "user", "content": golden["text"]}], model=NAMES[golden["adapter"]], temperature=0,
                       max_tokens=len(golden["token_ids"]), ignore_eos=True, return_token_ids=True, **fields)


def held(client):
    """All at once, so that models share batches; and again, when prefixes come from the cache."""
    with concurrent.futures.ThreadPoolExecutor(len(GOLDEN)) as pool:
        for golden, body in zip(GOLDEN * 3, pool.map(lambda golden: ask(client, golden), GOLDEN * 3)):
            assert body["choices"][0]["token_ids"] == golden["token_ids"], (golden, body)
            assert body["model"] == NAMES[golden["adapter"]], body


def an_openai_client_finds_adapters_among_the_models_and_asks_them():
    with Cluster() as cluster:
        client = one_server(cluster, *BASE, *ADAPTERS)
        asked = openai.OpenAI(base_url=f"http://{client.host}:{client.port}/v1", api_key="none", max_retries=0, timeout=120)
        assert [m.id for m in asked.models.list()] == ["hf-served", "one", "two"]
        for golden in GOLDEN:
            events = asked.chat.completions.create(
                model=NAMES[golden["adapter"]], messages=[{"role": "user", "content": golden["text"]}], temperature=0,
                max_tokens=len(golden["token_ids"]), stream=True, extra_body={"ignore_eos": True, "return_token_ids": True})
            told = [i for e in events for c in e.choices for i in (c.model_extra.get("token_ids") or [])]
            assert told == golden["token_ids"], (golden, told)
        try:
            asked.chat.completions.create(model="three", messages=[{"role": "user", "content": "x"}])
        except openai.NotFoundError as e:
            assert "three" in str(e), e
        else:
            raise AssertionError("an adapter that nobody has answered")


def adapters_answer_as_peft_has_them_and_their_prefixes_are_apart():
    with Cluster() as cluster:
        client = one_server(cluster, *BASE, *ADAPTERS)
        status, models = client.json("GET", "/v1/models")
        assert status == 200, models
        assert [(m["id"], m["parent"]) for m in models["data"]] == [("hf-served", None), ("one", "hf-served"),
                                                                    ("two", "hf-served")], models
        assert client.json("GET", "/v1/models/two")[1]["parent"] == "hf-served"
        assert client.json("POST", "/v1/completions", {"model": "three", "prompt": "x"})[0] == 404
        text = "the same words for every model, and enough of them to fill several blocks of the cache"
        cached = {}
        for name in ("hf-served", "one", "two", "one", "hf-served"):
            body = client.chat([{"role": "user", "content": text}], model=name, temperature=0, max_tokens=2)
            cached.setdefault(name, []).append(body["usage"]["prompt_tokens_details"]["cached_tokens"])
        assert cached["hf-served"][0] == cached["one"][0] == cached["two"] [0] == 0, cached
        assert cached["hf-served"][1] >= 16 and cached["one"][1] >= 16, cached
        held(client)
        cluster.wait_idle()


def adapters_hold_across_processes_and_a_node_without_them_is_refused():
    with Cluster() as cluster:
        port, control = free_port(), free_port()
        common = ["--data-listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0", *BASE]
        join = ["--join", f"127.0.0.1:{control}", "--listen", "127.0.0.1:0"]
        cluster.start("front", "--role", "conductor,gateway", "--http", f"127.0.0.1:{port}", "--listen",
                      f"127.0.0.1:{control}", *common, *ADAPTERS)
        cluster.start("prefill", "--role", "prefill", *join, *common, *ADAPTERS)
        cluster.start("decode", "--role", "decode", *join, *common, *ADAPTERS)
        held(cluster.wait_healthy("127.0.0.1", port))
        other = cluster.start("other", "--role", "decode", *join, *common, "--lora-modules",
                              f"one={MODELS / 'lora-second'}")
        assert other.process.wait(30) != 0
        assert "adapters one two" in other.output() and "has hf-served" in other.output(), other.output()
        del cluster.processes["other"]
        cluster.wait_idle()


def refused(cluster, name, reason, *args):
    process = cluster.start(name, *BASE, *args)
    assert process.process.wait(30) != 0
    assert reason in process.output(), process.output()
    del cluster.processes[name]


def what_cannot_be_adapted_is_refused_when_the_server_starts():
    with Cluster() as cluster:
        refused(cluster, "form", "'alone' is not NAME=FOLDER", "--lora-modules", "alone")
        refused(cluster, "twice", "two models would be called 'hf-served'", "--lora-modules",
                f"hf-served={MODELS / 'lora-served'}")
        refused(cluster, "other-base", "is not [2, 64]", "--lora-modules",
                f"x={MODELS / 'lora-phi3'}")
        refused(cluster, "none", "adapter_config.json", "--lora-modules", f"x={MODELS / 'hf-served'}")
        refused(cluster, "modelled", "takes no adapters", "--device", "model:h200-llama8b", *ADAPTERS)


def a_folder_says_how_its_tokens_are_drawn_where_requests_do_not():
    with Cluster() as cluster:
        root = pathlib.Path(cluster.folder.name) / "model"
        shutil.copytree(MODELS / "hf-served", root)
        file = root / "generation_config.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), "temperature": 2.0, "top_k": 1, "top_p": 0.9,
                                    "do_sample": True}))
        golden = GOLDEN[0]
        body = {"messages": [{"role": "user", "content": golden["text"]}], "max_tokens": len(golden["token_ids"]),
                "ignore_eos": True, "return_token_ids": True, "seed": 3}

        def tokens(client, **fields):
            status, answer = client.json("POST", "/v1/chat/completions", {**body, **fields})
            assert status == 200, answer
            return answer["choices"][0]["token_ids"]

        # Of one token that may come, the best comes at any temperature.
        client = one_server(cluster, "--model", str(root))
        assert "temperature 2, top_k 1, top_p 0.9" in cluster.processes["all"].output()
        assert tokens(client) == golden["token_ids"]
        assert tokens(client, top_k=-1, top_p=1) != golden["token_ids"]
        status, echo = client.json("POST", "/v1/responses", {"input": "x", "max_output_tokens": 1})
        assert status == 200 and echo["temperature"] == 2 and abs(echo["top_p"] - 0.9) < 1e-6, echo
        client = one_server(cluster, "--model", str(root), "--generation-config", "none", name="none")
        assert tokens(client, temperature=2) != golden["token_ids"]
        file.write_text('{"top_p": 7}')
        process = cluster.start("wrong", "--model", str(root))
        assert process.process.wait(30) != 0
        assert "generation_config.json: 'top_p' is 7, not a number from" in process.output(), process.output()
        del cluster.processes["wrong"]


if __name__ == "__main__":
    main([an_openai_client_finds_adapters_among_the_models_and_asks_them,
          adapters_answer_as_peft_has_them_and_their_prefixes_are_apart,
          adapters_hold_across_processes_and_a_node_without_them_is_refused,
          what_cannot_be_adapted_is_refused_when_the_server_starts,
          a_folder_says_how_its_tokens_are_drawn_where_requests_do_not])
