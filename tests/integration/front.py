#!/usr/bin/env python3
"""Everything that the HTTP front promises, asked for with OpenAI's own Python client against the real binary."""
import concurrent.futures
import json
import os
import sys
import time

sys.path.insert(0, os.path.dirname(__file__))
from cluster import main, wait_until  # noqa: E402
from front_client import END, LONG, NAME, PROMPT, client_of, end_shared, openai, refused, shared  # noqa: E402


def ask(prompt=PROMPT, *, extra=None, **fields):
    fields = {"max_tokens": 12, "temperature": 0, **fields}
    return client_of(shared().client).completions.create(model=NAME, prompt=prompt, extra_body=extra, **fields)


def chat(messages=({"role": "user", "content": "Name a river."},), *, extra=None, **fields):
    fields = {"max_tokens": 12, "temperature": 0, **fields}
    return client_of(shared().client).chat.completions.create(model=NAME, messages=list(messages), extra_body=extra,
                                                              **fields)


def eos_id():
    status, body = shared().client.json("POST", "/detokenize", {"tokens": [END]})
    assert status == 200 and body["prompt"] == "<|im_end|>", body
    return END


# ---- completions and chats -------------------------------------------------------------------------------------------

def completion_has_text_reason_and_usage():
    r = ask()
    assert r.object == "text_completion" and r.id.startswith("cmpl-"), r
    assert abs(r.created - time.time()) < 60, r.created
    assert r.choices[0].text and r.choices[0].finish_reason == "length", r
    assert (r.usage.prompt_tokens, r.usage.completion_tokens, r.usage.total_tokens) == (3, 12, 15), r.usage


def chat_has_message_and_usage():
    r = chat()
    assert r.object == "chat.completion" and r.id.startswith("chatcmpl-"), r
    assert r.choices[0].message.role == "assistant" and r.choices[0].message.content, r
    parts = chat([{"role": "user", "content": [{"type": "text", "text": "Name"}, {"type": "text", "text": "a river."}]}])
    joined = chat([{"role": "user", "content": "Name\na river."}])
    assert parts.usage.prompt_tokens == joined.usage.prompt_tokens, "parts are joined by a line end"
    assert parts.choices[0].message.content == joined.choices[0].message.content
    newer = chat(max_tokens=openai.omit, max_completion_tokens=3)
    assert newer.usage.completion_tokens == 3, newer.usage


def chat_ends_by_itself():
    r = chat([{"role": "user", "content": "Say only: yes"}], max_tokens=200)
    assert r.choices[0].finish_reason == "stop", r
    assert "<|im_end|>" not in r.choices[0].message.content


def streams_say_the_same_as_whole_answers():
    whole = ask(max_tokens=40).choices[0]
    events = list(ask(max_tokens=40, stream=True))
    assert "".join(e.choices[0].text for e in events) == whole.text
    assert [e.choices[0].finish_reason for e in events if e.choices[0].finish_reason] == ["length"]
    assert len(events) > 10, "a stream comes in pieces"
    assert len({e.id for e in events}) == 1 and all(e.usage is None for e in events)
    answer = chat(max_tokens=40).choices[0]
    whole = answer.message.content
    events = list(chat(max_tokens=40, stream=True))
    assert events[0].choices[0].delta.role == "assistant" and events[1].choices[0].delta.role is None
    assert "".join(e.choices[0].delta.content or "" for e in events) == whole
    assert events[-1].choices[0].finish_reason == answer.finish_reason


def include_usage_adds_a_last_chunk_without_choices():
    for make in (ask, chat):
        events = list(make(stream=True, stream_options={"include_usage": True}))
        assert events[-1].choices == [] and events[-1].usage.completion_tokens == 12, events[-1]
        assert events[-1].usage.prompt_tokens_details.cached_tokens is not None
        assert all(e.usage is None for e in events[:-1])


def n_answers_differ_and_are_all_there():
    r = ask(n=4, temperature=1, seed=3)
    assert sorted(c.index for c in r.choices) == [0, 1, 2, 3]
    assert len({c.text for c in r.choices}) > 1
    assert (r.usage.prompt_tokens, r.usage.completion_tokens) == (3, 48), r.usage
    texts = {}
    for e in ask(n=4, temperature=1, seed=3, stream=True):
        texts[e.choices[0].index] = texts.get(e.choices[0].index, "") + e.choices[0].text
    assert texts == {c.index: c.text for c in r.choices}
    greedy = chat(n=2)
    assert len({c.message.content for c in greedy.choices}) == 1 and len(greedy.choices) == 2


def same_seed_same_answer():
    one, two, other = (ask(temperature=1, seed=s).choices[0].text for s in (5, 5, 6))
    assert one == two and one != other
    unseeded = {ask(temperature=1).choices[0].text for _ in range(4)}
    assert len(unseeded) > 1, "without a seed answers vary"


def prompts_of_every_form_are_answered():
    ids = shared().client.json("POST", "/tokenize", {"prompt": PROMPT})[1]["tokens"]
    expected = ask().choices[0].text
    assert ask(ids).choices[0].text == expected
    r = ask([PROMPT, "A mountain is"])
    assert len(r.choices) == 2 and r.choices[0].text == expected and r.choices[1].text != expected
    r = ask([ids, ids[:2]])
    assert len(r.choices) == 2 and r.choices[0].text == expected
    r = ask([PROMPT, "A mountain is"], n=2, temperature=1)
    assert sorted(c.index for c in r.choices) == [0, 1, 2, 3]


def logprobs_are_those_of_the_tokens():
    c = ask(logprobs=3).choices[0]
    l = c.logprobs
    assert "".join(l.tokens) == c.text and len(l.token_logprobs) == len(l.top_logprobs) == len(l.text_offset) == 12
    for token, logprob, top, offset in zip(l.tokens, l.token_logprobs, l.top_logprobs, l.text_offset):
        assert logprob == max(top.values()) and top[token] == logprob and len(top) == 3, "greedy takes the likeliest"
        assert c.text[offset:].startswith(token)
    streamed = [e.choices[0].logprobs for e in ask(logprobs=3, stream=True)]
    assert sum((s.token_logprobs for s in streamed), []) == l.token_logprobs
    assert sum((s.text_offset for s in streamed), []) == l.text_offset
    content = chat(logprobs=True, top_logprobs=2).choices[0].logprobs.content
    assert len(content) == 12 and all(len(t.top_logprobs) == 2 and t.bytes for t in content)
    assert chat(logprobs=True).choices[0].logprobs.content[0].top_logprobs == []


def echo_repeats_the_prompt():
    plain = ask().choices[0].text
    assert ask(echo=True).choices[0].text == PROMPT + plain
    assert "".join(e.choices[0].text for e in ask(echo=True, stream=True)) == PROMPT + plain


def echo_with_logprobs_scores_the_prompt():
    """Token by token what the same tokens had when they were generated: computed in chunks, or one at a time."""
    a = ask(logprobs=2, max_tokens=40, extra={"ignore_eos": True}).choices[0]
    ids = shared().client.json("POST", "/tokenize", {"prompt": PROMPT})[1]["tokens"]
    more = shared().client.json("POST", "/tokenize", {"prompt": a.text})[1]["tokens"]
    prompt = ids + more
    b = ask(prompt, logprobs=2, echo=True, max_tokens=1)
    l = b.choices[0].logprobs
    assert b.usage.prompt_tokens_details.cached_tokens == 0, b.usage
    assert b.choices[0].text.startswith(PROMPT + a.text) and "".join(l.tokens) == b.choices[0].text
    assert len(l.tokens) == len(prompt) + 1 and l.token_logprobs[0] is None and l.top_logprobs[0] is None
    assert l.tokens[len(ids):-1] == a.logprobs.tokens, (l.tokens, a.logprobs.tokens)
    assert l.token_logprobs[len(ids):-1] == a.logprobs.token_logprobs
    assert l.top_logprobs[len(ids):-1] == a.logprobs.top_logprobs
    for token, offset in zip(l.tokens, l.text_offset):
        assert b.choices[0].text[offset:].startswith(token)
    streamed = [e.choices[0].logprobs for e in ask(prompt, logprobs=2, echo=True, max_tokens=1, stream=True)]
    assert sum((s.token_logprobs for s in streamed), []) == l.token_logprobs
    assert sum((s.text_offset for s in streamed), []) == l.text_offset
    alone = ask(ids[:1], logprobs=0, echo=True, max_tokens=1).choices[0].logprobs
    assert len(alone.tokens) == 2 and alone.token_logprobs[0] is None


def stop_strings_end_the_answer_and_are_left_out():
    whole = ask(max_tokens=30).choices[0].text
    word = whole.split()[3]
    c = ask(max_tokens=30, stop=word).choices[0]
    assert c.finish_reason == "stop" and c.text == whole[:whole.index(word)], (c, whole)
    streamed = "".join(e.choices[0].text for e in ask(max_tokens=30, stop=["never said", word], stream=True))
    assert streamed == c.text
    assert word in ask(max_tokens=30, stop=word, extra={"min_tokens": 30}).choices[0].text
    kept = {"include_stop_str_in_output": True}
    for streams in (False, True):
        answer = ask(max_tokens=30, stop=word, stream=streams, extra=kept)
        text = "".join(e.choices[0].text for e in answer) if streams else answer.choices[0].text
        assert text == whole[:whole.index(word) + len(word)], (text, whole)


def token_ids_are_those_of_the_text():
    server, wanted = shared().client, {"return_token_ids": True}
    prompt = server.json("POST", "/tokenize", {"prompt": PROMPT})[1]["tokens"]
    whole = ask(max_tokens=9, extra=wanted).choices[0]
    assert whole.prompt_token_ids == prompt and len(whole.token_ids) == 9, whole
    assert server.json("POST", "/detokenize", {"tokens": whole.token_ids})[1]["prompt"] == whole.text
    pieces = [e.choices[0] for e in ask(max_tokens=9, extra=wanted, stream=True)]
    assert sum((p.token_ids for p in pieces), []) == whole.token_ids
    assert [p.prompt_token_ids for p in pieces if hasattr(p, "prompt_token_ids")] == [prompt]


def logit_bias_forbids_and_forces():
    first = ask(max_tokens=1).choices[0].text
    ids = shared().client.json("POST", "/tokenize", {"prompt": PROMPT + first})[1]["tokens"]
    assert ask(max_tokens=1, logit_bias={str(ids[-1]): -100}).choices[0].text != first
    other = ids[0]
    forced = ask(max_tokens=3, logit_bias={str(other): 100}).choices[0].text
    assert forced == shared().client.json("POST", "/detokenize", {"tokens": [other] * 3})[1]["prompt"]


def min_tokens_and_ignore_eos_hold_off_the_end():
    bias = {str(eos_id()): 100}
    r = ask(logit_bias=bias)
    assert r.choices[0].finish_reason == "stop" and r.usage.completion_tokens <= 1, r
    r = ask(logit_bias=bias, extra={"min_tokens": 7})
    assert r.choices[0].finish_reason == "stop" and 7 <= r.usage.completion_tokens <= 8, r
    r = ask(extra={"ignore_eos": True}, logit_bias=bias)
    assert r.choices[0].finish_reason == "length" and r.usage.completion_tokens == 12, r


def second_request_hits_the_cache_unless_salted():
    prompt = "A prompt of its own. " + LONG
    cached = lambda salt=None: ask(prompt, max_tokens=1, extra={"cache_salt": salt} if salt else None) \
        .usage.prompt_tokens_details.cached_tokens
    assert cached() == 0
    assert cached() > 300
    assert cached("tenant") == 0
    assert cached("tenant") > 300
    assert cached("another") == 0


def unknown_fields_are_accepted_and_wrong_ones_named():
    ask(extra={"some_future_field": {"a": [1]}, "user": "u"})
    e = refused(openai.BadRequestError, lambda: ask(max_tokens="many"), "max_tokens: must be an integer")
    assert e.param == "max_tokens" and e.type == "invalid_request_error", e.body
    refused(openai.BadRequestError, lambda: ask(temperature=9), "temperature: must lie in [0, 2]")
    refused(openai.BadRequestError, lambda: ask(extra={"priority": 7}), "priority: ")
    refused(openai.BadRequestError, lambda: ask([10**6]), "outside the vocabulary")
    refused(openai.BadRequestError, lambda: ask(""), "prompt: is empty")
    for long in (lambda: ask("word " * 20000), lambda: ask("word " * 1000000),
                 lambda: chat([{"role": "user", "content": "word " * 20000}])):
        assert refused(openai.BadRequestError, long).code == "context_length_exceeded"
    e = refused(openai.BadRequestError, lambda: chat([{"role": "user", "content": "word " * 20000}]), "context holds")
    assert e.param == "messages", e.body
    refused(openai.BadRequestError, lambda: ask("word " * 20000), "the context holds")
    refused(openai.BadRequestError, lambda: ask("word " * 1000000), "prompt: ", "more than the")
    refused(openai.BadRequestError, lambda: ask(extra={"min_tokens": 99}), "min_tokens: ")
    refused(openai.BadRequestError, lambda: ask(logit_bias={"999999": 1}), "logit_bias: ")
    refused(openai.BadRequestError, lambda: chat([{"role": "wizard", "content": "x"}]), "wizard")
    refused(openai.BadRequestError, lambda: ask(["x"] * 100, n=100), "n: 100 prompts make 10000 answers")


# ---- everything else -------------------------------------------------------------------------------------------------

def what_is_not_done_is_refused_by_its_name():
    of_vllm = {"echo": True, "best_of": 3, "add_special_tokens": True, "logits_processors": ["x"], "vllm_xargs": {"a": 1},
               "kv_transfer_params": {"do_remote_prefill": True}}
    for call, field in ((lambda: ask(suffix="the end"), "suffix"), (lambda: ask(best_of=3), "best_of"),
                        *((lambda f={name: value}: chat(extra=f), name) for name, value in of_vllm.items())):
        e = refused(openai.BadRequestError, call, "is not supported")
        assert e.param.startswith(field), e.body
    assert chat(response_format={"type": "text"}, tool_choice="none", extra={"tools": []}).choices


def a_wrong_model_is_refused_as_openai_does():
    client = client_of(shared().client)
    for call in (lambda: client.completions.create(model="gpt-4", prompt="a", max_tokens=1),
                 lambda: client.chat.completions.create(model="gpt-4", messages=[{"role": "user", "content": "a"}]),
                 lambda: client.models.retrieve("gpt-4")):
        e = refused(openai.NotFoundError, call, "gpt-4", "does not exist")
        assert e.code == "model_not_found" and e.type == "invalid_request_error", e.body
    model = client.models.retrieve(NAME)
    assert model.id == NAME and model == client.models.list().data[0], model
    assert shared().client.complete(prompt="a", max_tokens=1)["model"] == NAME, "no name at all means the one there is"


def scoring_needs_no_answer():
    """`max_tokens: 0` with `echo` and `logprobs`: what evaluation harnesses ask for."""
    one = ask(logprobs=2, echo=True, max_tokens=1).choices[0].logprobs
    r = ask(logprobs=2, echo=True, max_tokens=0)
    l = r.choices[0].logprobs
    assert (r.choices[0].text, r.choices[0].finish_reason, r.usage.completion_tokens) == (PROMPT, "length", 0), r
    assert (l.tokens, l.token_logprobs, l.text_offset) == (one.tokens[:-1], one.token_logprobs[:-1], one.text_offset[:-1])
    streamed = list(ask(logprobs=2, echo=True, max_tokens=0, stream=True))
    assert "".join(e.choices[0].text for e in streamed) == PROMPT
    assert sum((e.choices[0].logprobs.token_logprobs for e in streamed), []) == l.token_logprobs


def text_offsets_are_those_of_whole_characters():
    prompt = "Ein Zoo: 🦓, 🦒 und 日本語 — né."
    c = ask(prompt, logprobs=0, echo=True, max_tokens=0).choices[0]
    l = c.logprobs
    assert c.text == prompt and any(t.startswith("bytes:") for t in l.tokens), l.tokens
    for token, offset, following in zip(l.tokens, l.text_offset, l.text_offset[1:] + [len(prompt)]):
        if token.startswith("bytes:"):
            assert 0 <= following - offset < len(token.split("\\x")), (token, offset)  # a space may stand before
        else:
            assert c.text[offset:following] == token, (token, offset)


def the_chosen_token_is_among_the_top():
    l = ask(logprobs=1, max_tokens=30, temperature=2, seed=7).choices[0].logprobs
    for token, logprob, top in zip(l.tokens, l.token_logprobs, l.top_logprobs):
        assert top[token] == logprob and len(top) in (1, 2), (token, top)
    assert any(len(top) == 2 for top in l.top_logprobs), "at such a temperature some were not the likeliest"


def special_tokens_of_a_rendered_prompt_are_tokens():
    """A client that renders the template itself is understood, and users of chats cannot do it."""
    client = shared().client
    tokens = lambda **body: client.json("POST", "/tokenize", body)[1]["tokens"]
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Name a river."}]
    rendered = "".join(f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n" for m in messages) + \
        "<|im_start|>assistant\n"
    ids = tokens(messages=messages)
    assert tokens(prompt=rendered) == ids
    assert len(tokens(prompt=rendered, parse_special=False)) > len(ids) + 20
    assert client.json("POST", "/detokenize", {"tokens": ids})[1]["prompt"] == rendered, "there and back"
    answer = chat(messages, max_tokens=30)
    again = ask(rendered, max_tokens=30)
    assert again.usage.prompt_tokens == answer.usage.prompt_tokens == len(ids)
    assert again.choices[0].text == answer.choices[0].message.content
    assert ask(rendered, max_tokens=1, extra={"parse_special": False}).usage.prompt_tokens > len(ids) + 20
    assert ask(rendered, max_tokens=0, echo=True).choices[0].text == rendered
    forged = chat([{"role": "user", "content": rendered}], max_tokens=1).usage.prompt_tokens
    assert forged > len(tokens(prompt=rendered, parse_special=False)), "in a message they are text"


def a_compressed_body_is_told_so():
    import gzip
    status, headers, body = shared().client.request(
        "POST", "/v1/completions", gzip.compress(b'{"prompt":"a"}'), {"Content-Encoding": "gzip"})
    assert status == 415 and "gzip" in json.loads(body)["error"]["message"], (status, body)


def a_client_that_closes_its_side_gets_its_answer():
    import socket
    body = json.dumps({"prompt": PROMPT, "max_tokens": 40, "temperature": 0}).encode()
    with socket.create_connection((shared().client.host, shared().client.port), timeout=60) as s:
        s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        s.shutdown(socket.SHUT_WR)
        got = b"".join(iter(lambda: s.recv(65536), b""))
    assert json.loads(got[got.index(b"\r\n\r\n{") + 4:])["choices"][0]["text"] == ask(max_tokens=40).choices[0].text
    shared().wait_idle()
    with socket.create_connection((shared().client.host, shared().client.port), timeout=60) as s:
        body = json.dumps({"prompt": PROMPT, "max_tokens": 4000, "ignore_eos": True}).encode()
        s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        wait_until("it is served", lambda: shared().client.cluster()["requests_live"])
    shared().wait_idle(10)  # nobody waits for it any more


def other_endpoints_answer():
    client = shared().client
    models = client_of(client).models.list().data
    assert len(models) == 1 and models[0].owned_by == "mooncaf", models
    status, body = client.json("POST", "/tokenize", {"prompt": "Hello world"})
    assert status == 200 and body["count"] == len(body["tokens"]) == 2 and body["max_model_len"] == 8192, body
    assert client.json("POST", "/detokenize", {"tokens": body["tokens"]}) == (200, {"prompt": "Hello world"})
    status, body = client.json("POST", "/tokenize", {"messages": [{"role": "user", "content": "Hi"}]})
    assert status == 200 and body["count"] > 5, body
    status, body = client.json("POST", "/tokenize", {"prompt": "x" * 10_000_000})
    assert status == 400 and "prompt: 10000000 bytes" in body["error"]["message"], body
    assert client.json("GET", "/health") == (200, {"status": "ok"})
    assert client.json("GET", "/version")[1]["version"].count(".") == 2
    cluster = client.cluster()
    assert {i["role"] for i in cluster["instances"]} == {"prefill", "decode"} and cluster["shards"], cluster
    status, headers, page = client.request("GET", "/")
    assert status == 200 and headers["Content-Type"].startswith("text/html") and b"mooncaf" in page
    links = page.replace(b"'http://www.w3.org/2000/svg'", b"")  # the name of what is drawn, not an address to load from
    assert b"src=" not in links and b"http://" not in links and b"https://" not in links, "the page stands alone"
    assert client.request("GET", "/favicon.ico")[0] == 200
    assert client.json("GET", "/nowhere")[0] == 404
    status, headers, _ = client.request("GET", "/v1/completions")
    assert status == 405 and headers["Allow"] == "POST"
    status, _, body = client.request("HEAD", "/health")
    assert status == 200 and body == b""


def request_id_comes_back():
    client = shared().client
    for method, path, body in (("POST", "/v1/completions", {"prompt": "a", "max_tokens": 1}), ("GET", "/v1/models", None),
                               ("POST", "/v1/completions", {"prompt": 1}), ("POST", "/tokenize", {"prompt": "a"}),
                               ("GET", "/cluster", None), ("GET", "/health", None), ("GET", "/nowhere", None)):
        headers = client.request(method, path, body, {"x-request-id": "my-id-7"})[1]
        assert headers.get("x-request-id") == "my-id-7", (path, headers)
    made = client.request("POST", "/v1/completions", {"prompt": "a", "max_tokens": 1, "stream": True})[1]
    assert made["x-request-id"], made
    raw = client_of(client).completions.with_raw_response.create(model=NAME, prompt="a", max_tokens=1,
                                                                extra_headers={"x-request-id": "theirs"})
    assert raw.headers["x-request-id"] == "theirs" and raw.parse().choices


def metrics_count_what_happened():
    client = shared().client
    value = lambda: {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1])
                     for line in client.request("GET", "/metrics")[2].decode().splitlines() if not line.startswith("#")}
    label = '{model_name="%s"}' % client.cluster()["model"]
    before = value()
    ask(LONG, max_tokens=5)
    after = value()
    grew = lambda name: after[name + label] - before[name + label]
    assert grew("vllm:prompt_tokens_total") == grew("vllm:prefix_cache_queries_total") > 300
    assert grew("vllm:generation_tokens_total") == 5
    assert grew("vllm:time_to_first_token_seconds_count") == grew("vllm:e2e_request_latency_seconds_count") == 1
    assert grew("vllm:inter_token_latency_seconds_count") == 4
    for name in ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc",
                 "vllm:prefix_cache_hits_total"):
        assert name + label in after, name


def an_urgent_request_overtakes():
    ended = []

    def run(name, prompt, priority):
        ask(prompt, max_tokens=1, extra={"priority": priority, "ttft_slo_ms": 600000, "tbt_slo_ms": 60000})
        ended.append(name)

    def come():
        cluster = shared().client.cluster()
        return cluster["counters"]["placed"] + cluster["queue"]["waiting"]

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        before = come()
        jobs = [pool.submit(run, f"low{i}", f"Book {i}. " + LONG * 2, 2) for i in range(8)]
        wait_until("the slow ones are there", lambda: come() >= before + 8)
        jobs.append(pool.submit(run, "urgent", "Now: " + LONG, 0))
        for job in jobs:
            job.result()
    assert ended.index("urgent") < 6, ended


def nothing_is_left_behind():
    shared().wait_idle()


TESTS = [
    completion_has_text_reason_and_usage, chat_has_message_and_usage, chat_ends_by_itself,
    streams_say_the_same_as_whole_answers, include_usage_adds_a_last_chunk_without_choices,
    n_answers_differ_and_are_all_there, same_seed_same_answer, prompts_of_every_form_are_answered,
    logprobs_are_those_of_the_tokens, echo_repeats_the_prompt, echo_with_logprobs_scores_the_prompt,
    scoring_needs_no_answer, text_offsets_are_those_of_whole_characters, the_chosen_token_is_among_the_top,
    special_tokens_of_a_rendered_prompt_are_tokens, what_is_not_done_is_refused_by_its_name,
    a_wrong_model_is_refused_as_openai_does, a_compressed_body_is_told_so, a_client_that_closes_its_side_gets_its_answer,
    stop_strings_end_the_answer_and_are_left_out, token_ids_are_those_of_the_text, logit_bias_forbids_and_forces,
    min_tokens_and_ignore_eos_hold_off_the_end, second_request_hits_the_cache_unless_salted,
    unknown_fields_are_accepted_and_wrong_ones_named, other_endpoints_answer, request_id_comes_back,
    metrics_count_what_happened, an_urgent_request_overtakes, nothing_is_left_behind,
]


if __name__ == "__main__":
    try:
        main(TESTS)
    finally:
        end_shared()
