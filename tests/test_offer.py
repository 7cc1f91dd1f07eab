"""What a server offers, and what a visitor's word cannot make it load."""

from __future__ import annotations

import huggingface_hub
import pytest

from components.session.offer import Offer
from components.session.runs import Feed, Runs
from qalign_core.errors import ModelLoadError
from qalign_core.registry import entries
from qalign_core.run import Limits, Run


def test_the_shipped_models_and_small_open_ones_are_offered():
    models = Offer().models
    assert {"embedded", "smollm2-135m", "qwen3-0.6b"} <= set(models["lm"])
    assert {"embedded", "embedded-weak", "skywork-v2-qwen3-0.6b"} <= set(models["rm"])
    assert not {"llama-3.2-1b", "llama-3.1-8b", "tulu-3-8b-rm"} & {*models["lm"], *models["rm"]}
    assert models["lm"]["smollm2-135m"].startswith(
        "SmolLM2 135M Instruct, tested with 4-bit weights"
    )
    assert models["lm"]["smollm2-360m"].startswith("SmolLM2 360M Instruct, not yet run")


def test_a_title_tells_what_must_be_downloaded_and_how_long_a_run_takes(tmp_path, monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    absent = Offer().models["lm"]
    assert "not downloaded" in absent["smollm2-135m"]
    assert absent["qwen3-0.6b"].endswith(", not downloaded, 32 steps take about 3 min")
    assert "steps" not in absent["embedded"]
    entry = entries()["lm", "smollm2-135m"]
    assert not entry.is_present
    folder, name = entry.package.split("/")
    (tmp_path / folder).mkdir()
    (tmp_path / folder / name).touch()
    monkeypatch.syspath_prepend(tmp_path)
    assert entry.is_present
    assert entry.location == str(tmp_path / folder / name)
    title = Offer().models["lm"]["smollm2-135m"]
    assert "not downloaded" not in title
    assert title.endswith(f", 32 steps take about {round(entry.run_seconds / 5) * 5} s")


def test_a_model_that_the_hubs_client_has_fetched_is_present(tmp_path, monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    entry = entries()["lm", "qwen3-0.6b"]
    home = tmp_path / f"models--{entry.source.replace('/', '--')}"
    (home / "refs").mkdir(parents=True)
    (home / "refs" / "main").write_text("abc", "utf-8")
    snapshot = home / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").touch()
    assert not entry.is_present, "the weights are missing"
    (snapshot / "model.safetensors").touch()
    assert entry.is_present


def test_the_operator_names_others():
    offer = Offer.from_environment({"QALIGN_MODELS": "llama-3.1-8b, tulu-3-8b-rm"})
    assert set(offer.models["lm"]) == {"embedded", "llama-3.1-8b"}
    of_texts = {"mood", "plain", "length:12", "contains:sun", "none"}
    shipped = {"embedded", "embedded-weak"}
    assert set(offer.models["rm"]) == shipped | {"tulu-3-8b-rm"} | of_texts
    none = Offer.from_environment({"QALIGN_MODELS": ""})
    assert set(none.models["lm"]) == {"embedded"}
    assert ", gated, not yet run" in offer.models["lm"]["llama-3.1-8b"]


FORBIDDEN = [
    "http://169.254.169.254",
    "../../etc/passwd",
    "/etc",
    "~/model",
    "..",
    "",
    "owner/name/more",
    "rules.py:f",
]


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("id", FORBIDDEN)
def test_no_folder_no_address_and_no_code_is_ever_loaded_for_a_visitor(id, own):
    offer = Offer(own=own)
    for lm, rm in ((id, "embedded"), ("embedded", id), ("embedded", f"0.5*embedded + 2*{id}"),
                   ("embedded", f"judge:{id}")):  # fmt: skip
        with pytest.raises(ModelLoadError, match="does not offer"):
            offer.check(lm, rm)


def test_own_ids_of_the_hub_are_for_servers_that_allow_them():
    with pytest.raises(ModelLoadError, match="choose embedded"):
        Offer().check("someone/model", "embedded")
    for off in ("0", "", " "):
        assert not Offer.from_environment({"QALIGN_OWN_MODELS": off}).own
    offer = Offer.from_environment({"QALIGN_OWN_MODELS": "1"})
    offer.check("someone/model", "0.7*embedded + 0.3*someone/reward")
    offer.check("embedded", "judge:someone/model")


async def test_a_run_checks_the_offer_before_anything_is_loaded():
    runs = Runs(Limits(), load=lambda *_: pytest.fail("it was loaded"), offer=Offer())
    with pytest.raises(ModelLoadError):
        async with runs.models(Feed(), Run(lm="someone/model")):
            pass
