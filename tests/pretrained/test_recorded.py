"""The gallery's runs of the pretrained model are drawn again by their commands."""

from __future__ import annotations

import pytest
from test_gallery import EMBEDDED, ENTRIES, check_both_ends


@pytest.mark.parametrize("name", [name for name in ENTRIES if name not in EMBEDDED])
def test_its_command_draws_an_entry_again_at_both_ends(name, tmp_path):
    check_both_ends(name, tmp_path)
