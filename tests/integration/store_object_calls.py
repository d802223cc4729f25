"""Calls about structured objects, batches and their catalogue, and what each answers, a line of JSON each: of whichever `mooncake` is on the path. Needs numpy.

    python3 store_object_calls.py HOST:PORT
"""
import ctypes
import json
import os
import sys

import numpy as np

from mooncake import structured_object_store as objects
from mooncake.dataproto_catalog import DataProtoCatalog, DataProtoCatalogTransfer
from mooncake.store import MooncakeDistributedStore


def plain(value):
    """As JSON, with the types that a caller sees."""
    if isinstance(value, np.ndarray):
        return [value.dtype.kind, list(value.shape), [plain(one) for one in value.flat]]
    if isinstance(value, (bytes, bytearray, memoryview)):
        return "bytes " + bytes(value).hex()
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in sorted(value.items(), key=lambda one: str(one[0]))}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    if isinstance(value, np.generic):
        return value.item()
    return value


def tell(what, call):
    try:
        answer = plain(call())
    except Exception as why:  # noqa: BLE001
        answer = type(why).__name__
    print("CALL " + json.dumps([what, answer]), flush=True)


store = MooncakeDistributedStore()
assert store.setup("127.0.0.1", "P2PHANDSHAKE", 64 << 20, 32 << 20, "tcp", "", sys.argv[1]) == 0
transfer = objects.MooncakeBundleTransfer(store, "bundle", 1 << 16)
wide, ids = np.arange(600, dtype=np.float32).reshape(100, 6), np.arange(100, dtype=np.int64)

# ---- objects of several members
ref = transfer.put_structured_object(objects.StructuredObjectPayload({"about": [1, 2]}, {"wide": wide, "ids": ids, "raw": b"raw bytes", "none": np.zeros((0, 3))}))
tell("materialize", lambda: [(r := transfer.materialize(transfer.read_spec(ref))).metadata["about"], r.metadata["layout"], sorted(r.objects), r.objects["wide"], r.objects["ids"]])
tell("bytes", lambda: bytes(transfer.materialize(transfer.read_spec(ref).select_members(["raw"])).objects["raw"]))
tell("no rows", lambda: transfer.materialize(transfer.read_spec(ref).select_members(["none"])).objects["none"])
for name, cut in (("rows", (10, 14, 1)), ("every third", (0, 100, 3)), ("negative", (-5, 100, 1)), ("beyond", (90, 1000, 1)), ("empty", (5, 5, 1)), ("step 0", (0, 5, 0))):
    tell(f"slice {name}", lambda: transfer.materialize(transfer.read_spec(ref).select_members(["wide"]).slice_member("wide", 0, *cut)).objects["wide"])
tell("slice axis 1", lambda: transfer.materialize(transfer.read_spec(ref).slice_member("wide", 1, 0, 2)).objects)
tell("slice bytes", lambda: transfer.materialize(transfer.read_spec(ref).slice_member("raw", 0, 0, 2)).objects)
tell("unknown member", lambda: transfer.materialize(transfer.read_spec(ref).select_members(["other"])))
tell("no member", lambda: transfer.materialize(transfer.read_spec(ref).select_members([])))
target = np.empty((4, 6), np.float32)
tell("into an array", lambda: [transfer.materialize_into(transfer.read_spec(ref).select_members(["wide"]).slice_member("wide", 0, 3, 7), {"wide": target}).objects["wide"] is target, target])
for name, wrong in (("shape", np.empty((5, 6), np.float32)), ("dtype", np.empty((100, 6))), ("order", np.empty((100, 6), np.float32, "F")), ("type", [1])):
    tell(f"into another {name}", lambda: transfer.materialize_into(transfer.read_spec(ref).select_members(["wide"]), {"wide": wrong}))
raw = ctypes.create_string_buffer(4096)
tell("into an address", lambda: [transfer.materialize_into(transfer.read_spec(ref).select_members(["ids"]), {"ids": objects.raw_destination(ctypes.addressof(raw), 800)}).objects["ids"].sum(),
                                 raw.raw[:800] == ids.tobytes()])
tell("into too small a place", lambda: transfer.materialize_into(transfer.read_spec(ref).select_members(["ids"]), {"ids": objects.raw_destination(ctypes.addressof(raw), 799)}))
tell("reference by key", lambda: transfer.materialize(transfer.read_spec({"manifest_key": ref.manifest_key})).objects["ids"])
tell("put_object", lambda: [transfer.get_object(transfer.put_object(ids)), sorted(transfer.get_object(transfer.put_object({"a": ids, "b": b"x"})))])
tell("put_bundle", lambda: transfer.materialize(transfer.read_spec(transfer.put_bundle(b'{"layout": "structured"}', {"a": b"1" * 200_000}))).objects["a"] is not None)
for name, payload in (("name with a slash", {"a/b": b"1"}), ("empty name", {"": b"1"}), ("text", {"a": "text"}), ("number", {"a": 5})):
    tell(f"refused: {name}", lambda: transfer.put_structured_object(objects.StructuredObjectPayload({}, payload)))
tell("refused: metadata", lambda: transfer.put_structured_object(objects.StructuredObjectPayload({"a": object()}, {"a": b"1"})))
tell("refused: reserved", lambda: transfer.put_structured_object(objects.StructuredObjectPayload({objects.STRUCTURED_FIELD_SPECS_KEY: 1}, {"a": b"1"})))
tell("refused: partition", lambda: transfer.put_object({"a": b"1"}, partition="a/b"))
tell("refused: chunk_bytes", lambda: transfer.put_object({"a": b"1"}, chunk_bytes=0))
tell("refused: prefix", lambda: objects.MooncakeBundleTransfer(store, "/"))
tell("refused: no buffers", lambda: objects.StructuredObjectPayload({}))
tell("parallel", lambda: transfer.get_object(transfer.put_object(wide.repeat(40, 0), chunk_bytes=4096, max_inflight_put=4)).sum().item())
tell("remove_bundle", lambda: [store.is_exist(ref.manifest_key), transfer.remove_bundle(ref), store.is_exist(ref.manifest_key), transfer.remove_bundle({"manifest_key": ref.manifest_key})])


# ---- batches
def rows(*values):
    made = np.empty(len(values), dtype=object)
    for i, one in enumerate(values):
        made[i] = one
    return made


batch = {"batch": {"ids": ids[:4], "wide": wide[:4]},
         "non_tensor_batch": {"text": rows("a", "b\u00e4", None, ""), "lists": rows([1, 2], [3], [], [4, 5, 6]), "dicts": rows({"a": 1}, {"b": [1, {"c": "d"}]}, None, {}),
                              "blobs": rows(b"1", b"", b"333", None), "numbers": np.arange(4)},
         "meta_info": {"step": 7, "name": "n"}}
handle = {}


def put():
    handle["ref"] = transfer.put(batch, namespace="n", partition="p", stage="rollout")
    return [handle["ref"].batch_size, sorted(handle["ref"].field_index), handle["ref"].namespace, handle["ref"].partition, sorted(handle["ref"].stage_refs)]


tell("put a batch", put)
whole = lambda **how: transfer.get(handle["ref"], **how)  # noqa: E731
names = ("text", "dicts", "blobs", "numbers")
tell("get", lambda: [(r := whole())["batch"], {n: r["non_tensor_batch"][n] for n in names}, r["meta_info"]])
tell("get lists", lambda: [list(map(int, one)) for one in whole(non_tensor_fields=["lists"])["non_tensor_batch"]["lists"]])
tell("get flat", lambda: {n: v for n, v in whole(type="dict").items() if n != "lists"})
tell("some fields", lambda: [(r := whole(fields=["text", "ids"]))["batch"], r["non_tensor_batch"], r["meta_info"]])
tell("batch fields", lambda: [sorted((r := whole(batch_fields=["ids"], meta_info_keys=["step", "none"]))["batch"]), r["non_tensor_batch"], r["meta_info"]])
for name, wanted in (("slice", slice(1, 3)), ("last", slice(-1, None)), ("numbers", [3, 0, 3]), ("negative", [-1]), ("none", []), ("member slice", objects.StructuredMemberSlice(0, 1, 3))):
    tell(f"rows {name}", lambda: [(r := whole(rows=wanted, fields=["ids", "wide", "text", "blobs"]))["batch"], r["non_tensor_batch"]])
for name, how in (("rows", {"rows": [4]}), ("step", {"rows": slice(None, None, -1)}), ("kind of rows", {"rows": "12"}), ("field", {"fields": ["none"]}),
                  ("both", {"fields": ["ids"], "batch_fields": ["ids"]}), ("type", {"type": "other"})):
    tell(f"get with a wrong {name}", lambda: whole(**how))


class Like:
    def __init__(self, batch, non_tensor_batch, meta_info):
        self.batch, self.non_tensor_batch, self.meta_info = batch, non_tensor_batch, meta_info

    def __len__(self):
        return len(next(iter(self.batch.values())))


tell("of a class", lambda: [type(found := whole(data_cls=Like)).__name__, sorted(found.batch), len(found)])
tell("handle", lambda: [json.loads(json.dumps(h := objects.export_ref(handle["ref"])))["batch_size"], h["type"], h["version"], h["kind"], sorted(h["field_index"]), objects.is_dataproto_ref_handle(h),
                        transfer.get(json.loads(json.dumps(h)), fields=["text"])["non_tensor_batch"]["text"]])
for name, change in (("version", {"version": 9}), ("kind", {"kind": "x"}), ("type", {"type": "x"}), ("stage", {"field_index": {"a": {"stage": "x", "member": "m", "section": "batch"}}}),
                     ("indexes", {"global_indexes": ["a"]}), ("group", {"storage_group_id": 5})):
    tell(f"handle of another {name}", lambda: objects.import_ref({**objects.export_ref(handle["ref"]), **change}))


def append():
    handle["more"] = transfer.append_dataproto_fields(handle["ref"], {"batch": {"score": np.arange(4.0)}, "non_tensor_batch": {"why": rows("w", None, "x", "y")}, "meta_info": {"more": 1}},
                                                      stage="reward")
    handle["same"] = transfer.append_dataproto_fields(handle["more"], {"again": np.ones(4)}, stage="reward")
    return [sorted(handle["same"].field_index), sorted(handle["same"].stage_refs)]


tell("append", append)
tell("get all", lambda: [(r := transfer.get(handle["same"], fields=["score", "why", "again", "ids"]))["batch"], r["non_tensor_batch"], r["meta_info"]])
tell("append what is there", lambda: transfer.append_dataproto_fields(handle["same"], {"again": np.ones(4)}, stage="reward"))
tell("append other rows", lambda: transfer.append_dataproto_fields(handle["same"], {"b": np.ones(3)}, stage="reward"))
tell("overwrite a part", lambda: transfer.append_dataproto_fields(handle["same"], {"again": np.zeros(4)}, stage="reward", overwrite=True))
tell("rows of several kinds", lambda: transfer.get(transfer.put({"non_tensor_batch": {"f": rows(1, "x", None, [b"y"])}}))["non_tensor_batch"]["f"])
tell("uneven batch", lambda: transfer.put({"a": np.ones(3), "b": np.ones(4)}))
tell("manifest view", lambda: [(v := transfer.dataproto_manifest_view(handle["same"]))["batch_size"], sorted(v["batch_fields"]), sorted(v["non_tensor_fields"]), sorted(v["stages"]), sorted(v)])
for codec, value in (("utf8_ragged", rows("a", None)), ("bytes_ragged", rows(b"a", b"")), ("msgpack_ragged", rows({"a": [1]}, None)), ("json_ragged", rows({"a": 1}, [2])),
                     ("no_codec", rows("a"))):
    schema = {"f": objects.FieldSchema(codec)}
    tell(f"schema {codec} {value[-1]!r}", lambda: transfer.get(transfer.put({"non_tensor_batch": {"f": value}}, field_schemas=schema))["non_tensor_batch"]["f"])
tell("schema not nullable", lambda: transfer.put({"non_tensor_batch": {"f": rows("a", None)}}, field_schemas={"f": objects.FieldSchema("utf8_ragged", nullable=False)}))
tell("schema section", lambda: transfer.put({"batch": {"f": ids}}, field_schemas={"f": objects.FieldSchema("auto", metadata={"section": "meta_info"})}))
flat = {"a": np.arange(3), "b": ["x", "y", None], "c": "about", "d": 5, "e": [1, 2]}
tell("flat", lambda: transfer.get(transfer.put(flat, type="dict"), type="dict"))
tell("flat lists", lambda: transfer.get(transfer.put({"b": ["x", "y"], "c": 5}, type="dict"), type="dict"))
tell("flat ambiguous", lambda: transfer.put({"a": np.arange(3), "b": np.arange(4)}, type="dict"))
tell("meta alone", lambda: transfer.get(transfer.put({"meta_info": {"a": 1}, "batch": None, "non_tensor_batch": None})))
tell("cleanup", lambda: [transfer.cleanup_dataproto(handle["same"]), [store.is_exist(one.manifest_key) for one in handle["same"].stage_refs.values()]])

# ---- the catalogue
catalog = DataProtoCatalog()
through = DataProtoCatalogTransfer(transfer, lambda method, *args, **kwargs: getattr(catalog, method)(*args, **kwargs))
part = lambda n, first=0: Like({"ids": np.arange(first, first + n)}, {"text": rows(*map(str, range(n)))}, {"step": 1})  # noqa: E731
tell("catalog put", lambda: {k: v for k, v in through.put(part(2), partition="p", keys=["a", "b"], tags=[{"t": 1}, {"t": 2}]).items() if k != "retired_handles"})
tell("catalog tags", lambda: through.put(None, partition="p", keys=["c"], tags=[{"t": 3}])["tags"])
tell("catalog list", lambda: [through.list(), through.list("p"), through.list("q")])
for name, call in (("nothing", lambda: through.put(None, partition="p", keys=["a"])), ("count", lambda: through.put(part(2), partition="p", keys=["a"])),
                   ("keys", lambda: through.put(part(2), partition="p", keys=["a", "a"])), ("partition", lambda: through.put(part(1), partition="", keys=["a"])),
                   ("unknown key", lambda: through.resolve("p", ["z"])), ("not ready", lambda: through.resolve("p", ["c"], ["ids"])), ("no fields", lambda: through.resolve("p", ["c"]))):
    tell(f"catalog refuses {name}", call)


def read(keys, fields=None):
    plan = through.resolve("p", keys, fields)
    found = [[group["fields"], [int(transfer.get(plan["handles"][f], fields=["ids"])["batch"]["ids"][row]) for f, row in group["locations"]]] for group in plan["field_groups"]]
    through.release_read(plan["read_token"])
    return [plan["keys"], plan["tags"], plan["fields"], plan["meta_info"], found, len(plan["handles"])]


tell("catalog read", lambda: read(["b", "a"]))
tell("catalog put over", lambda: through.put(part(1, 10), partition="p", keys=["a"])["fields"])
tell("catalog read both", lambda: read(["a", "b"], ["ids"]))


def replaced():
    plan = through.resolve("p", ["b"])
    [(old, handle)] = plan["handles"].items()
    through.put(part(1, 20), partition="p", keys=["b"])
    there = store.is_exist(old)
    through.release_read(plan["read_token"])
    return [there, store.is_exist(old)]


tell("catalog keeps what is read", replaced)


def appended():
    plan = through.resolve("p", ["a"])
    [(name, handle)] = plan["handles"].items()
    through.release_read(plan["read_token"])
    said = through.append(name, handle, Like({"more": np.ones(1)}, {}, {}), partition="p", keys=["a"], stage="s")
    return [said["fields"], read(["a"], ["ids", "more"])[2]]


tell("catalog append", appended)
tell("catalog drain while it is read", lambda: [through.resolve("p", ["a"])["read_token"] > 0, through.drain()])
tell("catalog remove", lambda: [through.remove("p", ["b", "c", "none"]), through.list()])
tell("catalog release", lambda: [catalog.release_read(10 ** 6)["retired_handles"], [catalog.release_read(token) and 0 for token in range(1, 40)]][0])
tell("catalog end", lambda: [through.drain(), through.close(), through.list()])
tell("catalog after the end", lambda: through.put(part(1), partition="p", keys=["a"]))
store.close()
sys.stdout.flush()
os._exit(0)
