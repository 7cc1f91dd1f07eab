"""Save the models in the format of `transformers`, and load them again."""

from copy import deepcopy
from pathlib import Path

import torch
from transformers import (
    GenerationConfig,
    LlamaForCausalLM,
    LlamaForSequenceClassification,
    PreTrainedTokenizerFast,
)

from qalign_study.train.embedded.on_policy import MAX_NEW_TOKENS


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
