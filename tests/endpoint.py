"""A chat server for tests that speaks OpenAI's protocol, in a thread of this process; a script answers."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import contextmanager

from aiohttp import web

from marti_ext.questions import Question


class Server:
    """`script(prompt, seed)` gives the response, or an HTTP status in place of one. `requests` holds what was asked."""

    def __init__(self, script: Callable[[str, int], str | int]) -> None:
        self.script, self.requests = script, []
        self.url = ""

    async def complete(self, request: web.Request) -> web.Response:
        asked = await request.json()
        self.requests.append(asked | {"key": request.headers.get("Authorization")})
        (message,) = asked["messages"]
        answer = self.script(message["content"], asked.get("seed", 0))
        if isinstance(answer, int):
            return web.json_response({"error": {"message": "scripted"}}, status=answer)
        choice = {"index": 0, "message": {"role": "assistant", "content": answer}, "finish_reason": "stop"}
        usage = {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12}
        body = {"id": "1", "object": "chat.completion", "created": int(time.time()), "model": asked["model"]}
        return web.json_response(body | {"choices": [choice], "usage": usage})


@contextmanager
def serving(script: Callable[[str, int], str | int]):
    server, loop, started = Server(script), asyncio.new_event_loop(), threading.Event()

    async def start() -> web.AppRunner:
        app = web.Application(client_max_size=2**26)
        app.router.add_post("/v1/chat/completions", server.complete)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        server.url = f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}/v1"
        return runner

    def serve() -> None:
        asyncio.set_event_loop(loop)
        runner = loop.run_until_complete(start())
        started.set()
        loop.run_forever()
        loop.run_until_complete(runner.cleanup())
        loop.close()

    thread = threading.Thread(target=serve)
    thread.start()
    started.wait()
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()


class Finder:
    """Which question a prompt is about."""

    def __init__(self, questions: Iterable[Question]) -> None:
        self.by_begin: dict[str, list[Question]] = {}
        for question in questions:
            self.by_begin.setdefault(self._begin(question.prompt), []).append(question)

    def __call__(self, prompt: str) -> Question | None:
        text = prompt.removeprefix("Problem:\n")
        begins = [one for one in self.by_begin.get(self._begin(text), []) if text.startswith(one.prompt + "\n\n")]
        return max(begins, key=lambda one: len(one.prompt), default=None)

    def _begin(self, text: str) -> str:
        return text[:1000].partition("\n")[0]
