"""The reward of a run on the page: one reward model, or the weighted sum of two.

A run has it as one text, "0.7*embedded + 0.3*embedded-weak", in traces and links as well; a sum of
another shape, from a link or a file, appears in the list of reward models unchanged.
"""

import math
from typing import Any

import gradio as gr

from components.common.options import PRIVATE
from components.session.offer import Offer
from qalign_core.errors import InvalidSetting
from qalign_core.rewards.kinds import reward_kinds
from qalign_core.rewards.names import reward_named
from qalign_core.validation import short_repr

SHARE = 0.3
"""Share of the second reward, until somebody moves it."""
HELP = {"lm": "writes the texts", "rm": "scores each text"}
"""What the models of each list do."""


def typed_rewards() -> str:
    """Return examples of the rewards that may be typed into a list on every server."""
    open_kinds = [kind for kind in reward_kinds().values() if kind.example]
    return " or ".join(f"{kind.prefix}:{kind.example}" for kind in open_kinds)


def mixed(first: object, second: object, share: object) -> str:
    """The reward that two lists and a slider name; only the first without a second.

    Raises:
        InvalidSetting: the share is no number from 0 to 1.
    """
    if not second:
        return str(first or "")
    try:
        part = float(str(share))
    except ValueError:
        part = math.nan
    if not 0 <= part <= 1:
        raise InvalidSetting(
            f"Share of the second must be between 0 and 1, got {short_repr(share)}"
        )
    parts = [(weight * (1 - part), each) for weight, each in reward_named(str(first or "")).parts]
    parts += [(weight * part, each) for weight, each in reward_named(str(second)).parts]
    return " + ".join(f"{weight:.6g}*{each.text}" for weight, each in parts)


def unmixed(rm: str, offer: Offer) -> tuple[str, str, float]:
    """First and second reward and the second's share, as `mixed` takes them."""
    try:
        parts = reward_named(rm).parts
    except InvalidSetting:  # of a link or a file; it is refused when it is run
        return rm, "", SHARE
    if len(parts) == 2 and all(each.text in offer.models["rm"] for _, each in parts):
        (one, first), (two, second) = parts
        if min(one, two) >= 0 and math.isclose(one + two, 1):
            return first.text, second.text, two
    return rm, "", SHARE


def model_list(offer: Offer, kind: str, value: str, **options: Any) -> gr.Dropdown:
    """A list of the models that are offered; what else may be asked for can be typed."""
    typed = [typed_rewards()] * (kind == "rm") + ["any id of the hub: owner/name"] * offer.own
    return gr.Dropdown(
        _choices(offer, kind),
        value=value,
        filterable=bool(typed),
        allow_custom_value=bool(typed),
        info=HELP[kind] + (f"; or type {' or '.join(typed)}" if typed else ""),
        min_width=240,  # a name in full, on a phone too
        **options,
    )


def reward_widgets(rm: str, offer: Offer, second_id: str, **options: Any) -> dict[str, Any]:
    """The widgets of a run's reward, by the names of their settings.

    Args:
        rm: the reward that they show at first.
        offer: the models of this server.
        second_id: the id of the second list, "None" first and without what the first one shows.
        options: of the first list.
    """
    first, second, share = unmixed(rm, offer)
    one = model_list(offer, "rm", first, **options)
    chosen = gr.Dropdown(
        _seconds(offer, first),
        value=second,
        label="And a second reward model",
        info="the reward is the weighted sum of the two",
        filterable=True,
        allow_custom_value=True,
        elem_id=second_id,
    )
    slider = gr.Slider(
        0.05,
        0.95,
        value=share,
        step=0.05,
        label="Share of the second",
        info="0.3 means 0.7 × the first + 0.3 × the second",
        visible=bool(second),
    )

    def others(first: str, second: str) -> gr.Dropdown:
        return gr.Dropdown(_seconds(offer, first), value="" if second == first else second)

    at_once = {**PRIVATE, "queue": False}
    chosen.change(lambda second: gr.Slider(visible=bool(second)), chosen, slider, **at_once)
    one.change(others, [one, chosen], chosen, **at_once)
    return {"rm": one, "second": chosen, "share": slider}


def _seconds(offer: Offer, first: object) -> list[tuple[str, str]]:
    return [("None", ""), *(each for each in _choices(offer, "rm") if each[1] != first)]


def reward_values(rm: str, offer: Offer) -> dict[str, Any]:
    """What the three widgets show for a run's reward, by the name of their setting."""
    first, second, share = unmixed(rm, offer)
    known = _choices(offer, "rm")
    if first not in offer.models["rm"]:
        known.append((first, first))
    chosen = gr.Dropdown(_seconds(offer, first), value=second)
    return {"rm": gr.Dropdown(known, value=first), "second": chosen, "share": share}


def _choices(offer: Offer, kind: str) -> list[tuple[str, str]]:
    return [(title, id_) for id_, title in offer.models[kind].items()]
