"""Programs that start at once: forks of the tests' process as it was before the first test.

A Python that imports torch, transformers and Gradio takes 4 s of processor before it begins; the
process of the tests has imported them. A program has its own memory, streams and environment, and
can be killed, as any other. What libraries read from the environment while they are imported is
that of the tests.
"""

from __future__ import annotations

import atexit
import json
import os
import runpy
import signal
import socket
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NoReturn

from browser import ROOT

START_APP = f"""import os, runpy
os.chdir({str(ROOT)!r})
runpy.run_path("app.py", run_name="__main__")"""
"""The code of a `Program` that is the app, started from the command line."""

_server: socket.socket | None = None


def listen() -> None:
    """Fork the process that forks for each program; it ends with this one."""
    global _server
    _server, theirs = socket.socketpair()
    atexit.register(_server.close)
    if not os.fork():
        _serve(theirs)
    theirs.close()


def _serve(jobs: socket.socket) -> NoReturn:
    """Start a program per message, until nobody can ask for one."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nothing, stream)
    os.dup2(jobs.fileno(), 3)
    os.closerange(4, 4096)  # with the channel to the controller of pytest-xdist
    jobs = socket.socket(fileno=3)
    while True:
        job, streams, *_ = socket.recv_fds(jobs, 2**20, 4)
        if not job:
            os._exit(0)
        if not os.fork():
            _run(json.loads(job), *streams)
        for stream in streams:
            os.close(stream)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def _run(job: dict[str, Any], status: int, *streams: int) -> NoReturn:
    """Run a program in a process of its own, and report its id and how it ends."""
    if child := os.fork():
        with suppress(BrokenPipeError):  # nobody waits for it
            os.write(status, b"%d\n" % child)
            os.write(status, b"%d\n" % os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        os._exit(0)
    for place, stream in enumerate(streams):
        os.dup2(stream, place)
    os.closerange(3, 4096)
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w", buffering=1), open(2, "w")  # noqa: SIM115
    os.environ.clear()
    os.environ.update(job["env"])
    sys.argv = job["arguments"]
    try:
        if job["code"]:
            exec(job["code"], {"__name__": "__main__"})
        else:
            runpy.run_module("qalign_study", run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    for stream_of in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream_of.flush()
    os._exit(code)  # what pytest would do at the end is not its business


class Program:
    """`qalign` with some arguments, or code of Python that reads them from `sys.argv`.

    Its error output is the test's, or goes to the file `stderr`.
    """

    def __init__(
        self, *arguments: str, code: str = "", env: Mapping[str, str] = os.environ, stderr: int = 2
    ) -> None:
        assert _server is not None
        status, *theirs = pipes = [os.pipe() for _ in range(3)]
        ends = [status[1], theirs[0][0], theirs[1][1], stderr]
        job = {"arguments": ["qalign", *arguments], "code": code, "env": dict(env)}
        socket.send_fds(_server, [json.dumps(job).encode()], ends)
        for end in ends[:3]:
            os.close(end)
        self._status = open(pipes[0][0])  # noqa: SIM115
        self.stdin = open(pipes[1][1], "w", buffering=1)  # noqa: SIM115
        self.stdout = open(pipes[2][0])  # noqa: SIM115
        self.pid = int(self._status.readline())
        self.returncode: int | None = None

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send a signal, if it has not ended."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def wait(self) -> int:
        """Return its exit code, -9 if it was killed."""
        if self.returncode is None:
            self.returncode = int(self._status.readline())
        return self.returncode

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self.wait()
        for file in (self._status, self.stdin, self.stdout):
            with suppress(BrokenPipeError):
                file.close()
