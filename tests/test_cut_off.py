"""The player in a real browser: nothing is cut off without a sign, and no two things look alike."""

from __future__ import annotations

import pytest

from components.watch.gallery import WATCH
from qalign_core.assets import ASSETS

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.more]

PHONE, DESKTOP = {"width": 390, "height": 844}, {"width": 1280, "height": 800}
BEYOND = (ASSETS / "runs" / "beyond.jsonl").read_text(encoding="utf-8")
RECORDED = WATCH.read_text(encoding="utf-8")

SIGNS = """() => {
    const all = [...document.querySelectorAll(".qp-prompt, .qp-text, .qp-lane-text")];
    const parts = all.filter((x) => x.clientHeight && getComputedStyle(x).overflowY !== "visible"
      && getComputedStyle(x).overflowY !== "hidden");
    return parts.map((x) => [x.className, x.scrollHeight - x.clientHeight > 4,
      [...x.children].some((y) => y.matches(".qp-more") && y.offsetHeight > 0)]);
}"""


@pytest.mark.parametrize("size", [PHONE, DESKTOP], ids=["phone", "desktop"])
@pytest.mark.parametrize("phase", [0, 2, 5])
async def test_a_text_that_goes_on_beyond_its_edge_has_a_sign(opened, size, phase):
    page = await opened(BEYOND, **size)
    for step in (1, 20, 119):
        await page.evaluate(f"(api.seek({step}), api.goPhase({phase}))")
        await page.wait_for_function(f"""([t, phase]) => {{
            const {{ dataset }} = document.querySelector(".qp");
            const signs = ({SIGNS})();
            return dataset.t === t && dataset.phase === phase && signs.length > 1
              && signs.every(([, isCut, hasSign]) => isCut === hasSign);
        }}""", arg=[str(step), str(phase)])  # fmt: skip
    assert any(is_cut for _, is_cut, _ in await page.evaluate(SIGNS))


async def test_the_answers_of_both_texts_are_shown_though_the_texts_end_beyond_the_edge(opened):
    page = await opened(RECORDED, **PHONE)
    await page.evaluate("(api.seek(1), api.goPhase(2))")
    names = page.locator(".qp-lane .qp-name-of:visible")
    assert await names.all_inner_texts() == ["19\n✗", "30\n✗"]
    await page.evaluate("api.goPhase(5)")
    assert await names.all_inner_texts() == ["19\n✗", "30\n✗"]


@pytest.mark.parametrize("trace", [RECORDED, BEYOND], ids=["numbers", "amounts"])
@pytest.mark.parametrize("size", [PHONE, DESKTOP], ids=["phone", "desktop"])
async def test_every_bead_is_whole(opened, trace, size):
    page = await opened(trace, **size)
    for step in (0, 8, 60, 119):
        await page.evaluate(f"api.seek({step})")
        await page.wait_for_function(f"document.querySelector('.qp').dataset.t === '{step}'")
        inside = """() => {
            const row = document.querySelector(".qp-beads").getBoundingClientRect();
            const all = [...document.querySelectorAll(".qp-beads li")];
            return all.length > 0 && all.every((x) => x.getBoundingClientRect().left >= row.left);
        }"""
        assert await page.evaluate(inside)
    texts = await page.locator(".qp-beads li").all_inner_texts()
    assert texts[0] == "…"  # earlier ones
    assert len(texts) > 2


async def test_answers_that_begin_alike_are_told_apart_and_keep_their_marks(opened):
    page = await opened(BEYOND, **DESKTOP)
    await page.evaluate("api.seek(120)")
    await page.wait_for_function("document.querySelector('.qp').dataset.t === '120'")
    read_rows = """(rows) => [...document.querySelectorAll(rows)].map((row) => {
        const words = row.querySelector(".qp-caption");
        const mark = document.createRange();
        mark.selectNode(words.nextSibling);
        const end = mark.getBoundingClientRect().right;
        return [words.textContent.slice(0, 8), mark.toString(),
          end <= words.parentElement.getBoundingClientRect().right + 1];
    })"""
    rows = await page.evaluate(read_rows, ".qp-answers li:not(:last-child)")  # the last: all others
    assert [mark for _, mark, _ in rows] == ["✓", "✗", "✗", "✗"]
    assert len({words for words, _, _ in rows}) == 4
    assert all(is_whole for _, _, is_whole in rows)


async def test_the_vote_just_counted_covers_no_mark_of_the_model_alone(opened):
    page = await opened(RECORDED, **DESKTOP)
    for step in range(4, 40, 5):
        await page.evaluate(f"api.seek({step})")
        await page.wait_for_function(f"document.querySelector('.qp').dataset.t === '{step}'")
        apart = """() => {
            const plus = document.querySelector(".qp-plus").getBoundingClientRect();
            const all = [...document.querySelectorAll(".qp-share .qp-alone")];
            return all.length > 0 && all.every((x) => {
              const { left, right, top, bottom } = x.getBoundingClientRect();
              return right <= plus.left || left >= plus.right || top >= plus.bottom
                || bottom <= plus.top;
            });
        }"""
        assert await page.evaluate(apart)
