"""Check the laws that the chain rests on, one line per law; the exit status is 1 if one fails.

Examples:
  qalign check --lm embedded --rm embedded
  qalign check --lm http://localhost:8000 --rm rules.py:short --max-new-tokens 32
"""

import argparse

from qalign_core.contract import Finding, check
from qalign_core.run import Run
from qalign_study.commands import shared
from qalign_study.commands.drawing import progress_bar

OF_MODELS = ("prompt", "lm", "rm", "temperature", "top_p", "top_k", "max_new_tokens")
PROMPT = "Mia has 12 books. She buys 5 more. How many books does Mia have now?"


def options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `qalign check`."""
    others = [name for name in Run.kinds() if name not in OF_MODELS]
    shared.run_options(parser, leave_out=others, prompt=PROMPT)
    shared.model_options(parser)


async def command(options: argparse.Namespace) -> int:
    """Print a line per law; 1 if one fails."""
    findings: list[Finding] = []
    models = shared.models_of(options)
    with progress_bar("draw", leave=False) as bar:
        async for finding in check(*models, options.prompt, bar.update):
            with bar.external_write_mode():
                print(finding, flush=True)
            findings.append(finding)
    return int(any(finding.holds is False for finding in findings))
