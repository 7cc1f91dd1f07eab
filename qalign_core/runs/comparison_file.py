"""A comparison as a file: JSON with all that was drawn, and CSV with a row a draw."""

from __future__ import annotations

import csv
import io
import json
import math
from dataclasses import asdict
from functools import lru_cache
from typing import Any

from qalign_core.analysis.comparisons import (
    Comparison,
    Cut,
    Meter,
    Outcome,
    full_cut,
    outcomes,
)
from qalign_core.assets import ASSETS
from qalign_core.decide.rules import importance_weights
from qalign_core.errors import InvalidTrace
from qalign_core.runs.trace import MAX_BYTES, parse_trace, trace_lines
from qalign_core.types import Cost, Response, ScoredResponse, Trace

VERSION = 1
RECORDED = ASSETS / "runs" / "compare.json"

COLUMNS = (
    *("source", "chain", "t", "index", "log_alpha", "accepted", "answer", "reward"),
    *("tokens", "finished", "generated", "lm_processed", "rm_processed", "weight", "text"),
)


def to_json(comparison: Comparison) -> str:
    """Everything drawn, and what the four methods made of it; `from_json` reads it back.

    The chains are the lines of their trace (`runs.trace`), the pool is a list of responses.
    """
    trace = Trace(comparison.header, comparison.steps)
    cut = full_cut(comparison) if comparison.ready else None
    text = json.dumps(
        {
            "type": "comparison",
            "version": VERSION,
            "meter": asdict(comparison.meter),
            "burn_in": comparison.burn_in,
            "trace": [json.loads(line) for line in trace_lines(trace, comparison.extract)],
            "pool": [_sample(comparison, sample) for sample in comparison.pool],
            "level": None if cut is None else _level(comparison, cut),
        },
        ensure_ascii=False,
        allow_nan=False,
        separators=(",", ":"),
    )
    return text.replace("<", "\\u003c") + "\n"


def from_json(text: str) -> Comparison:
    """Read a comparison back.

    Raises:
        InvalidTrace: it is not a comparison of this version.
    """
    wrong = f"this is not a comparison of version {VERSION}; give a file that this page wrote"
    if len(text) > MAX_BYTES:
        raise InvalidTrace(wrong)
    try:
        data = json.loads(text)
        if data["type"] != "comparison" or data["version"] != VERSION:
            raise InvalidTrace(wrong)
        trace = parse_trace("\n".join(json.dumps(line) for line in data["trace"]))
        pool = tuple(_read_sample(sample) for sample in data["pool"])
        meter = Meter(**{key: int(value) for key, value in data["meter"].items()})
        burn_in = int(data["burn_in"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        if isinstance(error, InvalidTrace):
            raise
        raise InvalidTrace(wrong) from error
    return Comparison(trace.header, trace.steps, pool, meter, burn_in)


def to_csv(comparison: Comparison) -> str:
    """One row a draw, for a spreadsheet: states of the chains, then the pool.

    `weight` is what a draw weighs in the answer at the largest level cut: 1 / number of states for
    a state, softmax(reward / beta) for a sample; empty where the cut leaves it out.
    """
    out = io.StringIO()
    rows = csv.writer(out, lineterminator="\r\n")
    rows.writerow(COLUMNS)
    cut = full_cut(comparison) if comparison.ready else Cut(-1, 0)
    n_states = len(comparison.chains) * (cut.t + 1)
    extract = comparison.extract
    for step in (step for chain in comparison.chains for step in chain):
        state = step.state
        rows.writerow(
            [
                *("chain", step.chain, step.t, step.index, step.log_alpha, step.accepted),
                *_draw(state, extract(state.response.text) if extract else None, step.cost),
                1 / n_states if step.t <= cut.t else "",
                _cell(state.response.text),
            ]
        )
    pool = comparison.pool
    weights = importance_weights([s.reward for s in pool[: cut.n]], comparison.header.beta)
    for k, sample in enumerate(pool):
        rows.writerow(
            [
                *("pool", "", k, "", "", ""),
                *_draw(sample, extract(sample.response.text) if extract else None, sample.cost),
                weights[k] if k < cut.n else "",
                _cell(sample.response.text),
            ]
        )
    return out.getvalue()


@lru_cache(maxsize=1)
def recorded_comparison() -> Comparison:
    """The comparison that the page shows before any click.

    Raises:
        InvalidTrace: the file is not what this version writes.
    """
    return from_json(RECORDED.read_text(encoding="utf-8"))


def _draw(sample: ScoredResponse, answer: str | None, cost: Cost) -> list[object]:
    return [
        *(_cell(answer or ""), sample.reward, len(sample.response), sample.response.finished),
        *(cost.generated, cost.lm_processed, cost.rm_processed),
    ]


def _cell(text: str) -> str:
    """A text that no spreadsheet takes for a formula."""
    return f"'{text}" if text[:1] in ("=", "+", "@", "\t", "\r") or _starts_formula(text) else text


def _starts_formula(text: str) -> bool:
    return text[:1] == "-" and not text[1:].replace(".", "", 1).isdecimal()


def _sample(comparison: Comparison, sample: ScoredResponse) -> dict[str, Any]:
    response = sample.response
    extract = comparison.extract
    return {
        "tokens": list(response.tokens),
        "text": response.text,
        "finished": response.finished,
        "reward": sample.reward,
        "answer": extract(response.text) if extract else None,
        "cost": list(asdict(sample.cost).values()),
    }


def _read_sample(data: dict[str, Any]) -> ScoredResponse:
    reward = float(data["reward"])
    if not math.isfinite(reward):
        raise ValueError("reward")
    response = Response(
        tuple(int(token) for token in data["tokens"]), str(data["text"]), bool(data["finished"])
    )
    return ScoredResponse(response, reward, Cost(*(int(value) for value in data["cost"])))


def _level(comparison: Comparison, cut: Cut) -> dict[str, Any]:
    return {
        "t": cut.t,
        "n": cut.n,
        "unit": comparison.meter.unit,
        "methods": [_outcome(outcome) for outcome in outcomes(comparison, cut)],
    }


def _outcome(outcome: Outcome) -> dict[str, Any]:
    decision = outcome.decision
    return {
        "method": outcome.method,
        "answer": decision.answer,
        "correct": outcome.correct,
        "n": outcome.n,
        "spent": outcome.spent,
        "cost": asdict(outcome.cost),
        "sequential": outcome.sequential,
        "effective": outcome.effective,
        "shares": dict(decision.shares),
        "chosen": None if decision.chosen is None else decision.chosen.response.text,
        "reward": None if decision.chosen is None else decision.chosen.reward,
    }
