"""What `mooncake.store`, `mooncake.engine` and their neighbours have, whoever provides them, as JSON on standard output: of each module its classes
and functions, of each class its methods and attributes, and what each takes. Names that begin with an underscore are left out.

A method's parameters are null where it does not say them, and "?" where they have no name; what can be given by its name alone has a third word. A
module is null where it needs a package that is not installed.

    python3 store_names.py
"""
import enum
import importlib
import inspect
import json
import re
import sys

MODULES = ("mooncake", "mooncake.store", "mooncake.engine", "mooncake.async_store", "mooncake.mooncake_config", "mooncake.buffer_pool",
           "mooncake.structured_object_store", "mooncake.mooncake_store_service", "mooncake.dataproto_catalog", "mooncake.http_metadata_server")


def documented(doc):
    """[name, whether it may be left out] of every parameter, of a function of pybind11's, whose documentation begins with its signature."""
    line = (doc or "").split("\n")[0]
    if not re.match(r"\w+\(.*\)( -> .*)?$", line):
        return None
    inside, parts, depth, part = line[line.index("(") + 1:line.rindex(")", 0, line.find(" -> ") if " -> " in line else None)], [], 0, ""
    for letter in inside + ",":
        depth += (letter in "[(<{") - (letter in "])>}")
        if letter == "," and depth == 0:
            parts.append(part.strip())
            part = ""
        else:
            part += letter
    named = next((i for i, p in enumerate(parts) if p.startswith("*") and not p.startswith("**")), len(parts))
    names = [(p.split(":")[0].split("=")[0].strip(), " = " in p, i > named) for i, p in enumerate(parts) if p and p != "*"]
    if {"*args", "**kwargs"} <= {n for n, _, _ in names}:
        return None  # several signatures
    return [["?" if re.fullmatch(r"arg\d+", n) else n, left_out, *["keyword"] * by_name] for n, left_out, by_name in names if n != "self"]


def taken(function):
    told = documented(function.__doc__)
    if told is not None or not inspect.isfunction(function):
        return told
    kinds = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    by_name = inspect.Parameter.KEYWORD_ONLY
    return [[kinds.get(p.kind, "") + p.name, p.default is not p.empty, *["keyword"] * (p.kind == by_name)] for p in inspect.signature(function).parameters.values() if p.name != "self"]


def made(of):
    """One of a class, for attributes that only its objects have."""
    if issubclass(of, enum.Enum):
        return next(iter(of))
    for arguments in ((), (None,), (1, 0, ["segment"])):
        try:
            return of(*arguments)
        except Exception:  # noqa: BLE001
            pass
    return None


def of_class(of):
    names = {n for n in dir(of) if not n.startswith("_")}
    names |= {n for n in dir(made(of)) if not n.startswith("_")} if issubclass(of, enum.Enum) else {
        n for n in getattr(made(of), "__dict__", {}) if not n.startswith("_")}
    return {n: taken(m) if callable(m := getattr(of, n, None)) and not isinstance(m, type) else "attribute" for n in sorted(names)}


def of_module(name):
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as why:
        if str(why.name).startswith("moonca"):
            raise
        return None
    ours = lambda o: str(o.__module__).startswith("moonca") if inspect.isclass(o) or callable(o) else isinstance(o, (int, str)) or hasattr(o, "value")  # noqa: E731
    own = {n: o for n, o in vars(module).items() if not n.startswith("_") and not inspect.ismodule(o) and ours(o)}
    return {n: of_class(o) if inspect.isclass(o) else taken(o) if callable(o) else "attribute" for n, o in sorted(own.items())}


if __name__ == "__main__":
    json.dump({name: of_module(name) for name in MODULES}, sys.stdout, separators=(",", ":"))
