"""From a folder of graded draws to a trained reward model, and its measured accuracy.

The resulting folder is a model of transformers, which `--rm PATH` takes. It also contains the draws
(`samples/`), the settings (`asked.json`) and the measurements (`report.json`).
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from qalign_core.errors import InvalidPrompt, InvalidSetting
from qalign_core.protocols import RewardModel
from qalign_core.record.store import content_of, write_whole
from qalign_core.registry import entries, is_address, load_reward_model, unload
from qalign_core.types import Response
from qalign_core.validation import check_count, first_line, from_json, short_repr
from qalign_study.sets.folder import digest_of, traces_of
from qalign_study.sets.problem_sets import Problem
from qalign_study.train.preferences import (
    GradedTexts,
    Kinds,
    encode_pairs,
    grade_trace,
    held_out_pairs,
    in_order,
    pairs_of,
    split,
)
from qalign_study.train.trainer import Notify, Recipe, train

SAMPLES, SETTINGS, REPORT = "samples", "asked.json", "report.json"
"""The files and folder of a training, next to the model's own files."""


def base_of(lm: str, base: str | None) -> str:
    """The folder or hub id that a reward model starts from: the language model's unless said.

    Raises:
        InvalidSetting: a server's address, which has no weights to start from.
    """
    name = base or lm
    entry = entries().get(("lm", name))
    # not a packaged GGUF file, which cannot be trained
    source = name if entry is None else entry.location if entry.shipped else entry.source
    if is_address(source):
        raise InvalidSetting(
            f"{name} is a server, but a reward model starts from weights; give its folder or hub "
            "id with --base"
        )
    return source


def settings_of(
    problems: Sequence[Problem],
    kinds: Kinds,
    recipe: Recipe,
    *,
    base: str,
    draws: int,
) -> Mapping[str, Any]:
    """Return what decides the weights of a training, as its folder keeps it.

    Raises:
        InvalidSetting: a setting is out of range.
    """
    check_count("--each", kinds.each, 1)
    kept = {"base": base, "set": digest_of(problems), "draws": draws}
    return {**asdict(recipe.check()), **asdict(kinds), **kept}


def check_unchanged(out: Path, settings: Mapping[str, Any]) -> None:
    """Make sure that a training in this folder, if there is one, has the same settings.

    Raises:
        InvalidSetting: it has others.
    """
    if (there := content_of(out / SETTINGS, InvalidSetting)) is None:
        return
    old = _object(out / SETTINGS, there)
    for name, wanted in settings.items():
        if old.get(name, wanted) != wanted:
            raise InvalidSetting(
                f"{out} has a training with {name} = {short_repr(old.get(name))}, not "
                f"{wanted}; give the same settings, or another --out (a copy of {out / SAMPLES} "
                "in it spares the drawing)"
            )


async def learn(
    problems: Sequence[Problem],
    out: Path,
    kinds: Kinds,
    recipe: Recipe,
    *,
    base: str,
    device: str | None = None,
    notify: Notify = lambda report_bytes: None,
) -> Mapping[str, Any]:
    """Train on what `out/samples` holds, or go on with it; measure, and return the report.

    Args:
        problems: the set that was drawn for.
        out: the folder.
        kinds: which pairs are made.
        recipe: how the model is trained.
        base: the folder or hub id of the model that it starts from.
        device: of the training and of the measuring.
        notify: hears what happens.

    Raises:
        InvalidSetting, InvalidTask, ModelLoadError, EngineError: in one sentence each.
    """
    from qalign_core.models.loading import load_text  # and torch with it

    traces = dict(traces_of(out / SAMPLES, len(problems)))
    draws = sum(len(trace.pool) + len(trace.steps) for trace in traces.values())
    settings = settings_of(problems, kinds, recipe, base=base, draws=draws)
    check_unchanged(out, settings)
    if (report_bytes := content_of(out / REPORT, InvalidSetting)) is not None:
        return _object(out / REPORT, report_bytes)
    groups = [grade_trace(problems[place], trace) for place, trace in traces.items()]
    seed, solutions = recipe.seed, kinds.solution
    learned, held = split(groups, recipe.validation, seed=seed, solutions=solutions)
    pairs = [pair for group in learned for pair in pairs_of(group, kinds, seed=seed)]
    render = load_text(base)[0].conversation
    cut = encode_pairs(pairs, render, recipe.max_length)
    notify(
        f"of {len(groups)} problems {len(learned)} give {len(cut.pairs)} pairs to learn from, and "
        f"{len(held)} are held out"
    )
    if cut.n_cut:
        notify(
            f"{cut.n_cut} pairs were cut to {recipe.max_length:,} tokens, and {cut.n_equal} left "
            "out that are equal then; raise --max-length to read them whole"
        )
    # kept from here on: whatever was refused above may be asked again in another way
    write_whole(out / SETTINGS, json.dumps(settings, indent=1, sort_keys=True).encode())
    trained = train(base, cut.pairs, recipe, out, device=device, notify=notify)
    notify(f"{trained.steps} steps in {trained.seconds:,.0f} s; measuring")
    unload(str(out))  # what it was before
    rm = load_reward_model(str(out), device=device, window=recipe.max_length)
    report = {
        "problems": len(groups),
        "learned_from": len(learned),
        "held_out": len(held),
        "pairs": len(cut.pairs),
        "cut": cut.n_cut,
        "made_equal": cut.n_equal,
        "training": asdict(trained),
        **await measure_accuracy(rm, held),
    }
    unload(str(out))
    write_whole(out / REPORT, (json.dumps(report, indent=1) + "\n").encode())
    return report


async def measure_accuracy(rm: RewardModel, held: Sequence[GradedTexts]) -> Mapping[str, Any]:
    """How often a reward model orders held-out pairs rightly: of samples, and near misses."""
    pairs_by_kind, accuracies = held_out_pairs(held), {}
    every = [pair for of_each in pairs_by_kind.values() for pairs in of_each for pair in pairs]
    known: dict[tuple[str, str], float] = {}
    for prompt, text in dict.fromkeys(each for pair in every for each in pair.texts):
        with suppress(InvalidPrompt):  # a response too long to be read can never be given
            known[prompt, text] = await rm.score(prompt, Response((0,), text, True))
    for name, of_each in pairs_by_kind.items():
        scored = [[p.texts for p in pairs if known.keys() >= {*p.texts}] for pairs in of_each]
        read = [[(known[better], known[worse]) for better, worse in texts] for texts in scored]
        share = in_order(read)
        kept = {end: getattr(share, end, None) for end in ("value", "low", "high")}
        n = share.n if share else 0
        accuracies[name] = {**kept, "problems": n, "pairs": sum(map(len, read))}
    return accuracies


def _object(path: Path, content: bytes) -> Mapping[str, Any]:
    """Parse a file of a training's folder.

    Raises:
        InvalidSetting: it is not a JSON object.
    """
    try:
        value: Any = from_json(content)
    except ValueError as error:
        raise InvalidSetting(
            f"{path} is not JSON ({first_line(error)}); give another --out"
        ) from error
    if not isinstance(value, dict):
        raise InvalidSetting(f"{path} holds {short_repr(value)}, not an object; give another --out")
    return value
