"""Objects of several members in the store: arrays, tensors, bytes and rows of anything under one reference, read member by member and row by row.

`MooncakeBundleTransfer` has the calls. A batch in the manner of verl's DataProto (`batch`, `non_tensor_batch`, `meta_info`) is written in stages: each
is a bundle, and a handle, which is JSON, says which field lies where. Needs numpy; torch is used where the process has it.
"""

from __future__ import annotations

import ctypes
import dataclasses
import sys
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from .bundles import DEFAULT_BUNDLE_CHUNK_BYTES, MISSING_OBJECT_ERROR, BundleKeeper, BundleTransferPolicy, RemoteBundleRef
from .bundles import Tensor as _Tensor
from .bundles import flat as _flat
from .bundles import group_of as _group_of
from .bundles import memory_at as _memory_at
from .bundles import plain_name as _plain_name
from .bundles import policy_of as _policy_of
from .bundles import with_group as _with_group
from .dataproto import (DATAPROTO_REF_HANDLE_TYPE, DATAPROTO_REF_HANDLE_VERSION, STORAGE_GROUP_ID, DataProtoRefLike, FieldSchema, MooncakeDataProtoRef,
                        StructuredFieldLocation, StructuredMemberSlice, as_result, as_rows, checked_rows, chosen_fields, chosen_rows, export_dataproto_ref,
                        from_flat, import_dataproto_ref, is_dataproto_ref_handle, resolved, schema_of, sections_of, to_flat)
from .row_codec import pack, unpack
from .tensors import HEADER, _elements, _Layout, _tensor_in

__all__ = ["AUTO_PARALLEL_MIN_BYTES", "AUTO_PARALLEL_MIN_CHUNKS", "BundleStore", "BundleTransferPolicy", "DATAPROTO_REF_HANDLE_TYPE",
           "DATAPROTO_REF_HANDLE_VERSION", "DEFAULT_BUNDLE_CHUNK_BYTES", "DataProtoRefLike", "FieldSchema", "MISSING_OBJECT_ERROR", "MooncakeBundleTransfer",
           "MooncakeDataProtoRef", "RemoteBundleRef", "STORAGE_GROUP_ID", "STRUCTURED_FIELD_SPECS_KEY", "StructuredFieldLocation", "StructuredMemberSlice",
           "StructuredObjectPayload", "StructuredObjectReadSpec", "StructuredObjectResult", "export_dataproto_ref", "export_ref", "import_dataproto_ref",
           "import_ref", "is_dataproto_ref_handle", "raw_destination", "tensor_object_buffer"]

AUTO_PARALLEL_MIN_BYTES, AUTO_PARALLEL_MIN_CHUNKS = DEFAULT_BUNDLE_CHUNK_BYTES, 8
STRUCTURED_FIELD_SPECS_KEY = "__mooncake_structured_fields__"
_WRAPPED = "__mooncake_wrapped_object__"
export_ref, import_ref = export_dataproto_ref, import_dataproto_ref


class BundleStore(Protocol):
    """The calls that a store has to have, at least."""

    def put(self, key: str, value: Any, config: Any = None) -> int: ...
    def get(self, key: str) -> bytes: ...
    def remove(self, key: str, force: bool = False) -> int: ...
    def is_exist(self, key: str) -> int: ...


@dataclasses.dataclass(frozen=True, init=False)
class StructuredObjectPayload:
    """An object to be stored: metadata, which is JSON, and named members."""

    metadata: Mapping[str, Any]
    buffers: Mapping[str, Any]

    def __init__(self, metadata: Mapping[str, Any] | None = None, buffers: Mapping[str, Any] | None = None) -> None:
        if buffers is None:
            raise TypeError("buffers is missing")
        object.__setattr__(self, "metadata", metadata or {})
        object.__setattr__(self, "buffers", buffers)


@dataclasses.dataclass
class StructuredObjectResult:
    metadata: dict[str, Any]
    objects: dict[str, Any]


@dataclasses.dataclass(frozen=True)
class StructuredObjectReadSpec:
    """A plan of a read: all members of a reference, or chosen ones, or parts of them."""

    ref: RemoteBundleRef | Mapping[str, Any]
    member_names: tuple[str, ...] | None = None
    member_slices: tuple[tuple[str, StructuredMemberSlice], ...] = ()

    def select_members(self, names: Sequence[str] | None) -> StructuredObjectReadSpec:
        return dataclasses.replace(self, member_names=None if names is None else tuple(names))

    def slice_member(self, name: str, axis: int, start: int, end: int, step: int = 1) -> StructuredObjectReadSpec:
        slices = {**dict(self.member_slices), name: StructuredMemberSlice(axis, start, end, step)}
        return dataclasses.replace(self, member_slices=tuple(slices.items()))

    def member_slice(self, name: str) -> StructuredMemberSlice | None:
        return dict(self.member_slices).get(name)


@dataclasses.dataclass(frozen=True)
class _Memory:
    """A place that a caller names: a tensor behind its header, or where one, or an array, is to be read to. `owner` keeps it."""

    ptr: int
    size: int
    owner: Any = None
    batch_size: int | None = None

    def __len__(self) -> int:
        if self.batch_size is None:
            raise TypeError("a tensor in a buffer needs batch_size to be a field")
        return self.batch_size


def tensor_object_buffer(ptr: int, size: int, owner: Any = None, batch_size: int | None = None) -> _Memory:
    """A tensor that lies there behind its header, as `get_tensor_into` leaves it; or room for one."""
    return _Memory(int(ptr), int(size), owner, batch_size)


def raw_destination(ptr: int, size: int, owner: Any = None, *, pre_registered: bool = False) -> _Memory:
    """Room for a member's bytes. It need not be registered."""
    return _Memory(int(ptr), int(size), owner)


def _is_tensor(value):
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def _member(value, tensors):
    """(its entry in the metadata, its runs of bytes, their owner). `tensors`: the store takes tensors as they are."""
    if isinstance(value, _Memory):
        layout = _Layout.of(ctypes.string_at(value.ptr, HEADER), value.size) if value.size >= HEADER else None
        if layout is None:
            raise ValueError("no tensor lies in the buffer")
        return {"encoding": "torch_tensor", "shape": layout.local()}, [_memory_at(value.ptr, HEADER + layout.data_bytes())], value
    if _is_tensor(value) and value.is_nested:
        rows = pack(list(value.unbind()))
        return {"encoding": "nested", "shape": [len(value)]}, [memoryview(rows)], rows
    if _is_tensor(value):
        found = _elements(value)
        if found is None:
            raise TypeError(f"a tensor of {value.dtype} cannot be stored")
        layout, (address, size), kept = found
        runs = _Tensor(kept, HEADER + size) if tensors else [memoryview(layout.header()), _memory_at(address, size)]
        return {"encoding": "torch_tensor", "dtype": str(value.dtype), "shape": list(value.shape)}, runs, kept
    if isinstance(value, np.ndarray):
        if value.dtype.hasobject:
            raise TypeError("an array of objects is no member; as a field of non_tensor_batch it is")
        array = np.ascontiguousarray(value).reshape(value.shape)
        data = array.reshape(-1).view(np.uint8) if array.size else np.empty(0, np.uint8)
        return {"encoding": "ndarray", "dtype": array.dtype.str, "shape": list(array.shape)}, [memoryview(data)], array
    return {"encoding": "bytes"}, [_flat(value, "a member")], value


def _rows_of(wanted, total):
    """The numbers of the rows; None: all of them."""
    if wanted is None:
        return None
    if isinstance(wanted, StructuredMemberSlice):
        if wanted.axis != 0:
            raise ValueError("rows are chosen along axis 0 alone")
        if wanted.step <= 0:
            raise ValueError("step must be positive")
        return range(*slice(wanted.start, wanted.end, wanted.step).indices(total))
    return wanted


def _ranges(rows, width, offset=0, to=0):
    """Runs of rows; rows that follow on each other are one run."""
    runs = []
    for place, row in enumerate(rows):
        if runs and runs[-1][0] + runs[-1][2] == offset + row * width:
            runs[-1][2] += width
        else:
            runs.append([offset + row * width, to + place * width, width])
    return [tuple(run) for run in runs if run[2]]


class MooncakeBundleTransfer:
    """Structured objects of one store. `buffer_pool` is taken and not needed: members are read straight into memory of their own, which goes with them."""

    def __init__(self, store: BundleStore, key_prefix: str = "bundle", default_chunk_bytes: int = DEFAULT_BUNDLE_CHUNK_BYTES, buffer_pool: Any = None) -> None:
        prefix = key_prefix.strip("/")
        if not prefix or any(ord(letter) < 32 for letter in prefix):
            raise ValueError("key_prefix must have a name in it")
        if default_chunk_bytes <= 0:
            raise ValueError("chunk_bytes must be positive")
        self.store, self.key_prefix, self.default_chunk_bytes = store, prefix, default_chunk_bytes
        self._bundles = BundleKeeper(store, prefix, default_chunk_bytes)

    # ---- bundles of bytes

    def put_bundle(self, meta, buffers, partition="default", chunk_bytes=None, policy=None, max_inflight_put=None, config=None) -> RemoteBundleRef:
        runs = {name: [_flat(value, name)] for name, value in buffers.items()}
        return self._bundles.put({}, runs, partition, chunk_bytes, _policy_of(policy, max_inflight_put), config, bytes(_flat(meta, "meta")))

    def remove_bundle(self, ref) -> None:
        """All that belongs to it; nothing where it is gone. @raises RuntimeError for objects that could not be removed"""
        self._bundles.remove(ref)

    # ---- structured objects

    def put_structured_object(self, payload, partition="default", chunk_bytes=None, policy=None, max_inflight_put=None, config=None) -> RemoteBundleRef:
        if not isinstance(payload.metadata, Mapping):
            raise TypeError("metadata is no mapping")
        about = dict(payload.metadata)
        if STRUCTURED_FIELD_SPECS_KEY in about:
            raise ValueError(f"{STRUCTURED_FIELD_SPECS_KEY} is the store's own")
        if not isinstance(about.setdefault("layout", "structured"), str):
            raise ValueError("layout must be text")
        tensors = self._bundles.has("put_tensor" if config is None else "pub_tensor")
        members = {_plain_name(name, "buffer name"): _member(value, tensors) for name, value in payload.buffers.items()}
        if members:
            about[STRUCTURED_FIELD_SPECS_KEY] = {name: told for name, (told, _, _) in members.items()}
        runs = {name: parts for name, (_, parts, _) in members.items()}
        return self._bundles.put(about, runs, partition, chunk_bytes, _policy_of(policy, max_inflight_put), config)

    def put_object(self, obj, partition="default", chunk_bytes=None, policy=None, max_inflight_put=None, config=None) -> RemoteBundleRef:
        """A mapping of members, or one value."""
        single = not isinstance(obj, Mapping)
        payload = StructuredObjectPayload({_WRAPPED: True} if single else {}, {"value": obj} if single else obj)
        return self.put_structured_object(payload, partition, chunk_bytes, policy, max_inflight_put, config)

    def get_object(self, ref):
        found = self.materialize(self.read_spec(ref))
        return found.objects["value"] if found.metadata.get(_WRAPPED) else found.objects

    def read_spec(self, ref) -> StructuredObjectReadSpec:
        return StructuredObjectReadSpec(ref)

    def materialize(self, spec) -> StructuredObjectResult:
        return self.materialize_into(spec, None)

    def materialize_into(self, spec, destinations) -> StructuredObjectResult:
        """Reads by the spec; members that `destinations` names into the arrays, or places, that it has for them."""
        if spec.member_names is not None and not spec.member_names:
            raise ValueError("no member is chosen")
        manifest = self._bundles.manifest(spec.ref)
        about, buffers = self._bundles.meta(manifest), manifest["buffers"]
        names = list(buffers) if spec.member_names is None else spec.member_names
        unknown = [name for name in names if name not in buffers]
        if unknown:
            raise KeyError(f"there are no members {unknown}")
        fields, slices, places = about.get(STRUCTURED_FIELD_SPECS_KEY, {}), dict(spec.member_slices), destinations or {}
        read = {name: self._read(name, buffers[name], fields.get(name, {"encoding": "bytes"}), slices.get(name), places.get(name)) for name in names}
        return StructuredObjectResult(about, read)

    @staticmethod
    def release_result(result) -> None:
        """Nothing is to be given back: results lie in memory of their own."""

    def _read(self, name, spec, field, wanted, into):
        how = {"bytes": self._read_bytes, "ndarray": self._read_array, "torch_tensor": self._read_tensor, "nested": self._read_nested}.get(field["encoding"])
        if how is None:
            raise ValueError(f"{name} is stored as {field['encoding']}, which is unknown here")
        return how(name, spec, field, wanted, into)

    def _read_bytes(self, name, spec, field, wanted, into):
        if wanted is not None or into is not None:
            raise ValueError(f"{name} is plain bytes: it has no rows, and is read into no destination")
        return self._bundles.read(spec)

    def _read_array(self, name, spec, field, wanted, into):
        dtype, shape = np.dtype(field["dtype"]), tuple(field["shape"])
        if wanted is not None and not shape:
            raise ValueError(f"{name} has no rows")
        rows = _rows_of(wanted, shape[0] if shape else 1)
        target = self._array_for(name, dtype, shape if rows is None else (len(rows), *shape[1:]), into)
        if target.size:
            width = dtype.itemsize * int(np.prod(shape[1:], dtype=np.int64))
            ranges = [(0, 0, target.nbytes)] if rows is None else _ranges(rows, width)
            self._bundles.read_into(spec, memoryview(target.reshape(-1).view(np.uint8)), ranges)
        return target

    @staticmethod
    def _array_for(name, dtype, shape, into):
        if into is None:
            return np.empty(shape, dtype)
        if isinstance(into, _Memory):
            size = dtype.itemsize * int(np.prod(shape, dtype=np.int64))
            if into.size < size:
                raise ValueError(f"{name} needs {size} bytes, and its destination has {into.size}")
            return np.frombuffer(_memory_at(into.ptr, size), dtype=dtype).reshape(shape)
        if not isinstance(into, np.ndarray):
            raise TypeError(f"the destination of {name} must be an array, or raw_destination")
        if into.dtype != dtype or into.shape != shape or not into.flags.c_contiguous or not into.flags.writeable:
            raise ValueError(f"the destination of {name} must be a writeable, C-contiguous array of {dtype.str} and shape {shape}; its dtype is {into.dtype.str}, "
                             f"its shape {into.shape}")
        return into

    def _read_tensor(self, name, spec, field, wanted, into):
        if wanted is None and into is None and spec.get("kind") == "tensor":
            if not self._bundles.has("get_tensor"):
                raise RuntimeError("the store does not support get_tensor")
            found = self.store.get_tensor(spec["key"])
            if found is None:
                raise RuntimeError(f"{spec['key']} is gone, or cannot be read")
            return found
        head = bytearray(HEADER)
        self._bundles.read_into(spec, memoryview(head), [(0, 0, HEADER)])
        layout = _Layout.of(head, spec["bytes"])
        if layout is None:
            raise ValueError(f"{name} is no tensor")
        shape = layout.local()
        if wanted is not None and not shape:
            raise ValueError(f"{name} has no rows")
        rows = _rows_of(wanted, shape[0] if shape else 1)
        if isinstance(wanted, StructuredMemberSlice) and wanted.step != 1:
            raise ValueError("rows of a tensor are chosen with step 1, or by their numbers")
        layout = _Layout(layout.dtype, shape if rows is None else (len(rows), *shape[1:]))
        size = layout.data_bytes()
        if into is not None and not isinstance(into, _Memory):
            raise ValueError(f"the destination of {name} must be tensor_object_buffer, or raw_destination")
        if into is not None and into.size < HEADER + size:
            raise ValueError(f"{name} needs {HEADER + size} bytes, and its destination has {into.size}")
        memory = bytearray(max(size, 1)) if into is None else _memory_at(into.ptr + HEADER, size)
        width = size // len(rows) if rows else 0
        if size:
            self._bundles.read_into(spec, memoryview(memory).cast("B")[:size], [(HEADER, 0, size)] if rows is None else _ranges(rows, width, HEADER))
        if into is None:
            return _tensor_in(memory, layout)
        ctypes.memmove(into.ptr, layout.header(), HEADER)
        return into

    def _read_nested(self, name, spec, field, wanted, into):
        import torch
        if into is not None:
            raise ValueError(f"{name} is a nested tensor, which is read into no destination")
        rows = unpack(self._bundles.read(spec))
        chosen = _rows_of(wanted, len(rows))
        return torch.nested.as_nested_tensor(rows if chosen is None else [rows[i] for i in chosen], layout=torch.jagged)

    # ---- batches

    def put(self, data, *, type="dataproto", namespace="default", partition="default", stage="default", chunk_bytes=None, policy=None, config=None,
            field_schemas=None) -> MooncakeDataProtoRef:
        """A batch, or with `type` "dict" a flat mapping, whose fields are told apart by how long they are, or by `field_schemas`."""
        if type not in ("dataproto", "dict"):
            raise ValueError(f"there is no type {type!r}")
        given = from_flat(data, field_schemas or {}) if type == "dict" else data
        return self._put_stage(None, given, namespace, partition, stage, chunk_bytes, policy, False, field_schemas, config)

    def put_dataproto(self, data, *, namespace="default", partition="default", stage="default", chunk_bytes=None, policy=None, field_schemas=None,
                      config=None) -> MooncakeDataProtoRef:
        return self.put(data, namespace=namespace, partition=partition, stage=stage, chunk_bytes=chunk_bytes, policy=policy, config=config,
                        field_schemas=field_schemas)

    def append_dataproto_fields(self, ref, data, *, stage, overwrite=False, chunk_bytes=None, policy=None, field_schemas=None, config=None) -> MooncakeDataProtoRef:
        """More fields for the same rows. The reference that was given stays as it is; with `overwrite` its fields of that stage are gone."""
        ref = resolved(ref)
        return self._put_stage(ref, data, ref.namespace, ref.partition, stage, chunk_bytes, policy, overwrite, field_schemas, config)

    def get(self, ref, *, type="dataproto", fields=None, batch_fields=None, non_tensor_fields=None, meta_info_keys=None, data_cls=None, destinations=None,
            rows=None):
        if type not in ("dataproto", "dict"):
            raise ValueError(f"there is no type {type!r}")
        found = self._get_fields(resolved(ref), fields, batch_fields, non_tensor_fields, meta_info_keys, destinations or {}, rows)
        return to_flat(*found) if type == "dict" else as_result(*found, data_cls)

    def get_dataproto(self, ref, *, fields=None, batch_fields=None, non_tensor_fields=None, meta_info_keys=None, data_cls=None, destinations=None, rows=None):
        return self.get(ref, fields=fields, batch_fields=batch_fields, non_tensor_fields=non_tensor_fields, meta_info_keys=meta_info_keys, data_cls=data_cls,
                        destinations=destinations, rows=rows)

    def cleanup_dataproto(self, ref) -> None:
        for stage_ref in {one.manifest_key: one for one in resolved(ref).stage_refs.values()}.values():
            self.remove_bundle(stage_ref)

    def cleanup_dataproto_append(self, previous, appended) -> None:
        """Removes the additions of an append that was not published; earlier fields stay."""
        previous, appended = resolved(previous), resolved(appended)
        for stage, stage_ref in appended.stage_refs.items():
            before = previous.stage_refs.get(stage)
            if before is None:
                self.remove_bundle(stage_ref)
            elif before.manifest_key != stage_ref.manifest_key and self.store.is_exist(stage_ref.manifest_key):
                old, new = self._bundles.manifest(before), self._bundles.manifest(stage_ref)
                kept = {before.manifest_key, *self._bundles.keys(old), *old.get("cleanup_keys", [])}
                self._bundles.remove_keys([key for key in self._bundles.keys(new) if key not in kept], strict=True)
                self._bundles.remove_keys([stage_ref.manifest_key], strict=True)

    def dataproto_manifest_view(self, ref) -> dict:
        """Where the fields lie and how they are stored, without reading them."""
        ref = resolved(ref)
        about = {stage: self._bundles.meta(self._bundles.manifest(one)) for stage, one in ref.stage_refs.items()}
        fields = {}
        for name, at in ref.field_index.items():
            specs = about[at.stage].get(STRUCTURED_FIELD_SPECS_KEY, {})
            told, encoded = dict(specs.get(at.member, {"encoding": "bytes"})), ref.encoded_non_tensor.get(name)
            if encoded is not None:
                told = {"encoding": "structured_non_tensor", "codec": encoded["codec"], "metadata": encoded.get("metadata"),
                        "payload_members": dict(encoded["payload_members"]),
                        "payload_specs": {part: dict(specs.get(member, {"encoding": "bytes"})) for part, member in encoded["payload_members"].items()}}
            fields[name] = {"section": at.section, "stage": at.stage, "member": at.member, "spec": told}
        of = lambda section: {name: told for name, told in fields.items() if told["section"] == section}  # noqa: E731
        return {"namespace": ref.namespace, "partition": ref.partition, "batch_size": ref.batch_size, "batch_fields": of("batch"),
                "non_tensor_fields": of("non_tensor_batch"), "meta_info_keys": list(ref.meta_info),
                "stages": {stage: {"manifest_key": one.manifest_key, "dataproto": about[stage].get("dataproto", {})} for stage, one in ref.stage_refs.items()}}

    # ---- inside

    def _put_stage(self, ref, data, namespace, partition, stage, chunk_bytes, policy, overwrite, schemas, config):
        batch, objects, meta_info = sections_of(data, schemas)
        size = checked_rows(batch, objects)
        if ref is not None and size != ref.batch_size:
            raise ValueError(f"{size} rows cannot be added to {ref.batch_size}")
        buffers, index, encoded = {}, {}, {}
        for name, value in batch.items():
            buffers[f"batch.{name}"] = value
            index[name] = StructuredFieldLocation(stage, f"batch.{name}", "batch")
        for name, value in objects.items():
            member = f"non_tensor_batch.{name}"
            index[name] = StructuredFieldLocation(stage, member, "non_tensor_batch")
            codec, rows = as_rows(member, value, schema_of(schemas, name, "non_tensor_batch"))
            if rows is None:
                buffers[member] = value
                continue
            packed = [pack(row) for row in rows]
            buffers[f"{member}.data"] = b"".join(packed)
            buffers[f"{member}.offsets"] = np.cumsum([0, *map(len, packed)], dtype=np.int64)
            encoded[name] = {"codec": codec, "rows": len(packed), "metadata": {}, "payload_members": {part: f"{member}.{part}" for part in ("data", "offsets")}}
        return self._staged(ref, stage, buffers, (index, encoded, meta_info), (namespace, partition, size), (chunk_bytes, policy, overwrite, config))

    def _staged(self, ref, stage, buffers, told, of, how):
        """The reference with the stage's fields in it, which are put before."""
        (index, encoded, meta_info), (namespace, partition, size), (chunk_bytes, policy, overwrite, config) = told, of, how
        known = ref or MooncakeDataProtoRef(size, {}, {}, {}, namespace, partition)
        there = sorted(set(known.field_index) & set(index))
        if there and not overwrite:
            raise ValueError(f"these fields are there already: {there}")
        left = sorted(name for name, at in known.field_index.items() if overwrite and at.stage == stage and name not in index)
        if left:
            raise ValueError(f"what replaces stage {stage!r} must have its fields, too: {left}")
        named = _group_of(config)
        group = known._storage_group_id if ref is not None else (f"structured-{uuid.uuid4().hex}" if named is None else named or None)
        refs = dict(known.stage_refs)
        if buffers:
            about = {"layout": "dataproto_stage",
                     "dataproto": {"version": 1, "namespace": namespace, "partition": partition, "stage": stage, "batch_size": size}}
            config = _with_group(config, group)
            made = self.put_structured_object(StructuredObjectPayload(about, buffers), partition, chunk_bytes, policy, None, config)
            before = refs.get(stage)
            refs[stage] = self._joined(before, made, partition, chunk_bytes, config) if before is not None and not overwrite else made
            if before is not None and overwrite:
                self.remove_bundle(before)
        kept = {name: one for name, one in known.encoded_non_tensor.items() if name not in index}
        return MooncakeDataProtoRef(size, refs, {**known.field_index, **index}, {**known.meta_info, **meta_info}, namespace, partition, known.global_indexes,
                                    {**kept, **encoded}, group)

    def _joined(self, before, made, partition, chunk_bytes, config):
        """One manifest over the members of both; that of `before` stays, for its holders."""
        try:
            old, new = self._bundles.manifest(before), self._bundles.manifest(made)
            about, more = self._bundles.meta(old), self._bundles.meta(new)
            both = sorted(set(old["buffers"]) & set(new["buffers"]))
            if both:
                raise ValueError(f"these members are there already: {both}")
            about[STRUCTURED_FIELD_SPECS_KEY] = {**about.get(STRUCTURED_FIELD_SPECS_KEY, {}), **more.get(STRUCTURED_FIELD_SPECS_KEY, {})}
            own = [made.manifest_key, *(chunk["key"] for chunk in new["meta"]["chunks"])]
            also = [*old.get("cleanup_keys", []), before.manifest_key, *(chunk["key"] for chunk in old["meta"]["chunks"])]
            joined = self._bundles.put_manifest(about, {**old["buffers"], **new["buffers"]}, partition, also, chunk_bytes, config)
        except Exception:
            self.remove_bundle(made)
            raise
        self._bundles.remove_keys(own, strict=False)
        return joined

    def _get_fields(self, ref, fields, batch_fields, non_tensor_fields, meta_info_keys, places, rows):
        """(batch, non_tensor_batch, meta_info)"""
        names, wanted = chosen_fields(ref, fields, batch_fields, non_tensor_fields), chosen_rows(rows, ref.batch_size)
        found = {"batch": {}, "non_tensor_batch": {}}
        manifests, specs = {}, {}
        for name in names:
            at = ref.field_index[name]
            if at.stage not in manifests:
                manifests[at.stage] = self._bundles.manifest(ref.stage_refs[at.stage])
                specs[at.stage] = self._bundles.meta(manifests[at.stage]).get(STRUCTURED_FIELD_SPECS_KEY, {})
            buffers = manifests[at.stage]["buffers"]
            encoded = ref.encoded_non_tensor.get(name)
            if encoded is not None:
                found[at.section][name] = self._read_rows(encoded["payload_members"], buffers, wanted)
            else:
                found[at.section][name] = self._read(name, buffers[at.member], specs[at.stage].get(at.member, {"encoding": "bytes"}), wanted, places.get(name))
        meta_info = dict(ref.meta_info) if meta_info_keys is None else {key: ref.meta_info[key] for key in meta_info_keys if key in ref.meta_info}
        return found["batch"], found["non_tensor_batch"], meta_info

    def _read_rows(self, members, buffers, wanted):
        """Rows of anything, each a run of its own: only wanted rows are moved."""
        spec = buffers[members["offsets"]]
        offsets = np.frombuffer(self._bundles.read(spec), np.int64)
        rows = range(len(offsets) - 1) if (chosen := _rows_of(wanted, len(offsets) - 1)) is None else chosen
        memory, ranges, ends = None, [], [0]
        for row in rows:
            begin, end = int(offsets[row]), int(offsets[row + 1])
            if ranges and sum(ranges[-1][::2]) == begin:
                ranges[-1] = (ranges[-1][0], ranges[-1][1], ranges[-1][2] + end - begin)
            else:
                ranges.append((begin, ends[-1], end - begin))
            ends.append(ends[-1] + end - begin)
        memory = bytearray(ends[-1])
        if memory:
            self._bundles.read_into(buffers[members["data"]], memoryview(memory), ranges)
        made = np.empty(len(rows), dtype=object)
        for i in range(len(rows)):
            made[i] = unpack(bytes(memoryview(memory)[ends[i]:ends[i + 1]]))
        return made
