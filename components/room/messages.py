"""The values that a browser draws on the screens of a room. Every number is the core's."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from components.common.convergence import trust
from components.room.rooms import POOL, TRIES, Member, Room
from qalign_core.decide.methods import effective_sample_size, importance_weights, majority_vote
from qalign_core.protocols import AnswerExtractor
from qalign_core.types import ScoredResponse, Step
from qalign_study.measure.diagnostics import MIN_STATES, agreement

MOST_ANSWERS = 4
"""Answers of a vote that are shown."""
FIRST = 6
"""Members whose texts by hand are listed."""
DRAWN = ("prompt", "extractor", "lm", "rm", "beta", "steps", "seed", "temperature",
         "max_new_tokens")  # fmt: skip
"""Of a run, what a browser that draws one of its chains needs."""


def room_message(room: Room) -> dict[str, Any]:
    """The message to everybody in a room: the state of the class."""
    told: dict[str, Any] = {
        "code": room.code,
        "prompt": room.run.prompt,
        "beta": room.run.beta,
        "steps": room.run.steps,
        "round": room.round,
        "goal": room.goal,
        "opened": room.stop in room.opened,
        "trouble": room.trouble,
        "run": {name: getattr(room.run, name) for name in DRAWN},
        "pace": room.caps.pace,
        "every": room.every,
        "reference": room.run.reference if room.solved else None,
        "stop": None,
    }
    if room.lesson is not None:
        stop = room.lesson.stops[room.stop]
        told["stop"] = {
            "lesson": room.lesson.title,
            "name": room.lesson.name,
            "k": room.stop,
            "of": len(room.lesson.stops),
            **{name: stop[name] for name in ("title", "text", "ask", "exhibit") if name in stop},
        }
    if answers := room.opened.get(room.stop):
        told |= {"value": answers["value"], "explanation": _to_all(str(answers["explanation"]))}
        told["stop"] |= {name: answers[name] for name in ("exhibit",) if name in answers}
    return told


def _to_all(says: str) -> str:
    """What is said of the right answer, without its "Yes": some gave another answer."""
    told = re.sub(r"^Yes(: |, )", "", says)
    return told[:1].upper() + told[1:]


def member_message(room: Room, member: Member) -> dict[str, Any]:
    """The message to one member: the member's chain and predictions."""
    said = member.predictions.get(room.stop, "")
    told: dict[str, Any] = {"number": member.number, "t": member.t, "prediction": said}
    told |= {
        "replay_until": member.replay_until,
        "drawer": member.drawer,
        "hand": hand_message(member),
    }
    if room.ask and room.stop in room.opened:
        came = room.outcome_of(said) if said else room.opened[room.stop]
        told["outcome"] = {
            "right": came["right"] if said else None,
            "explanation": came["explanation"],
        }
    if member.last is not None:
        told |= _step(member.last)
        told["counted"] = member.t - member.since + 1
        told["votes"] = _shares(member.states, room.read)
        told["answer"] = room.read(member.states[-1].response.text)
        told["rewards"] = [round(state.reward, 3) for state in member.states]
    return told


def hand_message(member: Member) -> dict[str, Any]:
    """How a member's game stands."""
    return {"reached": member.reached, "best": member.best, "left": TRIES - member.tries}


def _step(step: Step) -> dict[str, Any]:
    """A step as three texts, two rewards, a chance and a coin."""
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
    """The answers with most votes, and their shares; none of no samples."""
    if not samples:
        return []
    return list(majority_vote(samples, read, weights=weights).shares[:MOST_ANSWERS])


def class_message(room: Room, now: float) -> dict[str, Any]:
    """The message to the instructor: the number of members and their predictions."""
    members = list(room.members.values())
    reached = [m.reached for m in members if m.reached is not None]
    hands = [
        (m.best, m.reached, m.number)
        for m in members
        if m.best is not None and m.reached is not None
    ]
    return {
        "game": None
        if not reached
        else {
            "chains": max(reached),
            "passed": sum(best > own for best, own, _ in hands),
            "first": [(n, best, own) for best, own, n in sorted(hands, reverse=True)[:FIRST]],
        },
        "members": len(members),
        "here": sum(member.streams > 0 for member in members),
        "most": room.caps.members,
        "door": room.door,
        "predictions": sorted(room.prediction_counts.items()),
        "expected": sum(m.streams > 0 or room.stop in m.predictions for m in members),
        "minutes": max(0, math.ceil((room.born + room.caps.life - now) / 60)),
        "drafts": sum(member.t >= 0 for member in members),
        "done": sum(member.t >= room.run.steps for member in members),
        "single": room.single,
        "pool": POOL,
    }


class Figures:
    """What the class says as one sampler, beside the model alone and the target.

    The mean is that of each chain's later half: the first remembers the first draft.
    It copies what it needs of a room when it is made, so that `to_dict` may be called in a thread.
    """

    def __init__(self, room: Room) -> None:
        self._chains = {m.number: list(m.states) for m in room.members.values() if m.states}
        self._base = [*room.pool]  # what browsers sent has no say in the target
        self._run, self._read, self._single = room.run, room.read, room.single

    def to_dict(self) -> dict[str, Any]:
        """The numbers and votes, as far as anything can be said yet."""
        told: dict[str, Any] = {}
        rewards = [sample.reward for sample in self._base]
        if not rewards:
            return told
        weights = importance_weights(rewards, self._run.target, self._base)
        told["base"] = [round(reward, 3) for reward in rewards]
        told["weights"] = [round(weight, 6) for weight in weights]
        told["worth"] = effective_sample_size(weights)
        told["mean"] = {
            "base": math.fsum(rewards) / len(rewards),
            "target": math.fsum(w * r for w, r in zip(weights, rewards, strict=True)),
        }
        told["votes"] = {
            "base": _shares(self._base, self._read),
            "target": _shares(self._base, self._read, weights),
        }
        if self._chains:
            states = [state for chain in self._chains.values() for state in chain]
            later = [s.reward for chain in self._chains.values() for s in chain[len(chain) // 2 :]]
            told["mean"]["class"] = math.fsum(later) / len(later)
            told["states"] = len(states)
            told["votes"] |= {
                "class": _shares(states, self._read),
                "single": _shares(self._chains.get(self._single, []), self._read),
            }
            leading = (majority_vote(chain, self._read).answer for chain in self._chains.values())
            told["leaders"] = Counter(a or "none" for a in leading).most_common(MOST_ANSWERS)
            # whether the chains agree, of those that are long enough to tell
            chains = [[state.reward for state in chain] for chain in self._chains.values()]
            long = [chain for chain in chains if len(chain) >= MIN_STATES]
            found = agreement(long)
            told |= {
                "rhat": found.finite,
                "agreement": str(found),
                "chains": len(long),
                "trust": asdict(trust(long or chains)),
            }
        return told


def format_event(told: object) -> str:
    """One event of a stream."""
    return f"data: {json.dumps(told, ensure_ascii=False, separators=(',', ':'))}\n\n"
