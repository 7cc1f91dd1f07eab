"""The log of a server: at most one defect every 10 seconds, with long values shortened."""

import logging
import sys
import time
import traceback
from contextlib import suppress

INTERVAL = 10.0
"""Seconds between two logged defects: one client may cause the same defect a thousand times."""
WIDTH, HEIGHT = 200, 60
"""Characters of a line, and lines, that are kept of one defect."""


class LimitedLog(logging.Handler):
    """Writes warnings and errors to standard error, one per interval, and counts the others."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._logged, self._left_out = -INTERVAL, 0

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record unless another was written within the interval."""
        now = time.monotonic()
        if now - self._logged < INTERVAL:
            self._left_out += 1
            return
        text = self.format(record)
        if self._left_out:
            text += f"\n({self._left_out:,} more before it are left out)"
        self._logged, self._left_out = now, 0
        with suppress(OSError, ValueError):  # standard error is closed or its disk is full
            print(text, file=sys.stderr, flush=True)

    def format(self, record: logging.LogRecord) -> str:
        """Return the message and the end of the traceback, each line cut."""
        try:
            text = record.getMessage()
        except Exception:  # arguments that do not fit the message
            text = str(record.msg)
        if record.exc_info:
            text += "\n" + "".join(traceback.format_exception(*record.exc_info))
        first, *lines = f"{record.levelname}: {text}".splitlines()
        kept = [first, *lines[-HEIGHT:]]
        return "\n".join(_cut(line) for line in kept)


def _cut(line: str) -> str:
    return line if len(line) <= WIDTH else f"{line[: WIDTH - 3]}..."


def limit_log() -> None:
    """Have the log of the whole process, with warnings and the web server's errors, be limited."""
    root = logging.getLogger()
    if not any(isinstance(each, LimitedLog) for each in root.handlers):
        root.addHandler(LimitedLog())
    logging.captureWarnings(True)
    for name in ("uvicorn", "uvicorn.error"):  # it has a handler of its own
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
