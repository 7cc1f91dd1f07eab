"""`python -m qalign_core`."""

import sys

from qalign_core.cli import main

if __name__ == "__main__":
    sys.exit(main())
