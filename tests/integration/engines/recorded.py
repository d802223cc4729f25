"""What our connectors use of SGLang, LMCache, vLLM and torch, for where those are not installed: classes with the engines' names and signatures.

`install(engine)` puts them where the connector imports them from. tests/data/store/interfaces.json has the signatures as the real versions have
them; `differences(engine)` compares what is imported, real or not, with that record.
"""
import abc
import ctypes
import dataclasses
import enum
import importlib
import inspect
import json
import pathlib
import re
import struct
import sys
import types

RECORD = pathlib.Path(__file__).resolve().parents[2] / "data/store/interfaces.json"

# Of each engine the classes that are derived from or called, and their methods.
USED = {
    "sglang": {"sglang.srt.mem_cache.hicache_storage": {
        "HiCacheStorage": ["register_mem_pool_host", "register_mem_host_pool_v2", "batch_exists_v2", "batch_get_v2", "batch_set_v2", "batch_get_v1",
                           "batch_set_v1", "get", "batch_get", "set", "batch_set", "exists", "batch_exists", "clear"],
        "PoolTransferResult": ["__init__"], "PoolTransfer": ["__init__"]}},
    "lmcache": {
        "lmcache.v1.storage_backend.connector.base_connector": {"RemoteConnector": [
            "__init__", "exists", "exists_sync", "get", "put", "list", "close", "support_batched_get", "batched_get", "support_batched_put",
            "batched_put", "batched_async_contains", "batched_get_non_blocking", "remove_sync", "batched_contains", "support_batched_contains"]},
        "lmcache.v1.storage_backend.connector": {"ConnectorAdapter": ["__init__", "can_parse", "create_connector"]},
        "lmcache.v1.protocol": {"RemoteMetadata": ["__init__", "serialize", "deserialize"]}},
    "vllm": {"vllm.distributed.kv_transfer.kv_connector.v1.base": {"KVConnectorBase_V1": [
        "__init__", "register_kv_caches", "start_load_kv", "wait_for_layer_load", "save_kv_layer", "wait_for_save", "get_block_ids_with_load_errors",
        "get_num_new_matched_tokens", "update_state_after_alloc", "build_connector_meta", "request_finished", "bind_connector_metadata",
        "clear_connector_metadata", "_get_connector_metadata", "shutdown"]}},
}


def parameters(function):
    """Names, kinds and which have defaults: types are not what a caller has to know."""
    return " ".join(("*" if p.kind == p.VAR_POSITIONAL else "**" if p.kind == p.VAR_KEYWORD else "") + p.name + ("=" if p.default is not p.empty else "")
                    for p in inspect.signature(function).parameters.values())


def signatures(engine):
    found = {}
    for module, classes in USED[engine].items():
        for name, methods in classes.items():
            kind = getattr(importlib.import_module(module), name)
            found[name] = {m: parameters(getattr(kind, m)) for m in methods if hasattr(kind, m)}
            found[name]["abstract"] = " ".join(sorted(getattr(kind, "__abstractmethods__", ())))
    return found


def differences(engine):
    recorded = json.loads(RECORD.read_text())[engine]["classes"]
    found = signatures(engine)
    return [f"{engine}: {name}.{method}: ({found[name].get(method)}), recorded ({told})" for name, methods in recorded.items()
            for method, told in methods.items() if found[name].get(method) != told]


def derived(name, methods, **more):
    """A class with these methods, which do nothing, as an abstract base where they are recorded as abstract."""
    def nothing(told):
        space = {}
        exec(f"def method({', '.join(re.sub('=$', '=None', p) for p in told.split())}): pass", space)  # names out of our own record
        return space["method"]

    body = {m: nothing(told) for m, told in methods.items() if m != "abstract"}
    for method in methods["abstract"].split():
        body[method] = abc.abstractmethod(body.get(method, lambda self: None))
    return abc.ABCMeta(name, (), {**body, **more})


def module(name, **content):
    made = sys.modules.setdefault(name, types.ModuleType(name))
    made.__path__ = []
    vars(made).update(content)
    parent, _, last = name.rpartition(".")
    if parent:
        setattr(module(parent), last, made)
    return made


def install(engine):
    record = json.loads(RECORD.read_text())[engine]["classes"]
    globals()["install_" + engine](record)


# ---- SGLang

def install_sglang(record):
    class PoolName(str, enum.Enum):
        KV, MAMBA, SWA = "kv", "mamba", "swa"
        __str__ = str.__str__

    class PoolHitPolicy(str, enum.Enum):
        ALL_PAGES, TRAILING_PAGES, BLOCK_GROUPS = "all_pages", "trailing_pages", "block_groups"

    def fields(name):
        return dataclasses.make_dataclass(name, [(p.rstrip("="), object, dataclasses.field(default=None)) if p.endswith("=") else (p, object)
                                                 for p in record[name]["__init__"].split()[1:]])

    module("sglang.srt.mem_cache.hicache_storage", PoolName=PoolName, PoolHitPolicy=PoolHitPolicy,
           HiCacheStorage=derived("HiCacheStorage", record["HiCacheStorage"]), PoolTransferResult=fields("PoolTransferResult"),
           PoolTransfer=fields("PoolTransfer"), HiCacheStorageConfig=types.SimpleNamespace)


# ---- LMCache

class Chunk:
    """Memory of a chunk as LMCache hands it around."""

    alive = 0

    def __init__(self, shapes, dtypes, fmt):
        self.shapes, self.dtypes, self.fmt = shapes, dtypes, fmt
        self.memory = ctypes.create_string_buffer(sum(size_of(s, d) for s, d in zip(shapes, dtypes)))
        Chunk.alive += 1

    get_shapes, get_dtypes, get_memory_format = (lambda self: self.shapes), (lambda self: self.dtypes), (lambda self: self.fmt)
    byte_array = property(lambda self: memoryview(self.memory).cast("B"))
    data_ptr = property(lambda self: ctypes.addressof(self.memory))

    def ref_count_down(self):
        Chunk.alive -= 1


def size_of(shape, dtype):
    n = dtype
    for extent in shape:
        n *= extent
    return n


def install_lmcache(record):
    @dataclasses.dataclass
    class RemoteMetadata:
        length: int
        shapes: list
        dtypes: list
        fmt: int

        def serialize(self):
            return struct.pack("7i", self.length, self.fmt, self.dtypes[0], *self.shapes[0])

        @staticmethod
        def deserialize(s):
            length, fmt, dtype, *shape = struct.unpack_from("7i", s)
            return RemoteMetadata(length, [tuple(shape)], [dtype], fmt)

    def init(self, config, metadata):
        self.meta_shapes, self.meta_dtypes, self.meta_fmt = [metadata.kv_shape], [metadata.kv_dtype], 1
        self.full_chunk_size_bytes, self.remote_metadata_bytes = size_of(metadata.kv_shape, metadata.kv_dtype), 28

    def schema(self, schema=""):
        self.schema = schema

    module("lmcache.v1.protocol", RemoteMetadata=RemoteMetadata)
    connector = module("lmcache.v1.storage_backend.connector",
                       ConnectorAdapter=derived("ConnectorAdapter", record["ConnectorAdapter"], __init__=schema))
    base = derived("RemoteConnector", record["RemoteConnector"], __init__=init)
    connector.base_connector = module(connector.__name__ + ".base_connector", RemoteConnector=base)


# ---- vLLM, and as much of torch as moves blocks

class Tensor:
    """Blocks along the first dimension, one after the other."""

    def __init__(self, shape, item, memory=None, offset=0):
        self.shape, self.item, self.offset = tuple(shape), item, offset
        self.memory = memory if memory is not None else ctypes.create_string_buffer(size_of(shape, item))

    device, dtype = "cpu", property(lambda self: self.item)
    numel, element_size = (lambda self: size_of(self.shape, 1)), (lambda self: self.item)
    data_ptr = lambda self: ctypes.addressof(self.memory) + self.offset  # noqa: E731
    contiguous = cpu = lambda self: self  # noqa: E731

    def movedim(self, source, to):
        assert source == to == 0, "here blocks come first"
        return self

    def bytes(self):
        return ctypes.string_at(self.data_ptr(), size_of(self.shape, self.item))

    def fill(self, data):
        assert len(data) == size_of(self.shape, self.item)
        ctypes.memmove(self.data_ptr(), data, len(data))

    def __getitem__(self, which):
        if isinstance(which, int):
            return Tensor(self.shape[1:], self.item, self.memory, self.offset + which * size_of(self.shape[1:], self.item))
        chosen = Tensor((len(which), *self.shape[1:]), self.item)
        for i, w in enumerate(which):
            chosen[i].fill(self[w].bytes())
        return chosen

    def index_select(self, dim, ids):
        return self[ids]

    def index_copy_(self, dim, ids, values):
        for i, to in enumerate(ids):
            self[to].fill(values[i].bytes())

    def view(self, *to):
        if len(to) == 2 and to[1] == -1:
            to = (to[0], size_of(self.shape, 1) // to[0])
        if len(to) == 1:  # a type
            return Tensor((*self.shape[:-1], self.shape[-1] * self.item // to[0]), to[0], self.memory, self.offset)
        return Tensor(to, self.item, self.memory, self.offset)

    def to(self, device):
        return self


class Ids(list):
    pass


def install_vllm(record):
    module("torch", uint8=1, bfloat16=2, Tensor=Tensor, empty=lambda *shape, dtype: Tensor(shape, dtype), tensor=lambda ids, device=None: Ids(ids))

    class KVConnectorMetadata:
        pass

    class KVConnectorRole(enum.Enum):
        SCHEDULER, WORKER = 0, 1

    def init(self, vllm_config, role, kv_cache_config):
        self._kv_transfer_config, self._kv_cache_config, self._metadata = vllm_config.kv_transfer_config, kv_cache_config, None

    def bind(self, connector_metadata):
        self._metadata = connector_metadata

    base = derived("KVConnectorBase_V1", record["KVConnectorBase_V1"], __init__=init, bind_connector_metadata=bind,
                   clear_connector_metadata=lambda self: bind(self, None), _get_connector_metadata=lambda self: self._metadata)
    module("vllm.distributed.kv_transfer.kv_connector.v1.base", KVConnectorBase_V1=base, KVConnectorMetadata=KVConnectorMetadata,
           KVConnectorRole=KVConnectorRole)
    sys.modules["vllm.distributed.kv_transfer.kv_connector.v1"].base = sys.modules["vllm.distributed.kv_transfer.kv_connector.v1.base"]


if __name__ == "__main__":  # recorded.py VERSION-OF-EACH: with the engines installed, says what they have
    import importlib.metadata

    print(json.dumps({e: {"version": importlib.metadata.version(e), "classes": signatures(e)} for e in USED}, indent=1))
