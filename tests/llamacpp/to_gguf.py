"""A folder of transformers' Llama as a GGUF file, as llama.cpp's own converter writes it."""

from __future__ import annotations

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


def interleaved(weight: torch.Tensor, n_heads: int) -> torch.Tensor:
    """Rows of queries or keys as llama.cpp turns them: the pairs of a rotation side by side."""
    n, width = weight.shape
    return weight.view(n_heads, 2, n // n_heads // 2, width).transpose(1, 2).reshape(n, width)


def convert(folder: Path, file: Path, weights: str = "F32") -> Path:
    """Write the model and its tokenizer; matrices as "F32" or in a type that gguf quantises."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    tokenizer: Any = transformers.AutoTokenizer.from_pretrained(folder)
    config, state = model.config, model.state_dict()
    writer = gguf.GGUFWriter(file, "llama")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    add_tokenizer(writer, tokenizer)
    heads = {"q": config.num_attention_heads, "k": config.num_key_value_heads}

    def add(name: str, tensor: torch.Tensor) -> None:
        values = tensor.numpy().copy()
        kind = gguf.GGMLQuantizationType[weights if tensor.ndim > 1 else "F32"]
        writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)

    add("token_embd.weight", state["model.embed_tokens.weight"])
    add("output_norm.weight", state["model.norm.weight"])
    add("output.weight", state["lm_head.weight"])
    for layer in range(config.num_hidden_layers):
        for theirs, ours in NAMES.items():
            tensor = state[f"model.layers.{layer}.{theirs}.weight"]
            if ours in ("attn_q", "attn_k"):
                tensor = interleaved(tensor, heads[ours[-1]])
            add(f"blk.{layer}.{ours}.weight", tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def add_tokenizer(writer: gguf.GGUFWriter, tokenizer: Any) -> None:
    """The tokens of a byte-level tokenizer without merges; special ones are control tokens."""
    tokens = sorted(tokenizer.get_vocab(), key=tokenizer.get_vocab().__getitem__)
    special = set(tokenizer.all_special_tokens)
    kinds = [gguf.TokenType.CONTROL if t in special else gguf.TokenType.NORMAL for t in tokens]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges([f"{tokens[-1]} {tokens[-1]}"])  # one is needed, of no token
    writer.add_bos_token_id(tokenizer.bos_token_id)
    writer.add_eos_token_id(tokenizer.eos_token_id)
    writer.add_eot_token_id(tokenizer.convert_tokens_to_ids("<end>"))
    writer.add_add_bos_token(False)
