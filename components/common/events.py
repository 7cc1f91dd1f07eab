"""What every event of the pages is declared with."""

from __future__ import annotations

from typing import Any

PRIVATE: dict[str, Any] = {
    "api_visibility": "private",
    "show_progress": "hidden",
    "show_progress_on": [],
}
"""No endpoint, and no sign of waiting: the pages have their own.

With nothing to show progress on, Gradio's page keeps no state of loading for the event's outputs.
It would go through all that any event has had, each time that one begins, goes on or ends: a
quarter of the browser's time in a lesson that uses the Lab.
"""
