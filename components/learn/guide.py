"""The instructor's guide: `docs/workshop.md` on the page, and its table of exercises.

`python -m components.learn.guide` prints the table from the lessons and the core.
"""

import argparse
import re
from pathlib import Path

import gradio as gr

from components.common.folding import fold
from components.common.options import PRIVATE
from qalign_study.lessons.files import Ask, Lesson, Stop, load_lessons
from qalign_study.lessons.messages import check_prediction, fill_facts

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "workshop.md"
TABLE = "| Lesson, stop | What is asked | Answer |\n|---|---|---|\n"


def exercises(known: dict[str, Lesson]) -> str:
    """Return a table of the lessons' questions with the core's answers."""
    rows = [
        f"| `?lesson={name}&stop={k}` | {fill_facts(stop.ask.question, stop.ask.then, stop.at)} "
        f"| {_answer(stop, stop.ask)} |\n"
        for name, lesson in known.items()
        for k, stop in enumerate(lesson.stops, start=1)
        if stop.ask
    ]
    return TABLE + "".join(rows)


def _answer(stop: Stop, ask: Ask) -> str:
    value = str(check_prediction(stop, "")["value"])
    if ask.kind == "choice":
        return ask.options[value]
    return f"{value} (± {ask.within:g} is right)" if ask.within else value


def on_the_page(guide: str) -> str:
    """Return the guide for the page: links into the app work, and other links are plain words."""
    without_title = guide.partition("\n")[2]
    plain = re.sub(r"\[([^]]+)\]\([\w./-]+\)", r"\1", without_title)
    return re.sub(r"`(\?[\w=&-]+)`", r"[\1](\1)", plain)


def build_guide(looked_at: gr.State) -> None:
    """Build the guide, folded away under the list of lessons.

    Args:
        looked_at: changes when a visitor first looks at the page; then the guide is fetched.
    """
    guide = on_the_page(GUIDE.read_text(encoding="utf-8"))
    with fold("For instructors: a workshop of 45 or 90 minutes", "learn-guide"):
        text = gr.Markdown(padding=False)
    looked_at.change(lambda: guide, None, text, **PRIVATE)


if __name__ == "__main__":
    argparse.ArgumentParser(description="Print the table of exercises.").parse_args()
    print(exercises(load_lessons()), end="")
