"""`from mooncake.buffer_pool import …` for engines that are not to be changed."""

from mooncaf.buffer_pool import BufferPool, RegisteredBufferPool  # noqa: F401

__all__ = ["BufferPool", "RegisteredBufferPool"]
