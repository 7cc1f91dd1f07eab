"""The messages that a browser draws on the screens of a room. The core computes every number."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from components.room.room import POOL, TRIES, Member, Room
from qalign_core.decide.answers.graders import format_references, references
from qalign_core.decide.methods import effective_sample_size, importance_weights, majority_vote
from qalign_core.protocols import AnswerExtractor
from qalign_core.types import ScoredResponse, Step
from qalign_study.export.browser import unsupported_reason
from qalign_study.measure.diagnostics import MIN_STATES, agreement
from qalign_study.sheet.convergence import trust

MOST_ANSWERS = 4
"""The number of answers of a vote that are shown."""
FIRST = 6
"""The number of members in the game's ranking."""
RUN_SETTINGS = ("prompt", "extractor", "lm", "rm", "beta", "steps", "seed", "temperature",
         "max_new_tokens")  # fmt: skip
"""The settings of a run that a browser needs to draw one of its chains."""


def room_message(room: Room) -> dict[str, Any]:
    """Return the class's state as sent to all members."""
    message: dict[str, Any] = {
        "code": room.code,
        "prompt": room.run.prompt,
        "beta": room.run.beta,
        "steps": room.run.steps,
        "round": room.round,
        "goal": room.goal,
        "opened": room.stop in room.opened,
        "trouble": room.trouble,
        "loading": room.loading,
        "no_browser": unsupported_reason(room.run),
        "run": {name: getattr(room.run, name) for name in RUN_SETTINGS},
        "pace": room.caps.pace,
        "every": room.every,
        "named": room.named,
        "reference": format_references(room.run.reference or "") if room.solved else None,
        "has_answer": bool(room.run.reference),
        "right": references(room.run.reference or "") if room.solved else (),
        "stop": None,
    }
    if room.lesson is not None:
        stop = room.lesson.stops[room.stop]
        message["stop"] = {
            "lesson": room.lesson.title,
            "name": room.lesson.name,
            "k": room.stop,
            "of": len(room.lesson.stops),
            **{name: stop[name] for name in ("title", "text", "ask", "exhibit") if name in stop},
        }
    if answers := room.opened.get(room.stop):
        message |= {name: answers[name] for name in ("value", "explanation")}
        message["stop"] |= {name: answers[name] for name in ("exhibit",) if name in answers}
    return message


def member_message(room: Room, member: Member) -> dict[str, Any]:
    """Return the state of a member's chain and predictions as sent to that member."""
    prediction = member.predictions.get(room.stop, "")
    message: dict[str, Any] = {
        "number": member.number,
        "name": member.name,
        "t": member.t,
        "prediction": prediction,
        "replay_until": member.replay_until,
        "drawer": member.drawer,
        "hand": hand_message(member),
    }
    if room.ask and room.stop in room.opened:
        outcome = room.outcome_of(prediction) if prediction else room.opened[room.stop]
        message["outcome"] = {
            "right": outcome["right"] if prediction else None,
            "explanation": outcome["explanation"],
        }
    if member.last is not None:
        message |= _step_message(member.last)
        message["counted"] = member.t - member.since + 1
        message["votes"] = _shares(member.states, room.read)
        message["answer"] = room.read(member.states[-1].response.text)
        message["rewards"] = [round(state.reward, 3) for state in member.states]
    return message


def hand_message(member: Member) -> dict[str, Any]:
    """Return the state of a member's game."""
    return {"reached": member.reached, "best": member.best, "left": TRIES - member.tries}


def _step_message(step: Step) -> dict[str, Any]:
    """Return a step as three texts, two rewards, alpha and the uniform draw."""
    now, new, cut = step.current.response, step.proposal.response, step.index
    whole = bool(now.pieces) and bool(new.pieces)
    kept = "".join(now.pieces[:cut]) if whole else ""
    return {
        "kept": kept,
        "old": now.text[len(kept) :],
        "new": new.text[len(kept) :],
        "accepted": step.accepted,
        "reward": step.proposal.reward,
        "before": step.current.reward,
        "alpha": math.exp(step.log_alpha),
        "u": math.exp(step.log_u) if step.t else 0.0,
    }


def _shares(
    samples: Sequence[ScoredResponse],
    read: AnswerExtractor,
    weights: Sequence[float] | None = None,
) -> list[tuple[str, float]]:
    """Return the answers with most votes and their shares; empty without samples."""
    if not samples:
        return []
    return list(majority_vote(samples, read, weights=weights).shares[:MOST_ANSWERS])


def class_message(room: Room, now: float) -> dict[str, Any]:
    """Return the members and their predictions as sent to the instructor."""
    members = list(room.members.values())
    reached = [m.reached for m in members if m.reached is not None]
    hands = [
        (m.best, m.reached, m.number)
        for m in members
        if m.best is not None and m.reached is not None
    ]
    outcomes = [(room.outcome_of(text), n) for text, n in room.count_predictions().items()
                if room.stop in room.opened]  # fmt: skip
    return {
        "game": None
        if not reached
        else {
            "chains": max(reached),
            "passed": sum(best > own for best, own, _ in hands),
            "first": [(n, best, own) for best, own, n in sorted(hands, reverse=True)[:FIRST]],
        },
        "members": len(members),
        "here": sum(bool(member.screens) for member in members),
        "most": room.caps.members,
        "door": room.door,
        "predictions": sorted(room.count_predictions().items()),
        "right": sum(n for outcome, n in outcomes if outcome["right"])
        if room.ask and room.stop in room.opened
        else None,
        "expected": sum(bool(m.screens) or room.stop in m.predictions for m in members),
        "minutes": max(0, math.ceil((room.born + room.caps.life - now) / 60)),
        "drafts": sum(member.t >= 0 for member in members),
        "done": sum(member.t >= room.run.steps for member in members),
        "single": room.single,
        "text": room.text,
        "pool": POOL,
    }


class Figures:
    """The figures of the class as one sampler, with the model alone and the target to compare.

    The mean is over each chain's later half, because the first half depends on the first draft.
    A room's data is copied when an instance is made, so that `to_dict` may run in a thread.
    """

    def __init__(self, room: Room) -> None:
        self._chains = {m.number: list(m.states) for m in room.members.values() if m.states}
        self._base = [
            *room.pool
        ]  # the server's own samples only: browsers cannot change the target
        self._run, self._read, self._single = room.run, room.read, room.single

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers and votes, as far as the class has drawn enough for them."""
        payload: dict[str, Any] = {}
        rewards = [sample.reward for sample in self._base]
        if not rewards:
            return payload
        weights = importance_weights(rewards, self._run.target, self._base)
        payload["base"] = [round(reward, 3) for reward in rewards]
        payload["weights"] = [round(weight, 6) for weight in weights]
        payload["worth"] = effective_sample_size(weights)
        payload["mean"] = {
            "base": math.fsum(rewards) / len(rewards),
            "target": math.fsum(w * r for w, r in zip(weights, rewards, strict=True)),
        }
        payload["votes"] = {
            "base": _shares(self._base, self._read),
            "target": _shares(self._base, self._read, weights),
        }
        if self._chains:
            states = [state for chain in self._chains.values() for state in chain]
            later = [s.reward for chain in self._chains.values() for s in chain[len(chain) // 2 :]]
            payload["mean"]["class"] = math.fsum(later) / len(later)
            payload["states"] = len(states)
            payload["votes"] |= {
                "class": _shares(states, self._read),
                "single": _shares(self._chains.get(self._single, []), self._read),
            }
            leading = (majority_vote(chain, self._read).answer for chain in self._chains.values())
            if self._run.extractor is not None:
                payload["leaders"] = Counter(a or "none" for a in leading).most_common(MOST_ANSWERS)
            # R-hat of the chains that are long enough for it
            chains = [[state.reward for state in chain] for chain in self._chains.values()]
            long = [chain for chain in chains if len(chain) >= MIN_STATES]
            rhat = agreement(long)
            payload |= {
                "rhat": rhat.finite,
                "agreement": str(rhat),
                "chains": len(long),
                "trust": asdict(trust(long or chains)),
            }
        return payload


def format_event(message: object) -> str:
    """Format a message as one server-sent event."""
    return f"data: {json.dumps(message, ensure_ascii=False, separators=(',', ':'))}\n\n"
