"""`from mooncake.http_metadata_server import …` for engines that are not to be changed: the module itself, so that what is changed in one is changed in the other."""

import sys

from mooncaf import http_metadata_server as _module

if __name__ == "__main__":
    sys.exit(_module.main())
sys.modules[__name__] = _module
