#!/usr/bin/env python3
"""Makes templates.json: what Jinja2, set up as transformers sets it up, makes of chat templates and conversations.

    python3 -m venv venv && venv/bin/pip install jinja2==3.1.6
    venv/bin/python make_templates.py                       # rewrites templates.json from templates/*.jinja
    venv/bin/python make_templates.py --folder F --out O    # a wider comparison, not checked in; then run the test
                                                            # with MOONCAF_TEMPLATES=O
"""
import argparse
import datetime
import json
import pathlib

import jinja2
import jinja2.ext
import jinja2.sandbox

from template_chats import CHATS
from template_pieces import ALL

HERE = pathlib.Path(__file__).parent
NOW = datetime.datetime(2026, 11, 22, 9, 5, 3)


class Generation(jinja2.ext.Extension):
    """{% generation %} … {% endgeneration %}, which only marks what a model says."""
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_said"), [], [], body).set_lineno(line)

    def _said(self, caller):
        return caller()


def environment():
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                                       extensions=[Generation, jinja2.ext.loopcontrols])

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = NOW.strftime
    return env


def cut_behind(text, last):
    """As apply_chat_template does for continue_final_message."""
    at = text.rindex(last.strip())
    end = last.lstrip() if text[at:at + len(last.lstrip())] == last.lstrip() else last.strip()
    return text[:at + len(end)]


def render(template, messages, more):
    more = dict(more)
    goes_on = more.pop("continue_final_message", False)
    given = {"tools": None, "documents": None, "add_generation_prompt": not goes_on, "bos_token": "<s>",
             "eos_token": "</s>", **more}
    try:
        text = template.render(messages=messages, **given)
        return {"text": cut_behind(text, messages[-1]["content"]) if goes_on else text}
    except jinja2.exceptions.TemplateError as e:
        return {"error": e.message if type(e) is jinja2.exceptions.TemplateError else ""}
    except (TypeError, ValueError, ArithmeticError, RecursionError):
        return {"error": ""}


def main():
    args = argparse.ArgumentParser()
    args.add_argument("--folder", type=pathlib.Path, default=HERE / "templates")
    args.add_argument("--out", type=pathlib.Path, default=HERE / "templates.json")
    args = args.parse_args()
    env = environment()
    golden = []
    for file in sorted(args.folder.glob("*.jinja")):
        source = file.read_bytes().decode()
        template = env.from_string(source)
        cases = [{"chat": name, **render(template, messages, more)} for name, (messages, more) in CHATS.items()]
        golden.append({"name": file.stem, "cases": cases})
        if args.folder != HERE / "templates":
            golden[-1]["source"] = source
    if args.folder == HERE / "templates":
        asked = {"question": CHATS["question"]}
        for i, source in enumerate(ALL):
            try:
                template = env.from_string(source)
            except jinja2.exceptions.TemplateSyntaxError:
                golden.append({"name": f"piece {i}", "source": source, "cases": []})
                continue
            cases = [{"chat": n, **render(template, *given)} for n, given in asked.items()]
            golden.append({"name": f"piece {i}", "source": source, "cases": cases})
    chats = {name: {"messages": messages, "more": more} for name, (messages, more) in CHATS.items()}
    lines = ",\n".join(json.dumps(t) for t in golden)
    args.out.write_text('{"chats": ' + json.dumps(chats) + ',\n"templates": [\n' + lines + "\n]}\n")
    said = sum("text" in c for t in golden for c in t["cases"])
    print(f"{len(golden)} templates, {said} renderings, {sum(len(t['cases']) for t in golden) - said} refusals")


if __name__ == "__main__":
    main()
