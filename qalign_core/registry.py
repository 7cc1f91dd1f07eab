"""Load models by name: an entry of `assets/registry.toml`, a folder, a file, hub id or address.

    >>> load_language_model("embedded", temperature=0.8).sampling.temperature
    0.8
    >>> load_reward_model("0.7*embedded + 0.3*length:40").id
    '0.7*embedded + 0.3*length:40'

`QALIGN_REGISTRY` names a file of the same format with the user's own models, which take precedence.

Each model is loaded once. If a new model does not fit into memory, the models that have been idle
longest are unloaded first.
"""

import os
import re
import tomllib
from collections import ChainMap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, fields, replace
from functools import cache
from graphlib import CycleError, TopologicalSorter
from importlib.util import find_spec
from inspect import Parameter, signature
from pathlib import Path
from typing import Any, get_type_hints

from qalign_core.assets import ASSETS
from qalign_core.chain.moves.own import OWN_MOVES, OwnMove
from qalign_core.decide.answers.graders import OWN_GRADERS, Grader, own_grader
from qalign_core.errors import HubUnreachable, ModelLoadError, QAlignError
from qalign_core.models.chat import TemplatedLanguageModel, check_sampling
from qalign_core.models.gguf_file import is_local
from qalign_core.models.loaded import LoadedModels
from qalign_core.models.prompt_fit import tokens_per_character
from qalign_core.protocols import RewardModel
from qalign_core.rewards.functions import CompositeReward, LeastReward, import_object
from qalign_core.rewards.names import reward_named
from qalign_core.run import DEFAULT_SAMPLING, Sampling
from qalign_core.validation import first_line, read_field, read_file, short_repr

LOAD_SECONDS_PER_MILLION = 0.15
"""Estimated seconds to load a language model, per million parameters."""
SECONDS_PER_MILLION = {"float32": 0.3, "int8": 0.2}
"""Estimated from runs of SmolLM2-135M: seconds of 32 steps of 64 tokens, per million parameters."""

MAX_BYTES = 2**20
"""Largest size of a registry file."""
MAX_LENGTH = 1000
"""Largest number of characters of a text in a registry file; errors repeat some of them."""
MAX_PARTS = 100
"""Largest number of rewards that one of a user's registry is made of."""

_AT_REVISION = re.compile(r"([\w.-]+/[\w.-]+)@([\w./-]+)")
"""A hub id with a branch, tag or commit."""

LOADED = LoadedModels()
"""The models in memory."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One model of the registry.

    Attributes:
        id: its short name.
        kind: "lm" or "rm".
        source: folder below assets/, hub id, address of a server, or name of a reward that reads
            the text alone; in a user's file also any folder (relative to that file), and for a
            reward any name that `load_reward_model` accepts.
        title: its name for display.
        parameters: number of parameters in millions; 0 if unknown.
        licence: the license as named on the model's page.
        gated: True if the hub requires accepting a license first.
        status: "tested", "tested with 4-bit weights" or "not yet run", by this project.
        has_thinking: True if its chat template has the switch `enable_thinking`, which the option
            `thinking` turns on.
        beta: the paper's beta, or one that suits the model; 0 if none is known.
        package: module and name of a GGUF file in a Python package, which is loaded instead of the
            source where the package is installed.
        options: arguments of the loader (dtype, device, rows, window, score_ids, ...).
        sampling: default sampling parameters of an LM.
        finest: tokens per character above which a text is unlike the model's training data; 0 if
            the model was trained on general text.
        aliases: its earlier names, which still work (`former` in the file).
        own: True if it comes from the file that `QALIGN_REGISTRY` names.
    """

    id: str
    kind: str
    source: str
    title: str
    parameters: float = 0.0
    licence: str = ""
    gated: bool = False
    status: str = "not yet run"
    has_thinking: bool = False
    beta: float = 0.0
    package: str = ""
    options: dict[str, Any] | None = None
    sampling: Sampling | None = None
    finest: float = 0.0
    aliases: tuple[str, ...] | None = None
    own: bool = False

    @property
    def shipped(self) -> bool:
        """True if it comes with the project."""
        return not self.own and (self.source.startswith("models/") or self.reads_text)

    @property
    def reads_text(self) -> bool:
        """True if it is a reward that reads the text alone."""
        return self.kind == "rm" and reward_named(self.source).kind == "text"

    @property
    def location(self) -> str:
        """The folder of a shipped model, a file in an installed package, or the source itself."""
        folder = self.shipped and not self.reads_text
        return str(ASSETS / self.source) if folder else self._packaged_file or self.source

    @property
    def _packaged_file(self) -> str | None:
        """The model's file in its package; None if that is not installed. Nothing is imported."""
        module, _, name = self.package.partition("/")
        spec = find_spec(module) if module else None
        folders = (spec and spec.submodule_search_locations) or ()
        paths = (os.path.join(folder, name) for folder in folders)
        return next((path for path in paths if os.path.isfile(path)), None)

    @property
    def is_present(self) -> bool:
        """True if nothing has to be downloaded to load it."""
        is_hub_model = self.kind == "lm" or reward_named(self.source).kind == "model"
        if not is_hub_model or is_address(self.source) or is_local(Path(self.location)):
            return True
        from huggingface_hub import try_to_load_from_cache

        hub_id = self.source.partition("@")[0]
        path = try_to_load_from_cache(hub_id, "config.json")
        return isinstance(path, str) and any(Path(path).parent.glob("*.safetensors"))

    @property
    def load_cost(self) -> tuple[float, float]:
        """About the GB of its weights in memory, and the seconds that loading takes."""
        size = 1 if self._packaged_file else 4  # bytes per parameter
        return self.parameters * size / 1000, self.parameters * LOAD_SECONDS_PER_MILLION

    @property
    def run_seconds(self) -> float:
        """About how long 32 steps of at most 64 tokens take on two idle CPU cores."""
        dtype = "int8" if self._packaged_file else "float32"
        return 1.0 + self.parameters * SECONDS_PER_MILLION[dtype]


DROPPED: list[Entry] = []
"""The user's rewards whose Python code cannot be loaded (`drop_broken_rewards`)."""


@cache
def entries() -> dict[tuple[str, str], Entry]:
    """Return all entries of `assets/registry.toml` and of the user's registry by (kind, id).

    An alias leads to its entry too, unless another entry has that id.

    Raises:
        ModelLoadError: the user's registry cannot be read.
    """
    by_id = _read(ASSETS / "registry.toml")
    if own := os.environ.get("QALIGN_REGISTRY"):
        read = _read_own(Path(os.path.expanduser(own)))
        by_id |= {key: entry for key, entry in read.items() if entry not in DROPPED}
    aliases = {(e.kind, name): e for e in by_id.values() for name in e.aliases or ()}
    return by_id | {key: entry for key, entry in aliases.items() if key not in by_id}


def _read(path: Path, **more: Any) -> dict[tuple[str, str], Entry]:
    tables = tomllib.loads(read_file(path, MAX_BYTES).decode("utf-8-sig"))
    by_id = {}
    for kind in ("lm", "rm"):
        listed = tables.pop(kind, [])
        if not isinstance(listed, list):
            raise ValueError(f"{kind!r} is not a list; write [[{kind}]] above every entry")
        for number, table in enumerate(listed, start=1):
            try:
                entry = _entry(kind, {**more, **table})
            except (TypeError, ValueError) as error:
                raise ValueError(f"[[{kind}]] number {number}: {error}") from error
            if (kind, entry.id) in by_id:
                raise ValueError(f"two [[{kind}]] have the id {short_repr(entry.id)}")
            by_id[kind, entry.id] = entry
    if tables:
        raise ValueError(f"{next(iter(tables))!r} is neither [[lm]] nor [[rm]]")
    return by_id


def _entry(kind: str, values: dict[str, Any]) -> Entry:
    if "sampling" in values:
        _check_fields(Sampling, values["sampling"])
        values["sampling"] = check_sampling(Sampling(**values["sampling"]))
    if "former" in values:
        values["aliases"] = values.pop("former")
    values = {"kind": kind, "title": values.get("id"), **values}
    _check_fields(Entry, values)
    entry = Entry(**values)
    for name, annotation in get_type_hints(Entry).items():
        if name != "sampling":
            value = read_field({name: getattr(entry, name)}, name, annotation)
            if isinstance(value, str) and len(value) > MAX_LENGTH:
                raise ValueError(f"{name} has {len(value):,} characters; {MAX_LENGTH:,} at most")
    return entry


def _check_fields(kind: type[Entry | Sampling], values: dict[str, Any]) -> None:
    """Raise ValueError for a field that one of this kind does not have, or that is missing."""
    defaults = {each.name: each.default for each in fields(kind)}
    if unknown := [name for name in values if name not in defaults]:
        raise ValueError(f"{short_repr(unknown[0])} is not one of its fields")
    if missing := [n for n, value in defaults.items() if value is MISSING and n not in values]:
        raise ValueError(f"{missing[0]!r} is missing")


def _read_own(path: Path) -> dict[tuple[str, str], Entry]:
    try:
        by_id = _read(path, status="tested", own=True)
        _check_sums(by_id)
    except (OSError, ValueError, TypeError, RecursionError) as error:  # no TOML, unknown fields
        raise ModelLoadError(
            f"QALIGN_REGISTRY={path!s:.200} cannot be read ({first_line(error):.200}); it needs "
            "[[lm]] and [[rm]] tables like assets/registry.toml"
        ) from error
    folder = path.parent.resolve()
    return {key: replace(e, source=_resolve(folder, e.source)) for key, e in by_id.items()}


def _check_sums(by_id: dict[tuple[str, str], Entry]) -> None:
    """Raise ValueError if a reward is a part of itself, even indirectly, or has too many parts."""
    sums = {
        entry.id: [part.text for part in named.members]
        for (kind, _), entry in by_id.items()
        if kind == "rm" and (named := reward_named(entry.source)).members
    }
    n_parts: dict[str, int] = {}
    try:
        for id in TopologicalSorter(sums).static_order():
            n_parts[id] = sum(n_parts[part] for part in sums.get(id, ())) or 1
            if n_parts[id] > MAX_PARTS:
                raise ValueError(f"{short_repr(id)} has more than {MAX_PARTS} parts")
    except CycleError as error:
        raise ValueError(f"{' is part of '.join(error.args[1])}; name other rewards") from error


def _resolve(folder: Path, source: str) -> str:
    """Resolve a folder, a GGUF file or a FILE.py:NAME against `folder`; keep any other source."""
    file, colon, name = source.rpartition(":")
    if file.endswith(".py") and os.path.isfile(folder / file):
        return f"{folder / file}{colon}{name}"
    return str(folder / source) if is_local(folder / source) else source


def entries_of(kind: str) -> tuple[Entry, ...]:
    """Return the language models ("lm") or reward models ("rm") of the registry, in its order."""
    return tuple(e for key, e in entries().items() if key == (kind, e.id))


def drop_broken_rewards() -> dict[str, str]:
    """Remove the user's rewards whose Python code cannot be loaded from the entries.

    Returns:
        by id, one sentence with the reason.
    """
    faults: dict[str, str] = {}
    DROPPED.clear()
    entries.cache_clear()
    for entry in entries_of("rm"):
        try:
            if entry.own:
                _run_code(entry.id)
        except QAlignError as error:
            faults[entry.id] = str(error)
            DROPPED.append(entry)
    entries.cache_clear()
    return faults


def _run_code(id: str) -> None:
    """Load the user's functions and classes that a reward consists of, and no model."""
    named = reward_named(_definition_of(id) or id)
    for member in named.members:
        _run_code(member.text)
    if named.loader is not None and named.kind == "code":
        named.loader.load(named.argument, id=id)


def current_name(kind: str, id: str) -> str:
    """Replace the alias of a model, or of each model in a sum of rewards, by its current name.

    Raises:
        InvalidSetting: the sum of rewards cannot be parsed.
    """

    def current(name: str) -> str:
        entry = entries().get((kind, name))
        return name if entry is None else entry.id

    named = reward_named(id) if kind == "rm" else None
    parts = named.weighted if named is not None and named.kind == "sum" else ()
    if all(part.text == current(part.text) for _, part in parts):
        return current(id)
    return " + ".join(f"{weight!r}*{current(part.text)}" for weight, part in parts)


def is_foreign(lm: str, prompt: str) -> bool:
    """True if a prompt is unlike the training data of a language model; nothing is loaded."""
    entry = entries().get(("lm", lm))
    if entry is None or not entry.finest:
        return False
    return tokens_per_character(entry.location, prompt) > entry.finest


def is_address(name: str) -> bool:
    """True if a model's name is the address of a server."""
    return name.startswith(("http://", "https://"))


def load_language_model(
    id: str = "embedded", *, sampling: Sampling | None = None, **changes: Any
) -> TemplatedLanguageModel:
    """Load a language model by registry id, folder, hub id or address, once for all callers.

    Args:
        id: its name; "owner/name@revision" is a branch, tag or commit of a hub repository.
        sampling: sampling parameters; by default those of the entry.
        changes: single settings to change (temperature, top_p, top_k, max_new_tokens),
            and options that override the entry's: rows (requests that run at once), revision;
            of a local model window (tokens of prompt and response together), dtype, device,
            threads, cache_bytes, max_queue; of a served one tokenizer, approximate, timeout,
            patience.

    Raises:
        ModelLoadError: the model cannot be loaded.
        InvalidSetting: a sampling parameter is invalid.
    """
    settings = {name: changes.pop(name) for name in Sampling.settings() if name in changes}
    _check_options("lm", id, changes)
    lm: TemplatedLanguageModel = _shared("lm", id, changes)
    entry = entries().get(("lm", id))
    default = entry.sampling if entry is not None else None
    return lm.with_sampling(replace(sampling or default or DEFAULT_SAMPLING, **settings))


def load_reward_model(id: str = "embedded", *, code: bool = False, **options: Any) -> RewardModel:
    """Load a reward model by registry id, folder, hub id or address, once for all callers.

    "0.7*A + 0.3*B" is the weighted sum of others (`CompositeReward`), "mean(A, B)" their mean,
    "min(A, B)" the least of them. Other names with a prefix are in the table of `rewards.kinds`:
    "judge:LM" is a language model that grades; "mood", "plain", "length:N" and "contains:WORD" read
    the text alone.

    Args:
        id: its name.
        code: allow "FILE.py:NAME" too: a function of prompt and response text, or a class with
            `async score`, in the user's file, which is run.
        options: as for language models, and score_ids; for a sum, each option goes to the parts
            that have it.

    Raises:
        ModelLoadError: the model cannot be loaded.
    """
    _check_options("rm", id, options)
    return _reward(id, id, options, code)


def load_grader(place: str) -> Grader:
    """Load a grader from the user's file, "FILE.py:NAME", and register it under that name.

    NAME is a function text -> answer or None, or a class without arguments whose `extract` is that
    function; an optional `same(answer, reference)` compares answers.

    Raises:
        ModelLoadError: there is no such file or name, or running the file failed.
    """
    path, _, name = place.rpartition(":")
    full = f"{os.path.abspath(path)}:{name}"
    grader = import_object(place)
    extract = getattr(grader, "extract", grader)
    if not callable(extract):
        raise ModelLoadError(
            f"{place} has no method extract; write extract(self, text), and same(self, answer, "
            "reference) if answers are compared in a way of their own"
        )
    OWN_GRADERS[full] = own_grader(full, extract, getattr(grader, "same", None))
    return OWN_GRADERS[full]


def load_move(place: str) -> OwnMove:
    """Load a move from the user's file, "FILE.py:NAME", and register it under that name.

    Raises:
        ModelLoadError: as `import_object`.
        InvalidSetting: it is not a move.
    """
    OWN_MOVES[place] = OwnMove(import_object(place), place)
    return OWN_MOVES[place]


def _reward(source: str, name: str, options: dict[str, Any], code: bool) -> RewardModel:
    """Load the reward of `source` under a name, with those options that it has."""
    named = reward_named(source)
    if named.weighted:
        combine = LeastReward if named.kind == "min" else CompositeReward
        pairs = ((_reward(part.text, part.text, options, code), w) for w, part in named.weighted)
        return combine([*pairs], id=name)
    if (definition := _definition_of(source)) is not None:
        return _reward(definition, name, {**_entry_options("rm", source), **options}, True)
    if options:
        kinds = _option_kinds("rm", source)
        options = {option: value for option, value in options.items() if option in kinds}
    if named.loader is not None and (code or named.kind != "code"):
        if named.kind != "lm":
            return named.loader.load(named.argument, id=name)
        limit = named.loader.max_new_tokens
        lm = load_language_model(named.argument, max_new_tokens=limit, **options)
        return named.loader.load(lm, id=name)
    rm: RewardModel = _shared("rm", source, options)
    return rm


def _definition_of(id: str) -> str | None:
    """Return the source of a reward in the user's registry that is no model; else None."""
    entry = entries().get(("rm", id))
    if entry is None or not entry.own:
        return None
    return None if reward_named(entry.source).kind == "model" else entry.source


def _entry_options(kind: str, id: str) -> dict[str, Any]:
    """Return the options in the registry, checked, since a user's file may have any."""
    entry = entries().get((kind, id))
    options = (entry.options if entry is not None else None) or {}
    _check_options(kind, id, options)
    return options


def _option_kinds(kind: str, id: str) -> dict[str, Any]:
    """Return the options of a model's loader, each with its annotation."""
    if kind == "rm":
        named = reward_named(_definition_of(id) or id)
        if named.members:
            return dict(ChainMap(*(_option_kinds(kind, part.text) for part in named.members)))
        if named.kind == "lm":
            return _option_kinds("lm", named.argument)
        if named.kind != "model":
            return {}
    entry = entries().get((kind, id))
    _, functions = _loader(kind, entry.source if entry is not None else id)
    signatures = [signature(function, eval_str=True) for function in functions]
    options = [option for each in signatures for option in each.parameters.values()]
    return {
        option.name: option.annotation
        for option in options
        if option.kind is Parameter.KEYWORD_ONLY and option.name not in ("id", "kind", "sampling")
    }


def _loader(kind: str, source: str) -> tuple[Callable[..., Any], tuple[Callable[..., Any], ...]]:
    """Return the function that loads a model, and all functions that take its options."""
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


def _check_options(kind: str, id: str, options: dict[str, Any]) -> None:
    if not isinstance(id, str):
        hint = " (a function is a reward as FunctionReward(function))" * callable(id)
        raise ModelLoadError(f"the {kind} is {short_repr(id)}; give its name as a text{hint}")
    values = {name: value for name, value in options.items() if value is not None}
    kinds = _option_kinds(kind, id) if values else {}  # it imports the loader, so only if needed
    for name in values:
        if name not in kinds:
            raise ModelLoadError(
                f"{id} has no option {name}; it has {', '.join(sorted(kinds)) or 'none'}"
            )
        try:
            read_field(values, name, kinds[name])
        except ValueError as error:
            raise ModelLoadError(f"{id} has the option {error}") from error


def unload(id: str) -> bool:
    """Stop and forget every loaded model of that id; False if there was none."""
    return LOADED.unload(id)


def _shared(kind: str, id: str, options: dict[str, Any]) -> Any:
    """Return the model of that name, shared by all callers with these options."""
    options = {name: value for name, value in options.items() if value is not None}
    id = current_name(kind, id)
    return LOADED.get((kind, id, *sorted(options.items())), lambda: _load(kind, id, options))


def _load(kind: str, id: str, options: dict[str, Any]) -> Any:
    entry = entries().get((kind, id))
    source = entry.location if entry is not None else id
    if entry is None and (not id or ("/" not in id and not is_local(Path(id)))):
        known = ", ".join(entry.id for entry in entries_of(kind))
        several = ', a FILE.py:NAME, or a sum such as "0.7*A + -0.3*B"' if kind == "rm" else ""
        raise ModelLoadError(
            f"there is no model called {id!r}; choose from {known}, or give a folder, a GGUF "
            f"file, a hub id (owner/name) or a server (http://HOST:PORT){several}"
        )
    match = _AT_REVISION.fullmatch(id)
    if entry is None and match is not None and not is_local(Path(id)):
        source, options = match[1], {"revision": match[2], **options}
    options = {**_entry_options(kind, id), **options}
    if entry is not None and is_address(source):
        options.setdefault("n_parameters", round(entry.parameters * 1e6))
    with suggest_package(entry):
        model = _loader(kind, source)[0](source, id=None if is_address(id) else id, **options)
    if is_address(source) and not model.n_parameters:
        model.n_parameters = _n_served(kind, model.root)
    return model


@contextmanager
def suggest_package(entry: Entry | None) -> Iterator[None]:
    """Add the package that contains an entry's model to the error of a hub that does not answer."""
    try:
        yield
    except HubUnreachable as error:
        if entry is None or not entry.package:
            raise
        package = entry.package.partition("/")[0].replace("_", "-")
        raise HubUnreachable(
            f"{error}, or install the package {package}, which contains the model "
            "(docs/own-models.md)"
        ) from error


def _n_served(kind: str, root: str) -> int:
    """Return the number of parameters of a server's model, loaded from `root`; 0 if unknown."""
    for entry in entries_of(kind):
        if entry.source == root:
            return round(entry.parameters * 1e6)
    from qalign_core.models.loading import n_stored

    return n_stored(Path(root)) if is_local(Path(root)) else 0


def _forget() -> None:
    """Forget all models in a forked process, which lacks the threads that own them."""
    global LOADED
    LOADED = LoadedModels()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
