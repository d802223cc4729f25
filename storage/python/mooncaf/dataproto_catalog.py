"""Which rows of which batches there are, by names of their own: a catalogue that one process keeps, and the calls of others that go through it.

`DataProtoCatalog` holds references alone, no bytes. `DataProtoCatalogTransfer` puts batches, enters them, and removes batches that no row refers to any more.
"""

from __future__ import annotations

import copy
import logging
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .dataproto import export_dataproto_ref, import_dataproto_ref

__all__ = ["DataProtoCatalog", "DataProtoCatalogTransfer"]

_log = logging.getLogger("mooncaf")


def _text(value, what):
    if not isinstance(value, str) or not value:
        raise ValueError(f"{what} must be a non-empty string")
    return value


def _names(values, what):
    names = () if isinstance(values, str) else tuple(values)
    if not names or any(not isinstance(one, str) or not one for one in names) or len(set(names)) != len(names):
        raise ValueError(f"{what} must be a sequence of non-empty strings, each of them once")
    return names


def _tags_of(tags, count):
    if tags is None:
        return None
    if len(tags) != count:
        raise ValueError("tags must have the same length as keys")
    if any(not isinstance(one, Mapping) for one in tags):
        raise TypeError("tags must be mappings")
    return [copy.deepcopy(dict(one)) for one in tags]


def _own(handle):
    """The reference that a handle says, and the handle as this module writes it."""
    ref = import_dataproto_ref(handle)
    return ref, export_dataproto_ref(ref)


class _Fragment:
    """A batch that rows of the catalogue lie in. `managed`: it is removed from the store when no row needs it."""

    def __init__(self, handle, managed):
        self.handle, self.managed, self.uses, self.readers = handle, managed, 0, 0


class DataProtoCatalog:
    """Rows by partition and key: for each its tags, and in which row of which fragment each of its fields lies. Its host makes one call at a time.

    A managed fragment that no field refers to, and no reader has pinned, is retired: every answer names those until `ack_retired` says that they are gone.
    """

    def __init__(self) -> None:
        self._partitions: dict[str, dict[str, dict]] = {}
        self._fragments: dict[str, _Fragment] = {}
        self._retired: dict[str, dict] = {}
        self._answers: dict[str, dict] = {}  # of operations, until they are acknowledged
        self._pins: dict[int, tuple[str, ...]] = {}
        self._next_pin = 0
        self._drained = False

    # ---- write

    def update(self, partition: str, keys: Sequence[str], *, tags: Sequence[Mapping] | None = None, handle: Mapping | None = None) -> dict:
        """Enters tags of rows, or where their fields lie; the fragment stays with its writer."""
        return self._update(partition, keys, tags, handle, False)

    def publish(self, operation_id: str, partition: str, keys: Sequence[str], *, tags: Sequence[Mapping] | None = None, handle: Mapping | None = None) -> dict:
        """The same of a fragment that is the catalogue's from now on. An operation that is asked again has the answer that it had."""
        return self._once(operation_id, lambda: self._update(partition, keys, tags, handle, handle is not None))

    def ack_publication(self, operation_id: str) -> None:
        self._answers.pop(_text(operation_id, "operation_id"), None)

    def publish_append(self, operation_id: str, fragment_id: str, partition: str, keys: Sequence[str], *, previous_handle: Mapping, handle: Mapping) -> dict:
        """More fields in a managed fragment, whose handle is the new one from now on. Says why in "append_rejected" where it cannot be."""
        return self._once(operation_id, lambda: self._append(_text(fragment_id, "fragment_id"), _text(partition, "partition"), _names(keys, "keys"),
                                                             previous_handle, handle))

    def _once(self, operation_id, action):
        _text(operation_id, "operation_id")
        if operation_id not in self._answers:
            self._answers[operation_id] = copy.deepcopy(action())
        return copy.deepcopy(self._answers[operation_id])

    def _update(self, partition, keys, tags, handle, managed):
        if self._drained:
            raise RuntimeError("the catalog is drained")
        partition, keys = _text(partition, "partition"), _names(keys, "keys")
        tags = _tags_of(tags, len(keys))
        if tags is None and handle is None:
            raise ValueError("an update has tags, or a handle")
        fragment_id, fields = self._entered(handle, len(keys), managed) if handle is not None else (None, ())
        rows = self._partitions.setdefault(partition, {})
        for i, key in enumerate(keys):
            entry = rows.setdefault(key, {"tag": {}, "fields": {}})
            entry["tag"].update(tags[i] if tags is not None else {})
            self._place(entry, fields, (fragment_id, i))
        return self._told(rows, keys)

    def _entered(self, handle, count, managed):
        """(id, fields) of a fragment, which is known from now on. Refuses before anything is changed."""
        ref, handle = _own(handle)
        if len(ref.stage_refs) != 1:
            raise ValueError("a fragment has exactly one stage")
        if ref.batch_size != count:
            raise ValueError(f"a batch of {ref.batch_size} rows does not match {count} keys")
        fragment_id = next(iter(ref.stage_refs.values())).manifest_key
        known = self._fragments.get(fragment_id)
        if fragment_id in self._retired:
            raise ValueError(f"fragment {fragment_id!r} is being removed")
        if known is not None and (known.handle != handle or known.managed != managed):
            raise ValueError(f"fragment {fragment_id!r} is known as another, or managed otherwise")
        fields = _names(ref.field_index, "field names")
        self._fragments.setdefault(fragment_id, _Fragment(handle, managed))
        return fragment_id, fields

    def _place(self, entry, fields, at):
        for field in fields:
            before = entry["fields"].get(field)
            self._fragments[at[0]].uses += 1  # first, so that a fragment that is replaced by itself stays
            entry["fields"][field] = at
            if before is not None:
                self._let_go(before[0])

    def _append(self, fragment_id, partition, keys, previous_handle, handle):
        (before, old), (ref, new) = _own(previous_handle), _own(handle)
        fragment, rows = self._fragments.get(fragment_id), self._partitions.get(partition, {})
        missing = [key for key in keys if key not in rows]
        same = (ref.batch_size, ref.partition, ref._storage_group_id) == (before.batch_size, before.partition, before._storage_group_id)
        for wrong, why in ((self._drained, "the catalog is drained"),
                           (fragment is None or not fragment.managed or fragment.handle != old, f"stale append handle of {fragment_id!r}"),
                           (not same or ref.batch_size != len(keys) or ref.partition != partition, "the appended handle is of another fragment"),
                           (any(ref.field_index.get(name) != at for name, at in before.field_index.items()), "the appended handle changed existing fields"),
                           (bool(missing), f"keys not found in partition {partition!r}: {missing}")):
            if wrong:
                return {"append_rejected": why}
        fragment.handle = new
        for i, key in enumerate(keys):
            self._place(rows[key], [name for name in ref.field_index if name not in before.field_index], (fragment_id, i))
        return self._told(rows, keys)

    def _told(self, rows, keys):
        return {"keys": list(keys), "tags": [copy.deepcopy(rows[key]["tag"]) for key in keys], "fields": self._union(rows, keys), **self._retirement()}

    @staticmethod
    def _union(rows, keys):
        return list(dict.fromkeys(field for key in keys for field in rows[key]["fields"]))

    # ---- read

    def resolve(self, partition: str, keys: Sequence[str], fields: Sequence[str] | None = None, *, pin: bool = False) -> dict:
        """Where the fields of rows lie, fields that lie alike together. With `pin` their fragments stay until `release_read` of the answer's "read_token"."""
        rows, keys = self._partitions.get(_text(partition, "partition"), {}), _names(keys, "keys")
        missing = [key for key in keys if key not in rows]
        if missing:
            raise ValueError(f"keys {missing} were not found in partition {partition!r}")
        wanted = list(_names(fields, "field names")) if fields is not None else self._union(rows, keys)
        if not wanted:
            raise ValueError("these keys do not contain any fields")
        for key in keys:
            if unready := [field for field in wanted if field not in rows[key]["fields"]]:
                raise ValueError(f"fields are not ready for key {key!r}: {unready}")
        groups: dict[tuple, list[str]] = {}
        for field in wanted:
            groups.setdefault(tuple(rows[key]["fields"][field] for key in keys), []).append(field)
        ids = list(dict.fromkeys(fragment_id for places in groups for fragment_id, _ in places))
        handles = {fragment_id: copy.deepcopy(self._fragments[fragment_id].handle) for fragment_id in ids}
        answer = {"keys": list(keys), "tags": [copy.deepcopy(rows[key]["tag"]) for key in keys], "fields": wanted,
                  "field_groups": [{"fields": names, "locations": list(places)} for places, names in groups.items()],
                  "handles": handles, "meta_info": self._meta_info(handles.values())}
        if pin:
            self._next_pin += 1
            self._pins[self._next_pin] = tuple(ids)
            for fragment_id in ids:
                self._fragments[fragment_id].readers += 1
            answer["read_token"] = self._next_pin
        return answer

    @staticmethod
    def _meta_info(handles):
        all_of_it = {}
        for handle in handles:
            for name, value in handle.get("meta_info", {}).items():
                if all_of_it.setdefault(name, copy.deepcopy(value)) != value:
                    raise ValueError(f"the fragments have conflicting meta_info {name!r}")
        return all_of_it

    def release_read(self, token: int) -> dict:
        """Nothing where it was released before."""
        for fragment_id in self._pins.pop(token, ()):
            fragment = self._fragments[fragment_id]
            fragment.readers -= 1
            self._retire_if_idle(fragment_id)
        return self._retirement()

    def list(self, partition: str | None = None) -> dict[str, dict]:
        """Tags of all rows, by partition and key."""
        if partition is not None:
            _text(partition, "partition")
        return {name: {key: copy.deepcopy(entry["tag"]) for key, entry in rows.items()} for name, rows in self._partitions.items()
                if partition in (None, name)}

    # ---- remove

    def remove(self, partition: str, keys: Sequence[str]) -> dict:
        """Forgets rows; keys that are not there are no error."""
        rows = self._partitions.get(_text(partition, "partition"), {})
        for key in _names(keys, "keys"):
            for fragment_id, _ in rows.pop(key, {"fields": {}})["fields"].values():
                self._let_go(fragment_id)
        if not rows:
            self._partitions.pop(partition, None)
        return self._retirement()

    def drain(self) -> dict:
        """Forgets everything, and takes nothing more. @raises RuntimeError while a read is active"""
        if self._pins:
            raise RuntimeError(f"the catalog has {len(self._pins)} active read(s)")
        self._retired.update({name: one.handle for name, one in self._fragments.items() if one.managed})
        self._partitions.clear()
        self._fragments.clear()
        self._answers.clear()
        self._drained = True
        return self._retirement()

    def ack_retired(self, handles: Sequence[Mapping]) -> dict:
        """These fragments are gone from the store."""
        for handle in handles:
            ref, own = _own(handle)
            names = {one.manifest_key for one in ref.stage_refs.values()}
            found = next((name for name, told in self._retired.items() if told == own), None)
            if found is None and names & set(self._retired):
                raise ValueError(f"another handle of {names} was retired")
            self._retired.pop(found, None)
        return self._retirement()

    def _let_go(self, fragment_id):
        self._fragments[fragment_id].uses -= 1
        self._retire_if_idle(fragment_id)

    def _retire_if_idle(self, fragment_id):
        fragment = self._fragments[fragment_id]
        if fragment.uses == 0 and fragment.readers == 0:
            del self._fragments[fragment_id]
            if fragment.managed:
                self._retired[fragment_id] = fragment.handle

    def _retirement(self):
        return {"retired_handles": [copy.deepcopy(handle) for handle in self._retired.values()]}


class DataProtoCatalogTransfer:
    """Batches of one store through a catalogue that may be elsewhere: `catalog_call(method, *args, **kwargs)` asks it. Thread-safe.

    A call to the catalogue that fails is made again, once at once, and before the next call: entering is idempotent.
    """

    _RESULTS_ATTR = "_mooncake_catalog_results"

    def __init__(self, transfer: Any, catalog_call: Callable[..., Any]) -> None:
        self.transfer, self._catalog_call = transfer, catalog_call
        self._lock = threading.RLock()
        self._pending_publications: list[tuple] = []
        self._pending_acks: list[str] = []
        self._pending_results: list[Any] = []

    def put(self, data: Any, *, partition: str, keys: Sequence[str], tags: Sequence[Mapping] | None = None, **put_kwargs: Any) -> dict:
        """Puts a batch, whose rows have the keys, and enters it at once, or enters tags alone."""
        self._catch_up()
        partition, keys = _text(partition, "partition"), _names(keys, "keys")
        tags = _tags_of(tags, len(keys))
        if data is None and tags is None:
            raise ValueError("a put has tags, or data")
        handle = None
        if data is not None:
            self._fits(data, keys)
            handle = export_dataproto_ref(self.transfer.put(data, type="dataproto", partition=partition, **put_kwargs))
        return self._entered((uuid.uuid4().hex, "publish", (partition, keys), {"tags": tags, "handle": handle}))

    def append(self, fragment_id: str, handle: Mapping, data: Any, *, partition: str, keys: Sequence[str], stage: str, **append_kwargs: Any) -> dict:
        """Adds fields to a fragment. @raises ValueError where it is not as `handle` says any more; nothing stays in the store then"""
        self._catch_up()
        fragment_id, partition, keys = _text(fragment_id, "fragment_id"), _text(partition, "partition"), _names(keys, "keys")
        if append_kwargs.get("overwrite"):
            raise ValueError("what the catalog has is not overwritten")
        self._fits(data, keys)
        ref, previous = _own(handle)
        if ref.partition != partition:
            raise ValueError("the handle is of another partition")
        if self._catalog_call("resolve", partition, keys, list(ref.field_index))["handles"].get(fragment_id) != previous:
            raise ValueError(f"stale append handle of {fragment_id!r}")
        appended = export_dataproto_ref(self.transfer.append_dataproto_fields(previous, data, stage=stage, **append_kwargs))
        answer = self._entered((uuid.uuid4().hex, "publish_append", (fragment_id, partition, keys), {"previous_handle": previous, "handle": appended}))
        if "append_rejected" in answer:
            raise ValueError(answer["append_rejected"])
        return answer

    @staticmethod
    def _fits(data, keys):
        if len(data) != len(keys):
            raise ValueError(f"a batch of {len(data)} rows does not match {len(keys)} keys")

    def resolve(self, partition: str, keys: Sequence[str], fields: Sequence[str] | None = None) -> dict:
        """Where the fields lie, and stay until `release_read` of the "read_token"."""
        return self._catalog_call("resolve", partition, keys, fields, pin=True)

    def release_read(self, token: int) -> None:
        self._clean(self._catalog_call("release_read", token))

    def attach_results(self, output: Any, results: Sequence[Any]) -> None:
        """Notes results that were read for `output`, to be released with it."""
        setattr(output, self._RESULTS_ATTR, list(results))

    def release_result(self, output: Any) -> None:
        results = getattr(output, self._RESULTS_ATTR, None) or ()
        setattr(output, self._RESULTS_ATTR, [])
        self.discard_results(results)

    def discard_results(self, results: Sequence[Any], *, strict: bool = False) -> None:
        self._again("_pending_results", results, self.transfer.release_result, "release what was read", 2, strict)

    def list(self, partition: str | None = None) -> dict[str, dict]:
        return self._catalog_call("list", partition)

    def remove(self, partition: str, keys: Sequence[str]) -> None:
        self._clean(self._catalog_call("remove", partition, keys))

    def drain(self) -> None:
        """Empties the catalogue, and removes its managed fragments from the store."""
        def once():
            self._again("_pending_publications", (), self._publish, "publish pending batches", 1, True)
            self._clean(self._catalog_call("drain"), strict=True)

        self._twice(once)

    def close(self) -> None:
        self.discard_results((), strict=True)
        self._again("_pending_publications", (), self._publish, "publish pending batches", 1, True)
        self._again("_pending_acks", (), self._ack, "acknowledge an entry", 1, True)

    # ---- inside

    def _catch_up(self):
        self._again("_pending_acks", (), self._ack, "acknowledge an entry", 1, False)
        self._again("_pending_publications", (), self._publish, "publish pending batches", 1, True)

    @staticmethod
    def _twice(action):
        try:
            return action()
        except Exception:
            _log.exception("once more")
            return action()

    def _entered(self, publication):
        try:
            return self._twice(lambda: self._publish(publication))
        except Exception:
            with self._lock:
                self._pending_publications.append(publication)
            raise

    def _publish(self, publication):
        operation_id, method, args, kwargs = publication
        answer = self._catalog_call(method, operation_id, *args, **kwargs)
        if answer.get("append_rejected"):
            self.transfer.cleanup_dataproto_append(kwargs["previous_handle"], kwargs["handle"])
        self._clean(answer)
        try:
            self._ack(operation_id)
        except Exception:
            _log.exception("an entry is acknowledged later")
            with self._lock:
                self._pending_acks += [operation_id] if operation_id not in self._pending_acks else []
        return answer

    def _ack(self, operation_id):
        self._catalog_call("ack_publication", operation_id)

    def _clean(self, answer, strict=False):
        """Removes retired fragments from the store, and says so; a fragment that stays is named again."""
        gone, failed = [], 0
        for handle in answer.get("retired_handles", ()):
            try:
                self.transfer.cleanup_dataproto(handle)
                gone.append(handle)
            except Exception:
                failed += 1
                _log.exception("a batch that nobody refers to could not be removed")
        if gone:
            try:
                self._catalog_call("ack_retired", gone)
            except Exception:
                _log.exception("the catalog has not heard which batches are gone")
                if strict:
                    raise
        if strict and failed:
            raise RuntimeError(f"{failed} batches that nobody refers to could not be removed")

    def _again(self, pending, items, action, what, attempts, strict):
        """Acts on pending items and on new ones; an item that fails is pending."""
        with self._lock:
            left = [*getattr(self, pending), *items]
            setattr(self, pending, [])
        for _ in range(attempts):
            failed = []
            for item in left:
                try:
                    action(item)
                except Exception:
                    _log.exception("could not %s", what)
                    failed.append(item)
            left = failed
        with self._lock:
            getattr(self, pending).extend(left)
            count = len(getattr(self, pending))
        if strict and count:
            raise RuntimeError(f"could not {what}, {count} times")
