"""QAlign Explorer: `python app.py` serves it; models load behind the page, when first asked for.

`python app.py TRACE` opens Watch with a trace of one's own. `python app.py FOLDER` opens Results
with a folder of results, or with all those in it. `python app.py --lessons FOLDER --tasks FOLDER`
adds lessons, problem sets, recorded runs and models of one's own.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from urllib.parse import urlsplit

os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
# or Gradio makes a table of its last 10,000 events after each, for a page that is off
os.environ.setdefault("GRADIO_ANALYTICS_MAX_EVENTS", "1")
os.environ.setdefault("GRADIO_ANALYTICS_CACHE_FREQUENCY", str(10**9))

from components.gradio_patches import without_stub_files

with without_stub_files():
    import gradio as gr

from fastapi.exceptions import RequestValidationError
from gradio.http_server import INITIAL_PORT_VALUE
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from threadpoolctl import threadpool_limits

from components.chat import chat_routes
from components.common.options import PRIVATE, queued
from components.common.static_routes import routes
from components.common.switches import read_switch
from components.common.theme import head, theme
from components.compare.page import build_compare_page
from components.endpoints import build_api
from components.lab.page import build_lab_page
from components.learn.exhibit import build_exhibit
from components.learn.guide import build_guide
from components.learn.page import build_learn_page, build_panel
from components.request_guard import GuardedApp, limited_log, respond_invalid
from components.results.page import build_results_page
from components.room.limits import Caps
from components.room.room import RoomLesson
from components.room.routes import room_routes
from components.room.service import RoomService
from components.session.runs import Runs
from components.watch.page import build_watch_page
from qalign_core.errors import QAlignError
from qalign_study.lessons.files import Lesson
from qalign_study.lessons.material import Material, load_material
from qalign_study.lessons.messages import check_prediction, lesson_message, list_lessons
from qalign_study.serve.origins import OriginPolicy
from qalign_study.serve.refusal import HTTPRefusal, respond_refused
from qalign_study.sets.folder import sets_in
from qalign_study.sheet.evaluated import NO_FOLDERS

HEADER = """
<div class="q-head"><h1>QAlign Explorer</h1>
<p>A language model rewrites its own answer from a random place. A reward model scores both texts,
and a weighted coin decides which stays.</p>
<button type="button" data-glossary>Glossary</button></div>
"""


LAUNCH = {
    "show_error": False,
    "max_file_size": "20mb",
    "strict_cors": True,
    "run_history": False,
    "enable_monitoring": False,
    "ssr_mode": False,
    "share": False,
    "footer_links": [],
    # the sessions last used are remembered, and no others
    "state_session_capacity": 256,
    # of events at a time: each run holds one from its first step to its last, waiting ones too, and
    # every visitor may wait
    "max_threads": 1024,
}
# the page carries its recorded runs and figures: 630 kB as text, a fifth of that on the wire
MIDDLEWARE = [Middleware(GZipMiddleware, minimum_size=2048)]


def build_app(
    runs: Runs | None = None, opened: Path | None = None, material: Material | None = None
) -> gr.Blocks:
    """All pages; nothing heavy is imported or loaded.

    Args:
        runs: of this server.
        opened: a trace that Watch opens with instead of the recorded run, or a folder of results
            that Results opens with.
        material: lessons and problem sets, by default the project's.

    Raises:
        InvalidTrace: it is neither.
    """
    runs, material = runs or Runs(), material or Material()
    is_folder = opened is not None and os.path.isdir(opened)
    folders = sets_in(opened, code=True) if opened is not None and is_folder else NO_FOLDERS
    first = "results" if is_folder else "watch"
    with gr.Blocks(
        title="QAlign Explorer", analytics_enabled=False, delete_cache=(3600, 3600)
    ) as demo:
        gr.HTML(HEADER, apply_default_css=False)
        panel = build_panel(material.lessons, first=opened is None)
        with gr.Tabs(overflow_behavior="wrap"):
            with _page("Watch"):
                trace = None if is_folder else opened
                watched = build_watch_page(runs, demo, trace, folders, material.sets)
            with _page("Compare") as tab:
                build_compare_page(runs, demo, _first_look(tab), watched, material.sets)
            with _page("Lab"):
                build_lab_page(demo, panel)
            with _page("Results") as tab:
                build_results_page(_first_look(tab), panel, opened=folders)
            with _page("Learn") as tab:
                build_learn_page()
                build_guide(_first_look(tab))
        build_api(runs)
        demo.load(None, js=f"() => QAlignShell.open('{first}')")
    return queued(demo, max_size=1024, api_open=False)


@contextmanager
def _page(name: str) -> Iterator[gr.Tab]:
    """A page whose link names it."""
    with gr.Tab(name, id=name.lower(), elem_id=f"tab-{name.lower()}") as tab:
        yield tab
    tab.select(None, js=f"() => QAlignShell.page('{name.lower()}')")


def _first_look(tab: gr.Tab) -> gr.State:
    """What changes when a visitor first looks at a page."""
    looked_at = gr.State(False)
    tab.select(lambda: True, None, looked_at, **PRIVATE)
    return looked_at


def launch_options(runs: Runs | None = None, material: Material | None = None) -> dict[str, object]:
    """What `launch` gets: no outside host, no file of the server, no error text for the page.

    With `QALIGN_MCP=1` (and requirements-mcp.txt) the endpoints are tools of an MCP server too, and
    with `QALIGN_OPENAI=1` the app answers as OpenAI's API does.

    Args:
        runs: of this server, whose models its rooms take.
        material: as for `build_app`; classes may take it.

    Raises:
        QAlignError: a cap on rooms is not a number, a host name or a switch is invalid, or a key is
            missing.
    """
    mcp = {"mcp_server": True} if read_switch(os.environ, "QALIGN_MCP") else {}
    runs, material = runs or Runs(), material or Material()
    lessons, problems = material.lessons, [p for each in material.sets.values() for p in each]
    service = RoomService(runs, partial(_room_lesson, lessons), Caps.from_environment(os.environ))
    origin_policy = OriginPolicy.from_environment(os.environ)
    guarded_app = GuardedApp(
        origin_policy,
        middleware=MIDDLEWARE,
        routes=[
            *room_routes(service, list_lessons(lessons), problems, hidden=origin_policy.is_space),
            *chat_routes(runs, origin_policy, os.environ),
            *routes(),
        ],
        exception_handlers={
            HTTPRefusal: respond_refused,
            RequestValidationError: respond_invalid,
        },
    )
    served = {"_app": guarded_app, "app_kwargs": {"lifespan": limited_log}}
    return {**LAUNCH, **mcp, "theme": theme(), "head": head(), **served}


def _room_lesson(lessons: Mapping[str, Lesson], name: str) -> RoomLesson:
    """Return a lesson as a room teaches it; KeyError if there is none."""
    lesson = lessons[name]
    answered_exhibit = cache(lambda k: build_exhibit(lesson.stops[k], answered=True))
    stops = [
        {**message, "exhibit": build_exhibit(stop)}
        for message, stop in zip(lesson_message(lesson)["stops"], lesson.stops, strict=True)
    ]
    return RoomLesson(
        name=name,
        title=lesson.title,
        stops=stops,
        judge=lambda k, prediction: {
            **check_prediction(lesson.stops[k], prediction),
            "exhibit": answered_exhibit(k),
        },
    )


def _read_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="app.py", allow_abbrev=False)
    opened = "trace that Watch opens with, or folder of results that Results opens with"
    parser.add_argument("opened", nargs="?", type=Path, metavar="PATH", help=opened)
    folders = "folder with lessons, problem sets, recorded runs and a registry.toml of your own"
    parser.add_argument(
        *("--lessons", "--tasks"),
        dest="folders",
        type=Path,
        action="append",
        default=[],
        metavar="FOLDER",
        help=folders,
    )
    return parser.parse_args()


def _address(local: str, wanted: int) -> str:
    """The line that tells a person where the app is, with the port that it really got."""
    port = urlsplit(local).port
    note = "" if port == wanted else f" (port {wanted} was taken)"
    return f"QAlign Explorer: {local}{note}"


def _end(number: int, _: object) -> None:
    """End at once: nothing that runs is kept, and waiting for it took 6.7 s."""
    os.write(2, b"app.py: stopped\n")
    os._exit(128 + number)


if __name__ == "__main__":
    for each in (signal.SIGINT, signal.SIGTERM):  # a container's first process ignores them else
        signal.signal(each, _end)
    # the models' threads give the interpreter up in every operation; while pages are written they
    # would wait 5 ms each time to have it back (measured: a quarter more tokens a second)
    sys.setswitchinterval(0.0005)
    # the lab's 121 responses: a second thread waits for the first longer than it multiplies
    threadpool_limits(1, user_api="blas")
    wanted = _read_arguments()
    try:
        material = load_material(wanted.folders)  # first: a registry in it names models
        runs = Runs()
        options = launch_options(runs, material)  # before the pages, which take a second
        demo = build_app(runs, wanted.opened, material)
    except QAlignError as error:  # the operator's own limits, registry, trace or folder
        sys.exit(f"app.py: {error}")
    for fault in material.faults:
        print(f"app.py: left out: {fault}", file=sys.stderr)
    _, local, _ = demo.launch(**options, prevent_thread_lock=True, quiet=True)
    print(_address(local, INITIAL_PORT_VALUE), flush=True)
    runs.warm_up()  # only now: importing torch would starve the launch's own check of the address
    demo.block_thread()
