"""The store's calls as coroutines: each runs on a thread of a pool, and the event loop goes on meanwhile."""

import asyncio
import concurrent.futures

from .store import MooncakeDistributedStore

__all__ = ["MooncakeDistributedStoreAsync"]


class MooncakeDistributedStoreAsync:
    """`async_<method>` for every method of `MooncakeDistributedStore`, same arguments, same answers.

    Wraps the store that it is given, or one of its own. `threads` calls run at once; others wait for their turn.
    """

    def __init__(self, store=None, threads=8):
        self._store = store if store is not None else MooncakeDistributedStore()
        self._pool = concurrent.futures.ThreadPoolExecutor(threads, thread_name_prefix="mooncaf-store")

    def __getattr__(self, name):
        if not name.startswith("async_"):
            raise AttributeError(name)
        method = getattr(self._store, name[len("async_"):])

        async def call(*args, **kwargs):
            return await asyncio.get_running_loop().run_in_executor(self._pool, lambda: method(*args, **kwargs))

        return call

    async def async_close(self):
        """Closes the store, after the calls that wait."""
        code = await asyncio.get_running_loop().run_in_executor(self._pool, self._store.close)
        self._pool.shutdown(wait=False)
        return code
