"""Every door of a house with one setting more, as JSON: `doors_client.py FOLDER NAME VALUE`.

Run in the root of that house; FOLDER is for what it writes, NAME the setting, VALUE one that is not
its default.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
from pathlib import Path

import httpx
from browser import serve
from toys import PROMPT, ToyLM, ToyRM

import app
from components.session.links import linked
from components.session.runs import Runs
from qalign_core.record.format import parse_trace
from qalign_core.record.store import read_trace
from qalign_core.run import Limits, Run
from qalign_study.commands import main, shared


def call(*arguments: str) -> tuple[int | str | None, str]:
    """How a command ended, and what it wrote."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        try:
            return main(arguments), out.getvalue()
        except SystemExit as end:  # --help
            return end.code, out.getvalue()


def command_line(folder: Path, name: str, value: str) -> dict[str, object]:
    option = f"--{name.replace('_', '-')}"
    prompts = folder / "prompts.jsonl"
    prompts.write_text(json.dumps({"prompt": PROMPT}) + "\n")
    out = folder / "out"
    shared.load_language_model = lambda *_, **__: ToyLM()
    shared.load_reward_model = lambda *_, **__: ToyRM()
    small = ["--steps", "1", "--max-new-tokens", "4", option, value, "--quiet"]
    ended, _ = call("run", "--prompts", str(prompts), "--out", str(out), *small)
    assert ended == 0
    return {
        "help": {each: call(each, "--help")[1] for each in ("run", "compare", "evaluate")},
        "refused": [
            call("run", "--prompt", "x", option, wrong, "--steps", "1") for wrong in ("10", "few")
        ],
        "set": json.loads((out / "set.json").read_text("utf-8")),
        "trace": getattr(read_trace(out / "00000.jsonl").header.run, name),
    }


def page(name: str, value: str) -> dict[str, object]:
    runs = Runs(Limits(), load=lambda *_: (ToyLM(), ToyRM()))
    demo = app.build_app(runs)
    label = name.replace("_", " ").capitalize()
    components = {c["id"]: c["props"] for c in demo.config["components"]}
    buttons = {id: props.get("elem_id") for id, props in components.items()}
    widgets = {id for id, props in components.items() if props.get("label") == label}
    clicks = {
        buttons[id]: event
        for event in demo.config["dependencies"]
        for id, what in event["targets"]
        if what == "click" and buttons.get(id) in ("watch-run", "compare-run")
    }
    with serve(demo, **app.launch_options()) as address:
        api_url = f"{address}gradio_api/call/"
        request = {"prompt": PROMPT, "steps": 1, name: int(value)}
        event = httpx.post(f"{api_url}v2/run_chain", json=request).json()["event_id"]
        text = httpx.get(f"{api_url}run_chain/{event}").text.strip().rsplit("data: ", 1)[1]
    run, notice = linked("watch", {name: value}, runs, Run(PROMPT)) or (None, "")
    return {
        "widgets": len(widgets),
        "sent": {at: len(widgets & set(event["inputs"])) for at, event in clicks.items()},
        "scripts": clicks["watch-run"]["js"],
        "api": demo.get_api_info()["named_endpoints"],
        "called": getattr(parse_trace(json.loads(text)[0]).header.run, name),
        "link": [getattr(run, name), notice, run.query()],
    }


if __name__ == "__main__":
    folder, name, value = sys.argv[1:]
    print(json.dumps({**command_line(Path(folder), name, value), **page(name, value)}))
