"""All that one run is: read, checked, limited and written here and nowhere else.

`Run` is made at the door (command line, endpoint, form, link, header of a trace) and handed on
whole. Each field says what it is, in which range, and what a person is told of it, so that every
door takes its options from the fields: a setting more is a line more in `Run`.
"""

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from numbers import Integral
from types import MappingProxyType
from typing import Any, Self, get_type_hints
from urllib.parse import urlencode

from qalign_core.errors import InvalidPrompt, InvalidSetting
from qalign_core.messages import messages_of, question_of, written
from qalign_core.move_spec import parse_moves
from qalign_core.target import Target, renamed
from qalign_core.validation import is_text, is_whole, short_repr

EXTRACTORS = ("number", "choice", "option", "boxed", "text", "amounts")
"""Names of the ways to read a final answer; what they do is in `decide.answers.extraction`."""
OPEN = "none"
"""What stands for no extractor in options and links: the prompt is open-ended."""
WRITING = ("Write", "Please write")
"""How the prompts of writing tasks begin; unless somebody says otherwise, they are open-ended."""


def is_file_name(name: str) -> bool:
    """Whether a name is that of a function or class in a Python file, "FILE.py:NAME"."""
    return ".py:" in name


INVENTORY = "How many of each"
"""What prompts of inventories ask: their answers are all of the amounts, each with its name."""

NO_REWARD = "none"
"""The reward model that is none: 0 for every text."""

MAX_STEPS = 10**7
"""Proposals of a chain; a server may allow fewer."""
MAX_COUNT = 10**9
"""The largest number of anything: samples, problems, tokens."""
MAX_TEXT = 1_000_000
"""Characters of any setting that is a text; a server may allow fewer."""


def check_count(name: str, value: int, minimum: int) -> int:
    """Return a whole number of at least `minimum`, or raise `InvalidSetting` naming the setting."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < minimum:
        raise InvalidSetting(f"{name} must be a whole number >= {minimum}, got {short_repr(value)}")
    if value > MAX_COUNT:
        raise InvalidSetting(f"{name} must be at most {MAX_COUNT:,}, got {short_repr(value)}")
    return value


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the base LM is sampled; a different setting is a different base distribution.

    Attributes:
        temperature: > 0; 1.0 is the LM itself.
        top_p: in (0, 1]; 1.0 is off.
        top_k: >= 0; 0 is off.
        max_new_tokens: the limit `L` on the length of a response, EOS included.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    max_new_tokens: int = 256


USUAL = Sampling()
"""How a model is sampled where nothing else is set: the only place of these four defaults."""

OF_COMMAND: Mapping[str, Mapping[str, int]] = {
    "run": {"pool": 0},  # it prints no samples
    "compare": {"pool": 4096},  # a cap: the samples end where they have cost what the chains did
    "evaluate": {"pool": 256},
    "train-rm": {"steps": 16},
}
"""The settings of a run whose default is another one in a command."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Caps of a server; each is an environment variable, `QALIGN_MAX_STEPS` and so on.

    Attributes:
        steps: proposals a chain.
        samples: independent samples a run.
        chains: chains a run.
        runs: runs that sample at the same time.
        queue: runs that wait for that before a program's call is refused; visitors always wait.
        tokens: length limit of a response.
        prompt: characters of a prompt, and of every other text.
    """

    steps: int = 1024
    samples: int = 1024
    chains: int = 8
    runs: int = 64
    queue: int = 64
    tokens: int = 512
    prompt: int = 4000

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Self:
        """The defaults, with what the environment says instead.

        Raises:
            InvalidSetting: a variable is not a whole number above 0.
        """
        values: dict[str, int] = {}
        for cap in fields(cls):
            name = f"QALIGN_MAX_{cap.name.upper()}"
            if name in environment:
                text = environment[name].strip()
                if not (text.isdecimal() and len(text) < 16 and int(text)):
                    raise InvalidSetting(
                        f"{name} must be a whole number above 0, got {short_repr(text)}"
                    )
                values[cap.name] = int(text)
        return cls(**values)


def setting(
    default: Any,
    label: str,
    says: str,
    *,
    least: float = -math.inf,
    most: float = math.inf,
    cap: str = "",
    choices: tuple[str, ...] = (),
    page: bool = True,
) -> Any:
    """A field of `Run`.

    Args:
        default: where nobody says anything.
        label: what a form calls it.
        says: what it means, in a few words: the help of every door.
        least, most: the range of a number, ends included.
        cap: the field of `Limits` that bounds it on a server.
        choices: the only values of a text.
        page: whether pages' forms and links have it.
    """
    told = {"label": label, "says": says, "least": least, "most": most, "cap": cap}
    return field(default=default, metadata={**told, "choices": choices, "page": page})


@dataclass(frozen=True)
class Run:
    """Everything that decides a run; the same settings draw the same steps and samples.

    `burn_in` only changes what is shown and decided. `matched` says what ends where: "none", the
    chains have `steps` proposals and the pool `pool` samples; "pool", the pool ends where it has
    cost what the chains did (and has `pool` samples at most); "chain", the chain ends where it has
    cost what the pool did (and has `steps` proposals at most).
    """

    prompt: str = setting("", "Problem", "the text that the model answers", cap="prompt")
    reference: str | None = setting(
        None,
        "Known answer, if any",
        "the right answer, if known; neither model sees it",
        cap="prompt",
    )
    extractor: str | None = setting(
        "number",
        "Answers to vote on",
        "how the final answer is read from a text (number, choice, option, boxed, text, amounts, "
        "or FILE.py:NAME); 'none' for an open-ended prompt",
        choices=EXTRACTORS,
    )
    lm: str = setting("embedded", "Language model", "language model", cap="prompt")
    rm: str = setting(
        "embedded", "Reward model", 'reward model, or a sum: "0.7*A + 0.3*B"', cap="prompt"
    )
    beta: float = setting(
        1.0,
        "β (beta)",
        "small: follow the reward; large: stay close to the model",
        least=1e-3,
        most=1e3,
    )
    sharpness: float = setting(
        1.0,
        "Sharpness (κ)",
        "power of the model's own probability in the target; 1 as in the paper",
        least=1.0,
        most=100.0,
    )
    move: str = setting(
        "suffix",
        "Moves",
        "how proposals are made: suffix, entropy, or a mix such as 0.5*suffix+0.5*block(:)",
        most=300,
    )
    steps: int = setting(
        64, "Steps", "proposals in each chain", least=0, most=MAX_STEPS, cap="steps"
    )
    chains: int = setting(1, "Chains", "independent chains", least=1, most=10**4, cap="chains")
    seed: int = setting(
        7, "Seed", "the same seed and settings give everybody the same run", least=0, most=2**31 - 1
    )
    temperature: float = setting(
        USUAL.temperature,
        "Temperature",
        "temperature of the language model; 1 leaves it unchanged",
        least=0.05,
        most=5.0,
    )
    max_new_tokens: int = setting(
        USUAL.max_new_tokens,
        "Length limit",
        "maximum tokens in a response, including the end token",
        least=1,
        most=10**6,
        cap="tokens",
    )
    top_p: float = setting(
        USUAL.top_p,
        "Top-p",
        "draw from the most likely tokens with this total probability; 1 is off",
        least=1e-6,
        most=1.0,
    )
    top_k: int = setting(
        USUAL.top_k,
        "Top-k",
        "draw from this many of the most likely tokens; 0 is off",
        least=0,
        most=10**6,
    )
    burn_in: int = setting(
        0,
        "Burn-in",
        "number of early states that are not counted",
        least=0,
        most=10**7,
        cap="steps",
    )
    pool: int = setting(
        64, "Pool", "independent samples of the model alone", least=0, most=10**7, cap="samples"
    )
    matched: str = setting(
        "none",
        "Equal compute",
        "chain or pool: the one that stops once it has cost as much as the other",
        choices=("none", "pool", "chain"),
        page=False,
    )

    @property
    def target(self) -> Target:
        """What the chains sample."""
        return Target(self.beta, self.sharpness)

    @property
    def needs_log_probs(self) -> bool:
        """Whether the chain needs each token's log-probability, so that a trace keeps them."""
        return self.sharpness != 1.0 or any(part.reads_log_probs for part in parse_moves(self.move))

    @property
    def sampling(self) -> Sampling:
        """How the base model is sampled."""
        return Sampling(**{name: getattr(self, name) for name in Sampling.__slots__})

    @property
    def rewarded(self) -> bool:
        """Whether there is a reward; without one beta plays no role."""
        return self.rm != NO_REWARD

    @classmethod
    @cache
    def kinds(cls) -> Mapping[str, type]:
        """What each setting is: int, float or str (a text that may be left out is one too)."""
        hints = get_type_hints(cls)
        told = [each.name for each in fields(cls) if "says" in each.metadata]
        return MappingProxyType(
            {name: hints[name] if hints[name] in (int, float) else str for name in told}
        )

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> Self:
        """A run from what a browser, a program or a command line sent: anybody's word.

        What is not given has its default; without an extractor the prompt decides. The prompt may
        be a list of messages too.

        Raises:
            InvalidSetting: a value is not of its setting's kind; one sentence.
            InvalidPrompt: the messages are no conversation.
        """
        values: dict[str, Any] = {}
        given = renamed(given)
        for name, kind in cls.kinds().items():
            if name in given:
                value = given[name]
                if name == "prompt" and isinstance(value, list | tuple):
                    value = written(value)
                read = _READ[kind](name, value)
                values[name] = read.strip() or None if name == "reference" else read
        extractor = values.get("extractor") or default_extractor(values.get("prompt", ""))
        values["extractor"] = None if extractor == OPEN else extractor
        return cls(**values)

    def check(self, limits: Limits | None = None) -> Self:
        """Return this run if it can be; with `limits`, if that server allows it.

        Raises:
            InvalidSetting, InvalidPrompt: one sentence for the first setting that cannot be.
        """
        if not self.prompt.strip():
            raise InvalidPrompt("the problem is empty; write one, or press New problem")
        messages_of(self.prompt)
        for each in fields(self):
            if "says" in each.metadata:
                _check(each.name, getattr(self, each.name), each.metadata, limits)
        for name in ("lm", "rm"):
            if not getattr(self, name).strip():
                raise InvalidSetting(f"{name} is empty; name a model, such as embedded")
        parts = parse_moves(self.move)
        if limits is not None and any(part.is_own for part in parts):
            raise InvalidSetting(
                f"the move {short_repr(self.move)} is a file of one's own, which only the "
                "command line "
                "runs; choose suffix, entropy or a mix such as suffix+block(:)"
            )
        if self.burn_in > self.steps:
            raise InvalidSetting(f"burn_in must be 0 to {self.steps} steps, got {self.burn_in}")
        return self

    def within(self, limits: Limits) -> Self:
        """The same run, with no number larger than a server allows."""
        cut = {
            each.name: min(getattr(self, each.name), getattr(limits, each.metadata["cap"]))
            for each in fields(self)
            if each.metadata.get("cap") and isinstance(getattr(self, each.name), int)
        }
        return self.with_changes(**cut)

    @property
    def numbers(self) -> dict[str, float]:
        """The settings that are numbers, by name."""
        return {name: getattr(self, name) for name, kind in self.kinds().items() if kind is not str}

    def changes(self) -> dict[str, str]:
        """What differs from what `read` makes of the prompt alone, as texts that it takes."""
        usual = type(self).read({"prompt": self.prompt}).with_changes(prompt="")
        return {
            name: _shown(value)
            for name in self.kinds()
            if (value := getattr(self, name)) != getattr(usual, name)
        }

    def query(self) -> str:
        """The query of a link: what differs from the defaults, readable."""
        return urlencode(self.changes())

    def with_changes(self, **changes: Any) -> Self:
        """The same run with other values."""
        return replace(self, **changes)


def default_extractor(prompt: str) -> str:
    """How the answers to a prompt are read unless somebody says otherwise."""
    asked = question_of(prompt)
    if asked.startswith(WRITING):
        return OPEN
    return "amounts" if INVENTORY in asked else "number"


def _shown(value: object) -> str:
    if value is None:
        return OPEN
    return repr(value).removesuffix(".0") if isinstance(value, float) else str(value)


def _text(name: str, value: object) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise InvalidSetting(f"{name} must be a text, got {short_repr(value)}")
    if len(value) > MAX_TEXT:
        raise InvalidSetting(
            f"{name} has {len(value):,} characters; at most {MAX_TEXT:,} are allowed"
        )
    if not is_text(value):
        raise InvalidSetting(
            f"{name} contains half a character (a lone surrogate); send whole characters"
        )
    return value


def _float(name: str, value: object) -> float:
    try:
        if isinstance(value, bool):
            raise ValueError
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidSetting(f"{name} must be a number, got {short_repr(value)}") from error
    if not math.isfinite(number):
        raise InvalidSetting(f"{name} must be a finite number, got {number}")
    return number


def _int(name: str, value: object) -> int:
    if isinstance(value, str) and value.strip().removeprefix("-").isdecimal() and len(value) < 20:
        return int(value)
    if is_whole(value):
        return int(value)  # type: ignore[call-overload,no-any-return]
    # a browser has one kind of number: 64.0 is 64 there
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    raise InvalidSetting(f"{name} must be a whole number, got {short_repr(value)}")


_READ: Mapping[type, Any] = {str: _text, float: _float, int: _int}


def _check(name: str, value: Any, told: Mapping[str, Any], limits: Limits | None) -> None:
    where = ""
    least, most = told["least"], told["most"]
    if limits is not None and told["cap"]:
        where = " on this server"
        most = min(most, getattr(limits, told["cap"]))
    if isinstance(value, str):
        if len(value) > most:
            raise InvalidPrompt(
                f"the {told['label'].lower()} has {len(value):,} characters; "
                f"{most:,} at most{where}"
            )
        own = name == "extractor" and limits is None and is_file_name(value)  # not on a server
        if told["choices"] and value not in told["choices"] and not own:
            raise InvalidSetting(
                f"{name} must be one of {', '.join(told['choices'])}, got {short_repr(value)}"
            )
    elif value is not None and not least <= value <= most:
        raise InvalidSetting(
            f"{name} must be between {_bound(least)} and {_bound(most)}{where}, got {value:g}"
        )


def _bound(value: float) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
