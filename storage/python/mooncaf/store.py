"""The object store under the names, signatures and return codes that callers of Mooncake Store use.

What is not there answers NOT_SUPPORTED (-1012), or what a caller of that method takes for it; README.md of the folder
`storage/objects` lists it. Calls are thread-safe and release the GIL. After a fork the child's copy of a store answers
every call with -600: open another.
"""

import ctypes
import os
import threading
import weakref

from . import _store, absent, buffer_pool, memory, types
from .arguments import claimed_port as _claimed_port
from .arguments import directories as _directories
from .arguments import how as _policy
from .arguments import key as _key
from .arguments import keys as _keys
from .arguments import listen_host as _listen_host
from .arguments import size as _size
from .buffer_pool import *  # noqa: F403
from .client_http import ClientHttp, CountedClient
from .memory import *  # noqa: F403
from .memory import MooncakeHostMemAllocator
from .offload import open_ssd
from .segments import SegmentCalls
from .tensor_batches import TensorBatches
from .tensors import ParallelAxis, ReadTarget, TensorParallelism, _deserialize_tensor, _serialize_tensor, _tensor_metadata_size  # noqa: F401
from .types import *  # noqa: F403
from .types import BufferHandle, ObjectDataType, ReplicaStatus, TaskStatus, TaskType

__all__ = ["MooncakeDistributedStore", "ParallelAxis", "TensorParallelism", "ReadTarget", *memory.__all__, *types.__all__, *buffer_pool.__all__, *absent.OF_THE_STORE]
globals().update(absent.OF_THE_STORE)
for _enum in (ObjectDataType, ReplicaStatus, TaskType, TaskStatus):  # callers find the values in the module, too
    globals().update(_enum.__members__)
    __all__ += list(_enum.__members__)

OK = 0
INVALID_PARAMETERS = -600
NOT_SUPPORTED = -1012
TENANT_NOT_REGISTERED = -1701


def _end(client, pid):
    if pid == os.getpid():
        client.close()


class MooncakeDistributedStore(SegmentCalls, TensorBatches):
    """One client of the store. Made empty; `setup` connects it."""

    def __init__(self):
        self._client = None
        self._pid = 0
        self._name = ""
        self._staging = 0
        self._why = ""
        self._port = None  # a socket that keeps it from other stores of this host
        self._pool, self._pool_left = None, 0  # after setup_dummy
        self._http = None
        self._opening = threading.Lock()

    # ---- life

    def setup(self, local_hostname, metadata_server="P2PHANDSHAKE", global_segment_size=16 << 20,
              local_buffer_size=16 << 20, protocol="tcp", rdma_devices="", master_server_addr="127.0.0.1:7460",
              engine=None, enable_ssd_offload=False, ssd_offload_path="", tenant_id="default",
              enable_client_http_server=False, client_http_port=9300, token_file="", ssd_offload_size="64GiB"):
        """Connects to the directory at `master_server_addr`, and lends it `global_segment_size` bytes, if not zero. Of several addresses with
        commas, those of a cluster's conductors, the directory answers at one; calls wait up to eight seconds for another to take over.

        With `enable_ssd_offload` it lends `ssd_offload_size` bytes in the folder `ssd_offload_path` beside them, where objects
        are written when they are put; what is there already is announced. One process at a time can have that folder.

        The secret is that of the file MOONCAF_CLUSTER_SECRET_FILE, by default the user's own; a tenant has a token
        instead, in `token_file` or MOONCAF_STORE_TOKEN_FILE, and lends nothing. With `enable_client_http_server` it answers
        /health, /metrics and /metrics/summary at `client_http_port` of the host that `local_hostname` is, if that is an address.
        MOONCAF_STORE_LOCATION, such as row2/rack7, says where this host stands: what is near is read and written first.
        `metadata_server`, `protocol` and `rdma_devices` are taken and not needed: every store finds its ways by itself.
        """
        if isinstance(local_hostname, dict):
            also = {"master_server_address": "master_server_addr", "device_name": "rdma_devices"}  # as engines write them
            given = {also.get(k, k): v for k, v in local_hostname.items()}
            if "local_hostname" not in given or "metadata_server" not in given:
                return INVALID_PARAMETERS
            known = {"local_hostname", "metadata_server", "global_segment_size", "local_buffer_size", "protocol",
                     "rdma_devices", "master_server_addr", "enable_ssd_offload", "ssd_offload_path", "tenant_id",
                     "enable_client_http_server", "client_http_port", "token_file", "ssd_offload_size"}
            return self.setup(**{k: v for k, v in given.items() if k in known})
        tenant = "" if tenant_id in (None, "default") else str(tenant_id)
        token_file = token_file or os.environ.get("MOONCAF_STORE_TOKEN_FILE", "")
        if tenant and not token_file:
            return TENANT_NOT_REGISTERED
        if self._client is not None:
            return INVALID_PARAMETERS
        try:
            lend, staging, room = _size(global_segment_size), _size(local_buffer_size), _size(ssd_offload_size)
        except (ValueError, KeyError):
            return INVALID_PARAMETERS
        directories = _directories(str(master_server_addr))
        if directories is None or lend < 0 or staging < 0:
            return INVALID_PARAMETERS
        name, claim = str(local_hostname), None
        if ":" not in name:
            claim, own_port = _claimed_port()
            name = f"{name}:{own_port}"
        ssd, self._why = None, ""
        if enable_ssd_offload:
            ssd_offload_path = ssd_offload_path or os.environ.get("MOONCAKE_OFFLOAD_FILE_STORAGE_PATH", "")
            code, ssd, self._why = open_ssd(ssd_offload_path, room, lend, token_file)
            if code != OK:
                return code
        if not self._opening.acquire(blocking=False):  # another thread, or one of the process that forked this one
            return INVALID_PARAMETERS
        try:
            if self._client is not None:
                return INVALID_PARAMETERS
            client = _store.Client()
            code = client.open(directories, os.environ.get("MOONCAF_CLUSTER_SECRET_FILE", ""), token_file, tenant, name,
                               _listen_host(name), lend, staging, ssd, os.environ.get("MOONCAF_STORE_LOCATION", ""))
            self._why = client.last_error() if code != OK else ""
            if code == OK and enable_client_http_server:
                client = CountedClient(client)
                try:
                    self._http = ClientHttp(client, _listen_host(name), int(client_http_port))
                except (OSError, OverflowError) as e:
                    client.close()
                    self._why = f"client_http_port {client_http_port}: {e}"
                    return INVALID_PARAMETERS
            if code == OK:
                self._client, self._pid, self._name, self._staging, self._port = client, os.getpid(), name, staging, claim
                if ssd is not None:  # before the database's own end of the process
                    weakref.finalize(self, _end, client, self._pid)
            return code
        finally:
            self._opening.release()

    def setup_dummy(self, mem_pool_size, local_buffer_size, server_address):
        """There is no daemon to go through: a client of the same host maps the memory itself. `mem_pool_size` bounds the
        memory that `alloc_from_mem_pool` gives."""
        pool = _size(mem_pool_size)
        code = self.setup("dummy", "P2PHANDSHAKE", 0, local_buffer_size, "tcp", "", server_address)
        if code == OK:
            self._pool, self._pool_left = MooncakeHostMemAllocator(), pool
        return code

    def init_all(self, protocol, device_name, mount_segment_size):
        """Everything on this host; the environment has the directory's address."""
        return self.setup("127.0.0.1", "P2PHANDSHAKE", mount_segment_size, 16 << 20, protocol, device_name,
                          os.environ.get("MOONCAKE_MASTER", "127.0.0.1:7460"))

    def close(self):
        client, self._client, self._pool = self._client, None, None
        http, self._http = self._http, None
        claim, self._port = self._port, None
        if claim is not None:
            claim.close()
        if http is not None and self._pid == os.getpid():
            http.close()
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
        """In words, why the last `setup` of this store, or loan of more memory, was refused. Not in the reference."""
        client = self._client
        return self._why or (client.last_error() if client is not None else "")

    def _usable(self):
        return self._client if self._client is not None and self._pid == os.getpid() else None

    # ---- put, and upsert, which replaces

    def put(self, key, value, config=None):
        if config is not None or type(value) is not bytes or not value:
            return self._one(key, [value], config)
        client = self._usable()  # the most frequent form, without the detours
        if client is None or self._staging == 0:
            return INVALID_PARAMETERS
        code = client.put_bytes(key, value)
        return OK if code == -705 else code

    def upsert(self, key, value, config=None):
        return self._one(key, [value], config, replace=True)

    def _one(self, key, parts, config, replace=False):
        some = any([memoryview(p).nbytes for p in parts])
        return self._in_parts(key, parts, config, replace) if some else INVALID_PARAMETERS

    def put_parts(self, key, *parts, config=None):
        return self._in_parts(key, parts, config)

    def upsert_parts(self, key, *parts, config=None):
        return self._in_parts(key, parts, config, replace=True)

    def _in_parts(self, key, parts, config, replace=False):
        policy = self._put_policy(config)
        parts = [p for p in parts if memoryview(p).nbytes]
        if not parts:
            return OK if policy else INVALID_PARAMETERS
        return self._put([_key(key)], [parts], policy, staged=True, replace=replace)[0]

    def put_batch(self, keys, values, config=None):
        return self._batch(keys, values, config)

    def upsert_batch(self, keys, values, config=None):
        return self._batch(keys, values, config, replace=True)

    def _batch(self, keys, values, config, replace=False):
        keys, values = _keys(keys), list(values)
        if len(keys) != len(values):
            return INVALID_PARAMETERS
        if not keys:
            return OK
        codes = self._put(keys, [[v] for v in values], self._put_policy(config), staged=True, replace=replace)
        return next((c for c in codes if c), OK)

    def put_from(self, key, buffer_ptr, size, config=None):
        return self._from(key, buffer_ptr, size, config)

    def upsert_from(self, key, buffer_ptr, size, config=None):
        return self._from(key, buffer_ptr, size, config, replace=True)

    def _from(self, key, buffer_ptr, size, config, replace=False):
        if size == 0 and self._usable() is not None:
            return OK  # as the reference has it: nothing is stored
        client = self._usable()
        if config is None and not replace and client is not None:
            code = client.put_from(key, buffer_ptr, size)
            return OK if code == -705 else code
        return self._put([_key(key)], [[(buffer_ptr, size)]], _policy(config), replace=replace)[0]

    def put_from_with_metadata(self, key, buffer_ptr, metadata_buffer_ptr, size, metadata_size, config=None):
        return self._put([_key(key)], [[(metadata_buffer_ptr, metadata_size), (buffer_ptr, size)]],
                         _policy(config))[0]

    def batch_put_from(self, keys, buffer_ptrs, sizes, config=None):
        return self._batch_from(keys, buffer_ptrs, sizes, config)

    def batch_upsert_from(self, keys, buffer_ptrs, sizes, config=None):
        return self._batch_from(keys, buffer_ptrs, sizes, config, replace=True)

    def _batch_from(self, keys, buffer_ptrs, sizes, config, replace=False):
        client = self._usable()
        if config is None and not replace and client is not None and len(keys) == len(buffer_ptrs) == len(sizes):
            return [OK if c == -705 else c for c in client.put_runs(keys, buffer_ptrs, sizes)]
        keys = _keys(keys)
        if not len(keys) == len(buffer_ptrs) == len(sizes):
            return [INVALID_PARAMETERS] * len(keys)
        return self._put(keys, [[p] for p in zip(buffer_ptrs, sizes)], _policy(config), replace=replace)

    def batch_put_from_multi_buffers(self, keys, all_buffer_ptrs, all_sizes, config=None):
        keys = _keys(keys)
        parts = self._zip_parts(keys, all_buffer_ptrs, all_sizes)
        return self._put(keys, parts, _policy(config)) if parts is not None else [INVALID_PARAMETERS] * len(keys)

    def _put_policy(self, config):
        if config is not None and getattr(config, "prefer_alloc_in_same_node", False):
            return None
        return _policy(config)

    def _put_gathered(self, keys, parts, config, replace):
        return self._put(_keys(keys), parts, _policy(config), replace=replace)

    def _put(self, keys, parts, policy, staged=False, replace=False):
        client = self._usable()
        if client is None or policy is None or (staged and self._staging == 0):
            return [INVALID_PARAMETERS] * len(keys)
        codes = client.put(keys, parts, policy, replace)
        # An upsert finds another one of the same key under way: that is an answer, not success.
        return [OK if c == -705 and not replace else c if k else INVALID_PARAMETERS for c, k in zip(codes, keys)]

    # ---- put sessions: room first, then a model's layers as they come, then all is visible at once

    def batch_put_session_start(self, keys, sizes, config=None):
        """Reserves room for each. Ends with `batch_put_session_end` or `_revoke`, or with the store."""
        client, keys, policy = self._usable(), _keys(keys), _policy(config)
        if client is None or policy is None or len(sizes) != len(keys):
            return [INVALID_PARAMETERS] * len(keys)
        return [c if k else INVALID_PARAMETERS for c, k in zip(client.begin_puts(keys, list(sizes), policy), keys)]

    def batch_put_from_multi_buffer_ranges(self, keys, all_buffer_ptrs, all_sizes, all_dst_offsets):
        """Writes parts of the session's objects. Returns the bytes that were written for each key, or a code."""
        keys = _keys(keys)
        parts = self._zip_parts(keys, all_buffer_ptrs, all_sizes)
        client = self._usable()
        if client is None or parts is None or len(all_dst_offsets) != len(keys):
            return [INVALID_PARAMETERS] * len(keys)
        return client.put_parts(keys, parts, [list(o) for o in all_dst_offsets])

    def batch_put_session_end(self, keys):
        """Publishes each, if every byte of it was written; else -600, and its room is free again."""
        return self._end_puts(keys, True)

    def batch_put_session_revoke(self, keys):
        return self._end_puts(keys, False)

    def _end_puts(self, keys, publish):
        client, keys = self._usable(), _keys(keys)
        return client.end_puts(keys, publish) if client is not None else [INVALID_PARAMETERS] * len(keys)

    @staticmethod
    def _zip_parts(keys, all_ptrs, all_sizes):
        if not len(keys) == len(all_ptrs) == len(all_sizes) or any(len(p) != len(s) for p, s in zip(all_ptrs, all_sizes)):
            return None
        return [list(zip(p, s)) for p, s in zip(all_ptrs, all_sizes)]

    # ---- get

    def get(self, key):
        client = self._usable()
        data = client.get_one(key) if client is not None and self._staging else None
        return b"" if data is None else data

    def get_batch(self, keys):
        client = self._usable()
        if client is None or self._staging == 0:
            return [b""] * len(_keys(keys))
        if not keys:
            return [b""]  # as the reference has it
        return [b"" if data is None else data for data in client.get(keys)]

    def get_buffer(self, key):
        client = self._usable()
        data = client.get_one(key) if client is not None and self._staging else None
        return None if data is None else BufferHandle(data)

    def batch_get_buffer(self, keys):
        client = self._usable()
        if client is None or self._staging == 0:
            return [None] * len(_keys(keys))
        return [None if data is None else BufferHandle(data) for data in client.get(keys)]

    def get_into(self, key, buffer_ptr, size):
        client = self._usable()
        return client.get_into_one(key, buffer_ptr, size) if client is not None else INVALID_PARAMETERS

    def batch_get_into(self, keys, buffer_ptrs, sizes):
        client = self._usable()
        if client is None or not len(keys) == len(buffer_ptrs) == len(sizes):
            return [INVALID_PARAMETERS] * len(_keys(keys))
        return client.get_runs(keys, buffer_ptrs, sizes)

    def batch_get_into_multi_buffers(self, keys, all_buffer_ptrs, all_sizes, prefer_alloc_in_same_node=False):
        keys = _keys(keys)
        parts = self._zip_parts(keys, all_buffer_ptrs, all_sizes)
        return self._get_into(keys, parts) if parts is not None else [INVALID_PARAMETERS] * len(keys)

    def get_into_ranges(self, buffer_ptrs, all_keys, all_dst_offsets, all_src_offsets, all_sizes):
        """Parts of objects into parts of buffers: of each buffer for each key a list of ranges.

        Returns for each buffer, key and range the bytes that were copied, or a code. Only they are moved.
        """
        nested = (all_keys, all_dst_offsets, all_src_offsets, all_sizes)
        if any(len(n) != len(buffer_ptrs) for n in nested):
            keys_of = [*all_keys, *[[None]] * len(buffer_ptrs)]
            dst_of = [*all_dst_offsets, *[[]] * len(buffer_ptrs)]
            return [self._refused(keys, dst) for keys, dst, _ in zip(keys_of, dst_of, buffer_ptrs)]
        return [self._ranges_of(*one) for one in zip(buffer_ptrs, *nested)]

    @staticmethod
    def _refused(keys, all_dst):
        """As many errors as there are ranges, and one where that is not said."""
        return [[INVALID_PARAMETERS] * len(all_dst[i]) if i < len(all_dst) else [INVALID_PARAMETERS] for i in range(len(keys))]

    def _ranges_of(self, buffer_ptr, keys, all_dst, all_src, all_sizes):
        client = self._usable()
        if not len(keys) == len(all_dst) == len(all_src) == len(all_sizes):
            return self._refused(keys, all_dst)
        even = [len(to) == len(at) == len(sizes) and buffer_ptr and min((*to, *at), default=0) >= 0
                for to, at, sizes in zip(all_dst, all_src, all_sizes)]
        if client is None or not any(even):
            return self._refused(keys, all_dst)
        which = [i for i, good in enumerate(even) if good]
        codes = client.get_parts(_keys([keys[i] for i in which]),
                                 [[(buffer_ptr + to, n) for to, n in zip(all_dst[i], all_sizes[i])] for i in which],
                                 [list(all_src[i]) for i in which], False, True)
        found, refused = dict(zip(which, codes)), self._refused(keys, all_dst)
        return [found.get(i, refused[i]) for i in range(len(keys))]

    def _read_parts(self, keys, parts, offsets):
        client = self._usable()
        return client.get_parts(_keys(keys), parts, offsets, False, False) if client is not None else [[INVALID_PARAMETERS]] * len(keys)

    def _own(self, key, address, size):
        """`get_into` memory that a call has made for itself, which no caller can have registered."""
        client = self._usable()
        return client.get_into_own(key, address, size) if client is not None else INVALID_PARAMETERS

    def _permits(self, address, size):
        """Whether a call may write there: not past the end of a registered buffer."""
        client = self._usable()
        return client is not None and client.permits(address, size)

    @staticmethod
    def _bytes_at(address, size):
        """Of this process, or none where it may not read them."""
        return ctypes.string_at(address, size) if size > 0 and address and _store.is_there(address, size) else b""

    # ---- get sessions: where objects are is asked once; their parts come layer by layer

    def batch_get_session_start(self, keys):
        """Finds the objects. Ends with `batch_get_session_end`."""
        client, keys = self._usable(), _keys(keys)
        return client.begin_gets(keys) if client is not None else [INVALID_PARAMETERS] * len(keys)

    def batch_get_into_multi_buffer_ranges(self, keys, all_buffer_ptrs, all_sizes, all_src_offsets):
        """Reads parts. Returns the bytes that were read for each key, or a code: -707 where the object was removed,
        evicted or replaced since the session began, and then the buffers' content is undefined."""
        keys = _keys(keys)
        parts = self._zip_parts(keys, all_buffer_ptrs, all_sizes)
        client = self._usable()
        if client is None or parts is None or len(all_src_offsets) != len(keys):
            return [INVALID_PARAMETERS] * len(keys)
        answers = client.get_parts(keys, parts, [list(o) for o in all_src_offsets], True, False)
        return [min(codes) if min(codes, default=-1) < 0 else sum(codes) for codes in
                (a or [INVALID_PARAMETERS] for a in answers)]

    def batch_get_session_end(self, keys):
        client, keys = self._usable(), _keys(keys)
        if client is None:
            return INVALID_PARAMETERS
        client.end_gets(keys)
        return OK

    def _get_into(self, keys, parts):
        client = self._usable()
        return client.get_into(keys, parts) if client is not None else [INVALID_PARAMETERS] * len(keys)

    # ---- about objects

    def is_exist(self, key):
        client = self._usable()
        return client.exists_one(key) if client is not None else INVALID_PARAMETERS

    def batch_is_exist(self, keys):
        client = self._usable()
        return client.exists(keys) if client is not None else [INVALID_PARAMETERS] * len(_keys(keys))

    def get_size(self, key):
        client = self._usable()
        return client.sizes([_key(key)])[0] if client is not None else INVALID_PARAMETERS

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

    # ---- memory: every address of this process will do, but no call writes past the end of a registered buffer

    def register_buffer(self, buffer_ptr, size):
        """Refuses memory that this process cannot read, as of a graphics card, and memory that overlaps with a registered buffer."""
        client = self._usable()
        good = client is not None and buffer_ptr and size > 0 and _store.is_there(buffer_ptr, size) and client.enter(buffer_ptr, size)
        return OK if good else INVALID_PARAMETERS

    def unregister_buffer(self, buffer_ptr):
        client = self._usable()
        return OK if client is not None and client.strike(buffer_ptr) else INVALID_PARAMETERS

    def alloc_from_mem_pool(self, size):
        """The address of so many bytes, until the store is closed, after `setup_dummy`; 0 where the pool has not as many left."""
        if self._pool is None or self._usable() is None or not isinstance(size, int) or not 0 < size <= self._pool_left:
            return 0
        address = self._pool.alloc(size)
        self._pool_left -= size if address else 0
        return address

    def get_offload_rpc_read_count(self):
        return 0
