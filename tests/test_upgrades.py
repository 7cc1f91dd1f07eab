"""Hooks into other libraries' insides: each has a slower public way for where it is gone.

A new version of a library is tried with these tests before its number is written here.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import transformers
from browser import ROOT, serve
from tiny_models import model_of, tokenizer

from components.common import theme
from components.common.options import queued
from components.gradio_patches import (
    POLLING,
    contain_reports,
    forget_session,
    keep_no_configs,
    keep_sessions_with_events,
    log_tracebacks,
    shorten_errors,
    supervise_queue,
    without_stub_files,
)
from components.lab import section
from qalign_core.models import loading
from qalign_core.models.chat import Text
from qalign_core.models.local import llama_net, net_selection
from qalign_core.models.local.llama_net import LlamaNet, Matrix
from qalign_core.models.local.transformers_net import HFNet, PlainNet
from qalign_core.rewards.classifier import HFRewardModel

TRIED = {"torch": "2.13.0", "transformers": "5.23.0", "gradio": "6.31.0", "plotly": "7.1.0"}
HOOKS = {
    ("llama_net.py", "torch.ops.mkldnn._reorder_linear_weight"),
    ("llama_net.py", "torch.ops.mkldnn._linear_pointwise"),
}
"""Private names of others, by file; those that `getattr` asks for are strings and fail nowhere."""
OWN_NAMES = re.compile(
    r"(self|super\(\)|cls|of|net|lm|rm|draft|proposals|Trace)\._\w+|\w+\._(replace|asdict|fields)"
)
"""Our own private names, and those that named tuples make public."""


@pytest.mark.parametrize("library", TRIED)
def test_the_hooks_were_tried_with_this_version(library):
    assert version(library).partition("+")[0] == TRIED[library]


def test_no_other_private_name_of_a_library_is_used():
    names = set()
    for path in (*ROOT.glob("qalign_core/**/*.py"), *ROOT.glob("components/**/*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Attribute) and re.match(r"_[a-zA-Z]", node.attr):
                name = ast.unparse(node)
                if not OWN_NAMES.fullmatch(name):
                    names.add((path.name, name))
    assert names == HOOKS


# torch: a weight packed for oneDNN


@pytest.fixture
def again():
    llama_net.packed_product.cache_clear()
    yield
    llama_net.packed_product.cache_clear()


def missing(weight, size):
    raise RuntimeError("no such operator")


def wrong(weight, size):
    return 2 * weight


GONE = [
    SimpleNamespace(),
    SimpleNamespace(_reorder_linear_weight=missing, _linear_pointwise=missing),
    SimpleNamespace(
        _reorder_linear_weight=wrong, _linear_pointwise=torch.ops.mkldnn._linear_pointwise
    ),
]


@pytest.mark.usefixtures("again")
@pytest.mark.parametrize("operators", GONE, ids=["gone", "failing", "other numbers"])
def test_without_the_packed_product_a_matrix_is_multiplied_as_everywhere(monkeypatch, operators):
    weight = torch.randn(512, 512, generator=torch.Generator().manual_seed(1)) / 16
    x, bias = weight[:4].contiguous(), weight[5]
    ways = [(x,), (x, bias), (x, bias.expand(4, -1).contiguous())]
    fast = [Matrix(weight)(*way) for way in ways]
    llama_net.packed_product.cache_clear()
    monkeypatch.setattr(torch.ops, "mkldnn", operators)
    assert llama_net.packed_product() is None
    for way, expected in zip(ways, fast, strict=True):
        torch.testing.assert_close(Matrix(weight)(*way), expected, rtol=0, atol=1e-5)


@pytest.mark.usefixtures("again")
def test_the_packed_product_is_there():
    if not torch.backends.cpu.get_cpu_capability().startswith("AVX"):
        pytest.skip("it is used on CPUs with AVX")
    assert llama_net.packed_product() is not None


# transformers: modules, caches and tables


def moved(*_, **__):
    raise AttributeError("'LlamaAttention' object has no attribute 'q_proj'")


def test_without_the_layout_of_a_llama_its_own_forward_runs_it(monkeypatch):
    monkeypatch.setattr(LlamaNet, "fits", moved)
    with torch.inference_mode():
        assert isinstance(net_selection.build(model_of("llama"), 4, 64), HFNet)
    monkeypatch.undo()
    monkeypatch.setattr(LlamaNet, "_fuse", moved)
    with torch.inference_mode():
        assert isinstance(net_selection.build(model_of("llama"), 4, 64), HFNet)


def test_without_layers_of_a_cache_rows_run_one_after_the_other(monkeypatch):
    model = model_of("gemma3")
    # an import of what is None raises ImportError
    monkeypatch.setitem(sys.modules, "transformers.cache_utils", None)
    with torch.inference_mode():
        assert isinstance(net_selection.build(model, 4, 64), PlainNet)


def test_without_the_layout_of_a_llama_a_reward_model_is_read_anew(monkeypatch):
    model = model_of("llama", n_outputs=1)
    text = Text(tokenizer())
    fast = HFRewardModel(model, text, id="tiny")
    monkeypatch.setattr(LlamaNet, "_fuse", moved)
    slow = HFRewardModel(model, text, id="tiny")
    assert type(fast.worker) is not type(slow.worker)
    tokens = tuple(range(5, 40))
    with torch.inference_mode():
        assert fast.worker.compute(tokens) == pytest.approx(slow.worker.compute(tokens), abs=1e-4)
    fast.close()
    slow.close()


def test_without_the_table_of_models_the_check_is_left_to_transformers():
    auto = transformers.AutoModelForCausalLM
    assert loading.has_model_for(auto, transformers.LlamaConfig())
    assert not loading.has_model_for(auto, transformers.ViTConfig())
    assert loading.has_model_for(SimpleNamespace(), transformers.ViTConfig())


def test_without_a_name_for_the_attention_the_plain_one_is_taken():
    model = model_of("bloom")
    assert net_selection.attention_of(model) in ("eager", "sdpa")
    assert net_selection.attention_of(SimpleNamespace(config=SimpleNamespace())) == "eager"


# Gradio: its module of plotly.js


def test_without_gradios_table_of_sessions_it_keeps_the_last_ones():
    forget_session(SimpleNamespace(), "a")
    holder = SimpleNamespace(session_data={"a": 1, "b": 2}, time_last_used={"a": 1})
    forget_session(SimpleNamespace(state_holder=holder), "a")
    assert (holder.session_data, holder.time_last_used) == ({"b": 2}, {})
    queue = SimpleNamespace(pending_messages_per_session={"a": 1, "b": 2})
    forget_session(SimpleNamespace(get_blocks=lambda: SimpleNamespace(_queue=queue)), "a")
    assert queue.pending_messages_per_session == {"b": 2}


@pytest.mark.parametrize("patch", [supervise_queue, contain_reports, keep_sessions_with_events])
def test_a_queue_without_the_names_that_a_patch_needs_is_left_as_it_is(patch):
    queue = SimpleNamespace(stopped=False)
    for demo in (SimpleNamespace(_queue=queue), SimpleNamespace()):
        patch(demo)
    assert vars(queue) == {"stopped": False}


def test_gradios_modules_without_a_traceback_of_their_own_are_left_as_they_are(monkeypatch):
    from gradio import queueing, routes

    monkeypatch.delattr(queueing, "traceback")
    monkeypatch.setattr(routes, "traceback", "another")
    log_tracebacks()
    assert not hasattr(queueing, "traceback")
    assert routes.traceback == "another"


def test_gradios_modules_without_a_payload_of_errors_are_left_as_they_are(monkeypatch):
    from gradio import queueing, utils

    monkeypatch.delattr(utils, "error_payload")
    monkeypatch.setattr(queueing, "error_payload", "another")
    shorten_errors()
    assert not hasattr(utils, "error_payload")
    assert queueing.error_payload == "another"


def test_gradios_sessions_without_a_configuration_are_left_as_they_are(monkeypatch):
    from gradio import state_holder

    session_state = type("SessionState", (), {"_update_config": 1})
    for odd in (None, session_state):
        monkeypatch.setattr(state_holder, "SessionState", odd)
        keep_no_configs()
    assert session_state._update_config == 1


def test_gradios_module_of_plotly_is_there_and_the_head_brings_none():
    assert theme.plotly_module().startswith("assets/PlotlyPlot-")
    assert "plotly.js v" not in theme.head()


def test_without_gradios_module_its_address_is_empty(tmp_path: Path):
    assert theme.plotly_module(tmp_path) == ""


@pytest.mark.more
@pytest.mark.asyncio(loop_scope="session")
async def test_without_gradios_module_the_lab_draws_with_plotlys_own(browser, monkeypatch):
    import gradio as gr

    from components.lab.page import build_lab_page

    monkeypatch.setattr(theme, "plotly_module", lambda: "")
    monkeypatch.setattr(section, "plotly_module", lambda: "")
    with gr.Blocks(analytics_enabled=False) as demo:
        build_lab_page(demo, gr.HTML())
    with serve(demo, ssr_mode=False, head=theme.head()) as address:
        page = await browser.new_page()
        addresses = []
        page.on("request", lambda request: addresses.append(request.url))
        await page.goto(address)
        await page.wait_for_selector("#lab-target .main-svg")
        await page.close()
    assert not [url for url in addresses if "PlotlyPlot" in url]


# Gradio: what it does while nobody does anything


class Wrote(Exception):
    """Gradio began to write a stub."""


def test_gradio_writes_no_stubs_where_the_app_imports_it(monkeypatch):
    import gradio as gr
    from gradio import component_meta

    def create(*_: object) -> str:
        raise Wrote

    monkeypatch.setattr(component_meta, "create_pyi", create)
    with without_stub_files():
        component = type(gr.HTML)("Wrote", (gr.HTML,), {"__module__": __name__})
    assert inspect.getfile(component) == __file__
    with pytest.raises(Wrote):  # the control: elsewhere it does
        type(gr.HTML)("Wrote", (gr.HTML,), {"__module__": __name__})


async def test_gradios_queue_looks_for_events_as_seldom_as_it_is_told(monkeypatch):
    import gradio as gr
    from gradio import queueing

    slept = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        queue.stopped = len(slept) == 3

    with gr.Blocks(analytics_enabled=False) as demo:
        gr.HTML()
    queue = queued(demo)._queue
    queue.active_jobs = [None]
    monkeypatch.setattr(queueing, "asyncio", SimpleNamespace(sleep=sleep))
    await queue.start_processing()
    assert slept == [POLLING["sleep_when_free"]] * 3
    slept.clear()
    queue.stopped = False
    await queue.start_progress_updates()
    assert slept == [POLLING["progress_update_sleep_when_free"]] * 3


def test_with_all_patches_off_gradio_is_as_it_came_and_the_app_runs(monkeypatch):
    import gradio as gr
    from gradio_client import Client
    from toys import PROMPT, ToyLM, ToyRM

    import app
    from components.session.runs import Runs
    from qalign_core.run import Limits

    monkeypatch.setenv("QALIGN_PATCHES", "0")
    runs = Runs(Limits(), load=lambda *_: (ToyLM(), ToyRM()))
    demo = app.build_app(runs)
    plain = gr.Blocks().queue(default_concurrency_limit=None)
    assert vars(demo._queue).keys() == vars(plain._queue).keys()
    assert demo._queue.sleep_when_free == plain._queue.sleep_when_free
    with serve(demo, **app.launch_options(runs)) as address:
        text = Client(address, verbose=False).predict(PROMPT, steps=2, api_name="/run_chain")
    assert text.count("\n") >= 3
    monkeypatch.setenv("QALIGN_PATCHES", "1")  # the control
    assert vars(app.build_app(runs)._queue).keys() != vars(plain._queue).keys()
