"""The command line, several times in one process: what it said and how it ended, as JSON."""

from __future__ import annotations

import contextlib
import io
import json
import sys
from unittest.mock import patch

from qalign_core.models import loading
from qalign_study.commands import main


def run(arguments: list[str], memory: int) -> dict[str, object]:
    """One command, on a machine with so much memory."""
    out, error = io.StringIO(), io.StringIO()
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(error),
        patch.object(loading, "available_memory", lambda device: memory),
    ):
        status = main(arguments)
    return {"status": status, "out": out.getvalue(), "error": error.getvalue()}


if __name__ == "__main__":
    print(json.dumps([run(*case) for case in json.loads(sys.argv[1])]))
