"""Other x86-64 processors, imitated as in the Makefile: each library has a variable of its own."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

MAKEFILE = (Path(__file__).parents[1] / "Makefile").read_text("utf-8").replace("\\\n", " ")


def environment(name: str) -> dict[str, str]:
    """The variables that a line of the Makefile sets, such as `AVX2 := A=1 B="2 3"`."""
    (line,) = re.findall(rf"^{name} := (.*)$", MAKEFILE, re.MULTILINE)
    return dict(pair.split("=", 1) for pair in shlex.split(line))


INFO = Path("/proc/cpuinfo")
PROCESSORS = {"as it is": {}, "SSE": environment("SSE")}
if not INFO.exists() or "avx512" in INFO.read_text("utf-8"):  # others are one with AVX2 as they are
    PROCESSORS["AVX2"] = environment("AVX2")
