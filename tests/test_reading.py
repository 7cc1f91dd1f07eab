"""What came from outside is read as what it should be, or refused before anything is reserved."""

from __future__ import annotations

import io
import json
import os
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from refusals import refusal

from components.watch.gallery import recorded_run
from qalign_core.errors import InvalidTrace
from qalign_core.record.trace import SetHeader
from qalign_core.registry import entries
from qalign_core.run import Run
from qalign_core.validation import (
    HUGE,
    LARGEST,
    LARGEST_FILE,
    are_ids,
    from_json,
    is_finite,
    is_whole,
    read_file,
    short_repr,
)
from qalign_study.commands import main
from qalign_study.measure.record import Record
from qalign_study.measure.report import Report
from qalign_study.measure.results import MAX_BYTES, Results, pack, unpack
from qalign_study.sets.folder import header_json, read_set_header

LONG = 10**400


def test_numbers_are_those_that_every_reader_holds() -> None:
    for value in (True, 1.5, "1", None, LONG, LARGEST + 1, float("nan")):
        assert not is_whole(value)
    assert is_whole(-LARGEST)
    assert not is_whole(-1, 0)
    for value in (True, "1", None, LONG, float("nan"), float("inf"), 1e308):
        assert not is_finite(value)
    assert is_finite(-HUGE)
    assert are_ids([0, 5], 6)
    for ids in ([6], [-1], [1.0], [True], "12", None, [LONG]):
        assert not are_ids(ids, 6)


NO_JSON = [
    *("[" * 100_000, "[" * 100_000 + "]" * 100_000, "{", b"\xff", b'"\xed\xa0\x80"', "\ufeff1"),
    *("NaN", "-Infinity", "1e400", "-1e999", "1" * 400 + ".0", "9" * 309, "-" + "9" * 5000),
    *('"\\ud800"', '"\\uDFFFx"', '{"\\ud83d": 1}', '["\\ude00\\ud83d"]', '"\ud800"'),
]
JSON = {
    "1e308": 1e308, "9" * 308: int("9" * 308), "-" + "9" * 308: -int("9" * 308), "1e-400": 0.0,
    '"\\ud83d\\ude00"': "😀", r'"\\ud83d"': r"\ud83d", b'"\xc3\xa9"': "é", '"é\\u00e9"': "éé",
}  # fmt: skip


@pytest.mark.parametrize("text", NO_JSON)
def test_what_is_no_json_is_one_kind_of_error(text: str | bytes) -> None:
    with refusal(ValueError, match=r".", most=100):
        from_json(text)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('{"steps": 1e400}', "steps = 1e400 is too large a number"),
        ('{"a": {"steps": [1, NaN]}}', "steps[1] = NaN is not a JSON number"),
        (
            '{"a": 1, "b": ["x", {"c": "\\ud800"}]}',
            "c contains half a character (a lone surrogate)",
        ),
        ('{"a": 1e400, "a": 1}', "1e400 is too large a number"),
        ('{"\\ud800": 1}', "a text contains half a character (a lone surrogate)"),
    ],
)
def test_the_sentence_names_the_key_of_a_value_that_json_cannot_hold(text, sentence) -> None:
    with pytest.raises(ValueError, match=r".") as raised:
        from_json(text)
    assert str(raised.value) == sentence


def test_a_long_key_of_a_long_list_is_not_written_out_for_each_value() -> None:
    body = '{"' + "k" * 60_000 + '": [' + "0, {}, " * 15_000 + "1e999]}"
    tracemalloc.start()
    with refusal(ValueError, "... = 1e999 is too large a number"):
        from_json(body)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 20 * 2**20  # of some 900 MB


@pytest.mark.parametrize("text", JSON)
def test_numbers_that_a_float_holds_and_whole_texts_are_read_from_json(text: str | bytes) -> None:
    assert from_json(text) == JSON[text]


def test_an_encrypted_archive_is_refused_in_words_of_our_own(tmp_path: Path) -> None:
    path = tmp_path / "locked.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.npy", b"x")
    content = bytearray(path.read_bytes())
    for sign, flags in ((b"PK\3\4", 6), (b"PK\1\2", 8)):  # of the file and of the list of files
        content[content.index(sign) + flags] |= 1
    path.write_bytes(content)
    with pytest.raises(InvalidTrace, match="it is encrypted; save it without a password"):
        unpack(path)


def test_a_value_of_any_size_is_shown_in_one_short_line() -> None:
    nested: list[object] = []
    for _ in range(100_000):
        nested = [nested]
    for value in (LONG, -LONG, "a\n" * 10**6, nested, [LONG] * 9, {"a": nested}):
        assert len(short_repr(value)) <= 40
        assert "\n" not in short_repr(value)


@pytest.mark.parametrize("option", ["--prompt", "--out", "--lm", "--prompts"])
def test_an_argument_that_is_not_utf_8_is_one_sentence(option: str, capsys) -> None:
    assert main(["run", option, os.fsdecode(b"caf\xe9")]) == 2
    output = capsys.readouterr().err
    assert output == "qalign: the argument 'caf\\udce9' is not UTF-8 text; use UTF-8\n"


# Results


def results(n: int = 8) -> Results:
    """Two problems with n samples and n steps each."""
    rng = np.random.default_rng(1)
    cost = np.tile(np.arange(3, dtype=np.int32), (n, 1)) + 9
    records = [
        Record(
            id=id_,
            answers=np.array(["1", "2"]),
            right=np.array([True, False]),
            pool_reward=rng.normal(size=n).astype(np.float32),
            pool_answer=rng.integers(-1, 2, n).astype(np.int32),
            pool_cost=cost,
            chain_reward=rng.normal(size=n).astype(np.float32),
            chain_answer=rng.integers(-1, 2, n).astype(np.int32),
            chain_cost=cost,
            chain_accepted=np.arange(n) % 2 == 0,
            chain_changed=np.ones(n, bool),
            chain_length=np.full(n, 7, np.int32),
        )
        for id_ in ("p", "q")
    ]
    header = SetHeader(Run(beta=1.0, chains=1, pool=n), problems=("p", "q"), lm_parameters=1)
    return Results(header, tuple(records))


def members(tmp_path, **changes) -> object:
    """A packed file with arrays, or bytes in their places, changed."""
    path = pack(results(), tmp_path / "good.zip")
    with zipfile.ZipFile(path) as archive:
        held = {name: archive.read(name) for name in archive.namelist()}
    changed = tmp_path / "changed.zip"
    with zipfile.ZipFile(changed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in held.items():
            value = changes.get(name.removesuffix(".npy"), content)
            if callable(value):
                value = value(np.load(io.BytesIO(content)))
            if not isinstance(value, bytes):
                buffer = io.BytesIO()
                np.save(buffer, value, allow_pickle=False)
                value = buffer.getvalue()
            archive.writestr(name, value)
    return changed


def npy(shape: tuple[int, ...], content: bytes = b"", dtype: str = "<f4") -> bytes:
    """An array file whose header says anything."""
    buffer = io.BytesIO()
    header = {"descr": dtype, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(buffer, header)
    return buffer.getvalue() + content


def header_with(**changes):
    """The header with values changed."""
    return lambda text: np.array(json.dumps({**json.loads(str(text)), **changes}))


def test_what_was_packed_is_read_again(tmp_path) -> None:
    report = Report({"set": results()}).json()
    assert Report({"set": unpack(members(tmp_path))}).json() == report


WRONG = {
    "745 GiB": {"pool_reward": npy((200_000_000_000,))},
    "negative sizes": {"pool_reward": npy((-4, -4), b"0" * 64)},
    "objects": {"pool_reward": npy((1,), b"0" * 8, "|O")},
    "no array": {"pool_reward": b"\x93NUMPY"},
    "no header": {"header": np.array("[" * 100_000)},
    "a header of another kind": {"header": np.zeros(3)},
    "counts too large": {"pool_reward_n": np.array([2**40, 8])},
    "counts below 0": {"pool_reward_n": np.array([-8, 24])},
    "counts of others": {"chain_cost_n": np.array([7, 9])},
    "counts as text": {"answers_n": np.array(["2", "2"])},
    "counts of one": {"right_n": np.array([4])},
    "short rewards": {"pool_reward": lambda a: a[:-1], "pool_reward_n": np.array([8, 7])},
    "more samples than were drawn": {"header": header_with(pool=7)},
    "rewards in two axes": {"pool_reward": lambda a: a[:, None]},
    "rewards as text": {"chain_reward": lambda a: a.astype(str)},
    "rewards as whole numbers": {"chain_reward": lambda a: a.astype(int)},
    "rewards that are NaN": {"pool_reward": lambda a: np.where(a > 0, np.nan, a)},
    "rewards without end": {"chain_reward": lambda a: np.where(a > 0, np.inf, a)},
    "answers that are none": {"pool_answer": lambda a: a + 1},
    "costs below 0": {"pool_cost": lambda a: a - 99},
    "costs with a fraction": {"chain_cost": lambda a: a + 0.5},
    "costs of one count": {"chain_cost": lambda a: a[:, :1]},
    "lengths of 0": {"chain_length": lambda a: a * 0},
    "no initial state": {"chain_accepted": lambda a: a & False},
    "a problem twice": {"id": np.array(["p", "p"])},
    "a problem of others": {"id": np.array(["p", "r"])},
    "one id for all": {"id": np.array("p")},
    "chains of nobody": {"n_chains": np.array([0, 3])},
    "chains without end": {"n_chains": np.array([2**40, 1])},
    "prompts of one": {"prompt": np.array([1, 2])},
    "prompts below 0": {"prompt": np.array([[-5, 0], [0, 0]])},
    "ids as numbers": {"id": np.array([[1], [2]])},
    **{
        f"{name} = {str(value)[:20]}": {"header": header_with(**{name: value})}
        for name, value in (
            ("pool", True), ("pool", "8"), ("pool", LONG), ("pool", -1), ("lm_parameters", 1.5),
            ("beta", "1"), ("beta", LONG), ("beta", True), ("seed", None), ("seed", [[7]]),
            ("problems", [1]), ("problems", {"p": 1}), ("problems", "pq"), ("lm", ["lm"]),
            ("task", 7), ("extractor", 1), ("temperature", {"a": [1]}), ("temperature", LONG),
            ("max_new_tokens", 1.5), ("version", {}), ("version", True), ("version", 99),
        )
    },
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_results_that_are_wrong_inside_are_refused_in_one_sentence(tmp_path, case) -> None:
    with refusal(InvalidTrace, "changed.zip") as raised:
        unpack(members(tmp_path, **WRONG[case]))
    assert "allocate" not in str(raised.value)  # its size was looked at, not tried
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 400


def test_a_small_archive_that_unpacks_to_gigabytes_is_refused_before_it_is_read(tmp_path) -> None:
    path = tmp_path / "bomb.zip"
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("pool_reward.npy", "w", force_zip64=True) as file,
    ):
        for _ in range(MAX_BYTES // 2**20 + 1):
            file.write(bytes(2**20))
    assert path.stat().st_size < 2**20
    tracemalloc.start()
    with pytest.raises(InvalidTrace, match=r"bomb\.zip \(it unpacks to"):
        unpack(path)
    assert tracemalloc.get_traced_memory()[1] < 4 * 2**20
    tracemalloc.stop()


def test_a_header_survives_its_text() -> None:
    header = results().header
    assert read_set_header(header_json(header), "here") == header


# Files that have no end, no writer or no place in memory.

READERS: dict[str, Any] = {
    "--task": lambda path: main(["run", "--task", path]),
    "--prompts": lambda path: main(["run", "--prompts", path, "--out", f"{path}.out"]),
    "--data": lambda path: main(["evaluate", "--task", "gsm8k", "--data", path, "--plan"]),
    "export": lambda path: main(["export", path, "--html", f"{path}.html"]),
    "report": lambda path: main(["report", path]),
    "registry": lambda path: main(["run", "--lm", "another", "--prompt", "a"]),
}
KINDS_OF_FILE = ["/dev/zero", "/dev/full", "pipe", "sparse"]


def a_file(kind: str, folder: Path) -> str:
    """A file that nobody may read as a whole."""
    if kind.startswith("/"):
        return kind
    path = folder / "file"
    if kind == "pipe":
        os.mkfifo(path)
    else:
        with path.open("wb") as file:
            file.truncate(LARGEST_FILE + 1)  # it takes nothing of the disk
    return str(path)


@pytest.mark.parametrize("kind", KINDS_OF_FILE)
@pytest.mark.parametrize("reader", READERS)
def test_every_reader_refuses_what_is_no_file_of_a_size(
    reader, kind, tmp_path, capsys, monkeypatch
):
    path = a_file(kind, tmp_path)
    if reader == "registry":
        monkeypatch.setenv("QALIGN_REGISTRY", path)
        entries.cache_clear()
    try:
        assert READERS[reader](path) == 2
    finally:
        entries.cache_clear()
    sentence = capsys.readouterr().err.splitlines()[-1]
    assert sentence.startswith("qalign: ")
    assert ("it has more than" if kind == "sparse" else "it is not a regular file") in sentence
    assert len(sentence) < 400


@pytest.mark.parametrize("kind", ["/dev/zero", "pipe", "sparse"])
def test_the_app_opens_no_such_trace(kind, tmp_path):
    with pytest.raises(InvalidTrace, match=r"it has more than|it is not a regular file"):
        recorded_run(Path(a_file(kind, tmp_path)))


def test_a_file_is_read_as_a_whole_or_refused(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"a" * 10)
    assert read_file(path, 10) == read_file(str(path)) == b"a" * 10
    with pytest.raises(OSError, match="it has more than 9 bytes"):
        read_file(path, 9)
    (tmp_path / "link").symlink_to(path)
    assert read_file(tmp_path / "link") == b"a" * 10
    (tmp_path / "turned").symlink_to("/dev/zero")
    with pytest.raises(OSError, match="it is not a regular file"):
        read_file(tmp_path / "turned")
