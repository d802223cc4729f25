"""`from mooncake.structured_object_store import …` for engines that are not to be changed: the module itself, so that what is changed in one is changed in the other."""

import sys

from mooncaf import structured_object_store as _module

sys.modules[__name__] = _module
