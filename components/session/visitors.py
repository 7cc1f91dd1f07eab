"""What Gradio keeps for each visitor, without a copy of the page's configuration.

Gradio (6.31) writes out the settings of all 279 widgets at each visitor's first event, and at each
call of a program, for links to a state of the page, which this app does not offer. It took 16 ms of
the event loop, during which nobody else is served, and 0.45 MB per visitor.
"""

from copy import copy

from gradio.blocks import Blocks
from gradio.state_holder import SessionState

CLOSED_FOR = 3600
"""Seconds for which Gradio keeps the state of a closed page."""


def _begin(self: SessionState, blocks: Blocks) -> None:
    """As Gradio's own, without `config_values`."""
    self.blocks_config = copy(blocks.default_config)
    self.blocks_config.config_for_block = lambda *_: {}
    self.config_values, self.state_data, self._state_ttl = {}, {}, {}
    self.is_closed, self.STATE_TTL_WHEN_CLOSED = False, CLOSED_FOR


def keep_no_configurations() -> None:
    """Have sessions of all apps of this process begin without a copy of the page."""
    SessionState.__init__ = _begin
