"""The program `mooncake_master`."""

import sys

from mooncaf.master import main

if __name__ == "__main__":
    sys.exit(main())
