"""Engines and agents for tests: scripted ones, and the real decoder without Ray."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace

from marti_ext.engines import Completion, Sampling
from marti_ext.engines.transformers import TransformersEngine
from marti_ext.rollout import Speaker


class CharTokenizer:
    """A token is a character; 0 ends a response. Reads and writes what the rollout needs of a tokenizer."""

    eos_token_id = 0

    def apply_chat_template(self, messages, tokenize, add_generation_prompt):
        return "".join(f"<{message['role']}>{message['content']}" for message in messages) + "<assistant>"

    def encode(self, text, add_special_tokens=False):
        return [ord(char) for char in text]

    def decode(self, token_ids, skip_special_tokens=True):
        return "".join(chr(token) for token in token_ids if token)


class ScriptedEngine:
    """Answers with what `script(prompt text, seed)` says; an exception that it returns is raised."""

    def __init__(self, script: Callable[[str, int], str | Exception]) -> None:
        self.script, self.prompts, self.in_flight, self.most_in_flight = script, [], 0, 0

    async def generate(self, prompt_ids: list[int], sampling: Sampling) -> Completion:
        prompt = "".join(map(chr, prompt_ids))
        self.prompts.append(prompt)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        await asyncio.sleep(0)
        self.in_flight -= 1
        answer = self.script(prompt, sampling.seed)
        if isinstance(answer, Exception):
            raise answer
        ids = [ord(char) for char in answer] + [0]
        reason = "stop" if len(ids) <= sampling.max_tokens else "length"
        ids = ids[: sampling.max_tokens]
        return Completion(ids, [-0.5] * len(ids), reason)


def local_engine(decoder) -> TransformersEngine:
    """The embedded engine with its decoder in this process: the real generation, no Ray."""

    async def decode(requests, steps):
        return decoder.advance(requests, steps)

    return TransformersEngine(SimpleNamespace(decode=SimpleNamespace(remote=decode)))


def speakers(script: Callable[[str, int], str | Exception], count: int = 2, slots: int = 64) -> list[Speaker]:
    """Agents a1, a2, ... on policies p1, p2, ..., each with a scripted engine of its own."""
    return [
        Speaker(f"a{k}", f"p{k}", ScriptedEngine(script), CharTokenizer(), asyncio.Semaphore(slots))
        for k in range(1, count + 1)
    ]
