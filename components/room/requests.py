"""Parse untrusted requests to a room: the settings of a class, predictions, states of a chain."""

from __future__ import annotations

import math
import secrets
from collections.abc import Mapping
from typing import Any

from components.room.limits import Caps
from qalign_core.decide.answers.extraction import is_readable
from qalign_core.decide.answers.graders import canonical_references, references
from qalign_core.errors import QAlignError
from qalign_core.run import NO_EXTRACTOR, Limits, Run
from qalign_core.validation import is_finite, is_text, short_repr
from qalign_study.serve.refusal import HTTPRefusal

LARGEST = 1e6
"""The largest number that can be predicted."""
MAX_PREDICTION = 40
"""The most characters of a prediction."""
LONGEST, HIGHEST = 2000, 100.0
"""Limits of a state that a browser sends: characters of its text, and size of its reward."""


def parse_prediction(ask: Mapping[str, Any], value: object) -> str:
    """Parse an untrusted prediction; equal numbers become equal texts.

    Raises:
        HTTPRefusal: it is not an answer to this question.
    """
    if not is_text(value) or len(str(value)) > MAX_PREDICTION:
        raise HTTPRefusal(
            422, f"a prediction must be a text of at most {MAX_PREDICTION} characters"
        )
    text = str(value).strip()
    if ask["kind"] == "choice":
        if text not in [option for option, _ in ask["options"]]:
            raise HTTPRefusal(
                422, f"{short_repr(text)} is not one of the choices; choose one that is shown"
            )
        return text
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not abs(number) <= LARGEST:
        raise HTTPRefusal(
            422, f"{short_repr(text)} is not a number up to a million; write one like 12.5"
        )
    if ask.get("unit") == "%" and not 0 <= number <= 100:
        raise HTTPRefusal(
            422, f"{short_repr(text)} is not a percentage; write a number from 0 to 100"
        )
    return f"{number:.6g}"


def parse_state(value: object) -> tuple[str, float, float] | None:
    """Parse an untrusted state: [text, reward, natural log of p], or null where the chain stayed.

    Raises:
        HTTPRefusal: it is not a state.
    """
    if value is None:
        return None
    if isinstance(value, list) and len(value) == 3:
        text, reward, log_prob = value
        numbers = is_finite(reward) and abs(reward) <= HIGHEST and is_finite(log_prob)
        if is_text(text) and len(text) <= LONGEST and numbers and log_prob <= 0:
            return text, float(reward), float(log_prob)
    raise HTTPRefusal(422, f"a state must be null, or a text of at most {LONGEST:,} characters, a "
                  f"reward up to {HIGHEST:g} in size, and a log-probability up to 0")  # fmt: skip


def kind_of_answer(reference: object) -> str:
    """Return the built-in extractor that reads a right answer; "" if there is no answer."""
    answers = references(canonical_references(str(reference).strip())) if reference else ()
    if not any(answers):
        return ""
    kinds = ("number", "choice", "amounts")
    return next((k for k in kinds if all(is_readable(each, k) for each in answers)), "text")


def build_class_run(
    request: Mapping[str, object], caps: Caps, usual: Mapping[str, object] | None = None
) -> Run:
    """Build the run of a class from an instructor's request.

    Args:
        request: problem, answer, how answers are read, beta and the two models; missing ones are
            taken from `usual`. The right answer decides how answers are read if nothing else does.
        caps: of rooms.
        usual: the present settings.

    Raises:
        HTTPRefusal: one of them is invalid.
    """
    settings = {
        key: request[key]
        for key in ("prompt", "reference", "extractor", "beta", "lm", "rm")
        if request.get(key) is not None
    }
    values = {
        "steps": caps.steps,
        "chains": caps.members,
        "seed": secrets.randbelow(2**31),
        **(usual or {}),
        **settings,
    }
    limits = Limits(prompt=caps.text, chains=10**4)
    try:
        run = Run.read(values).check(limits)
        # read after its length was checked: a long formula takes long
        kind = kind_of_answer(settings.get("reference"))
        if not kind and run.lm != "embedded":
            kind = NO_EXTRACTOR
        if kind and "extractor" not in values:
            run = Run.read({**values, "extractor": kind}).check(limits)
        if run.reference is None:
            return run
        return run.with_changes(reference=canonical_references(run.reference))
    except QAlignError as error:
        raise HTTPRefusal(422, str(error)) from error
