"""SGLang's HiCache, unchanged, on the processor, as a plugin of SGLang's (`sglang.srt.plugins`): what it asks of a graphics card is answered here.

Memory is not pinned, a stream's work has ended when its call returns, and rows are copied between the engine's pool and the host's by torch.
"""
import torch


class Stream(torch.cpu.Stream):
    def synchronize(self):
        pass


class Event:
    def __init__(self, enable_timing=False):
        if enable_timing:
            raise NotImplementedError("no clock")

    def record(self, stream=None):
        pass

    def wait(self, stream=None):
        pass

    def synchronize(self):
        pass

    def query(self):
        return True


# The host's pool is [tokens, ...] for each layer, or one of [pages, layers, tokens of a page, ...] each for keys and for values.

def copy_rows(src_layers, dst_layers, src_indices, dst_indices, page_size):
    for source, target in zip(src_layers, dst_layers):
        target[dst_indices] = source[src_indices]


def copy_into_pages(src_ptrs, dst_ptrs, src_indices, dst_indices, page_size):
    layers = len(src_ptrs) // len(dst_ptrs)
    for n, source in enumerate(src_ptrs):
        dst_ptrs[n // layers][dst_indices // page_size, n % layers, dst_indices % page_size] = source[src_indices]


def copy_out_of_pages(src_ptrs, dst_ptrs, src_indices, dst_indices, layer_id, page_size):
    for source, target in zip(src_ptrs, dst_ptrs):
        target[dst_indices] = source[src_indices // page_size, layer_id, src_indices % page_size]


def install():
    torch.cpu.Stream, torch.cpu.Event = Stream, Event
    torch.Tensor.record_stream = lambda tensor, stream: None
    from sglang.srt.mem_cache.pool_host import common, mha

    common._cuda_host_register = lambda buffer, granularity=None: setattr(buffer, common._CUDA_HOST_REGISTERED_RANGES_ATTR, [])
    mha.transfer_kv_direct = copy_rows
    mha.transfer_kv_all_layer_direct_lf_pf = copy_into_pages
    mha.transfer_kv_per_layer_direct_pf_lf = copy_out_of_pages
