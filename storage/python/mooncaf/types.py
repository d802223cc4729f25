"""Arguments and answers of the store's calls, beside keys and codes."""

from __future__ import annotations

import enum
import time

from ._store import BufferHandle

__all__ = ["ObjectDataType", "SoftPinAction", "ReplicaStatus", "TaskType", "TaskStatus", "ReplicateConfig", "Descriptor",
           "MemoryDescriptor", "DiskDescriptor", "ReplicaDescriptor", "QueryTaskResponse", "BufferHandle"]


class _Choice(enum.IntEnum):
    """A number with a name, which is printed as Mooncake's are."""

    def __str__(self) -> str:
        return f"{type(self).__name__}.{self.name}"


class ObjectDataType(_Choice):
    UNKNOWN, KVCACHE, TENSOR, WEIGHT, SAMPLE, ACTIVATION, GRADIENT, OPTIMIZER_STATE, METADATA, GENERAL = range(10)


class SoftPinAction(_Choice):
    PRESERVE, ENABLE, DISABLE = range(3)


class ReplicaStatus(_Choice):
    UNDEFINED, INITIALIZED, PROCESSING, COMPLETE, REMOVED, FAILED = range(6)


class TaskType(_Choice):
    REPLICA_COPY, REPLICA_MOVE = range(2)


class TaskStatus(_Choice):
    PENDING, PROCESSING, SUCCESS, FAILED = range(4)


class ReplicateConfig:
    """How a put places and keeps its objects."""

    __slots__ = ("replica_num", "nof_replica_num", "dfs_replica_num", "soft_pin_action", "_soft_pin_ttl_ms",
                 "with_hard_pin", "preferred_segments", "preferred_nof_segments", "preferred_segment",
                 "prefer_alloc_in_same_node", "data_type", "group_ids", "parents", "costs", "ttl_ms")

    def __init__(self) -> None:
        self.replica_num = 1
        self.nof_replica_num = 0
        self.dfs_replica_num = 0
        self.soft_pin_action = SoftPinAction.PRESERVE
        self._soft_pin_ttl_ms: int | None = None
        self.with_hard_pin = False
        self.preferred_segments: list[str] = []
        self.preferred_nof_segments: list[str] = []
        self.preferred_segment = ""
        self.prefer_alloc_in_same_node = False
        self.data_type = ObjectDataType.UNKNOWN
        self.group_ids: list[str] | None = None
        # One for each key: the key without which it is useless ("" for none), and the cost of making it again, in any
        # unit that all writers of the store agree on (0: not known). For the directory's --eviction.
        self.parents: list[str] | None = None
        self.costs: list[float] | None = None
        # The object is not there any more after so many milliseconds; None or 0: no limit. More than ten years is refused.
        self.ttl_ms: int | None = None

    @property
    def soft_pin_ttl_ms(self) -> int | None:
        return self._soft_pin_ttl_ms

    @soft_pin_ttl_ms.setter
    def soft_pin_ttl_ms(self, value: int | None) -> None:
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 64):
            raise TypeError("soft_pin_ttl_ms is an unsigned 64-bit number or None")
        self._soft_pin_ttl_ms = value

    @property
    def with_soft_pin(self) -> bool:
        """As releases before SoftPinAction have it."""
        return self.soft_pin_action == SoftPinAction.ENABLE

    @with_soft_pin.setter
    def with_soft_pin(self, on: bool) -> None:
        self.soft_pin_action = SoftPinAction.ENABLE if on else SoftPinAction.PRESERVE

    def __str__(self) -> str:
        """As Mooncake prints it, without fields that are None."""
        shown = {"replica_num": self.replica_num, "nof_replica_num": self.nof_replica_num, "dfs_replica_num": self.dfs_replica_num,
                 "soft_pin_action": SoftPinAction(self.soft_pin_action).name,
                 "soft_pin_ttl_ms": "default" if self.soft_pin_ttl_ms is None else self.soft_pin_ttl_ms,
                 "with_hard_pin": int(self.with_hard_pin), "preferred_segments": _listed(self.preferred_segments),
                 "preferred_segment (deprecated)": self.preferred_segment or None,
                 "preferred_nof_segments": _listed(self.preferred_nof_segments),
                 "prefer_alloc_in_same_node": int(self.prefer_alloc_in_same_node), "data_type": ObjectDataType(self.data_type).name,
                 "group_ids": _listed(self.group_ids)}
        return "ReplicateConfig: { " + ", ".join(f"{name}: {value}" for name, value in shown.items() if value is not None) + " }"


def _listed(values):
    return None if values is None else "[" + ", ".join(map(str, values)) + "]"


class Descriptor:
    def __init__(self, size: int = 0, address: int = 0, endpoint: str = "") -> None:
        self.size, self.buffer_address, self.transport_endpoint = size, address, endpoint

    def __repr__(self) -> str:
        return f"<Descriptor size={self.size} buffer_address={self.buffer_address} transport_endpoint={self.transport_endpoint}>"


class MemoryDescriptor:
    def __init__(self, buffer: Descriptor) -> None:
        self.buffer_descriptor = buffer


class DiskDescriptor:
    """Of replicas in a file system that processes share, of which there are none."""

    def __init__(self, file_path: str = "", object_size: int = 0) -> None:
        self.file_path, self.object_size = file_path, object_size


class ReplicaDescriptor:
    """One replica, in memory or on the SSD of a process that lends one. In memory the address is an offset in its segment, the first of
    `segments`, which are several if it is striped; on SSD `segments` are the SSDs that have it, or parts of it."""

    def __init__(self, size: int, offset: int, segments: list[str], on_ssd: bool = False) -> None:
        self.status = ReplicaStatus.COMPLETE
        self.segments = segments
        self._memory = None if on_ssd else MemoryDescriptor(Descriptor(size, offset, segments[0]))

    def is_memory_replica(self) -> bool:
        return self._memory is not None

    def is_disk_replica(self) -> bool:
        """Whether it lies in a file system that processes share: never."""
        return False

    def is_local_disk_replica(self) -> bool:
        return self._memory is None

    def get_memory_descriptor(self) -> MemoryDescriptor:
        if self._memory is None:
            raise RuntimeError("this replica is on SSD")
        return self._memory

    def get_disk_descriptor(self) -> DiskDescriptor:
        raise RuntimeError("this replica is in no file system that processes share")


class QueryTaskResponse:
    """The state of a task."""

    def __init__(self, id: tuple[int, int] = (0, 0), kind: int = 0, status: int = 0, created_ago_ms: int = 0, updated_ago_ms: int = 0,
                 assigned_client: tuple[int, int] = (0, 0), message: str = "") -> None:
        now = time.time_ns() // 1_000_000
        self.id = id
        self.type = TaskType(kind)
        self.status = TaskStatus(status)
        self.created_at_ms_epoch = now - created_ago_ms
        self.last_updated_at_ms_epoch = now - updated_ago_ms
        self.assigned_client = assigned_client
        self.message = message
