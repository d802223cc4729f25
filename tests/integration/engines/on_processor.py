"""vLLM's own Mooncake connectors, unchanged, where there is no graphics card: what they ask of torch about one is answered here.

Named as `kv_connector_module_path`. On the processor a step has ended when its call returns, so there is nothing that an event would wait for.
"""
import torch
from vllm.platforms import current_platform


class Event:
    def record(self, stream=None):
        pass

    def synchronize(self):
        pass

    def query(self):
        return True


torch.cuda.Event = Event
torch.accelerator.current_device_index = lambda: 0
type(current_platform).set_device = classmethod(lambda cls, device: None)

from vllm.distributed.kv_transfer.kv_connector.v1.mooncake.mooncake_connector import MooncakeConnector  # noqa: E402, F401
from vllm.distributed.kv_transfer.kv_connector.v1.mooncake.store.connector import MooncakeStoreConnector  # noqa: E402, F401
