"""Names of Mooncake's modules that have nothing behind them here: a caller who imports them hears "not supported", and not that there is no such name.

A call that answers with a number answers -1012 (the store's NOT_SUPPORTED) or -303 (the engine's); one that says whether it went well says no;
of the others, which give something back, a RuntimeError says it. README.md of the folder lists them, and why.
"""

import asyncio

__all__ = ["OF_THE_STORE", "OF_THE_ENGINE"]

NOT_SUPPORTED, NOT_IMPLEMENTED = -1012, -303


def _refused(what, code):
    return RuntimeError(f"{what} is not supported ({code})")


class _NobodyMakesOne:
    """Objects of such a class come from calls that are not there."""

    def __init__(self, *args, **kwargs):
        raise TypeError(f"{type(self).__name__}: No constructor defined!")


class EngramStoreConfig:
    def __init__(self):
        self.table_vocab_sizes, self.embedding_dim = [], 0


class EngramStore:
    """Tables of embeddings over the store's calls: nothing is kept, and nothing found."""

    def __init__(self, layer_id, config, store=None):
        self._config = config

    def get_embedding_dim(self):
        return self._config.embedding_dim if self._config is not None else 0

    def get_num_heads(self):
        return len(self.get_table_vocab_sizes())

    def get_table_vocab_sizes(self):
        return list(self._config.table_vocab_sizes) if self._config is not None else []

    def get_store_keys(self):
        return []

    def lookup(self, row_ids):
        raise _refused("EngramStore.lookup", NOT_SUPPORTED)

    def populate(self, embedding_buffers):
        raise _refused("EngramStore.populate", NOT_SUPPORTED)

    def remove_from_store(self, force=False):
        return NOT_SUPPORTED


class BufferLeaseView(_NobodyMakesOne):
    """A holder of a lease's bytes: here a memoryview is."""

    buffer = None


class RegisteredBufferLeaseView(BufferLeaseView):
    pass


class RpcInterface:
    """Calls between processes, beside the engine."""

    def initialize(self, listen_address="", thread_count=0, timeout_seconds=30, pool_size=100):
        return False

    def initialize_client(self, pool_size=100, timeout_seconds=30):
        return False

    def initialize_server(self, listen_address, thread_count=8, timeout_seconds=30):
        return False

    def send_data(self, target_address, data):
        return NOT_IMPLEMENTED

    def send_data_async(self, target_address, data, loop):
        return self._answered(loop)

    def send_tensor(self, target_address, tensor):
        return NOT_IMPLEMENTED

    def send_tensor_async(self, target_address, tensor, loop):
        return self._answered(loop)

    def set_data_receive_callback(self, callback):
        pass

    def set_tensor_receive_callback(self, callback):
        pass

    def start_server(self):
        return False

    def start_server_async(self):
        return False

    def stop_server(self):
        pass

    @staticmethod
    def _answered(loop):
        answer = asyncio.Future(loop=loop)
        answer.set_result(NOT_IMPLEMENTED)
        return answer


CoroRPCInterface = RpcInterface


def create_rpc_client(local_rank=0, world_size=1):
    return RpcInterface()


def create_rpc_server(local_rank=0, world_size=1):
    return RpcInterface()


class ReceivedData(_NobodyMakesOne):
    source_address, data_size = "", 0

    def get_bytes(self):
        return b""

    def get_memory_view(self):
        return memoryview(b"")


class ReceivedTensor(_NobodyMakesOne):
    source_address, shape, dtype, total_bytes = "", [], "", 0

    def get_data_as_bytes(self):
        return b""

    def get_data_size(self):
        return 0

    def get_memory_view(self):
        return memoryview(b"")


class SharedSegment(_NobodyMakesOne):
    """Memory that graphics cards share: `supported` says no."""

    @staticmethod
    def supported(mmap=True, host_register=False):
        return False

    @staticmethod
    def create(name, size, world_size, rank_id, owner_rank=0, device_id=0, mmap=True, host_register=False):
        raise _refused("SharedSegment.create", NOT_IMPLEMENTED)

    def complete(self, blobs):
        raise _refused("SharedSegment.complete", NOT_IMPLEMENTED)

    def base_addr(self):
        return 0

    def device_addr(self):
        return 0

    def ready(self):
        return False

    def size(self):
        return 0


class InnerTransferEngine(_NobodyMakesOne):
    """The reference's C++ object."""


OF_THE_STORE = {one.__name__: one for one in (EngramStore, EngramStoreConfig, BufferLeaseView, RegisteredBufferLeaseView)}
OF_THE_ENGINE = {one.__name__: one for one in (RpcInterface, ReceivedData, ReceivedTensor, SharedSegment, InnerTransferEngine, create_rpc_client,
                                               create_rpc_server)} | {"CoroRPCInterface": CoroRPCInterface}
