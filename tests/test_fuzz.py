"""Whatever is sent, opened or named: it is read, or a `QAlignError` of one sentence comes out."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from typing import Any

import numpy as np
import pytest
from finite import TableReward, letters
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_reading import results
from tiny_models import tokenizer

from qalign_core import collect, run_chains
from qalign_core.decide.answers.extraction import EXTRACTORS
from qalign_core.decide.answers.graders import get_grader
from qalign_core.errors import ModelLoadError, QAlignError
from qalign_core.models.chat import Text
from qalign_core.models.loading import n_stored
from qalign_core.models.served import language_model as served_lm
from qalign_core.models.served.client import Card, ModelEndpoint, Server, TransientError, read_card
from qalign_core.record.format import parse_trace, trace_lines
from qalign_core.record.store import load_trace
from qalign_core.record.trace import Trace, TraceHeader
from qalign_core.registry import _read_own
from qalign_core.rewards.names import reward_named
from qalign_core.rewards.served import ServedRewardModel
from qalign_core.run import Limits, Run
from qalign_study.measure.results import pack, unpack
from qalign_study.sets.folder import header_json, read_set_header
from qalign_study.sets.problem_sets import parse_problems, problem_line

SEEDED = settings(
    derandomize=True,
    database=None,
    max_examples=100,
    suppress_health_check=list(HealthCheck),
)

NUMBERS = st.sampled_from([0, 1, -1, True, 2**53, 2**64, 10**400, 1e308, -1e308, 0.5, 1e-320])
# of all characters at random, hardly any is half of one, which has no UTF-8
TEXTS = st.text("a1 \n\0é\ud800", max_size=6) | st.text(st.characters(categories=None), max_size=6)
LEAVES = st.none() | NUMBERS | TEXTS | st.just(float("nan")) | st.just([[[[]]]])
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4)
)


def refused(error: Exception) -> None:
    """A refusal is one short line."""
    assert str(error)
    assert "\n" not in str(error)
    assert len(str(error)) < 700


def survives(read: Callable[..., Any], *arguments: Any) -> None:
    """Read something; only a `QAlignError` may come out."""
    try:
        read(*arguments)
    except QAlignError as error:
        refused(error)


@st.composite
def changed(draw: st.DrawFn, value: Any) -> Any:
    """A JSON value with one part of it, at any depth, replaced, renamed or left out."""
    if not isinstance(value, dict | list) or not value or draw(st.integers(0, 4)) == 0:
        return draw(VALUES)
    keys = list(value) if isinstance(value, dict) else range(len(value))
    key = draw(st.sampled_from(keys))
    copy = dict(value) if isinstance(value, dict) else list(value)
    if draw(st.integers(0, 5)) == 0:
        del copy[key]
    else:
        copy[key] = draw(changed(value[key]))
    return copy


@st.composite
def spoilt(draw: st.DrawFn, content: bytes) -> bytes:
    """Bytes with a few of them cut out, doubled or replaced."""
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(content)))
        to = min(len(content), at + draw(st.sampled_from([0, 1, 4, 40])))
        content = content[:at] + draw(st.binary(max_size=8)) + content[to:]
    return content


@cache
def lines() -> tuple[str, ...]:
    """A small trace."""
    lm, rm = letters(), TableReward()
    steps = collect(run_chains(lm, rm, "x", n_chains=2, beta=0.7, steps=3, seed=3))
    header = TraceHeader(Run(prompt="x", beta=0.7, seed=3, steps=3, chains=2))
    return tuple(trace_lines(Trace.collect(steps, header)))


@SEEDED
@given(st.data())
def test_traces(data: st.DataObject) -> None:
    held = list(lines())
    at = data.draw(st.integers(0, len(held) - 1))
    held[at] = json.dumps(data.draw(changed(json.loads(held[at])))) + "\n"
    survives(parse_trace, "".join(held))


@SEEDED
@given(data=st.data())
def test_files_of_traces(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzz.jsonl"
    path.write_bytes(data.draw(spoilt("".join(lines()).encode())))
    survives(load_trace, path)


@cache
def packed() -> tuple[bytes, dict[str, bytes]]:
    """Packed results, whole and by their members."""
    from pathlib import Path
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as folder:
        content = pack(results(3), Path(folder) / "a.zip").read_bytes()
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return content, {name: archive.read(name) for name in archive.namelist()}


@SEEDED
@given(data=st.data())
def test_archives(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzz.zip"
    content, held = packed()
    if data.draw(st.booleans()):
        path.write_bytes(data.draw(spoilt(content)))
    else:
        name = data.draw(st.sampled_from(sorted(held)))
        array = np.load(io.BytesIO(held[name]))
        other = data.draw(
            st.sampled_from([array[..., None], array.astype(str), array.ravel()[:1], array[:0]])
            if array.ndim
            else st.sampled_from([array[None], np.array(data.draw(TEXTS))])
        )
        buffer = io.BytesIO()
        np.save(buffer, other, allow_pickle=False)
        member = data.draw(st.just(buffer.getvalue()) | spoilt(held[name]))
        with zipfile.ZipFile(path, "w") as archive:
            for each, whole in held.items():
                archive.writestr(each, member if each == name else whole)
    survives(unpack, path)


@SEEDED
@given(data=st.data())
def test_headers_of_sets(data: st.DataObject) -> None:
    header = json.loads(header_json(results().header))
    survives(read_set_header, json.dumps(data.draw(changed(header))), "here")


PROBLEM = {"id": "p", "prompt": "How many?", "answer": "18", "extractor": "number"}
WRITING = {"prompt": "Write.", "constraints": {"use": "cat", "end": "hat", "sentences": 2}}


@SEEDED
@given(problem=changed(PROBLEM) | changed(WRITING), text=TEXTS)
def test_problem_sets(problem: Any, text: str) -> None:
    def read(line: str) -> None:
        for each in parse_problems([line]):
            with suppress(NotImplementedError):
                each.is_right(text)
            assert parse_problems([problem_line(each).encode().decode()]) == [each]

    survives(read, json.dumps(problem))
    survives(read, text)
    survives(read, json.dumps({**PROBLEM, "source": text}))


QUERY = {name: "64" if kind is int else "1.0" for name, kind in Run.kinds().items()}


@SEEDED
@given(body=changed({**QUERY, "prompt": "How many?", "extractor": "number", "matched": "none"}))
def test_bodies_of_calls(body: Any) -> None:
    survives(lambda: Run.read(body if isinstance(body, dict) else {}).check(Limits()))


SENT, NEW = [5, 6, 7], [9, 8, 2]
CHOICE = {"prompt_token_ids": SENT, "token_ids": NEW, "finish_reason": "stop", "text": "a"}
COMPLETION = {"choices": [CHOICE], "usage": {"prompt_tokens": 3, "completion_tokens": 3}}
SCORED = {"data": [{"probs": [0.5]}], "usage": {"prompt_tokens": 3}}
CARD = {"data": [{"id": "m", "root": "m", "max_model_len": 99, "meta": {"n_params": 5}}]}
PROBS = [{"prob": 0.5, "top_probs": [{"id": 2}]}] * 3
OF_LLAMA_CPP = {
    **{"tokens": NEW, "tokens_evaluated": 3, "tokens_predicted": 3, "stop_type": "eos"},
    "completion_probabilities": PROBS,
}
PROPS = {"total_slots": 4, "default_generation_settings": {"n_ctx": 99}}
SAMPLED = {"generation_settings": {"logit_bias": [{"token": 2, "bias": None}], "top_k": 0}}
AT = ModelEndpoint(
    Server("http://h", kind="lm", rows=1, timeout=1.0, patience=1.0, pause=1.0),
    Card("m", "m", 99),
    Text(tokenizer()),
    (2,),
)
SERVED_LM, LLAMA_CPP = (
    kind(AT, id="m") for kind in (served_lm.ServedLanguageModel, served_lm.LlamaCppLanguageModel)
)
SERVED_RM = ServedRewardModel(AT, id="m")


def read_text(answer: Any) -> None:
    """What is taken for text can be tokenised."""
    text, _ = served_lm.RetokenisedLanguageModel._read_text(None, answer)
    text.encode()


@SEEDED
@given(
    completion=changed(COMPLETION),
    of_llama_cpp=changed(OF_LLAMA_CPP),
    props=changed(PROPS),
    sampled=changed(SAMPLED),
    scored=changed(SCORED),
    card=changed(CARD),
    text=VALUES,
)
def test_what_servers_answer(
    completion: Any, of_llama_cpp: Any, props: Any, sampled: Any, scored: Any, card: Any, text: Any
) -> None:
    for read, *replies in (
        (partial(SERVED_LM._read, SENT, 10, frozenset[int]()), completion),
        (partial(LLAMA_CPP._read, SENT, 10, frozenset[int]()), of_llama_cpp),
        (served_lm._read_props, props),
        (served_lm._read_settings, sampled),
        (partial(SERVED_RM._read, 3), scored),
        (read_text, {"choices": [{**CHOICE, "text": text}]}),
        (read_card, card),
    ):
        with suppress(TransientError):  # it is sent again
            survives(read, *replies)


TOML = """[[lm]]
id = "mine"
source = "lm"
sampling = { temperature = 0.8, max_new_tokens = 12 }
options = { rows = 4, device = "cpu" }
[[rm]]
id = "both"
source = "0.5*short + 0.5*embedded"
beta = 0.5
gated = false
"""
WRONG = (
    "5",
    "-1",
    "1e400",
    "nan",
    "true",
    '"x"',
    "[1, [2]]",
    "{ a = 1 }",
    "1979-05-27",
    "0x" + "f" * 400,
)


@SEEDED
@given(data=st.data())
def test_registries(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzz.toml"
    rows = TOML.splitlines()
    at = data.draw(st.integers(0, len(rows) - 1))
    rows[at] = rows[at].split("=")[0] + "= " + data.draw(st.sampled_from(WRONG))
    whole = "\n".join(rows).encode()
    path.write_bytes(data.draw(st.just(whole) | spoilt(TOML.encode())))
    survives(_read_own, path)


@SEEDED
@given(name=st.text("0123456789.*+- ab", max_size=40) | TEXTS)
def test_names_of_rewards(name: str) -> None:
    survives(reward_named, name)


HEADER = {"a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, "__metadata__": {}}


@SEEDED
@given(data=st.data())
def test_weights(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzz" / "fuzz.safetensors"
    path.parent.mkdir(exist_ok=True)
    text = json.dumps(data.draw(changed(HEADER))).encode()
    content = len(text).to_bytes(8, "little") + text + bytes(24)
    path.write_bytes(data.draw(st.just(content) | spoilt(content)))
    try:
        n_stored(path.parent)
    except ModelLoadError as error:
        refused(error)


@SEEDED
@given(text=st.text("0123456789-+/^,.$%{}\\boxedfrac()= \n", max_size=60) | TEXTS)
def test_answers(text: str) -> None:
    for name in EXTRACTORS:
        survives(get_grader(name).extract, text)
