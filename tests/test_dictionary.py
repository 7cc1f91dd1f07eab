"""The dictionary: whole, told apart by every eye, and the only place that has colours and names."""

from __future__ import annotations

import json
import math
import re
from itertools import combinations, pairwise

import numpy as np
import plotly.graph_objects as go
import pytest
from browser import ROOT

from components.common.style import line_of, log_axis, marker_of
from components.lab.page import SECTIONS
from qalign_core.decide.rules import RULES
from qalign_core.registry import entries
from qalign_study.export import dictionary
from qalign_study.export.dictionary import Idea, colours, ideas
from qalign_study.sheet.words import MOST_TICKS, curve_name, names_of, tick_text

GROUNDS = (("#ffffff", "#f6f7f9"), ("#171e2a", "#0f141d"))
"""Cards and pages, light and dark."""


def square(text: str) -> np.ndarray:
    """Nine numbers as three rows."""
    return np.array(text.split(), float).reshape(3, 3)


# Machado, Oliveira and Fernandes (2009), severity 1, over linear RGB; grey is the luminance
EYES = {
    "usual": np.eye(3),
    "protanopia": square(
        "0.152286 1.052583 -0.204868 0.114503 0.786281 0.099216 -0.003882 -0.048116 1.051998"
    ),
    "deuteranopia": square(
        "0.367322 0.860646 -0.227968 0.280085 0.672501 0.047413 -0.011820 0.042940 0.968881"
    ),
    "tritanopia": square(
        "1.255528 -0.076749 -0.178779 -0.078411 0.930809 0.147602 0.004733 0.691367 0.303900"
    ),
    "greyscale": np.tile([0.2126, 0.7152, 0.0722], (3, 1)),
}
# Ottosson (2020)
TO_LMS = square(
    "0.4122214708 0.5363325363 0.0514459929 0.2119034982 0.6806995451 0.1073969566"
    " 0.0883024619 0.2817188376 0.6299787005"
)
TO_LAB = square(
    "0.2104542553 0.7936177850 -0.0040720468 1.9779984951 -2.4285922050 0.4505937099"
    " 0.0259040371 0.7827717662 -0.8086757660"
)
APART = 0.055
"""Distance in OKLab at which two colours are told apart at a glance; 0.02 is just visible."""


def linear(colour: str) -> np.ndarray:
    """Linear RGB of "#rrggbb"."""
    c = np.array([int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)])
    return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)


def contrast(one: str, other: str) -> float:
    """WCAG's contrast of two colours, 1 to 21."""
    low, high = sorted(float(linear(c) @ EYES["greyscale"][0]) for c in (one, other))
    return (high + 0.05) / (low + 0.05)


def distance(one: str, other: str, eye: str) -> float:
    """How far two colours are apart for an eye, in OKLab."""
    seen = [np.clip(EYES[eye] @ linear(c), 0, 1) for c in (one, other)]
    first, second = (TO_LAB @ np.cbrt(TO_LMS @ rgb) for rgb in seen)
    return float(np.linalg.norm(first - second))


def ideas_on_charts() -> dict[str, Idea]:
    """The ideas that are drawn."""
    return {id_: idea for id_, idea in ideas().items() if idea.colour}


@pytest.mark.parametrize("idea", ideas().values(), ids=ideas())
def test_every_idea_has_a_word_one_sentence_a_formula_and_a_section_of_the_lab(idea):
    assert idea.word
    assert idea.formula
    assert re.fullmatch(r"[A-Z][^.!?]*\.", idea.sentence), idea.sentence
    assert "\n" not in idea.sentence + idea.formula
    assert idea.lab in {section.name for section in SECTIONS} or not idea.lab
    assert idea.link.startswith("?tab=lab&lab-opened=")


def test_every_word_stands_for_one_idea():
    words = [idea.word for idea in ideas().values()]
    assert len(set(words)) == len(words)


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("name", colours())
def test_every_colour_is_read_on_both_grounds_of_its_theme(name, theme):
    for ground in GROUNDS[theme]:
        assert contrast(colours()[name][theme], ground) >= 4.5


def matrix(theme: int, eye: str) -> dict[tuple[str, str], float]:
    """How far the colours of the methods, of the model alone and of a proposal are apart."""
    ids = ("base", "target", "proposed", *RULES)
    colour = {id_: colours()[ideas()[id_].colour][theme] for id_ in ids}
    return {(a, b): distance(colour[a], colour[b], eye) for a, b in combinations(ids, 2)}


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("eye", [eye for eye in EYES if eye != "greyscale"])
def test_methods_are_told_apart_by_colour_alone_whatever_eye_one_has(theme, eye):
    close = {pair: round(d, 3) for pair, d in matrix(theme, eye).items() if d < APART}
    # a proposal is a diamond without a line of its own, beside a chain of circles
    assert close.keys() <= {("proposed", "qalign")}


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_in_greyscale_methods_are_told_apart_by_marker_and_by_line(theme):
    close = [pair for pair, d in matrix(theme, "greyscale").items() if d < APART]
    assert close, "greys alone would do, and this test would say nothing"
    for a, b in close:
        assert ideas()[a].marker != ideas()[b].marker
        assert (ideas()[a].line, ideas()[a].width) != (ideas()[b].line, ideas()[b].width) or (
            "proposed" in (a, b)
        )


def test_orange_is_best_of_n_and_nothing_else():
    assert [id_ for id_, idea in ideas_on_charts().items() if idea.colour == "orange"] == ["bon"]


def test_two_ideas_of_one_look_are_two_names_of_one_thing():
    looks: dict[tuple[str, str, str, float], list[str]] = {}
    for id_, idea in ideas_on_charts().items():
        looks.setdefault((idea.colour, idea.marker, idea.line, idea.width), []).append(id_)
    same = {tuple(ids) for ids in looks.values() if len(ids) > 1}
    assert same == {("accepted", "chain", "qalign"), ("mv", "mbr"), ("wmv", "wmbr")}


def test_plotly_knows_every_marker_and_line():
    for idea in ideas_on_charts().values():
        go.Scatter(marker={"symbol": idea.marker or None}, line={"dash": idea.line or None})


def test_the_scripts_draw_every_marker_and_line():
    source = (ROOT / "assets/web/shell/looks.js").read_text("utf-8")
    for idea in ideas_on_charts().values():
        shape = idea.marker.removesuffix("-open")
        assert not shape or re.search(rf'^  "?{shape}"?: "M', source, re.MULTILINE), shape
        assert idea.line in ("", "solid") or f"{idea.line}: " in source, idea.line


def test_figures_and_pages_take_names_and_looks_from_the_dictionary():
    for method, named in names_of().items():
        idea, light = ideas()[method], colours()[ideas()[method].colour][0]
        assert line_of(method) == {"color": light, "dash": idea.line, "width": idea.width}
        assert marker_of(method) == {"color": light, "symbol": idea.marker, "size": 8}
        assert curve_name(method) == named.word == idea.word
    texts = names_of(open_ended=True)
    assert {texts["mv"].word, texts["wmv"].word} == {"MBR", "Weighted MBR"}
    assert texts["qalign"].sentence.endswith("take its most typical state.")


def test_a_dark_page_changes_every_colour_of_a_figure_and_knows_every_variable():
    style = dictionary.style()
    for light, dark in colours().values():
        rgb = ", ".join(str(int(light[k : k + 2], 16)) for k in (1, 3, 5))
        for what in ("fill", "stroke"):
            assert f'[style*="{what}: rgb({rgb})"] {{ {what}: {dark} !important; }}' in style
    root, dark_page = re.findall(r"^(?::root|\.dark) \{(.*?)\}", style, re.MULTILINE)
    for id_, idea in ideas_on_charts().items():
        light, dark = colours()[idea.colour]
        assert f"--c-{id_}: {light};" in root
        assert f"--c-{id_}: {dark};" in dark_page


def test_every_variable_of_an_idea_that_a_style_or_script_uses_is_one():
    files = [p for kind in ("css", "js", "py") for p in (ROOT / "assets").rglob(f"*.{kind}")]
    used = {
        name for p in files for name in re.findall(r"var\(--c-([a-z]+)\)", p.read_text("utf-8"))
    }
    assert used <= ideas_on_charts().keys()


def test_every_term_that_a_page_asks_for_is_in_the_dictionary():
    files = [*(ROOT / "assets").rglob("*.js"), *(ROOT / "components").rglob("*.py")]
    used = {id_ for p in files for id_ in re.findall(r'\bterm\("(\w+)"', p.read_text("utf-8"))}
    assert used <= ideas().keys()


def test_scripts_get_what_python_reads_and_no_markup():
    sent = dictionary.script()
    assert "<" not in sent
    handed = dict(re.findall(r"^globalThis\.(\w+) = (.*);$", sent, re.MULTILINE))
    data = json.loads(handed["QAlignDictionary"])
    assert list(data) == list(ideas())
    assert data["beta"]["symbol"] == "β"
    assert json.loads(handed["QAlignWords"])["base"] == "model alone"
    models = json.loads(handed["QAlignModels"])
    assert models["lm"]["embedded"] == "0.9M model, trained here: word problems, writing"
    assert models["rm"].keys() == {id_ for kind, id_ in entries() if kind == "rm"}


def test_a_term_is_a_button_whose_text_is_text():
    assert dictionary.term("beta", "<β>") == (
        '<button type="button" data-term="beta">&lt;β&gt;</button>'
    )
    assert ">model alone<" in dictionary.term("base")
    with pytest.raises(KeyError):
        dictionary.term("bta")


@pytest.mark.parametrize(
    ("values", "first", "last"),
    [
        ([1, 64], "1", "50"),
        ([0.04, 20], "0.05", "20"),
        ([3.1e9, 9.9e11], "5G", "1T"),
        ([1e-14, 1], "10<sup>−14</sup>", "1"),
        ([1.3e11, 2.9e11], "200G", "300G"),
        ([1, 4], "1", "4"),
        ([0.4, 1.6], "0.4", "1"),
        ([0, math.inf, 7], "7", "7"),
    ],
)
def test_a_log_axis_has_a_few_round_ticks_within_its_values(values, first, last):
    axis = log_axis(values)
    positive = [v for v in values if 0 < v < math.inf]
    ticks = axis["tickvals"]
    assert 1 <= len(ticks) <= MOST_TICKS or min(positive) == max(positive)
    assert all(min(positive) / 1.3 <= tick <= max(positive) * 1.3 for tick in ticks)
    if min(positive) < max(positive):
        assert (axis["ticktext"][0], axis["ticktext"][-1]) == (first, last)
        assert len(ticks) > 1, "one number is no scale"
    assert all(b / a > 1.19 for a, b in pairwise(ticks)), "their texts would touch"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *((0.001, "0.001"), (0.5, "0.5"), (20, "20"), (5e3, "5k"), (2e6, "2M"), (1e12, "1T")),
        *((1e-4, "10<sup>−4</sup>"), (2e-5, "2 × 10<sup>−5</sup>"), (1e18, "10<sup>18</sup>")),
    ],
)
def test_a_tick_is_written_as_people_write_it(value, text):
    assert tick_text(value) == text


def test_terms_stand_in_a_text_as_a_word_with_its_idea_and_the_rest_stays_text():
    html = dictionary.with_terms("A [weighted “vote”](wmv) & <b>; f(x)[1].")
    assert html == f"A {dictionary.term('wmv', 'weighted “vote”')} &amp; &lt;b&gt;; f(x)[1]."
    names = dictionary.with_terms("Best-of-n & best-of-64, not [best-of-n](bon)")
    one, two, term = (
        "<nobr>Best-of-n</nobr>",
        "<nobr>best-of-64</nobr>",
        dictionary.term("bon", "best-of-n"),
    )
    assert names == f"{one} &amp; {two}, not {term}"
    with pytest.raises(KeyError):
        dictionary.with_terms("[beta](bta)")
