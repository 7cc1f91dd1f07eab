"""The results of an evaluation: how they are stored, and what curves and tables they give.

Every sample and every step is kept as numbers (its reward, its length, which answer, whether it was
accepted, its cost), so that each curve can be computed again at any budget, any number of samples
and any beta without sampling anything; texts are kept of open-ended problems only. A folder holds
`settings.json` and one `.npz` a problem while a run goes on; `pack` makes one file of them. Rewards
are kept as 32-bit floats.
"""

from __future__ import annotations

import io
import json
import math
import zipfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from qalign_core.calibrate import Proposals, kl_from_base
from qalign_core.compare import METHODS, Budget, Meter, Method
from qalign_core.cost import n_at_budget
from qalign_core.decide import effective_sample_size, importance_weights
from qalign_core.diagnostics import Acceptance, Rate
from qalign_core.errors import InvalidSetting, InvalidTrace
from qalign_core.types import Cost, Sampling
from qalign_core.utilities import rouge1
from qalign_core.votes import minimum_bayes_risk, vote

Array = NDArray[Any]
Rule = Callable[[Array, Array, Array], Array]
Curve = Literal["qalign", "bon", "mv", "wmv", "any"]

VERSION = 2
SETTINGS = "settings.json"


@dataclass(frozen=True, slots=True)
class Settings:
    """What was run: enough to label results, to check them and to run them again.

    Attributes:
        lm, rm: ids of the models; with `lm_revision`, `rm_revision` their exact versions.
        sampling: how the LM was sampled.
        beta: of the chain and of the importance weights, raw RM units.
        seed: address of the randomness.
        budget: independent samples a problem; the chain has spent as much when it ends.
        methods: of "qalign", "bon", "mv", "wmv"; what they need was drawn.
        task: name of the problem set.
        problems: ids of all problems of the set, done or not.
        digest: hash of the whole problem set.
        lm_parameters, rm_parameters: sizes for FLOPs; 0 if unknown.
        created: date of the start (ISO 8601).
        command: how to run it again.
        states: the chain has at most so many states; 0 if only the budget ends it.
        open_ended: minimum Bayes risk with ROUGE-1 over texts takes the place of the votes.
    """

    lm: str
    rm: str
    beta: float
    seed: int
    budget: int
    methods: tuple[Method, ...] = METHODS
    task: str = ""
    problems: tuple[str, ...] = ()
    digest: str = ""
    sampling: Sampling = field(default_factory=Sampling)
    lm_parameters: int = 0
    rm_parameters: int = 0
    lm_revision: str = ""
    rm_revision: str = ""
    created: str = ""
    command: str = ""
    states: int = 0
    open_ended: bool = False
    version: int = VERSION

    @property
    def meter(self) -> Meter:
        """What prices a draw."""
        return Meter(self.lm_parameters, self.rm_parameters)

    def to_json(self) -> str:
        """The settings as JSON text."""
        return json.dumps(asdict(self), indent=1, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str, place: str) -> Settings:
        """Read settings.

        Raises:
            InvalidTrace: they are not settings of this version; the message names `place`.
        """
        try:
            values = json.loads(text)
            if values.get("version") not in (1, VERSION):
                raise InvalidTrace(
                    f"{place} has version {values.get('version')!r}, "
                    f"this program reads 1 to {VERSION}"
                )
            values["version"] = VERSION
            values["sampling"] = Sampling(**values["sampling"])
            values["methods"] = tuple(values["methods"])
            values["problems"] = tuple(values["problems"])
            return cls(**values)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            if isinstance(error, InvalidTrace):
                raise
            raise InvalidTrace(f"{place} has no readable settings: {error}") from error


@dataclass(frozen=True, eq=False)
class Record:
    """What was drawn for one problem: N independent samples, T + 1 steps of one chain.

    Attributes:
        id: of the problem.
        answers: the distinct answers, in canonical form; of an open-ended problem the texts.
        right: whether each is the right one, shape [answers].
        pool_reward, chain_reward: rewards of samples and of proposals, shapes [N], [T + 1].
        pool_answer, chain_answer: which of `answers` each has, -1 for none.
        pool_cost, chain_cost: the five counts of `Cost` for each, shapes [N, 5], [T + 1, 5].
        chain_accepted, chain_changed: of each proposal; True for the initial draw, t = 0.
        chain_length: of each proposal, |y'| in tokens, shape [T + 1].
    """

    id: str
    answers: Array
    right: Array
    pool_reward: Array
    pool_answer: Array
    pool_cost: Array
    chain_reward: Array
    chain_answer: Array
    chain_cost: Array
    chain_accepted: Array
    chain_changed: Array
    chain_length: Array

    @cached_property
    def state_of(self) -> Array:
        """The step at which the state of step t was proposed, shape [T + 1]."""
        steps = np.arange(len(self.chain_accepted))
        return np.maximum.accumulate(np.where(self.chain_accepted, steps, 0))

    def is_right(self, answer: Array) -> Array:
        """Whether answers (by number, -1 for none) are right, same shape."""
        return np.append(self.right, False)[answer]

    def rule(self, settings: Settings) -> Rule:
        """How many votes are decided at once: (answers, weights, rewards [k, n]) -> winners [k]."""
        if settings.open_ended:
            utility = rouge1.matrix(self.answers.tolist())
            return lambda answer, weight, reward: minimum_bayes_risk(
                answer, weight, reward, utility
            )
        return lambda answer, weight, reward: vote(answer, weight, reward, len(self.answers))

    def to_bytes(self) -> bytes:
        """The record as the content of an `.npz` file."""
        buffer = io.BytesIO()
        arrays = {f.name: np.asarray(getattr(self, f.name)) for f in fields(self)}
        np.savez_compressed(buffer, allow_pickle=False, **arrays)
        return buffer.getvalue()

    @classmethod
    def from_bytes(cls, content: bytes, place: str) -> Record:
        """Read a record.

        Raises:
            InvalidTrace: it is not one; the message names `place`.
        """
        try:
            with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
                values = {f.name: arrays[f.name] for f in fields(cls)}
        except (ValueError, KeyError, OSError, EOFError, zipfile.BadZipFile) as error:
            raise InvalidTrace(f"{place} is not the result of a problem: {error}") from error
        return cls(**{**values, "id": str(values["id"])})


@dataclass(frozen=True, eq=False)
class Results:
    """Settings of an evaluation, and the records of the problems that are done, in order."""

    settings: Settings
    records: tuple[Record, ...]

    @property
    def n_missing(self) -> int:
        """Problems that are not done yet."""
        return len(self.settings.problems) - len(self.records)


def load_results(path: str | Path) -> Results:
    """Read a results folder, finished or not, or a packed file.

    Raises:
        InvalidTrace: there are no results at `path`, or they cannot be read.
    """
    path = Path(path)
    if path.is_dir():
        if not (path / SETTINGS).is_file():
            raise InvalidTrace(f"{path} has no {SETTINGS}; it is not a results folder")
        settings = Settings.from_json((path / SETTINGS).read_text("utf-8"), str(path / SETTINGS))
        files = (path / record_name(place) for place in range(len(settings.problems)))
        records = [Record.from_bytes(f.read_bytes(), str(f)) for f in files if f.is_file()]
        return Results(settings, tuple(records))
    try:
        with np.load(path, allow_pickle=False) as arrays:
            settings = Settings.from_json(str(arrays["settings"]), str(path))
            return Results(settings, _unpacked({name: arrays[name] for name in arrays.files}))
    except (OSError, KeyError, ValueError, EOFError, AttributeError, zipfile.BadZipFile) as error:
        if isinstance(error, InvalidTrace):
            raise
        raise InvalidTrace(f"cannot read results from {path}: {error}") from error


def pack(results: Results, path: str | Path) -> Path:
    """Write results as one `.npz` file: every field of all records in one compressed array."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays: dict[str, Array] = {"settings": np.array(results.settings.to_json())}
    for name in _COLUMNS:
        parts = [np.asarray(getattr(record, name)) for record in results.records]
        arrays[f"{name}_n"] = np.array([len(part) for part in parts], dtype=np.int32)
        arrays[name] = np.concatenate(parts) if parts else np.zeros(0)
    pool, chain = (arrays[name].reshape(-1, 5) for name in ("pool_cost", "chain_cost"))
    arrays["pool_cost"] = _differences(pool, pool[:, 0])
    arrays["chain_cost"] = _differences(chain, arrays["chain_length"])
    arrays["id"] = np.array([record.id for record in results.records], dtype=np.str_)
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays.items():
            buffer = io.BytesIO()
            np.save(buffer, _narrow(array), allow_pickle=False)
            member = zipfile.ZipInfo(f"{name}.npy")  # of a fixed date: same results, same bytes
            archive.writestr(member, buffer.getvalue(), zipfile.ZIP_LZMA)
    return path


def _unpacked(arrays: dict[str, Array]) -> tuple[Record, ...]:
    pool, chain = arrays["pool_cost"].astype(np.int32), arrays["chain_cost"].astype(np.int32)
    if "chain_length" in arrays:
        arrays["pool_cost"] = _counts(pool, pool[0])
        arrays["chain_cost"] = _counts(chain, arrays["chain_length"])
    else:
        arrays["pool_cost"], arrays["chain_cost"] = pool.T, chain.T
        arrays["chain_length_n"] = arrays["chain_cost_n"]
        arrays["chain_length"] = _lengths(chain.T, arrays["chain_cost_n"])
    columns = {}
    for name in _COLUMNS:
        ends = np.cumsum(arrays[f"{name}_n"])[:-1]
        columns[name] = np.split(arrays[name], ends) if len(arrays["id"]) else []
    return tuple(
        Record(id=str(id_), **{name: columns[name][k] for name in _COLUMNS})
        for k, id_ in enumerate(arrays["id"])
    )


_COLUMNS = tuple(f.name for f in fields(Record) if f.name != "id")


def _differences(cost: Array, length: Array) -> Array:
    """The counts of n draws of so many tokens as five rows, small or alike: easy to compress."""
    generated, lm, lm_reused, rm, rm_reused = cost.T
    lm_all, rm_all = lm + lm_reused, rm + rm_reused
    return np.stack([generated, lm - generated, lm_all - length, rm - generated, rm_all - lm_all])


def _counts(rows: Array, length: Array) -> Array:
    """The inverse of `_differences`, shape [n, 5]."""
    generated, lm, lm_all, rm, rm_all = rows
    lm, rm, lm_all = lm + generated, rm + generated, lm_all + length
    return np.stack([generated, lm, lm_all - lm, rm, rm_all + lm_all - rm], axis=1)


def _lengths(cost: Array, n_steps: Array) -> Array:
    """The lengths that files of version 1 lack: an RM reads the prompt, alike for all, and y'."""
    read = cost[:, 3] + cost[:, 4]
    initial = np.repeat(np.cumsum(n_steps) - n_steps, n_steps)
    lengths: Array = read - read[initial] + cost[initial, 0]
    return lengths


def _narrow(values: Array) -> Array:
    """Whole numbers in 16 bits if they fit."""
    fits = values.dtype.kind == "i" and np.abs(values).max(initial=0) < 2**15
    return values.astype(np.int16) if fits else values


def record_name(place: int) -> str:
    """Name the file of a problem's record by its place in the set: an id may be any text."""
    return f"{place:05d}.npz"


# --- curves ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Point:
    """One method at one budget, averaged over problems.

    Attributes:
        method: "qalign", "bon", "mv" or "wmv"; "any" is the share of problems for which at least
            one of n samples is right, which no rule can exceed.
        n: independent samples of the budget.
        used: mean number of samples, or of the chain's states, that the decision was made from.
        spent: mean price in the meter's unit (FLOPs, or tokens where sizes are unknown).
        tokens: mean number of generated tokens.
        accuracy: share of problems decided rightly; `low` and `high` are its 95 % band by
            bootstrap over problems.
        reward: mean reward under the weights that the method decides with (BoN: of the chosen).
    """

    method: Curve
    n: int
    used: float
    spent: float
    tokens: float
    accuracy: float
    low: float
    high: float
    reward: float


def curves(
    results: Results,
    *,
    budget: Budget = "flops",
    ns: Sequence[int] | None = None,
    beta: float | None = None,
    n_subsets: int = 32,
    n_bootstrap: int = 2000,
    seed: int = 0,
) -> list[Point]:
    """Compute the accuracy of every method against compute.

    Best-of-n and "any" are averaged over all subsets of n of the N samples, exactly; MV and WMV
    over `n_subsets` random ones. QAlign is the beginning of the chain that costs what n of the
    problem's samples cost on average (or, at equal samples, its first n states).

    Args:
        results: of one run.
        budget: what is made equal between QAlign and the others at each n.
        ns: numbers of samples; default powers of two up to all of them.
        beta: of WMV's weights; default the chain's.
        n_subsets: random subsets a problem and n.
        n_bootstrap: resamples of the problems for the bands.
        seed: of subsets and resamples.

    Raises:
        InvalidSetting: no problem is done, or an n exceeds the samples.
    """
    records = results.records
    if not records:
        raise InvalidSetting("no problem is done yet; run 'evaluate' first")
    settings = results.settings
    has_pool = any(m != "qalign" for m in settings.methods)
    size = min(len(r.pool_reward) for r in records) if has_pool else settings.budget
    ns = _powers_of_two(size) if ns is None else sorted(set(ns))
    if ns[0] < 1 or ns[-1] > size:
        raise InvalidSetting(f"n must be between 1 and the {size} samples drawn, got {ns}")

    rng = np.random.default_rng(seed)
    resampled = rng.multinomial(len(records), np.full(len(records), 1 / len(records)), n_bootstrap)
    per_problem: dict[tuple[Curve, int], list[tuple[float, ...]]] = {}
    for record in records:
        rows: list[_Row] = []
        decide = record.rule(settings)
        if has_pool:
            rows += _pool_rows(record, settings, ns, beta or settings.beta, n_subsets, rng, decide)
        if "qalign" in settings.methods:
            rows += _chain_rows(record, settings, ns, budget if has_pool else "samples", decide)
        for method, n, row in rows:
            per_problem.setdefault((method, n), []).append(row)

    points = []
    for (method, n), values in per_problem.items():
        right, reward, used, spent, tokens = np.array(values).T
        low, high = np.quantile(resampled @ right / len(records), [0.025, 0.975])
        points.append(
            Point(
                method=method,
                n=n,
                used=float(used.mean()),
                spent=float(spent.mean()),
                tokens=float(tokens.mean()),
                accuracy=float(right.mean()),
                low=float(low),
                high=float(high),
                reward=float(reward.mean()),
            )
        )
    order: list[Curve] = [*METHODS, "any"]
    return sorted(points, key=lambda p: (order.index(p.method), p.n))


@dataclass(frozen=True, slots=True)
class BetaPoint:
    """What another beta would have made of the same samples, averaged over problems.

    Attributes:
        beta: of the target, raw RM units.
        accuracy: share of problems that WMV decides rightly; `low`, `high` are its 95 % band.
        reward: mean reward under WMV's weights.
        kl: KL(pi_beta || p_LM) in nats, from the pool; n samples cannot show more than log n.
        effective: effective sample size of WMV's weights.
        acceptance: of a chain's proposals that differ from the state; None if the chain that ran
            is too far away to tell.
    """

    beta: float
    accuracy: float
    low: float
    high: float
    reward: float
    kl: float
    effective: float
    acceptance: float | None


def against_beta(
    results: Results, betas: Sequence[float], *, n_bootstrap: int = 2000, seed: int = 0
) -> list[BetaPoint]:
    """Compute what other betas do: to WMV's accuracy, to the acceptance, to the distance from base.

    WMV and the chain have the same limit at the same beta, so its accuracy speaks for both.

    Raises:
        InvalidSetting: no problem is done, a beta is not > 0, or no samples were drawn.
    """
    records, settings = results.records, results.settings
    if not records or not all(len(record.pool_reward) for record in records):
        raise InvalidSetting("other betas need samples of the pool; run 'evaluate' with 'wmv'")
    rng = np.random.default_rng(seed)
    resampled = rng.multinomial(len(records), np.full(len(records), 1 / len(records)), n_bootstrap)
    values = np.empty((len(betas), len(records), 4))
    for place, record in enumerate(records):
        decide = record.rule(settings)
        reward = record.pool_reward.astype(np.float64)
        answer = record.pool_answer.astype(np.int64)
        for row, beta in enumerate(betas):
            weights = np.array(importance_weights(reward.tolist(), beta))
            won = decide(answer[None], weights[None], reward[None])
            values[row, place] = (
                record.is_right(won)[0],
                weights @ reward,
                kl_from_base(reward.tolist(), beta),
                effective_sample_size(weights.tolist()),
            )
    proposals = proposals_of(results)
    points = []
    for beta, (right, *others) in zip(betas, values.transpose(0, 2, 1), strict=True):
        low, high = np.quantile(resampled @ right / len(records), [0.025, 0.975])
        mean_reward, kl, effective = (float(other.mean()) for other in others)
        accepted = None if proposals is None else proposals.acceptance(beta)
        points.append(
            BetaPoint(
                beta=float(beta),
                accuracy=float(right.mean()),
                low=float(low),
                high=float(high),
                reward=mean_reward,
                kl=kl,
                effective=effective,
                acceptance=accepted,
            )
        )
    return points


def proposals_of(results: Results) -> Proposals | None:
    """The proposals of all chains, which tell the acceptance at other betas; None if none ran."""
    chains = [record for record in results.records if len(record.chain_reward) > 1]
    if not chains:
        return None
    states = [record.state_of[:-1] for record in chains]

    def old(name: str) -> Array:
        return np.concatenate([getattr(r, name)[s] for r, s in zip(chains, states, strict=True)])

    def new(name: str) -> Array:
        return np.concatenate([getattr(record, name)[1:] for record in chains])

    return Proposals(
        reward_old=old("chain_reward").astype(np.float64),
        reward_new=new("chain_reward").astype(np.float64),
        log_ratio=np.log(old("chain_length") / new("chain_length")),
        changed=new("chain_changed").astype(bool),
        prompt=np.repeat(np.arange(len(chains)), [len(s) for s in states]),
        beta=results.settings.beta,
    )


def acceptance_of(records: Iterable[Record]) -> Acceptance:
    """Count accepted proposals over all chains, initial draws left out."""
    n = n_accepted = n_changed = n_both = 0
    for record in records:
        accepted, changed = record.chain_accepted[1:], record.chain_changed[1:]
        n += len(accepted)
        n_accepted += int(accepted.sum())
        n_changed += int(changed.sum())
        n_both += int((accepted & changed).sum())
    return Acceptance(Rate(n_accepted, n), Rate(n_both, n_changed))


def summary(results: Results, *, seed: int = 0) -> dict[str, Any]:
    """Make the tables of a results page: plain values only, ready for JSON.

    Returns:
        `settings`; `done` and `missing` (problems); `acceptance` (overall, changed, counts);
        `unit` of `spent`; `points`, the rows of `curves` at equal FLOPs; `table`, the largest
        budget's rows.
    """
    points = curves(results, seed=seed)
    acceptance = acceptance_of(results.records)
    largest = max(p.n for p in points)
    return {
        "settings": json.loads(results.settings.to_json()),
        "done": len(results.records),
        "missing": results.n_missing,
        "unit": results.settings.meter.unit,
        "acceptance": {
            "overall": acceptance.overall.value,
            "changed": acceptance.changed.value,
            "n": acceptance.overall.trials,
            "n_changed": acceptance.changed.trials,
        },
        "points": [asdict(p) for p in points],
        "table": [asdict(p) for p in points if p.n == largest],
    }


_Row = tuple[Curve, int, tuple[float, ...]]  # method, n, (right, reward, used, spent, tokens)


def _pool_rows(
    record: Record,
    settings: Settings,
    ns: Sequence[int],
    beta: float,
    n_subsets: int,
    rng: np.random.Generator,
    decide: Rule,
) -> list[_Row]:
    reward = record.pool_reward.astype(np.float64)
    answer = record.pool_answer.astype(np.int64)
    right = record.is_right(answer).astype(np.float64)
    price = float(_prices(record.pool_cost, settings.meter).mean())
    tokens = float(record.pool_cost[:, 0].mean())
    n_right = int(right.sum())
    best_first = np.argsort(-reward, kind="stable")
    shuffled = np.argsort(rng.random((n_subsets, len(reward))), axis=1)

    rows: list[_Row] = []
    for n in ns:
        used = (float(n), n * price, n * tokens)
        if "bon" in settings.methods:
            p = _first_of_subset(len(reward), n)
            chosen = (float(p @ right[best_first]), float(p @ reward[best_first]))
            rows.append(("bon", n, (*chosen, *used)))
        any_right = 1 - math.comb(len(reward) - n_right, n) / math.comb(len(reward), n)
        rows.append(("any", n, (any_right, float(reward.mean()), *used)))

        if not {"mv", "wmv"} & set(settings.methods):
            continue
        subsets = _subsets(shuffled, n)
        r, a = reward[subsets], answer[subsets]
        for method in ("mv", "wmv"):
            if method not in settings.methods:
                continue
            w = np.exp((r - r.max(axis=1, keepdims=True)) / beta) if method == "wmv" else r * 0 + 1
            w /= w.sum(axis=1, keepdims=True)
            won = decide(a, w, r)
            result = (float(record.is_right(won).mean()), float((w * r).sum(axis=1).mean()))
            rows.append((method, n, (*result, *used)))
    return rows


def _chain_rows(
    record: Record, settings: Settings, ns: Sequence[int], budget: Budget, decide: Rule
) -> list[_Row]:
    states = record.state_of
    reward = record.chain_reward.astype(np.float64)[states]
    answer = record.chain_answer.astype(np.int64)[states]
    spent = np.cumsum(_prices(record.chain_cost, settings.meter))
    tokens = np.cumsum(record.chain_cost[:, 0])
    if budget == "flops":
        price = float(_prices(record.pool_cost, settings.meter).mean())

    rows: list[_Row] = []
    for n in ns:
        length = n_at_budget(spent.tolist(), n * price) if budget == "flops" else n
        length = min(length, len(states))
        r, a = reward[None, :length], answer[None, :length]
        won = decide(a, np.full(r.shape, 1 / length), r)
        row = (
            float(record.is_right(won)[0]),
            float(r.mean()),
            float(length),
            float(spent[length - 1]),
            float(tokens[length - 1]),
        )
        rows.append(("qalign", n, row))
    return rows


def _subsets(shuffled: Array, n: int) -> Array:
    """Take the first n of each row of shuffled numbers; all subsets where n is 1 or everything."""
    size = shuffled.shape[1]
    return np.arange(size).reshape(-1, n) if n in (1, size) else shuffled[:, :n]


@lru_cache(maxsize=256)
def _first_of_subset(size: int, n: int) -> Array:
    """Chance that the item of rank i leads a random subset of n, C(size-1-i, n-1) / C(size, n)."""
    p = np.zeros(size)
    p[0] = n / size
    for i in range(size - n):
        p[i + 1] = p[i] * (size - n - i) / (size - 1 - i)
    return p


def _prices(cost: Array, meter: Meter) -> Array:
    """The price of each row of counts, shape [n]: linear in the counts, so one product."""
    each = [meter.price(Cost(*row)) for row in np.eye(5, dtype=int).tolist()]
    return cost.astype(np.float64) @ np.array(each, dtype=np.float64)


def _powers_of_two(size: int) -> list[int]:
    return [2**k for k in range(size.bit_length()) if 2**k < size] + [size]
