"""`from mooncake.mooncake_config import …` for engines that are not to be changed: the module itself, so that what is changed in one is changed in the other."""

import sys

from mooncaf import mooncake_config as _module

sys.modules[__name__] = _module
