"""How soon `python app.py` serves its page.

Run: python -m benchmarks.start     (Linux)

Promises: the whole page within 3 s of the command, and within 6 s where `QALIGN_PATCHES=0` turns
off the patches of Gradio. The processor time of the app is printed too: other work on the machine
lengthens it less.
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RUNS = 3
AIMS = {"1": 3, "0": 6}
"""Seconds by the value of QALIGN_PATCHES."""


def measure(patches: str) -> tuple[float, float]:
    """Seconds from the command to the page, and the app's seconds of processor until then."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    env = {**os.environ, "GRADIO_SERVER_PORT": port, "QALIGN_PATCHES": patches}
    start = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, "app.py"], cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        address = process.stdout.readline().split()[-1]
        with urllib.request.urlopen(address, timeout=60) as page:
            page.read()
        seconds = time.perf_counter() - start
        fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        process.kill()
    return seconds, (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    for name, aim in AIMS.items():
        starts = [measure(name) for _ in range(RUNS)]
        seconds, processor = map(min, zip(*starts, strict=True))
        print(
            f"QALIGN_PATCHES={name}   {seconds:.1f} s until the page is served  (<= {aim} s), "
            f"{processor:.1f} s of processor; the shortest of {RUNS} starts"
        )


if __name__ == "__main__":
    main()
