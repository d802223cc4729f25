#!/usr/bin/env python3
"""The other ways to ask: Anthropic's client, OpenAI's responses and embeddings, with the unmodified clients against the
real binary and model; reasoning apart from answers; what vLLM's clients ask of prompts."""
import base64
import json
import math
import os
import pathlib
import struct
import sys

sys.path.insert(0, os.path.dirname(__file__))
from cluster import Cluster, main, one_server  # noqa: E402
from python_client import with_packages  # noqa: E402

with_packages("python-apis", ["openai==3.52.0", "anthropic==2.12.0", "langchain-anthropic==1.7.7", "pydantic==2.11.0"])
import anthropic  # noqa: E402
import langchain_anthropic  # noqa: E402
import openai  # noqa: E402
import pydantic  # noqa: E402

GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "golden"
HERMES = GOLDEN / "text" / "templates" / "own-hermes.jinja"
# As those of models that think: the prompt opens the reasoning, unless it is told not to.
THINKS = ("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}<|im_start|>assistant\n"
          "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% else %}<think>\n{% endif %}")
TOOL = {"name": "get_weather", "description": "The weather of a town",
        "input_schema": {"type": "object", "properties": {"town": {"enum": ["Kiel", "Rom"]}}, "required": ["town"],
                         "additionalProperties": False}}
FUNCTION = {"type": "function", "name": TOOL["name"], "description": TOOL["description"], "parameters": TOOL["input_schema"]}
QUESTION = "How is the weather in Kiel?"
_clusters = {}


def server(kind="plain"):
    """One server with a template for tools, one with a template for reasoning."""
    if kind not in _clusters:
        cluster = Cluster()
        template = HERMES
        if kind == "thinks":
            template = pathlib.Path(cluster.folder.name) / "thinks.jinja"
            template.write_text(THINKS)
        one_server(cluster, "--chat-template", str(template), "--context-length", "1024")
        _clusters[kind] = cluster
    return _clusters[kind].client


def base(kind="plain"):
    return f"http://{server(kind).host}:{server(kind).port}"


def claude():
    return anthropic.Anthropic(base_url=base(), api_key="none", max_retries=0, timeout=120)


def oai(kind="plain"):
    return openai.OpenAI(base_url=base(kind) + "/v1", api_key="none", max_retries=0, timeout=120)


def model():
    return server().cluster()["model"]


def say(**fields):
    return claude().messages.create(**{"model": model(), "max_tokens": 24, "messages": [{"role": "user", "content": "Say hello."}],
                                       **fields, "extra_body": {"temperature": 0, **fields.get("extra_body", {})}})


def anthropics_client_gets_a_message_streamed_and_not():
    whole = say(system="You are brief.")
    assert whole.type == "message" and whole.role == "assistant" and whole.content[0].type == "text" and whole.content[0].text
    assert whole.stop_reason in ("end_turn", "max_tokens") and whole.usage.input_tokens > 5 and whole.usage.output_tokens > 0
    with claude().messages.stream(model=model(), max_tokens=24, system="You are brief.", extra_body={"temperature": 0},
                                  messages=[{"role": "user", "content": "Say hello."}]) as stream:
        pieces = list(stream.text_stream)
        final = stream.get_final_message()
    assert "".join(pieces) == final.content[0].text == whole.content[0].text and len(pieces) > 1, (pieces, whole)
    assert final.stop_reason == whole.stop_reason and final.usage.output_tokens == whole.usage.output_tokens
    chat = oai().chat.completions.create(model="", max_tokens=24, temperature=0, messages=[
        {"role": "system", "content": "You are brief."}, {"role": "user", "content": "Say hello."}])
    assert chat.choices[0].message.content == whole.content[0].text, "another way to ask, the same answer"
    assert claude().messages.count_tokens(model=model(), system="You are brief.", messages=[
        {"role": "user", "content": "Say hello."}]).input_tokens == chat.usage.prompt_tokens


def it_stops_at_sequences_and_goes_on_with_what_was_begun():
    text = say().content[0].text
    word = text.split()[1]
    stopped = say(stop_sequences=[word])
    assert stopped.stop_reason == "stop_sequence" and stopped.stop_sequence == word, stopped
    assert stopped.content[0].text == text[:text.index(word)]
    begun = [{"role": "user", "content": "Count: one, two"}, {"role": "assistant", "content": "one, two, three,"}]
    went_on = say(messages=begun, max_tokens=8).content[0].text
    assert "four" in went_on, went_on


def tools_go_both_ways_with_anthropics_client():
    ask = {"tools": [TOOL], "tool_choice": {"type": "tool", "name": TOOL["name"]}, "max_tokens": 80,
           "messages": [{"role": "user", "content": QUESTION}]}
    message = say(**ask)
    use = message.content[-1]
    assert message.stop_reason == "tool_use" and use.type == "tool_use" and use.input["town"] in ("Kiel", "Rom"), message
    with claude().messages.stream(model=model(), extra_body={"temperature": 0}, **ask) as stream:
        final = stream.get_final_message()
    assert final.content[-1].input == use.input and final.stop_reason == "tool_use", final
    result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": use.id, "content": "7 degrees"}]}
    told = say(messages=[*ask["messages"], {"role": "assistant", "content": message.content}, result], tools=[TOOL],
               tool_choice={"type": "none"})
    assert told.content[0].text and told.stop_reason in ("end_turn", "max_tokens")
    bound = langchain_anthropic.ChatAnthropic(model=model(), base_url=base(), api_key="none", max_retries=0, temperature=0,
                                              max_tokens=80).bind_tools([TOOL], tool_choice="get_weather")
    assert bound.invoke(QUESTION).tool_calls[0]["args"] == use.input


def what_anthropics_client_cannot_have_is_refused_in_its_words():
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ""}}
    for fields, word in (({"messages": [{"role": "user", "content": [image]}]}, "content[0]"), ({"extra_body": {"temperature": 3}}, "temperature"),
                         ({"extra_body": {"mcp_servers": [{}]}}, "mcp_servers"), ({"tools": [{"name": "x"}]}, "input_schema")):
        try:
            say(**fields)
            raise AssertionError(fields)
        except anthropic.BadRequestError as e:
            assert e.body["type"] == "error" and e.body["error"]["type"] == "invalid_request_error" and word in e.body["error"]["message"], e.body
    try:
        say(model="nobody")
        raise AssertionError("a model that is not here")
    except anthropic.NotFoundError as e:
        assert e.body["error"]["type"] == "not_found_error", e.body


class Town(pydantic.BaseModel):
    name: str
    people: int


def anthropics_client_parses_what_it_asked_for():
    # The likeliest tokens: what a small model draws by chance may be a name without end.
    said = claude().messages.parse(model=model(), max_tokens=200, extra_body={"temperature": 0}, output_format=Town,
                                   messages=[{"role": "user", "content": "A town."}])
    assert isinstance(said.parsed_output, Town), said
    schema = {"type": "object", "properties": {"a": {"enum": ["x", "y"]}}, "required": ["a"], "additionalProperties": False}
    raw = say(extra_body={"output_config": {"format": {"type": "json_schema", "schema": schema}}})
    assert json.loads(raw.content[0].text)["a"] in ("x", "y"), raw


def responses_are_created_streamed_and_parsed():
    ask = {"model": "", "input": "Say hello.", "instructions": "You are brief.", "temperature": 0, "max_output_tokens": 24}
    whole = oai().responses.create(**ask)
    assert whole.output_text and whole.store is False and whole.usage.input_tokens > 5 and whole.instructions == ask["instructions"]
    text, last, numbers = "", None, []
    for event in oai().responses.create(stream=True, **ask):
        numbers.append(event.sequence_number)
        text += event.delta if event.type == "response.output_text.delta" else ""
        last = event
    assert text == whole.output_text == last.response.output_text and numbers == list(range(len(numbers))), (text, whole)
    assert last.type == ("response.completed" if whole.status == "completed" else "response.incomplete"), last
    parsed = oai().responses.parse(model="", input="A town by the sea?", text_format=Town, max_output_tokens=120, temperature=0)
    assert isinstance(parsed.output_parsed, Town), parsed
    call = oai().responses.create(model="", input=QUESTION, tools=[FUNCTION], tool_choice="required", parallel_tool_calls=False,
                                  temperature=0, max_output_tokens=80).output[-1]
    assert call.type == "function_call" and json.loads(call.arguments)["town"] in ("Kiel", "Rom"), call
    told = oai().responses.create(model="", temperature=0, max_output_tokens=12, input=[
        {"role": "user", "content": QUESTION}, call.model_dump(exclude_none=True),
        {"type": "function_call_output", "call_id": call.call_id, "output": "7 degrees"}])
    assert told.output_text, told
    with oai().responses.stream(model="", input="Say hello.", temperature=0, max_output_tokens=8) as stream:
        assert stream.get_final_response().output_text if not list(stream) else True
    for fields in ({"store": True}, {"previous_response_id": "resp_1"}, {"background": True}, {"tools": [{"type": "web_search"}]}):
        try:
            oai().responses.create(model="", input="x", **fields)
            raise AssertionError(fields)
        except openai.BadRequestError as e:
            assert next(iter(fields)) in str(e), e


def cosine(a, b):
    return sum(x * y for x, y in zip(a, b)) / math.sqrt(sum(x * x for x in a) * sum(y * y for y in b))


def embeddings_are_llama_cpps_of_the_same_file():
    """tests/golden/model/embeddings.json: PyPI's llama.cpp wheel on the same file (how, stands in it)."""
    golden = json.loads((GOLDEN / "model" / "embeddings.json").read_text())
    for pooling in ("mean", "last"):
        made = oai().embeddings.create(model="", input=golden["texts"], encoding_format="float", extra_body={"pooling": pooling})
        assert [d.index for d in made.data] == list(range(len(golden["texts"])))
        for ours, theirs in zip(made.data, golden[pooling]):
            assert abs(sum(x * x for x in ours.embedding) - 1) < 1e-5
            near = cosine(ours.embedding, theirs)
            assert near > 0.995, (pooling, near)
        for i in range(len(golden["texts"])):  # nearest to its own reference, and by far
            far = max(cosine(made.data[i].embedding, t) for k, t in enumerate(golden[pooling]) if k != i)
            assert cosine(made.data[i].embedding, golden[pooling][i]) > far, (pooling, i)


def embeddings_do_not_depend_on_company_cache_or_form():
    long = "The tide comes in twice a day, and the boats wait for it in the harbour. " * 20
    texts = ["The sea is", long, "A house by the sea"]
    for pooling in ("mean", "last"):
        def ask(what, **more):
            made = oai().embeddings.create(model="", input=what, extra_body={"pooling": pooling, **more})
            return [d.embedding for d in made.data]
        together = ask(texts)
        assert together == [ask(t)[0] for t in texts], f"{pooling}: alone, together and from the cache: the same bits"
        assert ask(long)[0] == ask(long)[0]
        ids = server().json("POST", "/tokenize", {"prompt": texts[0]})[1]["tokens"]
        assert ask(ids) == ask([ids]) == ask(texts[0])
        assert ask(long, truncate_prompt_tokens=7) == ask(server().json("POST", "/tokenize", {"prompt": long})[1]["tokens"][-7:])
    raw = server().json("POST", "/v1/embeddings", {"input": "x", "encoding_format": "base64"})[1]["data"][0]["embedding"]
    coded = base64.b64decode(raw)
    plain = server().json("POST", "/v1/embeddings", {"input": "x"})[1]["data"][0]["embedding"]
    assert struct.unpack(f"<{len(coded) // 4}f", coded) == tuple(struct.unpack("f", struct.pack("f", v))[0] for v in plain)
    for body, word in (({"input": ""}, "input"), ({"input": "x", "dimensions": 8}, "dimensions"), ({"input": [[10**9]]}, "vocabulary"),
                       ({"input": long * 60}, "input")):
        status, answer = server().json("POST", "/v1/embeddings", body)
        assert status == 400 and word in answer["error"]["message"], (status, answer)


def reasoning_is_apart_from_the_answer_and_a_form_begins_behind_it():
    tokens = {t: server("thinks").json("POST", "/tokenize", {"prompt": t, "add_special_tokens": False})[1]["tokens"]
              for t in ("</think>", "yes", " no", " it")}
    # So few tokens may come that the mark is soon among them.
    few = {"allowed_token_ids": sorted(set(sum(tokens.values(), []))), "ignore_eos": True}

    def ask(**more):
        return oai("thinks").chat.completions.create(**{
            "model": "", "messages": [{"role": "user", "content": "Is water wet?"}], "max_tokens": 60, "seed": 5, "temperature": 2,
            **more, "extra_body": {**few, **more.get("extra_body", {})}})
    seed, whole = next((seed, made) for seed in range(1, 60) for made in [ask(seed=seed)]
                       if getattr(made.choices[0].message, "reasoning_content", None) and made.choices[0].message.content)
    message, details = whole.choices[0].message, whole.usage.completion_tokens_details
    assert "</think>" not in message.reasoning_content, message
    assert 0 < details.reasoning_tokens < whole.usage.completion_tokens, whole.usage
    thought, content = "", ""
    for event in ask(seed=seed, stream=True):
        delta = event.choices[0].delta if event.choices else None
        thought += getattr(delta, "reasoning_content", None) or ""
        content += delta.content or ""
    assert (thought, content) == (message.reasoning_content, message.content), (thought, content)
    raw = ask(seed=seed, extra_body={"separate_reasoning": False}).choices[0].message
    assert raw.content.startswith(thought) and "</think>" in raw.content and not hasattr(raw, "reasoning_content")
    hidden = ask(seed=seed, extra_body={"include_reasoning": False}).choices[0].message
    assert hidden.content == content and not hasattr(hidden, "reasoning_content")
    for seed in (1, 2, 3):
        held = ask(seed=seed, temperature=1, extra_body={"guided_choice": ["it", "yes"]}).choices[0]
        assert held.finish_reason == "stop" and held.message.content in ("it", "yes"), held
    off = ask(extra_body={"chat_template_kwargs": {"enable_thinking": False}, "guided_choice": ["yes"]}).choices[0].message
    assert off.content == "yes" and not hasattr(off, "reasoning_content"), off
    blocks = server("thinks").json("POST", "/v1/messages", {"max_tokens": 20, "temperature": 0, "messages": [
        {"role": "user", "content": "Is water wet?"}]})[1]["content"]
    assert blocks[0]["type"] == "thinking" and blocks[0]["thinking"], blocks


def prompts_tell_their_log_probabilities_and_are_cut():
    ids = server().json("POST", "/tokenize", {"prompt": "The sea is blue"})[1]["tokens"]
    made = oai().completions.create(model="", prompt="The sea is blue", max_tokens=1, temperature=0, extra_body={"prompt_logprobs": 2})
    told = made.choices[0].prompt_logprobs
    assert told[0] is None and len(told) == len(ids), told
    echoed = oai().completions.create(model="", prompt="The sea is blue", max_tokens=1, temperature=0, echo=True, logprobs=0).choices[0].logprobs
    for i, token in enumerate(ids[1:], 1):
        assert told[i][str(token)]["logprob"] == echoed.token_logprobs[i] and len(told[i]) in (2, 3), told[i]
        assert sorted(v["rank"] for v in told[i].values() if v["rank"]) == [1, 2]
    chat = oai().chat.completions.create(model="", messages=[{"role": "user", "content": "x"}], max_tokens=1, extra_body={"prompt_logprobs": 0})
    assert len(chat.prompt_logprobs) == chat.usage.prompt_tokens
    cut = oai().completions.create(model="", prompt="The sea is blue", max_tokens=4, temperature=0, extra_body={"truncate_prompt_tokens": 2})
    assert cut.usage.prompt_tokens == 2
    assert cut.choices[0].text == oai().completions.create(model="", prompt=ids[-2:], max_tokens=4, temperature=0).choices[0].text
    whole = oai().completions.create(model="", prompt="tide " * 3000, max_tokens=16, temperature=0, extra_body={"truncate_prompt_tokens": -1})
    context = server().json("GET", "/v1/models")[1]["data"][0]["max_model_len"]
    assert whole.usage.prompt_tokens == context - 16, whole.usage


if __name__ == "__main__":
    try:
        main([anthropics_client_gets_a_message_streamed_and_not, it_stops_at_sequences_and_goes_on_with_what_was_begun,
              tools_go_both_ways_with_anthropics_client, what_anthropics_client_cannot_have_is_refused_in_its_words,
              anthropics_client_parses_what_it_asked_for,
              responses_are_created_streamed_and_parsed, embeddings_are_llama_cpps_of_the_same_file,
              embeddings_do_not_depend_on_company_cache_or_form,
              reasoning_is_apart_from_the_answer_and_a_form_begins_behind_it,
              prompts_tell_their_log_probabilities_and_are_cut])
    finally:
        for cluster in _clusters.values():
            cluster.__exit__(None, None, None)
