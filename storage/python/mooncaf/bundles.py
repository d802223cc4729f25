"""Named buffers under one reference: a manifest, which is JSON, says in which objects of the store their bytes lie."""

from __future__ import annotations

import concurrent.futures
import copy
import ctypes
import dataclasses
import json
import uuid
from collections.abc import Mapping, Sequence

import numpy as np

from .types import ReplicateConfig

__all__ = ["BundleKeeper", "BundleTransferPolicy", "DEFAULT_BUNDLE_CHUNK_BYTES", "MISSING_OBJECT_ERROR", "RemoteBundleRef"]

DEFAULT_BUNDLE_CHUNK_BYTES = 64 << 20
MISSING_OBJECT_ERROR = -704
_ALREADY_REGISTERED = -600


@dataclasses.dataclass(frozen=True)
class BundleTransferPolicy:
    """How many chunks are put at once. The modes are taken as Mooncake's are; there is one way here, which copies nothing that it need not."""

    max_inflight_put: int = 1
    put_mode: str = "auto"
    copy_mode: str = "auto"


@dataclasses.dataclass
class RemoteBundleRef:
    """A bundle in the store. `manifest` may be empty: then it is read."""

    manifest_key: str
    manifest: dict


def flat(value: object, name: str) -> memoryview:
    """The bytes of something with the buffer protocol, in order; a copy only where they do not lie so. @raises TypeError"""
    try:
        view = memoryview(value)
    except TypeError:
        raise TypeError(f"{name} must be bytes, or something with the buffer protocol") from None
    if not view.c_contiguous:
        view = memoryview(view.tobytes())
    return view.cast("B") if view.nbytes else memoryview(b"")


def plain_name(value: object, what: str) -> str:
    if not isinstance(value, str) or not value or "/" in value or any(ord(letter) < 32 for letter in value):
        raise ValueError(f"{value!r} cannot be a {what}")
    return value


def policy_of(policy: BundleTransferPolicy | None, max_inflight_put: int | None) -> BundleTransferPolicy:
    made = policy or BundleTransferPolicy()
    if max_inflight_put is not None:
        made = dataclasses.replace(made, max_inflight_put=max_inflight_put)
    if made.max_inflight_put < 1:
        raise ValueError("max_inflight_put must be positive")
    if made.put_mode not in ("auto", "batch", "parallel") or made.copy_mode not in ("auto", "zero_copy", "copy"):
        raise ValueError(f"there is no such mode: {made}")
    return made


def with_group(config: object, group: str | None) -> object:
    """The configuration of a put of one object of that group; None leaves it as it is."""
    if group is None:
        return config
    made = ReplicateConfig() if config is None else copy.copy(config)
    made.group_ids = [group]
    return made


def group_of(config: object) -> str | None:
    """The one group that a caller names for all that he puts; "" where he wants none, None where he says nothing. @raises ValueError"""
    named = getattr(config, "group_ids", None)
    if named is None:
        return None
    named = [named] if isinstance(named, str) else list(named)
    if len(named) > 1 or any(not isinstance(one, str) for one in named):
        raise ValueError("config.group_ids names one group, of which all objects of the bundle are")
    return named[0] if named else None


@dataclasses.dataclass(frozen=True)
class Tensor:
    """A buffer that the store takes as a tensor: an object of its own, header and elements, whatever its size."""

    value: object
    size: int


class BundleKeeper:
    """Puts bundles, reads their buffers in whole or in part, removes them. Of the store it needs put, get, remove and is_exist; further calls make it
    faster. Thread-safe, as the store is."""

    def __init__(self, store: object, key_prefix: str, chunk_bytes: int) -> None:
        self.store, self.prefix, self.chunk_bytes = store, key_prefix, chunk_bytes

    def has(self, call: str) -> bool:
        return callable(getattr(self.store, call, None))

    # ---- put

    def put(self, meta: Mapping, buffers: Mapping[str, Sequence[memoryview]], partition: str, chunk_bytes: int | None, policy: BundleTransferPolicy,
            config: object, raw_meta: bytes | None = None) -> RemoteBundleRef:
        """`buffers` has for each name runs of bytes that follow on each other. Where one cannot be put nothing stays. @raises RuntimeError with the code"""
        plain_name(partition, "partition")
        size = self.chunk_bytes if chunk_bytes is None else chunk_bytes
        if size <= 0:
            raise ValueError("chunk_bytes must be positive")
        group = group_of(config)
        if group is not None:
            config = with_group(config, group)
            config.group_ids = [group] if group else None
        bundle = f"{partition}/{uuid.uuid4().hex}"
        base = f"{self.prefix}/{bundle}"
        content = raw_meta if raw_meta is not None else _json(meta, "metadata")
        jobs, told = [], {}
        spec = {"version": 1, "layout": "bundle", "object_id": bundle, "meta": self._cut(f"{base}/meta", [memoryview(content)], size, jobs), "buffers": told}
        for name, runs in buffers.items():
            key = f"{base}/buffer/{plain_name(name, 'buffer name')}"
            if isinstance(runs, Tensor):
                jobs.append((key, runs))
                told[name] = {"kind": "tensor", "key": key, "bytes": runs.size, "chunks": [{"key": key, "offset": 0, "bytes": runs.size}]}
            else:
                told[name] = self._cut(key, runs, size, jobs)
        return self._write(base, spec, jobs, policy, config)

    def put_manifest(self, meta: Mapping, buffers: Mapping, partition: str, also: Sequence[str], chunk_bytes: int | None, config: object) -> RemoteBundleRef:
        """A manifest over buffers that are there; `also` are keys that go when it goes."""
        bundle = f"{plain_name(partition, 'partition')}/{uuid.uuid4().hex}"
        base, jobs = f"{self.prefix}/{bundle}", []
        about = self._cut(f"{base}/meta", [memoryview(_json(meta, "metadata"))], chunk_bytes or self.chunk_bytes, jobs)
        spec = {"version": 1, "layout": "bundle", "object_id": bundle, "meta": about, "buffers": dict(buffers), "cleanup_keys": list(dict.fromkeys(also))}
        return self._write(base, spec, jobs, BundleTransferPolicy(), config)

    def _write(self, base, spec, jobs, policy, config):
        begun = []

        def write(job):
            key, runs = job
            begun.append(key)
            self._put_one(key, runs, config)

        try:
            if policy.max_inflight_put > 1 and len(jobs) > 1:
                with concurrent.futures.ThreadPoolExecutor(policy.max_inflight_put) as pool:
                    list(pool.map(write, jobs))
            else:
                for job in jobs:
                    write(job)
            write((f"{base}/manifest", [memoryview(_json(spec, "manifest"))]))  # last: a reader that finds it finds all
        except BaseException:
            self.remove_keys(begun, strict=False)
            raise
        return RemoteBundleRef(f"{base}/manifest", spec)

    @staticmethod
    def _cut(key, runs, size, jobs):
        """Says where the bytes will lie, and adds the objects to be put. An object holds one byte at least."""
        chunks, held, room, total = [], [], size, 0

        def close():
            nonlocal held, room
            if held:
                name, count = f"{key}/chunk-{len(chunks):08d}", sum(map(len, held))
                chunks.append({"key": name, "offset": total - count, "bytes": count})
                jobs.append((name, held))
            held, room = [], size

        for run in runs:
            while len(run):
                part, run = run[:room], run[room:]
                held.append(part)
                room -= len(part)
                total += len(part)
                if room == 0:
                    close()
        close()
        return {"kind": "bytes", "key": key, "bytes": total, "chunks": chunks}

    def _put_one(self, key, runs, config):
        more = {} if config is None else {"config": config}
        if isinstance(runs, Tensor):
            code = self.store.put_tensor(key, runs.value) if config is None else self.store.pub_tensor(key, runs.value, config)
        elif len(runs) > 1 and self.has("put_parts"):
            code = self.store.put_parts(key, *runs, **more)
        else:
            code = self.store.put(key, runs[0] if len(runs) == 1 else b"".join(runs), **more)
        if code not in (None, 0):
            raise RuntimeError(f"put of {key} was answered {code}")

    # ---- read

    def manifest(self, ref: RemoteBundleRef | Mapping) -> dict:
        """@raises KeyError where it is not in the store, ValueError for anything that is no manifest"""
        told = ref.manifest if isinstance(ref, RemoteBundleRef) else ref.get("manifest")
        if not told:
            key = ref.manifest_key if isinstance(ref, RemoteBundleRef) else ref.get("manifest_key")
            if not isinstance(key, str):
                raise ValueError("a reference names its manifest_key")
            data = self._get(key)
            if not data:
                raise KeyError(f"there is no bundle {key}")
            told = json.loads(bytes(data))
        if not isinstance(told, dict) or told.get("layout") != "bundle" or not isinstance(told.get("buffers"), Mapping) or "meta" not in told:
            raise ValueError("this is no manifest of a bundle")
        return told

    def meta(self, manifest: Mapping) -> dict:
        return json.loads(self.read(manifest["meta"]))

    def read(self, spec: Mapping) -> bytes:
        memory = bytearray(spec["bytes"])
        self.read_into(spec, memoryview(memory), [(0, 0, len(memory))])
        return bytes(memory)

    def read_into(self, spec: Mapping, target: memoryview, ranges: Sequence[tuple[int, int, int]]) -> None:
        """(first byte there, first byte in `target`, how many) of each range. @raises RuntimeError where an object is gone or cannot be read"""
        wanted: dict[str, list[tuple[int, int, int]]] = {}
        for source, to, count in ranges:
            if source < 0 or count < 0 or source + count > spec["bytes"] or to < 0 or to + count > len(target):
                raise ValueError("this lies beyond the payload, or what is to hold it")
            for chunk in spec["chunks"]:
                first, end = max(source, chunk["offset"]), min(source + count, chunk["offset"] + chunk["bytes"])
                if first < end:
                    wanted.setdefault(chunk["key"], []).append((first - chunk["offset"], to + first - source, end - first))
        if not wanted:
            return
        sizes = {chunk["key"]: chunk["bytes"] for chunk in spec["chunks"]}
        left = dict(wanted)
        for key in self._moved(wanted, sizes, target):
            del left[key]
        for key, parts in left.items():
            data = self._get(key)
            if len(data) != sizes[key]:
                raise RuntimeError(f"{key} is gone, or cannot be read")
            for source, to, count in parts:
                target[to:to + count] = data[source:source + count]

    def _get(self, key):
        """b"" where there is no such object."""
        try:
            return self.store.get(key) or b""
        except KeyError:
            return b""

    def _moved(self, wanted, sizes, target):
        """Of which objects all parts went straight into `target`, for which it is registered meanwhile."""
        if not (self.has("register_buffer") and self.has("batch_get_into") and self.has("get_into_ranges")):
            return []
        address = np.frombuffer(target, dtype=np.uint8).ctypes.data
        code = self.store.register_buffer(address, len(target))
        if code not in (0, _ALREADY_REGISTERED):
            return []
        try:
            whole = [key for key, parts in wanted.items() if len(parts) == 1 and parts[0][2] == sizes[key]]
            some = [key for key in wanted if key not in whole]
            done = []
            if whole:
                codes = self.store.batch_get_into(whole, [address + wanted[key][0][1] for key in whole], [sizes[key] for key in whole])
                done += [key for key, code in zip(whole, codes) if code == sizes[key]]
            if some:
                column = lambda i: [[[part[i] for part in wanted[key]] for key in some]]  # noqa: E731
                codes = self.store.get_into_ranges([address], [some], column(1), column(0), column(2))[0]
                done += [key for key, code in zip(some, codes) if code == [part[2] for part in wanted[key]]]
            return done
        finally:
            if code == 0:
                self.store.unregister_buffer(address)

    # ---- remove

    def keys(self, manifest: Mapping) -> list[str]:
        return [chunk["key"] for spec in (manifest["meta"], *manifest["buffers"].values()) for chunk in spec["chunks"]]

    def remove(self, ref: RemoteBundleRef | Mapping) -> None:
        """The manifest last, so that a failed removal can be tried again; nothing where it is gone. @raises RuntimeError for objects that stay"""
        key = ref.manifest_key if isinstance(ref, RemoteBundleRef) else ref.get("manifest_key")
        try:
            manifest = self.manifest(ref)
        except KeyError:
            return
        self.remove_keys(self.keys(manifest) + manifest.get("cleanup_keys", []), strict=True)
        self.remove_keys([key or f"{self.prefix}/{manifest['object_id']}/manifest"], strict=True)

    def remove_keys(self, keys: Sequence[str], *, strict: bool) -> None:
        left, failed = list(dict.fromkeys(keys)), []
        gone = (None, 0, MISSING_OBJECT_ERROR)
        try:
            if left and self.has("batch_remove"):
                left = [key for key, code in zip(left, self.store.batch_remove(left, True)) if code not in gone]
            for key in left:  # once more, one by one
                code = self.store.remove(key, True)
                failed += [(key, code)] if code not in gone else []
        except Exception:
            if strict:
                raise
        if failed and strict:
            raise RuntimeError(f"{len(failed)} objects could not be removed: {failed[:3]}")


def _json(value: Mapping, what: str) -> bytes:
    try:
        return json.dumps(value, separators=(",", ":")).encode()
    except (TypeError, ValueError) as why:
        raise TypeError(f"{what} must be JSON: {why}") from None


def memory_at(address: int, size: int) -> memoryview:
    return memoryview((ctypes.c_char * size).from_address(address)).cast("B") if size else memoryview(bytearray())
