"""The object store under the names, signatures and return codes that callers of Mooncake Store use.

What is not there answers NOT_SUPPORTED (-1012), or what a caller of that method takes for it; README.md of the folder
`storage/objects` lists it. Calls are thread-safe and release the GIL. After a fork the child's copy of a store answers
every call with -600: open another.
"""

import ctypes
import enum
import os

from . import _store

__all__ = ["MooncakeDistributedStore", "ReplicateConfig", "ObjectDataType", "SoftPinAction", "BufferHandle",
           "ReplicaDescriptor", "ReplicaStatus", "Descriptor", "MemoryDescriptor"]

OK = 0
INVALID_PARAMETERS = -600
REPLICA_NOT_FOUND = -704
TRANSFER_FAILED = -800
RPC_FAILED = -900
NOT_SUPPORTED = -1012


class ObjectDataType(enum.IntEnum):
    UNKNOWN, KVCACHE, TENSOR, WEIGHT, SAMPLE, ACTIVATION, GRADIENT, OPTIMIZER_STATE, METADATA, GENERAL = range(10)


class SoftPinAction(enum.IntEnum):
    PRESERVE, ENABLE, DISABLE = range(3)


class ReplicaStatus(enum.IntEnum):
    UNDEFINED, INITIALIZED, PROCESSING, COMPLETE, REMOVED, FAILED = range(6)


class ReplicateConfig:
    """How a put places and keeps its objects."""

    __slots__ = ("replica_num", "nof_replica_num", "dfs_replica_num", "soft_pin_action", "_soft_pin_ttl_ms",
                 "with_hard_pin", "preferred_segments", "preferred_nof_segments", "preferred_segment",
                 "prefer_alloc_in_same_node", "data_type", "group_ids")

    def __init__(self):
        self.replica_num = 1
        self.nof_replica_num = 0
        self.dfs_replica_num = 0
        self.soft_pin_action = SoftPinAction.PRESERVE
        self._soft_pin_ttl_ms = None
        self.with_hard_pin = False
        self.preferred_segments = []
        self.preferred_nof_segments = []
        self.preferred_segment = ""
        self.prefer_alloc_in_same_node = False
        self.data_type = ObjectDataType.UNKNOWN
        self.group_ids = None

    @property
    def soft_pin_ttl_ms(self):
        return self._soft_pin_ttl_ms

    @soft_pin_ttl_ms.setter
    def soft_pin_ttl_ms(self, value):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 64):
            raise TypeError("soft_pin_ttl_ms is an unsigned 64-bit number or None")
        self._soft_pin_ttl_ms = value

    @property
    def with_soft_pin(self):
        """As releases before SoftPinAction have it."""
        return self.soft_pin_action == SoftPinAction.ENABLE

    @with_soft_pin.setter
    def with_soft_pin(self, on):
        self.soft_pin_action = SoftPinAction.ENABLE if on else SoftPinAction.PRESERVE

    def __str__(self):
        return "ReplicateConfig: { " + ", ".join(f"{n.lstrip('_')}: {getattr(self, n)}" for n in self.__slots__) + " }"


class Descriptor:
    def __init__(self, size, address, endpoint):
        self.size, self.buffer_address, self.transport_endpoint = size, address, endpoint


class MemoryDescriptor:
    def __init__(self, buffer):
        self.buffer_descriptor = buffer


class ReplicaDescriptor:
    """One replica, which is in memory: there are no others yet. The address is an offset in its segment."""

    def __init__(self, size, offset, segment):
        self.status = ReplicaStatus.COMPLETE
        self._memory = MemoryDescriptor(Descriptor(size, offset, segment))

    def is_memory_replica(self):
        return True

    def is_disk_replica(self):
        return False

    def is_local_disk_replica(self):
        return False

    def get_memory_descriptor(self):
        return self._memory

    def get_disk_descriptor(self):
        raise RuntimeError("this replica is in memory")


class BufferHandle:
    """An object's bytes in memory of this process; the buffer protocol works through `memoryview(handle.buffer)`."""

    def __init__(self, data):
        self.buffer = data
        self._view = _store.address_of(data)

    def ptr(self):
        return self._view

    def size(self):
        return len(self.buffer)

    __len__ = size

    def __bytes__(self):
        return bytes(self.buffer)


_UNITS = {"": 1, "B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40,
          "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40}


def _size(value):
    if isinstance(value, int):
        return value
    text = str(value).strip().upper()
    digits = text.rstrip("ABCDEFGHIJKLMNOPQRSTUVWXYZ ")
    return int(float(digits) * _UNITS[text[len(digits):].strip()])


def _key(key):
    """Keys are text or bytes; text is UTF-8."""
    if isinstance(key, bytes):
        return key
    if isinstance(key, str):
        return key.encode("utf-8", "surrogateescape")
    raise TypeError(f"a key is str or bytes, not {type(key).__name__}")


def _keys(keys):
    if isinstance(keys, (str, bytes)):
        raise TypeError("keys is a list")
    return [_key(k) for k in keys]


def _policy(config):
    """What the extension takes, or None for a configuration that is refused."""
    if config is None:
        config = ReplicateConfig()
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
    return (config.replica_num, config.with_hard_pin, soft, config.soft_pin_ttl_ms or 0, preferred)


class MooncakeDistributedStore:
    """One client of the store. Made empty; `setup` connects it."""

    def __init__(self):
        self._client = None
        self._pid = 0
        self._name = ""
        self._staging = 0

    # ---- life

    def setup(self, local_hostname, metadata_server="P2PHANDSHAKE", global_segment_size=16 << 20,
              local_buffer_size=16 << 20, protocol="tcp", rdma_devices="", master_server_addr="127.0.0.1:7460",
              engine=None, enable_ssd_offload=False, ssd_offload_path="", tenant_id="default",
              enable_client_http_server=False, client_http_port=9300):
        """Connects to the directory at `master_server_addr`, and lends it `global_segment_size` bytes, if not zero.

        The secret is that of the file MOONCAF_CLUSTER_SECRET_FILE, by default the user's own. `metadata_server`,
        `protocol` and `rdma_devices` are taken and not needed: every store finds its ways by itself.
        """
        if isinstance(local_hostname, dict):
            given = dict(local_hostname)
            if "local_hostname" not in given or "metadata_server" not in given:
                return INVALID_PARAMETERS
            known = {"local_hostname", "metadata_server", "global_segment_size", "local_buffer_size", "protocol",
                     "rdma_devices", "master_server_addr", "tenant_id", "enable_client_http_server"}
            return self.setup(**{k: v for k, v in given.items() if k in known})
        if enable_ssd_offload or enable_client_http_server or tenant_id not in ("", "default"):
            return NOT_SUPPORTED
        if self._client is not None:
            return INVALID_PARAMETERS
        try:
            lend, staging = _size(global_segment_size), _size(local_buffer_size)
        except (ValueError, KeyError):
            return INVALID_PARAMETERS
        host, _, port = str(master_server_addr).rpartition(":")
        if not host or not port.isdigit() or not 0 < int(port) < 65536 or lend < 0 or staging < 0:
            return INVALID_PARAMETERS
        name = str(local_hostname)
        if ":" not in name:
            name = f"{name}:{_store.unique_number()}"
        client = _store.Client()
        code = client.open(host, int(port), os.environ.get("MOONCAF_CLUSTER_SECRET_FILE", ""), name, lend, staging)
        if code == OK:
            self._client, self._pid, self._name, self._staging = client, os.getpid(), name, staging
        return code

    def setup_dummy(self, mem_pool_size, local_buffer_size, server_address):
        """There is no daemon to go through: a client of the same host maps the memory itself."""
        return self.setup("dummy", "P2PHANDSHAKE", 0, local_buffer_size, "tcp", "", server_address)

    def init_all(self, protocol, device_name, mount_segment_size=16 << 20):
        return NOT_SUPPORTED

    def close(self):
        client, self._client = self._client, None
        if client is not None and self._pid == os.getpid():
            client.close()
        elif client is not None:
            client.abandon()
        return OK

    def __del__(self):
        try:
            self.close()
        except Exception:
            pass

    def health_check(self):
        client = self._usable()
        if client is None:
            return 1
        return 0 if client.reachable() else 2

    def get_hostname(self):
        return self._name if self._client is not None else ""

    def last_error(self):
        """In words, why the last `setup` was refused. Not in the reference."""
        return _store.last_error()

    def _usable(self):
        return self._client if self._client is not None and self._pid == os.getpid() else None

    # ---- put

    def put(self, key, value, config=None):
        return self.put_parts(key, value, config=config) if memoryview(value).nbytes else INVALID_PARAMETERS

    def put_parts(self, key, *parts, config=None):
        policy = self._put_policy(config)
        parts = [p for p in parts if memoryview(p).nbytes]
        return self._put([_key(key)], [parts], policy, staged=True)[0] if parts else (OK if policy else INVALID_PARAMETERS)

    def put_batch(self, keys, values, config=None):
        keys, values = _keys(keys), list(values)
        if len(keys) != len(values):
            return INVALID_PARAMETERS
        if not keys:
            return OK
        codes = self._put(keys, [[v] for v in values], self._put_policy(config), staged=True)
        return next((c for c in codes if c), OK)

    def put_from(self, key, buffer_ptr, size, config=None):
        if size == 0 and self._usable() is not None:
            return OK  # as the reference has it: nothing is stored
        return self._put([_key(key)], [[(buffer_ptr, size)]], _policy(config))[0]

    def put_from_with_metadata(self, key, buffer_ptr, metadata_buffer_ptr, size, metadata_size, config=None):
        return self._put([_key(key)], [[(metadata_buffer_ptr, metadata_size), (buffer_ptr, size)]], _policy(config))[0]

    def batch_put_from(self, keys, buffer_ptrs, sizes, config=None):
        keys = _keys(keys)
        if not len(keys) == len(buffer_ptrs) == len(sizes):
            return [INVALID_PARAMETERS] * len(keys)
        return self._put(keys, [[p] for p in zip(buffer_ptrs, sizes)], _policy(config))

    def batch_put_from_multi_buffers(self, keys, all_buffer_ptrs, all_sizes, config=None):
        keys = _keys(keys)
        parts = self._zip_parts(keys, all_buffer_ptrs, all_sizes)
        return self._put(keys, parts, _policy(config)) if parts is not None else [INVALID_PARAMETERS] * len(keys)

    def _put_policy(self, config):
        if config is not None and getattr(config, "prefer_alloc_in_same_node", False):
            return None
        return _policy(config)

    def _put(self, keys, parts, policy, staged=False):
        client = self._usable()
        if client is None or policy is None or (staged and self._staging == 0):
            return [INVALID_PARAMETERS] * len(keys)
        codes = client.put(keys, parts, *policy)
        return [OK if c == -705 else c if k else INVALID_PARAMETERS for c, k in zip(codes, keys)]

    @staticmethod
    def _zip_parts(keys, all_ptrs, all_sizes):
        if not len(keys) == len(all_ptrs) == len(all_sizes) or any(len(p) != len(s) for p, s in zip(all_ptrs, all_sizes)):
            return None
        return [list(zip(p, s)) for p, s in zip(all_ptrs, all_sizes)]

    # ---- get

    def get(self, key):
        return self.get_batch([key])[0]

    def get_batch(self, keys):
        client, keys = self._usable(), _keys(keys)
        if client is None or self._staging == 0:
            return [b""] * len(keys)
        if not keys:
            return [b""]  # as the reference has it
        return [b"" if data is None else data for data in client.get(keys)]

    def get_buffer(self, key):
        return self.batch_get_buffer([key])[0]

    def batch_get_buffer(self, keys):
        client, keys = self._usable(), _keys(keys)
        if client is None or self._staging == 0:
            return [None] * len(keys)
        return [None if data is None else BufferHandle(data) for data in client.get(keys)]

    def get_into(self, key, buffer_ptr, size):
        return self._get_into([_key(key)], [[(buffer_ptr, size)]])[0]

    def batch_get_into(self, keys, buffer_ptrs, sizes):
        keys = _keys(keys)
        if not len(keys) == len(buffer_ptrs) == len(sizes):
            return [INVALID_PARAMETERS] * len(keys)
        return self._get_into(keys, [[p] for p in zip(buffer_ptrs, sizes)])

    def batch_get_into_multi_buffers(self, keys, all_buffer_ptrs, all_sizes, prefer_alloc_in_same_node=False):
        keys = _keys(keys)
        parts = self._zip_parts(keys, all_buffer_ptrs, all_sizes)
        return self._get_into(keys, parts) if parts is not None else [INVALID_PARAMETERS] * len(keys)

    def get_into_ranges(self, buffer_ptrs, all_keys, all_dst_offsets, all_src_offsets, all_sizes):
        """Parts of objects into parts of buffers: of each buffer for each key a list of ranges. The objects are read as a
        whole, because their checksum is of the whole.

        Returns for each buffer, key and range the bytes that were copied, or a code.
        """
        nested = (all_keys, all_dst_offsets, all_src_offsets, all_sizes)
        if any(len(n) != len(buffer_ptrs) for n in nested):
            return [[[INVALID_PARAMETERS] for _ in keys] for keys in all_keys]
        return [self._ranges_of(*one) for one in zip(buffer_ptrs, *nested)]

    def _ranges_of(self, buffer_ptr, keys, all_dst, all_src, all_sizes):
        if not len(keys) == len(all_dst) == len(all_src) == len(all_sizes):
            return [[INVALID_PARAMETERS] for _ in keys]
        client, answers = self._usable(), []
        values = client.get(_keys(keys)) if client is not None else [None] * len(keys)
        for value, to, at, sizes in zip(values, all_dst, all_src, all_sizes):
            if not len(to) == len(at) == len(sizes) or client is None or not buffer_ptr:
                answers.append([INVALID_PARAMETERS] * len(sizes))
                continue
            answers.append([self._copy_range(value, buffer_ptr, *r) for r in zip(to, at, sizes)])
        return answers

    @staticmethod
    def _copy_range(value, buffer_ptr, to, at, size):
        if value is None:
            return REPLICA_NOT_FOUND
        if min(to, at, size) < 0 or at + size > len(value):
            return INVALID_PARAMETERS
        ctypes.memmove(buffer_ptr + to, _store.address_of(value) + at, size)
        return size

    def _get_into(self, keys, parts):
        client = self._usable()
        return client.get_into(keys, parts) if client is not None else [INVALID_PARAMETERS] * len(keys)

    # ---- about objects

    def is_exist(self, key):
        return self.batch_is_exist([key])[0]

    def batch_is_exist(self, keys):
        client, keys = self._usable(), _keys(keys)
        return client.exists(keys) if client is not None else [INVALID_PARAMETERS] * len(keys)

    def get_size(self, key):
        client = self._usable()
        return client.sizes([_key(key)])[0] if client is not None else INVALID_PARAMETERS

    def get_replica_desc(self, key):
        return self.batch_get_replica_desc([key]).get(key, [])

    def batch_get_replica_desc(self, keys):
        client, asked = self._usable(), list(keys)
        if client is None:
            return {}
        found = client.replicas(_keys(asked))
        return {key: [ReplicaDescriptor(*r) for r in replicas] for key, replicas in zip(asked, found) if replicas}

    def remove(self, key, force=False):
        return self.batch_remove([key], force)[0]

    def batch_remove(self, keys, force=False):
        client, keys = self._usable(), _keys(keys)
        return client.remove(keys, bool(force)) if client is not None else [INVALID_PARAMETERS] * len(keys)

    def remove_by_regex(self, regex_pattern, force=False):
        client, pattern = self._usable(), _key(regex_pattern)
        return client.remove_all(pattern, bool(force)) if client is not None and pattern else INVALID_PARAMETERS

    def remove_all(self, force=False):
        client = self._usable()
        return client.remove_all(b"", bool(force)) if client is not None else INVALID_PARAMETERS

    # ---- memory: nothing to register, since every address of this process is as good

    def register_buffer(self, buffer_ptr, size):
        return OK if self._usable() is not None and buffer_ptr and size > 0 else INVALID_PARAMETERS

    def unregister_buffer(self, buffer_ptr):
        return OK if self._usable() is not None and buffer_ptr else INVALID_PARAMETERS

    def alloc_from_mem_pool(self, size):
        return 0

    def get_offload_rpc_read_count(self):
        return 0


def _refuse(answer):
    def method(self, *args, **kwargs):
        return answer(*args)

    return method


def _per_key(keys, *_):
    return [NOT_SUPPORTED] * len(keys)


def _one(*_):
    return NOT_SUPPORTED


for _name in ("upsert", "upsert_parts", "upsert_from", "upsert_batch", "unmount_segment", "unmount_and_free_segment",
              "unmount_local_disk_segment", "batch_get_session_end"):
    setattr(MooncakeDistributedStore, _name, _refuse(_one))
for _name in ("batch_upsert_from", "batch_get_session_start", "batch_get_into_multi_buffer_ranges",
              "batch_put_session_start", "batch_put_from_multi_buffer_ranges", "batch_put_session_end",
              "batch_put_session_revoke"):
    setattr(MooncakeDistributedStore, _name, _refuse(_per_key))
for _name in ("mount_segment", "allocate_and_mount_segment"):
    setattr(MooncakeDistributedStore, _name, _refuse(lambda *_: {"ret": NOT_SUPPORTED, "segment_ids": []}))
for _name in ("create_copy_task", "create_move_task", "query_task"):
    setattr(MooncakeDistributedStore, _name, _refuse(lambda *_: (None, NOT_SUPPORTED)))
MooncakeDistributedStore.batch_replica_clear = _refuse(lambda *_: [])
