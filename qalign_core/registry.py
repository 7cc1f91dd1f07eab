"""Names to models: `assets/registry.toml`, a folder, a hub id or a server's address.

`QALIGN_REGISTRY` names a file of the same form with models of one's own; they come on top.

Each model is loaded once. Where a new one does not fit into memory, the ones that have been idle
longest are unloaded first.
"""

import os
import re
import tomllib
from collections import ChainMap
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from graphlib import CycleError, TopologicalSorter
from inspect import Parameter, signature
from pathlib import Path
from typing import Any, get_type_hints

from qalign_core.assets import ASSETS
from qalign_core.chain.moves.own import LOADED as OWN_MOVES
from qalign_core.chain.moves.own import OwnMove
from qalign_core.decide.answers.graders import LOADED as OWN_GRADERS
from qalign_core.decide.answers.graders import Grader, own_grader
from qalign_core.errors import ModelLoadError
from qalign_core.models.chat import TemplatedLanguageModel, check_sampling
from qalign_core.models.gguf_file import is_gguf
from qalign_core.models.loaded import LoadedModels
from qalign_core.models.prompt_fit import tokens_per_character
from qalign_core.protocols import RewardModel
from qalign_core.rewards.functions import (
    CompositeReward,
    LeastReward,
    load_name,
    made_of,
    reward_from_file,
)
from qalign_core.rewards.names import reward_named
from qalign_core.rewards.texts import text_reward
from qalign_core.run import DEFAULT_SAMPLING, Sampling
from qalign_core.validation import first_line, read_field, read_file

MAX_BYTES = 2**20
"""Of the file of a registry."""

_AT_REVISION = re.compile(r"([\w.-]+/[\w.-]+)@([\w./-]+)")
"""A hub id and a branch, tag or commit of it."""

LOADED = LoadedModels()
"""The models in memory."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One model of the registry.

    Attributes:
        id: its short name.
        kind: "lm" or "rm".
        source: folder below assets/, hub id, address of a server, or name of a reward that reads
            the text alone; in a file of one's own also any folder (from where that file is), and
            for a reward what `load_reward_model` takes.
        title: what people call it.
        parameters: how many, in millions; 0 if that was not said.
        licence: as the model's page names it.
        gated: the hub asks to accept a licence first.
        status: "tested", "tested with 4-bit weights" or "not yet run", by this project.
        beta: the paper's beta, or one that suits the model; 0 if none is known.
        options: passed on when it is loaded (dtype, device, rows, window, score_ids, ...).
        sampling: default settings of an LM.
        finest: tokens a character above which a text is not of the kind that the model was made
            for; 0 if it was made for any.
        former: names that it had before, which go on naming it.
        own: from the file that `QALIGN_REGISTRY` names.
    """

    id: str
    kind: str
    source: str
    title: str
    parameters: float = 0.0
    licence: str = ""
    gated: bool = False
    status: str = "not yet run"
    beta: float = 0.0
    options: dict[str, Any] | None = None
    sampling: Sampling | None = None
    finest: float = 0.0
    former: tuple[str, ...] | None = None
    own: bool = False

    @property
    def shipped(self) -> bool:
        """Whether it comes with the project."""
        return not self.own and (self.source.startswith("models/") or self.reads_text)

    @property
    def reads_text(self) -> bool:
        """Whether it is a reward that reads the text alone."""
        return self.kind == "rm" and reward_named(self.source).kind == "text"

    @property
    def location(self) -> str:
        """The folder of a model that is shipped with the project, else the source itself."""
        folder = self.shipped and not self.reads_text
        return str(ASSETS / self.source) if folder else self.source


@cache
def entries() -> dict[tuple[str, str], Entry]:
    """Every entry of `assets/registry.toml`, and of one's own registry, by (kind, id).

    A former name leads to the entry too, if nothing else has it now.

    Raises:
        ModelLoadError: one's own registry cannot be read.
    """
    found = _read(ASSETS / "registry.toml")
    if own := os.environ.get("QALIGN_REGISTRY"):
        found |= _read_own(Path(os.path.expanduser(own)))
    former = {(e.kind, name): e for e in found.values() for name in e.former or ()}
    return found | {key: entry for key, entry in former.items() if key not in found}


def _read(path: Path, **more: Any) -> dict[tuple[str, str], Entry]:
    tables = tomllib.loads(read_file(path, MAX_BYTES).decode())
    found = {}
    for kind in ("lm", "rm"):
        for number, table in enumerate(tables.pop(kind, []), start=1):
            try:
                entry = _entry(kind, {**more, **table})
            except (TypeError, ValueError) as error:
                raise ValueError(f"[[{kind}]] number {number}: {error}") from error
            found[kind, entry.id] = entry
    if tables:
        raise ValueError(f"{next(iter(tables))!r} is neither [[lm]] nor [[rm]]")
    return found


def _entry(kind: str, values: dict[str, Any]) -> Entry:
    if "sampling" in values:
        values["sampling"] = check_sampling(Sampling(**values["sampling"]))
    entry = Entry(kind=kind, **{"title": values.get("id"), **values})
    for name, annotation in get_type_hints(Entry).items():
        if name != "sampling":
            read_field({name: getattr(entry, name)}, name, annotation)
    return entry


def _read_own(path: Path) -> dict[tuple[str, str], Entry]:
    try:
        found = _read(path, status="tested", own=True)
        _check_sums(found)
    except (OSError, ValueError, TypeError, RecursionError) as error:  # no TOML, other fields
        said = first_line(error).replace("Entry.__init__() got an", "an")
        raise ModelLoadError(
            f"QALIGN_REGISTRY={path} cannot be read ({said}); it needs [[lm]] and [[rm]] tables "
            "like assets/registry.toml"
        ) from error
    at = path.parent.resolve()
    return {key: replace(e, source=_from(at, e.source)) for key, e in found.items()}


def _check_sums(found: dict[tuple[str, str], Entry]) -> None:
    """Refuse a reward that is a sum of itself, at once or by way of others: it has no end."""
    sums = {
        entry.id: [part.text for part in named.members]
        for (kind, _), entry in found.items()
        if kind == "rm" and (named := reward_named(entry.source)).members
    }
    try:
        TopologicalSorter(sums).prepare()
    except CycleError as error:
        raise ValueError(f"{' is part of '.join(error.args[1])}; name other rewards") from error


def _from(folder: Path, source: str) -> str:
    """Resolve a folder, a GGUF file or a FILE.py:NAME against `folder`; keep any other source."""
    file, colon, name = source.rpartition(":")
    if file.endswith(".py") and os.path.isfile(folder / file):
        return f"{folder / file}{colon}{name}"
    return str(folder / source) if _is_local(folder / source) else source


def _is_local(path: Path) -> bool:
    return os.path.isdir(path) or is_gguf(path)


def entries_of(kind: str) -> tuple[Entry, ...]:
    """The language models ("lm") or the reward models ("rm") of the registry, in its order."""
    return tuple(e for key, e in entries().items() if key == (kind, e.id))


def current_name(kind: str, id: str) -> str:
    """The name today of a model, or of each in a sum of rewards, that may be given by a former one.

    Raises:
        InvalidSetting: no such sum can be.
    """

    def today(name: str) -> str:
        entry = entries().get((kind, name))
        return name if entry is None else entry.id

    parts = reward_named(id).summed if kind == "rm" else ()
    if all(part.text == today(part.text) for _, part in parts):
        return today(id)
    return " + ".join(f"{weight:g}*{today(part.text)}" for weight, part in parts)


def is_foreign(lm: str, prompt: str) -> bool:
    """Whether a prompt is not of the kind that a language model was made for; nothing is loaded."""
    entry = entries().get(("lm", lm))
    if entry is None or not entry.finest:
        return False
    return tokens_per_character(entry.location, prompt) > entry.finest


def is_address(name: str) -> bool:
    """Whether a model's name is the address of a server."""
    return name.startswith(("http://", "https://"))


def load_language_model(
    id: str = "embedded", *, sampling: Sampling | None = None, **changes: Any
) -> TemplatedLanguageModel:
    """A language model by registry id, folder, hub id or address; loaded once and shared.

    Args:
        id: which one; "owner/name@revision" is a branch, tag or commit of a hub repository.
        sampling: how it is sampled; by default the entry's settings.
        changes: single settings to change (temperature, top_p, top_k, max_new_tokens),
            and options that go before the entry's: rows (requests that run at once), revision;
            of a local model window (tokens of prompt and response together), dtype, device,
            threads, cache_bytes, max_queue; of a served one tokenizer, approximate, timeout,
            patience.

    Raises:
        ModelLoadError: one sentence that says what is wrong and what to do.
        InvalidSetting: of the sampling.
    """
    settings = {name: changes.pop(name) for name in Sampling.__slots__ if name in changes}
    _check_taken("lm", id, changes)
    lm: TemplatedLanguageModel = _shared("lm", id, changes)
    entry = entries().get(("lm", id))
    default = entry.sampling if entry is not None else None
    return lm.with_sampling(replace(sampling or default or DEFAULT_SAMPLING, **settings))


def load_reward_model(id: str = "embedded", *, code: bool = False, **options: Any) -> RewardModel:
    """A reward model by registry id, folder, hub id or address; loaded once and shared.

    "judge:LM" is a language model that grades (`JudgeReward`), "0.7*A + 0.3*B" the weighted sum
    of others (`CompositeReward`), "mean(A, B)" their mean, "min(A, B)" the least of them; "mood",
    "plain", "length:N" and "contains:WORD" read the text alone (`rewards.texts`).

    Args:
        id: which one.
        code: "FILE.py:NAME" is allowed too: a function of prompt and response text, or a class
            with `async score`, in a file of the user's own, which is run.
        options: as for language models, and score_ids; of a sum, each for the parts that take it.

    Raises:
        ModelLoadError: one sentence that says what is wrong and what to do.
    """
    _check_taken("rm", id, options)
    return _reward(id, id, options, code)


def load_grader(place: str) -> Grader:
    """A grader of a user's own file, "FILE.py:NAME", which this process then knows by its name.

    NAME is a function text -> answer or None, or a class that is made without arguments: its
    `extract` is that function, and `same(answer, reference)`, if there is one, compares answers.

    Raises:
        ModelLoadError: there is no such file or name, or running the file failed.
    """
    path, _, name = place.rpartition(":")
    full = f"{os.path.abspath(path)}:{name}"
    made = made_of(place)
    extract = getattr(made, "extract", made)
    if not callable(extract):
        raise ModelLoadError(
            f"{place} has no method extract; write extract(self, text), and same(self, answer, "
            "reference) if answers are compared in a way of their own"
        )
    OWN_GRADERS[full] = own_grader(full, extract, getattr(made, "same", None))
    return OWN_GRADERS[full]


def load_move(place: str) -> OwnMove:
    """A move of a user's own file, "FILE.py:NAME", which this process then knows by that name.

    Raises:
        ModelLoadError: there is no such file or name, or running the file failed.
        InvalidSetting: it is no move.
    """
    OWN_MOVES[place] = OwnMove(load_name(place), place)
    return OWN_MOVES[place]


def _reward(source: str, name: str, options: dict[str, Any], code: bool) -> RewardModel:
    """The reward that `source` says, under a name; of the options, those that it takes."""
    named = reward_named(source)
    if named.members:
        rewards = [_reward(each.text, each.text, options, code) for each in named.members]
        if named.kind == "min":
            return LeastReward([(rm, 1.0) for rm in rewards], id=name)
        weights = [weight for weight, _ in named.summed]
        return CompositeReward([*zip(rewards, weights, strict=True)], id=name)
    if (made := _made_of(source)) is not None:
        return _reward(made, name, {**_entry_options("rm", source), **options}, True)
    if options:
        taken = _takes("rm", source)
        options = {option: value for option, value in options.items() if option in taken}
    if named.kind == "text":
        return text_reward(source, id=name)
    if named.kind == "judge":
        from qalign_core.rewards.judge import JudgeReward

        judge = load_language_model(named.judge, max_new_tokens=8, **options)
        return JudgeReward(judge, id=name)
    if code and named.kind == "function":
        return reward_from_file(source, id=None if name == source else name)

    rm: RewardModel = _shared("rm", source, options)
    return rm


def _made_of(id: str) -> str | None:
    """The source of a reward in the user's registry, if it is a judge, a function or a sum."""
    entry = entries().get(("rm", id))
    if entry is None or not entry.own:
        return None
    return None if reward_named(entry.source).kind == "model" else entry.source


def _entry_options(kind: str, id: str) -> dict[str, Any]:
    """The options of the registry; in a file of one's own they may be anything."""
    entry = entries().get((kind, id))
    options = (entry.options if entry is not None else None) or {}
    _check_taken(kind, id, options)
    return options


def _takes(kind: str, id: str) -> dict[str, Any]:
    """The options that a model takes when it is loaded, and how each is annotated."""
    if kind == "rm":
        named = reward_named(_made_of(id) or id)
        if named.members:
            return dict(ChainMap(*(_takes(kind, part.text) for part in named.members)))
        if named.kind == "judge":
            return _takes("lm", named.judge)
        if named.kind != "model":
            return {}
    entry = entries().get((kind, id))
    _, makers = _loader(kind, entry.source if entry is not None else id)
    signatures = (signature(made, eval_str=True) for made in makers)
    options = [option for made in signatures for option in made.parameters.values()]
    return {
        option.name: option.annotation
        for option in options
        if option.kind is Parameter.KEYWORD_ONLY and option.name not in ("id", "kind", "sampling")
    }


def _loader(kind: str, source: str) -> tuple[Callable[..., Any], tuple[Callable[..., Any], ...]]:
    """What loads a model from there, and all that takes the options of it."""
    if is_address(source):
        from qalign_core.models.served.client import Served
        from qalign_core.models.served.language_model import ServedLanguageModel
        from qalign_core.rewards.served import ServedRewardModel

        served = ServedLanguageModel if kind == "lm" else ServedRewardModel
        return served.connect, (Served.connect, served.connect, served)
    from qalign_core.models.local.engine import HFLanguageModel
    from qalign_core.rewards.classifier import HFRewardModel

    local = HFLanguageModel if kind == "lm" else HFRewardModel
    return local.from_pretrained, (local.from_pretrained, local)


def _check_taken(kind: str, id: str, options: dict[str, Any]) -> None:
    given = {name: value for name, value in options.items() if value is not None}
    taken = _takes(kind, id) if given else {}  # only then: it imports what would load it
    for name in given:
        if name not in taken:
            raise ModelLoadError(
                f"{id} has no option {name}; it has {', '.join(sorted(taken)) or 'none'}"
            )
        try:
            read_field(given, name, taken[name])
        except ValueError as error:
            raise ModelLoadError(f"{id} has the option {error}") from error


def unload(id: str) -> bool:
    """Stop and forget every loaded model of that id; False if there was none."""
    return LOADED.unload(id)


def loaded() -> tuple[str, ...]:
    """Ids of the models that are in memory, least recently used first."""
    return LOADED.ids()


def _shared(kind: str, id: str, options: dict[str, Any]) -> Any:
    """The model of that name, which all share who ask for it with these options."""
    options = {name: value for name, value in options.items() if value is not None}
    id = current_name(kind, id)
    return LOADED.get((kind, id, *sorted(options.items())), lambda: _load(kind, id, options))


def _load(kind: str, id: str, options: dict[str, Any]) -> Any:
    entry = entries().get((kind, id))
    source = entry.location if entry is not None else id
    if entry is None and "/" not in id and not _is_local(Path(id)):
        known = ", ".join(entry.id for entry in entries_of(kind))
        raise ModelLoadError(
            f"there is no model called {id!r}; choose from {known}, or give a folder, a GGUF "
            "file, a hub id (owner/name) or a server (http://HOST:PORT)"
        )
    at = _AT_REVISION.fullmatch(id)
    if entry is None and at is not None and not _is_local(Path(id)):
        source, options = at[1], {"revision": at[2], **options}
    given = {**_entry_options(kind, id), **options}
    if entry is not None and is_address(source):
        given.setdefault("n_parameters", round(entry.parameters * 1e6))
    model = _loader(kind, source)[0](source, id=None if is_address(id) else id, **given)
    if is_address(source) and not model.n_parameters:
        model.n_parameters = _n_served(kind, model.root)
    return model


def _n_served(kind: str, root: str) -> int:
    """Parameters of what a server loaded from `root`, which it does not tell; 0 if nobody does."""
    for entry in entries_of(kind):
        if entry.source == root:
            return round(entry.parameters * 1e6)
    from qalign_core.models.loading import n_stored

    return n_stored(Path(root)) if _is_local(Path(root)) else 0


def _forget() -> None:
    """Start again in a forked process, which has none of the threads that own the loaded models."""
    global LOADED
    LOADED = LoadedModels()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
