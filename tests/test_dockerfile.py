"""The Dockerfile says what the repository and the Space's settings say."""

from __future__ import annotations

import re
import tomllib

from browser import ROOT

STEPS = [
    tuple(line.split(maxsplit=1))
    for line in re.sub(r"\\\n", " ", (ROOT / "Dockerfile").read_text("utf-8")).splitlines()
    if line.strip() and not line.startswith("#")
]
METADATA = (ROOT / "README.md").read_text("utf-8").split("---")[1]


def step_text(step):
    return [rest for name, rest in STEPS if name == step]


def field(key):
    return re.search(rf'^{key}: "?(.+?)"?$', METADATA, re.MULTILINE)[1]


def test_its_python_is_the_spaces_and_new_enough():
    (image,) = step_text("FROM")
    version = re.fullmatch(r"python:(\d+\.\d+)-slim", image)[1]
    assert version == field("python_version")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["requires-python"] == f">={version}"


def test_it_starts_the_spaces_app_with_the_same_gradio():
    assert step_text("CMD") == [f'["python", "{field("app_file")}"]']
    assert (ROOT / field("app_file")).is_file()
    assert f"gradio=={field('sdk_version')}\n" in (ROOT / "requirements.txt").read_text("utf-8")


def test_it_installs_and_runs_as_a_user_who_writes_to_a_home_and_tmp_only():
    assert "--uid 1000 user" in step_text("RUN")[0]
    at = [name for name, _ in STEPS]
    assert at.index("USER") < at.index("COPY")
    assert " --user " in step_text("RUN")[1]
    places = dict(re.findall(r"(\w+)=(/\S+)", step_text("ENV")[0]))
    assert places.pop("PATH").startswith("/home/user/.local/bin:")
    assert all(place.startswith(("/home/user/", "/tmp/")) for place in places.values())


def test_what_it_copies_is_there_and_its_environment_stays_outside():
    for source in (rest.split()[-2] for rest in step_text("COPY")):
        assert (ROOT / source).exists()
    ignored = (ROOT / ".dockerignore").read_text("utf-8").splitlines()
    assert {".git", ".venv", "build"} <= set(ignored)
