"""The one dictionary: what each idea is called, looks like and means.

It is `assets/dictionary.toml`, and the words of each deciding rule that is not in there. Figures
take their colours, markers and names from here, the pages' style its variables (`--c-chain`), the
scripts their data, the glossary its sentences.
"""

import html
import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from itertools import cycle
from types import MappingProxyType
from urllib.parse import urlencode

from qalign_core.assets import ASSETS
from qalign_core.decide.rules import RULES
from qalign_core.registry import entries
from qalign_study.export.scripts import as_data

RULE_LOOKS = (
    ("violet", "diamond", "dash"),
    ("rose", "circle", "dashdot"),
    ("red", "square", "dash"),
)
"""Colour, marker and line of the deciding rules that the dictionary does not list, in turn."""
METHOD = re.compile(r"[Bb]est-of-(?:n|\d+)")
"""Names of methods that a browser would break at their hyphens."""
TERM = re.compile(rf"\[([^\]]+)\]\((\w+)\)|{METHOD.pattern}")


@dataclass(frozen=True, slots=True)
class Idea:
    """The dictionary's entry for an idea.

    Attributes:
        part: the part of the glossary that contains it.
        word: what it is called on every page.
        sentence: what it is, in one plain sentence.
        formula: the same in one line of signs.
        lab: the section of the Lab that shows it, if one does.
        symbol: its sign in formulas, if it has one.
        colour: a name of `colours`, if it is drawn.
        marker, line: plotly's names for how it is drawn, if it is.
        width: of its line, in pixels.
        open: of a deciding rule: the idea that takes its place where a text is chosen.
        open_sentence: what it is there, if it keeps its name.
    """

    part: str
    word: str
    sentence: str
    formula: str
    lab: str = ""
    symbol: str = ""
    colour: str = ""
    marker: str = ""
    line: str = ""
    width: float = 2.5
    open: str = ""
    open_sentence: str = ""

    @property
    def link(self) -> str:
        """The query of a link to the section of the Lab that shows it."""
        return "?" + urlencode({"tab": "lab", "lab-opened": self.lab})


@cache
def _read() -> tuple[Mapping[str, tuple[str, str]], Mapping[str, Idea]]:
    tables = tomllib.loads((ASSETS / "dictionary.toml").read_text("utf-8"))
    colours = {name: (light, dark) for name, (light, dark) in tables.pop("colours").items()}
    ideas: dict[str, Idea] = {}
    for part, entries_of_part in tables.items():
        for id_, entry in entries_of_part.items():
            if id_ in ideas:
                raise ValueError(f"dictionary.toml: {id_} is in {ideas[id_].part} and {part}")
            ideas[id_] = Idea(part=part, **entry)
    return MappingProxyType(colours), MappingProxyType(ideas)


def colours() -> Mapping[str, tuple[str, str]]:
    """The colours by name, for light and for dark pages."""
    return _read()[0]


def ideas() -> Mapping[str, Idea]:
    """All ideas by id, in the order of the glossary; a rule may bring its own words."""
    ideas = dict(_read()[1])
    own = [rule for rule in RULES.values() if rule.id not in ideas]
    if not own:
        return _read()[1]
    for rule, (colour, marker, line) in zip(own, cycle(RULE_LOOKS), strict=False):
        words = rule.word or rule.id, rule.sentence, rule.formula or rule.sentence
        ideas[rule.id] = Idea("Deciding", *words, colour=colour, marker=marker, line=line)
    parts = [*dict.fromkeys(idea.part for idea in ideas.values())]
    return dict(sorted(ideas.items(), key=lambda entry: parts.index(entry[1].part)))


def colour(id_: str) -> str:
    """An idea's colour on a light page; figures are made with it, and dark pages change it."""
    return colours()[ideas()[id_].colour][0]


def term(id_: str, text: str = "") -> str:
    """Return the markup of a word that explains itself on hover, focus or press.

    Args:
        id_: the idea.
        text: the page's text for it; by default the idea's word.
    """
    idea = ideas()[id_]
    return f'<button type="button" data-term="{id_}">{markup_of(text or idea.word)}</button>'


def markup_of(text: str) -> str:
    """Escape a text; no line ends within the name of a method."""
    return METHOD.sub(r"<nobr>\g<0></nobr>", html.escape(text))


def with_terms(text: str) -> str:
    """Markup of a text in which "[the target](target)" is a term: a word and its idea."""
    return TERM.sub(
        lambda match: term(match[2], html.unescape(match[1])) if match[2] else markup_of(match[0]),
        html.escape(text),
    )


def variables() -> list[str]:
    """Declare a variable for each idea that is drawn: for light pages, and for dark ones."""
    pairs = {id_: colours()[idea.colour] for id_, idea in ideas().items() if idea.colour}
    return ["".join(f" --c-{id_}: {pair[k]};" for id_, pair in pairs.items()) for k in (0, 1)]


def style() -> str:
    """Style sheet: a variable for each idea that is drawn, and the figures of a dark page."""
    light, dark = variables()
    # plotly writes colours into the elements that it draws, and draws them once
    figures = "".join(
        f'.dark .js-plotly-plot [style*="{what}: {_rgb(of_light)}"] '
        f"{{ {what}: {of_dark} !important; }}\n"
        for of_light, of_dark in colours().values()
        for what in ("fill", "stroke")
    )
    return f":root {{{light} }}\n.dark {{{dark} }}\n{figures}"


def _rgb(colour: str) -> str:
    red, green, blue = (int(colour[k : k + 2], 16) for k in (1, 3, 5))
    return f"rgb({red}, {green}, {blue})"


def script() -> str:
    """Return a script that gives the dictionary and the models' names to the pages' modules."""
    data = {id_: {**asdict(idea), "link": idea.link} for id_, idea in ideas().items()}
    return _global_script("QAlignDictionary", data) + names()


def names() -> str:
    """Return a script with words only: ideas by id, models by kind and id."""
    titles: dict[str, dict[str, str]] = {"lm": {}, "rm": {}}
    for (kind, id_), entry in entries().items():
        titles[kind][id_] = entry.title
    words = {id_: idea.word for id_, idea in ideas().items()}
    return _global_script("QAlignModels", titles) + _global_script("QAlignWords", words)


def _global_script(name: str, data: object) -> str:
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return f"globalThis.{name} = {as_data(text)};\n"
