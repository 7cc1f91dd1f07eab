"""A GPU that is lent for a run: asked for where it is needed, and the run is the same.

No GPU and no ZeroGPU hardware is here: `tests/zero_gpu/spaces.py` stands in for the package.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from house import run_script
from tiny_models import save

from components.session.gpu import draw, on_gpu
from components.session.offer import needs_gpu

pytestmark = pytest.mark.more
TESTS = Path(__file__).resolve().parent
HARDWARE = (
    f"sys.path.insert(0, {str(TESTS / 'zero_gpu')!r})",
    "sys.modules['spaces'] = type('spaces', (), {'GPU': staticmethod(lambda function: function)})",
)
"""The code that provides the package: of ZeroGPU, and of any other."""


@pytest.fixture(scope="module")
def replies(tmp_path_factory):
    """What `gpu_client.py` said on ZeroGPU hardware, and with the package on any other."""
    folder = save(tmp_path_factory.mktemp("lm"), "llama")
    client = TESTS / "gpu_client.py"
    texts = [run_script(TESTS.parent, client, str(folder), first=code) for code in HARDWARE]
    return [json.loads(text.splitlines()[-1]) for text in texts]


def steps_of(run):
    lines = [json.loads(line) for line in run["text"].splitlines()]
    return [line for line in lines if line["type"] == "step"]


def test_a_run_that_needs_a_gpu_is_drawn_whole_in_the_process_that_has_it(replies):
    lent, here = replies
    assert lent["tiny"]["forked"] == 1
    assert "tiny" not in lent["tiny"]["loaded"]
    assert lent["tiny"]["status"]["state"] == "finished"
    assert "tiny" in here["tiny"]["loaded"]
    assert len(steps_of(here["tiny"])) == 5
    assert steps_of(lent["tiny"]) == steps_of(here["tiny"])


def test_a_process_forked_from_one_with_engines_loads_its_own(replies):
    lent, here = replies
    assert "tiny" in lent["again"]["loaded"]
    assert steps_of(lent["again"]) == steps_of(here["tiny"])


def test_a_comparison_comes_back_too(replies):
    assert replies[0]["compared"] == [5, 5]


def test_the_embedded_models_never_ask_for_a_gpu(replies):
    assert replies[0]["embedded"]["forked"] == 0
    assert replies[0]["embedded"]["status"]["state"] == "finished"
    assert not needs_gpu("embedded", "0.7*embedded + 0.3*judge:embedded")
    assert needs_gpu("smollm2-135m", "embedded")
    assert needs_gpu("embedded", "0.5*embedded + judge:smollm2-135m")


def test_what_goes_wrong_there_is_the_same_sentence_here(replies):
    assert "shorten the prompt" in replies[0]["too long"]["status"]["text"]


def test_a_refused_gpu_is_said_in_one_sentence(replies):
    status = replies[0]["quota"]["status"]
    assert status["text"] == "Failed: no GPU for this run: You have exceeded your ZeroGPU quota"


def test_stop_gives_the_gpu_back(replies):
    assert replies[0]["over"]


def test_elsewhere_the_package_changes_nothing(replies):
    assert replies[0]["decorated"]
    assert not replies[1]["decorated"]


def test_without_the_package_a_function_stays_what_it_is(monkeypatch):
    monkeypatch.setitem(sys.modules, "spaces", None)
    assert on_gpu(draw) is draw
