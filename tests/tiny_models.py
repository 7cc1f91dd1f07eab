"""Small random models of several architectures, saved as a user would have them."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

transformers.logging.set_verbosity_error()

SPECIALS = ("<pad>", "<bos>", "<eos>", "<user>", "<assistant>", "<end>")
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}"
    "{% if m['role'] == 'assistant' %}{{ eos_token }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
WIDE: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "max_position_embeddings": 192,
    "bos_token_id": 1,
    "pad_token_id": 0,
}
SLIDING: dict[str, Any] = {"sliding_window": 16}
TWO_KINDS: dict[str, Any] = {
    **SLIDING,
    "tie_word_embeddings": False,  # or a model this small says one token for ever
    "layer_types": ["sliding_attention", "full_attention"],
}
MAKERS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {}),
    "qwen2": ("Qwen2", {}),
    "qwen3": ("Qwen3", {}),
    "phi3": ("Phi3", {}),
    "gpt2": ("GPT2", {}),
    "mistral": ("Mistral", SLIDING),
    "gemma2": ("Gemma2", {**TWO_KINDS, "query_pre_attn_scalar": 32}),
    "gemma3": ("Gemma3", {**TWO_KINDS, "query_pre_attn_scalar": 32}),
    "gpt-oss": ("GptOss", {**TWO_KINDS, "num_local_experts": 4}),
    "bloom": ("Bloom", {}),
    "rwkv": ("Rwkv", {}),
    "jamba": ("Jamba", {}),
    "deepseek-v3": ("DeepseekV3", {}),
    "mamba": ("Mamba", {"state_size": 8, "num_hidden_layers": 1, "tie_word_embeddings": False}),
    "lfm2": ("Lfm2", {"layer_types": ["conv", "full_attention"], "tie_word_embeddings": False}),
    "deberta-v2": (
        "DebertaV2",
        {"relative_attention": True, "pos_att_type": ["c2p", "p2c"], "position_buckets": 8},
    ),
    "roberta": ("Roberta", {"pad_token_id": 1, "max_position_embeddings": 194}),
}
"""Class in transformers, and what is set beside `WIDE`."""
KEEPING = ("llama", "qwen2", "qwen3", "phi3", "gpt2", "mistral", "gemma2", "gemma3", "gpt-oss")
"""Language models whose keys and values can be kept at any position."""
LANGUAGE_MODELS = (*KEEPING, "mamba")
REWARD_MODELS = ("llama", "qwen2", "qwen3", "gpt2", "mistral", "gemma2", "deberta-v2", "roberta")


@cache
def tokenizer() -> transformers.PreTrainedTokenizerFast:
    """Byte-level, without merges: every byte is a token, so every character is one to four."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: i for i, token in enumerate([*SPECIALS, *alphabet])}
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token="<pad>",
        bos_token="<bos>",
        eos_token="<eos>",
        extra_special_tokens=list(SPECIALS[3:]),
        chat_template=TEMPLATE,
        clean_up_tokenization_spaces=False,
    )


N_VOCABULARY = len(SPECIALS) + 256


def save(path: Path, architecture: str, *, n_outputs: int = 0, **changes: Any) -> Path:
    """Save a random model (a reward model if `n_outputs`), its tokenizer and two EOS ids."""
    model_of(architecture, n_outputs=n_outputs, **changes).save_pretrained(path)
    tokenizer().save_pretrained(path)
    if not n_outputs:  # settings that must not leak into sampling, and EOS ids that must
        settings = {"eos_token_id": [2, 5], "do_sample": True, "top_k": 3, "temperature": 0.1}
        (path / "generation_config.json").write_text(json.dumps(settings))
    return path


def model_of(architecture: str, *, n_outputs: int = 0, **changes: Any) -> Any:
    """A random model in evaluation mode, the same each time."""
    torch.manual_seed(sum(map(ord, architecture)) + n_outputs)
    model = _model(architecture, n_outputs, changes).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim > 1:
                parameter.normal_(0, 0.3 if "embed" in name or "wte" in name else 0.15)
            else:
                parameter.add_(torch.randn_like(parameter) * 0.1)
    return model


def _model(architecture: str, n_outputs: int, changes: dict[str, Any]) -> Any:
    prefix, extra = MAKERS[architecture]
    sizes = {"vocab_size": N_VOCABULARY, "eos_token_id": 2, **WIDE, **extra, **changes}
    if n_outputs:
        sizes["num_labels"] = n_outputs
    if architecture == "gpt2":
        renamed = {
            "n_embd": sizes.pop("hidden_size"),
            "n_layer": sizes.pop("num_hidden_layers"),
            "n_head": sizes.pop("num_attention_heads"),
            "n_positions": sizes.pop("max_position_embeddings"),
        }
        sizes = {k: v for k, v in sizes.items() if k not in WIDE or k.endswith("_id")} | renamed
    if architecture in ("deberta-v2", "roberta"):
        for name in ("num_key_value_heads", "head_dim"):
            sizes.pop(name)
    config_name = f"{prefix}TextConfig" if architecture == "gemma3" else f"{prefix}Config"
    config = getattr(transformers, config_name)(**sizes)
    kind = "ForCausalLM" if architecture != "gpt2" else "LMHeadModel"
    kind = "ForSequenceClassification" if n_outputs else kind
    return getattr(transformers, f"{prefix}{kind}")(config)
