"""The transfer engine under the names, signatures and return codes that callers of Mooncake's use.

Peers find each other by HOST:PORT of their engines ("P2PHANDSHAKE"), or by names that an HTTP metadata server keeps. Calls are thread-safe and
release the GIL. After a fork the child's copy of an engine answers every call with -1: make another.
"""

import enum
import ipaddress
import json
import os
import socket

from . import _store, absent
from .metadata import MetadataServer

globals().update(absent.OF_THE_ENGINE)
__all__ = [*absent.OF_THE_ENGINE, "TransferEngine", "TransferNotify", "TransferOpcode", "Read", "Write", "SUPPORT_CUDA", "SUPPORT_EFA", "SUPPORT_HIP",
           "SUPPORT_INTRA_NVLINK", "SUPPORT_MNNVL", "SUPPORT_MUSA"]

SUPPORT_CUDA = SUPPORT_EFA = SUPPORT_HIP = SUPPORT_INTRA_NVLINK = SUPPORT_MNNVL = SUPPORT_MUSA = False
FAILED = -1


class TransferOpcode(enum.IntEnum):
    Read = 0
    Write = 1


Read, Write = TransferOpcode.Read, TransferOpcode.Write


class TransferNotify:
    """A word for the program behind the peer's engine."""

    def __init__(self, name="", msg=""):
        self.name, self.msg = name, msg


def _address(name):
    """(numeric host, port or 0) of "host", "host:port" or "[v6]:port"; None where the name has no address."""
    host, port = name, "0"
    if name.count(":") == 1 or name.startswith("["):
        host, _, port = name.rpartition(":") if not name.endswith("]") else (name, "", "0")
    host = host.strip("[]")
    if not port.isdigit() or int(port) > 65535:
        return None
    try:
        return str(ipaddress.ip_address(host)), int(port)
    except ValueError:
        pass
    try:
        return socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0], int(port)
    except OSError:
        return None


class TransferEngine:
    """Moves bytes between registered memory of this process and of others. Made empty; `initialize` starts it."""

    TransferOpcode = TransferOpcode

    def __init__(self):
        self._engine = None
        self._pid = 0
        self._host = ""
        self._why = ""
        self._names = None  # the metadata server, if there is one
        self._name = ""  # of this engine, there
        self._known = {}  # where peers are, by name

    # ---- life

    def initialize(self, local_hostname, metadata_server, protocol, device_name):
        """Listens at `local_hostname`; other processes name this one HOST:get_rpc_port().

        The secret is that of the file MOONCAF_CLUSTER_SECRET_FILE, by default the user's own. `metadata_server` is
        "P2PHANDSHAKE", or the URL of an HTTP server (`http_metadata_server`) at which every engine enters its `local_hostname`, by which peers name it
        then; its port is a free one, whatever the name says. With `protocol` "rdma" NICs are used where there are any, whatever `device_name` says; memory of the
        same host is mapped, and TCP is the way that is always there.
        """
        if self._usable() is not None:
            return 0  # as the reference has it; nothing changes
        at = _address(str(local_hostname))
        names = None
        try:
            names = MetadataServer(str(metadata_server)) if metadata_server != "P2PHANDSHAKE" else None
        except ValueError as why:
            self._why = str(why)
            return FAILED
        if at is None:
            self._why = f"{local_hostname} has no address"
            return FAILED
        engine = _store.Engine()
        code = engine.open(at[0], at[1] if names is None else 0, protocol == "rdma", os.environ.get("MOONCAF_CLUSTER_SECRET_FILE", ""))
        self._why = engine.last_error() if code != 0 else ""
        if code == 0 and names is not None and not names.enter(str(local_hostname), at[0], engine.port()):
            engine.close()
            self._why = f"{metadata_server} does not answer, or has an engine named {local_hostname}"
            return FAILED
        if code == 0:
            self._engine, self._pid, self._host, self._names, self._name = engine, os.getpid(), at[0], names, str(local_hostname)
        return code

    def initialize_ext(self, local_hostname, metadata_server, protocol, device_name, metadata_type):
        return self.initialize(local_hostname, metadata_server, protocol, device_name)

    def __del__(self):
        try:
            engine, self._engine = self._engine, None
            if engine is not None:
                if self._names is not None and self._pid == os.getpid():
                    self._names.strike(self._name)
                engine.close() if self._pid == os.getpid() else engine.abandon()
        except Exception:
            pass

    def _usable(self):
        return self._engine if self._pid == os.getpid() else None

    def get_rpc_port(self):
        engine = self._usable()
        return engine.port() if engine is not None else 0

    def last_error(self):
        """In words, why the last call was refused. Not in the reference."""
        engine = self._usable()
        return self._why or (engine.last_error() if engine is not None else "")

    def get_local_topology(self, device_name=None):
        """JSON: the ways out of this process by where memory lies. Processor memory alone is known."""
        return json.dumps({"cpu:0": [[], []]})

    def get_engine(self):
        """The `engine` of `MooncakeDistributedStore.setup`; the store finds its own ways."""
        return self

    def get_engine_ptr(self):
        return id(self._engine) if self._usable() is not None else 0

    # ---- memory

    def register_memory(self, buffer_addr, capacity, location="*"):
        engine = self._usable()
        return engine.offer(buffer_addr, capacity) if engine is not None else FAILED

    def unregister_memory(self, buffer_addr):
        engine = self._usable()
        return engine.take_back(buffer_addr) if engine is not None else FAILED

    def batch_register_memory(self, buffer_addresses, capacities, location="*"):
        if len(buffer_addresses) != len(capacities):
            return FAILED
        codes = [self.register_memory(a, c, location) for a, c in zip(buffer_addresses, capacities)]
        return next((c for c in codes if c), 0)

    def batch_unregister_memory(self, buffer_addresses):
        codes = [self.unregister_memory(a) for a in buffer_addresses]
        return next((c for c in codes if c), 0)

    def allocate_managed_buffer(self, length):
        """Registered memory that processes of this host map: the fastest there is. @returns 0 if it is not to be had."""
        engine = self._usable()
        return engine.allocate(max(length, 1)) if engine is not None else 0

    def free_managed_buffer(self, buffer_addr, length):
        engine = self._usable()
        if engine is None:
            return FAILED
        engine.release(buffer_addr)
        return 0  # also for memory that was never allocated, as the reference has it

    def write_bytes_to_buffer(self, dest_address, src, length):
        data = src.encode() if isinstance(src, str) else bytes(src)
        return 0 if _store.put_bytes_at(dest_address, data, length) else FAILED

    def read_bytes_from_buffer(self, source_address, length):
        data = _store.bytes_at(source_address, length)
        return b"" if data is None else data

    # ---- transfers that are waited for

    def transfer_sync_write(self, target_hostname, buffer, peer_buffer_address, length, transport_hint=""):
        return self._move(target_hostname, [buffer], [peer_buffer_address], [length], Write)

    def transfer_sync_read(self, target_hostname, buffer, peer_buffer_address, length, transport_hint=""):
        return self._move(target_hostname, [buffer], [peer_buffer_address], [length], Read)

    def transfer_sync(self, target_hostname, buffer, peer_buffer_address, length, opcode, notify=None, transport_hint=""):
        return self._move(target_hostname, [buffer], [peer_buffer_address], [length], opcode, notify)

    def batch_transfer_sync_write(self, target_hostname, buffers, peer_buffer_addresses, lengths, transport_hint=""):
        return self._move(target_hostname, buffers, peer_buffer_addresses, lengths, Write)

    def batch_transfer_sync_read(self, target_hostname, buffers, peer_buffer_addresses, lengths, transport_hint=""):
        return self._move(target_hostname, buffers, peer_buffer_addresses, lengths, Read)

    def batch_transfer_sync(self, target_hostname, buffers, peer_buffer_addresses, lengths, opcode, notify=None, transport_hint=""):
        return self._move(target_hostname, buffers, peer_buffer_addresses, lengths, opcode, notify)

    def _move(self, target, buffers, peer_addresses, lengths, opcode, notify=None):
        engine = self._usable()
        if engine is None:
            return FAILED
        code = self._asked(target, lambda at: engine.move(at, buffers, peer_addresses, lengths, opcode == Write, self._limit(lengths)), FAILED)
        if code == 0 and notify is not None:
            code = self._asked(target, lambda at: engine.notify(at, notify.name, notify.msg), FAILED)
        return FAILED if code else 0

    def _asked(self, target, call, failed):
        """The call's answer, of the engine of that name. One that began anew has another port, and is looked for again."""
        if self._names is None:
            return call(target)
        answer, tried = failed, None
        for look in (self._known.get, self._names.find):
            at = look(target)
            if at in (None, tried):
                continue
            answer, tried = call(at), at
            if (answer == 0) == (failed != 0):  # it went well
                self._known[target] = at
                return answer
        self._known.pop(target, None)
        return answer

    @staticmethod
    def _limit(lengths):
        """Seconds: as in the reference, a nanosecond for each byte beside MC_TRANSFER_TIMEOUT."""
        try:
            constant = max(float(os.environ.get("MC_TRANSFER_TIMEOUT", 30)), 0.001)
        except ValueError:
            constant = 30.0
        return constant + sum(lengths) * 1e-9

    # ---- transfers that are not waited for

    def batch_transfer_async_write(self, target_hostname, buffers, peer_buffer_addresses, lengths, transport_hint=""):
        return self._begin(target_hostname, buffers, peer_buffer_addresses, lengths, Write)

    def batch_transfer_async_read(self, target_hostname, buffers, peer_buffer_addresses, lengths, transport_hint=""):
        return self._begin(target_hostname, buffers, peer_buffer_addresses, lengths, Read)

    def batch_transfer_async(self, target_hostname, buffers, peer_buffer_addresses, lengths, opcode, transport_hint=""):
        return self._begin(target_hostname, buffers, peer_buffer_addresses, lengths, opcode)

    def transfer_submit_write(self, target_hostname, buffer, peer_buffer_address, length, transport_hint=""):
        return self._begin(target_hostname, [buffer], [peer_buffer_address], [length], Write)

    def _begin(self, target, buffers, peer_addresses, lengths, opcode):
        engine = self._usable()
        if engine is None:
            return 0
        return self._asked(target, lambda at: engine.begin(at, buffers, peer_addresses, lengths, opcode == Write, self._limit(lengths)), 0)

    def get_batch_transfer_status(self, batch_ids):
        """Waits for all of them: 0 if each was done, -1 otherwise, also for a number that was never given out."""
        engine = self._usable()
        if engine is None:
            return FAILED
        return 0 if all([engine.ended(i, True) == 1 for i in batch_ids]) else FAILED

    def transfer_check_status(self, batch_id):
        """1 done, 0 running, -1 failed. An id whose end was told before is -1; the reference ends the process."""
        engine = self._usable()
        state = engine.ended(batch_id, False) if engine is not None else FAILED
        return max(state, FAILED)

    # ---- peers

    def get_first_buffer_address(self, segment_name):
        engine = self._usable()
        return self._asked(segment_name, engine.first_address, 0) if engine is not None else 0

    def send_probe(self, peer_server_name):
        engine = self._usable()
        return self._asked(peer_server_name, engine.probe, FAILED) if engine is not None else FAILED

    def get_notifies(self):
        engine = self._usable()
        words = engine.words() if engine is not None else []
        return [TransferNotify(n.decode(errors="replace"), m.decode(errors="replace")) for n, m in words]

    def warmup_efa_segment(self, segment_name):
        """Nothing is to be made warm: there is no EFA."""
        return FAILED
