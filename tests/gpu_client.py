"""Runs with a package `spaces` on the path, and what became of them, as JSON.

`gpu_client.py FOLDER`: the folder of a model of which the registry does not say that it is shipped.
"""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import asdict

import gradio  # noqa: F401  spaces wants to be imported after it
import spaces

from components.compare.selection import Selection
from components.session import gpu
from components.session.drawing import draw_run
from components.session.offer import Offer
from components.session.runs import Runs
from qalign_core import registry
from qalign_core.registry import Entry
from qalign_core.run import Limits, Run
from qalign_study.measure.comparisons import matched_run


async def main(folder: str) -> dict[str, object]:
    registry.entries()["lm", "tiny"] = Entry("tiny", "lm", folder, "Tiny", 0.1, "none")
    runs = Runs(Limits(), offer=Offer(names=("tiny",)))
    tiny = Run(prompt="Hi", lm="tiny", steps=4, max_new_tokens=8)
    forked = getattr(spaces, "calls", [])
    reply: dict[str, object] = {}

    async def run(name: str, settings: Run) -> None:
        before = len(forked)
        async for now in runs.stream("visitor", lambda feed: draw_run(feed, runs, settings)):
            last = now
        reply[name] = {
            "text": last.text,
            "status": asdict(last.status),
            "forked": len(forked) - before,
            "loaded": registry.LOADED.ids(),
        }

    await run("embedded", Run(prompt="Tom has 5 eggs. How many?", steps=2))
    await run("tiny", tiny)
    if forked:
        selection = Selection()
        planned = matched_run(tiny, "samples", runs.limits.samples)
        work = runs.stream("visitor", lambda feed: draw_run(selection.follow(feed), runs, planned))
        async for _ in work:
            pass
        reply["compared"] = [len(selection.comparison.trace.steps), len(selection.comparison.pool)]
        registry.load_language_model("tiny")  # here too, with an engine of this process
        await run("again", tiny)
        await run("too long", Run(prompt="Hi " * 100, lm="tiny", steps=2))
        spaces.quota.append("You have exceeded your ZeroGPU quota")
        await run("quota", tiny)
        endless = Run(prompt="Hi", lm="tiny", steps=1024, chains=8, max_new_tokens=64)
        stream = runs.stream("visitor", lambda feed: draw_run(feed, runs, endless))
        while (await anext(stream)).status.state != "sampling":
            pass
        await runs.stop("visitor")
        reply["over"] = await asyncio.to_thread(forked[-1].wait, 60)
    reply["decorated"] = gpu._draw_on_gpu is not gpu.draw
    return reply


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(sys.argv[1]))))
