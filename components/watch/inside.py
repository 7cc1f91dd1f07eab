"""Questions about single texts: their probabilities, rewrites by hand, and one step drawn again.

A question waits in the queue of runs as a run does, and takes turns at the models with them. The
browser's input is untrusted: sizes and types are checked before a model is called.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from components.session.gpu import is_lent
from components.session.runs import Feed, Runs
from components.session.user_text import (
    State,
    check_scores_tokens,
    log_target,
    read_words,
    score_text,
)
from qalign_core.chain.moves.suffix import length_ratio
from qalign_core.chain.sampling import score
from qalign_core.errors import InvalidSetting
from qalign_core.protocols import LanguageModel, RewardModel, TokenScore
from qalign_core.record.format import answer_reader, parse_header
from qalign_core.record.runner import draw_step
from qalign_core.record.trace import TraceHeader
from qalign_core.run import Run
from qalign_core.target import Scores, log_acceptance
from qalign_core.types import Cost, Response, ScoredResponse, Step
from qalign_core.validation import are_ids, is_text, is_whole, short_repr

MAX_TEXTS = 32
"""Texts per request: the states of the 30 steps that the game covers."""
MAX_NAME = 40
"""Characters in a page's id; a page's new request ends its previous one."""
TOP = 3
"""The most probable tokens that are returned per position."""

Answer = dict[str, Any]
TextFunction = Callable[[Any], Awaitable[Answer]]
"""A function of an untrusted request; it returns {"error": one sentence} if it fails."""


def text_functions(runs: Runs) -> tuple[TextFunction, TextFunction, TextFunction]:
    """Return the functions about single texts that the browser calls, queued as runs are."""

    async def score_texts(request: Any) -> Answer:
        """Score each token of some texts under the model.

        Args:
            request: {"who": the page's id, "header": the trace's first line, "texts": token ids of
                each text, "top": how many likely tokens to return per position}.

        Returns:
            {"texts": [[[ln p or None, [[token, ln p], ...]], ...], ...]}.
        """
        return await _answer(runs, "score", request, _score)

    async def rewrite_text(request: Any) -> Answer:
        """Cut a text, continue with the visitor's words or the model's, and score old and new.

        Args:
            request: {"who", "header": as above, "tokens": ids, "cut": number of tokens kept,
                "words": the visitor's continuation, "ends": whether the text ends after it,
                "seed": the seed of the model's continuation otherwise}.

        Returns:
            Both texts and the acceptance probability, as `_judge` returns them.
        """
        return await _answer(runs, "rewrite", request, _rewrite)

    async def redraw_step(request: Any) -> Answer:
        """Draw one step of a run again, from its seed, its chain and its number.

        Args:
            request: {"who", "header": as above, "chain", "t": which step, "tokens": ids of the text
                before it; the draft (t = 0) has none}.

        Returns:
            {"tokens": ids of its proposal, "reward", "accepted"}.
        """
        return await _answer(runs, "redraw", request, _redraw)

    return score_texts, rewrite_text, redraw_step


Compute = Callable[[LanguageModel, RewardModel, TraceHeader, Mapping[str, Any]], Awaitable[Answer]]


async def _answer(runs: Runs, kind: str, request: Any, compute: Compute) -> Answer:
    """Run the models when the queue allows; a page's newer request ends its older one."""
    answers: list[Answer] = []

    async def work(feed: Feed) -> None:
        header = parse_header(request.get("header"))
        run = header.run.with_changes(steps=0, chains=1, pool=0, burn_in=0).check(runs.limits)
        if is_lent(run.lm, run.rm):
            raise InvalidSetting(f"the GPU that {run.lm} needs serves whole runs only")
        async with runs.models(feed, run) as (lm, rm):
            check_scores_tokens(lm)
            revision = getattr(lm, "revision", "")
            if revision and header.lm_revision and revision != header.lm_revision:
                raise InvalidSetting(
                    f"this run was drawn with a different version of {lm.id}, whose tokens differ; "
                    "run it again"
                )
            answers.append(await compute(lm, rm, header, request))

    who = request.get("who") if isinstance(request, dict) else None
    if not (is_text(who) and len(str(who)) <= MAX_NAME):
        return {"error": f"“who” must be a text of {MAX_NAME} characters, got {short_repr(who)}."}
    async for now in runs.stream(f"{kind} {who}", work):
        error = now.error
    if answers:
        return answers[0]
    if error is None:  # it was stopped
        return {"error": "A newer request has replaced this one."}
    return {"error": f"{str(error).rstrip('.')}."}


def _ids(name: str, value: Any, most: int) -> tuple[int, ...]:
    if not (are_ids(value) and 0 < len(value) <= most):
        raise InvalidSetting(
            f"{name} must be a list of 1 to {most} token ids, got {short_repr(value)}"
        )
    return tuple(value)


async def _score(
    lm: Any, rm: RewardModel, header: TraceHeader, request: Mapping[str, Any]
) -> Answer:
    texts, top = request.get("texts"), request.get("top", TOP)
    if not (isinstance(texts, list) and 0 < len(texts) <= MAX_TEXTS):
        raise InvalidSetting(f"texts must be a list of 1 to {MAX_TEXTS}, got {short_repr(texts)}")
    if not is_whole(top, 0, TOP):
        raise InvalidSetting(f"top must be a whole number from 0 to {TOP}, got {short_repr(top)}")
    read = [_ids("a text", ids, lm.max_new_tokens) for ids in texts]
    prompt_ids = lm.encode(header.run.prompt)
    scores = await asyncio.gather(*(lm.score_tokens(prompt_ids, ids, top=top) for ids in read))
    return {"texts": [_list_scores(each) for each in scores]}


async def _rewrite(
    lm: Any, rm: RewardModel, header: TraceHeader, request: Mapping[str, Any]
) -> Answer:
    tokens = _ids("the text", request.get("tokens"), lm.max_new_tokens)
    cut, seed = request.get("cut"), request.get("seed")
    if not is_whole(cut, 0, len(tokens) - 1):
        raise InvalidSetting(f"cut must be from 0 to {len(tokens) - 1}, got {short_repr(cut)}")
    if not is_whole(seed, 0):
        raise InvalidSetting(f"seed must be a whole number >= 0, got {short_repr(seed)}")
    words, ends = read_words(request.get("words")), request.get("ends") is True
    prompt_ids = lm.encode(header.run.prompt)
    old = await score_text(
        lm, rm, header.run.prompt, lm.extend_with_text(tokens, "", ended=False), top=TOP
    )
    new = lm.extend_with_text(tokens[:cut], words, ended=ends)
    typed = len(new) - int(cut or 0)
    if not ends:
        new = await lm.extend(prompt_ids, new.tokens, seed=seed)
    return _judge(header, old, await score_text(lm, rm, header.run.prompt, new, top=TOP), typed)


async def _redraw(
    lm: Any, rm: RewardModel, header: TraceHeader, request: Mapping[str, Any]
) -> Answer:
    run: Run = header.run
    chain: Any = request.get("chain")
    t: Any = request.get("t")
    if not (is_whole(chain, 0, run.chains - 1) and is_whole(t, 0, run.steps)):
        raise InvalidSetting(
            f"chain and t must be below {run.chains} and at most {run.steps}, got "
            f"{short_repr(chain)} and {short_repr(t)}"
        )
    start = None
    if t:
        tokens = _ids("the text", request.get("tokens"), lm.max_new_tokens)
        state = await _state(lm, rm, run, lm.extend_with_text(tokens, "", ended=False))
        start = Step(chain, t - 1, 0, state, state, 0.0, -math.inf, True, Cost())
    step = await draw_step(lm, rm, run, chain, t, start)
    proposal = step.proposal
    return {
        "tokens": list(proposal.response.tokens),
        "reward": proposal.reward,
        "accepted": step.accepted,
    }


async def _state(lm: Any, rm: RewardModel, run: Run, response: Response) -> ScoredResponse:
    """Score a text as a chain's state: with log-probabilities, if the run's steps need them."""
    prompt_ids = lm.encode(run.prompt)
    if run.needs_log_probs:
        scores = await lm.score_tokens(prompt_ids, response.tokens, top=0)
        response = replace(response, log_probs=tuple(each.log_p for each in scores))
    return await score(rm, run.prompt, prompt_ids, response)


def _judge(header: TraceHeader, old: State, new: State, typed: int) -> Answer:
    """Compute the acceptance probability as if the model had proposed the new text.

    Returns:
        {"old", "new": `_describe_text` of each, "gain": ln pi(new) - ln pi(old), "log_alpha": ln
        of the acceptance probability, "typed": number of tokens from the visitor}; None where the
        model, as sampled, never writes a text.
    """
    run = header.run
    texts = [_describe_text(header, state) for state in (old, new)]
    targets = [each["log_target"] for each in texts]
    (was, _, reward_old), (now, _, reward_new) = old, new
    never = None in targets
    log_alpha = -math.inf
    if run.sharpness == 1.0 or not never:
        log_alpha = float(
            log_acceptance(
                run.target,
                new=Scores(reward_new, texts[1]["log_prob"]),
                old=Scores(reward_old, texts[0]["log_prob"]),
                log_correction=length_ratio(new=len(now), old=len(was)),
            )
        )
    gain = None if never else targets[1] - targets[0]
    return {
        "old": texts[0],
        "new": texts[1],
        "gain": gain,
        "log_alpha": log_alpha if math.isfinite(log_alpha) else None,
        "typed": typed,
    }


def _describe_text(header: TraceHeader, state: State) -> Answer:
    response, scores, reward = state
    log_prob = math.fsum(each.log_p for each in scores)
    return {
        "tokens": list(response.tokens),
        "pieces": list(response.pieces),
        "finished": response.finished,
        **answer_reader(header.run)(response.text),
        "reward": reward,
        "log_prob": _finite(log_prob),
        "log_target": _finite(log_target(header.run.target, log_prob, reward)),
        "scores": _list_scores(scores),
    }


def _list_scores(scores: Sequence[TokenScore]) -> list[Any]:
    return [[_finite(each.log_p), [list(other) for other in each.others]] for each in scores]


def _finite(number: float) -> float | None:
    """For a browser, whose JSON has no infinite numbers."""
    return number if math.isfinite(number) else None
