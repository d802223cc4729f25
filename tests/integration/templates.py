#!/usr/bin/env python3
"""Chat templates as they are published: the server's interpreter renders each as Jinja2 does, and refuses what it refuses.

Two packages carry such templates: the sources of `llama-cpp-python` as files, `unsloth` as strings in a module, which is
read and not run. Jinja2 is set up as transformers sets it up (tests/golden/text/make_templates.py).
"""
import ast
import json
import os
import pathlib
import subprocess
import sys
import tarfile
import zipfile

sys.path.insert(0, os.path.dirname(__file__))
from cluster import Cluster, main, one_server  # noqa: E402
from python_client import build_folder, with_packages  # noqa: E402

with_packages("python-jinja", ["jinja2==3.1.6"])

MAKER = pathlib.Path(__file__).resolve().parent.parent / "golden" / "text" / "make_templates.py"
TEMPLATES_MIN = 45  # 47 were different
# llama-cpp-deepseek-r1 takes what `map` gives for a list, which it is not in Jinja2.
LEFT_OUT = {"llama-cpp-deepseek-r1"}


def download(folder, package, *options):
    subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps", *options,
                    "--dest", str(folder), package], check=True)


def from_llama_cpp(folder):
    download(folder, "llama-cpp-python==0.3.16", "--no-binary", "llama-cpp-python")
    with tarfile.open(next(folder.glob("llama_cpp_python-*.tar.gz"))) as archive:
        for member in archive:
            path = pathlib.PurePosixPath(member.name)
            if path.suffix == ".jinja" and path.parts[-3:-1] == ("models", "templates"):
                yield path.stem, archive.extractfile(member).read().decode()


def value_of(node, known):
    """Of an expression of strings, names and sums; None for anything else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.Name):
        return known.get(node.id)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = value_of(node.left, known), value_of(node.right, known)
        return None if left is None or right is None else left + right
    return None


def from_unsloth(folder):
    download(folder, "unsloth==2026.10.9")
    with zipfile.ZipFile(next(folder.glob("unsloth-*.whl"))) as wheel:
        module = ast.parse(wheel.read("unsloth/chat_templates.py"))
    known = {}
    for statement in module.body:
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            name, value = statement.targets[0].id, value_of(statement.value, known)
            if value is None:
                continue
            known[name] = value
            if name.endswith("_template") and "ollama" not in name and "{" in value:
                yield f"unsloth-{name.removesuffix('_template')}", value


def published():
    """The folder of templates, one file each, without repetitions."""
    folder = build_folder() / "published-templates"
    if (folder / "complete").exists():
        return folder
    folder.mkdir(exist_ok=True)
    seen = set()
    for name, source in (*from_llama_cpp(folder), *from_unsloth(folder)):
        if name not in LEFT_OUT and source not in seen:
            seen.add(source)
            (folder / f"{name}.jinja").write_bytes(source.encode())
    for package in (*folder.glob("*.tar.gz"), *folder.glob("*.whl")):
        package.unlink()
    (folder / "complete").touch()
    return folder


def published_templates_are_rendered_as_jinja2_renders_them():
    folder = published()
    expected = folder / "expected.json"
    subprocess.run([sys.executable, str(MAKER), "--folder", str(folder), "--out", str(expected)], check=True)
    count = len(json.loads(expected.read_text())["templates"])
    assert count >= TEMPLATES_MIN, count
    ended = subprocess.run([os.environ["MOONCAF_TEMPLATES_TEST"], "--test-case=templates of every family*"],
                           env={**os.environ, "MOONCAF_TEMPLATES": str(expected)}, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0 and "1 passed" in ended.stdout, ended.stdout[-4000:]


TOOL = {"name": "get_weather", "description": "The weather of a town", "parameters": {"type": "object", "properties": {"town": {"type": "string"}}}}
# Templates of each family that has a form for calls; the first takes no null as content, and gpt-oss's own is one of them.
FAMILIES = ("openai-gpt-oss-120b", "unsloth-qwen3", "Qwen-Qwen2.5-7B-Instruct", "meta-llama-Llama-3.1-8B-Instruct",
            "mistralai-Mistral-Nemo-Instruct-2407", "deepseek-ai-DeepSeek-R1-Distill-Llama-8B", "google-gemma-2-2b-it")


def second_turns(client):
    """A turn that is a call alone goes back with its result, by each of the three ways to ask; yields (way, status, body)."""
    function, question = {"type": "function", "function": TOOL}, {"role": "user", "content": "Warm in Kiel?"}
    call = {"id": "abcdefghi", "type": "function", "function": {"name": "get_weather", "arguments": '{"town": "Kiel"}'}}
    result = {"role": "tool", "tool_call_id": "abcdefghi", "content": "7"}
    for about, content in (("empty", {"content": ""}), ("null", {"content": None}), ("absent", {})):
        said = [question, {"role": "assistant", **content, "tool_calls": [call]}, result]
        yield about, *client.json("POST", "/v1/chat/completions", {"messages": said, "tools": [function], "max_tokens": 2})
    yield "messages", *client.json("POST", "/v1/messages", {"max_tokens": 2, "tools": [
        {"name": TOOL["name"], "input_schema": TOOL["parameters"]}], "messages": [
            question, {"role": "assistant", "content": [{"type": "tool_use", "id": "abcdefghi", "name": "get_weather", "input": {"town": "Kiel"}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "abcdefghi", "content": "7"}]}]})
    yield "responses", *client.json("POST", "/v1/responses", {"max_output_tokens": 2, "tools": [{"type": "function", **TOOL}], "input": [
        question, {"type": "function_call", "call_id": "abcdefghi", "name": "get_weather", "arguments": '{"town": "Kiel"}'},
        {"type": "function_call_output", "call_id": "abcdefghi", "output": "7"}]})


def a_turn_that_is_a_call_alone_is_rendered_by_every_familys_template():
    for family in FAMILIES:
        with Cluster() as cluster:
            server = one_server(cluster, "--model", "dummy:layers=2,dim=64,heads=4,kv_heads=2,ffn=128,vocab=512", "--context-length", "8192",
                                "--chat-template", str(published() / f"{family}.jinja"), "--threads", "1")
            for way, status, body in second_turns(server):
                assert status == 200, (family, way, body)
            said = [{"role": "user", "content": "q"}, {"role": "assistant", "tool_calls": [
                {"id": "abcdefghi", "type": "function", "function": {"name": "get_weather", "arguments": '{"town": "Kiel"}'}}]}]
            ids = server.json("POST", "/tokenize", {"messages": said, "add_generation_prompt": False})[1]["tokens"]
            prompt = server.json("POST", "/detokenize", {"tokens": ids})[1]["prompt"]
            assert "None" not in prompt and "Kiel" in prompt, (family, prompt)


if __name__ == "__main__":
    main([published_templates_are_rendered_as_jinja2_renders_them,
          a_turn_that_is_a_call_alone_is_rendered_by_every_familys_template])
