"""The app as a model for chat clients: OpenAI's API over its runs, where the operator wants it."""

import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing

from starlette.routing import Route

from components.common.switches import read_switch
from components.session.drawing import draw_run
from components.session.runs import Runs
from qalign_core.errors import InvalidSetting
from qalign_core.run import Run
from qalign_study.serve.origins import LOCAL, OriginPolicy
from qalign_study.serve.routes import ChatAPI


def chat_routes(
    runs: Runs, origin_policy: OriginPolicy, environment: Mapping[str, str]
) -> list[Route]:
    """The addresses of OpenAI's API with `QALIGN_OPENAI=1`, else none.

    Raises:
        InvalidSetting: others than this machine could ask, and there is no key; or the variable is
            neither 0 nor 1.
    """
    if not read_switch(environment, "QALIGN_OPENAI"):
        return []
    key = environment.get("QALIGN_API_KEY", "")
    if not key and (origin_policy.is_space or origin_policy.bound not in {"", *LOCAL}):
        raise InvalidSetting(
            "QALIGN_OPENAI=1 would open the API to other machines; set QALIGN_API_KEY to a key"
        )
    usual = Run().within(runs.limits).numbers
    usual.pop("seed")

    async def draw(run: Run) -> AsyncIterator[str]:
        n, name = 0, f"chat {uuid.uuid4()}"
        stream = runs.stream(name, lambda feed: draw_run(feed, runs, run), patient=False)
        async with aclosing(stream) as updates:
            async for now in updates:
                if now.error is not None:
                    raise now.error
                yield now.text[n:]
                n = len(now.text)

    return ChatAPI(tuple(runs.offer.models["lm"]), draw, usual, runs.limits, key).routes()
