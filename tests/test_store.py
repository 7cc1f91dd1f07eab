"""A trace on disk outlives its writer, belongs to one at a time, and nothing else is touched."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from finite import TableReward, letters
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from refusals import refusal
from toys import ToyLM, ToyRM

from qalign_core import collect, load_trace, save_trace
from qalign_core.errors import InvalidSetting, InvalidTrace
from qalign_core.record.format import header_line
from qalign_core.record.runner import make_header, record
from qalign_core.record.store import open_trace, read_trace, write_whole
from qalign_core.run import Run
from qalign_study.commands import main, shared

LM, RM = letters(), TableReward()
RUN = Run("½ x", extractor="text", beta=0.8, steps=4, seed=5, pool=4)
HEADER = make_header(LM, RM, RUN)


def go_on(path, run: Run = RUN) -> None:
    """Draw a run into a file, or what it lacks."""
    with open_trace(path, make_header(LM, RM, run)) as file:
        assert file is not None
        for item in collect(record(LM, RM, run, known=file.known)):
            file.write(item.line)


def lines_of(path) -> list[bytes]:
    """All lines but the first, which has the date, in an order of their own."""
    return sorted(path.read_bytes().splitlines()[1:])


@pytest.fixture
def path(tmp_path):
    go_on(tmp_path / "run.jsonl")
    return tmp_path / "run.jsonl"


def test_cut_anywhere_it_goes_on_to_the_same_trace(path, tmp_path) -> None:
    content, whole = path.read_bytes(), lines_of(path)
    cut = tmp_path / "cut.jsonl"
    ends = [at + k for at, byte in enumerate(content) if byte == 10 for k in (0, 1, 2)]
    for at in sorted({*range(0, len(content), 31), *ends[:-1]}):
        cut.write_bytes(content[:at])
        go_on(cut)
        assert lines_of(cut) == whole
        assert load_trace(cut).end == ("finished", "")


def test_what_is_finished_is_left_as_it_is(path) -> None:
    before = path.read_bytes()
    go_on(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "content",
    [
        b"somebody's notes",
        b"{}\n",
        b"[" * 9999,
        b"\xff\xfe\x00",
        b'{"type":"header","prompt":"a table of mine"}\n',
        # without a newline too: a first line that was cut off is known by its beginning
        b'{"type":"header","version":2,"prompt":"mine"',
        b'{"id": "p1"}\n{"id": ',
        header_line(make_header(LM, RM, RUN.with_changes(beta=0.9))).encode(),
        header_line(make_header(LM, RM, RUN.with_changes(beta=0.9))).encode()[:-1],
        header_line(HEADER).encode() + b"and notes\n",
    ],
)
def test_a_file_that_is_not_this_runs_is_refused_and_never_changed(tmp_path, content) -> None:
    path = tmp_path / "run.jsonl"
    path.write_bytes(content)
    with refusal(InvalidSetting, match=r"give another path"):
        go_on(path)
    assert path.read_bytes() == content


@settings(
    derandomize=True,
    max_examples=200,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(at=st.integers(0, 4000), to=st.integers(0, 60), other=st.binary(max_size=40))
def test_whatever_is_in_a_file_it_is_refused_as_it_is_or_kept_to_its_last_whole_line(
    path, at, to, other
) -> None:
    content = path.read_bytes()
    spoilt = path.with_name("spoilt.jsonl")
    spoilt.write_bytes(content[:at] + other + content[at + to :] if at % 3 else other)
    before = spoilt.read_bytes()
    whole = before[: before.rfind(b"\n") + 1]
    refused = ""
    try:
        with open_trace(spoilt, HEADER):
            pass
    except InvalidSetting as error:
        refused = str(error)
    assert "\n" not in refused
    kept = before if refused else whole or header_line(HEADER).encode()
    assert spoilt.read_bytes() == kept


@pytest.mark.parametrize(
    ("changes", "differing"),
    [
        ({"beta": 0.9}, "beta: 0.8, now 0.9"),
        ({"steps": 3}, "4 steps are in it, and 3 were asked for"),
        ({"prompt": "y"}, "prompt"),
        ({"matched": "pool"}, "matched: 'none', now 'pool'"),
    ],
)
def test_the_trace_of_another_run_is_named_by_what_differs(path, changes, differing) -> None:
    before = path.read_bytes()
    with pytest.raises(InvalidSetting, match=differing):
        go_on(path, RUN.with_changes(**changes))
    assert path.read_bytes() == before


MORE = {
    "steps": ({"steps": 2}, {"steps": 7}),
    "samples": ({"pool": 1}, {"pool": 6}),
    "chains": ({"chains": 1}, {"chains": 3}),
    "all of them": ({"steps": 2, "pool": 1}, {"steps": 5, "pool": 6, "chains": 2}),
    "a pool that costs as much": (
        {"matched": "pool"},
        {"matched": "pool", "steps": 30, "pool": 99},
    ),
    "a chain that costs as much": (
        {"matched": "chain"},
        {"matched": "chain", "pool": 9, "steps": 99},
    ),
}


@pytest.mark.parametrize("name", MORE)
def test_a_longer_run_goes_on_from_the_shorter_one_to_what_it_would_have_been(name, tmp_path):
    short, long = (RUN.with_changes(**changes) for changes in MORE[name])
    go_on(tmp_path / "grown.jsonl", short)
    before = (tmp_path / "grown.jsonl").read_bytes()
    go_on(tmp_path / "grown.jsonl", long)
    go_on(tmp_path / "whole.jsonl", long)
    assert (tmp_path / "grown.jsonl").read_bytes().startswith(before)
    grown, whole = load_trace(tmp_path / "grown.jsonl"), load_trace(tmp_path / "whole.jsonl")
    assert (grown.chains, grown.pool, grown.end) == (whole.chains, whole.pool, whole.end)
    assert len(grown.steps) + len(grown.pool) > before.count(b"\n") - 2
    assert replace(grown.header, created="") == replace(whole.header, created="")
    after = (tmp_path / "grown.jsonl").read_bytes()
    with pytest.raises(InvalidSetting, match="may be more"):
        go_on(tmp_path / "grown.jsonl", short)
    assert (tmp_path / "grown.jsonl").read_bytes() == after


def test_a_trace_belongs_to_one_at_a_time(path) -> None:
    with open_trace(path, HEADER) as first, open_trace(path, HEADER) as second:
        assert first is not None
        assert second is None
    with open_trace(path, HEADER) as again:
        assert again is not None


def test_a_disk_that_knows_no_locks_is_no_other_process(tmp_path, monkeypatch) -> None:
    import fcntl

    def refuse(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(InvalidSetting, match=r"cannot be locked \(No locks available\)"):
        go_on(tmp_path / "run.jsonl")


@contextmanager
def room(n_bytes: int) -> Iterator[None]:
    """No file of this process may grow beyond so many bytes, as on a disk that is full."""
    before, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (before, most))
        signal.signal(signal.SIGXFSZ, ignored)


def test_on_a_full_disk_what_was_written_is_kept_and_gone_on_with(path, tmp_path) -> None:
    full, content = tmp_path / "full.jsonl", path.read_bytes()
    for n_bytes in range(0, len(content), 97):
        full.unlink(missing_ok=True)
        with (
            room(n_bytes),
            pytest.raises(
                InvalidSetting, match=r"cannot be written \(File too large\); free some space"
            ),
        ):
            go_on(full)
        assert full.stat().st_size <= n_bytes
        go_on(full)
        assert lines_of(full) == lines_of(path)


COMMANDS = {
    "run": "run --steps 2 --out {}/a.jsonl",
    "compare": "compare --steps 2 --pool 3 --out {}/a.jsonl",
    "run of a set": "run --prompts in_distribution --problems 2 --steps 2 --out {}",
    "evaluate": "evaluate --problems 2 --budget 2 --out {}",
}


@pytest.mark.parametrize("name", COMMANDS)
def test_on_a_full_disk_every_command_says_one_sentence(name, tmp_path, capfd, monkeypatch) -> None:
    monkeypatch.setattr(shared, "load_language_model", lambda *_, **__: ToyLM())
    monkeypatch.setattr(shared, "load_reward_model", lambda *_, **__: ToyRM())
    command = COMMANDS[name].format(tmp_path).split()
    assert main([*command, "--seed", "3"]) == 0
    whole = {p.name: p.read_bytes().splitlines()[1:] for p in tmp_path.glob("*.jsonl")}
    for p in tmp_path.glob("[a0]*.jsonl"):  # cut, so that there is something to write
        os.truncate(p, p.stat().st_size * 2 // 3)
    kept = {p: p.read_bytes().rpartition(b"\n")[0] for p in tmp_path.iterdir()}
    capfd.readouterr()
    most = max(len(content) for content in kept.values())
    with room(most // 2):
        assert main([*command, "--seed", "3"]) == 2
    sentence = capfd.readouterr().err.strip().splitlines()[-1]
    assert "cannot be written (File too large); free some space" in sentence
    assert all(p.read_bytes().startswith(content) for p, content in kept.items())
    assert main([*command, "--seed", "3"]) == 0
    now = {p.name: p.read_bytes().splitlines()[1:] for p in tmp_path.glob("*.jsonl")}
    assert {name: sorted(lines) for name, lines in now.items()} == {
        name: sorted(lines) for name, lines in whole.items()
    }


@pytest.fixture
def ctrl_c_is_heard() -> Iterator[None]:
    """A shell starts what runs in its background with ctrl-C ignored: the tests too."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("name", COMMANDS)
def test_after_ctrl_c_a_command_keeps_what_it_drew_and_goes_on(
    name, tmp_path, capsys, monkeypatch, ctrl_c_is_heard
) -> None:
    class Interrupted(ToyRM):
        left = 3

        async def score(self, prompt, response):
            self.left -= 1
            if self.left == 0:
                signal.raise_signal(signal.SIGINT)
                await asyncio.sleep(0)
            return await super().score(prompt, response)

    def contents(folder):
        files = {p.name: p.read_bytes().splitlines()[1:] for p in folder.glob("[a0]*.jsonl")}
        return {
            n: sorted(line for line in lines if b'"end"' not in line) for n, lines in files.items()
        }

    rms = [Interrupted(), ToyRM(), ToyRM()]
    monkeypatch.setattr(shared, "load_language_model", lambda *_, **__: ToyLM())
    monkeypatch.setattr(shared, "load_reward_model", lambda *_, **__: rms.pop(0))
    command = COMMANDS[name].format(tmp_path / "stopped").split()
    (tmp_path / "stopped").mkdir()
    assert main(command) == 130
    assert "qalign: stopped; what was sampled is kept" in capsys.readouterr().err
    if "a.jsonl" in COMMANDS[name]:
        assert load_trace(tmp_path / "stopped" / "a.jsonl").end == ("stopped", "")
    kept = contents(tmp_path / "stopped")
    assert main(command) == 0
    now = contents(tmp_path / "stopped")
    assert all(set(lines) <= set(now[n]) for n, lines in kept.items())
    (tmp_path / "whole").mkdir()
    assert main(COMMANDS[name].format(tmp_path / "whole").split()) == 0
    assert now == contents(tmp_path / "whole")


def test_what_is_written_whole_is_there_as_a_whole_or_not_at_all(path) -> None:
    before = path.read_bytes()
    with room(10), pytest.raises(InvalidSetting, match="File too large"):
        write_whole(path, b"x" * 99)
    with room(10), pytest.raises(InvalidSetting, match="File too large"):
        save_trace(load_trace(path), path)
    assert path.read_bytes() == before
    assert [each.name for each in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("n_bytes", [1, 244, 245, 250, 255])
@pytest.mark.parametrize("character", ["x", "\u00e9"])
def test_what_is_written_whole_may_have_any_name_that_a_file_can_have(tmp_path, n_bytes, character):
    size = len(character.encode())
    name = character * (n_bytes // size) + "x" * (n_bytes % size)
    write_whole(tmp_path / name, b"old")
    write_whole(tmp_path / name, b"new")
    assert {each.name: each.read_bytes() for each in tmp_path.iterdir()} == {name: b"new"}


def test_a_file_is_on_the_disk_before_it_takes_its_name(tmp_path, monkeypatch) -> None:
    done, replace = [], Path.replace
    monkeypatch.setattr(os, "fsync", lambda descriptor: done.append("written"))
    monkeypatch.setattr(Path, "replace", lambda *both: done.append("named") or replace(*both))
    write_whole(tmp_path / "a", b"x")
    assert done == ["written", "named"]
    assert (tmp_path / "a").read_bytes() == b"x"


@pytest.mark.parametrize("place", ["/dev/full", "/dev/zero", "/dev/null", "/proc", "/proc/x"])
def test_what_is_no_file_is_refused_in_one_sentence(place) -> None:
    with pytest.raises(InvalidSetting, match=r"^/\S+ (is not a file|cannot be written)[^\n]*$"):
        go_on(Path(place))


def test_a_trace_that_still_grows_is_read_by_its_whole_lines(path, tmp_path) -> None:
    content = path.read_bytes()
    grown = tmp_path / "grown.jsonl"
    assert read_trace(grown) is None
    for at in range(0, len(content), 7):
        grown.write_bytes(content[:at])
        trace = read_trace(grown)
        n = content[:at].count(b"\n")
        assert (trace is None) == (n == 0)
        if trace is not None:
            n_ends = trace.end is not None
            assert len(trace.steps) + len(trace.pool) + n_ends == n - 1


def test_what_is_no_trace_is_named(tmp_path) -> None:
    (tmp_path / "odd").write_bytes(b"\xff\xfe\n")
    for name in ("odd", "."):
        with pytest.raises(InvalidTrace, match=str(tmp_path)):
            read_trace(tmp_path / name)
