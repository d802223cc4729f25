"""`from mooncake.dataproto_catalog import …` for engines that are not to be changed: the module itself, so that what is changed in one is changed in the other."""

import sys

from mooncaf import dataproto_catalog as _module

sys.modules[__name__] = _module
