"""No reply tells a visitor which files and folders the server has, or shows a path of them.

Every way in is tried twice: with the name of a file or folder that exists, and with the same name
but for one word, of nothing. The two replies must be the same but for that word.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest
from browser import ROOT, serve
from toys import PROMPT

import app
from components.session.offer import Offer
from components.session.runs import Runs
from qalign_core.assets import ASSETS
from qalign_core.errors import ModelLoadError
from qalign_core.run import Limits

PROGRAM = httpx.Client(timeout=300)  # seconds that a busy machine may take for a reply
"""What asks: one connection for some two thousand requests."""
THERE, ABSENT = "zthere", "ztherf"
"""The word that differs, at its end: errors shorten long values."""
FORMS = ("{folder}/zthere", "zowner/zthere", "../{name}/zthere", "{folder}/zthere.py:main",
         "file://{folder}/zthere")  # fmt: skip
"""Names of a folder and of a Python file, from the folder in which the app is started."""
RUN = {"prompt": PROMPT, "steps": 1, "pool": 0, "seed": 7}
HEADER = json.loads((ASSETS / "runs" / "watch.jsonl").read_text("utf-8").partition("\n")[0])
NAMES = ("lm", "rm", "extractor", "move")
"""Settings that are names."""


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """The folder in which the app is started; its name is short, since errors shorten values."""
    with tempfile.TemporaryDirectory(prefix="z") as place:
        (Path(place) / "zowner" / THERE).mkdir(parents=True)
        (Path(place) / THERE).mkdir()
        (Path(place) / f"{THERE}.py").write_text("def main(text): ...")
        yield Path(place)


def served(folder: Path, offer: Offer) -> Iterator[str]:
    """The app with OpenAI's API, whose models cannot be loaded: no reply depends on the time."""

    def load(lm: str, rm: str, _: object) -> Any:
        raise ModelLoadError(f"{lm} with {rm} cannot be loaded; choose others")

    runs = Runs(Limits(), load=load, offer=offer)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("QALIGN_OPENAI", "1")
        with serve(app.build_app(runs), **app.launch_options(runs)) as address:
            yield address


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    """An app that lets visitors name any model of the hub."""
    yield from served(folder, Offer(own=True))


def read(response: httpx.Response) -> str:
    return f"{response.status_code} {response.text}"


def calls(address: str, name: str) -> Iterator[str]:
    """Programs: each endpoint, with each setting that is a name."""
    for endpoint in ("run_chain", "compare"):
        for setting in (*NAMES, "matched"):
            call = f"{address}gradio_api/call/v2/{endpoint}"
            started = PROGRAM.post(call, json={**RUN, setting: name})
            event = started.json().get("event_id")
            reply = PROGRAM.get(f"{call}/{event}") if event else started
            yield f"{endpoint} {setting}: {read(reply)}"


def events(address: str, name: str) -> Iterator[str]:
    """The page: each event, with the name in each of its lists, links and hidden texts."""
    config, session = PROGRAM.get(f"{address}config").json(), count()
    props = {each["id"]: (each["type"], each["props"]) for each in config["components"]}
    for event in config["dependencies"]:
        inputs = [props[id] for id in event["inputs"]]
        for k, (kind, each) in enumerate(inputs):
            if not event["backend_fn"] or event["api_name"] in ("run_chain", "compare"):
                continue
            if kind not in ("dropdown", "radio", "html") or not isinstance(each.get("value"), str):
                continue
            if kind == "html" and event["api_name"].startswith(("partial", "pose_problem")):
                continue  # the answer is a random problem
            data = ["7" if kind == "textbox" else value.get("value") for kind, value in inputs]
            # a link's settings, and the choice itself
            data[k] = f"lm={name}&rm={name}&set={name}" if kind == "html" else name
            hash = f"s{next(session)}"
            body = {"fn_index": event["id"], "data": data, "session_hash": hash}
            joined = PROGRAM.post(f"{address}gradio_api/queue/join", json=body)
            stream = f"{address}gradio_api/queue/data?session_hash={hash}"
            reply = PROGRAM.get(stream) if joined.status_code == 200 else joined
            values = re.findall(r'"output":(.*),"success":(true|false)', reply.text)
            yield f"{event['api_name']} {k}: {reply.status_code} {values or reply.text}"


def questions(address: str, name: str) -> Iterator[str]:
    """The page's scripts: each function, with the name as its argument and in each of its keys."""
    components = PROGRAM.get(f"{address}config").json()["components"]
    headers = [json.dumps({**HEADER, key: name}) for key in NAMES]
    texts = {"who": "a", "texts": [[2]], "tokens": [2], "cut": 0, "seed": 1, "words": "", "t": 0,
             "chain": 0}  # fmt: skip
    arguments = [
        name,
        f"{name}/00001",
        *({key: name, "stop": 0} for key in ("lesson", "run", "header", "who")),
        *({**texts, "header": header, "run": name} for header in headers),
    ]
    for component in components:
        for function in component["props"].get("server_fns") or ():
            for number, argument in enumerate(arguments):
                body = {"component_id": component["id"], "fn_name": function, "data": argument,
                        "session_hash": "a"}  # fmt: skip
                question = f"{address}gradio_api/component_server"
                reply = PROGRAM.post(question, json=body)
                yield f"{function} {number}: {read(reply)}"


def addresses(address: str, name: str) -> Iterator[str]:
    """Addresses of files, and links."""
    folders = ("", "assets", "static", "svelte", "vendor", "models", "engine", "room", "v1/models",
               "v1/traces", "gradio_api/file=", "gradio_api/file", "gradio_api/proxy=",
               "monitoring", "pwa_icon")  # fmt: skip
    dots = name.replace("/", "%2f"), name.replace("..", "%2e%2e"), f"..%2f..%2f{name}"
    for folder in folders:
        for form in (name, *dots):
            place = f"{address}{folder}{'' if folder.endswith('=') else '/'}{form}"
            yield f"{folder} {read(PROGRAM.get(place))}"
    linked = dict.fromkeys(("lm", "rm", "extractor", "run", "set", "lesson", "file", "tab"), name)
    yield str(PROGRAM.get(address, params=linked).status_code)
    yield read(PROGRAM.get(address, params={"page": name}))


def chats(address: str, name: str) -> Iterator[str]:
    """The chat endpoint: the model, and each setting."""
    message = {"messages": [{"role": "user", "content": PROMPT}], "seed": 7, "max_tokens": 9}
    requests: list[dict[str, Any]] = [{"model": name}, {"model": f"{name}/qalign"}]
    requests += [{"model": "embedded/qalign", "qalign": {"steps": 1, key: name}} for key in NAMES]
    for request in requests:
        for stream in (False, True):
            body = {**message, **request, "stream": stream}
            reply = PROGRAM.post(f"{address}v1/chat/completions", json=body)
            yield f"{[*request][-1]} {read(reply)}"


def from_(number: int) -> dict[str, str]:
    """The header of a proxy for one of many visitors: an address opens few rooms."""
    return {"X-Forwarded-For": f"192.0.2.{number}"}


def rooms(address: str, name: str) -> Iterator[str]:
    """Rooms: each setting of a class, of a saved class, and of a class that has begun."""
    settings = {"prompt": PROMPT, "reference": "18"}
    keys, number = ("lm", "rm", "extractor", "lesson", "code"), count(1)
    saved = {**settings, "seed": 1, "members": [], "opened": [], "stop": 0, "code": "ABCD2345"}
    for key in keys:
        for body in ({**settings, key: name}, {"session": {**saved, key: name}}):
            reply = PROGRAM.post(f"{address}room/open", json=body, headers=from_(next(number)))
            if reply.status_code == 200:  # a model of the hub: then see what the class is told
                room = reply.json()
                head = {"Authorization": f"Bearer {room['token']}"}
                end = {"code": room["code"], "do": "end"}
                PROGRAM.post(f"{address}room/lead", json=end, headers=head)
            yield f"open {key}: {reply.status_code} {reply.text if reply.is_error else ''}"
        check = PROGRAM.post(f"{address}room/check", json={**settings, key: name})
        yield f"check {key}: {read(check)}"
    head = from_(next(number))
    opened = PROGRAM.post(f"{address}room/open", json=settings, headers=head).json()
    head = {"Authorization": f"Bearer {opened['token']}"}
    code = {"code": opened["code"]}
    for body in ({"do": name}, {"do": "again", "lm": name}, {"do": "again", "rm": name},
                 {"do": "again", "extractor": name}, {"do": "end"}):  # fmt: skip
        reply = PROGRAM.post(f"{address}room/lead", json={**code, **body}, headers=head)
        yield f"lead {[*body][-1]}: {read(reply)}"


WAYS = (calls, events, questions, addresses, chats, rooms)
CHANGING = re.compile(
    r'(\\*"(?:created|event_id|id|trace|at|\w*duration|avg_time)\\*": ?)(\\*"[^"]*"|[\d.e+-]+)'
)
"""What differs between any two replies."""


def differences(way: Any, address: str, form: str) -> list[tuple[str, str]]:
    """The replies that tell the two names apart."""
    names = form, form.replace(THERE, ABSENT)
    replies = ([CHANGING.sub(r"\1", text) for text in way(address, name)] for name in names)
    pairs = [(a.replace(THERE, ABSENT), b) for a, b in zip(*replies, strict=True)]
    return [(a, b) for a, b in pairs if a != b]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_no_reply_tells_whether_a_file_or_folder_exists(address, folder, way):
    for form in FORMS[: 2 if way is events else None]:
        name = form.format(folder=folder, name=folder.name)
        assert (folder / name.removeprefix("file://").removesuffix(":main")).exists()
        assert differences(way, address, name) == []


def test_an_offer_that_asks_the_disk_is_told_apart(folder):
    """The control: the comparison above finds it in every way that names models."""

    class Asks(Offer):
        def check(self, lm: str, rm: str) -> None:
            for name in (lm, rm):
                if name not in self.models["lm"] | self.models["rm"]:
                    what = "a folder" if os.path.exists(name) else "unknown"
                    raise ModelLoadError(f"{name!r} is {what}")

    for address in served(folder, Asks()):
        for way in (calls, chats, rooms, questions):
            assert differences(way, address, f"{folder}/{THERE}"), way
            assert differences(way, address, f"zowner/{THERE}"), way


def test_no_page_and_no_description_of_the_app_shows_a_path_of_the_server(address):
    paths = ("", "config", "room", "gradio_api/info", "gradio_api/startup-events", "openapi.json",
             "manifest.json", "theme.css", "robots.txt", "v1/models")  # fmt: skip
    texts = [PROGRAM.get(f"{address}{path}").text for path in paths]
    folders = {str(ROOT), str(Path.home()), tempfile.gettempdir(), sys.prefix} - {"/"}
    assert [(path, folder) for path, text in zip(paths, texts, strict=True)
            for folder in folders if f"{folder}/" in text] == []  # fmt: skip
    assert f"{ROOT}/" in f"{texts[0]} {ROOT}/app.py"  # the control
