"""The SSD tier that `setup` opens beside its memory where `enable_ssd_offload` asks for it."""

import atexit
import os

INVALID_PARAMETERS = -600
NOT_SUPPORTED = -1012
UNABLE_TO_OFFLOAD = -1300
ROOM_MIN = 16 << 20
_opened_by = 0  # process: RocksDB has threads of its own there from then on


def _at_end(tier):
    if os.getpid() != _opened_by:
        tier.end_without_others()


def open_ssd(path, room, lend, token_file):
    """A code, the SSD tier in that folder as the extension takes it, or None, and why not."""
    if not path or not lend or room < ROOM_MIN:
        return INVALID_PARAMETERS, None, "an SSD is lent beside memory, in a folder, with 16 MiB or more of room there"
    if token_file:
        return NOT_SUPPORTED, None, "a tenant lends no SSD: others' objects would lie there"
    global _opened_by
    if _opened_by not in (0, os.getpid()):
        return NOT_SUPPORTED, None, "this process was forked from one that has lent an SSD: begin another one"
    try:
        from . import _ssd
    except ImportError as why:
        return NOT_SUPPORTED, None, f"there is no SSD tier without RocksDB's library: {why}"
    if not _opened_by:
        _opened_by = os.getpid()
        atexit.register(_at_end, _ssd)
    ssd, why = _ssd.open(str(path), room)
    return UNABLE_TO_OFFLOAD if ssd is None else 0, ssd, why
