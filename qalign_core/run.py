"""The settings of one run: parsed, checked, limited and printed in this module only.

`Run` is created where settings enter (command line, endpoint, form, link, header of a trace). Each
field declares its default, help text and range, and all of these interfaces take their
options from the fields, so a new setting is one new field:

    >>> run = Run.read({"prompt": "What is 2 + 2?", "beta": "0.5"}).check()
    >>> run.beta, run.steps, run.extractor
    (0.5, 64, 'number')
    >>> run.query()
    'prompt=What+is+2+%2B+2%3F&beta=0.5'
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import Field, dataclass, field, fields, replace
from functools import cache
from types import MappingProxyType
from typing import Any, Self, get_type_hints
from urllib.parse import urlencode

from qalign_core.errors import InvalidPrompt, InvalidSetting
from qalign_core.messages import format_prompt, messages_of, question_of
from qalign_core.move_spec import parse_moves
from qalign_core.target import Target
from qalign_core.validation import is_file_name, is_text, is_whole, rename_settings, short_repr

EXTRACTORS = ("number", "choice", "option", "boxed", "text", "amounts")
"""Names of the built-in answer extractors (`decide.answers.extraction`)."""
NO_EXTRACTOR = "none"
"""The spelling of "no extractor" in options and links: the prompt is open-ended."""
WRITING_PREFIXES = ("Write", "Please write")
"""Prefixes of the prompts of writing tasks, which are open-ended by default."""

INVENTORY_QUESTION = "How many of each"
"""The question in inventory prompts; its answer lists every amount with its name."""

NO_REWARD = "none"
"""Name of the constant reward: 0 for every text."""

MAX_STEPS = 10**7
"""Largest number of proposals per chain; a server may allow fewer."""
MAX_TEXT = 1_000_000
"""Largest number of characters in a text setting; a server may allow fewer."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Caps of a server on the settings of its runs.

    Attributes:
        steps: proposals per chain.
        samples: independent samples per run.
        chains: chains per run.
        runs: runs that sample at the same time.
        queue: runs that may wait for a place before calls by programs are refused; visitors always
            wait.
        tokens: length limit of a response.
        prompt: characters of a prompt, and of every other text setting.
    """

    steps: int = 1024
    samples: int = 1024
    chains: int = 8
    runs: int = 64
    queue: int = 64
    tokens: int = 512
    prompt: int = 4000


def setting(
    default: Any,
    help: str,
    *,
    min: float = -math.inf,
    max: float = math.inf,
    cap: str = "",
    choices: tuple[str, ...] = (),
    page: bool = True,
) -> Any:
    """Declare a field of `Run`.

    Args:
        default: the default value.
        help: the help text of forms, options and endpoints.
        min, max: the range of a number, ends included.
        cap: the field of `Limits` that bounds it on a server.
        choices: the allowed values of a text.
        page: True if forms and links on pages include it.
    """
    metadata = {"help": help, "min": min, "max": max, "cap": cap}
    return field(default=default, metadata={**metadata, "choices": choices, "page": page})


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """The settings of a run that define the distribution of the base LM.

    A model lists those that it applies (`applies`) and refuses a run in which another one differs
    from its default.

    Attributes:
        temperature: > 0; 1.0 is the LM itself.
        max_new_tokens: the limit `L` on the length of a response, EOS included.
        top_p: in (0, 1]; 1.0 is off.
        top_k: >= 0; 0 is off.
    """

    temperature: float = setting(
        1.0,
        "temperature of the language model; 1 leaves it unchanged",
        min=0.05,
        max=5.0,
    )
    max_new_tokens: int = setting(
        256,
        "maximum tokens in a response, including the end token",
        min=1,
        max=10**6,
        cap="tokens",
    )
    top_p: float = setting(
        1.0,
        "draw from the most likely tokens with this total probability; 1 is off",
        min=1e-6,
        max=1.0,
    )
    top_k: int = setting(
        0,
        "draw from this many of the most likely tokens; 0 is off",
        min=0,
        max=10**6,
    )

    @classmethod
    @cache
    def settings(cls) -> "Mapping[str, Field[Any]]":
        """Return the declarations of the settings by name, in the order of forms and files."""
        return MappingProxyType({each.name: each for each in fields(cls)})

    def refuse_unapplied(self, applied: Collection[str], who: str) -> None:
        """Refuse settings that somebody does not apply and that differ from their defaults.

        Args:
            applied: names of the settings that are applied.
            who: the model or engine, as the subject of the sentence.

        Raises:
            InvalidSetting: there is one.
        """
        if name := self.first_unapplied(applied):
            raise InvalidSetting(
                f"{who} does not apply the setting {name}; leave it at "
                f"{_format(self.settings()[name].default)}, got {_format(getattr(self, name))}"
            )

    def first_unapplied(self, applied: Collection[str]) -> str:
        """Return the first setting that is not applied and not at its default, or ""."""
        for name, declared in self.settings().items():
            if name not in applied and getattr(self, name) != declared.default:
                return name
        return ""


DEFAULT_SAMPLING = Sampling()
"""Default sampling parameters; these defaults are defined nowhere else."""


@dataclass(frozen=True)
class Run(Sampling):
    """All settings of a run; the same settings draw the same steps and samples.

    `burn_in` changes only displays and decisions. `matched` sets where chains and pool end: with
    "none", the chains make `steps` proposals and the pool has `pool` samples; with "pool", the pool
    stops at the cost of the chains (at most `pool` samples); with "chain", the chains stop at the
    cost of the pool (at most `steps` proposals).
    """

    prompt: str = setting("", "the text that the model answers", cap="prompt")
    reference: str | None = setting(
        None,
        "the right answer, if known; neither model sees it",
        cap="prompt",
    )
    extractor: str | None = setting(
        "number",
        "how the final answer is read from a text (number, choice, option, boxed, text, amounts, "
        "or FILE.py:NAME); 'none' for an open-ended prompt",
        choices=EXTRACTORS,
    )
    lm: str = setting("embedded", "language model", cap="prompt")
    rm: str = setting("embedded", 'reward model, or a sum: "0.7*A + 0.3*B"', cap="prompt")
    beta: float = setting(
        1.0,
        "small: follow the reward; large: stay close to the model",
        min=1e-3,
        max=1e3,
    )
    sharpness: float = setting(
        1.0,
        "power of the model's own probability in the target; 1 as in the paper",
        min=1.0,
        max=100.0,
    )
    move: str = setting(
        "suffix",
        "how proposals are made: suffix, entropy, or a mix such as suffix+block(:)",
        max=300,
    )
    steps: int = setting(64, "proposals in each chain", min=0, max=MAX_STEPS, cap="steps")
    chains: int = setting(1, "independent chains", min=1, max=10**4, cap="chains")
    seed: int = setting(
        7, "the same seed and settings give everybody the same run", min=0, max=2**31 - 1
    )
    burn_in: int = setting(
        0,
        "number of early states that are not counted",
        min=0,
        max=10**7,
        cap="steps",
    )
    pool: int = setting(
        64, "independent samples of the model alone", min=0, max=10**7, cap="samples"
    )
    matched: str = setting(
        "none",
        "chain or pool: the one that stops once it has cost as much as the other",
        choices=("none", "pool", "chain"),
        page=False,
    )

    @property
    def target(self) -> Target:
        """The distribution that the chains sample."""
        return Target(self.beta, self.sharpness)

    @property
    def needs_log_probs(self) -> bool:
        """True if the chain needs token log-probabilities, which a trace then stores."""
        return self.sharpness != 1.0 or any(part.reads_log_probs for part in parse_moves(self.move))

    @property
    def sampling(self) -> Sampling:
        """The sampling parameters of the base model."""
        return Sampling(**{name: getattr(self, name) for name in Sampling.settings()})

    @property
    def has_reward(self) -> bool:
        """True if there is a reward; without a reward, beta has no effect."""
        return self.rm != NO_REWARD

    @property
    def open_ended(self) -> bool:
        """True if the prompt is open-ended: minimum Bayes risk with ROUGE-1 replaces voting."""
        return self.extractor is None

    @classmethod
    @cache
    def settings(cls) -> "Mapping[str, Field[Any]]":
        """Return the declarations of the settings by name; those of `Sampling` follow the seed."""
        declared = {each.name: each for each in fields(cls) if "help" in each.metadata}
        of_model = Sampling.settings()
        names = [name for name in declared if name not in of_model]
        after = names.index("seed") + 1
        names[after:after] = of_model
        return MappingProxyType({name: declared[name] for name in names})

    @classmethod
    @cache
    def kinds(cls) -> Mapping[str, type]:
        """Return the type of each setting by name: int, float or str (also for optional texts)."""
        hints, names = get_type_hints(cls), cls.settings()
        return MappingProxyType(
            {name: hints[name] if hints[name] in (int, float) else str for name in names}
        )

    @classmethod
    def read(cls, settings: Mapping[str, Any]) -> Self:
        """Parse untrusted settings from a browser, a program or a command line.

        A missing setting gets its default; the default extractor depends on the prompt. The prompt
        may also be a list of messages.

        Raises:
            InvalidSetting: a value has the wrong type for its setting.
            InvalidPrompt: the messages are not a conversation.
        """
        values: dict[str, Any] = {}
        settings = rename_settings(settings)
        for name, kind in cls.kinds().items():
            if name in settings:
                value = settings[name]
                if name == "prompt" and isinstance(value, list | tuple):
                    value = format_prompt(value)
                value = _PARSERS[kind](name, value)
                values[name] = value.strip() or None if name == "reference" else value
        extractor = values.get("extractor") or default_extractor(values.get("prompt", ""))
        values["extractor"] = None if extractor == NO_EXTRACTOR else extractor
        return cls(**values)

    def check(self, limits: Limits | None = None) -> Self:
        """Return this run if its settings are valid and, with `limits`, allowed on that server.

        Raises:
            InvalidSetting, InvalidPrompt: one sentence about the first invalid setting.
        """
        if not self.prompt.strip():
            raise InvalidPrompt("the problem is empty; write one")
        messages_of(self.prompt)
        for name, declared in self.settings().items():
            _check(name, getattr(self, name), declared.metadata, limits)
        for name in ("lm", "rm"):
            if not getattr(self, name).strip():
                raise InvalidSetting(f"{name} is empty; name a model, such as embedded")
        parts = parse_moves(self.move)
        if limits is not None and any(part.is_own for part in parts):
            raise InvalidSetting(
                f"the move {short_repr(self.move)} is in a file of your own, which servers and "
                "links do not run; use it with `qalign run`, or choose suffix, entropy or a mix "
                "such as suffix+block(:)"
            )
        if self.burn_in > self.steps:
            raise InvalidSetting(f"burn_in must be 0 to {self.steps} steps, got {self.burn_in}")
        return self

    def within(self, limits: Limits) -> Self:
        """Return the same run with every number reduced to the limit of a server."""
        cut = {
            name: min(getattr(self, name), getattr(limits, declared.metadata["cap"]))
            for name, declared in self.settings().items()
            if declared.metadata["cap"] and isinstance(getattr(self, name), int)
        }
        return self.with_changes(**cut)

    @property
    def numbers(self) -> dict[str, float]:
        """The numeric settings by name."""
        return {name: getattr(self, name) for name, kind in self.kinds().items() if kind is not str}

    def changes(self) -> dict[str, str]:
        """Return the settings that differ from their defaults, as texts that `read` accepts."""
        default = type(self).read({"prompt": self.prompt}).with_changes(prompt="")
        return {
            name: _format(value)
            for name in self.kinds()
            if (value := getattr(self, name)) != getattr(default, name)
        }

    def query(self) -> str:
        """Return the query of a link: the settings that differ from their defaults."""
        return urlencode(self.changes())

    def with_changes(self, **changes: Any) -> Self:
        """Return the same run with other values."""
        return replace(self, **changes)


def default_extractor(prompt: str) -> str:
    """Return the default extractor for the answers to a prompt."""
    question = question_of(prompt)
    if question.startswith(WRITING_PREFIXES):
        return NO_EXTRACTOR
    return "amounts" if INVENTORY_QUESTION in question else "number"


def _format(value: object) -> str:
    if value is None:
        return NO_EXTRACTOR
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
    if isinstance(value, str) and value.strip().removeprefix("-").isdecimal() and len(value) < 400:
        return int(value)
    if is_whole(value):
        return int(value)  # type: ignore[call-overload,no-any-return]
    # JavaScript has one type of number, so a browser may send 64.0 for 64
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    raise InvalidSetting(f"{name} must be a whole number, got {short_repr(value)}")


_PARSERS: Mapping[type, Any] = {str: _text, float: _float, int: _int}


def _check(name: str, value: Any, setting: Mapping[str, Any], limits: Limits | None) -> None:
    where = ""
    low, high = setting["min"], setting["max"]
    if limits is not None and setting["cap"]:
        where = " on this server"
        high = min(high, getattr(limits, setting["cap"]))
    if isinstance(value, str):
        if len(value) > high:
            raise InvalidPrompt(f"{name} has {len(value):,} characters; {high:,} at most{where}")
        own = name == "extractor" and limits is None and is_file_name(value)  # not on a server
        if setting["choices"] and value not in setting["choices"] and not own:
            raise InvalidSetting(
                f"{name} must be one of {', '.join(setting['choices'])}, got {short_repr(value)}"
            )
    elif value is not None and not low <= value <= high:
        got = short_repr(value).removesuffix(".0")  # in full: rounded, it could equal the bound
        raise InvalidSetting(
            f"{name} must be between {_bound(low)} and {_bound(high)}{where}, got {got}"
        )


def _bound(value: float) -> str:
    return f"{value:.7f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
