"""How the servers are started."""

from __future__ import annotations

SLOTS = 4
EXACT = (
    *("cache_type_k=ggml_type.GGML_TYPE_F32", "cache_type_v=ggml_type.GGML_TYPE_F32"),
    "flash_attn_type=llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED",
)
"""What docs/own-models.md starts a server with, so that it rounds in a batch as it does alone."""
USUAL = "flash_attn_type=llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_AUTO", "kv_unified=True"
"""What llama-server does on its own."""
