"""What every language model and every reward model promises, checked on each of them.

The statistical tests draw with fixed seeds; each would fail a correct model with probability 1e-4.
"""

import asyncio
import math
import re
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
import transformers
from finite import letters
from scipy.stats import chisquare
from tiny_models import KEEPING, LANGUAGE_MODELS, REWARD_MODELS, save

from qalign_core import contract
from qalign_core.assets import ASSETS
from qalign_core.contract import (
    LAWS,
    N_SEEDS,
    Subject,
    check,
    verify_limit,
    verify_log_probs,
    verify_prefix,
    verify_reward,
    verify_seed,
)
from qalign_core.errors import InvalidPrompt, ModelContractError
from qalign_core.models.local.engine import HFLanguageModel
from qalign_core.registry import load_language_model, load_reward_model
from qalign_core.rewards.classifier import HFRewardModel
from qalign_core.rewards.functions import CompositeReward, FunctionReward
from qalign_core.run import Sampling
from qalign_core.types import Response
from qalign_study.commands import main
from qalign_study.exact.enumerable import EnumerableLM

PROMPT = "How many?"
LIMIT = 14
FALSE_ALARM = 1e-4
REWARD = FunctionReward(lambda prompt, text: len(text))


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Folders of saved models by (architecture, outputs)."""
    paths = {}

    def folder(architecture, n_outputs=0):
        key = architecture, n_outputs
        if key not in paths:
            path = tmp_path_factory.mktemp(f"{architecture}-{n_outputs}")
            paths[key] = save(path, architecture, n_outputs=n_outputs)
        return paths[key]

    return folder


@pytest.fixture(scope="module")
def language_models(folders):
    """Language models by name, loaded once."""
    loaded = {}

    def load(name):
        if name not in loaded:
            sampling = Sampling(max_new_tokens=6 if name == "mamba" else LIMIT)  # the slow one
            if name == "enumerable":
                loaded[name] = EnumerableLM.markov(
                    [0.5, 0.3, 0.2],
                    [[0.2, 0.5, 0.3], [0.6, 0.2, 0.2]],
                    pieces=("a", "b", "<eos>"),
                    max_new_tokens=6,
                )
            elif name == "embedded":
                loaded[name] = load_language_model("embedded", sampling=sampling)
            else:
                options = {"sampling": sampling, "rows": 16, "cache_bytes": 2**22, "device": "cpu"}
                architecture, _, dtype = name.partition(" ")
                loaded[name] = HFLanguageModel.from_pretrained(
                    folders(architecture), dtype=dtype or None, **options
                )
        return loaded[name]

    yield load
    for model in loaded.values():
        if hasattr(model, "close") and model.id != "embedded":
            model.close()


KINDS = {"enumerable", "llama", "llama int8", "gemma3", "mamba", "embedded"}
"""Our own net in both number formats, transformers' net over our rows and over its own state."""
RM_KINDS = {"rule", "composite", "llama", "llama+ids", "deberta-v2", "roberta", "embedded"}
"""A causal net that reads texts or shared ids, and encoders with both kinds of positions."""


def others_alike(kinds, *names):
    return [name if name in kinds else pytest.param(name, marks=pytest.mark.more) for name in names]


EMBEDDED = ["embedded"] if (ASSETS / "models" / "lm").is_dir() else []


@pytest.fixture(params=others_alike(KINDS, "enumerable", *LANGUAGE_MODELS, "llama int8", *EMBEDDED))
def lm(request, language_models):
    return language_models(request.param)


@pytest.fixture(params=others_alike(KINDS, *LANGUAGE_MODELS, *EMBEDDED))
def torch_lm(request, language_models, folders):
    """A language model and the plain transformers model that it was loaded from."""
    name = request.param
    path = ASSETS / "models" / "lm" if name == "embedded" else folders(name)
    plain = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    return language_models(name), plain.eval()


async def run_law(law, lm, rm=None):
    """What one law finds of a model."""
    subject = Subject(lm, rm or REWARD, PROMPT)
    try:
        return await law(replace(subject, responses=tuple(await subject.draw(N_SEEDS))))
    except ModelContractError as error:  # as `check` takes it
        return False, str(error)


@pytest.fixture
def fewer_draws(monkeypatch):
    """Less than the draws of `qalign check`, by which broken models fail all the same."""
    monkeypatch.setattr(contract, "N_DRAWS", 400)


async def test_a_language_model_obeys_every_law(lm, monkeypatch):
    monkeypatch.setattr(contract, "N_DRAWS", 400)
    for law in (verify_seed, verify_prefix, verify_log_probs, verify_limit):
        holds, evidence = await run_law(law, lm)
        assert holds, (law.__name__, evidence)


async def draws(lm, n, prefix=(), first_seed=0, prompt=PROMPT):
    ids = lm.encode(prompt)
    return await asyncio.gather(
        *(lm.extend(ids, prefix, seed=first_seed + seed) for seed in range(n))
    )


async def test_a_batch_gives_what_single_requests_give(lm):
    together = await draws(lm, 24)
    ids = lm.encode(PROMPT)
    alone = [await lm.extend(ids, (), seed=seed) for seed in range(8)]
    assert together[:8] == alone


def eos_of(lm):
    return {lm.eos} if isinstance(lm.eos, int) else set(lm.eos)


async def test_the_last_token_counts_and_is_eos_exactly_if_finished(lm):
    for response in await draws(lm, 30):
        eos = lm.engine.eos if hasattr(lm, "engine") else eos_of(lm)
        ends = [token in eos for token in response.tokens]
        assert not any(ends[:-1])
        assert response.finished == ends[-1]
        assert response.finished or len(response) == lm.max_new_tokens


async def test_there_is_a_piece_for_every_token_and_they_join_to_the_text(lm):
    for response in await draws(lm, 20):
        assert len(response.pieces) == len(response)
        visible = response.pieces[:-1] if response.finished else response.pieces
        names = {"<pad>", "<bos>", "<eos>", "<user>", "<assistant>", "<end>"}
        assert "".join(piece for piece in visible if piece not in names) == response.text


@pytest.mark.parametrize("name", others_alike(KINDS, *KEEPING, *EMBEDDED))
async def test_a_continued_prefix_is_never_computed_twice(name, language_models):
    lm = language_models(name)
    ids = lm.encode(PROMPT)
    first = max(await draws(lm, 8, first_seed=300), key=len)
    index = len(first) // 2
    before = lm.engine.n_processed, lm.engine.n_reused
    again = await lm.extend(ids, first.tokens[:index], seed=99)
    # every new id costs one position; of the kept ones the last is run again for its logits
    assert lm.engine.n_processed - before[0] == len(again) - index
    assert lm.engine.n_reused - before[1] == len(ids) + index - 1


@pytest.mark.parametrize("name", sorted({*LANGUAGE_MODELS} - {*KEEPING}))
async def test_where_no_prefix_can_be_kept_all_of_it_is_counted(name, language_models):
    lm = language_models(name)
    response = max(await draws(lm, 4), key=len)
    before = lm.engine.n_processed
    again = await lm.extend(lm.encode(PROMPT), response.tokens[:1], seed=99)
    assert lm.engine.n_reused == 0
    assert lm.engine.n_processed - before == len(lm.encode(PROMPT)) + len(again) - 1


async def test_log_probabilities_are_those_of_a_full_forward(torch_lm):
    lm, plain = torch_lm
    ids = lm.encode(PROMPT)
    for seed in range(6):
        done = await lm.engine.complete(ids, (), sampling=lm.sampling, seed=seed)
        logits = plain(torch.tensor([[*ids, *done.tokens]])).logits[0, len(ids) - 1 : -1]
        expected = logits.log_softmax(-1)[range(len(done.tokens)), list(done.tokens)]
        assert np.abs(np.array(done.log_probs) - expected.detach().numpy()).max() < 1e-4
        scores = await lm.score_tokens(ids, done.tokens, top=0)
        assert [each.log_p for each in scores] == pytest.approx(list(done.log_probs), abs=1e-5)


async def test_a_draw_up_to_an_id_is_the_beginning_of_the_whole_draw(torch_lm):
    lm, _ = torch_lm
    ids = lm.encode(PROMPT)
    stopped = 0
    for seed in range(6):
        whole = await lm.extend(ids, (), seed=seed)
        until = frozenset(whole.tokens[len(whole) // 2 : len(whole) // 2 + 1]) - {*lm.eos}
        part = await lm.extend(ids, (), seed=seed, until=until)
        end = next((k + 1 for k, id in enumerate(whole.tokens) if id in until), len(whole))
        assert part.tokens == whole.tokens[:end]
        assert part.log_probs == whole.log_probs[:end]
        assert part.finished == (end == len(whole) and whole.finished)
        stopped += end < len(whole)
        rest = await lm.score_tokens(ids, whole.tokens, top=0, first=len(whole) // 2)
        every = await lm.score_tokens(ids, whole.tokens, top=0)
        assert [each.log_p for each in rest] == pytest.approx(
            [each.log_p for each in every[len(whole) // 2 :]], abs=2e-6
        )
        assert lm.response(whole.tokens) == whole
    assert stopped


async def test_the_entropy_of_each_place_is_that_of_a_full_forward(torch_lm):
    lm, plain = torch_lm
    ids = lm.encode(PROMPT)
    whole = await lm.extend(ids, (), seed=5)
    logits = plain(torch.tensor([[*ids, *whole.tokens]])).logits[0, len(ids) - 1 : -1].double()
    expected = torch.distributions.Categorical(logits=logits).entropy().tolist()
    scores = await lm.score_tokens(ids, whole.tokens, top=0)
    assert [each.entropy for each in scores] == pytest.approx(expected, abs=1e-3)


SETTINGS = (
    Sampling(max_new_tokens=1),
    Sampling(max_new_tokens=1, temperature=0.6),
    Sampling(max_new_tokens=1, temperature=1.7, top_p=0.8),
    Sampling(max_new_tokens=1, top_k=7),
    Sampling(max_new_tokens=1, temperature=1.3, top_k=20, top_p=0.7),
)


def displayed_log_probs(logits, sampling):
    """The distribution that the settings describe, by transformers' own processors."""
    warpers = [transformers.TemperatureLogitsWarper(sampling.temperature)]
    if sampling.top_k:
        warpers.append(transformers.TopKLogitsWarper(sampling.top_k))
    if sampling.top_p < 1:
        warpers.append(transformers.TopPLogitsWarper(sampling.top_p))
    logits = logits[None].double()
    for warper in warpers:
        logits = warper(None, logits)
    return logits[0].softmax(-1).detach().numpy()


def chi_square(counts, p, n):
    """p-value of counts against p; cells that expect fewer than 5 are one."""
    big = p * n >= 5
    observed, expected = [*counts[big], counts[~big].sum()], [*(p[big] * n), p[~big].sum() * n]
    if expected[-1] < 1e-9:
        assert observed[-1] == 0
        observed, expected = observed[:-1], expected[:-1]
    expected = np.array(expected) * n / sum(expected)
    return chisquare(observed, expected).pvalue if len(observed) > 1 else 1.0


SAMPLED = {("llama", settings) for settings in SETTINGS} | {("gemma3", SETTINGS[-1])}
"""Every net draws by the same sampler, from logits of its own."""
NETS_AND_SETTINGS = [
    # mamba's draws take as long as those of ten others
    pytest.param(name, settings, marks=[] if (name, settings) in SAMPLED else pytest.mark.more)
    for name in [*LANGUAGE_MODELS, *EMBEDDED]
    for settings in (SETTINGS[::4] if name == "mamba" else SETTINGS)
]


@pytest.mark.parametrize(
    ("torch_lm", "sampling"), NETS_AND_SETTINGS, indirect=["torch_lm"], ids=str
)
async def test_first_tokens_follow_the_distribution_that_the_settings_show(torch_lm, sampling):
    await first_tokens_follow(torch_lm, sampling)


async def first_tokens_follow(torch_lm, sampling):
    lm, plain = torch_lm
    n = 800
    ids = lm.encode("Hi")
    logits = plain(torch.tensor([ids])).logits[0, -1]
    responses = await draws(lm.with_sampling(sampling), n, prompt="Hi")
    counts = np.bincount([r.tokens[0] for r in responses], minlength=len(logits))
    assert chi_square(counts, displayed_log_probs(logits, sampling), n) > FALSE_ALARM
    if sampling == SETTINGS[0]:  # the test can tell: a temperature of 0.6 is refused
        assert chi_square(counts, displayed_log_probs(logits, SETTINGS[1]), n) < FALSE_ALARM


NARROW = Sampling(max_new_tokens=2, temperature=0.2, top_k=5, top_p=0.95)
"""So few responses that each is drawn often, some cut by the limit."""


@pytest.mark.parametrize(
    "name", ["llama", "gemma3", pytest.param("mamba", marks=pytest.mark.more), *EMBEDDED]
)
async def test_whole_responses_follow_the_log_probabilities_that_they_tell(name, language_models):
    lm = language_models(name)
    holds, evidence = await run_law(verify_log_probs, lm.with_sampling(NARROW))
    assert holds, evidence


# Reward models


@pytest.fixture(scope="module")
def reward_models(folders, language_models):
    """Reward models by name, loaded once."""
    loaded = {}

    def load(name):
        if name not in loaded:
            if name == "rule":
                loaded[name] = FunctionReward(
                    lambda prompt, text: np.float32(len(text) - len(prompt))
                )
            elif name == "composite":
                loaded[name] = CompositeReward([(load("rule"), 0.5), (load("llama"), -2.0)])
            elif name in SHIPPED_RMS:
                loaded[name] = load_reward_model(name)
            else:
                path = folders(name.removesuffix("+ids"), 1)
                ids = name.endswith("+ids")
                loaded[name] = HFRewardModel.from_pretrained(path, device="cpu", score_ids=ids)
        return loaded[name]

    yield load
    for name, model in loaded.items():
        if hasattr(model, "close") and name not in SHIPPED_RMS:
            model.close()


EMBEDDED_RM = ["embedded"] if (ASSETS / "models" / "rm").is_dir() else []
OF_TEXTS = ["mood", "plain", "length:12", "contains:sun"]
SHIPPED_RMS = [*EMBEDDED_RM, *OF_TEXTS]
TORCH_RMS = [*REWARD_MODELS, "llama+ids", *EMBEDDED_RM]
ALL_RMS = ["rule", "composite", *OF_TEXTS, *TORCH_RMS]


@pytest.mark.parametrize("name", others_alike(RM_KINDS, *ALL_RMS))
async def test_a_reward_model_obeys_its_law(name, reward_models, language_models):
    holds, evidence = await run_law(verify_reward, language_models("llama"), reward_models(name))
    assert holds, evidence


@pytest.fixture
async def responses(language_models):
    """Responses of many lengths, some cut short, some with characters of several bytes."""
    sampled = await draws(language_models("llama"), 20)
    texts = ("Zoë has 12 + 5 = 17. The answer is 17.", "", "A fine day in the sun.")
    return [*sampled, *(Response((), text, True) for text in texts)]


@pytest.mark.parametrize("name", others_alike(RM_KINDS, *ALL_RMS))
async def test_one_by_one_scores_equal_those_of_a_batch(name, reward_models, responses):
    rm = reward_models(name)
    together = await asyncio.gather(*(rm.score(PROMPT, response) for response in responses))
    alone = [await rm.score(PROMPT, response) for response in reversed(responses)][::-1]
    assert [float(r) for r in together] == [float(r) for r in alone]
    assert all(math.isfinite(reward) for reward in together)
    assert len({float(r) for r in together}) > 1


@pytest.mark.parametrize("name", others_alike(RM_KINDS, *TORCH_RMS))
async def test_a_score_is_the_logit_of_a_plain_forward(name, reward_models, responses, folders):
    rm = reward_models(name)
    architecture = name.removesuffix("+ids")
    path = ASSETS / "models" / "rm" if name == "embedded" else folders(architecture, 1)
    load = transformers.AutoModelForSequenceClassification.from_pretrained
    plain = load(path, dtype=torch.float32).eval()
    for response in responses:
        ids = torch.tensor([rm.render(PROMPT, response)])
        expected = plain(ids, attention_mask=torch.ones_like(ids)).logits.item()
        assert abs(await rm.score(PROMPT, response) - expected) < 1e-4 * max(1, abs(expected))


async def test_a_causal_reward_model_reads_only_what_is_new(reward_models, language_models):
    rm, lm = reward_models("llama+ids"), language_models("llama")
    ids = lm.encode(PROMPT)
    state = max(await draws(lm, 8, first_seed=700), key=len)
    await rm.score(PROMPT, state)
    index = len(state) // 2
    proposal = await lm.extend(ids, state.tokens[:index], seed=1)
    before = rm.worker.n_processed, rm.worker.n_reused
    await rm.score(PROMPT, proposal)
    processed, reused = rm.worker.n_processed - before[0], rm.worker.n_reused - before[1]
    assert processed + reused == len(ids) + len(proposal)
    assert processed <= len(proposal) - index
    assert rm.n_read(len(ids) + index, len(ids) + len(proposal)) == len(proposal) - index


async def test_shared_ids_are_scored_as_they_are_and_foreign_ones_as_text(
    reward_models, language_models
):
    rm, lm = reward_models("llama+ids"), language_models("llama")
    response = (await draws(lm, 1))[0]
    assert rm.render(PROMPT, response) == lm.encode(PROMPT) + response.tokens
    foreign = replace(response, tokens=(9, 9, 9))
    assert rm.render(PROMPT, foreign) == reward_models("llama").render(PROMPT, foreign)


@pytest.mark.parametrize("name", others_alike(RM_KINDS, *REWARD_MODELS, *EMBEDDED_RM))
async def test_the_longest_conversation_is_scored_whole_and_a_longer_one_refused(
    name, reward_models
):
    rm = reward_models(name)
    text = ""
    while len(rm.render(PROMPT, Response((), text, True))) < rm.context_length:
        text += "a"
    assert math.isfinite(await rm.score(PROMPT, Response((), text, True)))
    with pytest.raises(InvalidPrompt, match=str(rm.context_length)):
        await rm.score(PROMPT, Response((), f"{text}a", True))


# Controls: a model that breaks a law fails it


letters_up_to = cache(letters)


class Broken:
    """A finite model whose every response `change` sees before anybody else."""

    def __init__(self, change, lm=None):
        self.lm, self.change = lm or letters(6), change
        self.id, self.eos = "broken", self.lm.eos
        self.max_new_tokens, self.encode = self.lm.max_new_tokens, self.lm.encode
        self.calls = 0

    async def extend(self, prompt_ids, prefix, *, seed):
        self.calls += 1
        return await self.change(self, prompt_ids, tuple(prefix), seed)


async def rightly(self, ids, prefix, seed):
    return await self.lm.extend(ids, prefix, seed=seed)


async def by_the_call(self, ids, prefix, seed):
    return await self.lm.extend(ids, prefix, seed=seed + 1000 * self.calls)


async def other_prefix(self, ids, prefix, seed):
    return await self.lm.extend(ids, prefix[:-1] + (0,) * bool(prefix), seed=seed)


async def forgetful(self, ids, prefix, seed):
    """The prefix comes back, but what follows is drawn as if it were not there."""
    new = await self.lm.extend(ids, (), seed=seed)
    zeros = (0.0,) * len(prefix) + new.log_probs
    return replace(new, tokens=prefix + new.tokens, log_probs=zeros, pieces=())


async def twice_as_sure(self, ids, prefix, seed):
    response = await self.lm.extend(ids, prefix, seed=seed)
    return replace(response, log_probs=tuple(2 * log_p for log_p in response.log_probs))


async def half_as_sure(self, ids, prefix, seed):
    response = await self.lm.extend(ids, prefix, seed=seed)
    return replace(response, log_probs=tuple(log_p / 2 for log_p in response.log_probs))


async def continued_otherwise(self, ids, prefix, seed):
    """After a prefix the longer of two responses, with the log-probabilities of one."""
    pair = [await self.lm.extend(ids, prefix, seed=2 * seed + k) for k in (0, 1)]
    return max(pair, key=len) if prefix else pair[0]


async def limit_from_the_cut(self, ids, prefix, seed):
    return await letters_up_to(self.max_new_tokens + len(prefix)).extend(ids, prefix, seed=seed)


async def cut_early(self, ids, prefix, seed):
    return await letters_up_to(max(4, len(prefix) + 1)).extend(ids, prefix, seed=seed)


async def untold(self, ids, prefix, seed):
    return replace(await self.lm.extend(ids, prefix, seed=seed), log_probs=())


@pytest.mark.parametrize("law", [verify_seed, verify_prefix, verify_log_probs, verify_limit])
async def test_the_finite_model_breaks_no_law_before_it_is_broken(law):
    holds, evidence = await run_law(law, Broken(rightly))
    assert holds, evidence


@pytest.mark.parametrize(
    ("law", "change"),
    [
        (verify_seed, by_the_call),
        (verify_prefix, other_prefix),
        (verify_prefix, forgetful),
        (verify_log_probs, twice_as_sure),
        (verify_log_probs, half_as_sure),
        (verify_log_probs, continued_otherwise),
        (verify_limit, limit_from_the_cut),
        (verify_limit, cut_early),
    ],
)
async def test_a_broken_language_model_fails_its_law(law, change, fewer_draws):
    holds, evidence = await run_law(law, Broken(change))
    assert holds is False, evidence


async def test_a_wrong_number_of_pieces_or_log_probabilities_fails_and_is_named():
    async def two_pieces(self, ids, prefix, seed):
        return replace(await self.lm.extend(ids, prefix, seed=seed), pieces=("a", "b"))

    laws = [str(finding) async for finding in check(Broken(two_pieces), REWARD, PROMPT)]
    line = r"FAILS: .*broken returned 2 pieces for \d tokens; return one per token, or none"
    assert [bool(re.match(line, finding)) for finding in laws] == [False, True, False, True, False]
    assert not any(law.startswith("FAILS") for law in (laws[0], laws[2], laws[4]))


async def test_what_cannot_be_tested_says_why():
    assert await run_law(verify_log_probs, Broken(untold)) == (
        None, "the model returns no log-probabilities",
    )  # fmt: skip
    table = {(0, 1): 1.0, (0, 0, 0, 0, 1): 1e-9}
    sure = EnumerableLM.from_responses(table, pieces=("a", "<eos>"))
    for law, reason in (
        (verify_seed, "seeds gave one response"),
        (verify_log_probs, "nearly certain"),
        (verify_limit, "no response reached the limit of 5"),
    ):
        holds, evidence = await run_law(law, sure)
        assert holds is None
        assert reason in evidence


SURE, FLAT = (0.99, 0.01), (1 / 200,) * 200


@pytest.mark.parametrize(
    ("chances", "kept", "reason"),
    [
        (SURE, 0, "nearly certain; use a higher temperature, top-p or top-k"),
        (FLAT, 0, "probability of 0.005, too little for 500 draws; use a lower temperature, top-p"),
        ((1 / 60,) * 60, 0, "of 0.017, too little for 500 draws; use a lower temperature, top-p"),
        (FLAT, 1, "nearly certain and those after them too varied for 500 draws; use another prom"),
    ],
)
async def test_first_tokens_that_cannot_be_tested_get_the_advice_that_helps(chances, kept, reason):
    responses = {(0,) * kept + (k, len(chances)): chance for k, chance in enumerate(chances)}
    pieces = (*map(str, range(len(chances))), "<eos>")
    holds, evidence = await run_law(
        verify_log_probs, EnumerableLM.from_responses(responses, pieces=pieces)
    )
    assert holds is None
    assert reason in evidence


class Changing:
    """A reward that is another at each call, by so much."""

    id = "changing"

    def __init__(self, step):
        self.step, self.calls = step, 0

    async def score(self, prompt, response):
        self.calls += 1
        return 1.0 + self.step * self.calls


@pytest.mark.parametrize(
    ("rm", "holds"),
    [
        (Changing(0.0), True),
        (Changing(0.01), False),
        (Changing(math.nan), False),
        (Changing(math.inf), False),
    ],
)
async def test_a_reward_that_changes_or_is_not_finite_fails(rm, holds):
    assert (await run_law(verify_reward, letters(), rm))[0] is holds


async def test_a_finding_per_law_and_an_error_is_a_failure():
    unscored = FunctionReward(lambda prompt, text: math.nan, id="nan")
    findings = [finding async for finding in check(letters(6), unscored, PROMPT)]
    assert [finding.law for finding in findings] == list(LAWS)
    assert [finding.holds for finding in findings] == [True, True, True, True, False]
    assert "nan returned" in str(findings[-1])


@pytest.mark.parametrize(("source", "status"), [("length:12", 0), ("rules.py:twice", 1)])
def test_the_command_prints_a_line_per_law_and_exits_with_one_if_one_fails(
    source, status, tmp_path, capsys, monkeypatch, fewer_draws
):
    (tmp_path / "rules.py").write_text(
        "calls = []\ndef twice(prompt, text):\n    calls.append(1)\n    return len(calls)\n"
    )
    monkeypatch.chdir(tmp_path)
    assert main(["check", "--lm", "embedded", "--rm", source]) == status
    output = capsys.readouterr()
    lines = output.out.splitlines()
    assert not output.err  # progress bars are for terminals
    assert [line.partition(": ")[2].partition(".")[0] for line in lines] == list(LAWS)
    assert lines[-1].startswith("FAILS" if status else "holds")
