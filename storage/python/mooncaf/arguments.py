"""Arguments of callers, as the extension takes them."""

import ipaddress
import random
import socket

from . import _store
from .types import ReplicateConfig, SoftPinAction

_UNITS = {"": 1, "B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40,
          "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40}


def size(value):
    if isinstance(value, int):
        return value
    text = str(value).strip().upper()
    digits = text.rstrip("ABCDEFGHIJKLMNOPQRSTUVWXYZ ")
    return int(float(digits) * _UNITS[text[len(digits):].strip()])


def key(given):
    """Keys are text or bytes; text is UTF-8."""
    if isinstance(given, bytes):
        return given
    if isinstance(given, str):
        return given.encode("utf-8", "surrogateescape")
    raise TypeError(f"a key is str or bytes, not {type(given).__name__}")


def keys(given):
    if isinstance(given, (str, bytes)):
        raise TypeError("keys is a list")
    return [key(k) for k in given]


def how(config):
    """The policy as the extension takes it, or None for a configuration that is refused."""
    if config is None:
        return _PLAIN
    if not isinstance(config, ReplicateConfig):
        raise TypeError("config is a ReplicateConfig")
    soft = config.soft_pin_action == SoftPinAction.ENABLE
    if config.soft_pin_ttl_ms is not None and not soft:
        return None
    if config.nof_replica_num or config.dfs_replica_num:
        return None
    preferred = list(config.preferred_segments)
    if config.preferred_segment:
        preferred.insert(0, config.preferred_segment)
    groups = [key(g) for g in config.group_ids] if config.group_ids is not None else []
    parents = [key(p) for p in config.parents] if config.parents is not None else []
    costs = [float(c) for c in config.costs] if config.costs is not None else []
    return _store.How(config.replica_num, config.with_hard_pin, soft, config.soft_pin_ttl_ms or 0, preferred, groups,
                      parents, costs, config.ttl_ms or 0)


_PLAIN = how(ReplicateConfig())  # nothing is changed in one that was made


_PORTS = range(12300, 14301)  # in which Mooncake's clients are found


def claimed_port():
    """(a socket that keeps it, the port): no other store of this host has it while the socket is open. (None, port) where all are taken. The port is
    a name: nothing listens there, and other programs may."""
    dice = random.SystemRandom()  # children of one process must not draw alike
    for port in dice.sample(_PORTS, 20):
        claim = socket.socket(socket.AF_UNIX)
        try:
            claim.bind(f"\0mooncaf-store-{port}")
            return claim, port
        except OSError:
            claim.close()
    return None, dice.choice(_PORTS)


def listen_host(name):
    """Where memory that is lent is reached: the host that the caller names, if that is an address of this one's."""
    host = name.rpartition(":")[0].strip("[]")
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return "127.0.0.1"
    return "127.0.0.1" if address.is_loopback or address.is_unspecified else host


def directories(text):
    """[(host, port), ...] of "HOST:PORT,HOST:PORT", or None for anything else."""
    found = []
    for one in text.split(","):
        host, _, port = one.strip().rpartition(":")
        if not host or not port.isdigit() or not 0 < int(port) < 65536:
            return None
        found.append((host, int(port)))
    return found
