"""What is answered in place of what was asked."""

from __future__ import annotations


class Refused(Exception):
    """A status of HTTP and one sentence; the door answers with both."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status
