"""Answer as OpenAI's API does, by the methods that align at test time.

Examples:
  qalign serve --lm embedded --rm embedded
  qalign serve --lm http://localhost:8001 --rm ./my-rm --steps 32 --beta 0.5
"""

import argparse
import errno
import os
import socket
from collections.abc import AsyncIterator
from dataclasses import asdict

from qalign_core.errors import InvalidSetting, on_disk
from qalign_core.models.chat import TemplatedLanguageModel
from qalign_core.record.runner import record
from qalign_core.run import Run
from qalign_core.validation import short_repr
from qalign_study.commands import shared

USUAL = {"QALIGN_MAX_PROMPT": "100000", "QALIGN_MAX_TOKENS": "4096"}
"""Caps of a server of one's own, where the environment has none."""


def options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `qalign serve`."""
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to listen on (default: %(default)s)"
    )
    parser.add_argument(
        "--port", type=int, default=8000, help="port to listen on (default: %(default)s)"
    )
    parser.add_argument(
        "--key", help="API key that requests must send; default: QALIGN_API_KEY, or none"
    )
    shared.run_options(parser, leave_out=("prompt", "reference", "matched"), seed=None)
    shared.model_options(parser)


async def command(options: argparse.Namespace) -> None:
    """Load the models and answer until Ctrl-C."""
    try:
        import uvicorn

        from qalign_study.serve.limits import read_limits
        from qalign_study.serve.log import limit_log
        from qalign_study.serve.origins import LOCAL, OriginPolicy
        from qalign_study.serve.refusal import HTTPRefusal, public_errors
        from qalign_study.serve.routes import ChatAPI
    except ImportError as error:
        raise InvalidSetting(
            "serve needs starlette and uvicorn; pip install 'qalign-explorer[serve]'"
        ) from error

    limits = read_limits({**USUAL, **os.environ})
    key = os.environ.get("QALIGN_API_KEY", "") if options.key is None else options.key
    if options.host not in LOCAL and not key:
        raise InvalidSetting(
            f"--host {options.host} listens beyond this machine; set QALIGN_API_KEY to a key"
        )
    shared.settings_of(options).check(limits)
    lm, rm = shared.models_of(options)
    assert isinstance(lm, TemplatedLanguageModel), "what is loaded by name is one"
    defaults = {**asdict(lm.sampling), **shared.read_settings(options)}
    names = Run.read(defaults)

    async def draw(run: Run) -> AsyncIterator[str]:
        if run.rm != names.rm:
            raise HTTPRefusal(
                400, f"this server has the reward {names.rm}, got {short_repr(run.rm)}",
                param="qalign.rm", code="invalid_value",
            )  # fmt: skip
        with public_errors():
            async for item in record(lm.with_sampling(run.sampling), rm, run):
                yield item.line

    api = ChatAPI((names.lm,), draw, defaults, limits, key)
    origins = OriginPolicy.from_environment({**os.environ, "GRADIO_SERVER_NAME": options.host})
    address = f"{options.host}:{options.port}"
    with on_disk(address, "used", "give another --host or --port", InvalidSetting):
        if not 0 <= options.port < 2**16:
            raise OSError(errno.EINVAL, "ports are 0 to 65535")
        listening = socket.create_server((options.host, options.port))
    host, port = listening.getsockname()[:2]
    print(f"http://{host}:{port}/v1 answers as {', '.join(api.names)}", flush=True)
    config = uvicorn.Config(api.app(origins), log_level="warning", lifespan="off")
    limit_log()
    await uvicorn.Server(config).serve(sockets=[listening])
