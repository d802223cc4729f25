"""`from mooncake.mooncake_store_service import …` for engines that are not to be changed: the module itself, so that what is changed in one is changed in the other."""

import sys

from mooncaf import mooncake_store_service as _module

if __name__ == "__main__":
    sys.exit(_module.sync_main())
sys.modules[__name__] = _module
