#!/usr/bin/env python3
"""JSON schemas of a public collection: every answer that the masks over the model's vocabulary allow must validate.

The collection is the JSON-Schema-Test-Suite, which the source package of `jsonschema` carries; `jsonschema` itself is the
judge. Answers are drawn at random from the masks, without a model's help: whatever a model does, it cannot do worse. What
is not supported is refused, with a keyword or a reason; what is taken is held.
"""
import decimal
import json
import os
import pathlib
import re
import subprocess
import sys
import tarfile

sys.path.insert(0, os.path.dirname(__file__))
from cluster import main  # noqa: E402
from python_client import build_folder, with_packages  # noqa: E402

JUDGE = "jsonschema==4.23.0"
with_packages("python-jsonschema", [JUDGE])
import jsonschema  # noqa: E402

DRAFTS = {"draft4": jsonschema.Draft4Validator, "draft6": jsonschema.Draft6Validator,
          "draft7": jsonschema.Draft7Validator, "draft2019-09": jsonschema.Draft201909Validator,
          "draft2020-12": jsonschema.Draft202012Validator}
ANSWERS = 5  # for each schema
TAKEN_MIN = 700  # different schemas
WHOLE_MIN = 450  # of them with every valid instance
# Keywords about the content of a string say nothing of what is valid, by default.
NOT_ASSERTED = ("based on media type", "binary string-encoding", "binary-encoded media type documents")


def exact_multiple(validator, divisor, instance, schema):
    """`jsonschema` divides floating-point numbers, of which 0.07 is no multiple of 0.01."""
    if validator.is_type(instance, "number") and decimal.Decimal(repr(instance)) % decimal.Decimal(repr(divisor)):
        yield jsonschema.ValidationError(f"{instance!r} is not a multiple of {divisor}")


JUDGES = {draft: jsonschema.validators.extend(judge, {"multipleOf": exact_multiple}) for draft, judge in DRAFTS.items()}


def suite():
    """(draft, file and description, schema, its tests) of the collection."""
    folder = build_folder() / "json-schema-suite"
    if not (folder / "complete").exists():
        folder.mkdir(exist_ok=True)
        subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
                        "--no-binary", "jsonschema", "--dest", str(folder), JUDGE], check=True)
        with tarfile.open(next(folder.glob("*.tar.gz"))) as archive:
            archive.extractall(folder)
        (folder / "complete").touch()
    for draft in DRAFTS:
        for file in sorted(folder.glob(f"*/json/tests/{draft}/**/*.json")):
            for case in json.loads(file.read_text()):
                name = f"{draft}/{file.relative_to(file.parents[1]).as_posix()}: {case['description']}"
                schema = case["schema"]
                # Another dialect's, and schemas of other files: the judge would fetch them.
                if isinstance(schema, dict) and "json-schema.org" not in schema.get("$schema", "json-schema.org"):
                    continue
                yield draft, name, schema, case["tests"]


def own_schemas():
    """What clients send: as pydantic and OpenAI's page write them."""
    person = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 20}, "age": {"type": "integer", "minimum": 0, "maximum": 130},
                                               "mail": {"anyOf": [{"type": "string", "format": "email"}, {"type": "null"}]}},
              "required": ["name", "age", "mail"], "additionalProperties": False}
    step = {"type": "object", "properties": {"explanation": {"type": "string"}, "output": {"type": "string"}},
            "required": ["explanation", "output"], "additionalProperties": False}
    tree = {"$defs": {"node": {"type": "object", "properties": {"value": {"type": "number"}, "children": {"type": "array", "items": {"$ref": "#/$defs/node"}, "maxItems": 2}},
                               "required": ["value", "children"], "additionalProperties": False}}, "$ref": "#/$defs/node"}
    yield "draft2020-12", "own: person", person, []
    yield "draft2020-12", "own: steps", {"type": "object", "properties": {"steps": {"type": "array", "items": step}, "final": {"enum": ["yes", "no"]}},
                                         "required": ["steps", "final"], "additionalProperties": False}, []
    yield "draft2020-12", "own: tree", tree, []
    yield "draft2020-12", "own: map", {"type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": {"type": "array", "items": {"type": "boolean"}}}, []
    yield "draft2020-12", "own: date", {"type": "object", "properties": {"when": {"type": "string", "format": "date-time"}}, "required": ["when"]}, []


def every_answer_to_every_schema_that_is_taken_validates():
    cases = list(suite()) + list(own_schemas())
    tool = build_folder() / "tests/runtime/grammar/mooncaf_grammar_answers"
    texts = lambda tests: [json.dumps(t["data"], separators=(",", ":"), ensure_ascii=False) for t in tests]
    lines = "".join(json.dumps({"schema": schema, "texts": texts(tests)}) + "\n" for _, _, schema, tests in cases)
    run = subprocess.run([str(tool), os.environ["MOONCAF_MODEL"], str(ANSWERS), "1"], input=lines, stdout=subprocess.PIPE,
                         text=True, check=True, timeout=280)
    outcomes = [json.loads(line) for line in run.stdout.splitlines()]
    assert len(outcomes) == len(cases), (len(outcomes), len(cases))
    taken, whole, refused, wrong, unfinished, answers = set(), set(), {}, [], [], 0
    for (draft, name, schema, tests), outcome in zip(cases, outcomes):
        if "refused" in outcome:
            assert re.match(r"at #.*: .|.*(left recursion|no answer that ends|too large)", outcome["refused"]), (name, outcome)
            refused[outcome["refused"].split(": ", 1)[-1]] = refused.get(outcome["refused"].split(": ", 1)[-1], 0) + 1
            continue
        # What does not validate never comes; what validates may be left out.
        said = [t for t, may in zip(tests, outcome["taken"]) if may]
        wrong += [(name, json.dumps(t["data"])[:200], "an invalid instance may come") for t in said
                  if not t["valid"] and not name.endswith(NOT_ASSERTED)]
        if not outcome["answers"]:
            unfinished.append(name)
            continue
        taken.add(json.dumps(schema))
        if all(t["valid"] == may for t, may in zip(tests, outcome["taken"])):
            whole.add(json.dumps(schema))
        judge = JUDGES[draft](schema)
        for text in outcome["answers"]:
            answers += 1
            try:
                error = next(iter(judge.iter_errors(json.loads(text))), None)
            except ValueError as e:
                error = e
            if error is not None:
                wrong.append((name, text[:200], str(error).splitlines()[0]))
    print(f"     {len(cases)} schemas, {len(taken)} different ones taken, {len(whole)} of them with every "
          f"valid instance of the collection, {answers} answers, {len(wrong)} wrong, "
          f"{sum(refused.values())} refused, {len(unfinished)} without an end in 600 tokens", flush=True)
    for why, count in sorted(refused.items(), key=lambda i: -i[1])[:12]:
        print(f"     refused {count}: {why}", flush=True)
    assert not wrong, wrong[:20]
    assert len(taken) >= TAKEN_MIN and len(whole) >= WHOLE_MIN, (len(taken), len(whole))
    assert len(unfinished) <= len(cases) // 50, unfinished
    assert not [n for n in unfinished if n.startswith("own")], unfinished
    assert not [n for (_, n, _, _), o in zip(cases, outcomes) if n.startswith("own") and "refused" in o]


if __name__ == "__main__":
    main([every_answer_to_every_schema_that_is_taken_validates])
