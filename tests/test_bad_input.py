"""Whatever a user gets wrong is one sentence that says what to do, in the page and in the shell."""

from __future__ import annotations

import codecs
import json
import math
import os
import re
import shutil
import subprocess
import sys

import gradio as gr
import pytest
from browser import ROOT
from fake_server import FakeServer
from refusals import refuse_command
from tiny_models import save

from components.common.form import RunForm, with_labels
from components.common.status import status_value
from components.session.drawing import draw_run
from components.session.offer import Offer
from components.session.runs import Runs, Status
from qalign_core import registry
from qalign_core.assets import ASSETS
from qalign_core.errors import InvalidSetting
from qalign_core.models import loading
from qalign_core.record.store import load_trace
from qalign_core.registry import Entry
from qalign_core.run import Limits, Run
from qalign_study.commands import main, shared
from qalign_study.train import reward_training

PROMPT = "Tom has 5 eggs. How many?"
SENTENCES = {
    "unknown id": ("lm", ("there is no model called", "does not offer")),
    "no causal LM": ("lm", "is a LlamaForSequenceClassification, not a causal language model"),
    "no RM": ("rm", "is a LlamaForCausalLM, not a reward model"),
    "two outputs": ("rm", "has 2 outputs, but a reward model has 1; choose another"),
    "pickled weights": ("lm", "no safetensors weights (pickled ones can run code"),
    "a number as its class": ("lm", "is a 7, not a causal language model"),
    "no tokenizer": ("lm", "put tokenizer.json beside the model"),
    "a marked tokenizer": ("lm", "tokenizer.json begins with a byte order mark; save it as UTF-8"),
    "a marked config": ("lm", "config.json begins with a byte order mark; save it as UTF-8"),
    "no chat template": ("lm", "has no chat template; choose an instruct model"),
    "too long a prompt": ("lm", "more than the context of 192; shorten the prompt"),
    "server down": ("lm", "no server answers at"),
    "wrong key": ("lm", "refused the key (status 401); set QALIGN_LM_KEY"),
    "too big": ("lm", "are free; choose a smaller model or a machine with more memory"),
}


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """Where each bad model is; the good ones are in memory."""
    registry.load_language_model("embedded")
    registry.load_reward_model("embedded")
    folder = tmp_path_factory.mktemp("bad")
    good = save(folder / "good", "llama")
    with_key, down = FakeServer(good, key="another"), FakeServer(good)
    down.stop()

    def without(name, *parts):
        copy = shutil.copytree(good, folder / name)
        for part in parts:
            (copy / part).unlink()
        return str(copy)

    def marked(name, part):
        copy = shutil.copytree(good, folder / name)
        content = (copy / part).read_bytes()
        (copy / part).write_bytes(codecs.BOM_UTF8 + content)
        return str(copy)

    def with_class(name, value):
        copy = shutil.copytree(good, folder / name)
        config = json.loads((copy / "config.json").read_text())
        (copy / "config.json").write_text(json.dumps({**config, "architectures": value}))
        return str(copy)

    yield {
        "unknown id": "no-such-model",
        "no causal LM": str(save(folder / "rm", "llama", n_outputs=1)),
        "no RM": str(good),
        "two outputs": str(save(folder / "two", "llama", n_outputs=2)),
        "pickled weights": without("pickled", "model.safetensors"),
        "a number as its class": with_class("numbered", [7]),
        "no tokenizer": without("no-tokenizer", "tokenizer.json"),
        "a marked tokenizer": marked("marked", "tokenizer.json"),
        "a marked config": marked("marked-config", "config.json"),
        "no chat template": without("no-template", "chat_template.jinja"),
        "too long a prompt": str(good),
        "server down": down.address,
        "wrong key": with_key.address,
        "too big": str(good),
    }
    with_key.stop()


@pytest.fixture(params=SENTENCES)
def case(request, sources, monkeypatch):
    """What is asked for, and what is to be said of it."""
    kind, sentences = SENTENCES[request.param]
    source = sources[request.param]
    prompt = PROMPT * 8 if request.param == "too long a prompt" else PROMPT
    if request.param == "too big":
        monkeypatch.setattr(loading, "available_memory", lambda device: 1000)
    before = registry.LOADED.ids()
    yield kind, source, prompt, (sentences, sentences) if isinstance(sentences, str) else sentences
    registry.unload(source)
    registry.unload("bad")
    assert set(registry.LOADED.ids()) <= {*before, "embedded"}


def test_the_command_line_says_it_in_one_sentence(case, capsys):
    kind, source, prompt, (sentence, _) = case
    refuse_command(
        capsys, ["run", f"--{kind}", source, "--prompt", prompt, "--steps", "2"], sentence
    )


@pytest.mark.parametrize(
    "template",
    ["{% for %}", "{{ nothing() }}", "{{ 1 + 'a' }}", "{{ 1 // 0 }}", "{{ messages[0]['x'].y }}",
     "{% for i in range(10**6) %}x{% endfor %}", "{{ ''.__class__.__mro__ }}",
     "{% macro a() %}{{ a() }}{% endmacro %}{{ a() }}", "{{ '%d' % 'a' }}"],
)  # fmt: skip
def test_a_chat_template_that_raises_anything_is_refused_in_one_sentence(
    template, tmp_path, capsys
):
    folder = save(tmp_path / "model", "llama")
    (folder / "chat_template.jinja").write_text(template)
    assert main(["run", "--lm", str(folder), "--rm", "length:9", "--prompt", PROMPT]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[-1].startswith("qalign: the model's chat template refuses these messages (")
    registry.unload(str(folder))


async def test_the_page_says_it_in_one_sentence_and_goes_on(case, monkeypatch):
    kind, source, prompt, (_, sentence) = case
    known = registry.entries()
    if source != "no-such-model":  # as an operator's registry would have it
        bad = Entry("bad", kind, source, "Bad", 0.1, "none", options={})
        monkeypatch.setattr(registry, "entries", lambda: {**known, (kind, "bad"): bad})
    runs = Runs(Limits(), offer=Offer(names=("bad",)))
    chosen = {kind: "bad" if source != "no-such-model" else source}
    wanted = Run(prompt=prompt, steps=2, **chosen)
    async for now in runs.stream("visitor", lambda feed: draw_run(feed, runs, wanted)):
        status = now.status
    assert status.state == "failed"
    assert sentence in status.text
    assert "\n" not in status.text
    assert not runs._running
    good = Run(prompt=PROMPT, steps=2, pool=1)
    async for now in runs.stream("visitor", lambda feed: draw_run(feed, runs, good)):
        status = now.status
    assert status.state == "finished"


OPTIONS = {
    "--lm-device cuda:9": "there is no device cuda:9 here; choose one of cpu",
    "--rm-device typo": "there is no device typo here; choose one of cpu",
    "--lm-dtype int4": "dtype must be one of float32, bfloat16, float16, int8, got int4",
    "--lm-window 0": "window must be at least 2, got 0",
    "--rows 0": "rows must be at least 1, got 0",
    "--lm-tokenizer some": "embedded has no option tokenizer; it has",
    "--rm-tokenizer some": "embedded has no option tokenizer; it has",
    "--approximate": "embedded has no option approximate; it has",
    "--rm http://localhost:9 --rm-device cpu": "http://localhost:9 has no option device; it has",
    "--rm 0.5*embedded+0.5*embedded-weak --rm-tokenizer some": "has no option tokenizer; it has",
    "--rm 0.5*embedded+0.5*no-such-model": "there is no model called 'no-such-model'",
    "--rm embedded-0.5*plain": 'or a sum such as "0.7*A + -0.3*B"',
    "--rm 1e400*embedded": "a sum has at most 8 rewards with finite weights",
    "--rm judge:": "there is no model called ''; choose from",
    "--lm owner/name@../other": "'../other' is not a revision of owner/name",
    "--prompts in_distribution --problems 0 --out x": "--problems must be a whole number >= 1",
    "--prompts in_distribution --out /proc/x": "cannot be written (No such file or directory)",
    "--out /proc/x": "cannot be written (No such file or directory); give another path",
}


@pytest.mark.parametrize("arguments", OPTIONS)
def test_an_option_that_cannot_be_met_is_named_in_one_sentence(arguments, capsys):
    refuse_command(capsys, ["run", "--steps", "1", *arguments.split()], OPTIONS[arguments])


HUGE = "1" + 38 * "0"
NONSENSE = {
    "evaluate --plan --at-once 0": "--at-once must be a whole number >= 1, got 0",
    "evaluate --plan --at-once -1": "--at-once must be a whole number >= 1, got -1",
    f"evaluate --plan --budget {HUGE}": "--budget must be at most 1,000,000,000, got a whole",
    f"evaluate --plan --states {HUGE}": "--states must be at most 1,000,000,000",
    f"evaluate --plan --problems {HUGE}": "--problems must be at most 1,000,000,000",
    f"evaluate --plan --response-tokens {HUGE}": "--response-tokens must be at most",
    "evaluate --plan --max-new-tokens -5": "max_new_tokens must be between",
    "evaluate --plan --beta nan": "beta must be a finite number, got nan",
    "evaluate --plan --temperature 1e38": "temperature must be between",
    "train-rm --plan --at-once 0": "--at-once must be a whole number >= 1, got 0",
    f"train-rm --plan --samples {HUGE}": "--samples must be at most 1,000,000,000",
    "train-rm --plan --each 0": "--each must be a whole number >= 1, got 0",
    "train-rm --plan --max-length 1": "--max-length must be a whole number >= 2, got 1",
    "train-rm --plan --learning-rate nan": "--learning-rate must be above 0 and at most 1, got nan",
    "train-rm --plan --learning-rate 1e38": "--learning-rate must be above 0 and at most 1",
    "train-rm --plan --epochs nan": "--epochs must be above 0 and at most 1000, got nan",
    "train-rm --plan --warmup nan": "--warmup must be between 0 and 1, got nan",
    "train-rm --plan --warmup -0.1": "--warmup must be between 0 and 1, got -0.1",
    "train-rm --plan --weight-decay nan": "--weight-decay must be between 0 and 1, got nan",
    "train-rm --plan --weight-decay -1": "--weight-decay must be between 0 and 1, got -1.0",
    "train-rm --plan --validation nan": "--validation must be above 0 and at most 0.5, got nan",
    f"train-rm --plan --batch {HUGE}": "--batch must be at most 1,000,000,000",
    "tune --target nan": "the target acceptance must be between 0 and 1, got nan",
    "tune --target 1": "the target acceptance must be between 0 and 1, got 1.0",
    "tune --start -1": "beta must be a finite number > 0, got -1.0",
    "tune --steps 2": "steps must be a whole number >= 8, got 2",
    "tune --problems 0": "--last must be a whole number >= 1, got 0",
    "tune --sharpness 1 0.5": "sharpness must be between 1 and",
    "report --tuning nan": "--tuning must be a finite number > 0, got nan",
    "report --tuning -1": "--tuning must be a finite number > 0, got -1.0",
    "run --prompts shifted --problem 3 --out x": "leave out --prompt and --problem",
    "run --prompts shifted --prompt Hi --out x": "leave out --prompt and --problem",
    "run --problems 4": "--problems is for --prompts SET; --problem N runs one problem",
    "run --prompt Hi --problem 3": "--prompt and --problem are two problems",
    "run --prompt Hi --task long": "--prompt and --task are two problems",
    "compare --prompt Hi --problem 3": "--prompt and --problem are two problems",
    "evaluate --out x --extractor none": "--extractor none is for a --prompt; leave it out",
    "fetch mood": "mood is a reward without a network of its own to download",
    "fetch judge:embedded": "judge:embedded is a reward without a network of its own",
    "report nosuch": "(No such file or directory); give the folder of an evaluation, or a file of",
    "run --lm=": "lm is empty; name a model, such as embedded",
    "run --rm=": "rm is empty; name a model, such as embedded",
    "tune --lm=": "lm is empty; name a model, such as embedded",
    "evaluate --out x --lm=": "lm is empty; name a model, such as embedded",
}


@pytest.fixture(scope="module")
def form():
    with gr.Blocks():
        form = RunForm(Run(prompt=PROMPT), Runs(), page="watch")
        form.add("prompt", "rm", "beta", "steps", "seed", "chains")
        form.add(*form.rest)
    return form


@pytest.mark.parametrize(
    "value", [None, "", "abc", -1, 10**40, math.nan, math.inf, True], ids=lambda x: str(x)[:5]
)
@pytest.mark.parametrize("name", [*Run().numbers, "share"])
def test_a_page_names_a_wrong_numbers_field_by_its_label(form, name, value):
    settings = {each: widget.value for each, widget in form.widgets.items()}
    settings |= {"second": "embedded-weak", name: value}
    with pytest.raises(InvalidSetting) as refused:
        form.read(list(settings.values())).check(Limits())
    failed = Status("failed", f"Failed: {refused.value}.")
    sentence = json.loads(status_value(failed))["text"]
    label = form.widgets[name].label if name != "seed" else "Seed"
    end = "but the field is empty." if value in (None, "") else "got "
    assert sentence.startswith(f"Failed: {label} must be ")
    assert end in sentence
    assert with_labels(f"{refused.value}.") == sentence.removeprefix("Failed: ")
    if name in Run.kinds():  # a program and the command line have the setting's own name
        assert str(refused.value).startswith(f"{name} must be ")


@pytest.mark.parametrize(
    ("sent", "got"), [("9" * 23, "a whole number beyond 2^53"), (10**6, "1000000"), (1e30, "1e+30")]
)
def test_a_number_out_of_range_is_written_out_and_called_so(sent, got):
    name = "beta" if isinstance(sent, float) else "pool"
    with pytest.raises(InvalidSetting, match=rf"{name} must be between .*, got {re.escape(got)}$"):
        Run.read({"prompt": PROMPT, name: sent}).check(Limits())


def test_only_a_settings_name_becomes_its_label():
    unapplied = "Failed: gpt does not apply the setting top_k; leave it at 0, got 5."
    assert with_labels(unapplied) == unapplied.replace("top_k", "Top-k")
    assert with_labels("the setting top_k") == "the setting Top-k"
    long = "Failed: the prompt has 9 tokens; lower the setting max_new_tokens."
    assert with_labels(long) == long.replace("max_new_tokens", "Length limit")
    for sentence in ("steps 4 to 9 are missing.", "Failed: the lm is busy.", "No such seed."):
        assert with_labels(sentence) == sentence.replace("steps", "Steps")


@pytest.mark.parametrize("arguments", NONSENSE)
def test_nonsense_is_refused_before_a_model_is_loaded(arguments, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)

    def load(*_, **__):
        raise AssertionError("a model is loaded")

    monkeypatch.setattr(shared, "load_language_model", load)
    monkeypatch.setattr(shared, "load_reward_model", load)
    assert main(arguments.split()) == 2
    sentence = capsys.readouterr().err.splitlines()[-1]
    assert sentence.startswith("qalign: ")
    assert NONSENSE[arguments] in sentence
    assert not list(tmp_path.iterdir())


NAME = "x" * 256
LOOP, RECORDED = "loop", str(ASSETS.joinpath("runs", "compare.jsonl"))  # any trace will do
PATHS = [
    *(("report", NAME), ("report", LOOP), ("report", "--outcomes", "a.txt")),
    ("export", NAME, "--html", "a.html"),
    *(("export", RECORDED, "--html", place) for place in (NAME, "/", LOOP, ".", f"a/{NAME}/b")),
    *(("run", "--task", NAME, "--out", "out"), ("run", "--prompts", NAME, "--out", "out")),
    *(("evaluate", "--task", NAME, "--out", "out"), ("tune", "--task", NAME)),
    *(("run", "--prompt", PROMPT, f"--{role}", name)
      for role in ("lm", "rm") for name in (NAME, f"{NAME}.gguf", "~nobody-here/model", LOOP)),
    *(("run", "--prompt", PROMPT, "--out", place) for place in (NAME, LOOP)),
    *((command, "--lm", NAME) for command in ("check", "serve")),
]  # fmt: skip


@pytest.mark.parametrize("arguments", PATHS, ids=lambda arguments: arguments[0])
def test_a_path_that_no_file_system_takes_is_one_sentence(arguments, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / LOOP).symlink_to(LOOP)
    assert main(arguments) == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith("qalign: ")
    assert (tmp_path / LOOP).is_symlink()


@pytest.mark.parametrize("device", ["/dev/full"])
def test_standard_output_on_a_full_device_is_one_sentence(device, tmp_path):
    command = [sys.executable, "-m", "qalign_study", "export", RECORDED, "--html", "a.html"]
    with open(device, "w") as full:
        ended = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=120,
        )  # fmt: skip
    assert ended.returncode == 2
    assert ended.stderr.splitlines() == [
        "qalign: standard output cannot be used (No space left on device); use another"
    ]


def test_a_value_that_begins_like_an_option_gets_a_hint(capsys):
    with pytest.raises(SystemExit):
        main(["run", "--prompt", PROMPT, "--rm", "-1*embedded"])
    assert "write OPTION=VALUE if the value begins with -" in capsys.readouterr().err


@pytest.mark.parametrize(
    "content", [b"{", b"\xff\xfe", b"[1]", b"[" * 100_000, b"", b"null", b"NaN"]
)
@pytest.mark.parametrize("name", ["asked.json", "report.json"])
def test_a_broken_file_of_a_training_is_named_in_one_sentence(name, content, tmp_path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(
        InvalidSetting, match=rf"{name} (is not JSON|holds .*, not an object)"
    ) as raised:
        if name == "asked.json":
            reward_training.check_unchanged(tmp_path, {})
        else:
            reward_training._object(tmp_path / name, content)
    assert "\n" not in str(raised.value)
    assert str(raised.value).endswith("give another --out")


@pytest.mark.parametrize("command", ["compare", "evaluate"])
def test_where_nothing_can_be_written_nothing_is_drawn(command, capsys):
    assert main([command, "--out", "/proc/x"]) == 2
    assert "(No such file or directory); give another" in capsys.readouterr().err


def test_a_comparison_that_fails_half_way_keeps_what_it_had(tmp_path, capsys):
    rule = tmp_path / "rule.py"
    rule.write_text(
        "scored = []\n"
        "def reward(prompt, response):\n"
        "    scored.append(response)\n"
        "    return 0.0 if len(scored) < 9 else float('nan')\n"
    )
    out = tmp_path / "compare.json"
    command = ["compare", "--rm", f"{rule}:reward", "--steps", "40", "--out", str(out)]
    refuse_command(capsys, command, "returned nan")
    kept = load_trace(out)
    assert 1 <= len(kept.steps) + len(kept.pool) <= 8
