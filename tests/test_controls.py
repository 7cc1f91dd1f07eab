"""Controls in a real browser: each does what its name promises, and nothing else."""

from __future__ import annotations

import pytest
from browser import API, standalone
from playwright.async_api import expect
from traces import toy_trace

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.more]


@pytest.mark.parametrize("tab", ["hand", "tokens"])
async def test_the_recorded_run_moves_before_any_click_and_work_on_a_text_pauses_it(
    visit, toy_app, tab
):
    page = await visit(toy_app, moving=True)
    await page.wait_for_function(f"{API}.position.playing && {API}.position.t >= 1")
    assert await page.inner_text(".qp-origin") == "Recorded run"
    assert page.hosts <= {toy_app.split("/")[2]}
    await page.click(f"[data-tab={tab}]")
    assert not await page.evaluate(f"{API}.position.playing")
    await page.evaluate(f"{API}.toggle(true)")
    await page.click("[data-tab=table]")  # the table follows
    assert await page.evaluate(f"{API}.position.playing")


@pytest.mark.parametrize("opener", ["Keyboard help", "Jump to"])
async def test_what_opens_above_the_transport_is_in_the_window(visit, opener):
    page = await visit(standalone(toy_trace(), options="autoplay: false"), height=600)
    transport = page.locator(".qp-transport")
    await transport.evaluate("x => scrollTo(0, x.getBoundingClientRect().top + scrollY - 20)")
    await page.get_by_role("button", name=opener, exact=True).click()
    top, bottom = await page.evaluate("""() => {
        const part = document.querySelector(".qp-help:not([hidden]), .qp-menu:not([hidden])");
        const { top, bottom } = part.getBoundingClientRect();
        return [top, bottom];
    }""")
    assert top >= 0
    assert bottom <= 600


STILL = "Promise.all(document.getAnimations().map((each) => each.finished.catch(() => 0)))"
"""Wait for the end of what moves: buttons change their size in 0.2 s."""
TITLES = """(page) => [...document.querySelectorAll(`#${page} .q-pick .wrap-inner`)].map((menu) => {
    const style = getComputedStyle(menu, "::after");
    return [menu.querySelector("input").value, style.content.split('" / ')[0].slice(1),
      parseFloat(style.width) > 70, style.whiteSpace];
})"""


async def test_a_phones_menus_show_the_title_of_what_is_chosen_in_several_lines(watch):
    page = watch
    await page.set_viewport_size({"width": 390, "height": 844})
    for name in ("watch", "compare"):
        await page.evaluate("(name) => QAlignShell.turn(name)", name)
        for title in ("0.9M reward model, trained here", "0.9M weak reward model"):
            if title != await page.locator(f"#{name}-rm input").first.input_value():
                await page.locator(f"#{name}-rm input").first.click()
                option = page.get_by_role("option", name=title)
                assert (await option.bounding_box())["width"] > 300
                await option.click()
            await page.evaluate("document.activeElement.blur()")
            await page.wait_for_function(f"""([name, title]) => {{
                const menus = ({TITLES})(name);
                return menus.every(([value, shown]) => value === shown)
                  && menus[1][1].startsWith(title);
            }}""", arg=[name, title])  # fmt: skip
            rest = [rest for _, _, *rest in await page.evaluate(TITLES, name)]
            assert rest == [[True, "normal"]] * 2


async def test_a_menus_list_closes_when_tab_leaves_it_and_what_was_typed_stays(watch):
    page = watch
    await page.focus("#watch-lm input")
    top = await page.locator("#watch-lm input").evaluate("x => x.getBoundingClientRect().top")
    lists = page.locator("[role=listbox]")
    await expect(lists).to_have_count(1)
    await page.keyboard.press("Tab")
    await page.wait_for_function("document.activeElement.closest('#watch-rm')")
    await page.wait_for_function(
        "document.querySelector('#watch-lm input').ariaExpanded === 'false'"
    )
    await page.keyboard.press("Control+A")
    await page.keyboard.type("contains:rain")
    await page.keyboard.press("Tab")
    await expect(lists).to_have_count(0)
    assert await page.locator("#watch-rm input").first.input_value() == "contains:rain"
    # the menu has not moved away from its list
    there = await page.locator("#watch-lm input").evaluate("x => x.getBoundingClientRect().top")
    assert there == top


async def test_the_buttons_above_the_stage_are_one_row_on_a_phone(watch):
    tops = "[...document.querySelectorAll('#watch-bar > button')].filter((x) => x.offsetHeight)"
    for width in (390, 320):
        await watch.set_viewport_size({"width": width, "height": 740})
        await watch.evaluate(STILL)
        assert len(set(await watch.evaluate(f"{tops}.map((x) => x.offsetTop)"))) == 1


LOOK = """(button) => {
    const style = getComputedStyle(button);
    return [style.backgroundColor, style.color, style.borderColor, style.borderRadius,
      style.fontWeight, style.fontSize, style.minHeight];
}"""


async def test_the_main_buttons_of_all_pages_look_alike_and_so_do_the_others(watch, visit, toy_app):
    page, room = watch, await visit(f"{toy_app}room", ready=".room-send")
    await page.click("#tab-learn-button")
    await page.get_by_role("button", name="Start: ").nth(1).click()
    await page.wait_for_selector(".learn-next")
    await page.click("#tab-compare-button")
    for scheme in ("light", "dark"):
        for each in (page, room):
            await each.emulate_media(color_scheme=scheme, reduced_motion="reduce")
            await each.wait_for_selector(
                ".dark", state="attached" if scheme == "dark" else "detached"
            )
            await each.evaluate(STILL)
        main, *looks = [
            await page.locator(button).first.evaluate(LOOK)
            for button in ("#watch-run", ".learn-next", ".learn-list .learn-go")
        ]
        assert looks == [main] * 2
        other = await page.locator("#compare-new").evaluate(LOOK)
        assert await page.locator(".learn-back").first.evaluate(LOOK) == other
        assert other[0] != main[0]
        assert (await room.locator(".room-send").first.evaluate(LOOK))[:5] == main[:5]


MOVE_PAGE = """() => {
    const word = [...document.querySelectorAll("[data-term]")].find((x) => x.offsetHeight);
    const at = word.getBoundingClientRect();
    word.id = "under";
    document.body.style.position = "relative";
    document.body.style.top = `${100 - at.top}px`;
    document.body.style.left = `${100 - at.left}px`;
}"""


async def test_a_word_that_the_page_moves_under_a_resting_pointer_stays_closed(watch):
    page = watch
    await page.mouse.move(104, 104)
    await page.clock.install()
    await page.evaluate(MOVE_PAGE)
    await page.wait_for_selector("#under:hover")
    await page.clock.run_for(2000)
    assert await page.locator(".q-meaning").count() == 0
    await page.mouse.move(106, 106)  # the visitor moves it
    await page.clock.run_for(2000)
    await page.wait_for_selector(".q-meaning")
    await page.close()  # its clock stands still


async def test_all_pages_stay_in_the_bar_where_they_do_not_fit_in_one_row(visit, toy_app):
    page = await visit(toy_app, width=240)
    tabs = page.locator(".tab-wrapper").first.get_by_role("tab")
    assert await tabs.all_inner_texts() == ["Watch", "Compare", "Lab", "Results", "Learn"]
    assert len({(await tabs.nth(k).bounding_box())["y"] for k in range(5)}) == 2
