"""`python -m qalign_study`, which is `qalign` where the package is installed."""

import sys

from qalign_study.commands import main

if __name__ == "__main__":
    sys.exit(main())
