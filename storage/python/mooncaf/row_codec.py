"""Values of rows that are no dense arrays, as bytes: a letter for the type, then the content. Reading runs no code from the bytes.

None, truth, numbers, text, bytes, lists, tuples, dicts, arrays and scalars of numpy, tensors of torch, and images of PIL, nested as they come.
"""

from __future__ import annotations

import io
import struct
import sys

import numpy as np

from .tensors import HEADER, _elements, _Layout, _tensor_in

__all__ = ["pack", "unpack"]

_DEPTH_MAX = 64
_PLAIN_KINDS = "biufcSUmM"  # of numpy's types: the bytes are the value


def _sized(content: bytes) -> bytes:
    return struct.pack("<Q", len(content)) + content


def _array(value: np.ndarray) -> bytes:
    if value.dtype.kind not in _PLAIN_KINDS:
        raise TypeError(f"an array of {value.dtype} cannot be stored")
    shape = struct.pack(f"<B{value.ndim}Q", value.ndim, *value.shape)
    return _sized(value.dtype.str.encode()) + shape + _sized(np.ascontiguousarray(value).tobytes())


def pack(value: object, depth: int = 0) -> bytes:
    """@raises TypeError for a value of another type, ValueError for one that is nested too deeply"""
    if depth > _DEPTH_MAX:
        raise ValueError("values are nested too deeply")
    if value is None or isinstance(value, bool):
        return b"N" if value is None else b"T" if value else b"F"
    if isinstance(value, np.generic):
        return b"g" + _array(np.asarray(value))
    if isinstance(value, int):
        return b"i" + _sized(value.to_bytes((value.bit_length() + 8) // 8, "little", signed=True))
    if isinstance(value, float):
        return b"f" + struct.pack("<d", value)
    if isinstance(value, str):
        return b"s" + _sized(value.encode("utf-8", "surrogatepass"))
    if isinstance(value, (bytes, bytearray, memoryview)):
        return b"b" + _sized(bytes(value))
    if isinstance(value, (list, tuple)):
        return (b"l" if isinstance(value, list) else b"t") + _all(value, depth)
    if isinstance(value, dict):
        return b"d" + _all([one for pair in value.items() for one in pair], depth)
    if isinstance(value, np.ndarray):
        if value.dtype == object:
            return b"o" + struct.pack(f"<B{value.ndim}Q", value.ndim, *value.shape) + _all(list(value.flat), depth)
        return b"n" + _array(value)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        found = _elements(value)
        if found is None:
            raise TypeError(f"a tensor of {value.dtype} cannot be stored")
        layout, (address, size), kept = found
        return b"x" + _sized(layout.header() + bytes(kept.reshape(-1).view(torch.uint8).numpy()) if size else layout.header())
    if type(value).__module__.startswith("PIL.") and hasattr(value, "save"):
        picture = io.BytesIO()
        value.save(picture, "PNG")
        return b"p" + _sized(picture.getvalue())
    raise TypeError(f"a {type(value).__name__} cannot be stored")


def _all(values, depth) -> bytes:
    return struct.pack("<Q", len(values)) + b"".join(pack(one, depth + 1) for one in values)


def unpack(data: bytes) -> object:
    """@raises ValueError for bytes that `pack` did not make"""
    reader = _Reader(memoryview(data))
    try:
        value = reader.value(0)
    except (struct.error, IndexError, UnicodeDecodeError, TypeError, OverflowError) as why:
        raise ValueError(f"this is no row: {why}") from None
    if reader.rest:
        raise ValueError("this is no row: there is more behind it")
    return value


class _Reader:
    def __init__(self, rest: memoryview) -> None:
        self.rest = rest

    def take(self, size: int) -> memoryview:
        if size > len(self.rest):
            raise ValueError("this is no row: it ends too early")
        taken, self.rest = self.rest[:size], self.rest[size:]
        return taken

    def number(self) -> int:
        return struct.unpack("<Q", self.take(8))[0]

    def sized(self) -> memoryview:
        return self.take(self.number())

    def shape(self) -> tuple[int, ...]:
        dims = self.take(1)[0]
        return struct.unpack(f"<{dims}Q", self.take(8 * dims))

    def array(self) -> np.ndarray:
        dtype = np.dtype(bytes(self.sized()).decode())
        if dtype.kind not in _PLAIN_KINDS:
            raise ValueError(f"this is no row: an array of {dtype}")
        shape = self.shape()
        return np.frombuffer(bytearray(self.sized()), dtype=dtype).reshape(shape)

    def values(self, depth: int) -> list:
        count = self.number()
        if count > len(self.rest):  # each takes a byte at least
            raise ValueError("this is no row: it ends too early")
        return [self.value(depth + 1) for _ in range(count)]

    def value(self, depth: int) -> object:
        if depth > _DEPTH_MAX:
            raise ValueError("this is no row: it is nested too deeply")
        letter = bytes(self.take(1))
        if letter in (b"N", b"T", b"F"):
            return {b"N": None, b"T": True, b"F": False}[letter]
        if letter == b"i":
            return int.from_bytes(self.sized(), "little", signed=True)
        if letter == b"f":
            return struct.unpack("<d", self.take(8))[0]
        if letter == b"s":
            return bytes(self.sized()).decode("utf-8", "surrogatepass")
        if letter == b"b":
            return bytes(self.sized())
        if letter in (b"l", b"t"):
            values = self.values(depth)
            return values if letter == b"l" else tuple(values)
        if letter == b"d":
            values = self.values(depth)
            return dict(zip(values[::2], values[1::2]))
        if letter == b"g":
            return self.array()[()]
        if letter == b"n":
            return self.array()
        if letter == b"o":
            return self.objects(depth)
        if letter == b"x":
            return self.tensor()
        if letter == b"p":
            from PIL import Image
            return Image.open(io.BytesIO(bytes(self.sized())))
        raise ValueError(f"this is no row: it begins with {letter!r}")

    def objects(self, depth: int) -> np.ndarray:
        shape, values = self.shape(), self.values(depth)
        made = np.empty(len(values), dtype=object)
        for i, one in enumerate(values):
            made[i] = one
        return made.reshape(shape)

    def tensor(self) -> object:
        memory = bytearray(self.sized())
        layout = _Layout.of(memory, len(memory))
        if layout is None:
            raise ValueError("this is no row: no header of a tensor")
        return _tensor_in(memoryview(memory)[HEADER:], layout)
