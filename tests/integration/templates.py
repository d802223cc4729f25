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
from cluster import main  # noqa: E402
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


if __name__ == "__main__":
    main([published_templates_are_rendered_as_jinja2_renders_them])
