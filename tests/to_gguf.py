"""Write Llama, Qwen2 and Gemma 3 of transformers as GGUF files, as llama.cpp's converter does."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import gguf
import torch
import transformers

NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
NAMES_OF_GEMMA = NAMES | {
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}


def interleaved(weight: torch.Tensor, n_heads: int) -> torch.Tensor:
    """Rows of queries or keys as llama.cpp turns them: the pairs of a rotation side by side."""
    n, width = weight.shape
    return weight.view(n_heads, 2, n // n_heads // 2, width).transpose(1, 2).reshape(n, width)


def convert(folder: Path, file: Path, weights: str = "F32", *, merges: bool = False) -> Path:
    """Write a model, its tokenizer and chat template; matrices are "F32" or a quantized type.

    llama.cpp requires a merge, and transformers refuses one of no token: `merges` writes it.
    """
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    tokenizer: Any = transformers.AutoTokenizer.from_pretrained(folder)
    config, state = model.config, model.state_dict()
    architecture = config.model_type.removesuffix("_text")
    writer = gguf.GGUFWriter(file, architecture)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    width = getattr(config, "head_dim", config.hidden_size // config.num_attention_heads)
    writer.add_key_length(width)
    writer.add_value_length(width)
    writer.add_rope_dimension_count(width)
    if architecture == "gemma3":
        writer.add_sliding_window(config.sliding_window)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    add_tokenizer(writer, tokenizer, merges=merges)
    heads = {"q": config.num_attention_heads, "k": config.num_key_value_heads}

    def add(name: str, tensor: torch.Tensor) -> None:
        values = tensor.numpy().copy()
        if architecture == "gemma3" and "norm" in name:
            values += 1  # llama.cpp multiplies by the stored number, transformers by one more
        kind = gguf.GGMLQuantizationType[weights if tensor.ndim > 1 else "F32"]
        writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)

    add("token_embd.weight", state["model.embed_tokens.weight"])
    add("output_norm.weight", state["model.norm.weight"])
    add("output.weight", state["lm_head.weight"])
    for layer in range(config.num_hidden_layers):
        names = NAMES_OF_GEMMA if architecture == "gemma3" else NAMES
        for (source, target), part in itertools.product(names.items(), ("weight", "bias")):
            tensor = state.get(f"model.layers.{layer}.{source}.{part}")
            if tensor is None:
                continue
            if architecture == "llama" and target in ("attn_q", "attn_k"):
                tensor = interleaved(tensor, heads[target[-1]])
            add(f"blk.{layer}.{target}.{part}", tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def add_tokenizer(writer: gguf.GGUFWriter, tokenizer: Any, *, merges: bool) -> None:
    """Add the tokens of a byte-level tokenizer without merges; special ones are control tokens."""
    tokens = sorted(tokenizer.get_vocab(), key=tokenizer.get_vocab().__getitem__)
    special = set(tokenizer.all_special_tokens)
    kinds = [gguf.TokenType.CONTROL if t in special else gguf.TokenType.NORMAL for t in tokens]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_scores([0.0] * len(tokens))
    if merges:
        writer.add_token_merges([f"{tokens[-1]} {tokens[-1]}"])
    writer.add_bos_token_id(tokenizer.bos_token_id)
    writer.add_eos_token_id(tokenizer.eos_token_id)
    writer.add_eot_token_id(tokenizer.convert_tokens_to_ids("<end>"))
    writer.add_add_bos_token(False)
    writer.add_chat_template(tokenizer.chat_template)
