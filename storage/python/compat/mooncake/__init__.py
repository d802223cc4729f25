"""Stands in for the package of the same name: put this folder's parent on the path, or install it, or do not."""

from mooncaf.buffer_pool import BufferPool, RegisteredBufferPool

__all__ = ["BufferPool", "RegisteredBufferPool"]
