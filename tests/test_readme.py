"""What the README and the pages of docs/ show, runs; what they point to, is there."""

from __future__ import annotations

import json
import math
import re
import runpy
import shlex
import sys
import textwrap
import tomllib
from base64 import b64encode
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

import gradio
import numpy as np
import pytest
import yaml
from markdown_it import MarkdownIt
from packaging.specifiers import SpecifierSet
from packaging.version import Version
from prose import SCRIPTS, find_phrases, pages, prose, vague_names
from tiny_models import save

from qalign_core import Target, load_trace, log_acceptance, registry
from qalign_core.decide.answers.extraction import extract_number
from qalign_core.run import Limits
from qalign_core.target import Scores
from qalign_study.commands import main, read, shared
from qalign_study.measure.results import unpack
from qalign_study.sets.instructions import Instructions
from qalign_study.sets.problem_sets import parse_problems

ROOT = Path(__file__).resolve().parent.parent
PAGES = [
    *(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "SECURITY")),
    *sorted(ROOT.glob("docs/*.md")),
]
TEXTS = {path: path.read_text(encoding="utf-8") for path in PAGES}
BLOCKS = [
    block
    for text in TEXTS.values()
    for block in re.findall(r"^```(\w+)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
]
PYTHON = [block for language, block in BLOCKS if language == "python"]
COMMANDS = [
    line
    for language, block in BLOCKS
    if language == "sh"
    for line in block.replace("\\\n", " ").splitlines()
    if line.strip() and not line.startswith("#")
]
QUICK = [line for line in COMMANDS if line.startswith(("python -m ", "qalign "))]
REPORT = "qalign report --csv "
SMALL = "assets/results/in_distribution-sharp.zip"
"""In place of all shipped results, whose report takes over a minute; tests/test_report.py does."""
GIF = "assets/screenshots/watch.gif"
RUN = ROOT / "assets" / "runs" / "watch.jsonl"
ENV = re.compile(r"`(QALIGN_[A-Z_]+)`")
CPU = "PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu "
TARGETS = [line.removeprefix(CPU) for line in COMMANDS if line.removeprefix(CPU)[:5] == "make "]


def test_the_step_that_the_architecture_quotes_is_the_code() -> None:
    text = TEXTS[ROOT / "docs/architecture.md"]
    (quoted,) = re.findall(r"^```text\n(result = .*?)^```$", text, re.DOTALL | re.MULTILINE)
    source = (ROOT / "qalign_core" / "chain" / "chain.py").read_text(encoding="utf-8")
    assert textwrap.indent(quoted, "    ") in source


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An empty folder from which the project can be imported."""
    return tmp_path


# what shows Gradio's defects apart: it uses nothing of ours
@pytest.mark.more
@pytest.mark.parametrize("upstream", [False, True])
def test_every_command_and_every_python_block_runs(
    folder: Path, upstream: bool, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each as a program of its own folder, in one process, which imports torch once."""
    assert read(["report"]).paths == sorted((ROOT / "assets" / "results").glob("*.zip"))
    assert [line for line in QUICK if line.startswith(REPORT)]
    commands = [] if upstream else QUICK
    others = TEXTS[ROOT / "docs/upstream.md"]
    blocks = [block for block in PYTHON if (block in others) == upstream]
    for place, text in enumerate([*commands, *blocks]):
        (folder / f"{place}").mkdir()
        monkeypatch.chdir(folder / f"{place}")
        if text in commands:
            few = text.replace(REPORT, f"qalign report {ROOT}/{SMALL} --csv ")
            few = re.sub(r"(--steps|--pool) 16\b", r"\1 8", few)
            few = re.sub(r"(--problems|--last) 4\b", r"\1 2", few)
            python = f"python -m qalign_study {few.removeprefix('qalign ')}"
            words = shlex.split(few if few.startswith("python") else python, comments=True)
            monkeypatch.setattr(sys, "argv", words[2:])
            with pytest.raises(SystemExit) as end:
                runpy.run_module(words[2], run_name="__main__", alter_sys=True)
            assert end.value.code in (None, 0), f"{text}: {capsys.readouterr().err}"
        else:
            before = gradio.Blocks.get_instances()
            exec(compile(text, "block", "exec"), {"__name__": "__main__"})
            for app in gradio.Blocks.get_instances():
                if app not in before:
                    app.close()  # eight idle servers make the process seven times slower
        assert capsys.readouterr().out.strip(), text


LONG = [
    " ".join(line.split())
    for language, block in BLOCKS
    if language == "bash"
    for line in block.replace("\\\n", " ").splitlines()
    if re.match("qalign (evaluate|run|train-rm) ", line) and not re.search(r"--plan|\$", line)
]
"""Commands that take minutes or hours."""
ROW = {
    "question": "1 + 1?", "answer": "#### 2",  # GSM8K
    "key": 1, "prompt": "Say 2.", "instruction_id_list": ["any"], "kwargs": [{}],  # IFEval
}  # fmt: skip
"""A row of both published sets that long commands read."""


class AllRead(Exception):
    """The settings and the problems of a command are read, and its models come next."""


def test_every_long_command_is_read_up_to_its_models(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("train", "test", "gsm8k_test", "input_data"):
        (folder / f"{name}.jsonl").write_text(json.dumps(ROW) + "\n")
    (folder / "forms.jsonl").write_text('{"prompt": "1 + 1?", "answer": "2"}\n')

    def load(*_: object) -> None:
        raise AllRead

    monkeypatch.chdir(folder)
    monkeypatch.setattr(shared, "models_of", load)
    # extras, which tests/train and tests/ifeval try
    monkeypatch.setattr("qalign_study.commands.train_rm.check_installed", lambda: None)
    monkeypatch.setattr("qalign_core.models.loading.load_text", lambda base: None)
    monkeypatch.setattr(Instructions, "verdicts", lambda *_: [True])
    for line in LONG:
        # generated sets take long to draw
        command = re.sub(
            r"(?<=--task )(inventory|long|shifted|train\.jsonl)\S*", "forms.jsonl", line
        )
        print(command)  # the last one is the one that fails
        with pytest.raises(AllRead):
            main(shlex.split(command)[1:])
    assert len(LONG) > 20


def test_the_problem_set_that_is_shown_is_one() -> None:
    (block,) = [block for language, block in BLOCKS if language == "json"]
    vote, text = parse_problems(block.splitlines())
    assert vote.is_right("18")
    assert text.is_right("The cat has a hat.")
    assert not text.is_right("The hat has a cat.")


def test_the_registries_that_are_shown_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = [block for language, block in BLOCKS if language == "toml" and "[[lm]]" in block]
    (folder / "own.toml").write_text("\n".join(blocks))
    save(folder / "my-model", "llama", max_position_embeddings=2048)
    for name in ("base-model", "gemma-base"):
        save(folder / name, "llama", max_position_embeddings=2048)
        (folder / name / "chat_template.jinja").unlink()
    (rule,) = re.findall(r"# (def short.*)", "".join(blocks))
    (folder / "rules.py").write_text(rule)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("QALIGN_REGISTRY", "own.toml")
    registry.entries.cache_clear()
    try:
        assert registry.load_reward_model("short-and-good").id == "short-and-good"
        for lm in ("mine", "base", "gemma3-270m"):
            command = f"run --lm {lm} --rm short --prompt Hi --steps 2 --max-new-tokens 8 --quiet"
            assert main(command.split()) == 0
    finally:
        for lm in ("mine", "base", "gemma3-270m"):
            registry.unload(lm)
        monkeypatch.delenv("QALIGN_REGISTRY")
        registry.entries.cache_clear()


def test_every_other_command_is_a_target_of_the_makefile() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for line in COMMANDS:
        if line not in QUICK:
            target = line.removeprefix(CPU)
            assert target in TARGETS
            assert re.search(rf"^{target.split()[1]}:", makefile, re.MULTILINE), line


def test_an_install_without_cuda_is_a_command_that_reaches_the_pip_of_make_demo() -> None:
    for page in ("README.md", "docs/faq.md"):
        assert f"\n{CPU}make demo\n```" in TEXTS[ROOT / page], page
        assert re.search(r"several\s+GB", TEXTS[ROOT / page])
        assert "about 1.5 GB in all" in " ".join(TEXTS[ROOT / page].split())
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert not re.search(r"PIP_|--index-url|--extra-index-url", makefile)  # would override it
    torch = (ROOT / "requirements.txt").read_text(encoding="utf-8")
    # "+cpu" is a local version: it matches the pin, and pip prefers it to the one without
    (pin,) = re.findall(r"^torch(==.+)$", torch, re.MULTILINE)
    assert SpecifierSet(pin).contains(f"{pin[2:]}+cpu")
    assert Version(f"{pin[2:]}+cpu") > Version(pin[2:])


def test_the_badges_are_true() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)["project"]
    (paper,) = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))["references"]
    number = paper["identifiers"][0]["value"].removeprefix("arXiv:")
    expected = {
        f"License: {project['license']}": (f"license-{project['license'].replace('-', '--')}-blue",
                                           project["license-files"][0]),
        f"Python {project['requires-python'].removeprefix('>=')} or newer": (
            f"python-{project['requires-python'].removeprefix('>=')}+-blue", "pyproject.toml"
        ),
        f"arXiv:{number}": (f"arXiv-{number}-b31b1b", paper["url"]),
    }  # fmt: skip
    badges = re.findall(
        r"\[!\[(.+?)\]\(https://img\.shields\.io/badge/(.+?)\)\]\((.+?)\)",
        TEXTS[ROOT / "README.md"],
    )
    assert {words: (image, link) for words, image, link in badges} == expected


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_picture_and_every_page_that_it_links_to_is_there(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)[^)]*\)|<img src=\"([^\"]+)\"", TEXTS[page])
    for link in map("".join, links):
        assert link.startswith("https://") or (page.parent / link).is_file(), link


FOLDERS = (
    *("qalign_core", "qalign_study", "components", "assets", "tests"),
    *("benchmarks", "docs", "tools", "notebooks"),
)
FILES = [
    path.relative_to(ROOT).as_posix()
    for path in [*ROOT.glob("*.*"), *(p for each in FOLDERS for p in (ROOT / each).rglob("*"))]
    if "__pycache__" not in path.parts
]
SOURCE = (".py", ".js", ".css", ".toml", ".tsv", ".c", ".txt")
PATH = re.compile(r"[\w.-]+(/[\w.-]+)*(/|\.(py|js|css|toml|md|json|tsv|txt|zip|c|svg|cff))")
OTHERS = {
    "judges.py",
    "roman.py",
    "GSM_symbolic.jsonl",
    "gradio_client/utils.py",
    "ConnectError",
    "ipconfig",
} | {*("HTTP_PROXY", "HTTPS_PROXY", "FORWARDED_ALLOW_IPS")}
"""The reader's own files, and names of other programs; variables have a test of their own."""


def find_missing(text: str) -> list[str]:
    """Return the paths and names in backquotes that the project does not have.

    A path may begin at any folder. Paths with capital letters are placeholders, those in tone/ an
    example's.
    """
    words = set(_source_words())
    missing = []
    for code in re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```$", "", text, flags=re.S | re.M)):
        if code in OTHERS or code.startswith(("tone/", "QALIGN_")):
            continue
        if PATH.fullmatch(code):
            is_there = any(f"/{file}/".endswith(f"/{code.rstrip('/')}/") for file in FILES)
            if not is_there and not re.search("[A-Z]", code):
                missing.append(code)
        elif re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*(\(\))?", code):
            missing += [code] * (not words.issuperset(re.findall(r"\w+", code)))
    return missing


@cache
def _source_words() -> frozenset[str]:
    texts = [
        (ROOT / file).read_text(encoding="utf-8")
        for file in ["Makefile", "Dockerfile", *FILES]
        if not file.endswith("test_readme.py") and file.endswith((*SOURCE, "file"))
    ]
    return frozenset(re.findall(r"\w+", "\n".join(texts)))


# the page on defects of Gradio names Gradio's own functions
@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.name != "upstream.md"], ids=lambda page: page.name
)
def test_every_path_and_name_in_backquotes_is_there(page: Path) -> None:
    assert find_missing(TEXTS[page]) == []


def test_a_path_or_a_name_that_is_gone_is_found() -> None:
    there = "`net_selection.py` `models/local/` `run_chain()` `Target.log_ratio` `NAME.toml` `a b`"
    assert find_missing(there) == []
    gone = ["choice.py", "models/far/", "run_chains_of()", "Target.log_ratio_of"]
    assert find_missing(f"`{'` and `'.join(gone)}`") == gone


def test_the_readme_has_a_picture_and_leads_to_every_page() -> None:
    readme = TEXTS[ROOT / "README.md"]
    (first, *_) = re.findall(r"assets/[\w/.-]+", readme)
    assert first == GIF
    for moving in ROOT.glob("assets/screenshots/*.gif"):
        assert moving.stat().st_size < 1_500_000, moving.name
    for page in PAGES[1:]:
        assert f"]({page.relative_to(ROOT).as_posix()})" in readme


@pytest.mark.asyncio(loop_scope="session")
async def test_the_table_of_the_readme_ends_on_the_first_screen(visitors: Any) -> None:
    text = TEXTS[ROOT / "README.md"].split("---\n", 2)[2]
    body = MarkdownIt("commonmark").enable("table").render(text)
    (badges,) = re.findall(r"<p>(<a href.+?)</p>", body)
    body = body.replace(badges, re.sub("<img[^>]+>", "<b>badge</b>", badges))  # no host is asked
    picture = "data:image/gif;base64," + b64encode((ROOT / GIF).read_bytes()).decode()
    # the sizes and distances of GitHub's style
    style = (
        "body { font: 16px/1.5 Arial; max-width: 1012px; padding: 32px; margin: auto }"
        "body { box-sizing: border-box } h1, p, table { margin: 0 0 16px } img { max-width: 100% }"
        "h1 { line-height: 1.25; padding-bottom: .3em; border-bottom: 1px solid }"
        "table { border-collapse: collapse } th, td { padding: 6px 13px; border: 1px solid }"
    )
    page = await visitors.new_page()
    await page.set_viewport_size({"width": 1280, "height": 800})
    await page.set_content(f"<style>{style}</style>{body.replace(GIF, picture)}")
    await page.wait_for_function("document.images[0].complete")
    height, bottom = await page.evaluate(
        "['img', 'table'].map((x) => document.querySelector(x).getBoundingClientRect())"
        ".map((box, k) => k ? box.bottom : box.height)"
    )
    await page.close()
    assert body.count("<tr>") == 1 + 3
    assert height > 300
    assert bottom <= 800


def test_there_is_something_to_run() -> None:
    assert PYTHON
    assert QUICK
    assert {"make demo", "make test"} <= set(TARGETS)


def test_every_variable_of_the_environment_is_in_the_table_of_settings() -> None:
    read: set[str] = {f"QALIGN_MAX_{cap.name.upper()}" for cap in fields(Limits)}
    for folder in ("qalign_core", "qalign_study", "components"):
        for path in (ROOT / folder).rglob("*.py"):
            read |= set(re.findall(r"QALIGN_[A-Z_]+[A-Z]\b", path.read_text(encoding="utf-8")))
    table = TEXTS[ROOT / "docs/own-models.md"]
    rows = {name for row in re.findall(r"^\|.*", table, re.MULTILINE) for name in ENV.findall(row)}
    assert read - {"QALIGN_MAX"} <= rows


def test_the_two_texts_are_counted_as_how_it_works_says() -> None:
    page = TEXTS[ROOT / "docs/how-it-works.md"]
    (block,) = re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    names: dict[str, Any] = {}
    exec(compile(block, "block", "exec"), names)
    counts = names["counts"]
    assert counts["B"] / sum(counts.values()) == pytest.approx(2 / 3, abs=0.01)
    better_only = block.replace("random.random() < reward[proposal]", "1 < reward[proposal]")
    exec(compile(better_only, "block", "exec"), names)  # the control
    assert names["counts"]["B"] / sum(names["counts"].values()) > 0.99
    # from A: propose B, accept always; from B: propose A, accept by the kernel's rule
    a, b = Scores(0.0), Scores(math.log(8))
    back = math.exp(log_acceptance(Target(1.0), new=a, old=b, log_correction=()))
    assert 600 * 0.8 * back == pytest.approx(300 * 0.2) == 60


def test_the_numbers_of_how_it_works_are_those_of_the_shipped_runs_and_samples() -> None:
    page = " ".join(TEXTS[ROOT / "docs/how-it-works.md"].split())
    records = unpack(ROOT / "assets/results/in_distribution.zip").records
    ordered = [
        np.mean(np.greater.outer(r.pool_reward[right], r.pool_reward[~right]))
        for r in records
        if 0 < (right := r.is_right(r.pool_answer)).sum() < len(right)
    ]
    assert f"{np.mean(ordered):.0%} of the pairs (mean over the {len(ordered)} problems" in page
    answers = [extract_number(s.response.text) for s in load_trace(RUN).states]
    n, late = answers.count("25"), answers[128:]
    assert f"{n} of {len(answers)} states say 25, the right answer ({n / len(answers):.0%})" in page
    n = late.count("25")
    assert f"Without the first 128 it is {n} of {len(late)} ({n / len(late):.0%})" in page


@pytest.mark.parametrize(
    "text",
    [
        "The rows are drawn anew.",
        "One may hold at times. It is so.",
        "It makes 30 steps a second.",
        "What would not fit is not fetched.",
        "- What is kept is the rest.",
        "The two were not told apart.",
    ],
)
def test_a_phrase_that_is_better_written_otherwise_is_found(text: str) -> None:
    assert list(find_phrases(text))


@pytest.mark.parametrize(
    "text",
    [
        "Again, 30 steps per second; what is kept stays.",
        "What is kept?",
        "The option is `anew`, and “at times” is a quotation.",
        "It recommends a model, [here](docs/anew.md).",
    ],
)
def test_code_questions_and_quotations_are_left_out(text: str) -> None:
    assert not list(find_phrases(text))


def test_headings_and_code_of_a_page_are_not_prose(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# What is is.\n\n```sh\nanew\n```\n\n- one\n- drawn anew\n")
    assert [text for _, text in prose(page)] == ["- one", "- drawn anew"]
    checked = {path.relative_to(ROOT).as_posix() for path in pages()}
    assert checked >= {"README.md", "docs/faq.md", "assets/dictionary.toml", "qalign_core/run.py"}
    folders = {path.parent.name for path in ROOT.glob("assets/web/*/*.js")} - {"vendor"}
    assert folders == {*SCRIPTS}
    assert "app.py" in checked


def test_the_strings_of_code_are_prose_and_so_are_docstrings_but_comments_are_not(
    tmp_path: Path,
) -> None:
    page, script = tmp_path / "page.py", tmp_path / "page.js"
    page.write_text('"""Drawn anew."""\nsays = (\n    f"{n} texts "\n    "drawn"\n)  # anew\n')
    script.write_text('// drawn "anew"\nsay("text " + "drawn", `${n} steps`);\n')
    assert sorted(text for _, text in prose(page)) == ["Drawn anew.", "… texts drawn"]
    page.write_text('def f():\n    """Draw.\n\n    Args:\n        n: what n is.\n    """\n')
    assert [text for _, text in prose(page)] == ["Draw.", "Args:", "n: what n is."]
    assert [text for _, text in prose(script)] == ["text drawn", "${n} steps"]


def test_vague_names_and_docstrings_of_code_are_reported(tmp_path: Path) -> None:
    module, script = tmp_path / "page.py", tmp_path / "page.js"
    module.write_text('"""Of a page."""\n\ndef told(given):\n    found = given\n    return found\n')
    script.write_text('const said = "said";\nexport function draw() {}\n')
    assert len([*vague_names(module)]) == 4
    assert len([*vague_names(script)]) == 1
    module.write_text(
        '"""Read a page."""\n\ndef read(text):\n    return text.said\n'
    )  # the control
    assert not [*vague_names(module)]
