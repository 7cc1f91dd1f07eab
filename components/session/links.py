"""A run's settings: from widgets and programs, as the query of a link, and back from one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any
from urllib.parse import urlencode

from components.session.offer import Offer
from components.session.runs import Limits
from qalign_core.decide.answers.extraction import EXTRACTORS
from qalign_core.errors import InvalidPrompt, InvalidSetting, ModelLoadError
from qalign_core.types import Sampling, TraceHeader

WRITING = ("Write", "Please write")
"""How the prompts of writing tasks begin; they have no final answer to extract."""
OPEN = "none"
"""What stands for no extractor in a link or a widget: the prompt is open-ended."""

ANSWERS = {
    "Numbers": "number",
    "Choice letters": "choice",
    "LaTeX in \\boxed{}": "boxed",
    "Short texts": "text",
    "None: open-ended": OPEN,
}
"""How answers can be read, as people call it."""
USUAL = ""
"""What stands for the extractor that suits the prompt."""

PAGES = ("watch", "compare", "lab", "results")


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that decides a run; the same settings draw the same steps.

    `reference` is the known answer, None if there is none; `burn_in` only changes what is shown.
    """

    prompt: str = ""
    reference: str | None = None
    extractor: str | None = "number"
    lm: str = "embedded"
    rm: str = "embedded"
    beta: float = 1.0
    steps: int = 64
    chains: int = 1
    seed: int = 7
    temperature: float = 1.0
    max_new_tokens: int = 192
    burn_in: int = 0

    @property
    def sampling(self) -> Sampling:
        """How the base model is sampled."""
        return Sampling(temperature=self.temperature, max_new_tokens=self.max_new_tokens)

    @classmethod
    def numbers(cls) -> dict[str, type[int] | type[float]]:
        """The settings that are numbers, and of which kind."""
        kinds = {field.name: type(getattr(cls(), field.name)) for field in fields(cls)}
        return {name: kind for name, kind in kinds.items() if kind in (int, float)}

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> Settings:
        """Settings from what a browser or a program sent: anybody's word, each read as its kind.

        Without an `extractor`, or with the `USUAL` one, the prompt decides.

        Raises:
            InvalidSetting: a number is none, or there is no such extractor.
        """
        values: dict[str, Any] = {name: str(given[name] or "") for name in ("prompt", "lm", "rm")}
        extractor = given.get("extractor") or usual_extractor(values["prompt"])
        if extractor not in (*EXTRACTORS, OPEN):
            raise InvalidSetting(f"extractor must be one of {', '.join((*EXTRACTORS, OPEN))}")
        try:
            values |= {n: kind(given[n]) for n, kind in cls.numbers().items() if n in given}
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidSetting("a setting is not a number") from error
        read = cls(
            **values,
            reference=str(given["reference"] or "").strip() or None,
            extractor=None if extractor == OPEN else extractor,
        )
        return replace(read, burn_in=min(read.burn_in, read.steps))

    def check(self, limits: Limits) -> Settings:
        """These settings, if a run may have them.

        Raises:
            InvalidSetting, InvalidPrompt: one sentence for the first that it may not.
        """
        if not self.prompt.strip():
            raise InvalidPrompt("the problem is empty; write one, or press New problem")
        if len(self.prompt) > limits.prompt:
            raise InvalidPrompt(
                f"the problem has {len(self.prompt)} characters; {limits.prompt} at most, please"
            )
        if not (math.isfinite(self.beta) and 1e-3 <= self.beta <= 1e3):
            raise InvalidSetting(f"beta must be between 0.001 and 1000, got {self.beta:g}")
        if not (math.isfinite(self.temperature) and 0.05 <= self.temperature <= 5):
            raise InvalidSetting(f"temperature must be 0.05 to 5, got {self.temperature:g}")
        limits.check("steps", self.steps)
        limits.check("chains", self.chains)
        limits.check("tokens", self.max_new_tokens)
        if not 0 <= self.seed < 2**31:
            raise InvalidSetting(f"seed must be 0 to 2147483647, got {self.seed}")
        if not 0 <= self.burn_in <= self.steps:
            raise InvalidSetting(f"burn-in must be 0 to {self.steps} steps, got {self.burn_in}")
        return self


def usual_extractor(prompt: str) -> str:
    """How the answers to a prompt are read unless somebody says otherwise."""
    return OPEN if prompt.startswith(WRITING) else "number"


def settings_of(header: TraceHeader) -> Settings:
    """The settings that draw a recorded run again."""
    return Settings(
        prompt=header.prompt,
        reference=header.reference,
        extractor=header.extractor,
        lm=header.lm,
        rm=header.rm,
        beta=header.beta,
        steps=header.steps,
        chains=header.chains,
        seed=header.seed,
        temperature=header.sampling.temperature,
        max_new_tokens=header.sampling.max_new_tokens,
    )


def to_query(settings: Settings) -> str:
    """The query string of a link: what differs from the defaults, readable."""
    default = Settings()
    pairs = [
        (field.name, _shown(value))
        for field in fields(Settings)
        if (value := getattr(settings, field.name)) != getattr(default, field.name)
    ]
    return urlencode(pairs)


def _shown(value: object) -> str:
    if value is None:
        return OPEN
    return f"{value:g}" if isinstance(value, float) else str(value)


def linked(
    query: Mapping[str, object],
    limits: Limits,
    offer: Offer,
    start: Settings,
) -> tuple[Settings, str] | None:
    """What a page's own address asks for, with what to say of it; None if it names no setting.

    A link without a prompt has that of `start`.
    """
    texts = {key: str(value) for key, value in query.items()}
    if not any(name in texts for name in Settings.__dataclass_fields__):
        return None
    settings, notices = from_query(texts, limits, offer)
    if not settings.prompt:
        settings = replace(settings, prompt=start.prompt, reference=start.reference)
    return settings, " ".join(notices) or "This link's settings are in place."


def from_query(
    query: Mapping[str, str], limits: Limits, offer: Offer
) -> tuple[Settings, tuple[str, ...]]:
    """Settings from a link's query, and a notice for each value that could not be used.

    Args:
        query: the address bar's parameters; what is unknown is ignored.
        limits: caps of this server.
        offer: what "lm" and "rm" may be.
    """
    settings, notices = Settings(), []
    for field in fields(Settings):
        text = query.get(field.name)
        if text is None:
            continue
        default = getattr(Settings(), field.name)
        read = int if isinstance(default, int) else float if isinstance(default, float) else str
        changes: dict[str, Any] = {}
        try:
            changes[field.name] = read(text)
            if field.name == "extractor":
                if text not in (*EXTRACTORS, OPEN):
                    raise ValueError
                changes["extractor"] = None if text == OPEN else text
            changed = replace(settings, **changes)
            replace(changed, prompt=changed.prompt or "-").check(limits)
            offer.check(changed.lm, changed.rm)
        except (ValueError, OverflowError, ModelLoadError):
            shown = text if len(text) <= 24 else f"{text[:24]}…"
            notices.append(f"The link's {field.name} “{shown}” cannot be used here.")
        else:
            settings = changed
    return settings, tuple(notices)


def page_of(query: Mapping[str, str]) -> str:
    """The page that a link opens; Watch unless it names another."""
    page = query.get("tab", PAGES[0])
    return page if page in PAGES else PAGES[0]
