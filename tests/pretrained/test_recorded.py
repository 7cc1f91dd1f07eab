"""The gallery's runs of the pretrained model are drawn again by their commands."""

from __future__ import annotations

import pytest
from recorded import check_same_run
from test_gallery import EMBEDDED, ENTRIES, redraw

PRETRAINED = [name for name in ENTRIES if name not in EMBEDDED]


@pytest.mark.parametrize("name", PRETRAINED)
def test_its_command_draws_an_entry_again(name, tmp_path):
    recorded = ENTRIES[name].path.read_text("utf-8")
    check_same_run(recorded, redraw(name, tmp_path / "again.jsonl"))
