"""The tasks of rooms: chains that the server draws, and samples of the model alone.

Every task runs on the server's event loop; the models' engines take turns between members and other
visitors as between any two runs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from functools import partial
from typing import Any
from zlib import crc32

from components.room.room import POOL, Member, Room
from components.session.runs import Feed, Models, Runs
from qalign_core.chain.chain import run_chain
from qalign_core.chain.concurrent import sample_iid
from qalign_core.context import BACKGROUND, RUN
from qalign_core.errors import ModelLoadError, QAlignError
from qalign_core.run import Run
from qalign_study.export.browser import unsupported_reason

LOOK = 0.25
"""Seconds between two polls of a paused chain."""
UNLOADED = (
    "the language model or the reward cannot be loaded; choose others in the room's settings, or "
    "see the reason in the app's terminal"
)
"""What a class reads when its models cannot be loaded."""

log = logging.getLogger("qalign.room")
Work = Callable[[], Awaitable[None]]


class RoomTasks:
    """The tasks that draw for the rooms of a server, by room and name.

    Args:
        runs: the server's runs, which have the models.
        clock: seconds that only grow.
    """

    def __init__(self, runs: Runs, clock: Callable[[], float]) -> None:
        self._runs, self._clock = runs, clock
        self._tasks: dict[Room, dict[str, asyncio.Task[None]]] = {}

    def __iter__(self) -> Iterator[Room]:
        return iter(self._tasks)

    def add(self, room: Room) -> None:
        """Add a room, without a task yet."""
        self._tasks[room] = {}

    def stop(self, room: Room) -> None:
        """End all tasks of a room."""
        for task in self._tasks.pop(room, {}).values():
            task.cancel()

    def start_pool(self, room: Room) -> None:
        """Draw the samples of the model alone."""
        self._start(room, "pool", partial(self._draw_pool, room))

    def start_chain(self, room: Room, member: Member) -> None:
        """Draw a member's chain."""
        self._start(room, f"chain {member.number}", partial(self._draw_chain, room, member))

    def start_replay(self, room: Room) -> None:
        """Draw what the chains of a saved class had reached, as long as their members are away."""
        self._start(room, "replay", partial(self._replay, room))

    def assign_drawer(self, room: Room, member: Member, draws: bool) -> None:
        """Let the browser draw a member's chain, or the server if it can draw one more."""
        tasks, name = self._tasks[room], f"chain {member.number}"
        member.draws = draws
        if draws and not unsupported_reason(room.run):
            member.drawer = "browser"
            if name in tasks:
                tasks.pop(name).cancel()
            return
        member.drawer = "server" if room.server_may_draw(member, self._clock()) else ""
        if member.drawer and name not in tasks:
            self.start_chain(room, member)

    def restart(self, room: Room, run: Run) -> None:
        """Restart all chains from a first draft; samples of an unchanged problem are kept."""
        redraw, tasks = not room.samples_as(run), self._tasks[room]
        for name in list(tasks):
            if name != "pool" or redraw:
                tasks.pop(name).cancel()
        room.restart(run)
        if redraw:
            self.start_pool(room)
        for member in room.members.values():
            if member.drawer or member.screens:
                self.assign_drawer(room, member, member.draws)

    def show_text(self, room: Room) -> None:
        """Show the text of the chosen chain on the instructor's screen."""
        member = next(each for each in room.members.values() if each.number == room.single)
        if (task := self._tasks[room].pop("text", None)) is not None:
            task.cancel()
        if member.last is not None:
            room.show_text(room.run, member.number, member.t, member.last.state.response.text)
        elif member.t >= 0:
            self._start(room, "text", partial(self._draw_text, room, member, member.t))

    @asynccontextmanager
    async def models(self, room: Room, run: Run) -> AsyncIterator[Models]:
        """Provide a run's two models; members never see why they cannot be loaded, only the log.

        Screens show that they are being loaded, if that takes longer than `LOOK`.

        Raises:
            ModelLoadError: one of them cannot be loaded.
        """
        title = self._runs.offer.models["lm"].get(run.lm, run.lm)
        late = asyncio.get_running_loop().call_later(LOOK, room.set_loading, run, title)
        async with AsyncExitStack() as stack:
            try:
                models = await stack.enter_async_context(self._runs.models(Feed(), run))
            except QAlignError as error:
                log.warning("the models of a room cannot be loaded: %s", error)
                raise ModelLoadError(UNLOADED) from error
            finally:
                late.cancel()
                room.set_loading(run, "")
            yield models

    def _start(self, room: Room, name: str, work: Work) -> None:
        task = asyncio.create_task(self._run_guarded(room, work), name=f"room {room.code}, {name}")
        self._tasks[room][name] = task

    async def _run_guarded(self, room: Room, work: Work) -> None:
        try:
            await work()
        except QAlignError as error:
            room.fail(str(error))
        except (asyncio.CancelledError, KeyboardInterrupt):
            raise
        except BaseException:  # a defect: the log has the details, the screens only this sentence
            log.exception("a room failed")
            room.fail("the models had an internal error; start again")

    async def _draw_pool(self, room: Room) -> None:
        """Draw samples of the model alone, as background work.

        Their seed comes from the problem, because they outlast a restart and a saved class.
        """
        RUN.set(f"room {room.code}")
        BACKGROUND.set(True)
        run = room.run
        seed = crc32(run.prompt.encode())
        async with self.models(room, run) as (lm, rm):
            samples = sample_iid(lm, rm, run.prompt, n=POOL, seed=seed, concurrency=4)
            async with aclosing(samples):  # type: ignore[type-var]
                async for sample in samples:
                    room.record_sample(sample)

    async def _replay(self, room: Room) -> None:
        """Draw the steps of a saved class, one member after the other, as background work.

        A class may have a thousand members, and a session comes from anybody.
        """
        RUN.set(f"room {room.code}")
        BACKGROUND.set(True)
        run = room.run
        async with self.models(room, run) as models:
            for member in [*room.members.values()]:
                async with aclosing(_chain(models, run, member)) as steps:
                    while room.awaits_replay(member):
                        room.record_step(member, await anext(steps))

    async def _draw_text(self, room: Room, member: Member, t: int) -> None:
        """Draw a member's chain up to step `t`, because a browser is untrusted."""
        RUN.set(f"room {room.code}")
        run = room.run
        async with self.models(room, run) as models, aclosing(_chain(models, run, member)) as steps:
            async for step in steps:
                if step.t == t:
                    room.show_text(run, member.number, t, step.state.response.text)
                    return

    async def _draw_chain(self, room: Room, member: Member) -> None:
        """Draw a member's chain as far as the class allows, while a screen follows.

        It starts from the first draft, and replays at once the steps that the member already has.
        """
        RUN.set(
            f"room {room.code} {member.number}"
        )  # each member takes turns as a visitor of its own
        run, loop = room.run, asyncio.get_running_loop()
        async with self.models(room, run) as models, aclosing(_chain(models, run, member)) as steps:
            for t in range(run.steps + 1):
                while t > member.t and not room.may_step(member, self._clock()):
                    if room.over or member.key not in room.members:
                        return
                    await asyncio.sleep(LOOK)
                due = loop.time() + room.caps.pace * (t > max(member.t, member.replay_until))
                room.record_step(member, await anext(steps))
                await asyncio.sleep(max(0.0, due - loop.time()))


def _chain(models: Models, run: Run, member: Member) -> Any:
    """Return the steps of a member's chain, an asynchronous generator."""
    settings: Any = {name: getattr(run, name) for name in ("target", "move", "steps", "seed")}
    return run_chain(*models, run.prompt, chain=member.number, **settings)
