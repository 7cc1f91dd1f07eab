"""The gallery's runs of the pretrained model are drawn again by their commands, bit for bit."""

from __future__ import annotations

import shlex

import pytest
from test_gallery import EMBEDDED, ENTRIES, facts

from qalign_study.commands import main

PRETRAINED = [name for name in ENTRIES if name not in EMBEDDED]


@pytest.mark.parametrize("name", PRETRAINED)
def test_its_command_draws_an_entry_again_bit_for_bit(name, tmp_path):
    out = tmp_path / "again.jsonl"
    words = shlex.split(ENTRIES[name].command)
    assert main([*words[1:], "--out", str(out)]) == 0
    assert facts(out.read_text("utf-8")) == facts(ENTRIES[name].path.read_text("utf-8"))
