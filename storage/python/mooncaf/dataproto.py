"""Batches in the manner of verl's DataProto: their sections, which rows and fields of them are wanted, and the handles that say where they lie."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Union

import numpy as np

from .bundles import RemoteBundleRef

__all__ = ["DATAPROTO_REF_HANDLE_TYPE", "DATAPROTO_REF_HANDLE_VERSION", "DataProtoRefLike", "FieldSchema", "MooncakeDataProtoRef", "STORAGE_GROUP_ID",
           "StructuredFieldLocation", "StructuredMemberSlice", "as_result", "as_rows", "checked_rows", "chosen_fields", "chosen_rows", "export_dataproto_ref",
           "from_flat", "import_dataproto_ref", "is_dataproto_ref_handle", "resolved", "schema_of", "sections_of", "to_flat"]

DATAPROTO_REF_HANDLE_TYPE, DATAPROTO_REF_HANDLE_VERSION, STORAGE_GROUP_ID = "mooncake_dataproto_ref", 1, "storage_group_id"
_SECTIONS = ("batch", "non_tensor_batch", "meta_info")


@dataclasses.dataclass(frozen=True)
class FieldSchema:
    """The kind of a field's rows: see `_CODECS`. `metadata` may name its "section", and the "dtype" of numbers."""

    codec: str
    nullable: bool = True
    metadata: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class StructuredMemberSlice:
    axis: int
    start: int
    end: int
    step: int = 1


@dataclasses.dataclass(frozen=True)
class StructuredFieldLocation:
    stage: str
    member: str
    section: str


@dataclasses.dataclass
class MooncakeDataProtoRef:
    """Which fields there are and where they lie, without their bytes."""

    batch_size: int
    stage_refs: dict[str, RemoteBundleRef]
    field_index: dict[str, StructuredFieldLocation]
    meta_info: dict[str, Any]
    namespace: str = "default"
    partition: str = "default"
    global_indexes: list[int] | None = None
    encoded_non_tensor: dict[str, Any] = dataclasses.field(default_factory=dict)
    _storage_group_id: str | None = dataclasses.field(default=None, repr=False)


DataProtoRefLike = Union[MooncakeDataProtoRef, Mapping]


# ---- handles


def is_dataproto_ref_handle(value: Any) -> bool:
    return isinstance(value, Mapping) and value.get("type") == DATAPROTO_REF_HANDLE_TYPE


def export_dataproto_ref(ref: MooncakeDataProtoRef) -> dict[str, Any]:
    """The reference as JSON, for another process. @raises TypeError for a value that JSON does not have"""
    if not isinstance(ref, MooncakeDataProtoRef):
        raise TypeError(f"a {type(ref).__name__} is no MooncakeDataProtoRef")
    handle = {"type": DATAPROTO_REF_HANDLE_TYPE, "version": DATAPROTO_REF_HANDLE_VERSION, "kind": "bundle_stages", "batch_size": int(ref.batch_size),
              "namespace": ref.namespace, "partition": ref.partition, "global_indexes": _as_json(ref.global_indexes),
              "stage_refs": {stage: {"manifest_key": one.manifest_key} for stage, one in ref.stage_refs.items()},
              "field_index": {name: dataclasses.asdict(at) for name, at in ref.field_index.items()},
              "meta_info": _as_json(ref.meta_info), "encoded_non_tensor": _as_json(ref.encoded_non_tensor)}
    if ref._storage_group_id is not None:
        handle[STORAGE_GROUP_ID] = ref._storage_group_id
    json.dumps(handle)
    return handle


def _as_json(value):
    if isinstance(value, (np.generic, np.ndarray)):
        return _as_json(value.tolist())
    if isinstance(value, Mapping):
        return {str(key): _as_json(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_as_json(one) for one in value]
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    raise TypeError(f"a handle is JSON, which has no {type(value).__name__}")


def _mapping(handle, name):
    found = handle.get(name)
    if not isinstance(found, Mapping):
        raise ValueError(f"the handle's {name} must be a mapping")
    return found


def _named(*names):
    if any(not isinstance(name, str) or not name for name in names):
        raise ValueError(f"the handle must have names, which are non-empty text, in place of {names}")


def import_dataproto_ref(handle: Mapping[str, Any]) -> MooncakeDataProtoRef:
    """@raises ValueError for anything that `export_dataproto_ref` does not write"""
    if not is_dataproto_ref_handle(handle):
        raise ValueError("this is no handle of a batch")
    if handle.get("version") not in (1, 2) or handle.get("kind") != "bundle_stages":
        raise ValueError(f"unsupported handle: version {handle.get('version')!r}, kind {handle.get('kind')!r}")
    stages, fields = {}, {}
    for stage, told in _mapping(handle, "stage_refs").items():
        key = told.get("manifest_key") if isinstance(told, Mapping) else None
        _named(stage, key)
        stages[stage] = RemoteBundleRef(key, {})
    for name, told in _mapping(handle, "field_index").items():
        at = told if isinstance(told, Mapping) else {}
        _named(name, at.get("stage"), at.get("member"))
        if at.get("section") not in _SECTIONS[:2] or at["stage"] not in stages:
            raise ValueError(f"the handle's field {name!r} lies nowhere: {told}")
        fields[name] = StructuredFieldLocation(at["stage"], at["member"], at["section"])
    indexes, group = handle.get("global_indexes"), handle.get(STORAGE_GROUP_ID)
    if indexes is not None and not (isinstance(indexes, list) and all(isinstance(i, int) and not isinstance(i, bool) for i in indexes)):
        raise ValueError("the handle's global_indexes must be a list of integers, or null")
    if (group is not None or handle["version"] == 2) and (not isinstance(group, str) or not group):
        raise ValueError(f"the handle's {STORAGE_GROUP_ID} is invalid")
    more = {name: dict(_mapping(handle, name)) if handle.get(name) is not None else {} for name in ("meta_info", "encoded_non_tensor")}
    return MooncakeDataProtoRef(int(handle["batch_size"]), stages, fields, more["meta_info"], str(handle.get("namespace", "default")),
                                str(handle.get("partition", "default")), indexes, more["encoded_non_tensor"], group)


def resolved(ref: DataProtoRefLike) -> MooncakeDataProtoRef:
    if isinstance(ref, MooncakeDataProtoRef):
        return ref
    if is_dataproto_ref_handle(ref):
        return import_dataproto_ref(ref)
    raise TypeError(f"a {type(ref).__name__} is neither a reference of a batch nor its handle")


# ---- batches as callers give and get them


def _as_dict(value):
    if value is None:
        return {}
    if not callable(getattr(value, "items", None)):
        raise TypeError(f"a {type(value).__name__} is no mapping")
    return dict(value.items())


def _is_sequence(value):
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes, bytearray))


def sections_of(data, schemas):
    """(batch, non_tensor_batch, meta_info) of an object that has them, or of a mapping; a mapping of other names is a batch."""
    if isinstance(data, Mapping):
        sections = bool(data) and set(data) <= set(_SECTIONS) and all(one is None or callable(getattr(one, "items", None)) for one in data.values())
        found = [_as_dict(data.get(name)) for name in _SECTIONS] if sections else [dict(data), {}, {}]
    else:
        found = [_as_dict(getattr(data, name, None)) for name in _SECTIONS]
    for name in schemas or {}:
        where = [section for section, fields in zip(_SECTIONS, found) if name in fields]
        declared = _section(schemas, name)
        if declared is not None and where and declared not in where:
            raise ValueError(f"the schema of {name!r} says section {declared!r}, and the data has it in {where}")
    return found


def _section(schemas, name):
    declared = schemas[name].metadata.get("section")
    if declared is not None and declared not in _SECTIONS:
        raise ValueError(f"the section of {name!r} must be one of {_SECTIONS}")
    return declared


def schema_of(schemas, name, section):
    if not schemas or name not in schemas:
        return None
    return schemas[name] if _section(schemas, name) in (None, section) else None


def checked_rows(batch, objects):
    """How many rows all fields have. @raises ValueError where they do not agree"""
    both = sorted(set(batch) & set(objects))
    if both:
        raise ValueError(f"these fields are in batch and in non_tensor_batch: {both}")
    sizes = {len(value) for value in (*batch.values(), *objects.values())}
    if len(sizes) > 1:
        raise ValueError(f"the fields have inconsistent batch sizes: {sorted(sizes)}")
    return sizes.pop() if sizes else 0


def _is_dense(value):
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return value.ndim > 0
    return isinstance(value, np.ndarray) and value.dtype != object and value.ndim > 0


def from_flat(data, schemas):
    """Sections of a flat mapping: dense arrays with as many rows as all have are the batch, lists so long are rows, anything else is about all of it."""
    if not isinstance(data, Mapping):
        raise TypeError("a flat batch is a mapping")
    declared = {name: _section(schemas, name) for name in schemas if name in data}
    told = {_length(name, data[name]) for name, section in declared.items() if section in _SECTIONS[:2]}
    open_to = [value for name, value in data.items() if declared.get(name) != "meta_info"]
    dense = {len(value) for value in open_to if _is_dense(value)}
    lists = {len(value) for value in open_to if _is_sequence(value) or isinstance(value, np.ndarray) and value.ndim > 0}
    sizes = told or dense or lists
    if len(sizes) > 1:
        raise ValueError(f"the fields have ambiguous batch sizes: {sorted(sizes)}; a schema may say which are meta_info")
    rows = sizes.pop() if sizes else 0
    found = {section: {} for section in _SECTIONS}
    for name, value in data.items():
        section = declared.get(name)
        if section is None and rows and _is_dense(value) and len(value) == rows:
            section = "batch"
        elif section is None and not told and _is_sequence(value) and len(value) == rows:
            section = "non_tensor_batch"
        section = section or "meta_info"
        if section == "non_tensor_batch":
            value = _objects(name, value, schemas.get(name))
            if len(value) != rows:
                raise ValueError(f"{name!r} has {len(value)} rows, and all others {rows}")
        found[section][name] = value
    return found


def _length(name, value):
    try:
        return len(value)
    except TypeError:
        raise ValueError(f"{name!r} has no rows") from None


def _objects(name, value, schema=None):
    if isinstance(value, np.ndarray):
        dtype = schema.metadata.get("dtype") if schema is not None and schema.codec == "ndarray" else None
        full = value.dtype != object or all(one is not None for one in value)
        return np.asarray(value, dtype=_number_type(dtype)) if dtype is not None and full else value
    if not _is_sequence(value):
        raise TypeError(f"{name!r} must be an array, or a sequence, to have rows")
    made = np.empty(len(value), dtype=object)
    for i, one in enumerate(value):
        made[i] = one
    return made


def _number_type(dtype):
    try:
        found = np.dtype(dtype)
    except (TypeError, ValueError):
        raise ValueError(f"{dtype!r} is no dtype") from None
    if found.kind not in "biufc":
        raise ValueError(f"dtype must be of numbers or truth, and is {found}")
    return found


def as_result(batch, objects, meta_info, data_cls):
    if data_cls is None or data_cls is dict:
        return {"batch": batch, "non_tensor_batch": objects, "meta_info": meta_info}
    try:
        if callable(getattr(data_cls, "from_dict", None)):
            return data_cls.from_dict(batch, objects, meta_info=meta_info)
        return data_cls(batch=batch, non_tensor_batch=objects, meta_info=meta_info)
    except TypeError as why:
        raise TypeError(f"{getattr(data_cls, '__name__', data_cls)!r} cannot be constructed from batch, non_tensor_batch and meta_info") from why


def to_flat(batch, objects, meta_info):
    all_names = [*meta_info, *batch, *objects]
    twice = sorted({name for name in all_names if all_names.count(name) > 1})
    if twice:
        raise ValueError(f"these names are in several sections: {twice}")
    rows = {name: value.tolist() if isinstance(value, np.ndarray) and value.dtype == object else value for name, value in objects.items()}
    return {**meta_info, **batch, **rows}


# ---- which fields, which rows


def chosen_fields(ref, fields, batch_fields, non_tensor_fields):
    if fields is not None and (batch_fields is not None or non_tensor_fields is not None):
        raise ValueError("fields cannot be combined with batch_fields or non_tensor_fields")
    names = list(fields) if fields is not None else [*(batch_fields or ()), *(non_tensor_fields or ())]
    if fields is None and batch_fields is None and non_tensor_fields is None:
        names = list(ref.field_index)
    unknown = [name for name in names if name not in ref.field_index]
    if unknown:
        raise KeyError(f"there are no fields {unknown}")
    return names


def chosen_rows(rows, total):
    """As a slice along axis 0, or a list of numbers; None: all of them."""
    if rows is None or isinstance(rows, StructuredMemberSlice):
        return rows
    if isinstance(rows, slice):
        start, end, step = rows.indices(total)
        if step <= 0:
            raise ValueError("the step of rows must be positive")
        return StructuredMemberSlice(0, start, end, step)
    if not _is_sequence(rows):
        raise TypeError("rows is a slice, or a sequence of row numbers")
    found = []
    for row in rows:
        if not isinstance(row, (int, np.integer)):
            raise TypeError("row numbers are integers")
        if not -total <= row < total:
            raise IndexError(f"there is no row {row} of {total}")
        found.append(int(row) % total)
    return found


# ---- rows of anything


def _is_numeric(row):
    try:
        return np.asarray(row).dtype.kind in "biufc"
    except (ValueError, TypeError):
        return False


def _is_tensor(row):
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(row, torch.Tensor)


def _is_media(row):
    return isinstance(row, (bytes, bytearray, memoryview)) or type(row).__module__.startswith("PIL.")


_CODECS = {
    "auto": lambda row: True,
    "ndarray": lambda row: isinstance(row, (bool, int, float, np.generic)),
    "typed_ragged": lambda row: isinstance(row, (list, tuple, np.ndarray)) and _is_numeric(row),
    "ragged_tensor": _is_tensor,
    "ragged_tensor_dict": lambda row: isinstance(row, dict) and all(isinstance(name, str) and _is_tensor(one) for name, one in row.items()),
    "bytes_ragged": lambda row: isinstance(row, (bytes, bytearray, memoryview)),
    "utf8_ragged": lambda row: isinstance(row, str),
    "msgpack_ragged": lambda row: isinstance(row, (dict, list, tuple, str, bytes, int, float, bool)),
    "json_ragged": lambda row: isinstance(row, (dict, list, tuple, str, int, float, bool)),
    "media_bytes": _is_media,
    "media_list_ragged": lambda row: isinstance(row, (list, tuple)) and all(map(_is_media, row)),
}


def as_rows(path, value, schema):
    """(name of the codec, the rows) of a field that is no dense array; (None, None) for one that is. @raises TypeError, ValueError where the schema says
    otherwise"""
    if schema is None and not (isinstance(value, np.ndarray) and value.dtype == object):
        return None, None
    rows = list(_objects(path, value))
    if schema is None:
        return "rows", rows
    if schema.codec not in _CODECS:
        raise ValueError(f"{path}: there is no codec {schema.codec!r}; there are {', '.join(_CODECS)}")
    if not schema.nullable and any(row is None for row in rows):
        raise ValueError(f"{path} has a row that is None, and its schema is not nullable")
    wrong = next((row for row in rows if row is not None and not _CODECS[schema.codec](row)), None)
    if wrong is not None:
        raise TypeError(f"{path} has a row that is no {schema.codec}: a {type(wrong).__name__}")
    dtype = schema.metadata.get("dtype")
    if dtype is not None and schema.codec in ("ndarray", "typed_ragged"):
        number = _number_type(dtype)
        rows = [row if row is None else np.asarray(row, number)[()] for row in rows]
    return schema.codec, rows
