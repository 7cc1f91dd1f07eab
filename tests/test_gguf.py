"""GGUF files are language models: the same model as the folder that they were written from."""

from __future__ import annotations

import asyncio
import sys

import gguf
import numpy as np
import pytest
from tiny_models import save
from to_gguf import convert

from qalign_core.errors import ModelLoadError
from qalign_core.models.loading import fingerprint, load_text, n_stored
from qalign_core.models.local.engine import HFLanguageModel
from qalign_core.registry import entries, load_language_model, unload
from qalign_core.run import Sampling
from qalign_study.commands import main

KINDS = {
    "llama": {},
    "qwen2": {},
    "gemma3": {  # 5 of 6 layers slide, as in every Gemma 3; the format does not store the pattern
        "num_hidden_layers": 6,
        "layer_types": ["sliding_attention"] * 5 + ["full_attention"],
        "query_pre_attn_scalar": 256,
    },
}
OPTIONS = {"device": "cpu", "rows": 4, "window": 64, "cache_bytes": 2**20}
PROMPT = "Why is the sky blue?"


def load(source, **options):
    sampling = Sampling(max_new_tokens=8)
    return HFLanguageModel.from_pretrained(source, sampling=sampling, **OPTIONS, **options)


def draw(lm):
    ids = lm.encode(PROMPT)
    return ids, asyncio.run(lm.extend(ids, (), seed=3))


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("gguf")
    return convert(save(path / "llama", "llama"), path / "llama.gguf", "Q8_0")


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_of_each_kind_is_the_model_that_it_was_written_from(tmp_path, kind):
    folder = save(tmp_path / kind, kind, **KINDS[kind])
    original = load(folder, dtype="float32")
    read = load(convert(folder, tmp_path / "model.gguf"))
    assert read.n_parameters == original.n_parameters == n_stored(tmp_path / "model.gguf")
    assert set(read.eos) == set(original.eos)
    ids, response = draw(original)
    assert draw(read)[0] == ids
    assert draw(read)[1].tokens == response.tokens
    scores = [asyncio.run(lm.score_tokens(ids, response.tokens)) for lm in (original, read)]
    for a, b in zip(*scores, strict=True):
        assert b.log_p == pytest.approx(a.log_p, abs=1e-4)
    for lm in (original, read):
        lm.close()


def test_a_file_is_parsed_once(file, monkeypatch):
    parsed, parse = [], gguf.GGUFReader.__init__
    monkeypatch.setattr(
        gguf.GGUFReader, "__init__", lambda *args: parsed.append(args) or parse(*args)
    )
    load(file).close()
    assert len(parsed) == 1
    load_text(file)
    assert len(parsed) == 2
    assert gguf.GGUFReader.__module__ == "gguf.gguf_reader", "what was replaced is there again"


def test_a_quantized_file_runs_in_8_bits_unless_another_type_is_named(file):
    by_default, wide = load(file), load(file, dtype="float32")
    assert by_default.revision == f"{wide.revision} int8"
    ids, response = draw(wide)
    scores = [asyncio.run(lm.score_tokens(ids, response.tokens)) for lm in (by_default, wide)]
    differences = [abs(a.log_p - b.log_p) for a, b in zip(*scores, strict=True)]
    assert 0 < max(differences) < 0.1
    for lm in (by_default, wide):
        lm.close()


def test_a_file_can_be_an_entry_of_a_registry_and_a_served_models_tokenizer(file, monkeypatch):
    registry = file.with_name("own.toml")
    registry.write_text('[[lm]]\nid = "mine"\nsource = "llama.gguf"\ntitle = "Mine"\n', "utf-8")
    monkeypatch.setenv("QALIGN_REGISTRY", str(registry))
    entries.cache_clear()
    try:
        lm = load_language_model("mine", sampling=Sampling(max_new_tokens=8), **OPTIONS)
        text, eos = load_text(file)
        assert lm.id == "mine"
        assert set(eos) == set(lm.eos) == {2, 5}
        assert text.prompt(PROMPT) == lm.encode(PROMPT)
    finally:
        entries.cache_clear()


def test_an_installed_package_with_the_file_makes_a_model_available_without_the_hub(
    file, tmp_path, monkeypatch, capsys
):
    entry = entries()["lm", "smollm2-135m"]
    place = tmp_path / entry.package
    place.parent.mkdir()
    place.write_bytes(file.read_bytes())
    place.with_name("__init__.py").write_text("raise ImportError('it must not be imported')")
    monkeypatch.syspath_prepend(tmp_path)
    lm = load_language_model("smollm2-135m", sampling=Sampling(max_new_tokens=8), **OPTIONS)
    assert lm.id == "smollm2-135m"
    assert lm.revision == f"{fingerprint(place)} int8"
    assert draw(lm)[1].tokens
    unload("smollm2-135m")
    assert main(["fetch", "smollm2-135m"]) == 0
    assert str(place) in capsys.readouterr().out


def refusal(path):
    with pytest.raises(ModelLoadError) as error:
        load_language_model(str(path), **OPTIONS)
    sentence = str(error.value)
    assert sentence.startswith(str(path))
    assert "\n" not in sentence
    return sentence.removeprefix(str(path))


@pytest.mark.parametrize("package", ["gguf", "accelerate"])
def test_a_missing_package_is_named_with_what_installs_it(file, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    assert refusal(file) == (
        f" is a GGUF file, which needs the package {package}; install 'qalign-explorer[gguf]'"
    )


@pytest.mark.parametrize("share", [0, 1e-5, 0.01, 0.05, 0.5, 0.999])
def test_a_truncated_file_is_refused(file, tmp_path, share):
    content = file.read_bytes()
    part = tmp_path / "part.gguf"
    part.write_bytes(content[: int(len(content) * share)])
    assert refusal(part).startswith(" is not a complete GGUF file (")


def write(path, architecture, *, tokens):
    """Write a file of one matrix."""
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_tokenizer_model("gpt2")
    if tokens:
        writer.add_token_list(tokens)
    writer.add_tensor("token_embd.weight", np.zeros((4, 32), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_a_file_without_a_tokenizer_is_refused(tmp_path):
    path = write(tmp_path / "bare.gguf", "llama", tokens=[])
    assert refusal(path) == (
        " has no tokenizer; choose a GGUF file of a language model that has one"
    )


def test_an_unknown_architecture_is_named(tmp_path):
    path = write(tmp_path / "strange.gguf", "strange", tokens=["a", "b", "c", "d"])
    assert refusal(path) == (
        " cannot be loaded: transformers cannot read the architecture strange from a GGUF file; "
        "give the model's folder or hub id"
    )
