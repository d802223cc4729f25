"""`from mooncake.store import …` for engines that are not to be changed."""

from mooncaf.store import *  # noqa: F401,F403
from mooncaf.store import __all__  # noqa: F401
