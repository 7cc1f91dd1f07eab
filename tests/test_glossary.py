"""A word says what it means to pointer, keyboard and press; all of them stand in one drawer."""

from __future__ import annotations

import pytest

from qalign_study.export.dictionary import ideas, term

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.more]

OPEN = ".q-meaning"
PUT = """(markup) => {
  document.querySelector("#here")?.remove();
  const here = document.createElement("p");
  here.id = "here";
  here.append(...new DOMParser().parseFromString(markup, "text/html").body.childNodes);
  document.querySelector(".q-head").after(here);
}"""


async def with_terms(page):
    """Put two terms below the header, as a page's text has them."""
    await page.evaluate(PUT, f"Of {term('beta', 'β')} and the {term('wmv', 'weighted vote')}.")
    return page.locator("#here [data-term=beta]"), page.locator("#here [data-term=wmv]")


async def test_a_word_says_what_it_means_to_pointer_keyboard_and_press_and_links_to_the_lab(watch):
    page = watch
    beta, vote = await with_terms(page)
    await beta.hover()
    await page.locator(OPEN).get_by_text(ideas()["beta"].sentence).wait_for()
    assert await page.locator(OPEN).get_by_text(ideas()["beta"].formula).is_visible()
    await page.locator(f"{OPEN} a").hover()  # it stays while it is pointed at
    await vote.hover()
    await page.locator(OPEN).get_by_text(ideas()["wmv"].sentence).wait_for()
    assert await page.locator(OPEN).count() == 1
    await page.mouse.move(2, 2)
    await page.locator(OPEN).wait_for(state="detached")

    # of two things that are open, Escape closes the word first
    await page.evaluate("QAlignShell.drawer(true)")
    await page.locator("[data-glossary]").focus()
    await page.keyboard.press("Tab")
    await page.locator(OPEN).get_by_text(ideas()["beta"].sentence).wait_for()
    described = "document.activeElement.getAttribute('aria-describedby')"
    assert await page.evaluate(described) == "q-meaning"
    await page.keyboard.press("Tab")  # its link
    assert await page.evaluate("document.activeElement.getAttribute('href')") == (
        ideas()["beta"].link
    )
    await page.keyboard.press("Escape")
    await page.locator(OPEN).wait_for(state="detached")
    assert await page.evaluate("document.activeElement.dataset.term") == "beta"
    assert await page.locator("#watch-drawer.q-open").is_visible()
    await page.keyboard.press("Escape")
    await page.locator("#watch-drawer.q-open").wait_for(state="detached")

    # the link opens the section of the lab and loads nothing again
    await page.evaluate("window.still = true")
    await beta.hover()
    await page.locator(f"{OPEN} a").click()
    await page.wait_for_function(
        "document.querySelector('#lab-opened input:checked')?.value === 'Beta'"
    )
    await page.locator("#lab-section-beta").wait_for()
    assert await page.evaluate("window.still")
    assert await page.locator(OPEN).count() == 0

    # a press opens, a second one closes
    await page.set_viewport_size({"width": 390, "height": 900})
    await beta.dispatch_event("pointerdown", {"pointerType": "touch"})
    await beta.dispatch_event("click", {"detail": 1})
    box = await page.locator(OPEN).bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 390
    await beta.dispatch_event("pointerdown", {"pointerType": "touch"})
    await beta.dispatch_event("click", {"detail": 1})
    await page.locator(OPEN).wait_for(state="detached")


# the pages share its drawer; the word's link above leads to the Lab
@pytest.mark.parametrize(
    "pages",
    [("watch", "compare"), ("lab", "results")],
)
async def test_the_glossary_has_every_idea_and_an_address_of_its_own(visit, toy_app, pages):
    page = await visit(f"{toy_app}#glossary-rhat")
    drawer = page.locator("dialog.q-glossary")
    await drawer.wait_for()
    assert await drawer.locator("dt b").all_inner_texts() == [i.word for i in ideas().values()]
    assert await drawer.locator("dd p:first-child").all_inner_texts() == [
        idea.sentence for idea in ideas().values()
    ]
    assert await page.evaluate(
        "document.querySelector('#glossary-rhat').getBoundingClientRect().top < innerHeight"
    )
    await page.keyboard.press("Escape")
    await drawer.wait_for(state="hidden")
    await page.wait_for_function("location.hash === ''")
    for name in pages:
        await page.locator(f"#tab-{name}-button").click()
        await page.locator("[data-glossary]").click()
        assert await drawer.evaluate("(node) => node.open && node.contains(document.activeElement)")
        await drawer.get_by_role("button", name="Close").click()


async def test_a_meaning_ends_before_the_scroll_bar_of_its_page(watch):
    page = watch
    _, vote = await with_terms(page)
    # this browser hides its bars: a window is as wide as the page and a bar
    await page.evaluate("() => { window.innerWidth = document.documentElement.clientWidth + 24; }")
    await page.add_style_tag(content="#here { position: fixed; inset: 300px 30px auto auto; }")
    await page.locator("#here").evaluate("here => document.body.append(here)")
    await vote.hover()
    await page.locator(OPEN).get_by_text(ideas()["wmv"].sentence).wait_for()
    box = await page.locator(OPEN).bounding_box()
    assert box["x"] + box["width"] <= await page.evaluate("document.documentElement.clientWidth")
    await page.close()  # its window is said to be wider than it is
