"""The same run as recorded, on any machine: what must be equal, and what a border excuses.

Processors differ in the last bits of a float. So tokens, indices, verdicts, answers and costs of a
run that is drawn again must equal the recorded ones, and rewards must agree within `REWARD`. A
token or a verdict may differ only where its uniform number lies within `BORDER` of the border
between the two outcomes. Such a difference is shown as a warning, and the run goes on from the
recorded state. Log-probabilities, which traces of some targets and moves keep, must agree within
`LOG_PROB` per token.
"""

from __future__ import annotations

import asyncio
import json
import math
import reprlib
import warnings
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from qalign_core.chain.randomness import derive_seed
from qalign_core.models.local.engine import uniforms
from qalign_core.record.format import parse_trace
from qalign_core.record.trace import Trace
from qalign_core.registry import load_language_model
from qalign_core.types import ScoredResponse, Step
from qalign_study.measure.record import Record

REWARD = 1e-3
"""How far a reward may lie from the recorded one."""
LOG_PROB = 1e-3
"""How far the log-probability of one token may lie from the recorded one."""
BORDER = 2e-4
"""How far from its border a uniform number may lie where a token or a verdict differs."""

NEWER = {"move"}
"""Fields of steps that older traces lack: a recorded line without one is compared without it."""

Line = dict[str, Any]
Stream = tuple[str, int]
TELLING = {"cost", "accepted", "changed", "length", "answer"}
"""The columns of packed draws of which another token or verdict changes at least one."""


class AtBorder(UserWarning):
    """A draw or a coin differs from the recorded one, and lies at its border."""


def check_same_run(
    recorded: str, draw: Callable[[str], str], *, begun: str = "", part: bool = False
) -> None:
    """Fail unless a run is the recorded one.

    Args:
        recorded: the recorded trace.
        draw: continues a trace, or begins one where the text is empty, and returns the whole text.
        begun: what `draw` continues first.
        part: whether the run has fewer steps and samples than the recorded one.
    """
    header, old = _read(recorded)
    kept: dict[Stream, int] = {}
    at_border = True
    while at_border:
        at_border = False
        again = draw(begun)
        head, new = _read(again)
        for name in header:
            if name != "created" and not (part and name in ("steps", "pool")):
                assert head[name] == header[name], f"header: {name}"
        redrawn, kept = kept, {}
        for stream, lines in new.items():
            for k, (a, b) in enumerate(zip(old[stream], lines, strict=False)):
                kept[stream] = k + 1
                if difference := _difference(a, b, header["beta"]):
                    assert k >= redrawn.get(stream, 0), f"{difference} of a recorded line changed"
                    _excuse(a, b, difference, recorded)
                    at_border = True
                    break
        begun = again.partition("\n")[0] + "\n" + _first(recorded, kept)
    for stream in old.keys() | new.keys():
        n_old, n_new = len(old[stream]), len(new[stream])
        assert n_new <= n_old if part else n_new == n_old, f"{n_new} of {n_old} lines of {stream}"
    assert any(new.values())


def check_same_draws(shipped: Record, redrawn: Record, trace: Trace) -> None:
    """Fail unless packed results begin with the draws of the same problem, drawn again.

    Packed results hold no tokens: behind a draw at its border there is no state to go on from.

    Args:
        shipped: the packed draws.
        drawn: the first of them, drawn again.
        trace: the texts of those that were drawn again.
    """
    assert (redrawn.id, redrawn.n_chains, redrawn.prompt) == (shipped.id, 1, shipped.prompt)
    for of, draws in (("pool", trace.pool), ("chain", trace.steps)):
        assert 0 < len(draws) <= len(getattr(shipped, f"{of}_reward"))
        for k, each in enumerate(draws):
            if differences := _packed_differences(shipped, redrawn, of, k):
                sentence = ", ".join(
                    f"{name} was {was}, is {now}" for name, (was, now) in differences.items()
                )
                left = f"{len(draws) - k - 1} later draws are not compared"
                _warn(
                    f"{redrawn.id}: {of} {k}: {sentence}; {left}",
                    _nearest(trace, each, k, set(differences)),
                )
                break


def distance(p: Sequence[float], u: float, token: int) -> float:
    """How far `u` lies from the part of the unit interval that draws a token of law `p`."""
    low = math.fsum(p[:token])
    return max(0.0, low - u, u - low - sum(p[token : token + 1]))


def _read(text: str) -> tuple[Line, dict[Stream, list[Line]]]:
    """The header, and the lines of each chain and of the samples, in order."""
    streams = defaultdict[Stream, list[Line]](list)
    first, *lines = text.splitlines()
    for line in map(json.loads, lines):
        streams[_stream(line)].append(line)
    return parse_trace(f"{first}\n").header.values(), streams  # of any version that can be read


def _stream(line: Line) -> Stream:
    return str(line["type"]), int(line.get("chain", 0))


def _first(text: str, kept: dict[Stream, int]) -> str:
    """So many of the first lines of each stream of a trace, without its header and its end."""
    left, raw_text = {**kept, ("end", 0): 0}, ""
    for raw in text.splitlines(keepends=True)[1:]:
        stream = _stream(json.loads(raw))
        if left.get(stream, 0) > 0:
            left[stream] -= 1
            raw_text += raw
    return raw_text


def _difference(old: Line, new: Line, beta: float) -> str:
    """The first field in which a line breaks the promise; none if it keeps it."""
    of_ratio = 2 * REWARD / beta
    within = {"reward": REWARD, "log_u": 1e-9, "log_probs": LOG_PROB}
    within |= {"log_correction": of_ratio, "log_alpha": 2 * of_ratio}
    for name in ("index", "tokens", "reward", *sorted(old.keys() | new.keys())):
        a, b = old.get(name), new.get(name)
        if name in NEWER and name not in old:
            continue
        if a != b and not (name in within and _close(a, b, within[name])):
            return name
    return ""


def _close(a: Any, b: Any, within: float) -> bool:
    """Whether two numbers, or two lists of as many numbers, are that close."""
    if a is None or b is None or np.shape(a) != np.shape(b):
        return False
    return np.allclose(a, b, rtol=0, atol=within)


def _packed_differences(
    shipped: Record, redrawn: Record, of: str, k: int
) -> dict[str, tuple[Any, Any]]:
    """Each column in which draw `k` breaks the promise: what it was, and what it is."""
    within = {"reward": REWARD, "log_prob": REWARD}
    if of == "chain":
        within["correction"] = LOG_PROB * max(1, redrawn.chain_length[k])
    differences = {}
    for name in (*TELLING, "reward", "log_prob", "correction"):
        a, b = (getattr(record, f"{of}_{name}", ()) for record in (shipped, redrawn))
        if not len(a) and not len(b):
            continue
        x, y = a[k], b[k]
        if name == "answer":
            x, y = (r.answers[i] if i >= 0 else None for r, i in ((shipped, x), (redrawn, y)))
        same = np.allclose(x, y, rtol=0, atol=within[name]) if name in within else np.all(x == y)
        if not same:
            differences[name] = x, y
    return differences


def _excuse(old: Line, new: Line, difference: str, recorded: str) -> None:
    """Warn of a difference that lies at its border; fail for any other."""
    where = " ".join(f"{name} {old[name]}" for name in ("chain", "t", "n") if name in old)
    away = math.inf
    if difference == "tokens":
        away = _away(parse_trace(recorded), old, new["tokens"])
    elif difference == "accepted":
        u, alpha = (0.0 if old[x] is None else math.exp(old[x]) for x in ("log_u", "log_alpha"))
        away = abs(u - alpha)
    was, now = (reprlib.repr(line.get(difference)) for line in (old, new))
    _warn(f"{where}: {difference} was {was}, is {now}", away)


def _warn(sentence: str, away: float) -> None:
    where = "no border near" if away == math.inf else f"{away:.2g} from its border"
    assert away <= BORDER, f"{sentence}; {where}, at most {BORDER:g} was expected"
    warnings.warn(AtBorder(f"{sentence}; {where}"), stacklevel=4)


def _away(trace: Trace, old: Line, tokens: Sequence[int]) -> float:
    """How far the first draw that differs lies from the border of its two tokens."""
    same = [a == b for a, b in zip(old["tokens"], tokens, strict=False)].index(False)
    place = int(old.get("index", 0)) + same
    if "n" in old:
        ids, at = old["tokens"], (old["n"], 0, "sample")
    else:
        (step,) = (s for s in trace.steps if (s.chain, s.t) == (old["chain"], old["t"]))
        ids, at = step.proposal.response.tokens, (step.chain, step.t, "suffix")
    ((p, u, token),) = _draws(trace, ids[: place + 1], at, place)
    return max(distance(p, u, token), distance(p, u, tokens[same]))


def _nearest(trace: Trace, draw: Step | ScoredResponse, k: int, differ: Collection[str]) -> float:
    """How near a draw came to the borders that can explain in which columns it differs."""
    if not TELLING & differ:
        return math.inf  # of the same text as far as one can tell
    ids, at, first = draw_fields(draw, k)
    if isinstance(draw, Step) and differ == {"accepted"}:
        return abs(math.exp(draw.log_u) - math.exp(draw.log_alpha))
    away = math.inf
    for p, u, token in _draws(trace, ids, at, first):
        others, high = np.array(p) > 0, np.cumsum(p)
        others[token] = False
        distances = np.maximum(high - p - u, u - high).clip(0)  # as `distance`, of all tokens
        away = min(away, *distances[others])
    return away


def draw_fields(
    draw: Step | ScoredResponse, k: int
) -> tuple[Sequence[int], tuple[int, int, str], int]:
    """A text up to the last id that was drawn, its address, and the place of the first one."""
    if not isinstance(draw, Step):
        return draw.response.tokens, (k, 0, "sample"), 0
    at = (draw.chain, draw.t, "suffix")
    if refused := draw.refused:
        return (*draw.current.response.tokens[: refused.kept], *refused.tokens), at, refused.kept
    ids = draw.proposal.response.tokens
    return ids[: len(ids) - draw.kept_again], at, draw.index


def _draws(
    trace: Trace, ids: Sequence[int], at: tuple[int, int, Any], first: int
) -> list[tuple[list[float], float, int]]:
    """Law, uniform number and token of each draw of a text from place `first` on."""
    run = trace.header.run
    lm = load_language_model(run.lm, sampling=run.sampling)
    scores = lm.engine.score_tokens(lm.encode(run.prompt), ids, sampling=lm.sampling, top=10**6)
    laws = [dict(score[1]) for score in asyncio.run(scores)][first:]
    u = uniforms(derive_seed(run.seed, *at), first, len(ids))
    draws = []
    for law, each, token in zip(laws, u.tolist(), ids[first:], strict=True):
        size = max(*law, token) + 1
        draws.append(([math.exp(law.get(t, -math.inf)) for t in range(size)], each, token))
    return draws
