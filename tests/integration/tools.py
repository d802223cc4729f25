#!/usr/bin/env python3
"""Tools, offered with OpenAI's own client to the real binary and model: calls that must come, in prompts and answers,
streamed and not. The model's own template knows no tools, so the server is given one that does (--chat-template)."""
import json
import os
import pathlib
import sys
from typing import Literal

sys.path.insert(0, os.path.dirname(__file__))
from cluster import Cluster, main, one_server  # noqa: E402
from python_client import with_packages  # noqa: E402

with_packages("python-tools", ["openai==3.52.0", "jsonschema==4.23.0", "pydantic==2.11.0", "langchain-openai==1.7.3"])
import jsonschema  # noqa: E402
import langchain_openai  # noqa: E402
import openai  # noqa: E402
import pydantic  # noqa: E402

TEMPLATE = pathlib.Path(__file__).resolve().parents[1] / "golden" / "text" / "templates" / "own-hermes.jinja"
TOWN = {"type": "object", "properties": {"town": {"$ref": "#/$defs/town"}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
        "required": ["town", "days"], "additionalProperties": False, "$defs": {"town": {"enum": ["Kiel", "Rom", "Oslo"]}}}
TOOLS = [{"type": "function", "function": {"name": "get_weather", "description": "The weather of a town", "parameters": TOWN}},
         {"type": "function", "function": {"name": "end_talk", "description": "Nothing more", "parameters": {"type": "object", "properties": {}, "additionalProperties": False}}}]
QUESTION = [{"role": "user", "content": "How is the weather in Kiel?"}]
_shared = None


def shared():
    global _shared
    if _shared is None:
        cluster = Cluster()
        one_server(cluster, "--chat-template", str(TEMPLATE))
        _shared = cluster
    return _shared


def api():
    server = shared().client
    return openai.OpenAI(base_url=f"http://{server.host}:{server.port}/v1", api_key="none", max_retries=0, timeout=120)


def chat(messages=QUESTION, **fields):
    return api().chat.completions.create(model="", messages=messages, **{"tools": TOOLS, "max_tokens": 120, "temperature": 0, **fields})


def named(name):
    return {"type": "function", "function": {"name": name}}


def check(call):
    assert call.type == "function" and len(call.id) == 9 and call.id.isalnum(), call
    function = next(t["function"] for t in TOOLS if t["function"]["name"] == call.function.name)
    jsonschema.validate(json.loads(call.function.arguments), function["parameters"])


def a_call_that_must_come_comes_and_fits_its_schema():
    for options in ({}, {"temperature": 2, "seed": 3}, {"parallel_tool_calls": False}):
        choice = chat(tool_choice="required", **options).choices[0]
        calls = choice.message.tool_calls
        if choice.finish_reason == "length":  # several calls, one after the other, until the limit
            calls = calls[:-1]
        else:
            assert choice.finish_reason == "tool_calls" and choice.message.content is None, choice
        for call in calls:
            check(call)
        assert len({c.id for c in calls}) == len(calls) and (calls or choice.finish_reason == "length")
    for name in ("get_weather", "end_talk"):
        choice = chat(tool_choice=named(name), temperature=1, seed=1).choices[0]
        assert choice.finish_reason == "tool_calls" and [c.function.name for c in choice.message.tool_calls] == [name], choice
        check(choice.message.tool_calls[0])


def a_streamed_call_is_the_same_in_pieces():
    whole = chat(tool_choice=named("get_weather")).choices[0].message.tool_calls[0].function
    name, arguments, pieces, finish, ids = "", "", 0, None, set()
    for event in chat(tool_choice=named("get_weather"), stream=True):
        delta, finish = event.choices[0].delta, event.choices[0].finish_reason
        assert not delta.content, event
        for call in delta.tool_calls or []:
            assert call.index == 0
            name += call.function.name or ""
            ids |= {call.id} if call.id else set()
            arguments += call.function.arguments
            pieces += 1
    assert (name, json.loads(arguments), finish) == (whole.name, json.loads(whole.arguments), "tool_calls"), (name, arguments, finish)
    assert pieces > 2 and len(ids) == 1, (pieces, ids)


def a_result_goes_back_and_tools_are_in_the_prompt_unless_none_may_be_called():
    call = chat(tool_choice=named("get_weather")).choices[0].message
    said = [*QUESTION, call.model_dump(exclude_none=True), {"role": "tool", "tool_call_id": call.tool_calls[0].id, "content": "7 degrees"}]
    answer = chat(said, tool_choice="none", max_tokens=12).choices[0]
    assert answer.message.content and not answer.message.tool_calls and answer.finish_reason in ("stop", "length"), answer
    server = shared().client

    def tokens(**more):
        return server.json("POST", "/tokenize", {"messages": said, **more})[1]["count"]
    assert tokens(tools=TOOLS) > tokens() + 50
    prompt = server.json("POST", "/detokenize", {"tokens": server.json("POST", "/tokenize", {"messages": said, "tools": TOOLS})[1]["tokens"]})[1]["prompt"]
    assert '"name": "get_weather"' in prompt and "<tool_response>\n7 degrees" in prompt and '"arguments": {"town"' in prompt, prompt
    assert chat(tool_choice="none").usage.prompt_tokens < chat(max_tokens=1).usage.prompt_tokens


def what_a_model_says_without_a_call_is_content():
    choice = chat(tool_choice="auto", max_tokens=20).choices[0]
    assert choice.message.content or choice.message.tool_calls, choice
    pieces = [e.choices[0].delta for e in chat(tool_choice="auto", max_tokens=20, stream=True)]
    assert "".join(d.content or "" for d in pieces).strip() == (choice.message.content or "").strip()


class GetWeather(pydantic.BaseModel):
    town: Literal["Kiel", "Rom", "Oslo"]
    days: int = pydantic.Field(ge=1, le=9)


def what_a_client_parses_is_of_its_own_types():
    answer = api().chat.completions.parse(model="", messages=QUESTION, tools=[openai.pydantic_function_tool(GetWeather)],
                                          tool_choice=named("GetWeather"), max_tokens=120)
    made = answer.choices[0].message.tool_calls[0].function.parsed_arguments
    assert isinstance(made, GetWeather), answer


def langchain_binds_tools_and_has_structured_answers():
    server = shared().client
    model = langchain_openai.ChatOpenAI(base_url=f"http://{server.host}:{server.port}/v1", api_key="none", max_retries=0,
                                        model=server.cluster()["model"], temperature=0, max_tokens=120)
    call = model.bind_tools([GetWeather], tool_choice="GetWeather").invoke("How is the weather in Kiel?").tool_calls[0]
    assert call["name"] == "GetWeather" and GetWeather(**call["args"]), call
    for method in ("function_calling", "json_schema"):
        made = model.with_structured_output(GetWeather, method=method).invoke("How is the weather in Kiel?")
        assert isinstance(made, GetWeather), (method, made)


def calls_that_are_no_json_reach_the_client_as_such():
    tags = "<tool_call>\n<function=get_weather>\n<parameter=town>\nKiel\n</parameter>\n<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>"
    for parser, text in (("pythonic", '[get_weather(town="Kiel", days=3)]'), ("qwen3_coder", tags)):
        with Cluster() as cluster:
            server = one_server(cluster, "--chat-template", str(TEMPLATE), "--tool-call-parser", parser)
            client = openai.OpenAI(base_url=f"http://{server.host}:{server.port}/v1", api_key="none", max_retries=0, timeout=120)
            asked = {"model": "", "messages": QUESTION, "tools": TOOLS, "max_tokens": 120, "extra_body": {"guided_choice": [text]}}
            choice = client.chat.completions.create(**asked).choices[0]
            assert choice.finish_reason == "tool_calls" and not choice.message.content, choice
            check(choice.message.tool_calls[0])
            assert json.loads(choice.message.tool_calls[0].function.arguments) == {"town": "Kiel", "days": 3}, choice
            deltas = [e.choices[0].delta for e in client.chat.completions.create(**asked, stream=True)]
            said = "".join(c.function.arguments or "" for d in deltas for c in d.tool_calls or [])
            assert json.loads(said) == {"town": "Kiel", "days": 3} and not any(d.content for d in deltas), deltas
            del asked["extra_body"]
            forced = client.chat.completions.create(**asked, tool_choice=named("get_weather"), temperature=0).choices[0]
            check(forced.message.tool_calls[0])


def a_template_without_a_place_for_tools_has_them_in_a_message():
    """The model's own template, as the quickstart serves it; with --tools template-only they are refused."""
    with Cluster() as cluster:
        server = one_server(cluster)
        client = openai.OpenAI(base_url=f"http://{server.host}:{server.port}/v1", api_key="none", max_retries=0, timeout=120)
        asked = {"model": "", "messages": QUESTION, "tools": TOOLS, "max_tokens": 120, "temperature": 0}
        call = client.chat.completions.create(**asked, tool_choice=named("get_weather")).choices[0].message
        check(call.tool_calls[0])
        assert call.content is None and "no place for them" in cluster.processes["all"].output(), call
        said = [*QUESTION, call.model_dump(), {"role": "tool", "tool_call_id": call.tool_calls[0].id, "content": "7 degrees"}]
        ids = server.json("POST", "/tokenize", {"messages": said, "tools": TOOLS})[1]["tokens"]
        prompt = server.json("POST", "/detokenize", {"tokens": ids})[1]["prompt"]
        assert "<tools>" in prompt and "get_weather" in prompt and "<tool_response>\n7 degrees" in prompt and "None" not in prompt, prompt
        choice = client.chat.completions.create(**{**asked, "messages": said, "max_tokens": 20}).choices[0]
        assert choice.message.content or choice.message.tool_calls, choice
        model = langchain_openai.ChatOpenAI(base_url=f"http://{server.host}:{server.port}/v1", api_key="none", max_retries=0,
                                            model=server.cluster()["model"], temperature=0, max_tokens=120)
        bound = model.bind_tools([GetWeather], tool_choice="GetWeather").invoke("How is the weather in Kiel?").tool_calls[0]
        assert GetWeather(**bound["args"]), bound
    with Cluster() as cluster:
        server = one_server(cluster, "--tools", "template-only")
        status, body = server.json("POST", "/v1/chat/completions", {"messages": QUESTION, "tools": TOOLS, "max_tokens": 1})[:2]
        assert status == 400 and "has no place for them" in body["error"]["message"], body


def a_call_that_is_cut_is_no_content():
    for tokens in (1, 2, 3, 5, 8):
        for stream in (False, True):
            fields = {"tool_choice": "required", "max_tokens": tokens}
            if stream:
                events = list(chat(**fields, stream=True))
                content, reason = "".join(e.choices[0].delta.content or "" for e in events), events[-1].choices[0].finish_reason
            else:
                choice = chat(**fields).choices[0]
                content, reason = choice.message.content or "", choice.finish_reason
            assert content == "" and reason == "length", (tokens, stream, content, reason)


def what_cannot_be_offered_is_refused_by_name():
    for fields, name in (({"tool_choice": named("nobody")}, "tool_choice"), ({"tool_choice": "perhaps"}, "tool_choice"),
                         ({"tools": [{"type": "function"}]}, "tools"), ({"tools": TOOLS * 600}, "tools"),
                         ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "name"),
                         ({"tool_choice": "required", "tools": None}, "tool_choice")):
        try:
            chat(**fields)
            raise AssertionError(fields)
        except openai.BadRequestError as e:
            assert name in str(e), (fields, e)


if __name__ == "__main__":
    try:
        main([a_call_that_must_come_comes_and_fits_its_schema, a_streamed_call_is_the_same_in_pieces,
              a_result_goes_back_and_tools_are_in_the_prompt_unless_none_may_be_called,
              what_a_model_says_without_a_call_is_content, what_a_client_parses_is_of_its_own_types,
              langchain_binds_tools_and_has_structured_answers, calls_that_are_no_json_reach_the_client_as_such,
              a_template_without_a_place_for_tools_has_them_in_a_message, a_call_that_is_cut_is_no_content,
              what_cannot_be_offered_is_refused_by_name])
    finally:
        if _shared:
            _shared.__exit__(None, None, None)
