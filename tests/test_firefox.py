"""An exported page draws in Firefox too, from a disk and without a network.

Firefox is driven by its own protocol, Marionette: packets of JSON, each behind its length.
"""

import json
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from browser import PATIENCE, ROOT

from qalign_core.record.format import parse_trace
from qalign_core.record.store import load_trace
from qalign_study.export.player import page

FIREFOX = shutil.which("firefox-esr") or shutil.which("firefox")
RUN = ROOT / "assets/runs/watch.jsonl"
PREFERENCES = {
    "marionette.port": 0,  # any that is free; a line on its output tells which
    "network.proxy.type": 1,
    "network.proxy.http": "127.0.0.1",
    "network.proxy.http_port": 9,  # nobody listens there: there is no network
    "network.proxy.ssl": "127.0.0.1",
    "network.proxy.ssl_port": 9,
    "network.captive-portal-service.enabled": False,
    "datareporting.policy.dataSubmissionEnabled": False,
    "app.update.disabledForTesting": True,
}
DRAW = """
const [steps, pool, done] = arguments;
const live = document.querySelector("#live");
live.querySelector("summary").click();
live.querySelector("[name=steps]").value = steps;
live.querySelector("[name=pool]").value = pool;
const form = live.querySelector("form");
new MutationObserver(() => {
  const state = form.dataset.state;
  if (state === "finished") done({ state, text: document.querySelector(".qp").qalign.text });
  if (state === "failed") done({ state, text: live.querySelector("[role=status]").textContent });
}).observe(form, { attributes: true });
live.querySelector(".ql-go").click();
"""


class Marionette:
    """One session with a running Firefox."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE / 1e3)
        self._file, self._n = self._socket.makefile("rb"), 0
        self._packet()  # it says which protocol it speaks
        self("WebDriver:NewSession", capabilities={"alwaysMatch": {}})
        self("WebDriver:SetTimeouts", script=PATIENCE, pageLoad=PATIENCE)

    def __call__(self, command: str, **parameters: Any) -> Any:
        """What a command answers."""
        self._n += 1
        packet = json.dumps([0, self._n, command, parameters]).encode()
        self._socket.sendall(b"%d:%s" % (len(packet), packet))
        _, _, error, answer = self._packet()
        assert error is None, error
        return answer.get("value", answer)

    def _packet(self) -> Any:
        n = b""
        while (byte := self._file.read(1)) != b":":
            assert byte, "Firefox has closed the connection"
            n += byte
        return json.loads(self._file.read(int(n)))

    def close(self) -> None:
        self._file.close()
        self._socket.close()


@pytest.fixture
def firefox(tmp_path) -> Iterator[Marionette]:
    """A Firefox without windows, and without a network."""
    if FIREFOX is None:
        if os.environ.get("QALIGN_REQUIRE_FIREFOX") == "1":
            pytest.fail("QALIGN_REQUIRE_FIREFOX=1, but there is no Firefox")
        pytest.skip("no Firefox (Debian: apt-get install firefox-esr)")
    profile = tmp_path / "profile"
    profile.mkdir()
    lines = (f"user_pref({json.dumps(k)}, {json.dumps(v)});" for k, v in PREFERENCES.items())
    (profile / "user.js").write_text("\n".join(lines))
    arguments = [FIREFOX, "--headless", "--marionette", "--profile", str(profile), "about:blank"]
    with ExitStack() as stack:
        running = stack.enter_context(
            subprocess.Popen(
                arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=tmp_path
            )
        )
        stack.callback(running.kill)
        assert running.stdout is not None
        answers = []
        for line in running.stdout:
            answers.append(line)
            if "Listening on port" in line:
                break
        else:
            pytest.fail(f"Firefox ended: {''.join(answers)}")
        driver = Marionette(int(answers[-1].rsplit(maxsplit=1)[-1]))
        stack.callback(driver.close)
        yield driver


@pytest.mark.more
@pytest.mark.browser
@pytest.mark.parametrize("blocked", [False, True])
def test_an_exported_page_draws_in_firefox_or_says_why_not(firefox, tmp_path, blocked):
    text = page(RUN.read_text(encoding="utf-8"), live=True)
    if blocked:  # the control: a page whose policy lets no worker start
        assert "worker-src blob:" in text
        text = text.replace("worker-src blob:", "worker-src 'none'")
    (tmp_path / "live.html").write_text(text, encoding="utf-8")
    firefox("WebDriver:Navigate", url=(tmp_path / "live.html").as_uri())
    reply = firefox("WebDriver:ExecuteAsyncScript", script=DRAW, args=[12, 2])
    if blocked:
        assert reply["state"] == "failed"
        assert reply["text"].startswith("This browser cannot draw here: ")
        return
    tokens = [step.proposal.response.tokens for step in parse_trace(reply["text"]).steps]
    recorded = [step.proposal.response.tokens for step in load_trace(RUN).steps]
    assert reply["state"] == "finished"
    assert tokens == recorded[:13]
