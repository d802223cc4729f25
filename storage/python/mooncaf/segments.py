"""The calls about memory that a process lends beside that of `setup`, about replicas, and about tasks."""

from ._store import unique_number
from .arguments import key as _key
from .arguments import keys as _keys
from .types import QueryTaskResponse, ReplicaDescriptor

__all__ = ["SegmentCalls"]

OK, INVALID_PARAMETERS, NOT_FOUND, NOT_SUPPORTED = 0, -600, -704, -1012
SEGMENT_MIN = 16 << 20


class SegmentCalls:
    # ---- memory that is lent to the store at run time

    def allocate_and_mount_segment(self, size, protocol="tcp", location=""):
        """Lends so many bytes more. Returns {ret, segment_ids, allocated_size}."""
        client, name = self._usable(), f"{self._name}/{unique_number()}"
        if client is None or not isinstance(size, int) or size <= 0:
            return {"ret": -1, "segment_ids": [], "allocated_size": 0}
        size = max(size, SEGMENT_MIN)
        code = client.lend(name, size)
        return {"ret": code, "segment_ids": [name] if code == OK else [], "allocated_size": size if code == OK else 0}

    def unmount_segment(self, segment_ids, grace_period_seconds=0):
        """Takes back memory of `allocate_and_mount_segment`, with the objects that lie there alone. In the grace period nothing
        is put there any more, and they are moved to other segments, as far as there is room that is free; then it ends."""
        client = self._usable()
        if client is None or not all([client.take_back(_key(s), float(grace_period_seconds)) for s in segment_ids]):
            return -1
        return OK

    unmount_and_free_segment = unmount_segment

    def unmount_local_disk_segment(self, grace_period_seconds=0):
        return OK if self._usable() is not None else INVALID_PARAMETERS

    def mount_segment(self, path, size, offset=0, protocol="tcp", location=""):
        """Of a file: memory that is lent is anonymous, and sealed against shrinking under the processes that have mapped it."""
        return {"ret": NOT_SUPPORTED, "segment_ids": []}

    # ---- replicas

    def get_replica_desc(self, key):
        return self.batch_get_replica_desc([key]).get(key, [])

    def batch_get_replica_desc(self, keys):
        """Where objects lie; nothing is read from SSD for it. Keys that are not there are left out."""
        client, asked = self._usable(), list(keys)
        if client is None:
            return {}
        found = client.replicas(_keys(asked), True)
        return {key: [ReplicaDescriptor(*r) for r in replicas] for key, replicas in zip(asked, found) if replicas}

    def batch_replica_clear(self, keys, segment_name=""):
        """Removes objects without a lease, all replicas of them; with `segment_name` only objects that lie there alone. Returns
        their keys."""
        keys, client = list(keys), self._usable()
        if segment_name and client is not None:
            lies_there = [all(segments == [segment_name] for _, _, segments, _ in found) and found for found in client.replicas(_keys(keys), False)]
            keys = [key for key, there in zip(keys, lies_there) if there]
        return [key for key, code in zip(keys, self.batch_remove(keys)) if code == OK]

    def create_copy_task(self, key, targets):
        """Has a process that holds the object copy it to these segments, where it does not lie already."""
        return self._create_task(key, "", list(targets), False)

    def create_move_task(self, key, source, target):
        """Has the replica in one segment lie in another."""
        return self._create_task(key, source, [target], True)

    def _create_task(self, key, source, targets, moves):
        client = self._usable()
        if client is None:
            return (0, 0), INVALID_PARAMETERS
        if not key:
            return (0, 0), NOT_FOUND
        return client.create_task(key, source, targets, moves)

    def query_task(self, task_id):
        """The state of a task that this directory knows."""
        if not isinstance(task_id, tuple):
            raise TypeError("task_id is a pair of numbers")
        client = self._usable()
        if client is None:
            return None, INVALID_PARAMETERS
        code, *found = client.query_task(*task_id)
        return (QueryTaskResponse(task_id, *found), OK) if code == OK else (None, code)
