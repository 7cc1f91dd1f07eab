"""The lab's figures, tables and links against the core."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any, cast
from urllib.parse import parse_qsl

import gradio as gr
import numpy as np
import pytest
from traces import read_number

from benchmarks import figures
from components.lab import (
    balance,
    best_of_n,
    beta,
    break_it,
    chain,
    style,
    which_move,
    wrong,
)
from components.lab import page as lab_page
from components.lab.base_rewards import N_EVALUATED, base_rewards, evaluated
from components.lab.link import from_query, to_query
from components.lab.page import SECTIONS, draw_section, parts_of, rows_of, world_of
from components.lab.style import Figure, Words
from qalign_core.assets import ASSETS
from qalign_core.chain.moves.block import Block
from qalign_core.chain.moves.mixture import Mixture as Moves
from qalign_core.chain.moves.suffix import Suffix
from qalign_core.decide.rules import RULES
from qalign_core.errors import InvalidSetting, InvalidTrace
from qalign_core.record.store import load_trace
from qalign_study.exact.bench import TARGETS, fields, prefers_b
from qalign_study.exact.bench import chain_of_fields as field_chain
from qalign_study.exact.convergence import (
    at_beta,
    distances,
)
from qalign_study.exact.law import EXACT, Rule, exact_chain, total_variation
from qalign_study.exact.mistakes import MISTAKES, ONE_LETTER, SHARP_MISTAKES
from qalign_study.exact.world import LANGUAGE_MODELS, REWARDS, by_reward, preset
from qalign_study.exact.wrong_reward import Example, outcomes
from qalign_study.measure.mixture import (
    SIZES,
    Mixture,
    best_of_n_as_alignment,
    fit_mixture,
    match,
    maximum_density,
)
from qalign_study.sheet.words import curve_name

WORLD = preset()
EXACTLY = next(iter(chain.CHAIN_COUNTS))
TWO = Mixture((0.6, 0.4), (-1.5, 1.0), (0.8, 1.0))


def values(fig: Figure, name: str, axis: str = "y") -> np.ndarray:
    """The values of a trace by its name."""
    trace = next(t for t in fig["data"] if t.get("name") == name)
    return np.asarray(trace[axis], dtype=float)


def names_in(fig: Figure) -> set[str | None]:
    """The names of a figure's traces."""
    return {t.get("name") for t in fig["data"]}


def texts_in(*words: Words) -> list[str]:
    """The texts that elements hold, each a text node of its own."""
    return [t for part in words for t in ([part] if isinstance(part, str) else texts_in(*part[2:]))]


def text_of(*words: Words) -> str:
    """The texts one after another."""
    return "".join(texts_in(*words))


# --- the page's own functions prove the claim ---


def test_the_page_falls_below_1e_minus_10_for_the_right_rule() -> None:
    """At the settings that the page opens with, within the steps that its slider has."""
    world = world_of(rows_of("Mixed"), *parts_of("Likes a, dislikes c"))
    p = chain.progress(world, chain.FIRST_BETA, chain.STEPS, EXACTLY)
    assert p.exact[chain.STEPS] < 1e-10
    assert total_variation(p.now, p.chain.target) < 1e-10
    assert "at t = 168" in str(chain.facts_of(p))


@pytest.mark.parametrize("title", MISTAKES)
def test_the_page_stays_above_1e_minus_3_for_every_mistake(title) -> None:
    section = break_it.draw(WORLD, chain.FIRST_BETA, title)
    fig, _ = section.figures[1]
    assert values(fig, "this mistake").min() > 1e-3
    assert values(fig, "where it ends")[0] > 1e-3
    assert np.nanmin(values(fig, "right rule")) < 1e-7


# --- figures show the core's numbers ---


@pytest.mark.parametrize("beta", [0.05, 0.7, 1.0, 3.0])
def test_the_factors_shown_multiply_to_the_flow_shown(beta: float) -> None:
    names = [balance.label(y) for y in WORLD.lm().support][:12]
    for y in names:
        for z in set(names) - {y}:
            forth, _ = balance.pair(WORLD, beta, y, z, EXACT)
            gain = WORLD.score(forth.new) - WORLD.score(forth.old)
            rows = cast(Any, balance.factors(y, z, forth, gain, beta))[-1][2:]
            _, target, proposal, alpha, total = (read_number(row[-1][-1]) for row in rows)
            # three factors of four digits, a product of three
            assert target * proposal * alpha == pytest.approx(total, rel=6.5e-3)


def test_the_strip_shows_target_base_and_chain_sorted_by_reward() -> None:
    exact = WORLD.chain(0.7)
    fig = chain.strip(exact, exact.after(5), "after 5 steps")
    order = by_reward(exact)
    assert np.all(np.diff(exact.rewards[order]) >= 0)
    assert values(fig, "exact target") == pytest.approx(exact.target[order])
    assert values(fig, "model alone") == pytest.approx(exact.base[order])
    assert values(fig, "after 5 steps") == pytest.approx(exact.after(5)[order])


def test_the_distance_curve_and_its_table_are_the_cores() -> None:
    p = chain.progress(WORLD, 1.0, 16, "256 chains")
    fig = chain.distance_figure(p)
    assert values(fig, "exact chain")[:100] == pytest.approx(distances(WORLD.chain(1.0), 99))
    assert p.empirical is not None
    # 256 chains end near their noise floor, not at zero: what is left is not bias
    assert 0.5 * p.floor < p.empirical[-50:].mean() < 1.5 * p.floor
    assert style.cell_text(float(p.exact[16])) in texts_in(chain.distance_table(p))


def test_the_flows_are_drawn_index_by_index_and_equal() -> None:
    forth, back = balance.pair(WORLD, 1.0, "ab·", "abca…", EXACT)
    fig = balance.flow_figure(forth, back)
    right, left = values(fig, "y → y′", "x"), values(fig, "y′ → y", "x")
    assert right == pytest.approx(-left)
    assert sum(right) == pytest.approx(forth.total)
    equal = text_of(*balance.describe(forth, back, 1.0, 1.0, EXACT))
    assert "equal up to rounding" in equal
    assert "e+00" not in equal  # no difference is shown where there is none
    rule = MISTAKES["No length ratio"]
    forth, back = balance.pair(WORLD, 1.0, "ab·", "abca…", rule)
    assert "differ by" in text_of(*balance.describe(forth, back, 1.0, 1.0, rule))


def test_acceptance_is_not_to_be_found_before_the_guess() -> None:
    hidden = beta.draw(WORLD, 1.0, 50, beta.HIDDEN)
    section = beta.draw(WORLD, 1.0, 50, beta.REVEALED)
    here = at_beta(WORLD, 1.0)
    rate = style.percent(here.acceptance)
    assert rate not in text_of(*hidden.words)
    assert rate in text_of(*section.words)
    assert "acceptance" not in names_in(hidden.figures[1][0])
    assert style.cell_text(here.acceptance) not in texts_in(hidden.figures[1][1])
    assert style.cell_text(here.acceptance) in texts_in(section.figures[1][1])


def test_the_methods_curves_are_the_outcomes() -> None:
    results = outcomes(Example())
    fig = wrong.method_figure(results, "accuracy")
    for method in RULES:
        expected = [o.accuracy for o in results if o.method == method]
        assert values(fig, curve_name(method)) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ((1, 3, 1.0), "prefers A"),
        ((1, 3, 0.3), "prefers the hack"),
        ((1, 3, 5), "prefers B"),
        ((14.1, 5.7, 5), "prefers B"),
    ],
)
def test_the_story_follows_beta(settings, words) -> None:
    assert words in text_of(*wrong.draw(*settings).words)


@pytest.mark.parametrize(("copies", "word"), [(0, "help"), (90, "help"), (100, "slow the chain")])
def test_block_moves_help_unless_a_field_nearly_always_copies_the_one_before(copies, word) -> None:
    section = which_move.draw(copies, 50)
    assert f"Here block moves {word}" in text_of(*section.words)
    ratios = np.asarray(section.figures[1][0]["data"][0]["y"])
    assert ratios[0] > 3
    assert ratios[-1] == pytest.approx(0.5, abs=0.01), "half the steps do nothing"
    here = values(section.figures[1][0], "your settings")
    assert here == pytest.approx(ratios[which_move.COPIES.index(copies)])


@pytest.mark.parametrize("copies", [0.0, 0.7])
def test_the_mixed_matrix_is_that_of_the_mixture_that_the_engine_runs(copies) -> None:
    lm = fields(copies, "fields")
    mixture = Moves((Suffix(), Block(lm.delimiters(":"))), (0.7, 0.3))
    mixed = field_chain(copies, 0.3)
    whole = exact_chain(lm, prefers_b, TARGETS[0], Rule(move=mixture))
    assert mixed.matrix == pytest.approx(whole.matrix, abs=1e-14)
    assert mixed.balance_residual() < 1e-12
    assert np.abs(field_chain(copies, 0.0).matrix - whole.matrix).max() > 1e-2


# --- best-of-n ---


@pytest.mark.parametrize("n", [2, 8, 64, 1024])
def test_the_maximum_is_that_of_n_draws_of_the_mixture(n) -> None:
    """20,000 maxima of n draws: Kolmogorov-Smirnov, false alarm 1e-6."""
    from scipy.stats import kstest

    rng = np.random.default_rng(n)
    n_trials = 20_000 if n <= 64 else 3000
    upper = rng.random((n_trials, n)) < 0.4
    draws = np.where(upper, rng.normal(1.0, 1.0, upper.shape), rng.normal(-1.5, 0.8, upper.shape))
    assert kstest(draws.max(axis=1), lambda r: TWO.cdf(r) ** n).pvalue > 1e-6
    m = match(TWO, n)
    assert np.trapezoid(m.maximum, m.reward) == pytest.approx(1.0, abs=1e-4)
    slope = np.gradient(TWO.cdf(m.reward) ** n, m.reward)
    assert maximum_density(TWO, n, m.reward) == pytest.approx(slope, abs=2e-3)


def test_the_gumbel_approximation_is_close_from_32_on() -> None:
    gaps = {n: match(figures.STANDARD, n).gap for n in SIZES if n >= 8}
    assert all(0.0 < gap < 0.07 for gap in gaps.values())
    late = [gaps[n] for n in gaps if n >= 32]  # it falls from there on, if slowly
    assert late == sorted(late, reverse=True)


def test_beta_star_matches_the_mode_and_not_the_variance() -> None:
    for n in (32, 256, 1024):
        m = match(figures.STANDARD, n)
        assert m.tilted is not None
        tilted_mode = m.reward[np.argmax(m.tilted.density(m.reward))]
        assert m.mode == pytest.approx(float(tilted_mode), abs=0.05)
        assert m.tilted.sd == pytest.approx(1.0)
        assert m.sd < 0.5
    sds = [match(TWO, n).sd for n in (8, 64, 512)]
    assert sds == sorted(sds, reverse=True)


def test_where_the_formula_means_nothing_the_page_says_so() -> None:
    section = best_of_n.draw(best_of_n.SLIDERS, "", 40, -1.5, 0.8, 1.0, 1.0, "2")
    assert "no matching beta" in text_of(*section.words)
    assert names_in(section.figures[0][0]) == {"model alone", "best of 2"}
    section = best_of_n.draw(best_of_n.SLIDERS, "", 40, -1.5, 0.8, 1.0, 1.0, "8")
    assert "The formula is asymptotic" in text_of(*section.words)


def test_normalised_maxima_are_maxima_of_normal_numbers() -> None:
    from scipy.stats import kstest, norm

    maxima = figures.normalised_maxima(32, trials=10_000, seed=1)
    assert kstest(maxima, lambda z: norm.cdf(z) ** 32).pvalue > 1e-6
    assert np.array_equal(maxima, figures.normalised_maxima(32, trials=10_000, seed=1))


@pytest.mark.recorded
def test_pasted_and_recorded_rewards_are_fitted_and_the_choice_of_components_is_shown() -> None:
    rng = np.random.default_rng(3)
    rewards = np.append(rng.normal(-3, 0.5, 150), rng.normal(2, 1.0, 150))
    pasted = ", ".join(f"{r:.4f}" for r in rewards)
    mixture, used = best_of_n.mixture_of(best_of_n.PASTED, pasted, 0, (0.0, 0.0), (1.0, 1.0))
    assert len(used) == 300
    assert mixture.means == pytest.approx((-3.0, 2.0), abs=0.3)
    assert "2 components" in text_of(*best_of_n.describe(mixture, match(mixture, 32), used))
    for name, known in base_rewards().items():
        mixture, used = best_of_n.mixture_of(name, "", 0, (0.0, 0.0), (1.0, 1.0))
        assert used == known.rewards
        assert "BIC" in text_of(*best_of_n.describe(mixture, match(mixture, 64), used))


def test_the_recorded_rewards_are_those_of_the_whole_traces_and_no_step_is_read(
    monkeypatch, tmp_path
) -> None:
    folder = tmp_path / "runs"
    folder.mkdir()
    whole = {}
    for path in (ASSETS / "runs").glob("*.jsonl"):
        whole[path.stem] = load_trace(path).rewards
        text = path.read_text("utf-8").replace('"accepted":', '"rejected":')  # no step is whole
        (folder / path.name).write_text(text, "utf-8")
    monkeypatch.setattr("components.lab.base_rewards.ASSETS", tmp_path)
    with pytest.raises(InvalidTrace):
        load_trace(folder / "watch.jsonl")
    known = base_rewards.__wrapped__()
    recorded = [name for name in known if name in whole]
    assert len(recorded) > 3
    for name in recorded:
        assert known[name].rewards == whole[name]


@pytest.mark.parametrize(
    ("pasted", "word"),
    [("1 2 x", "'x' is not a number"), ("1 2 3", "got 3"), ("", "got 0"), ("1 " * 20, "same")],
)
def test_rewards_that_cannot_be_fitted_are_named(pasted, word) -> None:
    with pytest.raises(InvalidSetting, match=word):
        best_of_n.mixture_of(best_of_n.PASTED, pasted, 0, (0.0, 0.0), (1.0, 1.0))


# --- the figures of the appendix ---


def test_the_appendix_figures_show_the_papers_sizes_and_the_exact_densities() -> None:
    fig = figures.maximum_against_gumbel()
    assert [a.text for a in fig.layout.annotations] == [f"n = {n}" for n in figures.SIZES]
    lines = [t for t in fig.data if t.name == "exact"]
    for n, line in zip(figures.SIZES, lines, strict=True):
        best = best_of_n_as_alignment(figures.STANDARD, n)
        z = np.asarray(line.x)
        exact = maximum_density(figures.STANDARD, n, best.a + best.b * z) * best.b
        assert np.asarray(line.y) == pytest.approx(exact)
        assert np.trapezoid(line.y, line.x) == pytest.approx(1.0, abs=0.02)


def test_the_mixture_figure_has_nine_real_prompts_each_with_its_fitted_mixture() -> None:
    fig = figures.fit_mixtures()
    known = list(evaluated().values())
    assert len(known) == N_EVALUATED
    assert [a.text for a in fig.layout.annotations] == [k.title(46) for k in known]
    lines = [t for t in fig.data if t.name == "fitted mixture"]
    for line, prompt in zip(lines, known, strict=True):
        mixture = fit_mixture(prompt.rewards)
        assert mixture is not None
        assert np.asarray(line.y) == pytest.approx(mixture.density(line.x))
        parts = [t for t in fig.data if t.name == "its components" and t.xaxis == line.xaxis]
        assert sum(np.asarray(part.y) for part in parts) == pytest.approx(np.asarray(line.y))


@pytest.mark.recorded
def test_without_an_evaluation_the_recorded_runs_are_fitted(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr("components.lab.base_rewards.EVALUATED", tmp_path / "none.zip")
    assert evaluated() == {}


def test_the_figures_are_written_as_one_page_that_needs_no_network(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("sys.argv", ["figures", "--out", str(tmp_path / "page.html")])
    figures.main()
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert all(f"<h2>{title}</h2>" in page for title in figures.FIGURES)
    assert page.count('class="plotly-graph-div"') == 3
    assert not re.search(r"<(script|link|img)[^>]* (src|href)=", page)


# --- the page as functions ---


def test_an_invalid_edit_is_explained_and_leaves_the_figures_as_they_are() -> None:
    section = chain.SECTION
    world = [rows_of("Mixed"), *parts_of("Likes a, dislikes c"), 1.0, 1.0]
    assert draw_section(section, world, [0, EXACTLY])[0] == ""
    world[0] = [["at the start", 1, 1, "two", 1], *rows_of("Mixed")[1:]]
    message, outputs = draw_section(section, world, [0, EXACTLY])
    assert "not a number" in message
    assert outputs == gr.skip()


def test_whatever_a_section_shows_stays_a_text() -> None:
    hostile = "<img src=x onerror=alert(1)>"
    for words in (
        style.table((hostile,), [(hostile,)]),
        style.facts([(hostile, hostile)]),
        style.note(hostile),
    ):
        assert hostile in texts_in(words)


@pytest.mark.parametrize("title", SHARP_MISTAKES)
def test_a_mistake_of_a_sharper_target_says_at_sharpness_one_that_nothing_is_lost(title) -> None:
    idle = break_it.draw(WORLD, 1.0, title)
    assert any("raise the sharpness" in text for text in texts_in(*idle.words))
    sharp = replace(WORLD, sharpness=4.0)
    assert break_it.broken(sharp, 1.0, SHARP_MISTAKES[title]).distance > 1e-2
    assert not any(
        "raise the sharp" in t for t in texts_in(*break_it.draw(sharp, 1.0, title).words)
    )
    flows = balance.draw(sharp, 1.0, "ab·", "a·", title)
    assert any("moves the chain away" in text for text in texts_in(*flows.words))
    right = balance.draw(sharp, 1.0, "ab·", "a·", balance.RIGHT)
    assert any("The two flows are equal" in text for text in texts_in(*right.words))
    assert any("(p(new) / p(old))^3" in text for text in texts_in(*right.words))


@pytest.mark.parametrize(
    ("title", "lm"),
    [("Cut in the first half only", "All of one length"),
     ("Tail’s factor forgotten", "Every token alike"),
     ("Tail’s factor forgotten", "All of one length")],
)  # fmt: skip
def test_two_mistakes_are_right_in_one_world_and_say_so(title, lm) -> None:
    for world, harm in ((WORLD, True), (preset(lm), False)):
        for at in (0.3, 1.0, 5.0):
            assert (break_it.broken(world, at, MISTAKES[title]).distance > 1e-2) == harm
        section = break_it.draw(world, 1.0, title)
        assert ("does little harm" in text_of(*section.words)) != harm
        # the distance at the last step is the one that stays, or there is none
        last = values(section.figures[1][0], "this mistake")[-1]
        assert (last > 1e-2) == harm


def test_with_the_tails_factor_the_same_steps_reach_the_target() -> None:
    for name in LANGUAGE_MODELS:
        rule = Rule(move=ONE_LETTER, share=0.5)
        assert break_it.broken(preset(name), 1.0, rule).distance < 1e-9


@pytest.mark.parametrize("lm", LANGUAGE_MODELS)
@pytest.mark.parametrize("reward", REWARDS)
def test_every_preset_can_be_drawn_at_both_ends_of_beta(lm, reward) -> None:
    world = preset(lm, reward)
    for at in (0.05, 5.0):
        fig, _ = chain.draw(world, at, 256, EXACTLY).figures[1]
        assert np.isfinite(values(fig, "exact chain")[:1]).all()


def test_a_link_names_what_was_moved_and_sets_it_again() -> None:
    with gr.Blocks():
        number = gr.Number(1.5, elem_id="lab-part-0")
        slider = gr.Slider(0, 10, 3, step=0.5, elem_id="lab-t")
        radio = gr.Radio(["one", "two & more"], value="one", elem_id="lab-shown")
        table = gr.Dataframe(rows_of("Mixed"), headers=["", *"abcd"], type="array",
                             elem_id="lab-rows")  # fmt: skip
    controls = [number, slider, radio, table]
    first = dict(zip((c.elem_id for c in controls), (1.5, 3, "one", rows_of("Mixed")), strict=True))
    assert to_query(first, first) == ""
    assert to_query({**first, "lab-t": 3.0}, first) == ""
    moved = {"lab-part-0": -2.25, "lab-t": 7.5, "lab-shown": "two & more",
             "lab-rows": rows_of("Sure of itself")}  # fmt: skip
    for names in ([*moved], ["lab-t"], ["lab-shown", "lab-rows"]):
        held = {**first, **{name: moved[name] for name in names}}
        query = dict(parse_qsl(to_query(held, first)))
        assert from_query(query, controls) == ({name: moved[name] for name in names}, ())


@pytest.mark.parametrize(
    ("name", "text"),
    [("t", "11"), ("t", "-1"), ("t", "nan"), ("t", "many"), ("t", ""), ("shown", "three"),
     ("rows", "1 2 3"), ("rows", "1 " * 17), ("rows", "inf " * 16), ("part-0", "1e999")],
)  # fmt: skip
def test_a_links_value_that_a_control_cannot_have_is_named_and_left_out(name, text) -> None:
    with gr.Blocks():
        controls = [
            gr.Slider(0, 10, 3, elem_id="lab-t", label="t"),
            gr.Radio(["one", "two"], value="one", elem_id="lab-shown", label="shown"),
            gr.Dataframe(rows_of("Mixed"), headers=["", *"abcd"], elem_id="lab-rows", label="rows"),
            gr.Number(0, elem_id="lab-part-0", label="part-0"),
        ]
    query = {f"lab-{name}": text, "lab-unknown": "1", "beta": "2"}
    values, notices = from_query(query, controls)
    assert values == {}
    assert len(notices) == 1
    assert f"of “{name}” cannot" in notices[0]


def test_every_figure_has_a_place_and_a_table() -> None:
    world = [rows_of("Mixed"), *parts_of("Likes a, dislikes c"), 1.0, 1.0]
    for section in SECTIONS:
        with gr.Blocks():
            own = [control.value for control in section.controls()]
            view = section.view()
        message, outputs = draw_section(section, world, own)
        assert message == ""
        figures = json.loads(outputs)["figures"]
        places = view.html_template
        assert places.count('class="lab-plot"') == places.count("<details") == len(figures)
        for outputs in figures:
            assert json.loads(outputs["drawing"])["data"]
            assert outputs["table"][0] == "div.table"


def test_a_single_chain_stays_somewhere_but_its_time_shares_converge() -> None:
    p = chain.progress(WORLD, 1.0, chain.STEPS, "1 chain")
    assert p.empirical is not None
    assert p.visited is not None
    assert p.visited[0] == p.empirical[0]
    assert p.empirical[-1] > 0.5  # it is at one text
    assert p.visited[-1] < p.visited[8] < p.visited[0]
    assert p.visited[-1] < 0.5 * p.empirical[-1]
    facts = str(chain.facts_of(p))
    assert "time shares" in facts


def test_the_reply_of_a_drawing_that_was_overtaken_is_left_out(monkeypatch) -> None:
    """Gradio asks for two drawings at once where two controls move in one turn."""
    with gr.Blocks() as demo:
        lab_page.build_lab_page(demo, gr.HTML())
    redraw = next(each for each in demo.fns.values() if each.name == "redraw")
    values: dict[Any, Any] = {widget: widget.value for widget in redraw.inputs}
    held = {w: rows_of("Mixed") if w.elem_id == "lab-rows" else v for w, v in values.items()}
    number = max(held, key=lambda widget: widget._id)  # the number that the browser counts up
    draw, newer = lab_page.draw_section, {}

    def draw_slowly(*values: Any) -> Any:
        if not newer:  # the next one begins and ends while the first is drawn
            newer["lab-message"] = None
            reply = redraw.fn({**held, number: 2})
            newer.update({widget.elem_id: value for widget, value in reply.items()})
        return draw(*values)

    monkeypatch.setattr(lab_page, "draw_section", draw_slowly)
    first = {**held, number: 1}
    for older in (redraw.fn(first), redraw.fn(first)):  # it ends later, or begins later too
        reply = {widget.elem_id: value for widget, value in older.items()}
        assert reply == {"lab-message": gr.skip()}
    message, link, view = newer.values()
    assert (message, link) == ("", "")
    assert "Distance from the model" in view
