"""Names to models: what is known, what is shared, and one sentence for everything that is wrong."""

import asyncio
import json
import pickle
import re
import shutil
import threading

import pytest
import torch
from jinja2 import Template
from refusals import refusal, refuse_command
from safetensors.torch import load_file, save_file
from tiny_models import save

from components.session.links import from_query
from components.session.offer import Offer
from qalign_core import registry
from qalign_core.errors import ModelLoadError
from qalign_core.models import loading
from qalign_core.models.loaded import LoadedModels
from qalign_core.run import Limits, Sampling


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save(tmp_path_factory.mktemp("lm"), "llama")


@pytest.fixture(scope="module")
def rm_folder(tmp_path_factory):
    return save(tmp_path_factory.mktemp("rm"), "llama", n_outputs=1)


@pytest.fixture
def copy(folder, tmp_path):
    return shutil.copytree(folder, tmp_path / "copy")


def load_lm(path, **options):
    model = registry.load_language_model(str(path), device="cpu", rows=4, **options)
    registry.unload(str(path))
    return model


def load_rm(path, **options):
    model = registry.load_reward_model(str(path), device="cpu", **options)
    registry.unload(str(path))
    return model


def test_the_registry_names_the_embedded_models_and_says_what_was_not_run():
    lms = {entry.id: entry for entry in registry.entries_of("lm")}
    rms = {entry.id: entry for entry in registry.entries_of("rm")}
    assert next(iter(lms)) == next(iter(rms)) == "embedded"
    assert "embedded-weak" in rms
    for entry in [*lms.values(), *rms.values()]:
        assert entry.status in ("tested", "tested with 4-bit weights", "not yet run")
        assert entry.licence
        assert (entry.parameters > 0) != entry.reads_text
        assert entry.location.endswith(entry.source)
    assert lms["tulu-3-8b-sft"].beta == rms["tulu-3-8b-rm"].beta == 0.5
    assert lms["llama-3.2-1b"].gated


def test_a_former_name_of_a_model_opens_what_was_written_with_it():
    lm, rm = registry.load_language_model("inventory"), registry.load_reward_model("inventory")
    assert lm.id == rm.id == "embedded"
    assert lm.engine is registry.load_language_model("embedded").engine, "loaded once"
    both = "0.7*inventory + 0.3*contains:inventory"
    assert registry.current_name("rm", both) == "0.7*embedded + 0.3*contains:inventory"
    assert registry.current_name("lm", "of/nobody") == "of/nobody"
    offer = Offer()
    offer.check("inventory", both)
    assert "inventory" not in offer.models["lm"] | offer.models["rm"]
    run, notices = from_query({"lm": "inventory", "rm": both}, Limits(), offer)
    assert (run.lm, run.rm, notices) == ("embedded", registry.current_name("rm", both), ())


SHAPES = {
    "smollm2-135m": ("Llama", 49152, 576, 1536, 30, 9, 3, 64, True),
    "smollm2-360m": ("Llama", 49152, 960, 2560, 32, 15, 5, 64, True),
    "qwen2.5-0.5b": ("Qwen2", 151936, 896, 4864, 24, 14, 2, 64, True),
    "qwen3-0.6b": ("Qwen3", 151936, 1024, 3072, 28, 16, 8, 128, True),
    "llama-3.2-1b": ("Llama", 128256, 2048, 8192, 16, 32, 8, 64, True),
    "llama-3.1-8b": ("Llama", 128256, 4096, 14336, 32, 32, 8, 128, False),
    "tulu-3-8b-sft": ("Llama", 128264, 4096, 14336, 32, 32, 8, 128, False),
    "tulu-3-8b-dpo": ("Llama", 128264, 4096, 14336, 32, 32, 8, 128, False),
    "skywork-v2-qwen3-0.6b": ("Qwen3", 151936, 1024, 3072, 28, 16, 8, 128, True),
    "skywork-v2-llama-3.2-1b": ("Llama", 128256, 2048, 8192, 16, 32, 8, 64, True),
    "tulu-3-8b-rm": ("Llama", 128256, 4096, 14336, 32, 32, 8, 128, False),
}
"""The published shapes: family, vocabulary, width, inner width, layers, heads, tied or not."""


@pytest.mark.parametrize("id", SHAPES)
def test_the_registry_counts_the_parameters_that_a_model_of_that_shape_has(id):
    import transformers

    family, vocabulary, width, inner, layers, heads, kv_heads, size, tied = SHAPES[id]
    (entry,) = (e for e in registry.entries().values() if e.id == id)
    config = getattr(transformers, f"{family}Config")(
        vocab_size=vocabulary,
        hidden_size=width,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=size,
        tie_word_embeddings=tied,
        num_labels=1,
    )
    kind = "CausalLM" if entry.kind == "lm" else "SequenceClassification"
    with torch.device("meta"):
        model = getattr(transformers, f"{family}For{kind}")(config)
    assert entry.parameters == pytest.approx(
        sum(p.numel() for p in model.parameters()) / 1e6, abs=0.1
    )


def test_a_pair_of_texts_is_joined_as_deberta_reads_it():
    (entry,) = (entry for entry in registry.entries_of("rm") if entry.id == "deberta-v3-large")
    template = Template(entry.options["chat_template"])
    pair = [{"role": "user", "content": "Q?"}, {"role": "assistant", "content": "A."}]
    assert template.render(messages=pair) == "[CLS]Q?[SEP]A.[SEP]"


THINKS = (
    "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}{% endfor %}<assistant>"
    "{% if enable_thinking is defined and not enable_thinking %}<end><end>{% endif %}"
)


def test_thinking_is_off_unless_it_is_turned_on_and_refused_where_a_template_has_no_switch(
    copy, folder, capsys
):
    (copy / "chat_template.jinja").write_text(THINKS, "utf-8")
    off, on = load_lm(copy, max_new_tokens=64), load_lm(copy, max_new_tokens=64, thinking=True)
    end = off.engine.eos & set(off.encode("Hi"))
    assert off.encode("Hi") == (*on.encode("Hi"), *off.encode("Hi")[-2:])
    assert len(end) == 1
    assert on.revision == f"{off.revision} thinking", "a trace names it"
    with refusal(ModelLoadError, "has no switch enable_thinking; leave out --thinking"):
        load_lm(folder, thinking=True)
    command = ["run", "--lm", str(folder), "--thinking", "--rm", "none", "--prompt", "Hi"]
    refuse_command(capsys, command, "enable_thinking")


def test_the_registry_names_the_models_whose_template_has_the_switch():
    names = {entry.id for entry in registry.entries_of("lm") if entry.has_thinking}
    assert names == {"qwen3-0.6b"}


def test_the_readme_names_the_models_of_the_hub_that_a_space_offers():
    from components.session.offer import Offer

    metadata = (registry.ASSETS.parent / "README.md").read_text("utf-8").split("---")[1]
    named = set(re.findall(r"^  - (\S+/\S+)$", metadata, re.MULTILINE))
    models = Offer().models
    entries = [*registry.entries_of("lm"), *registry.entries_of("rm")]
    offered = {e.source for e in entries if e.id in models[e.kind] and not e.shipped}
    assert named == offered


def test_a_model_is_loaded_once_and_shared_whoever_asks_first(folder):
    loaded = []
    threads = [
        threading.Thread(
            target=lambda: loaded.append(
                registry.load_language_model(str(folder), rows=4, device="cpu")
            )
        )
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(lm.engine) for lm in loaded}) == 1
    cool = registry.load_language_model(str(folder), rows=4, device="cpu", temperature=0.5)
    assert cool.engine is loaded[0].engine
    assert cool.sampling == Sampling(temperature=0.5)
    assert loaded[0].sampling == Sampling()
    assert str(folder) in registry.LOADED.ids()
    assert registry.unload(str(folder))
    assert not registry.unload(str(folder))


def test_a_folder_is_known_by_the_content_of_its_weights_and_tokenizer(folder, rm_folder, copy):
    revision = load_lm(folder).revision
    assert len(revision) == 12
    assert int(revision, 16) >= 0
    assert load_lm(copy).revision == revision
    assert load_rm(rm_folder).revision != revision
    weights = load_file(copy / "model.safetensors")
    next(iter(weights.values())).view(-1)[0] += 1
    save_file(weights, copy / "model.safetensors", {"format": "pt"})
    assert load_lm(copy).revision != revision


def test_the_end_tokens_are_those_of_the_generation_config_and_its_sampling_does_not_leak(folder):
    lm = load_lm(folder)
    assert lm.engine.eos == {2, 5}
    assert lm.sampling == Sampling()


def test_the_context_is_whole_where_attention_slides_and_as_wide_as_asked_for(tmp_path):
    path = save(tmp_path, "phi3", sliding_window=80)
    assert load_lm(path).context_length == 192
    assert load_lm(path, window=100).context_length == 100


@pytest.mark.parametrize("name", ["embeded", "no/such/folder", "./missing"])
def test_an_unknown_name_is_refused(name):
    with refusal(ModelLoadError, name):
        registry.load_language_model(name)


def test_a_reward_model_is_no_language_model_and_the_other_way_round(folder, rm_folder):
    with refusal(ModelLoadError, "not a causal language model"):
        load_lm(rm_folder)
    with refusal(ModelLoadError, "not a reward model"):
        load_rm(folder)


def test_a_reward_model_with_two_outputs_is_refused(tmp_path):
    with refusal(ModelLoadError, "has 2 outputs, but a reward model has 1"):
        load_rm(save(tmp_path, "llama", n_outputs=2))


def test_a_reward_model_whose_head_was_never_trained_is_refused(rm_folder, tmp_path):
    path = shutil.copytree(rm_folder, tmp_path / "headless")
    weights = load_file(path / "model.safetensors")
    del weights["score.weight"]
    save_file(weights, path / "model.safetensors", metadata={"format": "pt"})
    with refusal(ModelLoadError, "score.weight (they would be random)"):
        load_rm(path)


def test_pickled_weights_are_refused_and_never_opened(copy):
    (copy / "model.safetensors").unlink()

    class Trap:
        def __reduce__(self):
            return (pytest.fail, ("the pickle was opened",))

    (copy / "pytorch_model.bin").write_bytes(pickle.dumps(Trap()))
    with refusal(ModelLoadError, "no safetensors weights"):
        load_lm(copy)


def test_code_that_comes_with_a_model_is_never_run(copy):
    config = json.loads((copy / "config.json").read_text("utf-8"))
    config["model_type"] = "trap"
    config["auto_map"] = {"AutoConfig": "trap.Config", "AutoModelForCausalLM": "trap.Model"}
    (copy / "config.json").write_text(json.dumps(config))
    (copy / "trap.py").write_text("import pytest; pytest.fail('the code was run')")
    with refusal(ModelLoadError, "cannot be loaded"):
        load_lm(copy)


@pytest.mark.parametrize("missing", ["config.json", "tokenizer.json", "chat_template.jinja"])
def test_a_folder_that_lacks_a_part_is_refused(copy, missing):
    (copy / missing).unlink()
    expected = {"config.json": "no config.json", "tokenizer.json": "tokenizer"}
    with refusal(ModelLoadError, expected.get(missing, "no chat template")):
        load_lm(copy)


def test_a_template_can_be_given_where_there_is_none(copy):
    (copy / "chat_template.jinja").unlink()
    lm = load_lm(copy, chat_template="{{ messages[0].content }}", max_new_tokens=64)
    assert bytes(i for i in lm.encode("Hi")) != b""
    assert len(lm.encode("Hi")) == 2


def test_a_model_bigger_than_the_memory_is_refused_before_it_is_loaded(folder, monkeypatch):
    monkeypatch.setattr(loading, "available_memory", lambda device: 1000)
    with refusal(ModelLoadError, "GiB as float32"):
        load_lm(folder)


def test_the_count_of_parameters_is_read_from_the_files_headers(folder):
    lm = load_lm(folder)
    assert loading.n_stored(folder) == lm.n_parameters


def header(text: bytes, size: int | None = None) -> bytes:
    """The beginning of a safetensors file, whose header says to have `size` bytes."""
    return (len(text) if size is None else size).to_bytes(8, "little") + text


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0" * 8,
        header(b"{}", 745 * 2**30),
        header(b"{", 1),
        header(b"[1, 2]"),
        header(b"[" * 100_000),
        header(b'{"a": 5}'),
        header(b'{"a": {"shape": "12"}}'),
        header(b'{"a": {"shape": [-5, 3]}}'),
        header(b'{"a": {"shape": [200000000000]}}'),
    ],
)
def test_weights_without_a_whole_header_are_one_sentence(folder, tmp_path, content):
    copy = shutil.copytree(folder, tmp_path / "copy")
    (copy / "model.safetensors").write_bytes(content)
    with pytest.raises(ModelLoadError, match="is not a complete safetensors file"):
        registry.load_language_model(str(copy))


def test_an_unknown_dtype_is_refused(folder):
    with refusal(ModelLoadError, "float32, bfloat16, float16"):
        load_lm(folder, dtype="int4")


async def test_a_half_precision_model_runs_on_the_generic_net(folder):
    lm = load_lm(folder, dtype="bfloat16")
    assert lm.engine.net.dtype == torch.bfloat16
    again = registry.load_language_model(str(folder), device="cpu", rows=4, dtype="bfloat16")
    short = again.with_sampling(Sampling(max_new_tokens=4))
    assert len(await short.extend(short.encode("Hi"), (), seed=1)) <= 4
    registry.unload(str(folder))


async def test_a_conversation_too_long_for_the_reward_model_is_refused_with_its_length(rm_folder):
    from qalign_core.errors import InvalidPrompt
    from qalign_core.types import Response

    rm = registry.load_reward_model(str(rm_folder), device="cpu")
    with pytest.raises(InvalidPrompt, match=r"has \d+ tokens.*reads 192"):
        await rm.score("word " * 60, Response((), "yes", True))
    registry.unload(str(rm_folder))


# Memory


class Held:
    """A loaded model, as far as the registry knows it."""

    def __init__(self, idle_seconds):
        self.idle_seconds, self.closed = idle_seconds, False

    def close(self):
        self.closed = True


@pytest.fixture
def held(monkeypatch):
    """Three models in memory: one long idle, one a little, one in use."""
    models = {("lm", "old"): Held(900.0), ("lm", "new"): Held(60.0), ("rm", "busy"): Held(1.0)}
    monkeypatch.setattr(registry, "LOADED", LoadedModels(models))
    return {key[1]: model for key, model in models.items()}


def small(monkeypatch, held, needed):
    """Memory that has room for a model once `needed` others are unloaded."""

    def free(device):
        return 2**40 if sum(model.closed for model in held.values()) >= needed else 1000

    monkeypatch.setattr(loading, "available_memory", free)


def test_the_model_that_was_idle_longest_makes_room(folder, held, monkeypatch):
    small(monkeypatch, held, needed=1)
    registry.load_language_model(str(folder), device="cpu", rows=4)
    assert {name for name, model in held.items() if model.closed} == {"old"}
    assert "old" not in registry.LOADED.ids()
    registry.unload(str(folder))


def test_a_model_in_use_is_never_unloaded_for_another(folder, held, monkeypatch):
    small(monkeypatch, held, needed=3)
    with pytest.raises(ModelLoadError, match="GiB are free"):
        registry.load_language_model(str(folder), device="cpu", rows=4)
    assert {name for name, model in held.items() if model.closed} == {"old", "new"}


async def test_an_unloaded_model_was_idle_and_a_loaded_one_knows_how_long(folder):
    lm = registry.load_language_model(str(folder), device="cpu", rows=4, max_new_tokens=40)
    before = lm.idle_seconds
    response = asyncio.ensure_future(lm.extend(lm.encode("Hi"), (), seed=1))
    await asyncio.sleep(0)  # the request is queued
    assert before > lm.idle_seconds == 0.0
    await response
    assert 0 < lm.idle_seconds < before + 60
    registry.unload(str(folder))


def test_keys_and_values_count_as_memory_too(folder, monkeypatch):
    weights = loading.n_stored(folder) * 4
    monkeypatch.setattr(loading, "available_memory", lambda device: weights + 2**20)
    with pytest.raises(ModelLoadError, match="of weights"):
        load_lm(folder, cache_bytes=2**21)


def test_a_load_tells_what_it_does(folder, monkeypatch):
    from qalign_core.context import PROGRESS
    from qalign_core.models.progress import fetch_bar

    notices = []
    token = PROGRESS.set(notices.append)
    monkeypatch.setattr(loading, "_SLOW", 0)
    load_lm(folder)
    assert notices[0].startswith("reading 0.")
    notices.clear()
    with fetch_bar("a/model")(total=0, unit="B", unit_scale=True, mininterval=0) as bar:
        bar.total = 200_000_000
        bar.update(50_000_000)
        bar.refresh()
    assert notices[-1] == "fetching a/model: 25% of 200 MB"
    PROGRESS.reset(token)


@pytest.mark.parametrize("name", [None, 5, ["embedded"], len])
def test_a_model_is_named_by_a_text(name):
    for load in (registry.load_language_model, registry.load_reward_model):
        with pytest.raises(ModelLoadError, match="give its name as a text"):
            load(name)
