"""vLLM's connector to LMCache, unchanged, on the processor: LMCache 0.5.6 lacks the part that copies between its chunks and blocks of KV there.

Named as `kv_connector_module_path`. All else is LMCache's: its keys, its memory, what it looks up, when it saves and loads.
"""
import lmcache.v1.gpu_connector as connectors
import torch
from lmcache.v1.gpu_connector.gpu_connectors import GPUConnectorInterface
from vllm.distributed.kv_transfer.kv_connector.v1.lmcache_connector import LMCacheConnectorV1  # noqa: F401


class ProcessorConnector(GPUConnectorInterface):
    """Chunks of [keys and values, layers, tokens, heads * dim] to and from layers of [blocks, heads, tokens of a block, keys and values * dim]."""

    def __init__(self, metadata):
        self.layers, _, _, self.heads, self.dim = metadata.kv_shape
        self.kvcaches = None

    def get_shape(self, tokens):
        return torch.Size([2, self.layers, tokens, self.heads * self.dim])

    def _rows(self, start, end, slot_mapping, **kwargs):
        self.initialize_kvcaches_ptr(**kwargs)
        slots = slot_mapping[start:end].to(torch.long)
        size = self.kvcaches[0].shape[2]
        return slots // size, slots % size

    def from_gpu(self, memory_obj, start, end, **kwargs):
        blocks, offsets = self._rows(start, end, **kwargs)
        for n, layer in enumerate(self.kvcaches):
            rows = layer[blocks, :, offsets].unflatten(-1, (2, self.dim))  # [tokens, heads, keys and values, dim]
            memory_obj.tensor[:, n] = rows.permute(2, 0, 1, 3).flatten(2)

    def to_gpu(self, memory_obj, start, end, **kwargs):
        blocks, offsets = self._rows(start, end, **kwargs)
        there = max(0, kwargs.get("vllm_cached_tokens", 0) - start)  # in vLLM's own cache: others may be reading them
        for n, layer in enumerate(self.kvcaches):
            rows = memory_obj.tensor[:, n].unflatten(-1, (self.heads, self.dim)).permute(1, 2, 0, 3).flatten(2)
            layer[blocks[there:], :, offsets[there:]] = rows[there:]

    def batched_from_gpu(self, memory_objs, starts, ends, **kwargs):
        for chunk, start, end in zip(memory_objs, starts, ends):
            self.from_gpu(chunk, start, end, **kwargs)

    def batched_to_gpu(self, memory_objs, starts, ends, **kwargs):
        for chunk, start, end in zip(memory_objs, starts, ends):
            self.to_gpu(chunk, start, end, **kwargs)


connectors.CreateGPUConnector = lambda config, metadata, engine, layout_hints=None: ProcessorConnector(metadata)
