"""A run as the query of a link, and back from one: anybody's word, each value checked by itself."""

from collections.abc import Mapping
from typing import Any

from components.common.form import label_of
from components.session.offer import Offer
from components.session.runs import Runs
from qalign_core.errors import QAlignError
from qalign_core.registry import current_name
from qalign_core.run import Limits, Run
from qalign_core.validation import rename_settings


def linked(
    page: str, query: Mapping[str, object], runs: Runs, start: Run
) -> tuple[Run, str] | None:
    """What a page's own address asks for, with what to say of it; None if it names no setting.

    A link that names another page asks nothing of this one. One without a prompt has that of
    `start`, with its answer and how it is read.
    """
    texts = {key: str(value) for key, value in rename_settings(query).items() if key in Run.kinds()}
    if not texts or query.get("tab", page) != page:
        return None
    run, notices = from_query(texts, runs.limits, runs.offer)
    if not run.prompt:
        run = run.with_changes(
            prompt=start.prompt,
            reference=run.reference or start.reference,
            extractor=run.extractor if "extractor" in texts else start.extractor,
        )
    other = "other " * bool(notices)
    placed = [f"This link's {other}settings are in place."] * (len(texts) > len(notices))
    return run, " ".join([*notices, *placed])


def from_query(
    query: Mapping[str, str], limits: Limits, offer: Offer
) -> tuple[Run, tuple[str, ...]]:
    """A run from a link's query, and a notice for each value that could not be used.

    Args:
        query: the address bar's parameters; what is unknown is ignored.
        limits: caps of this server.
        offer: what "lm" and "rm" may be.
    """
    values: dict[str, Any] = dict(Run().within(limits).numbers)
    notices = []
    for name, declared in Run.settings().items():
        if name not in query or not declared.metadata["page"]:
            continue
        text = query[name]
        try:
            run = Run.read({"prompt": "-", **values, name: text})
            run.check(limits)
            offer.check(run.lm, run.rm)
            values[name] = current_name(name, text) if name in ("lm", "rm") else text
        except QAlignError:
            notices.append(unusable(text, label_of(name)))
    return Run.read(values), tuple(notices)


def unusable(text: str, label: str) -> str:
    """Return the notice about a link's value that its control cannot have."""
    excerpt = text if len(text) <= 24 else f"{text[:24]}…"
    return f"The link's value “{excerpt}” of “{label}” cannot be used here."
