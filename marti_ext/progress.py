"""What a person sees while a run is under way: the stage, and one line that keeps changing."""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TextIO, TypeVar

Result = TypeVar("Result")
SECONDS_BETWEEN_LINES = 10  # where the output is a file


def clock(seconds: float) -> str:
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


class Display:
    def __init__(self, stream: TextIO | None = None) -> None:
        self.stream = stream or sys.stdout
        self.began = time.time()
        self.terminal = self.stream.isatty()
        self.last = time.time()

    def say(self, text: str) -> None:
        """A line that stays."""
        clear = "\r\033[K" if self.terminal else ""
        print(f"{clear}[{clock(time.time() - self.began)}] {text}", file=self.stream, flush=True)
        self.last = time.time()

    def show(self, text: str) -> None:
        """A line that the next one replaces; in a file, one every ten seconds."""
        if self.terminal:
            print(f"\r\033[K[{clock(time.time() - self.began)}] {text}", end="", file=self.stream, flush=True)
        elif time.time() - self.last > SECONDS_BETWEEN_LINES:
            self.say(text)

    async def during(self, work: Awaitable[Result], describe: Callable[[float], str]) -> Result:
        """Awaits work and shows `describe(seconds so far)` every half second meanwhile."""

        async def tick() -> None:
            began = time.time()
            while True:
                self.show(describe(time.time() - began))
                await asyncio.sleep(0.5)

        ticker = asyncio.create_task(tick())
        try:
            return await work
        finally:
            ticker.cancel()
            with suppress(asyncio.CancelledError):
                await ticker
