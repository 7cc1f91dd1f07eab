"""The decode engine's promises: the same bits in any company, nothing computed twice, fairness."""

import asyncio
import threading
from functools import cache

import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import TEMPLATE, save, tokenizer

from qalign_core.chain.chain import run_chain
from qalign_core.chain.concurrent import run_chains
from qalign_core.context import BACKGROUND, RUN
from qalign_core.errors import EngineError, InvalidPrompt, InvalidSetting, ModelContractError
from qalign_core.models.chat import Text
from qalign_core.models.local import llama_net as net_llama
from qalign_core.models.local.engine import HFLanguageModel, draw, restrict, uniforms
from qalign_core.models.local.prefix_cache import PrefixCache
from qalign_core.models.local.worker import ASIDE_SHARE, Worker, as_engine_error
from qalign_core.rewards.classifier import HFRewardModel
from qalign_core.run import Sampling

PROMPT = "What is 12 + 5?"
STEPS = 6
OTHER = "Name three colours, and say why you chose them."


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save(tmp_path_factory.mktemp("llama"), "llama")


@pytest.fixture(scope="module")
def rm(tmp_path_factory):
    path = save(tmp_path_factory.mktemp("rm"), "llama", n_outputs=1)
    model = HFRewardModel.from_pretrained(path, device="cpu", score_ids=True, cache_bytes=2**21)
    yield model
    model.close()


def load(folder, *, rows=16, limit=24, **options):
    options = {"cache_bytes": 2**22, "device": "cpu", **options}
    sampling = Sampling(max_new_tokens=limit)
    return HFLanguageModel.from_pretrained(folder, rows=rows, sampling=sampling, **options)


@pytest.fixture(scope="module")
def lm(folder):
    model = load(folder)
    yield model
    model.close()


async def trajectory(lm, rm, *, chain=3, prompt=PROMPT, steps=STEPS, seed=11):
    steps_of = run_chain(lm, rm, prompt, beta=0.7, steps=steps, seed=seed, chain=chain)
    return bits([step async for step in steps_of])


def bits(steps):
    """All that a trajectory is, its floats exactly."""
    return [
        (s.index, s.proposal.response.tokens, float(s.proposal.reward).hex(), s.log_u, s.accepted)
        for s in steps
    ]


# The same bits in any company


@pytest.mark.parametrize(
    ("architecture", "pack_from"), [("llama", net_llama.PACK_FROM), ("llama", 1), ("gpt2", 1)]
)
async def test_a_trajectory_is_the_same_bit_for_bit_alone_in_company_and_after_others(
    architecture, pack_from, tmp_path, rm, monkeypatch
):
    monkeypatch.setattr(net_llama, "PACK_FROM", pack_from)
    lm = load(save(tmp_path, architecture), rows=16)
    assert lm.exact
    alone = await trajectory(lm, rm)

    in_company = []
    async for step in run_chains(lm, rm, PROMPT, n_chains=8, beta=0.7, steps=STEPS, seed=11):
        if step.chain == 3:
            in_company.append(step)
    assert bits(in_company) == alone

    hot = lm.with_sampling(Sampling(temperature=2.0, top_p=0.9, max_new_tokens=40))
    crowd = [trajectory(hot, rm, chain=k, prompt=OTHER, steps=2, seed=k) for k in range(18)]
    assert (await asyncio.gather(trajectory(lm, rm), *crowd))[0] == alone
    assert await trajectory(lm, rm) == alone

    monkeypatch.setattr("qalign_core.models.local.engine._CACHED", 1)  # one row's logits at a time
    smaller = load(tmp_path, rows=5, cache_bytes=0)  # other rows, and nearly nothing is kept
    assert await trajectory(smaller, rm) == alone
    lm.close()
    smaller.close()


@pytest.mark.parametrize("rows", [1, 2, 3, 5, 9])
async def test_any_number_of_rows_can_be_in_use_at_once(rows, lm, folder):
    few = load(folder, rows=rows)
    ids = lm.encode(PROMPT)

    async def draw_all(model):
        requests = (model.extend(ids, (), seed=seed) for seed in range(2 * rows))
        return [response.tokens for response in await asyncio.gather(*requests)]

    assert await draw_all(few) == await draw_all(lm)
    few.close()


def test_the_check_at_load_uses_the_threads_that_the_engine_will_use(folder):
    before = torch.get_num_threads()
    torch.set_num_threads(2)  # products are then cut in other places
    try:
        lm = load(folder, rows=24)
    finally:
        torch.set_num_threads(before)
    assert lm.exact
    assert not lm.engine.net.fixed
    lm.close()


# Randomness and the distribution function


def test_a_uniform_depends_on_its_seed_and_position_only():
    assert (uniforms(7, 3, 10) == uniforms(7, 0, 64)[3:10]).all()
    assert (uniforms(7, 0, 4) != uniforms(8, 0, 4)).all()
    assert uniforms(12345, 0, 2).tolist() == [0.6463801884227345, 0.7742675977164786]


@given(st.lists(st.floats(0, 1), min_size=2, max_size=40).filter(lambda p: sum(p) > 1e-3))
def test_a_token_of_probability_zero_is_never_drawn(p):
    logits = torch.tensor([p], dtype=torch.float64).log().float()
    for u in (0.0, 0.5, 1.0 - 2.0**-51):
        token, log_p = draw(logits, torch.tensor([u], dtype=torch.float64))
        assert logits[0, token[0]] > -torch.inf
        assert torch.isfinite(log_p).all()


@given(
    st.lists(st.integers(-40, 40), min_size=1, max_size=30, unique=True),
    st.integers(0, 40),
    st.sampled_from([1.0, 0.9, 0.5, 0.05]),
)
def test_top_k_and_top_p_keep_what_transformers_keeps(values, top_k, top_p):
    logits = torch.tensor(values) / 8.0
    kept = restrict(logits, Sampling(top_k=top_k, top_p=top_p))
    expected = logits[None]
    if top_k:
        expected = transformers.TopKLogitsWarper(top_k)(None, expected)
    if top_p < 1:
        expected = transformers.TopPLogitsWarper(top_p)(None, expected)
    assert kept.tolist() == expected[0].tolist()


# Kept prefixes


@given(st.lists(st.lists(st.integers(0, 2), max_size=6), max_size=30), st.integers(6, 20))
def test_the_cache_returns_what_was_put_in_and_never_grows(sequences, n_slots):
    cache = PrefixCache(n_slots, 1, dtype=torch.float32, device=torch.device("cpu"))
    for tokens in sequences:
        known, slots = cache.reserve(tokens)
        # the value of a position is a code of the prefix that ends there
        codes = [float(hash(tuple(tokens[: i + 1])) % 2**20) for i in range(known, len(tokens))]
        cache.pool[slots] = torch.tensor(codes).view(-1, 1)
        assert len(cache) <= n_slots
        assert len(cache.match(tokens)) == len(tokens)  # the newest is all there
        for kept in sequences:
            hit = cache.match(kept)
            for i, value in enumerate(cache.read(hit)[:, 0].tolist()):
                assert value == float(hash(tuple(kept[: i + 1])) % 2**20)


async def test_one_prompt_is_computed_once_for_all_who_ask_at_once(folder):
    lm = load(folder, rows=8)
    ids = lm.encode(OTHER)
    responses = await asyncio.gather(*(lm.extend(ids, (), seed=s) for s in range(20)))
    assert lm.engine.n_processed == sum(map(len, responses)) + len(ids) - 1
    lm.close()


def memory(engine):
    """Where rows and cache lie, and how many bytes each has."""
    tensors = (engine.net.keys, engine.net.values, engine.cache.pool)
    return [(tensor.data_ptr(), tensor.nbytes) for tensor in tensors]


async def test_memory_is_bounded_and_allocated_once(folder):
    lm = load(folder, rows=4, cache_bytes=2**17)
    before = memory(lm.engine)
    for k in range(6):
        await lm.extend(lm.encode(f"{OTHER} {k} " * 2), (), seed=k)
    cache = lm.engine.cache
    assert len(cache) <= cache.pool.shape[0] == 2**17 // (lm.engine.net.width * 4)
    assert memory(lm.engine) == before
    lm.close()


# Runs share the engine


async def test_one_request_does_not_wait_for_all_of_another_run(folder):
    lm = load(folder, rows=4)
    ids = lm.encode(PROMPT)
    order = []

    async def ask(run, seed):
        RUN.set(run)
        await lm.extend(ids, (), seed=seed)
        order.append(run)

    await asyncio.gather(*(ask("crowd", s) for s in range(100)), ask("one", 0))
    # it waits for the rows that are taken, at most one request each, and for its own turn
    assert order.index("one") < 30
    lm.close()


async def test_what_is_drawn_aside_comes_second_but_goes_on(folder):
    lm = load(folder, rows=4, limit=4)
    ids = lm.encode(PROMPT)
    order = []

    async def ask(run, aside, seed):
        RUN.set(run)
        BACKGROUND.set(aside)
        await lm.extend(ids, (), seed=seed)
        order.append(aside)

    # the samples beside each run's chain are asked for first, as the page does
    requests = [(run, aside, s) for run in "abcd" for aside in (True, False) for s in range(10)]
    await asyncio.gather(*(ask(*each) for each in requests))
    last_watched = max(place for place, aside in enumerate(order) if not aside)
    assert 0 < order[:last_watched].count(True) <= 4 + 40 / (ASIDE_SHARE - 1) + 4
    assert len(order) == 80
    lm.close()


async def test_a_cancelled_request_leaves_its_row_at_the_next_token(folder):
    lm = load(folder, rows=4, limit=150)
    ids = lm.encode(PROMPT)
    endless = lm.with_sampling(Sampling(max_new_tokens=150))
    lm.engine.eos = frozenset()  # nothing ends by itself
    tasks = [asyncio.ensure_future(endless.extend(ids, (), seed=s)) for s in range(12)]
    while not lm.engine.n_tokens:
        await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    steps = lm.engine.n_steps
    short = lm.with_sampling(Sampling(max_new_tokens=3))
    assert len(await short.extend(ids, (), seed=0)) == 3
    assert lm.engine.n_steps < steps + 10
    assert not lm.engine.n_waiting
    lm.close()


async def test_a_request_that_is_not_finite_fails_alone_and_leaves_no_trace(tmp_path):
    path = save(tmp_path, "llama")
    model = transformers.AutoModelForCausalLM.from_pretrained(path)
    poison = model.config.vocab_size - 1
    with torch.no_grad():
        model.model.embed_tokens.weight[poison] = torch.nan
        model.lm_head.weight[poison] = 0
    model.save_pretrained(path)
    lm = load(path, rows=4)
    ids = lm.encode(PROMPT)
    clean = [await lm.extend(ids, (), seed=s) for s in range(8)]
    assert all(poison not in r.tokens for r in clean)
    requests = [lm.extend((*ids, poison, *ids), (), seed=s) for s in range(4)]
    requests += [lm.extend((*ids, poison), (), seed=s) for s in range(4)]
    requests += [lm.extend(ids, (), seed=s) for s in range(8)]
    results = await asyncio.gather(*requests, return_exceptions=True)
    assert all(isinstance(r, EngineError) and "not finite" in str(r) for r in results[:8])
    assert results[8:] == clean
    assert [await lm.extend(ids, (), seed=s) for s in range(8)] == clean
    lm.close()


async def test_a_step_that_fails_fails_its_requests_in_one_sentence_and_the_engine_goes_on(folder):
    lm = load(folder, rows=4)
    decode, ids = lm.engine.net.decode, lm.encode(PROMPT)

    def no_memory(*step):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried 99 bytes\nat ...")

    lm.engine.net.decode = no_memory
    with pytest.raises(EngineError, match=r"ran out of memory; use fewer chains.*model$"):
        await lm.extend(ids, (), seed=0)
    lm.engine.net.decode = decode
    assert len(await lm.extend(ids, (), seed=0))
    lm.close()


@pytest.mark.parametrize("step", ["decode", "read_in"])
async def test_an_error_fails_the_request_that_it_belongs_to_and_no_other(folder, step):
    lm = load(folder, rows=8)
    ids, net = lm.encode(PROMPT), lm.engine.net
    clean = [await lm.extend(ids, (), seed=s) for s in range(6)]
    culprit, compute = 200, getattr(net, step)

    def no_memory(*args, **more):
        if culprit in next(g for g in args if not isinstance(g, int)):
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory")
        return compute(*args, **more)

    setattr(net, step, no_memory)
    # the last id of a prompt is decoded, the others are read in
    prompt = (*ids, culprit) if step == "decode" else (*ids, culprit, 9)
    requests = [lm.extend(prompt, (), seed=0), *(lm.extend(ids, (), seed=s) for s in range(6))]
    failed, *others = await asyncio.gather(*requests, return_exceptions=True)
    assert isinstance(failed, EngineError)
    assert "ran out of memory" in str(failed)
    assert others == clean
    lm.close()


async def test_a_kept_prefix_is_copied_into_the_row_and_not_computed_again(folder):
    lm = load(folder, rows=4)
    ids = lm.encode(PROMPT)
    first = await lm.extend(ids, (), seed=1)
    before = lm.engine.n_reused
    again = await lm.extend(ids, first.tokens[:5], seed=2)
    assert lm.engine.n_reused - before == len(ids) + 4
    await lm.extend(lm.encode(OTHER), (), seed=3)
    assert await lm.extend(ids, first.tokens[:5], seed=2) == again
    lm.close()


async def test_what_another_row_has_drawn_so_far_is_copied_and_not_computed_again(folder):
    lm = load(folder, rows=4)
    ids = lm.encode(PROMPT)
    whole = await lm.extend(ids, (), seed=1)
    alone = await lm.extend(ids, whole.tokens[:5], seed=2)
    lm.close()

    lm, tokens, second = load(folder, rows=4), [], []

    def begin_second(token):
        tokens.append(token)
        if len(tokens) == 5:
            call = lm.extend(ids, tuple(tokens), seed=2)
            second.append(asyncio.ensure_future(call))

    assert await lm.extend(ids, (), seed=1, on_token=begin_second) == whole
    assert tuple(tokens) == whole.tokens
    assert await second[0] == alone
    # the prompt and each token but the last were computed once
    assert lm.engine.n_processed == len(ids) - 1 + len(whole) + len(alone) - 5
    lm.close()


def test_what_a_model_raises_becomes_one_line():
    assert str(as_engine_error(ValueError("bad\nlong trace"))).endswith("ran: bad")
    known = InvalidPrompt("as it is")
    assert as_engine_error(known) is known


async def test_a_full_queue_is_refused(folder):
    lm = load(folder, rows=4, max_queue=3)
    ids = lm.encode(PROMPT)
    requests = [lm.extend(ids, (), seed=s) for s in range(40)]
    results = await asyncio.gather(*requests, return_exceptions=True)
    refused = [r for r in results if isinstance(r, EngineError)]
    assert refused
    assert all("requests are waiting already" in str(r) for r in refused)
    lm.close()


class OneByOne(Worker):
    """Answers a job a turn, once it may."""

    def __init__(self, **options):
        super().__init__("one by one", **options)
        self.may = threading.Event()

    def busy(self):
        return False

    def turn(self):
        self.may.wait()
        self.finish(self.take(), None)

    def abandon(self, error):
        pass


async def test_nobody_is_refused_because_others_are_greedy():
    worker = OneByOne(max_queue=64)

    async def visitor(name, n_at_once, times):
        RUN.set(name)
        for _ in range(times):
            await asyncio.gather(*(worker.submit(None) for _ in range(n_at_once)))

    greedy = [asyncio.ensure_future(visitor(f"greedy {k}", 60, 3)) for k in range(3)]
    while worker.n_waiting < worker.max_queue:
        await asyncio.sleep(0)
    ordinary = [asyncio.ensure_future(visitor(f"ordinary {k}", 4, 8)) for k in range(6)]
    await asyncio.sleep(0)
    worker.may.set()
    assert await asyncio.gather(*ordinary, return_exceptions=True) == [None] * 6
    refused = await asyncio.gather(*greedy, return_exceptions=True)
    assert any(isinstance(r, EngineError) for r in refused)
    await asyncio.to_thread(worker.close)


async def test_unloading_a_model_fails_what_runs_and_what_waits_in_one_sentence(folder):
    lm = load(folder, rows=4, limit=150)
    ids = lm.encode(PROMPT)
    lm.engine.eos = frozenset()  # nothing ends by itself
    tasks = [asyncio.ensure_future(lm.extend(ids, (), seed=s)) for s in range(12)]
    while not lm.engine.n_tokens:
        await asyncio.sleep(0)
    await asyncio.to_thread(lm.close)
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(r, EngineError) and "was unloaded" in str(r) for r in results)
    with pytest.raises(EngineError, match="load the model again"):
        await lm.extend(ids, (), seed=0)


# Bad input


async def test_a_prompt_that_does_not_fit_is_refused_with_both_numbers(lm):
    ids = lm.encode(PROMPT)
    wide = lm.with_sampling(Sampling(max_new_tokens=180))
    with pytest.raises(InvalidPrompt, match=rf"{len(ids)} tokens.*180.*192"):
        wide.encode(PROMPT)
    with pytest.raises(InvalidPrompt, match="empty"):
        lm.encode("  \n")
    with pytest.raises(InvalidPrompt, match="outside the model's vocabulary"):
        await lm.extend((*ids, 10**6), (), seed=0)


def test_a_long_text_gets_our_sentence_alone(lm, monkeypatch):
    """transformers warns once per tokenizer that so many ids give "indexing errors"."""
    warned = {}
    monkeypatch.setattr(lm._text._tokenizer, "deprecation_warnings", warned)
    monkeypatch.setattr(lm._text._tokenizer, "model_max_length", 100)
    with pytest.raises(InvalidPrompt, match="together more than the context"):
        lm.encode("eggs " * 700)
    lm._text.plain("eggs " * 700)
    assert warned == {}


async def test_a_prefix_that_cannot_be_continued_is_refused(lm):
    for prefix in ((2,), (9,) * lm.max_new_tokens):
        with pytest.raises(ModelContractError, match="cannot be continued"):
            await lm.extend(lm.encode(PROMPT), prefix, seed=0)


@pytest.mark.parametrize(
    "changed", [{"temperature": 0}, {"top_p": 0}, {"top_p": 1.1}, {"top_k": -1}]
)
def test_impossible_settings_are_refused(lm, changed):
    with pytest.raises(InvalidSetting, match=next(iter(changed))):
        lm.with_sampling(Sampling(**changed))


# Pieces


@cache
def byte_text():
    return Text(tokenizer())


@settings(max_examples=40)
@given(st.text(max_size=12), st.lists(st.integers(0, 261), max_size=12))
def test_pieces_join_to_the_text_whatever_the_bytes(tokens_of, noise):
    text = byte_text()
    ids = [*tokenizer()(tokens_of, add_special_tokens=False)["input_ids"], *noise]
    decoded, pieces = text.pieces(ids)
    assert len(pieces) == len(ids)
    assert decoded == text.decode(ids)
    assert "".join(p for p, i in zip(pieces, ids, strict=True) if i > 5) == decoded


def test_pieces_of_a_sentencepiece_like_tokenizer_join_too():
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    words = {
        w: i for i, w in enumerate(["<unk>", "<eos>", "▁The", "▁answer", "▁is", "▁1", "8", "."])
    }
    backend = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = decoders.Metaspace()
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token="<eos>", chat_template=TEMPLATE
    )
    decoded, pieces = Text(fast).pieces([2, 3, 4, 5, 6, 7, 1])
    assert decoded == "The answer is 18."
    assert pieces == ("The", " answer", " is", " 1", "8", ".", "<eos>")


def test_a_position_has_as_many_numbers_in_the_cache_as_in_a_row(lm):
    net = lm.engine.net
    assert net.width * net.rows * net.slots == net.keys.numel() + net.values.numel()
    assert lm.engine.cache.pool.shape[1] == net.width
