"""The store's calls as coroutines: each runs on a thread of a pool, and the event loop goes on meanwhile."""

import asyncio
import concurrent.futures

from .store import MooncakeDistributedStore

__all__ = ["MooncakeDistributedStoreAsync"]

_CALLS = [name for name in dir(MooncakeDistributedStore) if not name.startswith("_")]


class MooncakeDistributedStoreAsync(MooncakeDistributedStore):
    """A store that has `async_<method>` beside every method, same arguments, same answers.

    With `store` its calls are that store's. `threads` calls run at once; others wait for their turn.
    """

    def __init__(self, store=None, threads=8):
        super().__init__()
        self._threads, self._executor = threads, None
        if store is not None:
            self.__dict__.update({name: getattr(store, name) for name in _CALLS})

    def __del__(self):  # a store that it was given stays open
        try:
            MooncakeDistributedStore.close(self)
        except Exception:
            pass

    def __getattr__(self, name):
        if name[6:] not in _CALLS or not name.startswith("async_"):
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
        method = getattr(self, name[6:])

        async def call(*args, **kwargs):
            return await asyncio.get_running_loop().run_in_executor(self._threads_of_its_own(), lambda: method(*args, **kwargs))

        return call

    def _threads_of_its_own(self):
        if self._executor is None:
            self._executor = concurrent.futures.ThreadPoolExecutor(self._threads, thread_name_prefix="mooncaf-store")
        return self._executor

    async def async_close(self):
        """Closes the store, after the calls that wait."""
        pool, self._executor = self._threads_of_its_own(), None
        code = await asyncio.get_running_loop().run_in_executor(pool, self.close)
        pool.shutdown(wait=False)
        return code
