#!/usr/bin/env python3
"""Prefixes that clients ask to be kept: Anthropic's cache_control, OpenAI's prompt_cache_retention. They stay in memory where others
are evicted, are counted in usage, and are a tenant's own to see and to end."""
import os
import pathlib
import sys

sys.path.insert(0, os.path.dirname(__file__))
from cluster import Client, Cluster, main, one_server, wait_until  # noqa: E402

WORDS = (pathlib.Path(__file__).resolve().parents[2] / "README.md").read_text().split()
BLOCK = 64


def text(number, words=330):
    """Another one for each number from the first word on."""
    return f"{number}. " + " ".join(WORDS[number * 7:number * 7 + words])


def ask(client, system, question, marks=(), key=None, ttl=None, tokens=4):
    """A message whose system prompt (0), or whose question (1), is marked; its usage."""
    control = {"type": "ephemeral", **({"ttl": ttl} if ttl else {})}
    mark = lambda part, n: {**part, "cache_control": control} if n in marks else part  # noqa: E731
    body = {"model": client.model, "max_tokens": tokens, "temperature": 0, "system": [mark({"type": "text", "text": system}, 0)],
            "messages": [{"role": "user", "content": [mark({"type": "text", "text": question}, 1)]}]}
    status, answer = client.json("POST", "/v1/messages", body, {"Authorization": f"Bearer {key}"} if key else None)
    assert status == 200, (status, answer)
    return answer["usage"]


def server(cluster, *options):
    # Memory for some 3,000 tokens: each of these prompts has about 600.
    client = one_server(cluster, "--cache-dram", "80MiB", "--prefill-instances", "1", "--keep-share", "0.5", *options)
    client.model = client.json("GET", "/v1/models", headers=dict(getattr(client, "headers", {})))[1]["data"][0]["id"]
    return client


def kept(client, key=None, method="GET", name=""):
    status, body = client.json(method, "/v1/kept_prefixes" + name, None, {"Authorization": f"Bearer {key}"} if key else None)
    assert status == 200, (status, body)
    return body["data"]


def crowd_out(client, key=None):
    for n in range(20, 34):
        ask(client, text(n), "Go on.", key=key)


def what_is_marked_stays_and_the_rest_is_evicted():
    with Cluster() as cluster:
        client = server(cluster)
        marked = ask(client, text(1), "What is this?", marks=(0,))
        assert marked["cache_creation_input_tokens"] % BLOCK == 0 and marked["cache_creation_input_tokens"] >= 5 * BLOCK, marked
        assert marked["cache_creation"] == {"ephemeral_5m_input_tokens": marked["cache_creation_input_tokens"], "ephemeral_1h_input_tokens": 0}
        plain = ask(client, text(2), "What is this?")
        assert plain["cache_creation_input_tokens"] == 0
        assert ask(client, text(2), "And that?")["cache_read_input_tokens"] > 4 * BLOCK, "it was there"
        crowd_out(client)
        again = ask(client, text(1), "And that?", marks=(0,))
        assert again["cache_read_input_tokens"] == marked["cache_creation_input_tokens"], (again, marked)
        assert again["cache_creation_input_tokens"] == 0
        assert ask(client, text(2), "And that?")["cache_read_input_tokens"] == 0, "nobody asked to keep it"
        total = marked["input_tokens"] + marked["cache_creation_input_tokens"] + marked["cache_read_input_tokens"]
        counted = client.json("POST", "/v1/messages/count_tokens", {"model": client.model, "system": text(1), "messages": [
            {"role": "user", "content": "What is this?"}]})[1]["input_tokens"]
        assert total == counted, (marked, counted)
        # It is seen, and can be ended; nothing of it counts as a request's.
        client_list = kept(client)
        assert len(client_list) == 1 and client_list[0]["tokens"] == marked["cache_creation_input_tokens"], client_list
        assert 240 < client_list[0]["expires_in_s"] <= 300, client_list
        cluster.wait_idle()
        assert kept(client, method="DELETE", name="/" + client_list[0]["id"])[0]["deleted"]
        assert kept(client) == []
        crowd_out(client)
        assert ask(client, text(1), "And that?")["cache_read_input_tokens"] == 0
        for name, status in (("/" + "0" * 31, 404), ("/" + "0" * 32, 404), ("/" + client_list[0]["id"], 404)):
            assert client.json("GET", "/v1/kept_prefixes" + name)[0] == status, name


def a_conversation_that_goes_on_is_kept_once():
    with Cluster() as cluster:
        client = server(cluster)
        long = ask(client, text(1), "What is this?", marks=(0,), ttl="1h")
        assert long["cache_creation"]["ephemeral_1h_input_tokens"] == long["cache_creation_input_tokens"] > 0, long
        both = ask(client, text(1), text(3, 60), marks=(0, 1), ttl="1h")
        assert both["cache_read_input_tokens"] >= long["cache_creation_input_tokens"] and both["cache_creation_input_tokens"] > 0, both
        assert len(kept(client)) == 1 and 3500 < kept(client)[0]["expires_in_s"] <= 3600, kept(client)
        # OpenAI's clients mark the whole prompt.
        body = {"model": client.model, "max_tokens": 2, "messages": [{"role": "user", "content": text(5)}], "prompt_cache_retention": "24h"}
        details = client.json("POST", "/v1/chat/completions", body)[1]["usage"]["prompt_tokens_details"]
        assert details["created_cache_tokens"] >= 5 * BLOCK, details
        assert max(k["expires_in_s"] for k in kept(client)) > 86000
        words = client.json("POST", "/v1/completions", {"model": client.model, "prompt": text(6), "max_tokens": 2, "prompt_cache_retention": "in_memory"})
        assert words[0] == 200 and "prompt_tokens_details" in words[1]["usage"], words
        assert client.json("POST", "/v1/completions", {"prompt": "x", "max_tokens": 1, "prompt_cache_retention": "for ever"})[0] == 400
        # A stream tells at its end.
        stream = {"model": client.model, "max_tokens": 2, "temperature": 0, "system": text(1), "messages": [{"role": "user", "content": "Now?"}],
                  "cache_control": {"type": "ephemeral"}}
        usages = [e["usage"] for e in client.stream("/v1/messages", stream) if e and e.get("type") == "message_delta"]
        assert len(usages) == 1 and "cache_creation_input_tokens" in usages[0], usages


def each_tenant_has_its_share_and_sees_its_own():
    with Cluster() as cluster:
        keys = pathlib.Path(cluster.folder.name, "keys.toml")
        keys.write_text('[red]\nkey = "red-key-red-key-red"\n[blue]\nkey = "blue-key-blue-key-blue"\n')
        keys.chmod(0o600)
        red, blue = "red-key-red-key-red", "blue-key-blue-key-blue"
        Client.headers = {"Authorization": f"Bearer {red}"}
        client = server(cluster, "--api-keys-file", str(keys), "--keep-tenant-share", "0.5")
        del Client.headers
        first = ask(client, text(1), "What is this?", marks=(0,), key=red)
        assert first["cache_creation_input_tokens"] > 0, first
        assert ask(client, text(7), "What is this?", marks=(0,), key=blue)["cache_creation_input_tokens"] > 0
        assert len(kept(client, red)) == len(kept(client, blue)) == 1
        assert kept(client, red)[0]["id"] != kept(client, blue)[0]["id"]
        # A second one is more than a tenant's share: its first gives way, the other tenant's stays.
        ask(client, text(3), "What is this?", marks=(0,), key=red)
        assert len(kept(client, red)) == 1 and len(kept(client, blue)) == 1
        assert client.json("DELETE", "/v1/kept_prefixes/" + kept(client, blue)[0]["id"], None, {"Authorization": f"Bearer {red}"})[0] == 404
        crowd_out(client, red)
        assert ask(client, text(7), "And that?", key=blue)["cache_read_input_tokens"] > 0
        assert ask(client, text(1), "And that?", key=red)["cache_read_input_tokens"] == 0
        assert kept(client, blue, "DELETE")[0]["deleted"] and kept(client, blue) == [] and len(kept(client, red)) == 1
        assert client.json("GET", "/v1/kept_prefixes")[0] == 401
        wait_until("the page tells of it", lambda: sum(s["kept_prefixes"] for s in client.json("GET", "/cluster", None, {"Authorization": f"Bearer {red}"})[1].get("shards", [])) == 1
                   or client.json("GET", "/cluster", None, {"Authorization": f"Bearer {red}"})[0] == 403)


if __name__ == "__main__":
    main([what_is_marked_stays_and_the_rest_is_evicted, a_conversation_that_goes_on_is_kept_once, each_tenant_has_its_share_and_sees_its_own])
