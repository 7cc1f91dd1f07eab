"""What Gradio keeps for each visitor, without copies of the page.

Gradio (6.31) writes out the settings of all 279 widgets at each visitor's first event, and at each
call of a program, for links to a state of the page, which this app does not offer. It took 16 ms of
the event loop, during which nobody else is served, and 0.45 MB per visitor. It also keeps a copy of
each widget that an event names as an output, changed or not: 0.3 MB for the 79 of a page's start.
"""

from copy import copy
from typing import Any

from gradio.blocks import Block, Blocks
from gradio.state_holder import SessionState

CLOSED_FOR = 3600
"""Seconds for which Gradio keeps the state of a closed page."""


def _begin(self: SessionState, blocks: Blocks) -> None:
    """As Gradio's own, without `config_values`."""
    self.blocks_config = copy(blocks.default_config)
    self.blocks_config.config_for_block = lambda *_: {}
    self.config_values, self.state_data, self._state_ttl = {}, {}, {}
    self.is_closed, self.STATE_TTL_WHEN_CLOSED = False, CLOSED_FOR


_set = SessionState.__setitem__


def _keep(self: SessionState, key: int, value: Any) -> None:
    """As Gradio's own, unless the new widget differs from the old one in nothing but its value."""
    old = self.blocks_config.blocks.get(key)
    if not (isinstance(value, Block) and old is not None and _form(old) == _form(value)):
        _set(self, key, value)


def _form(widget: Block) -> dict[str, Any]:
    return {k: v for k, v in widget.constructor_args.items() if k not in ("value", "render")}


def keep_no_copies() -> None:
    """Have sessions of all apps of this process begin without a copy of the page."""
    SessionState.__init__, SessionState.__setitem__ = _begin, _keep
