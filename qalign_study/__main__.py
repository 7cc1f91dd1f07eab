"""`python -m qalign_study`, which is `qalign` where the package is installed."""

import sys
import warnings


def main() -> int:
    """Run one command; Ctrl-C ends with one sentence even while modules are still imported."""
    warnings.formatwarning = lambda message, *_, **__: f"qalign: {message}\n"
    try:
        from qalign_study import commands

        return commands.main()
    except KeyboardInterrupt:
        print("qalign: stopped", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
