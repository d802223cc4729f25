"""The program `mooncake_client`."""

import sys

from mooncaf.client import main

if __name__ == "__main__":
    sys.exit(main())
