"""Save the models in the format of `transformers`, and load them back for measuring."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    GenerationConfig,
    LlamaConfig,
    LlamaForCausalLM,
    LlamaForSequenceClassification,
    PreTrainedTokenizerFast,
)

from qalign_study.train.embedded.llama import Llama, Shape
from qalign_study.train.embedded.on_policy import MAX_NEW_TOKENS
from qalign_study.train.embedded.reward_model import RewardModel


def export_language_model(model: Llama, tokenizer: PreTrainedTokenizerFast, path: Path) -> None:
    """Write config, float16 weights, generation config and tokenizer; check the logits."""
    config = _config(model.shape, tokenizer)
    exported = LlamaForCausalLM(config)
    exported.model.load_state_dict(model.state_dict())
    _save(exported, tokenizer, path)
    _rewrite_generation_config(tokenizer, path)
    ids = _probe(model.shape)
    reloaded = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    own = load_language_model(path)
    with torch.inference_mode():
        difference = (reloaded(ids).logits - own.logits(own(ids))).abs().max().item()
    assert difference < 1e-3, f"transformers' logits differ from the trainer's by {difference}"


def export_reward_model(model: RewardModel, tokenizer: PreTrainedTokenizerFast, path: Path) -> None:
    """Write config, float16 weights and tokenizer; check the scores."""
    config = _config(model.model.shape, tokenizer, num_labels=1, id2label={0: "reward"})
    exported = LlamaForSequenceClassification(config)
    exported.load_state_dict(model.state_dict())
    _save(exported, tokenizer, path)
    ids = _probe(model.model.shape)
    reloaded = AutoModelForSequenceClassification.from_pretrained(path, dtype=torch.float32)
    own = load_reward_model(path)
    with torch.inference_mode():
        difference = (reloaded(ids).logits[:, 0] - own(ids.tolist())).abs().max().item()
    assert difference < 1e-3, f"transformers' rewards differ from the trainer's by {difference}"


def load_tokenizer(path: Path) -> PreTrainedTokenizerFast:
    """The tokenizer that was saved with a model."""
    return AutoTokenizer.from_pretrained(path)


def load_language_model(path: Path) -> Llama:
    """The saved (rounded) weights, in float32, in the trainer's network."""
    reloaded = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    model = Llama(_shape(reloaded.config))
    model.load_state_dict(reloaded.model.state_dict())
    return model.eval()


def load_reward_model(path: Path) -> RewardModel:
    """The saved (rounded) weights, in float32, in the trainer's network."""
    reloaded = AutoModelForSequenceClassification.from_pretrained(path, dtype=torch.float32)
    model = RewardModel(Llama(_shape(reloaded.config)))
    model.load_state_dict(reloaded.state_dict())
    return model.eval()


def _config(shape: Shape, tokenizer: PreTrainedTokenizerFast, **more: object) -> LlamaConfig:
    return LlamaConfig(
        vocab_size=shape.vocabulary,
        hidden_size=shape.width,
        intermediate_size=shape.hidden,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        max_position_embeddings=shape.context,
        rms_norm_eps=1e-5,
        tie_word_embeddings=True,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        **more,
    )


def _shape(config: LlamaConfig) -> Shape:
    return Shape(
        vocabulary=config.vocab_size,
        width=config.hidden_size,
        layers=config.num_hidden_layers,
        heads=config.num_attention_heads,
        kv_heads=config.num_key_value_heads,
        hidden=config.intermediate_size,
        context=config.max_position_embeddings,
    )


def _save(
    model: LlamaForCausalLM | LlamaForSequenceClassification,
    tokenizer: PreTrainedTokenizerFast,
    path: Path,
) -> None:
    half = model.half()
    # Stored in half precision, meant to be computed in float32: that is what dtype "auto" reads.
    half.save_pretrained(path)
    config = half.config
    config.dtype = torch.float32
    config.save_pretrained(path)
    tokenizer.save_pretrained(path, save_jinja_files=False)


def _rewrite_generation_config(tokenizer: PreTrainedTokenizerFast, path: Path) -> None:
    GenerationConfig(
        do_sample=True,
        temperature=1.0,
        top_k=0,
        max_new_tokens=MAX_NEW_TOKENS,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
    ).save_pretrained(path)


def _probe(shape: Shape) -> torch.Tensor:
    """Some ids (4, 100), none of them padding."""
    generator = torch.Generator().manual_seed(0)
    return torch.randint(5, shape.vocabulary, (4, 100), generator=generator)
