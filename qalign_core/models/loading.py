"""Load models by name: refuse those that are unsafe, of the wrong kind or too large."""

import codecs
import ctypes
import hashlib
import math
import os
import re
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, ClassVar, Self

import huggingface_hub.errors as hub
import torch
from huggingface_hub import HfApi, constants, snapshot_download, try_to_load_from_cache
from safetensors import SafetensorError, safe_open

from qalign_core.errors import HubUnreachable, ModelLoadError, NotEnoughMemory, QAlignError
from qalign_core.models.chat import Text
from qalign_core.models.gguf_file import GGUFFile, is_gguf, is_local, locate
from qalign_core.models.local.int8 import quantize
from qalign_core.models.local.worker import Worker
from qalign_core.models.progress import fetch_bar, tell
from qalign_core.validation import first_line

CACHE_BYTES = 256 * 2**20
"""Memory for keys and values that are kept between requests, unless an option says so."""
_TEXT = ["*.json", "*.txt", "*.model", "*.jinja"]
_WEIGHTS = ["*.safetensors"]  # never code, never pickle
_ASIDE = ["*/*", "consolidated*"]  # the same weights again, for other libraries
_NO_WEIGHTS = (
    "{name} has no safetensors weights (pickled ones can run code and are never loaded); "
    "convert them with save_pretrained"
)
_REVISION = re.compile(r"\w[\w.-]*(/\w[\w.-]*)*")  # the cache has a file of that name
_LEAST = {"rows": 1, "window": 2, "threads": 1, "cache_bytes": 0, "max_queue": 1}
_SLOW = 2**27  # bytes of weights whose reading is worth a word
_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "int8": 2}
"""Memory of a weight while the model is loaded; weights of 8 bits are packed from a copy."""


class Pretrained(ABC):
    """A model from a folder or the hub; `kind` is the kind that must be found there.

    Attributes:
        revision: commit of the hub repository, or a hash of a folder's weights and tokenizer.
        n_parameters: of the model, for FLOPs.
    """

    kind: ClassVar[str]
    rows: ClassVar[int] = 1
    """Requests that run at once, unless the option of the same name says so."""
    window: ClassVar[int]
    """Tokens that one request may hold, unless the option of the same name says so."""

    worker: Worker
    """What runs the model."""
    revision: str = ""
    n_parameters: int = 0

    @abstractmethod
    def __init__(self, model: Any, text: Text, *, id: str, **options: Any) -> None:
        """Take a model of transformers in evaluation mode, with its tokenizer, as `id`."""

    @property
    def idle_seconds(self) -> float:
        """How long no request has been open; 0 while one is."""
        return self.worker.idle_seconds

    def close(self) -> None:
        """Stop what runs the model and free its memory; requests that run or wait fail."""
        self.worker.close()

    @classmethod
    def from_pretrained(
        cls,
        source: str | Path,
        *,
        id: str | None = None,
        revision: str | None = None,
        dtype: str | None = None,
        device: str | None = None,
        chat_template: str | None = None,
        one_message: bool = False,
        thinking: bool = False,
        **options: Any,
    ) -> Self:
        """Load a folder or hub id.

        Args:
            source: a folder in transformers' format, a GGUF file, or a hub id `owner/name`.
            id: its name; by default the source.
            revision: of the hub repository; a commit hash pins it.
            dtype: "float32", "bfloat16", "float16" or, on a CPU, "int8" (`local.int8`); by default
                float32 on a CPU, else the stored one; "int8" for a GGUF file of 8 bits or fewer.
            device: as torch names them; by default a GPU if there is one.
            chat_template: used if the tokenizer has none.
            one_message: refuse conversations of several messages.
            thinking: turn `enable_thinking` on in the chat template, which is off otherwise.
            options: of the class.

        Raises:
            ModelLoadError: in one sentence: not found, unsafe, of the wrong kind, incomplete, too
                big.
        """
        device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        _check_device(device)
        options = {name: value for name, value in options.items() if value is not None}
        options = {"cache_bytes": _cache_bytes(device), **options}
        cls._check_options(options)
        folder, commit = _fetch(str(source), revision, dtype=dtype, device=device)
        name = id or str(source)
        file = _read_gguf(folder)
        with _parsed_once(file):
            config = cls._read_config(folder, name, file)
            dtype = _choose_dtype(dtype, device, config, name, file)
            # weights and what it keeps must fit; a GGUF file becomes float32 before anything else
            n_weights = n_stored(folder) if file is None else file.n_parameters
            weights = n_weights * _BYTES["float32" if file else dtype]
            position = _kept_width(config) * _BYTES["float32" if dtype == "int8" else dtype]
            kept = options.get("rows", cls.rows) * options.get("window", cls.window) * position
            _check_memory(weights, kept + options["cache_bytes"], name, dtype, device)
            if weights >= _SLOW:
                tell(f"reading {_gib(weights)} of {name}")
            model = cls._read_model(folder, name, file, dtype)
            text = _text(folder, name, chat_template, one_message=one_message, thinking=thinking)
        model = model.to(device).eval().requires_grad_(False)
        n_parameters = sum(p.numel() for p in model.parameters())
        rounded = dtype == "int8"
        if rounded:
            quantize(model)
        loaded = cls(model, text, id=name, **options)
        del model
        _trim_heap()
        loaded.n_parameters = n_parameters
        # rounded weights, or thinking, make another model, and the header of a trace says so
        loaded.revision = " ".join([commit, *["int8"] * rounded, *["thinking"] * thinking])
        return loaded

    @classmethod
    def _check_options(cls, options: Mapping[str, Any]) -> None:
        values = {"rows": cls.rows, "window": cls.window, **options}
        for option, least in _LEAST.items():
            if values.get(option, least) < least:
                raise ModelLoadError(f"{option} must be at least {least}, got {values[option]}")

    @classmethod
    def _read_config(cls, folder: Path, name: str, file: GGUFFile | None) -> Any:
        """Return the configuration of a model that is safe and of the right kind."""
        from transformers import AutoConfig

        unknown = None
        if file is None:
            _check_safe(folder, name)
        else:
            unknown = (
                f"transformers cannot read the architecture {file.architecture} from a GGUF file; "
                "give the model's folder or hub id"
            )
        with _one_sentence(name, unknown):
            config = AutoConfig.from_pretrained(**locate(folder), trust_remote_code=False)
        _check_kind(cls.kind, _auto_class(cls.kind), config, name, is_file=file is not None)
        return config

    @classmethod
    def _read_model(cls, folder: Path, name: str, file: GGUFFile | None, dtype: str) -> Any:
        """Return the model of transformers; its weights are all there."""
        with _one_sentence(name):
            model, report = _auto_class(cls.kind).from_pretrained(
                **locate(folder),
                dtype=dtype if dtype != "int8" else "float32" if file else "auto",
                use_safetensors=True,
                trust_remote_code=False,
                output_loading_info=True,
            )
        if missing := sorted(report["missing_keys"]):
            raise ModelLoadError(
                f"{name} lacks trained weights for {missing[0]} (they would be random); "
                "choose a checkpoint that has its head"
            )
        if file is not None and file.eos:
            model.generation_config.eos_token_id = list(file.eos)
        return model


_KINDS = {
    "CausalLM": ("a causal language model", "ForCausalLM", "LMHeadModel"),
    "SequenceClassification": ("a reward model", "ForSequenceClassification", "RewardModel"),
}


def _auto_class(kind: str) -> Any:
    import transformers

    return getattr(transformers, f"AutoModelFor{kind}")


def _choose_dtype(
    dtype: str | None, device: str, config: Any, name: str, file: GGUFFile | None
) -> str:
    """Return the type that the weights will have; refuse one that is unknown or not for a GPU."""
    stored = str(getattr(config, "dtype", None) or "float32").removeprefix("torch.")
    default = "int8" if file is not None and file.is_quantized else "float32"
    dtype = dtype or (default if device == "cpu" else stored)
    if dtype not in _BYTES:
        raise ModelLoadError(f"dtype must be one of {', '.join(_BYTES)}, got {dtype}")
    if dtype == "int8" and device != "cpu":
        raise ModelLoadError(f"int8 is for CPUs, and {name} would run on {device}; leave it out")
    return dtype


def _check_kind(kind: str, auto: Any, config: Any, name: str, *, is_file: bool) -> None:
    wanted, *endings = _KINDS[kind]
    # a GGUF file names no class of transformers; without a head, its weights are incomplete
    built_as = str((config.architectures or [endings[0] if is_file else "?"])[0])[:80]
    if not has_model_for(auto, config) or not built_as.endswith(tuple(endings)):
        raise ModelLoadError(
            f"{name} is a {built_as}, not {wanted} (…{endings[0]}); choose another model"
        )
    if kind == "SequenceClassification" and config.num_labels != 1:
        raise ModelLoadError(
            f"{name} has {config.num_labels} outputs, but a reward model has 1; "
            "choose another model"
        )


def has_model_for(auto: Any, config: Any) -> bool:
    """Return whether transformers has a model of a kind for a configuration.

    Its table is private (5.23); without it `from_pretrained` refuses, in transformers' own words.
    """
    table = getattr(auto, "_model_mapping", None)
    return table is None or type(config) in table


def _cache_bytes(device: str) -> int:
    """Memory for kept keys and values: on a GPU a share of it, for as many requests as it runs."""
    free = available_memory(device) if device.startswith("cuda") else None
    return max(CACHE_BYTES, (free or 0) // 16)


def _trim_heap() -> None:
    """Give memory that loading has freed back to the system, where the C library is glibc."""
    with suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


def _check_device(device: str) -> None:
    try:
        torch.zeros(1, device=device).item()
    except Exception as error:  # torch has a kind of its own for each way
        n = torch.cuda.device_count()
        there = ", ".join(["cpu", *(f"cuda:{i}" for i in range(n))])
        raise ModelLoadError(f"there is no device {device} here; choose one of {there}") from error


def load_text(
    source: str | Path,
    *,
    revision: str | None = None,
    chat_template: str | None = None,
    thinking: bool = False,
) -> tuple[Text, tuple[int, ...]]:
    """Return the tokenizer of a model that runs elsewhere, and every id that ends a response.

    Raises:
        ModelLoadError: in one sentence: not found, or it lacks a part.
    """
    from transformers import AutoConfig, GenerationConfig

    name = str(source)
    folder, _ = _fetch(name, revision, weights=False)
    file = _read_gguf(folder)
    with _parsed_once(file):
        text = _text(folder, name, chat_template, thinking=thinking)
    if file is not None and file.eos:
        return text, file.eos
    with _one_sentence(name):
        eos: tuple[int, ...] = ()
        if (folder / "generation_config.json").is_file():
            eos = eos_ids(GenerationConfig.from_pretrained(folder))
        return text, eos or eos_ids(
            AutoConfig.from_pretrained(**locate(folder), trust_remote_code=False)
        )


def _read_gguf(path: Path) -> GGUFFile | None:
    return GGUFFile(path) if is_gguf(path) else None


def _parsed_once(file: GGUFFile | None) -> AbstractContextManager[None]:
    return nullcontext() if file is None else file.parsed_once()


def model_folder(source: str) -> Path:
    """Fetch a model if necessary, check that it is safe, and return its folder.

    Raises:
        ModelLoadError: in one sentence: not found, or unsafe.
    """
    name, _, revision = source.partition("@")
    whole = os.path.isdir(os.path.expanduser(source))  # a folder may have the sign in its name
    folder, _ = _fetch(source, None) if whole else _fetch(name, revision or None)
    _check_safe(folder, source)
    return folder


def eos_ids(config: Any) -> tuple[int, ...]:
    """Return every id that ends a response, from a model's or a generation's config."""
    eos = getattr(config, "eos_token_id", None)
    return () if eos is None else (eos,) if isinstance(eos, int) else tuple(eos)


def _text(folder: Path, name: str, chat_template: str | None, **options: bool) -> Text:
    from transformers import AutoTokenizer

    _check_no_mark(folder, name)
    with _one_sentence(name, "its tokenizer cannot be loaded; put tokenizer.json beside the model"):
        tokenizer = AutoTokenizer.from_pretrained(
            **locate(folder), trust_remote_code=False, use_fast=True
        )
        assert tokenizer.backend_tokenizer is not None
    tokenizer.chat_template = tokenizer.chat_template or chat_template
    if not tokenizer.chat_template:
        raise ModelLoadError(
            f"{name} has no chat template; choose an instruct model, write one to "
            "chat_template.jinja in its folder, or give a language model one: chat_template in "
            "Python, or in the options of your registry's entry"
        )
    if options.get("thinking") and "enable_thinking" not in str(tokenizer.chat_template):
        raise ModelLoadError(
            f"the chat template of {name} has no switch enable_thinking; leave out --thinking"
        )
    return Text(tokenizer, **options)


_UNFETCHED: dict[type[Exception], str] = {
    hub.GatedRepoError: "{name} is gated: accept its license on the hub and set HF_TOKEN, or "
    "choose another",
    hub.RevisionNotFoundError: "{name} has no revision {revision}; leave it out or name a commit, "
    "branch or tag",
    hub.RepositoryNotFoundError: "{name} is neither a folder nor a model on the hub",
    hub.HFValidationError: "{name} is neither a folder nor a model on the hub",
    hub.LocalEntryNotFoundError: "{name} is not on this machine and the hub does not answer; check "
    "the connection, or give a folder",
    Exception: "{name} could not be fetched from the hub ({kind}); check the name and the "
    "connection, or give a folder",
}
"""Sentences for errors of the hub's client; the first kind that fits is used."""
_FINAL = tuple(_UNFETCHED)[:4]  # the hub has answered, so what is on this machine does not help


def _fetch(
    name: str,
    revision: str | None,
    *,
    weights: bool = True,
    dtype: str | None = None,
    device: str = "cpu",
) -> tuple[Path, str]:
    """Return a model's path and commit; hub files are downloaded, code and pickles are not."""
    folder = Path(os.path.expanduser(name))
    if is_local(folder):
        return folder, revision or (fingerprint(folder) if weights else "")
    if name.startswith((".", "/", "~")) or name.count("/") > 1:
        raise ModelLoadError(
            f"there is no folder or GGUF file {name}; give a folder with config.json, a GGUF file "
            "or a hub id"
        )
    if revision and not _REVISION.fullmatch(revision):
        raise ModelLoadError(
            f"{revision!r:.80} is not a revision of {name}; name a commit, branch or tag"
        )
    wanted: dict[str, Any] = {
        "revision": revision,  # by its name, so that it is found without the hub too
        "allow_patterns": _TEXT + _WEIGHTS if weights else _TEXT,
        "ignore_patterns": _ASIDE,
    }
    try:
        try:
            info = HfApi().model_info(name, revision=revision, files_metadata=True)
        except _FINAL:
            raise
        except Exception:  # no hub to ask: what was fetched before may still be there
            local = Path(snapshot_download(name, local_files_only=True, **wanted))
            return local, local.name
        if weights:
            _check_listed(info, name, dtype, device)
        local = Path(snapshot_download(name, tqdm_class=fetch_bar(name), **wanted))
    except QAlignError:
        raise
    except Exception as error:
        sentence = next(
            sentence for kind, sentence in _UNFETCHED.items() if isinstance(error, kind)
        )
        kind = HubUnreachable if isinstance(error, hub.LocalEntryNotFoundError) else ModelLoadError
        raise kind(
            sentence.format(name=name, revision=revision, kind=type(error).__name__)
        ) from error
    return local, local.name


def _check_listed(info: Any, name: str, dtype: str | None, device: str) -> None:
    """Refuse a repository before its weights are fetched: none that is safe, or too many."""
    sizes = {
        file.rfilename: file.size or 0
        for file in info.siblings or ()
        if file.rfilename.endswith(".safetensors")
        and not any(fnmatch(file.rfilename, pattern) for pattern in _ASIDE)
    }
    if not sizes:
        raise ModelLoadError(_NO_WEIGHTS.format(name=name))
    missing = sum(
        size
        for file, size in sizes.items()
        if not isinstance(try_to_load_from_cache(name, file, revision=info.sha), str)
    )
    cache = Path(constants.HF_HUB_CACHE)
    cache = next(path for path in (cache, *cache.parents) if path.is_dir())
    if missing > (free := shutil.disk_usage(cache).free):
        raise ModelLoadError(
            f"{name} is {_gib(missing)} to fetch and {_gib(free)} of disk are free; choose a "
            "smaller model, or set HF_HOME to a larger disk"
        )
    # where the hub has not counted: as few as if all were stored in float32; the files are counted
    counted = info.safetensors.total if info.safetensors else sum(sizes.values()) // 4
    how = dtype or ("float32" if device == "cpu" else "bfloat16")
    if how in _BYTES:
        _check_memory(counted * _BYTES[how], 0, name, how, device)


def _check_safe(folder: Path, name: str) -> None:
    if not (folder / "config.json").is_file():
        raise ModelLoadError(f"{name} has no config.json, so it is not a transformers model")
    if not any(folder.glob("*.safetensors")):
        raise ModelLoadError(_NO_WEIGHTS.format(name=name))
    _check_no_mark(folder, name)


def _check_no_mark(folder: Path, name: str) -> None:
    """Refuse JSON files that begin with a byte order mark, which their readers do not accept."""
    for path in sorted(folder.glob("*.json")):
        with path.open("rb") as file:
            if file.read(3) == codecs.BOM_UTF8:
                raise ModelLoadError(
                    f"{name}: {path.name} begins with a byte order mark; save it as UTF-8 "
                    "without one"
                )


def fingerprint(folder: Path) -> str:
    """The first 12 hex digits of BLAKE2b over a folder's weights and tokenizer, or a GGUF file."""
    digest = hashlib.blake2b()
    parts = sorted([*folder.glob("*.safetensors"), *folder.glob("tokenizer*")])
    for path in [folder] if is_gguf(folder) else parts:
        with path.open("rb") as file:
            each = hashlib.file_digest(file, hashlib.blake2b)
        digest.update(path.name.encode() + b"\0" + each.digest())
    return digest.hexdigest()[:12]


def n_stored(folder: Path) -> int:
    """Return the number of parameters of a folder or GGUF file, read from the headers only.

    Raises:
        ModelLoadError: a file has no header, or one that does not fit its size.
    """
    if is_gguf(folder):
        return GGUFFile(folder).n_parameters
    n = 0
    for path in folder.glob("*.safetensors"):
        try:
            with safe_open(path, framework="pt") as file:
                n += sum(math.prod(file.get_slice(name).get_shape()) for name in file.keys())  # noqa: SIM118
        except (OSError, SafetensorError) as error:
            raise ModelLoadError(
                f"{path} is not a complete safetensors file ({error}); fetch or save it again"
            ) from error
    return n


def available_memory(device: str) -> int | None:
    """Return the free memory (bytes) of a device, within the container's limit; None if unknown."""
    if device.startswith("cuda"):
        return int(torch.cuda.mem_get_info(device)[0])
    if device != "cpu":
        return None
    candidates = []
    meminfo = Path("/proc/meminfo")
    if meminfo.is_file():
        lines = dict(line.split(":", 1) for line in meminfo.read_text().splitlines())
        candidates.append(int(lines["MemAvailable"].split()[0]) * 1024)
    limit, used = (Path(f"/sys/fs/cgroup/memory.{part}") for part in ("max", "current"))
    if limit.is_file() and used.is_file() and limit.read_text().strip() != "max":
        candidates.append(int(limit.read_text()) - int(used.read_text()))
    if not candidates and hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        candidates.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2)
    return min(candidates, default=None)


def _kept_width(config: Any) -> int:
    """Return how many numbers a decoder keeps per position: keys and values of all layers."""
    try:
        heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        return int(2 * config.num_hidden_layers * heads * size)
    except AttributeError:  # not such a decoder; it is refused elsewhere
        return 0


def _check_memory(weights: int, beside: int, name: str, dtype: str, device: str) -> None:
    """Refuse a model whose weights and caches (bytes) do not fit.

    Raises:
        NotEnoughMemory: with both sizes.
    """
    free = available_memory(device)
    if free is not None and weights + beside > free:
        raise NotEnoughMemory(
            f"{name} needs {_gib(weights + beside)} as {dtype} on {device} ({_gib(weights)} of "
            f"weights) and {_gib(free)} are free; choose a smaller model or a machine with more "
            "memory"
        )


def _gib(n: float) -> str:
    return f"{n / 2**30:.2g} GiB" if n < 2**30 else f"{n / 2**30:.1f} GiB"


@contextmanager
def _one_sentence(name: str, instead: str | None = None) -> Iterator[None]:
    """Turn any error of transformers into one sentence."""
    from transformers.utils import logging

    logging.disable_progress_bar()
    try:
        yield
    except (QAlignError, KeyboardInterrupt):
        raise
    except BaseException as error:  # a panic of the tokenizer's library is no Exception
        reason = instead or first_line(error)
        raise ModelLoadError(f"{name} cannot be loaded: {reason}") from error
