"""What is taken home: a page that plays a trace from a disk, in a frame, in a notebook."""

from __future__ import annotations

import html
import json
import os
import re
import runpy
import shlex
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from browser import ROOT
from refusals import refuse_command
from traces import HOSTILE, hostile_trace, toy_trace

from components.site import write_site
from components.watch.gallery import gallery
from qalign_core.errors import InvalidTrace
from qalign_core.record.format import parse_trace
from qalign_core.record.store import write_whole
from qalign_core.run import Run, Sampling
from qalign_study.commands import main, read
from qalign_study.commands.shared import run_of
from qalign_study.export.command import command_of
from qalign_study.export.player import page, page_around, show
from qalign_study.export.scripts import as_data
from qalign_study.lessons import facts

API = "document.querySelector('.qp').qalign"
PLAYING = ".qp[data-t]:not([data-t='0'])"
"""What is there once the first step is: the page's policy forbids `wait_for_function`, an eval."""
RECORDED = ROOT / "assets" / "runs" / "watch.jsonl"
BREAKING = "</script><!-- <script> --> \u2028 \u2029 ]]> &lt; \u202e"


class Scripts(HTMLParser):
    """The elements of a page, and what is in its script elements."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.opened: list[str] = []
        self.scripts: list[str] = []
        self.inside = False
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.opened.append(tag)
        self.inside = tag == "script"
        if self.inside:
            self.scripts.append("")
            assert "src" not in dict(attributes)

    def handle_endtag(self, tag):
        self.inside = False

    def handle_data(self, data):
        if self.inside:
            self.scripts[-1] += data


def breaking_trace() -> str:
    """A trace whose prompt and texts try to end the element that they stand in, unescaped."""
    lines = [json.loads(line) for line in hostile_trace().splitlines()]
    lines[0]["prompt"] = BREAKING
    for line in lines[1:-1]:
        line["pieces"][0] = BREAKING
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)


def large_trace() -> str:
    """A trace with texts of a megabyte each, with and without places to break a line."""
    lines = [json.loads(line) for line in hostile_trace().splitlines()]
    lines[0]["prompt"] = f"{HOSTILE[0]} " * 25_000
    for line in lines[1:-1]:
        line["pieces"][0] = "x" * 2**20
    return "".join(json.dumps(line).replace("<", "\\u003c") + "\n" for line in lines)


@pytest.mark.parametrize("make", [toy_trace, hostile_trace, breaking_trace])
def test_the_trace_in_a_page_is_the_trace(make):
    text = make()
    inside = Scripts(page(text)).scripts
    assert len(inside) == 3  # the trace, the player, what starts it
    assert parse_trace(inside[0]) == parse_trace(text)


def test_title_and_caption_are_texts():
    markup = page(toy_trace(2), title="</title><img src=x>", caption="<script>hit</script> & more")
    assert "img" not in Scripts(markup).opened
    assert len(Scripts(markup).scripts) == 3
    assert "&lt;script&gt;hit&lt;/script&gt; &amp; more" in markup


def test_a_page_is_300_kb_or_less_beside_its_trace_and_names_no_host():
    text = RECORDED.read_text("utf-8")
    markup = page(text)
    assert len(markup.encode()) - len(as_data(text).encode()) <= 300_000
    around = "".join(page_around(parse_trace(text).header))
    assert set(re.findall(r"https?://[^\s\"')]+", around)) <= {"http://www.w3.org/2000/svg"}


def test_a_page_of_what_a_killed_run_left_plays_its_whole_lines():
    text = toy_trace(8)
    assert Scripts(page(text[:-40])).scripts[0] == text[: text[:-40].rindex("\n") + 1]
    with pytest.raises(InvalidTrace, match="empty"):
        page("")


RUNS = [
    Run(prompt="Tom has 5 eggs. How many?"),
    Run(prompt="-5 + 3?", beta=0.25, steps=8, chains=4, seed=0, pool=0, reference="-2"),
    Run(prompt='Say "it\'s" for $5.', lm="smollm2-135m", rm="0.7*mood + 0.3*plain",
        temperature=0.7, max_new_tokens=192, extractor=None),
    Run(prompt="Write one sentence.", extractor=None, matched="pool", pool=4096, burn_in=8),
]  # fmt: skip


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.prompt)
def test_the_command_of_a_run_asks_for_that_run(run):
    words = shlex.split(command_of(run))
    assert words[0] == "qalign"
    options = read(words[1:])
    parsed = run_of(options)[0].with_changes(matched=run.matched)
    options_set = {name for name in Sampling.settings() if getattr(options, name) is not None}
    for name in Run.kinds():
        if name not in Sampling.settings() or name in options_set:
            assert getattr(parsed, name) == getattr(run, name), name
    # the sampling that goes without saying is the model's own: 128 tokens for one of the hub
    assert ("max_new_tokens" in options_set) == (run.lm != "embedded")


def test_the_command_writes_the_page_and_says_what_is_wrong_in_one_sentence(tmp_path, capsys):
    out = tmp_path / "page.html"
    assert main(["export", str(RECORDED), "--html", str(out), "--title", "One chain"]) == 0
    assert out.read_text("utf-8") == page(RECORDED.read_text("utf-8"), title="One chain")
    for trace, target in (
        (ROOT / "README.md", out),
        (tmp_path / "none.jsonl", out),
        (RECORDED, out / "page.html"),
    ):
        capsys.readouterr()
        refuse_command(
            capsys,
            ["export", str(trace), "--html", str(target)],
            (target if trace == RECORDED else trace).name,
        )


FULL = """
import sys
from pathlib import Path
from qalign_study.commands import main

target, plain = map(Path, sys.argv[2:])
assert main(["export", sys.argv[1], "--html", str(target)]) == 2
try:
    plain.write_text("new" * 10_000)  # the control
except OSError:
    print(plain.stat().st_size)
"""


def test_a_page_is_written_as_a_whole_or_not_at_all(tmp_path):
    target, plain = tmp_path / "made.html", tmp_path / "plain.html"
    for path in (target, plain):
        path.write_text("what was there before")
    limited = f'ulimit -f 8; exec {shlex.quote(sys.executable)} -c {shlex.quote(FULL)} "$@"'
    places = [str(each) for each in (RECORDED, target, plain)]
    result = subprocess.run(
        ["bash", "-c", limited, "bash", *places],
        cwd=ROOT, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert f"{target} cannot be written (File too large)" in result.stderr
    assert target.read_text("utf-8") == "what was there before"
    assert result.stdout.split() == [f"{plain.stat().st_size}"]
    assert "what was there" not in plain.read_text("utf-8")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["made.html", "plain.html"]


def test_a_page_goes_through_a_link_and_into_a_pipe(tmp_path):
    (tmp_path / "old.html").write_text("old")
    (tmp_path / "link.html").symlink_to("old.html")
    write_whole(tmp_path / "link.html", b"new")
    assert (tmp_path / "link.html").is_symlink()
    assert (tmp_path / "old.html").read_text("utf-8") == "new"
    os.mkfifo(pipe := tmp_path / "pipe")
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_whole(pipe, b"page")
    assert os.read(reader, 9) == b"page"
    os.close(reader)
    assert pipe.is_fifo()


def test_a_notebook_shows_a_trace_in_a_frame_of_its_own():
    trace = parse_trace(toy_trace(4))
    frame = show(trace)._repr_html_()
    (inside,) = re.findall(r'srcdoc="([^"]*)"', frame)
    assert 'sandbox="allow-scripts"' in frame
    assert parse_trace(Scripts(html.unescape(inside)).scripts[0]) == trace


# in a browser

MAKES = [hostile_trace, breaking_trace, pytest.param(large_trace, marks=pytest.mark.more)]
"""Traces in what holds a page: a large one is read by the same script there."""


@pytest.mark.asyncio(loop_scope="session")
async def test_a_page_plays_from_a_disk_with_no_network(visit, tmp_path):
    path = tmp_path / "page.html"
    path.write_text(page(RECORDED.read_text("utf-8"), title="One chain"), encoding="utf-8")
    opened_page = await visit(path.as_uri())
    await opened_page.locator(PLAYING).wait_for()
    assert opened_page.hosts == {""}  # nothing but the file
    assert await opened_page.inner_text("h1") == "One chain"
    wider = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert await opened_page.evaluate(wider) <= 0


@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize("make", [hostile_trace, breaking_trace, large_trace])
async def test_hostile_texts_do_nothing_in_a_page(visit, tmp_path, make):
    path = tmp_path / "page.html"
    path.write_text(page(make(), title=HOSTILE[0], caption=HOSTILE[3]), encoding="utf-8")
    opened_page = await visit(path.as_uri())
    await opened_page.evaluate(f"{API}.seek(2)")
    assert await opened_page.evaluate("window.hit") is None
    assert await opened_page.locator("img").count() == 0
    assert opened_page.hosts == {""}


@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize("make", MAKES)
async def test_hostile_texts_do_nothing_in_a_cell_of_a_notebook(visit, tmp_path, make):
    path = tmp_path / "notebook.html"
    cell = show(parse_trace(make())).markup
    path.write_text(f'<!doctype html><title>Cell</title><i class="qp"></i>{cell}', "utf-8")
    opened_page = await visit(path.as_uri())
    inside = opened_page.frames[1]
    await inside.locator(".qp[data-t]").wait_for()
    await inside.evaluate(f"{API}.seek(2)")
    for frame in (opened_page, inside):
        assert await frame.evaluate("window.hit") is None
        assert await frame.locator("img").count() == 0
    assert opened_page.hosts == {""}


@pytest.mark.filterwarnings("ignore:.*found in sys.modules:RuntimeWarning")
@pytest.mark.parametrize("module", ["components.site", "components.watch.gallery"])
@pytest.mark.parametrize(("options", "status"), [([], 2), (["--help"], 0), (["a", "b"], 2)])
def test_a_command_that_writes_pages_needs_one_folder(
    module, options, status, monkeypatch, tmp_path, capsys
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [module, *options])
    with pytest.raises(SystemExit) as end:
        runpy.run_module(module, run_name="__main__")
    assert end.value.code == status
    assert "usage" in "".join(capsys.readouterr())
    assert [*tmp_path.iterdir()] == []


@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize("make", MAKES)
async def test_a_hostile_run_of_the_gallery_does_nothing_in_the_site(
    visit, tmp_path, monkeypatch, make
):
    (tmp_path / "odd.jsonl").write_text(make(), encoding="utf-8")
    watch = gallery()["watch"]
    hostile = replace(watch, name="odd", title=HOSTILE[0], summary=HOSTILE[3])
    monkeypatch.setitem(facts.RUNS, "odd", tmp_path / "odd.jsonl")
    for module in ("components.site", "components.watch.gallery"):
        monkeypatch.setattr(f"{module}.gallery", lambda: {"watch": watch, "odd": hostile})
    paths = {path.stem: path for path in write_site(tmp_path / "site")}
    index = Scripts(paths["index"].read_text("utf-8"))
    assert index.scripts == []
    assert "img" not in index.opened
    opened_page = await visit(paths["odd"].as_uri())
    await opened_page.evaluate(f"{API}.seek(2)")
    assert await opened_page.evaluate("window.hit") is None
    assert await opened_page.locator("img").count() == 0
    assert opened_page.hosts == {""}


@pytest.mark.asyncio(loop_scope="session")
async def test_a_page_plays_in_a_frame_that_may_do_nothing_else(visit, tmp_path):
    path = tmp_path / "notebook.html"
    frame = show(parse_trace(toy_trace(8))).markup
    path.write_text(f'<!doctype html><title>Cell</title><i class="qp"></i>{frame}', "utf-8")
    opened_page = await visit(path.as_uri(), width=900, moving=True)
    inside = opened_page.frames[1]
    await inside.locator(PLAYING).wait_for()
    await inside.get_by_role("button", name="Pause").click()
    assert not await inside.evaluate(f"{API}.position.playing")
