"""The networks: transformers' Llama at a size that two cores can train; made, saved and loaded."""

from copy import deepcopy
from pathlib import Path

import torch
from torch import nn
from transformers import (
    GenerationConfig,
    LlamaConfig,
    LlamaForCausalLM,
    LlamaForSequenceClassification,
    PreTrainedTokenizerFast,
)

MAX_NEW_TOKENS = 256
"""The limit of a response."""


def new_language_model(tokenizer: PreTrainedTokenizerFast, seed: int) -> LlamaForCausalLM:
    """A language model that has learned nothing, in which every layer is the identity."""
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=352,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,  # what a decoding step reads most at this size is keys and values
        max_position_embeddings=tokenizer.model_max_length,
        rms_norm_eps=1e-5,
        tie_word_embeddings=True,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    model = LlamaForCausalLM(config)
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            nn.init.zeros_(parameter)
        elif parameter.ndim == 2:
            nn.init.normal_(parameter, std=0.02, generator=generator)
    return model


def new_reward_model(model: LlamaForCausalLM) -> LlamaForSequenceClassification:
    """A reward model that starts from a language model; every reward is 0."""
    config = LlamaConfig.from_dict({**model.config.to_dict(), "id2label": {0: "reward"}})
    reward_model = LlamaForSequenceClassification(config)
    reward_model.model.load_state_dict(model.model.state_dict())
    nn.init.zeros_(reward_model.score.weight)
    return reward_model


def export(
    model: LlamaForCausalLM | LlamaForSequenceClassification,
    tokenizer: PreTrainedTokenizerFast,
    path: Path,
) -> None:
    """Write config, float16 weights and tokenizer, and of a language model how it is sampled."""
    half = deepcopy(model).half()
    half.save_pretrained(path)
    # Stored in half precision, meant to be computed in float32: that is what dtype "auto" reads.
    half.config.dtype = torch.float32
    half.config.save_pretrained(path)
    tokenizer.save_pretrained(path, save_jinja_files=False)
    if isinstance(model, LlamaForCausalLM):
        GenerationConfig(
            do_sample=True,
            temperature=1.0,
            top_k=0,
            max_new_tokens=MAX_NEW_TOKENS,
            pad_token_id=tokenizer.pad_token_id,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
        ).save_pretrained(path)


def load_language_model(path: Path) -> LlamaForCausalLM:
    """A language model with the saved (rounded) weights, in float32."""
    return LlamaForCausalLM.from_pretrained(path, dtype=torch.float32).eval()


def load_reward_model(path: Path) -> LlamaForSequenceClassification:
    """A reward model with the saved (rounded) weights, in float32."""
    return LlamaForSequenceClassification.from_pretrained(path, dtype=torch.float32).eval()
