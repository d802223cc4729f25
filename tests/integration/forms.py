#!/usr/bin/env python3
"""Answers held to a form, asked for with OpenAI's own client against the real binary and model: schemas, regular
expressions, choices and grammars, with every other option, and through the loss of the worker that makes the answer."""
import json
import os
import re
import sys

sys.path.insert(0, os.path.dirname(__file__))
from chaos import Deployment  # noqa: E402
from cluster import Cluster, main, one_server, text_of  # noqa: E402
from python_client import with_packages  # noqa: E402

with_packages("python-forms", ["openai==3.52.0", "jsonschema==4.23.0", "pydantic==2.11.0"])
import jsonschema  # noqa: E402
import openai  # noqa: E402
import pydantic  # noqa: E402

SCHEMA = {"type": "object",
          "properties": {"town": {"type": "string", "maxLength": 24}, "inhabitants": {"type": "integer", "minimum": 1},
                         "kind": {"enum": ["port", "inland"]}, "rivers": {"type": "array", "items": {"type": "string", "maxLength": 16}, "maxItems": 3}},
          "required": ["town", "inhabitants", "kind", "rivers"], "additionalProperties": False}
QUESTION = [{"role": "user", "content": "Describe a town by the sea as JSON."}]
_shared = None


def shared():
    """One server for all tests that leave nothing behind."""
    global _shared
    if _shared is None:
        cluster = Cluster()
        one_server(cluster)
        _shared = cluster
    return _shared


def api():
    server = shared().client
    return openai.OpenAI(base_url=f"http://{server.host}:{server.port}/v1", api_key="none", max_retries=0, timeout=120)


def chat(*, extra=None, **fields):
    return api().chat.completions.create(model="", messages=QUESTION, extra_body=extra, **{"max_tokens": 200, **fields})


def ask(prompt="The answer is", *, extra=None, **fields):
    return api().completions.create(model="", prompt=prompt, extra_body=extra, **{"max_tokens": 60, **fields})


def as_format(schema):
    return {"type": "json_schema", "json_schema": {"name": "town", "schema": schema, "strict": True}}


def check(choice, schema=SCHEMA):
    text = choice.message.content
    assert choice.finish_reason == "stop", (choice.finish_reason, text)
    jsonschema.validate(json.loads(text), schema)
    return json.loads(text)


def a_schema_is_held_with_every_sampling_option():
    options = ({"temperature": 0}, {"temperature": 2}, {"temperature": 1.5, "top_p": 0.5},
               {"frequency_penalty": 2, "presence_penalty": 2}, {"logit_bias": {"18": 100}},
               {"extra": {"top_k": 3, "min_p": 0.1, "repetition_penalty": 2}}, {"extra": {"min_tokens": 190}},
               {"extra": {"ignore_eos": True}})
    for option in options:
        for choice in chat(response_format=as_format(SCHEMA), seed=3, **option).choices:
            answer = check(choice)
            assert list(answer) == ["town", "inhabitants", "kind", "rivers"], answer
    many = chat(response_format=as_format(SCHEMA), n=6, seed=1, temperature=1.2).choices
    assert len({json.dumps(check(c)) for c in many}) > 1, "answers with different seeds are the same"


def streams_are_the_same_answers():
    for fields in ({"response_format": as_format(SCHEMA)}, {"extra": {"guided_regex": r"[A-Z][a-z]{2,8}( [a-z]{2,9}){2,5}\."}}):
        whole = chat(temperature=0, **fields).choices[0].message.content
        pieces = [c.choices[0].delta.content or "" for c in chat(temperature=0, stream=True, **fields) if c.choices]
        assert "".join(pieces) == whole and len(pieces) > 3, (pieces, whole)


def every_field_that_names_a_form_holds_it():
    grammar = 'root ::= "<" [a-z]+ ">" ("\\n" root)?'
    forms = ({"guided_json": SCHEMA}, {"guided_json": json.dumps(SCHEMA)}, {"json_schema": SCHEMA},
             {"structured_outputs": {"json": SCHEMA}})
    for form in forms:
        jsonschema.validate(json.loads(ask(extra=form, max_tokens=200, seed=5).choices[0].text), SCHEMA)
    for form in ({"guided_choice": ["red", "green and blue"]}, {"structured_outputs": {"choice": ["red", "green and blue"]}}):
        for choice in ask(extra=form, n=4).choices:
            assert choice.text in ("red", "green and blue") and choice.finish_reason == "stop", choice
    for form in ({"guided_regex": r"\d{3}-[a-f]{2,4}"}, {"structured_outputs": {"regex": r"\d{3}-[a-f]{2,4}"}}):
        assert re.fullmatch(r"\d{3}-[a-f]{2,4}", ask(extra=form).choices[0].text)
    for form in ({"grammar": grammar}, {"guided_grammar": grammar}):
        text = ask(extra={**form, "stop_token_ids": []}, max_tokens=40, seed=2).choices[0].text
        assert re.match(r"<[a-z]+(>(\n<[a-z]+)*)?", text), text
    for response_format in ({"type": "json_object"}, {"type": "json_object", "schema": SCHEMA}):
        choice = chat(response_format=response_format, temperature=0, max_tokens=400).choices[0]
        assert isinstance(json.loads(choice.message.content), dict) if choice.finish_reason == "stop" else choice.message.content[0] == "{"


def the_client_s_parse_gives_objects():
    class Town(pydantic.BaseModel):
        name: str = pydantic.Field(max_length=20)
        founded: int
        harbour: bool

    parsed = api().chat.completions.parse(model="", messages=QUESTION, response_format=Town, max_tokens=200, seed=4)
    town = parsed.choices[0].message.parsed
    assert isinstance(town, Town), parsed


def stop_strings_and_limits_end_an_answer_as_always():
    r = chat(response_format=as_format(SCHEMA), stop=['"inhabitants'], temperature=0).choices[0]
    assert r.finish_reason == "stop" and '"inhabitants' not in r.message.content and r.message.content.startswith("{"), r
    r = chat(response_format=as_format(SCHEMA), max_tokens=5).choices[0]
    assert r.finish_reason == "length" and r.message.content.startswith("{"), r


def log_probabilities_are_of_what_the_model_said_itself():
    free = chat(temperature=0, logprobs=True, top_logprobs=5, max_tokens=1).choices[0].logprobs.content[0]
    held = chat(temperature=0, logprobs=True, top_logprobs=5, extra={"guided_choice": ["~~"]}).choices[0].logprobs.content[0]
    assert [t.token for t in held.top_logprobs] == [t.token for t in free.top_logprobs], (held, free)
    assert held.logprob < free.logprob and held.token.startswith("~"), held


def words_and_tokens_are_kept_out():
    client = shared().client
    status, ids = client.json("POST", "/tokenize", {"prompt": "0123456789", "add_special_tokens": False})
    assert status == 200
    text = ask(extra={"allowed_token_ids": ids["tokens"], "min_tokens": 10}, max_tokens=10, seed=1).choices[0].text
    assert re.fullmatch(r"\d+", text), text
    plain = ask("The capital of France is", temperature=0, max_tokens=8).choices[0].text
    word = plain.split()[0].strip(".,")
    without = ask("The capital of France is", temperature=0, max_tokens=8, extra={"bad_words": [word]}).choices[0].text
    assert word in plain and word not in without, (plain, without)


def what_cannot_be_held_is_a_400_that_names_the_field():
    bad = (({"response_format": as_format({"$dynamicRef": "#a"})}, "response_format", "'$dynamicRef' is not supported"),
           ({"extra": {"guided_regex": "(?=a)b"}}, "guided_regex", "lookaround"),
           ({"extra": {"grammar": "root ::= other"}}, "grammar", "'other' is used and not given"),
           ({"extra": {"guided_grammar": "root ::= root \"a\" | \"b\""}}, "guided_grammar", "left recursion"),
           ({"extra": {"grammar": 'root ::= (("a"{999}){999}){999}'}}, "grammar", "too large"),
           ({"extra": {"guided_choice": ["a"], "guided_regex": "b"}}, "guided_choice", "only one may"),
           ({"extra": {"allowed_token_ids": [99999999]}}, "allowed_token_ids", "outside the vocabulary"))
    for fields, field, words in bad:
        try:
            chat(**fields)
        except openai.BadRequestError as e:
            assert e.param == field and words in str(e), (field, e.body)
        else:
            raise AssertionError(f"{field} was not refused")
    shared().wait_idle()


def a_killed_decode_worker_does_not_cost_the_form():
    ask_for = {"prompt": "Towns and rivers:", "temperature": 0.9, "seed": 11, "max_tokens": 120,
               "guided_json": {"type": "array", "minItems": 12, "items": {"type": "object", "properties": {"name": {"type": "string", "maxLength": 12}, "size": {"type": "integer"}},
                                                                            "required": ["name", "size"]}}}
    expected = text_of(shared().client.complete(**ask_for))
    with Cluster() as cluster:
        d = Deployment(cluster)
        text, count = "", 0
        for event in d.client.stream("/v1/completions", {**ask_for, "stream": True}):
            if event is None:
                break
            assert "error" not in event, event
            text += "".join(c["text"] for c in event["choices"])
            count += 1
            if count == 40:
                cluster.processes[d.node_of("decode")].kill9()
        assert text == expected and text.startswith("["), (text, expected)
        cluster.wait_idle(60)


if __name__ == "__main__":
    try:
        main([a_schema_is_held_with_every_sampling_option, streams_are_the_same_answers, every_field_that_names_a_form_holds_it,
              the_client_s_parse_gives_objects, stop_strings_and_limits_end_an_answer_as_always,
              log_probabilities_are_of_what_the_model_said_itself, words_and_tokens_are_kept_out,
              what_cannot_be_held_is_a_400_that_names_the_field, a_killed_decode_worker_does_not_cost_the_form])
    finally:
        if _shared:
            _shared.__exit__(None, None, None)
