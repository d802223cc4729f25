"""`from mooncake.async_store import …` for engines that are not to be changed."""

from mooncaf.async_store import *  # noqa: F401,F403
from mooncaf.async_store import __all__  # noqa: F401
from mooncaf.store import MooncakeDistributedStore  # noqa: F401
