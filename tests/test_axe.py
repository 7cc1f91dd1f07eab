"""axe finds no fault of accessibility on any page, in any state, width and look."""

from __future__ import annotations

from collections import defaultdict
from io import BytesIO

import pytest
from browser import find_violations
from PIL import Image
from test_controls import LOOK
from test_dictionary import contrast
from test_page_mistakes import API, STILL

READY = {
    "watch": ".qp-bead",
    "compare": "#compare-histograms .main-svg",
    "lab": "#lab-target .main-svg",
    "results": "#results-beta svg.chart",
}
SAVING = f"""[...document.querySelectorAll(".q-save")].map((line) => [line.textContent,
  ...[...line.querySelectorAll("button")].flatMap({LOOK}),
  getComputedStyle(line).fontSize, getComputedStyle(line).justifyContent].join("|"))"""
"""How the buttons look that save the figures of a page."""
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


WIDE, NARROW, DARK = (1280, False), (390, True), (1280, True)
LOOKS = {"first": ([WIDE, NARROW], [WIDE, NARROW]),
         "others": ([DARK, (768, False), (390, False)], [NARROW, WIDE])}  # fmt: skip
"""Widths, and whether the page is dark: of a page as a whole, and of the first and the second half
of its other states: each change of width draws the page again."""


@pytest.mark.more
@pytest.mark.parametrize("looks", ["first", "others"])
@pytest.mark.asyncio(loop_scope="session")
async def test_axe_finds_nothing_on_any_page_in_any_state_and_figures_are_saved_by_like_buttons(
    visit, toy_app, looks
):
    page = await visit(toy_app)
    fold = "document.querySelector('#{} .q-fold button').click()".format
    # what is done, and what it shows; a page's first is looked at as a whole
    opened = {
        "watch": [(f"{API}.seek(7)", "body"),
                  *((f"{API}.openTab('{tab}')", ".qp-view:has(> *)")
                    for tab in ("tree", "tokens", "hand", "lineage", "table", "diagnostics")),
                  ("QAlignShell.drawer(true)", "#watch-drawer"),
                  (fold("watch-drawer"), "#watch-more")],
        "compare": [("0", "body"), (fold("compare"), "#compare-settings")],
        "lab": [("0", "body")],  # its sections: tests/test_lab_page.py
        "results": [("0", "body")],
    }  # fmt: skip
    of_page, of_states = LOOKS[looks]
    violations, saving = set(), defaultdict(list)
    for name, states in opened.items():
        await page.click(f"#tab-{name}-button")
        await page.wait_for_selector(READY[name], state="attached")
        await page.evaluate(EMPTIED, list(opened)[: list(opened).index(name)])
        for turn, (state, part) in enumerate(states):
            await page.evaluate(state)
            await page.wait_for_selector(part)
            for width, dark in of_page if part == "body" else [of_states[2 * turn >= len(states)]]:
                await page.set_viewport_size({"width": width, "height": 900})
                await page.evaluate("dark => document.body.classList.toggle('dark', dark)", dark)
                await page.evaluate(STILL)
                # the dark changes colors, and those have no width
                only = ["color-contrast", "link-in-text-block"] if (width, dark) == DARK else None
                report = await find_violations(page, part, only)
                violations |= {(name, rule, html) for rule, html in report}
                assert await page.locator(".modebar-btn >> visible=true").count() == 0
                if part == "body":
                    saving[width, dark] += await page.evaluate(SAVING)
                if dark and part == "body" and name in FAINT:
                    assert stands_out(await page.locator(FAINT[name]).screenshot()) >= 3, name
        await page.set_viewport_size({"width": 1280, "height": 900})
        await page.evaluate("QAlignShell.drawer(false)")
    assert sorted(violations) == []
    assert all(len(lines) >= 8 and len(set(lines)) == 1 for lines in saving.values())
