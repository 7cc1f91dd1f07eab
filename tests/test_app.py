"""The app as served: nothing public but what is meant to be, nothing of the server's given away."""

from __future__ import annotations

import app
from components.theme import head
from components.watch import new_problem, recorded_run, shipped_models
from qalign_core.trace_io import parse_trace


def test_every_handler_of_the_page_is_private():
    endpoints = app.build_app().get_api_info()["named_endpoints"]
    assert endpoints == {}


def test_launching_shows_no_error_text_and_no_file_of_the_server():
    options = app.launch_options()
    assert options["show_error"] is False
    assert options["strict_cors"] is True
    assert options["share"] is False
    assert "allowed_paths" not in options


def test_the_pages_head_asks_no_outside_host():
    text = head().replace("http://www.w3.org/2000/svg", "")  # the name of SVG, never fetched
    assert "http://" not in text
    assert "https://" not in text


def test_the_recorded_run_is_one_of_the_shipped_models_and_at_most_60_kb():
    text, settings = recorded_run()
    trace = parse_trace(text)
    assert len(text.encode()) <= 60_000
    assert trace.header.origin == "recorded"
    assert trace.header.lm in shipped_models()["lm"]
    assert trace.header.rm in shipped_models()["rm"]
    assert settings.seed == trace.header.seed
    assert len(trace.base_rewards) >= 32
    changed = [step for step in trace.steps[1:] if step.changed]
    assert any(step.accepted for step in changed)
    assert any(not step.accepted for step in changed)


def test_new_problems_come_with_a_known_answer_where_there_is_one():
    for kind in ("in_distribution", "shifted", "long"):
        prompt, answer = new_problem(kind)
        assert prompt.endswith("?")
        assert answer.isdecimal()
    assert new_problem("writing")[1] == ""
