"""Tensors in the store: a header with type, shape and division, then their elements; whole, or as shards of which any other number is read.

A tensor is one of torch, an array of numpy, or a memoryview; what comes back is the first of these that the process has. The header is that
of Mooncake Store 0.3.13: 304 bytes, little-endian.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import struct
import sys

__all__ = ["ParallelAxis", "TensorParallelism", "ReadTarget"]

OK, INVALID_PARAMETERS, NOT_SUPPORTED = 0, -600, -1012
MAGIC, VERSION, HEADER, DIMS = 0x4D4F4F4E, 1, 304, 8
_HEAD = struct.Struct("<IHHIIII2Q8q8qII")  # then four axes
_AXIS = struct.Struct("<IIiiiiq")  # kind, 0, rank, size, dimension or -1, number of the expert or stage, elements along the dimension
_KINDS = ("dp", "tp", "ep", "pp")  # the place in the list is the number in the header, and the order in a key
_TP = 1
# name, bytes of an element, memoryview's letter; the place in the list is the number in the header
_TYPES = [("float32", 4, "f"), ("float64", 8, "d"), ("int8", 1, "b"), ("uint8", 1, "B"), ("int16", 2, "h"), ("uint16", 2, "H"),
          ("int32", 4, "i"), ("uint32", 4, "I"), ("int64", 8, "q"), ("uint64", 8, "Q"), ("bool", 1, "?"), ("float16", 2, "e"),
          ("bfloat16", 2, None), ("float8_e4m3fn", 1, None), ("float8_e5m2", 1, None)]
_NUMBER = {name: i for i, (name, _, _) in enumerate(_TYPES)}
_LETTER = {letter: i for i, (_, _, letter) in enumerate(_TYPES) if letter} | {"l": 8, "L": 9}


class ParallelAxis:
    """One way in which a model is divided: "dp" (copies), "tp" (along a dimension), "ep" (experts), "pp" (stages). Only "tp" divides a tensor's elements;
    the others say whose it is."""

    def __init__(self) -> None:
        self.kind, self.rank, self.size = "", 0, 1
        self.split_dim: int | None = None
        self.expert_id: int | None = None
        self.stage_id: int | None = None


class TensorParallelism:
    def __init__(self) -> None:
        self.axes: list[ParallelAxis] = []


class ReadTarget:
    """The tensor that a reader wants: `as_stored` (the shard that was put under this parallelism), `shard` (that of any other), or `full`."""

    def __init__(self) -> None:
        self.mode = "as_stored"
        self.parallelism: TensorParallelism | None = None


class _Layout:
    """A header's content: number of the type, shape of the whole, which of how many shards along which dimension, and, where there are
    others than "tp", all axes as they were given."""

    def __init__(self, dtype, shape, rank=0, size=1, dim=0, axes=()):
        self.dtype, self.shape, self.rank, self.size, self.dim, self.axes = dtype, tuple(shape), rank, size, dim, axes

    def sharded(self, rank, size, dim, axes=()):
        """The same tensor, divided otherwise; None where that does not come out even."""
        whole = size == 1 and rank == 0
        if not whole and not (0 <= dim < len(self.shape) and 0 <= rank < size and self.shape[dim] % size == 0):
            return None
        return _Layout(self.dtype, self.shape, rank, size, dim, axes)

    def as_shard(self, rank, size, dim):
        """That of a whole of which this is a shard; None where it can be none."""
        if size == 1 and rank == 0:
            return self
        if not (0 <= dim < len(self.shape) and 0 <= rank < size):
            return None
        return _Layout(self.dtype, [n * size if d == dim else n for d, n in enumerate(self.shape)], rank, size, dim)

    def box(self):
        """(first, end) of each dimension."""
        part = self.shape[self.dim] // self.size if self.size > 1 else 0
        return [(self.rank * part, (self.rank + 1) * part) if self.size > 1 and d == self.dim else (0, n) for d, n in enumerate(self.shape)]

    def local(self):
        return [end - first for first, end in self.box()]

    def data_bytes(self):
        return functools.reduce(lambda a, b: a * b, self.local(), _TYPES[self.dtype][1])

    def header(self):
        shapes = [list(s) + [-1] * (DIMS - len(s)) for s in (self.shape, self.local())]
        axes = self.axes or (((_TP, self.rank, self.size, self.dim, 0),) if self.size > 1 else ())
        head = _HEAD.pack(MAGIC, VERSION, HEADER, self.dtype, len(self.shape), int(bool(axes)), 0, HEADER, self.data_bytes(), *shapes[0], *shapes[1],
                          len(axes), 0)
        packed = [_AXIS.pack(kind, 0, rank, size, dim, which, self.local()[dim] if kind == _TP else 0) for kind, rank, size, dim, which in axes]
        return (head + b"".join(packed)).ljust(HEADER, b"\0")

    @staticmethod
    def of(header, total):
        """Of the header of an object of `total` bytes; None where it is none."""
        if len(header) < HEADER or total < HEADER:
            return None
        magic, version, head, dtype, dims, sharded, _, offset, size, *rest = _HEAD.unpack_from(header)
        if magic != MAGIC or version != VERSION or head != HEADER or offset != HEADER or dtype >= len(_TYPES) or dims > DIMS:
            return None
        whole, here, count = rest[:dims], rest[DIMS:DIMS + dims], rest[2 * DIMS]
        made = _Layout(dtype, whole)
        if sharded and 1 <= count <= len(_KINDS):
            found = [_AXIS.unpack_from(header, _HEAD.size + i * _AXIS.size) for i in range(count)]
            axes = tuple((kind, *about) for kind, _, *about, _ in found)
            rank, shards, dim = next(((r, s, d) for kind, r, s, d, _ in axes if kind == _TP), (0, 1, 0))
            only_tp = len(axes) == 1 and axes[0][0] == _TP
            made = made.sharded(rank, shards, dim, () if only_tp else axes) if shards > 0 else None
        if made is None or min(whole, default=0) < 0 or made.local() != here or made.data_bytes() != size or total < HEADER + size:
            return None
        return made


def _runs(source, target):
    """Where the elements of `target` lie in `source`: (first in source, first in target, how many), in elements."""
    here, there = source.box(), target.box()
    both = [(max(a, c), min(b, d)) for (a, b), (c, d) in zip(here, there)]
    if any(a >= b for a, b in both):
        return
    inner = len(both)  # from here on both have all of the dimension, and so one run
    while inner > 0 and both[inner - 1] == here[inner - 1] == there[inner - 1]:
        inner -= 1
    strides = []
    for box in (here, there):
        step, steps = 1, []
        for first, end in reversed(box):
            steps.append(step)
            step *= end - first
        strides.append(steps[::-1])
    outer = max(inner - 1, 0)
    length = functools.reduce(lambda a, b: a * b, [b - a for a, b in both[outer:]], 1)
    for index in itertools.product(*[range(a, b) for a, b in both[:outer]]):
        at = list(index) + [a for a, _ in both[outer:]]
        yield tuple(sum((i - first) * s for i, (first, _), s in zip(at, box, steps)) for box, steps in ((here, strides[0]), (there, strides[1]))) + (length,)


def _elements(tensor):
    """(layout, buffer or (address, bytes), their owner) of a tensor; None for anything else."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(tensor, torch.Tensor):
        name = str(tensor.dtype).removeprefix("torch.")
        if name not in _NUMBER or tensor.dim() > DIMS:
            return None
        kept = tensor.detach().cpu().contiguous()
        return _Layout(_NUMBER[name], kept.shape), (kept.data_ptr(), kept.numel() * kept.element_size()), kept
    try:
        view = memoryview(tensor)
    except TypeError:
        return None
    letter = view.format.lstrip("<=@")
    if letter not in _LETTER or view.ndim > DIMS or isinstance(tensor, (bytes, bytearray)):
        return None
    if not view.c_contiguous:
        view = memoryview(view.tobytes()).cast("B")
        return _Layout(_LETTER[letter], memoryview(tensor).shape), view, view
    return _Layout(_LETTER[letter], view.shape), view, view


def _tensor_in(memory, layout):
    """A tensor over the elements in `memory`, a writable buffer that begins with them."""
    name, width, letter = _TYPES[layout.dtype]
    shape, count = layout.local(), layout.data_bytes() // width
    try:
        import torch
        flat = torch.frombuffer(memory, dtype=getattr(torch, name), count=count) if count else torch.empty(0, dtype=getattr(torch, name))
        return flat.reshape(shape)
    except ImportError:
        pass
    data = memoryview(memory)[:count * width]
    try:
        import numpy
        return numpy.frombuffer(data, dtype=name if letter else "uint8").reshape(shape if letter else -1)
    except ImportError:
        return data.cast("B").cast(letter, shape) if letter not in (None, "e") and count and shape else data  # no array of these


def _axes_of(parallelism):
    """(kind, rank, size, dimension or -1, number of expert or stage) of each axis, in the order in which they are given; none where there is no
    parallelism; None for axes that contradict themselves, of which Mooncake Store says -600."""
    axes = []
    for axis in parallelism.axes if parallelism is not None else ():
        kind = _KINDS.index(axis.kind) if axis.kind in _KINDS else None
        which = {"ep": axis.expert_id, "pp": axis.stage_id}.get(axis.kind, 0)
        if kind is None or kind in [a[0] for a in axes] or not 0 <= axis.rank < axis.size or which is None or (axis.split_dim is None) == (kind == _TP):
            return None
        axes.append((kind, axis.rank, axis.size, axis.split_dim if kind == _TP else -1, which))
    return tuple(axes) if axes or parallelism is None else None


def _only_tp(axes):
    return len(axes) == 0 or len(axes) == 1 and axes[0][0] == _TP


def _tp_of(axes):
    """(rank, size, dim)"""
    return next((axis[1:4] for axis in axes if axis[0] == _TP), (0, 1, 0))


def _with_rank(axes, rank):
    return tuple((kind, rank if kind == _TP else r, size, dim, which) for kind, r, size, dim, which in axes)


def _axes_key(key, axes):
    """Mooncake Store's key of a tensor with other axes than "tp"."""
    tails = ("", "_sd{3}", "_eid{4}", "_sid{4}")
    return key + "".join(("__" + _KINDS[axis[0]] + "_{1}of{2}" + tails[axis[0]]).format(*axis) for axis in sorted(axes))


def _shard_key(key, rank, size):
    return key if size == 1 else f"{key}_tp_{rank}"


def _safetensors():
    """The package's part for the tensors that this process has."""
    try:
        import safetensors.torch as files
    except ImportError:
        import safetensors.numpy as files
    return files


def _tensor_metadata_size():
    return HEADER


def _serialize_tensor(tensor):
    """(header, address of the elements, their bytes, their owner). ValueError for anything but a tensor."""
    found = _elements(tensor)
    if found is None:
        raise ValueError("no tensor that the store has a header for")
    layout, data, kept = found
    if not isinstance(data, tuple):
        kept = (ctypes.c_char * data.nbytes).from_buffer_copy(data.cast("B") if data.nbytes else data)
        data = ctypes.addressof(kept), len(kept)
    return layout.header(), *data, kept


def _deserialize_tensor(data):
    """A tensor over a copy of header and elements. ValueError for other bytes."""
    memory = bytearray(data)
    layout = _Layout.of(memory, len(memory))
    if layout is None:
        raise ValueError("no header of a tensor, or not all of its elements")
    return _tensor_in(memoryview(memory)[HEADER:], layout)


class TensorCalls:
    """The store's calls about tensors."""

    # ---- whole

    def put_tensor(self, key, tensor):
        return self._put_tensor(key, tensor, None, False)

    def pub_tensor(self, key, tensor, config=None):
        return self._put_tensor(key, tensor, config, False)

    def upsert_tensor(self, key, tensor):
        return self._put_tensor(key, tensor, None, True)

    def upsert_pub_tensor(self, key, tensor, config=None):
        return self._put_tensor(key, tensor, config, True)

    def _put_tensor(self, key, tensor, config, replace):
        found = _elements(tensor)
        return self._put_shards([(key, found[0])], found, config, replace) if found else INVALID_PARAMETERS

    def _put_shards(self, shards, found, config, replace):
        """Shards of a tensor that is there as a whole: the elements are gathered, not copied before."""
        whole, data, _ = found
        width = _TYPES[whole.dtype][1]
        base = data[0] if isinstance(data, tuple) else None
        kept, parts = [], []
        if base is None and whole.data_bytes():
            flat = data.cast("B") if data.nbytes else data
            copy = (ctypes.c_char * data.nbytes).from_buffer_copy(flat)
            kept.append(copy)
            base = ctypes.addressof(copy)
        for _, layout in shards:
            head = layout.header()
            runs = [(base + at * width, n * width) for _, at, n in _runs(layout, whole)] if layout.data_bytes() else []
            copy = ctypes.create_string_buffer(head, HEADER)
            kept.append(copy)
            parts.append([(ctypes.addressof(copy), HEADER)] + runs)
        codes = self._put_gathered([key for key, _ in shards], parts, config, replace)
        return next((c for c in codes if c), OK)

    def get_tensor(self, key):
        return self._read_whole(key)

    def get_tensor_into(self, key, buffer_ptr, size):
        """Header and elements into the buffer. Returns a tensor over them, or None."""
        return self._into(key, buffer_ptr, size)

    def put_tensor_from(self, key, buffer_ptr, size):
        return self._put_serialized(key, buffer_ptr, size, None, False)

    def upsert_tensor_from(self, key, buffer_ptr, size):
        return self._put_serialized(key, buffer_ptr, size, None, True)

    def _put_serialized(self, key, buffer_ptr, size, config, replace):
        """Header and elements of a tensor, or of one shard of it, as `get_tensor_into` leaves them."""
        layout = _Layout.of(self._bytes_at(buffer_ptr, min(size, HEADER)), size)
        if layout is None:
            return INVALID_PARAMETERS
        return self._put_gathered([key], [[(buffer_ptr, HEADER + layout.data_bytes())]], config, replace)[0]

    # ---- as shards: tensors that one number of processes wrote, any other reads

    def put_tensor_with_tp(self, key, tensor, tp_rank=0, tp_size=1, split_dim=0):
        """Divides the whole tensor, and stores all shards."""
        return self.pub_tensor_with_tp(key, tensor, None, tp_rank, tp_size, split_dim)

    def pub_tensor_with_tp(self, key, tensor, config=None, tp_rank=0, tp_size=1, split_dim=0):
        return self._put_divided(key, _elements(tensor), config, tp_size, split_dim)

    def _put_divided(self, key, found, config, tp_size, split_dim):
        layouts = [found[0].sharded(r, tp_size, split_dim) for r in range(tp_size)] if found else [None]
        if None in layouts or not layouts:
            return INVALID_PARAMETERS
        return self._put_shards([(_shard_key(key, r, tp_size), s) for r, s in enumerate(layouts)], found, config, False)

    def put_tensor_with_tp_from(self, key, buffer_ptr, size, tp_rank=0, tp_size=1, split_dim=0):
        """Divides the whole tensor that lies in the buffer, behind its header, and stores all shards."""
        return self._put_divided(key, self._serialized(buffer_ptr, size), None, tp_size, split_dim)

    def get_tensor_with_tp(self, key, tp_rank=0, tp_size=1, split_dim=0):
        """The shard of this rank, whatever number of shards was stored; along the dimension that they were divided along, or, where the tensor
        was stored whole, `split_dim`. Moves only its bytes. None where there is none, or not all of it."""
        return self._resharded(key, (tp_rank, tp_size, None), split_dim)

    def get_tensor_with_tp_into(self, key, buffer_ptr, size, tp_rank=0, tp_size=1, split_dim=0):
        return self._resharded(key, (tp_rank, tp_size, None), split_dim, (buffer_ptr, size))

    def put_tensor_with_parallelism(self, key, tensor, parallelism=None, config=None, writer_partition=None):
        """Stores one shard: with `parallelism` the tensor is that shard, of a whole that is as many times as large along the dimension; with
        `writer_partition`, anything with `rank`, `size` and `split_dim`, it is the whole, of which this shard is taken."""
        return self._put_parallel(key, _elements(tensor), parallelism, config, writer_partition, False)

    def upsert_tensor_with_parallelism(self, key, tensor, parallelism=None, config=None, writer_partition=None):
        return self._put_parallel(key, _elements(tensor), parallelism, config, writer_partition, True)

    def put_tensor_with_parallelism_from(self, key, buffer_ptr, size, parallelism=None, config=None, writer_partition=None):
        """Stores one shard of the tensor that lies in the buffer, behind its header."""
        return self._put_parallel_from(key, self._serialized(buffer_ptr, size), parallelism, config, writer_partition, False)

    def upsert_tensor_with_parallelism_from(self, key, buffer_ptr, size, parallelism=None, config=None, writer_partition=None):
        return self._put_parallel_from(key, self._serialized(buffer_ptr, size), parallelism, config, writer_partition, True)

    def _put_parallel_from(self, key, found, parallelism, config, writer_partition, replace):
        if writer_partition is not None:
            return self._put_parallel(key, found, parallelism, config, writer_partition, replace)
        axes = _axes_of(parallelism)
        if axes is None or not _only_tp(axes):
            return self._put_parallel(key, found, parallelism, config, None, replace)
        return self._put_shard_of(key, found, _tp_of(axes), config, replace)

    def _serialized(self, buffer_ptr, size):
        """As `_elements`, of a tensor that lies in the buffer behind its header."""
        layout = _Layout.of(self._bytes_at(buffer_ptr, min(size, HEADER)), size)
        if layout is None:
            return None
        return _Layout(layout.dtype, layout.local()), (buffer_ptr + HEADER, layout.data_bytes()), None

    def _put_parallel(self, key, found, parallelism, config, writer_partition, replace):
        if writer_partition is None:
            axes = _axes_of(parallelism)
            if axes is None or found is None:
                return INVALID_PARAMETERS
            axis = _tp_of(axes)
            if not _only_tp(axes):  # then the tensor is the whole, as it is in Mooncake Store
                shard = found[0].sharded(*axis, axes)
                return self._put_shards([(_axes_key(key, axes), shard)], found, config, replace) if shard else INVALID_PARAMETERS
            shard = found[0].as_shard(*axis) if found else None
            return self._put_shards([(_shard_key(key, *axis[:2]), shard)], (shard, *found[1:]), config, replace) if shard else INVALID_PARAMETERS
        try:
            axis = writer_partition.rank, writer_partition.size, writer_partition.split_dim or 0
        except AttributeError:
            return INVALID_PARAMETERS
        return self._put_shard_of(key, found if parallelism is None else None, axis, config, replace)

    def _put_shard_of(self, key, found, axis, config, replace):
        shard = found[0].sharded(*axis) if found else None
        return self._put_shards([(_shard_key(key, *axis[:2]), shard)], found, config, replace) if shard else INVALID_PARAMETERS

    def get_tensor_with_parallelism(self, key, target=None):
        return self._get_parallel(key, target, None)

    def get_tensor_with_parallelism_into(self, key, buffer_ptr, size, target=None):
        return self._get_parallel(key, target, (buffer_ptr, size))

    def _get_parallel(self, key, target, into):
        target = target or ReadTarget()
        axes = _axes_of(target.parallelism)
        if axes is None or target.mode not in ("as_stored", "shard", "full"):
            return None
        axis = _tp_of(axes)
        if not _only_tp(axes):
            return self._get_of_axes(key, target.mode, axes, into)
        if target.mode == "as_stored":
            return self._into(_shard_key(key, *axis[:2]), *into) if into else self._read_whole(_shard_key(key, *axis[:2]))
        return self._resharded(key, (0, 1, 0) if target.mode == "full" else axis, axis[2], into)

    def _get_of_axes(self, key, mode, axes, into):
        """The tensor that was put with the same axes; the whole where "tp" is among them, and all its shards are there."""
        size = _tp_of(axes)[1]
        if mode != "full":
            name = _axes_key(key, axes)
            return self._into(name, *into) if into else self._read_whole(name)
        names = [_axes_key(key, _with_rank(axes, rank)) for rank in range(size)]
        first = self._header(names[0])[0] if any(axis[0] == _TP for axis in axes) else None
        if first is None or first.axes != _with_rank(axes, 0):
            return None
        whole = _Layout(first.dtype, first.shape)
        shards = [whole.sharded(rank, size, first.dim, _with_rank(axes, rank)) for rank in range(size)]
        return self._gathered(names, shards, whole, into)

    # ---- reading

    def _header(self, key):
        """(layout, size) of an object that is a tensor; (None, 0) else."""
        head = ctypes.create_string_buffer(HEADER)
        size = self.get_size(key)
        if size < HEADER or self._read_parts([key], [[(ctypes.addressof(head), HEADER)]], [[0]]) != [[HEADER]]:
            return None, 0
        return _Layout.of(head.raw, size), size

    def _read_whole(self, key):
        size = self.get_size(key)
        if size < HEADER:
            return None
        memory = bytearray(size)
        address = ctypes.addressof((ctypes.c_char * size).from_buffer(memory))
        if self._own(key, address, size) != size:
            return None
        layout = _Layout.of(memory, size)
        return _tensor_in(memoryview(memory)[HEADER:], layout) if layout else None

    def _into(self, key, buffer_ptr, size):
        if self.get_into(key, buffer_ptr, size) < HEADER:
            return None
        layout = _Layout.of(self._bytes_at(buffer_ptr, HEADER), size)
        return self._view(buffer_ptr, layout) if layout else None

    @staticmethod
    def _view(buffer_ptr, layout):
        return _tensor_in((ctypes.c_char * max(layout.data_bytes(), 1)).from_address(buffer_ptr + HEADER), layout)

    def _resharded(self, key, wanted, dim_if_whole, into=None):
        rank, size, dim = wanted
        first, stored = self._header(key)[0], [key]
        for its_rank in () if first else (rank, 0) if size > 1 else (0,):  # where all were divided alike one's own shard is enough
            first = first or self._header(_shard_key(key, its_rank, 2))[0]
            stored = [_shard_key(key, r, first.size) for r in range(first.size)] if first else []
        if first is None or (len(stored) > 1 and first.size < 2):
            return None
        along = dim if dim is not None else first.dim if first.size > 1 else dim_if_whole
        whole = _Layout(first.dtype, first.shape)
        target = whole.sharded(rank, size, along)
        shards = [first if first.size == 1 else whole.sharded(r, first.size, first.dim) for r in range(first.size)]
        return self._gathered(stored, shards, target, into)

    def _gathered(self, stored, shards, target, into):
        """The tensor that `target` says, out of the objects `stored`, which are `shards`; into memory that is given, or its own. None where it cannot be."""
        if target is None or (into and (into[1] < HEADER + target.data_bytes() or not self._permits(into[0], HEADER + target.data_bytes()))):
            return None
        memory = bytearray(max(target.data_bytes(), 1)) if not into else None
        start = into[0] + HEADER if into else ctypes.addressof((ctypes.c_char * len(memory)).from_buffer(memory))
        if not self._collect(stored, shards, target, start):
            return None
        if into:
            ctypes.memmove(into[0], target.header(), HEADER)
            return self._view(into[0], target)
        return _tensor_in(memory, target)

    def _collect(self, keys, shards, target, start):
        """Reads the parts of each shard that `target` needs, and their headers, which must be of one tensor."""
        width, wanted = _TYPES[target.dtype][1], []
        heads = []
        for key, shard in zip(keys, shards):
            runs = [(at * width, to * width, n * width) for at, to, n in _runs(shard, target)] if target.data_bytes() else []
            if runs:
                heads.append((ctypes.create_string_buffer(HEADER), shard))
                wanted.append((key, [(0, ctypes.addressof(heads[-1][0]) - start, HEADER)] + [(HEADER + a, t, n) for a, t, n in runs]))
        found = self._read_parts([key for key, _ in wanted], [[(start + to, n) for _, to, n in parts] for _, parts in wanted],
                                 [[at for at, _, _ in parts] for _, parts in wanted])
        got = all(c == n for codes, (_, parts) in zip(found, wanted) for c, (_, _, n) in zip(codes, parts))
        return got and all(head.raw == shard.header() for head, shard in heads)

    # ---- files

    def save_tensor_to_safetensor(self, key, file_name=None):
        """Writes the tensor as `key.safetensors`, or as said. Returns 0 or a code. Needs the package safetensors."""
        tensor = self.get_tensor(key)
        if tensor is None:
            return INVALID_PARAMETERS
        _safetensors().save_file({key: tensor}, file_name or f"{key}.safetensors")
        return OK

    def load_tensor_from_safetensor(self, key=None, file_name=None):
        """Puts the tensor of that name in the file, or its first, under `key`, or its own name. Returns it, or None."""
        if file_name is None:
            raise TypeError("file_name is missing")
        load_file = _safetensors().load_file
        try:
            tensors = load_file(file_name)
        except OSError:
            return None
        if not tensors:
            return None
        name = key if key in tensors else next(iter(tensors))
        return tensors[name] if self.put_tensor(key or name, tensors[name]) == OK else None

