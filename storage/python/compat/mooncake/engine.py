"""`from mooncake.engine import …` for engines that are not to be changed."""

from mooncaf.engine import *  # noqa: F401,F403
from mooncaf.engine import __all__  # noqa: F401
