"""The slider for beta, with its effect on the rewards of the problem on screen."""

import math
from contextlib import suppress
from statistics import stdev
from typing import Any

import gradio as gr

from components.common.rpc import server_functions
from qalign_core.errors import InvalidSetting
from qalign_study.measure.mixture import best_of_n_as_alignment, fit_mixture

SIZES = tuple(2**k for k in range(3, 21))
"""The n of best-of-n that beta is compared with."""


def beta_slider(value: float, page: str) -> gr.HTML:
    """Build a logarithmic slider whose value is beta, a positive number; it dispatches "change".

    Args:
        value: what it shows at first.
        page: what its ids begin with.
    """
    return gr.HTML(
        value=value,
        html_template='<div class="q-beta"></div>',
        js_on_load="window.QAlignShell.beta(element, props, trigger, server, watch); // 'change'",
        page=page,
        server_functions=server_functions(beta_facts),
        apply_default_css=False,
        elem_id=f"{page}-beta",
    )


def finite_numbers(values: Any, most: int) -> list[float]:
    """Parse untrusted numbers.

    Raises:
        ValueError: it is no list of finite numbers, or longer than `most`.
    """
    if not isinstance(values, list) or len(values) > most:
        raise ValueError(f"expected a list of at most {most} numbers")
    numbers = [float(value) for value in values]
    if not all(math.isfinite(number) for number in numbers):
        raise ValueError("expected finite numbers")
    return numbers


def beta_facts(rewards: list[float]) -> dict[str, Any]:
    """Return the spread of base rewards, and the beta that each best-of-n matches.

    Returns:
        {"spread": raw RM units, "matching": [{"n": n, "beta": beta}, ...]}, or a "note" with
        the reason why not.
    """
    numbers = finite_numbers(rewards, 4096)
    if len(numbers) < 8:
        return {"note": "Too few samples of the model alone to compare with best-of-n."}
    matching = []
    if (mixture := fit_mixture(numbers)) is not None:
        for n in SIZES:
            with suppress(InvalidSetting):  # the formula means nothing for so small an n
                matching.append({"n": n, "beta": best_of_n_as_alignment(mixture, n).beta})
    return {"spread": stdev(numbers), "matching": matching}
