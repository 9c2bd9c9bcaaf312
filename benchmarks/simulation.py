"""What `rollout.py` simulates: a clock that skips waiting, engines of the paper's size, and the ideal schedule.

The engine's rule is written twice. `SimulatedEngine` runs under asyncio and is driven by marti_ext; `ideal_seconds`
shares no code with it or with marti_ext, so that the comparison of the two would show an error in either.
"""

import asyncio
import heapq
import itertools
import selectors
import time
from collections.abc import Callable
from dataclasses import dataclass

from marti_ext.engines import Completion, Sampling

SECONDS_PER_TOKEN = 0.008  # of a sequence that an engine has for itself: a 3B model on one GPU
LOAD_THAT_DOUBLES = 128  # sequences in an engine at which each gets a token half as often


class SkippingSelector(selectors.DefaultSelector):
    """Returns at once where it would wait, and counts what it would have waited."""

    skipped = 0.0

    def select(self, timeout: float | None = None) -> list:
        ready = super().select(0)
        if not ready and timeout is None:
            raise RuntimeError("the simulation has stopped: every task waits and no timer is set")
        if not ready:
            self.skipped += max(0.0, timeout)
        return ready


class SkippingLoop(asyncio.SelectorEventLoop):
    """Its time is what a driver with engines elsewhere would measure: waiting, skipped, plus the driver's own CPU time."""

    def __init__(self) -> None:
        self.selector = SkippingSelector()
        super().__init__(self.selector)

    def time(self) -> float:
        return self.selector.skipped + time.process_time()


class SimulatedEngine:
    """Continuous batching: b sequences advance together, a token each every t(b) = t0 (1 + b / b0) seconds.

    `complete.remote` is what marti_ext.engines.vllm.VllmEngines calls. All sequences advance alike, so one number, the
    tokens that a sequence here from the beginning would have, says where each stands. The log-probs hold the engine's
    number, by which the ideal schedule learns who served a turn.
    """

    def __init__(self, number: int, length: Callable[[int], int], text: list[int]) -> None:
        self.number, self.length, self.text = number, length, text
        self.tokens, self.clock = 0.0, 0.0  # how far, and when that was
        self.active: list[tuple[float, int, asyncio.Future]] = []  # a heap, by the number of tokens at which each ends
        self.order = itertools.count()
        self.timer: asyncio.TimerHandle | None = None
        self.complete = self
        self.remote = self._complete
        self.cpu = (
            0.0  # seconds that the simulation itself spent here, which a real engine would not spend in the driver
        )

    async def _complete(self, prompt_ids: list[int], sampling: Sampling) -> Completion:
        loop, began = asyncio.get_running_loop(), time.process_time()
        length = min(self.length(sampling.seed), sampling.max_tokens)
        self._advance(loop.time())
        future = loop.create_future()
        heapq.heappush(self.active, (self.tokens + length, next(self.order), future))
        self._set_timer(loop)
        self.cpu += time.process_time() - began
        await future
        began = time.process_time()
        start = sampling.seed % (len(self.text) - length)
        reason = "length" if length == sampling.max_tokens else "stop"
        completion = Completion(self.text[start : start + length], [float(self.number)] * length, reason)
        self.cpu += time.process_time() - began
        return completion

    def _seconds_per_token(self) -> float:
        return SECONDS_PER_TOKEN * (1 + len(self.active) / LOAD_THAT_DOUBLES)

    def _next_end(self) -> float:
        return self.clock + (self.active[0][0] - self.tokens) * self._seconds_per_token()

    def _advance(self, now: float) -> None:
        """To `now`; who ended before that ended when it did, also if the driver was too busy to look."""
        while self.active and self._next_end() <= now:
            self.clock = self._next_end()
            self.tokens, _, future = heapq.heappop(self.active)
            future.set_result(None)
        if self.active:
            self.tokens += (now - self.clock) / self._seconds_per_token()
        self.clock = now

    def _set_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        if self.timer:
            self.timer.cancel()
        self.timer = loop.call_at(self._next_end(), self._on_timer, loop) if self.active else None

    def _on_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        began = time.process_time()
        self._advance(loop.time())
        self._set_timer(loop)
        self.cpu += time.process_time() - began


@dataclass
class Planned:
    """A turn of the ideal schedule: its engine, its tokens, and the turns (by number) that it has to wait for."""

    engine: int
    tokens: int
    after: list[int]


def ideal_seconds(turns: list[Planned]) -> float:
    """When the last turn ends if each starts at the moment its last parent ends, and nothing else takes time.

    Literally: of all engines, take the one whose next sequence ends first; move that engine there; start the children.
    """
    children: list[list[int]] = [[] for _ in turns]
    for number, turn in enumerate(turns):
        for parent in turn.after:
            children[parent].append(number)
    waits_for = [len(turn.after) for turn in turns]
    engines = sorted({turn.engine for turn in turns})
    left: dict[int, dict[int, float]] = {engine: {} for engine in engines}  # engine -> turn -> tokens to go
    moved_at = dict.fromkeys(engines, 0.0)

    def seconds_per_token(engine: int) -> float:
        return SECONDS_PER_TOKEN * (1 + len(left[engine]) / LOAD_THAT_DOUBLES)

    def move(engine: int, now: float) -> None:
        tokens = (now - moved_at[engine]) / seconds_per_token(engine)
        left[engine] = {turn: to_go - tokens for turn, to_go in left[engine].items()}
        moved_at[engine] = now

    def start(number: int, now: float) -> None:
        engine = turns[number].engine
        move(engine, now)
        left[engine][number] = float(turns[number].tokens)

    def next_end(engine: int) -> tuple[float, int, int]:
        turn, to_go = min(left[engine].items(), key=lambda item: item[1])
        return moved_at[engine] + to_go * seconds_per_token(engine), engine, turn

    for number, wait in enumerate(waits_for):
        if not wait:
            start(number, 0.0)
    now = 0.0
    while any(left.values()):
        now, engine, ended = min(next_end(engine) for engine in engines if left[engine])
        move(engine, now)
        del left[engine][ended]
        for child in children[ended]:
            waits_for[child] -= 1
            if not waits_for[child]:
                start(child, now)
    assert not any(waits_for), "a turn was never started: its parents form a circle"
    return now
