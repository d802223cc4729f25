"""Command lines as deployments of Mooncake have them: `--name=value`, `-name value`, `--name`, `--noname`."""

from __future__ import annotations

import logging

__all__ = ["Flags"]

_log = logging.getLogger("mooncaf")
_TRUE, _FALSE = ("true", "1", "t", "yes", "y"), ("false", "0", "f", "no", "n")


class Flags:
    """Flags of a program. `served` has the names that mean something here, with their defaults, whose types the values have; `others` the names that
    are accepted, and told of once. ValueError for any other name, and for a value of another type."""

    def __init__(self, arguments: list[str], served: dict[str, object], others: str) -> None:
        self._values, idle = dict(served), []
        known, rest = set(others.split()), list(arguments)
        while rest:
            name, is_set, value = rest.pop(0).partition("=")
            if not name.startswith("-") or name.strip("-") == "":
                raise ValueError(f"{name} is no flag")
            name = name.lstrip("-").replace("-", "_")
            if name.startswith("no") and name[2:] in {*served, *known} and name not in {*served, *known} and not is_set:
                name, is_set, value = name[2:], "=", "false"
            if name not in served and name not in known:
                raise ValueError(f"there is no flag --{name}")
            if not is_set and isinstance(served.get(name), bool):
                value = rest.pop(0) if rest and rest[0].lower() in _TRUE + _FALSE else "true"
            elif not is_set:
                bare = name in known and (not rest or rest[0].startswith("-"))
                if not bare and not rest:
                    raise ValueError(f"--{name} has no value")
                value = "true" if bare else rest.pop(0)
            if name in served:
                self._values[name] = _as(type(served[name]), name, value)
            elif name not in idle:
                idle.append(name)
        if idle:
            _log.warning("accepted, and without a meaning here: %s", ", ".join("--" + name for name in idle))

    def __getattr__(self, name: str):
        try:
            return self.__dict__["_values"][name]
        except KeyError:
            raise AttributeError(name) from None


def _as(wanted: type, name: str, value: str) -> object:
    word = value.strip().lower()
    if wanted is bool:
        if word not in _TRUE + _FALSE:
            raise ValueError(f"--{name}={value} is neither true nor false")
        return word in _TRUE
    try:
        return wanted(value)
    except ValueError:
        raise ValueError(f"--{name}={value} is no number") from None
