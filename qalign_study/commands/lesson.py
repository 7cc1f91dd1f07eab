"""Write a lesson that runs, or check lessons: every fault is a line that begins with FILE:LINE.

Examples:
  qalign lesson new 1-my-lesson.toml
  qalign lesson check 1-my-lesson.toml
"""

import argparse
from pathlib import Path

from qalign_core.errors import InvalidSetting, on_disk
from qalign_study.lessons.files import load_lessons, name_of
from qalign_study.lessons.material import add_runs, files_of
from qalign_study.lessons.messages import check_lesson

NEW = """\
# A lesson. "qalign lesson check FILE" reports every fault; the form of a lesson is described in
# docs/teaching.md. A recorded run of your own beside this file, mine.jsonl, has the name "mine".
title = "My lesson"
says = "What one step keeps, and what it rewrites."
minutes = 3
end = "The tokens before the cut stay. The coin decides about the rest."

[[stop]]
title = "The cut"
text = "The text has {length} tokens. Tokens before the cut stay: here {kept}."
at = { page = "watch", run = "watch", step = 1, phase = "cut" }
lit = "text"
notes = "Only the presenter sees this."

[[stop]]
title = "The rewards"
text = "The model has written a new ending."
at = { phase = "rewrite" }
lit = "text"

[stop.ask]
question = "Which text has the higher reward?"
fact = "better"
options = { old = "The old text", new = "The new text" }
right = "Yes: {reward} for the old text, {new_reward} for the new one."
wrong = "No: the old text has {reward}, the new one {new_reward}."
veil = true
then = { phase = "score" }
lit = "chance"

[[stop]]
title = "The chance"
text = "Rewards: {reward} and {new_reward}. β: {beta}. Lengths: {length} and {new_length} tokens."
at = { phase = "score" }
lit = "chance"

[stop.ask]
question = "How likely is the new text to be accepted?"
fact = "alpha"
within = 10
right = "Close: {alpha}."
wrong = "It is {alpha}: e to the difference of the rewards over β, times old length over new."
then = { phase = "chance" }
lit = "chance"
"""


def options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `qalign lesson`."""
    parser.usage = f"{parser.usage} new|check FILE ..."
    parser.add_argument("do", choices=("new", "check"), help="write a lesson, or check lessons")
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="NUMBER-NAME.toml")


async def command(options: argparse.Namespace) -> int:
    """Write a lesson, or check some; the status is 1 if one has a fault."""
    return max([{"new": _write, "check": _check}[options.do](path) for path in options.files])


def _write(path: Path) -> int:
    if path.suffix != ".toml":
        better = path.with_suffix(".toml")
        raise InvalidSetting(f"a lesson's file ends with .toml, got {path}; use {better}")
    with (
        on_disk(f"the lesson {path}", "written", "give a new file", InvalidSetting),
        path.open("x", encoding="utf-8") as file,  # never over a lesson that is there
    ):
        file.write(NEW)
    print(f"{path}: a lesson with 3 stops; open it with python app.py --lessons {path.parent}")
    return 0


def _check(path: Path) -> int:
    others: list[Path] = []
    if path.parent.is_dir():
        add_runs(path.parent)
        others = files_of("lesson", path.parent)
    known = [*load_lessons(), *map(name_of, others)]
    lesson, sentences = check_lesson(path, known, reveals=True)
    for sentence in sentences:
        print(sentence)
    if lesson is not None:
        print(f"{path.name}: {len(lesson.stops)} stops, no faults")
    return int(lesson is None)
