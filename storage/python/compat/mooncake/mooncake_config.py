"""`from mooncake.mooncake_config import …` for engines that are not to be changed."""

from mooncaf.mooncake_config import *  # noqa: F401,F403
from mooncaf.mooncake_config import __all__  # noqa: F401
