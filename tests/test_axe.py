"""axe finds no fault of accessibility on any page, in any state, width and look."""

from __future__ import annotations

from io import BytesIO

import pytest
from browser import find_violations
from PIL import Image
from test_dictionary import contrast
from test_page_mistakes import API, STILL

from components.lab.page import ANCHORS

READY = {
    "watch": ".qp-bead",
    "compare": "#compare-histograms .main-svg",
    "lab": "#lab-target .main-svg",
    "results": "#results-beta svg.chart",
}
EMPTIED = """seen => seen.forEach((name) => {
    document.getElementById(`tab-${name}`).replaceChildren();
})"""
"""Pages that are looked at no more, and are hidden: axe walks through them all the same."""


FAINT = {"watch": ".qp-scrub", "compare": "#compare-mixture input",
         "lab": "#lab-reveal input >> nth=1"}  # fmt: skip
"""Controls whose edge or track says that they are there: axe looks at texts alone."""


def stands_out(picture: bytes) -> float:
    """The contrast with its corner of what stands out most in the right half of its middle row."""
    image = Image.open(BytesIO(picture)).convert("RGB")
    width, height = image.size
    ground, *row = (
        "#{:02x}{:02x}{:02x}".format(*image.getpixel(at))
        for at in ((0, 0), *((x, height // 2) for x in range(width // 2, width)))
    )
    return max(contrast(ground, each) for each in row)


@pytest.mark.slow
@pytest.mark.asyncio(loop_scope="session")
async def test_axe_finds_nothing_on_any_page_in_any_state(visit, toy_app, summed_results):
    page = await visit(toy_app)
    fold = "document.querySelector('#{} .q-fold button').click()".format
    section = "document.querySelectorAll('#lab-opened input')[{}].click()".format
    # what is done, and what it shows; a page's first is looked at as a whole
    opened = {
        "watch": [(f"{API}.seek(7)", "body"),
                  *((f"{API}.openTab('{tab}')", ".qp-view:has(> *)")
                    for tab in ("tree", "tokens", "hand", "lineage", "table", "diagnostics")),
                  ("QAlignShell.drawer(true)", "#watch-drawer"),
                  (fold("watch-drawer"), "#watch-drawer")],
        "compare": [("0", "body"), (fold("compare"), "#compare")],
        "lab": [("0", "body"),
                *((section(k), f"#lab-section-{anchor}") for k, anchor in enumerate(ANCHORS) if k)],
        "results": [("0", "body")],
    }  # fmt: skip
    violations = set()
    for name, states in opened.items():
        await page.click(f"#tab-{name}-button")
        await page.wait_for_selector(READY[name], state="attached")
        await page.evaluate(EMPTIED, list(opened)[: list(opened).index(name)])
        for turn, (state, part) in enumerate(states):
            await page.evaluate(state)
            await page.wait_for_selector(part)
            if name == "lab":  # and its figure
                await page.wait_for_selector(f"{part} .main-svg")
            # a look begins with the width that the one before it ended with
            looks = [(390, True), (1280, False)] if turn % 2 else [(1280, False), (390, True)]
            if part == "body":  # the dark changes colours, and those have no width
                looks = [(1280, False), (1280, True), (768, False), (390, False)]
            for width, dark in looks:
                await page.set_viewport_size({"width": width, "height": 900})
                await page.evaluate("dark => document.body.classList.toggle('dark', dark)", dark)
                await page.evaluate(STILL)
                only = ["color-contrast", "link-in-text-block"] if dark and part == "body" else None
                report = await find_violations(page, part, only)
                violations |= {(name, rule, html) for rule, html in report}
                if dark and part == "body" and name in FAINT:
                    assert stands_out(await page.locator(FAINT[name]).screenshot()) >= 3, name
        await page.set_viewport_size({"width": 1280, "height": 900})
        await page.evaluate("QAlignShell.drawer(false)")
    assert sorted(violations) == []
