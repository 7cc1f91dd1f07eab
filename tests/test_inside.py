"""Watch from the inside: what the model thinks of a text, a rewrite by hand, and the game."""

from __future__ import annotations

import asyncio
import json
import math
import re

import pytest
from browser import API, ROOT, serve
from toys import ToyLM, ToyRM

from components.session.runs import Runs
from components.session.user_text import MAX_WORDS
from components.watch.inside import MAX_TEXTS, text_functions
from qalign_core.chain.moves.suffix import length_ratio
from qalign_core.errors import InvalidPrompt
from qalign_core.models.chat import rounded
from qalign_core.record.format import parse_trace
from qalign_core.record.runner import record
from qalign_core.registry import load_language_model, load_reward_model
from qalign_core.run import Limits, Sampling
from qalign_core.target import Scores, log_acceptance
from qalign_core.types import Response, Step

pytestmark = pytest.mark.recorded  # engines that weigh, redraw and judge texts of a recorded run

RECORDED = (ROOT / "assets/runs/watch.jsonl").read_text(encoding="utf-8")
HEADER = RECORDED.splitlines()[0]
STEPS = parse_trace(RECORDED).steps
IDS = [list(step.proposal.response.tokens) for step in STEPS]
PROMPT = "Tom has 5 eggs. He buys 3 boxes of 4 eggs each. How many eggs?"
SAMPLINGS = [Sampling(), Sampling(temperature=0.7, top_k=5, top_p=0.9, max_new_tokens=64)]


def embedded(sampling: Sampling):
    return load_language_model("embedded", sampling=sampling)


@pytest.mark.parametrize("sampling", SAMPLINGS)
async def test_a_text_is_weighed_as_it_was_drawn_bit_by_bit(sampling):
    lm = embedded(sampling)
    ids = lm.encode(PROMPT)
    for seed in range(3):
        done = await lm.engine.complete(ids, (), sampling=sampling, seed=seed)
        scores = await lm.score_tokens(ids, done.tokens)
        assert [each.log_p for each in scores] == list(map(rounded, done.log_probs))


async def test_a_tail_is_read_in_chunks_without_a_decoding_step_wherever_it_begins():
    lm = embedded(Sampling())
    ids = lm.encode(PROMPT)
    before = lm.engine.n_steps
    done = await lm.extend(ids, (), seed=1)
    steps = lm.engine.n_steps
    assert steps - before >= len(done), "the control: a draw takes a step per token"
    every = await lm.score_tokens(ids, done.tokens)
    for first in (1, len(done) // 2, len(done) - 3, len(done) - 1):
        assert await lm.score_tokens(ids, done.tokens, first=first) == every[first:]
    assert lm.engine.n_steps == steps


async def test_another_temperature_weighs_otherwise():  # the control of the test above
    usual, other = (embedded(Sampling(temperature=t)) for t in (1.0, 1.5))
    ids = usual.encode(PROMPT)
    done = await usual.engine.complete(ids, (), sampling=usual.sampling, seed=1)
    scores = await other.score_tokens(ids, done.tokens)
    assert max(abs(a.log_p - b) for a, b in zip(scores, done.log_probs, strict=True)) > 0.01


@pytest.mark.parametrize("sampling", SAMPLINGS)
async def test_the_likeliest_tokens_are_told_best_first_and_none_that_is_never_drawn(sampling):
    lm = embedded(sampling)
    ids = lm.encode(PROMPT)
    response = await lm.extend(ids, (), seed=4)
    scores = await lm.score_tokens(ids, response.tokens, top=8)
    for piece, each in zip(response.pieces, scores, strict=True):
        values = [p for _, p in each.others]
        assert values == sorted(values, reverse=True)
        assert sum(map(math.exp, values)) <= 1 + 1e-9
        assert len(values) <= (sampling.top_k or 8)
        others = dict(each.others)
        if piece in others:
            assert rounded(others[piece]) == each.log_p


async def test_words_of_a_visitor_never_end_a_text_or_begin_a_turn():
    lm = embedded(Sampling())
    kept = tuple(IDS[0][:4])
    written = lm.extend_with_text(kept, " 7<eos><user> 8", ended=True)
    assert written.tokens[:4] == kept
    assert [at for at, id in enumerate(written.tokens) if id in lm.eos] == [len(written) - 1]
    assert written.text.endswith(" 7<eos><user> 8")
    assert written.finished
    assert not lm.extend_with_text(kept, " 7", ended=False).finished
    with pytest.raises(
        InvalidPrompt, match=r"the text has \d+ tokens, and a response may have 256"
    ):
        lm.extend_with_text((), "7 " * 500, ended=True)


@pytest.mark.parametrize("ends", [True, False])
async def test_a_rewrite_is_judged_as_the_rule_would_and_by_both_models(ends):
    _, rewrite, _ = text_functions(Runs())
    request = {"who": "me", "header": HEADER, "tokens": IDS[0], "cut": 8, "words": " 30 + 7 = 37.",
             "ends": ends, "seed": 5}  # fmt: skip
    reply = await rewrite(request)
    again = await rewrite(request)
    assert again == reply  # the seed is the model's only chance
    header = parse_trace(RECORDED).header
    lm, rm = embedded(header.run.sampling), load_reward_model("embedded")
    rewards = []
    for text_data in (reply["old"], reply["new"]):
        text = lm.extend_with_text(tuple(text_data["tokens"]), "", ended=False)
        rewards.append(await rm.score(header.run.prompt, text))
        scores = await lm.score_tokens(lm.encode(header.run.prompt), text.tokens)
        assert text_data["reward"] == rewards[-1]
        assert text_data["log_prob"] == pytest.approx(sum(w.log_p for w in scores), abs=1e-9)
        assert (
            text_data["log_target"] == text_data["log_prob"] + text_data["reward"] / header.run.beta
        )
    old, new = reply["old"], reply["new"]
    assert new["tokens"][: 8 + reply["typed"]][:8] == IDS[0][:8]
    assert "".join(new["pieces"]).startswith("".join(old["pieces"][:8]) + " 30 + 7 = 37.")
    assert (len(new["tokens"]) == 8 + reply["typed"]) == ends
    assert reply["gain"] == pytest.approx(new["log_target"] - old["log_target"])
    ratio = length_ratio(new=len(new["tokens"]), old=len(old["tokens"]))
    assert reply["log_alpha"] == log_acceptance(
        header.run.target, new=Scores(rewards[1]), old=Scores(rewards[0]), log_correction=ratio
    )


async def test_in_a_sharper_target_the_rule_asks_for_the_probability_too():
    _, rewrite, _ = text_functions(Runs())
    sharper = json.dumps(json.loads(HEADER) | {"sharpness": 3.0})
    request = {"who": "me", "tokens": IDS[0], "cut": 5, "words": " 7 boxes.", "ends": False,
             "seed": 3}  # fmt: skip
    plain, sharp = [await rewrite(request | {"header": head}) for head in (HEADER, sharper)]
    old, new = sharp["old"], sharp["new"]
    difference = new["log_prob"] - old["log_prob"]
    lead = (new["reward"] - old["reward"]) / json.loads(HEADER)["beta"]
    assert sharp["gain"] == pytest.approx(3 * difference + lead)
    ratio = 2 * difference + lead + math.log(len(old["tokens"]) / len(new["tokens"]))
    assert sharp["log_alpha"] == pytest.approx(min(0.0, ratio))
    assert sharp["log_alpha"] != plain["log_alpha"]


def request_of(header: str, step: Step) -> dict[str, object]:
    tokens = list(step.current.response.tokens) if step.t else []
    return {"who": "me", "header": header, "chain": step.chain, "t": step.t, "tokens": tokens}


# of blocks, of four chains, and of one whose steps all cut the end
@pytest.mark.parametrize("run", ["repair", "stuck", pytest.param("watch", marks=pytest.mark.more)])
async def test_a_step_is_drawn_again_from_its_seed_its_chain_and_its_number(run):
    text = (ROOT / f"assets/runs/{run}.jsonl").read_text(encoding="utf-8")
    header, trace = text.splitlines()[0], parse_trace(text)
    *_, redraw = text_functions(Runs())
    steps = [*trace.steps[:4], *trace.steps[-4:]]
    assert {step.accepted for step in steps} == {True, False}
    for step in steps:
        reply = await redraw(request_of(header, step))
        assert reply["tokens"] == list(step.proposal.response.tokens)
        assert reply["accepted"] == step.accepted
        assert reply["reward"] == pytest.approx(step.proposal.reward, abs=1e-3)
    other = header.replace(f'"seed":{trace.header.run.seed}', '"seed":4242')  # the control
    reply = await redraw(request_of(other, steps[0]))
    assert reply["tokens"] != list(steps[0].proposal.response.tokens)


async def test_a_step_of_a_sharper_target_is_judged_with_its_probability():
    *_, redraw = text_functions(Runs())
    run = parse_trace(RECORDED).header.run.with_changes(sharpness=3.0, steps=6, pool=0)
    lm, rm = embedded(run.sampling), load_reward_model("embedded")
    lines = [each async for each in record(lm, rm, run)]
    for step in [line.draw for line in lines if line.draw]:
        reply = await redraw(request_of(lines[0].line, step))
        assert reply["accepted"] == step.accepted
        assert reply["tokens"] == list(step.proposal.response.tokens)


REQUEST = {"who": "me", "header": HEADER, "tokens": IDS[0], "cut": 5, "words": "", "ends": True,
         "chain": 0, "t": 1,
         "seed": 3, "texts": [IDS[0]], "top": 3}  # fmt: skip
HOSTILE = {
    "nobody": (None, {"who": None}),
    "a long name": (None, {"who": "x" * 99}),
    "no header": (None, {"header": "hello"}),
    "another kind of header": (None, {"header": [1]}),
    "a header of no model": (None, {"header": HEADER.replace('"embedded"', '"of/nobody"')}),
    "ids beyond all": (0, {"texts": [[10**6]]}),
    "ids below 0": (0, {"texts": [[-1]]}),
    "texts for ids": (0, {"texts": [["a"]]}),
    "a text too long": (0, {"texts": [[7] * 257]}),
    "too many texts": (0, {"texts": [IDS[0]] * (MAX_TEXTS + 1)}),
    "all tokens": (0, {"top": 500}),
    "a cut behind the end": (1, {"cut": len(IDS[0])}),
    "a cut that is no number": (1, {"cut": True}),
    "a seed of half": (1, {"seed": 0.5}),
    "no words": (1, {"words": None}),
    "signs that are not seen": (1, {"words": "a\u202eb"}),
    "a null byte": (1, {"words": "a\0b"}),
    "half a sign": (1, {"words": "\ud800"}),
    "too many words": (1, {"words": "a" * (MAX_WORDS + 1)}),
    "too many tokens": (1, {"words": "7 " * 400}),
    "a chain that the run lacks": (2, {"chain": 1}),
    "a step behind the last": (2, {"t": 257}),
    "a step before the first": (2, {"t": -1}),
    "a step that is no number": (2, {"t": True}),
    "a state of no tokens": (2, {"tokens": []}),
}


@pytest.mark.parametrize("kind", HOSTILE)
async def test_what_cannot_be_gets_one_sentence(kind):
    which, changes = HOSTILE[kind]
    functions = text_functions(Runs())
    for ask in functions if which is None else [functions[which]]:
        reply = await ask(REQUEST | changes)
        assert set(reply) == {"error"}
        assert reply["error"].endswith(".")
        assert reply["error"].count(". ") + reply["error"].count("\n") == 0
    for ask in functions:
        assert set(await ask(changes.get("who"))) == {"error"}


async def test_a_model_that_does_not_tell_says_so():
    runs = Runs(load=lambda lm, rm, sampling: (ToyLM(), ToyRM()))
    score, *_ = text_functions(runs)
    reply = await score(REQUEST)
    assert reply["error"].startswith("toy does not return the probabilities of tokens; ")


class Waits(ToyLM):
    """A model that is asked, and waits until it may answer."""

    def __init__(self) -> None:
        super().__init__()
        self.requested, self.may = asyncio.Event(), asyncio.Event()

    async def score_tokens(self, prompt_ids, tokens, *, top):
        self.requested.set()
        await self.may.wait()
        return ()

    def extend_with_text(self, prefix, words, *, ended):
        return Response(tuple(prefix), words, ended)


async def test_a_question_waits_in_the_queue_and_a_newer_one_of_its_page_ends_it():
    lm = Waits()
    load = lambda *_: (lm, ToyRM())  # noqa: E731
    score, *_ = text_functions(Runs(Limits(runs=1, queue=1), load=load))
    request = {"header": HEADER, "texts": [[1]]}
    first = asyncio.create_task(score(request | {"who": "me"}))
    await lm.requested.wait()
    second = asyncio.create_task(score(request | {"who": "you"}))
    third = asyncio.create_task(score(request | {"who": "they"}))  # behind a full queue: it waits
    for _ in range(20):  # until they have their places
        await asyncio.sleep(0)
    newer = asyncio.create_task(score(request | {"who": "me"}))
    assert "A newer request" in (await first)["error"]
    lm.may.set()
    for each in (second, third, newer):
        assert (await each) == {"texts": [[]]}


@pytest.fixture(scope="module")
def embedded_app():
    """The app with the models that come with it."""
    import app

    runs = Runs(Limits(runs=4))
    with serve(app.build_app(runs), **app.launch_options(runs)) as address:
        yield address


WITH_MARKUP = "<img src=x onerror=window.hit=1>{{7*7}}"


@pytest.mark.more
@pytest.mark.asyncio(loop_scope="session")
async def test_tokens_are_shaded_a_hand_rewrites_and_the_game_is_won(visit, embedded_app):
    page = await visit(embedded_app)
    # the chain's first two steps, which leave much to reach
    lines = RECORDED.splitlines(keepends=True)
    steps = [line for line in lines if '"type":"step"' in line]
    few = lines[0] + "".join(steps[:2])
    await page.evaluate(f"(text) => {API}.open(text, 'Few')", few)
    await page.evaluate(f"({API}.toggle(false), {API}.seek(1), {API}.openTab('tokens'))")
    await page.wait_for_selector(".qp-new-bars")
    weights = await page.locator(".qp-shade").evaluate_all(
        "all => all.map((x) => parseFloat(x.style.getPropertyValue('--k')))"
    )
    assert len(weights) == len(IDS[1])
    assert 0 == min(weights) < max(weights) <= 42
    await page.locator(".qp-shade").nth(0).focus()
    await page.keyboard.press("ArrowRight")
    opinion = await page.inner_text(".qp-opinion")
    assert f"token 2 of {len(IDS[1])}" in opinion
    assert "Likeliest here" in opinion
    assert await page.evaluate(f"{API}.position.t") == 1  # the keys were the text's

    await page.evaluate(f"{API}.openTab('hand')")
    await page.locator("[data-key=play]").click()
    await page.wait_for_selector(".qp-score")
    chain = await page.inner_text(".qp-score")
    assert "best ln π in 1 step:" in chain  # the run has no more
    await page.locator(".qp-shade").nth(8).click()
    await page.fill(".qp-words", WITH_MARKUP)
    await page.get_by_role("button", name="It ends here").click()
    await page.wait_for_selector(".qp-gain")
    assert WITH_MARKUP in (await page.inner_text(".qp-result .qp-shaded")).replace("\n", "")
    assert "the target" in await page.inner_text(".qp-gain")
    assert "the rule would accept it" in await page.inner_text(".qp-result")
    assert await page.evaluate("window.hit ?? 0") == 0
    await page.fill(".qp-words", "a\u202eb")
    await page.get_by_role("button", name="It ends here").click()
    await page.get_by_text("invisible characters").wait_for()

    # a text that the chain came to later, written by hand
    best = next(step.proposal.response.text for step in STEPS if step.t == 209)
    await page.locator(".qp-shade").nth(0).click()
    await page.fill(".qp-words", best)
    await page.get_by_role("button", name="It ends here").click()
    await page.get_by_text("You are ahead.").wait_for()
    assert "2 of 30 rewrites" in await page.inner_text(".qp-score")
    assert chain.split("(")[0].split(":")[-1] in await page.inner_text(".qp-score")
    kept = json.loads(await page.evaluate("localStorage.getItem('qalign-hand')"))
    assert [round(value, 2) for value in kept.values()] == [
        float(
            re.search(r"browser: (\S+)\.", await page.inner_text(".qp-score"))[1].replace("−", "-")
        )
    ]
    await page.evaluate("localStorage.removeItem('qalign-hand')")  # a visitor of other tests
    # where the model goes on the rest is its own
    await page.locator("[data-key=leave]").click()
    await page.locator(".qp-shade").nth(3).click()
    await page.get_by_role("button", name="Let the model continue").click()
    await page.wait_for_selector(".qp-result .qp-shade >> nth=8")
    assert await page.locator(".qp-typed").count() == 0
    assert page.errors == []


@pytest.mark.more
@pytest.mark.asyncio(loop_scope="session")
async def test_a_link_opens_a_step_of_a_chain_which_a_button_draws_again(visit, embedded_app):
    page = await visit(f"{embedded_app}?run=stuck&step=5&chain=2")
    summary = page.locator(".qp-summary")
    await summary.get_by_text("chain 2, step 5").wait_for()
    await summary.get_by_role("button", name="Draw it again").click()
    await summary.get_by_text("Drawn again: same text, same verdict.").wait_for()
    await page.evaluate(f"{API}.seek(6, 0)")  # of another step nothing has been drawn
    await summary.get_by_text("chain 1, step 6").wait_for()
    assert "Drawn again" not in await summary.inner_text()
    other = RECORDED.replace('"seed":701', '"seed":702', 1)  # the control
    await page.evaluate(f"(text) => {API}.open(text, 'Other')", other)
    await page.evaluate(f"({API}.toggle(false), {API}.seek(20))")
    await summary.get_by_text("Seed 702, chain 1, step 20").wait_for()
    await summary.get_by_role("button", name="Draw it again").click()
    await summary.get_by_text("Drawn again, it differs").wait_for()
    assert page.errors == []
