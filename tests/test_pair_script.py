"""The script of docs/paper.md that starts two servers and an evaluation, run with fake servers.

A fake server answers at its address, and a log lists what began and ended in which order.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[1] / "docs" / "paper.md"
VLLM = f"""#!{sys.executable}
import http.server, os, pathlib, signal, sys, threading, time
name, port, options = sys.argv[2], int(sys.argv[4]), sys.argv[5:]
def log(text):
    with open("log", "a") as file:
        file.write(text + "\\n")
def stop(*_):
    log(f"stop {{name}}")
    os._exit(0)
signal.signal(signal.SIGTERM, stop)
log(f"start {{name}} {{' '.join(options)}}")
if os.environ.get("DIES") == name:
    sys.exit(3)
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        log(f"ready {{name}}")
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()
    def log_message(self, *_):
        pass
server = http.server.HTTPServer(("localhost", port), Handler)
if os.environ.get("DIES_LATER") == name:
    threading.Thread(target=server.serve_forever, daemon=True).start()
    while not pathlib.Path("evaluating").exists():
        time.sleep(0.02)
    os._exit(3)
server.serve_forever()
"""
QALIGN = """#!/bin/bash
trap 'echo "stop evaluation" >> log; exit 143' TERM
echo "evaluate $*" >> log
touch evaluating
if [ -n "$STATUS" ]; then exit "$STATUS"; fi
while true; do /bin/sleep 0.02; done
"""
SLEEP = "#!/bin/bash\nexec /bin/sleep 0.02\n"


def read_script() -> str:
    (script,) = re.findall(r"```bash\n(#!/bin/bash\n.*?)```", PAGE.read_text(), re.DOTALL)
    return str(script)


@pytest.fixture
def start(tmp_path):
    """Start the script of the page in an empty folder; return its process."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name, text in (("vllm", VLLM), ("qalign", QALIGN), ("sleep", SLEEP)):
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    (tmp_path / "pair.sh").write_text(read_script())
    processes = []

    def run(**settings):
        path = f"{tools}:{os.environ['PATH']}"
        environment = {**os.environ, "PATH": path, "SLURM_ARRAY_TASK_ID": str(task()), **settings}
        command = ["bash", "pair.sh", "LM", "RM", "--task", "math500", "--out", "a folder"]
        process = subprocess.Popen(
            command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True,
            start_new_session=True,
        )  # fmt: skip
        processes.append(process)
        return process

    yield run
    for process in processes:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def task() -> int:
    """Return the number of an array's task whose two ports are free."""
    for number in range(os.getpid() % 1000 + 500, 28_000):
        try:
            for port in (8000 + 2 * number, 8001 + 2 * number):
                with socket.socket() as tried:
                    tried.bind(("localhost", port))
        except OSError:
            continue
        return number
    raise AssertionError("no two ports are free")


def log_in(folder: Path) -> list[str]:
    return (folder / "log").read_text().splitlines()


def test_the_script_is_bash():
    subprocess.run(["bash", "-n"], input=read_script(), text=True, check=True)


@pytest.mark.parametrize("status", [0, 2])
def test_the_second_server_starts_when_the_first_answers_and_both_end(status, start, tmp_path):
    process = start(STATUS=str(status))
    process.communicate(timeout=60)
    assert process.returncode == status
    log = log_in(tmp_path)
    memory = "--gpu-memory-utilization 0.45 --max-model-len 4096"
    assert log[:4] == [
        f"start LM {memory}", "ready LM", f"start RM {memory} --runner pooling", "ready RM",
    ]  # fmt: skip
    assert re.fullmatch(
        r"evaluate evaluate --lm http://localhost:\d+ --rm http://localhost:\d+ "
        "--task math500 --out a folder",
        log[4],
    )
    assert sorted(log[5:]) == ["stop LM", "stop RM"]


@pytest.mark.parametrize("name", ["LM", "RM"])
def test_a_server_that_ends_before_it_answers_ends_the_script(name, start, tmp_path):
    process = start(DIES=name, STATUS="0")
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "a server ended early; see its log above" in errors
    assert not any(line.startswith("evaluate") for line in log_in(tmp_path))
    assert ("stop LM" in log_in(tmp_path)) == (name == "RM")


@pytest.mark.parametrize("name", ["LM", "RM"])
def test_a_server_that_ends_during_the_evaluation_ends_all(name, start, tmp_path):
    process = start(DIES_LATER=name)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "a server ended early" in errors
    other = {"LM": "RM", "RM": "LM"}[name]
    assert sorted(log_in(tmp_path)[-2:]) == [f"stop {other}", "stop evaluation"]


def test_a_script_that_is_stopped_stops_its_servers_and_its_evaluation(start, tmp_path):
    process = start()
    while not (tmp_path / "evaluating").exists():
        assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 143
    assert sorted(log_in(tmp_path)[-3:]) == ["stop LM", "stop RM", "stop evaluation"]
