"""A store that an engine can do without: while it cannot be reached, nothing is found in it and nothing is kept, and no call waits for it."""

from __future__ import annotations

import concurrent.futures
import logging
import threading
import time

from .store import MooncakeDistributedStore

__all__ = ["PatientStore"]

_PATIENCE_S, _PAUSE_S = 1.0, 2.0
_AWAY = (-900, -901)  # the directory was not reached, or did not answer in time
_log = logging.getLogger("mooncaf")


class PatientStore:
    """The store as the connectors of this package use it. Thread-safe.

    A call that does not reach the directory opens a pause of two seconds; what is asked in it is answered as by an empty store. Look-ups, for
    which an engine's scheduler waits, take one second at most, and none while the one that took longer has no answer; reads and writes have the
    store's own limits, since they may be moving bytes of the caller's memory until they return.
    """

    def __init__(self, directory, *, host="127.0.0.1", lend=0, token_file=""):
        self._at, self._setup = directory, {"local_hostname": host, "metadata_server": "P2PHANDSHAKE", "master_server_addr": directory,
                                            "global_segment_size": lend, "local_buffer_size": 64 << 20, "token_file": token_file}
        self._lock, self._store, self._paused_until, self._overdue = threading.Lock(), None, 0.0, None
        self._registered = []
        self._asking = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="mooncaf-ask")
        self._ask(self._connected)

    def register(self, tensor):
        """Memory of the engine's that is written and read: with a NIC its bytes move without a copy. It has to stay until `close`."""
        memory = (tensor.data_ptr(), tensor.numel() * tensor.element_size())
        with self._lock:
            self._registered.append(memory)
            store = self._store
        if store is not None:
            store.register_buffer(*memory)

    def exists(self, keys):
        """For each key, whether its object is there. All False while the store is away."""
        nothing = [False] * len(keys)
        codes = self._ask(self._call, "batch_is_exist", keys) if keys and not self._pausing() else None
        return [code == 1 for code in codes] if codes is not None else nothing

    def leading(self, keys):
        """How many of the keys, from the first, are there without a gap."""
        return (self.exists(keys) + [False]).index(False)

    def __getattr__(self, name):
        """`batch_…` of the store: a code for each key, -900 while the store is away."""
        if not name.startswith("batch_"):
            raise AttributeError(name)

        def call(keys, *args):
            codes = None
            if not self._pausing():
                if self._store is None:
                    self._asking.submit(self._connected)  # whoever only writes comes back, too
                codes = self._call(name, keys, *args)
            return [_AWAY[0]] * len(keys) if codes is None else codes

        return call

    def remove_matching(self, pattern):
        """Removes matching objects, also under a lease. Returns whether the store was asked."""
        store = self._store
        return store is not None and store.remove_by_regex(pattern, True) >= 0

    def close(self):
        self._asking.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            store, self._store = self._store, None
            self._paused_until = float("inf")
        if store is not None:
            store.close()

    # ---- inside

    def _pausing(self):
        return time.monotonic() < self._paused_until

    def _pause(self, why):
        with self._lock:
            if self._paused_until < (now := time.monotonic()):
                self._paused_until = now + _PAUSE_S
                _log.warning("the object store at %s is not used for %g s: %s", self._at, _PAUSE_S, why)

    def _ask(self, question, *args):
        """The answer, or None if it is not there in time."""
        if self._overdue is not None and not self._overdue.done():
            return None
        asked = self._asking.submit(question, *args)
        try:
            return asked.result(_PATIENCE_S)
        except concurrent.futures.TimeoutError:
            self._overdue = asked
            self._pause(f"no answer within {_PATIENCE_S:g} s")
            return None

    def _connected(self):
        """The store, once it has been reached. Runs on the thread that asks, and there alone."""
        if self._store is None and not self._pausing():
            store = MooncakeDistributedStore()
            code = store.setup(self._setup)
            if code != 0:
                self._pause(f"{code} {store.last_error()}")
                return None
            with self._lock:
                if self._paused_until != float("inf"):  # closed meanwhile
                    for memory in self._registered:
                        store.register_buffer(*memory)
                    self._store, store = store, None
            if store is not None:
                store.close()
        return self._store

    def _call(self, name, keys, *args):
        store = self._connected() if name == "batch_is_exist" else self._store
        if store is None:
            return None
        codes = getattr(store, name)(keys, *args)
        if isinstance(codes, list) and any(code in _AWAY for code in codes):
            self._pause(f"{name} was answered {min(codes)}")
        return codes
