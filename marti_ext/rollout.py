"""Runs many trajectories at once over the engines. A question waits for nothing but its own previous turn."""

import asyncio
import hashlib
import logging
import random
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from marti_ext.engines import Sampling
from marti_ext.prompts import Prompt
from marti_ext.questions import Question
from marti_ext.trajectory import Trajectory, Turn

log = logging.getLogger("marti_ext")


def stable_seed(*parts: object) -> int:
    """A seed that is the same in every process and run."""
    return int.from_bytes(hashlib.blake2b("/".join(map(str, parts)).encode(), digest_size=7).digest(), "big")


def explain(error: BaseException) -> str:
    """One line: of a task group the first error, of a Ray error what happened in the remote process."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    error = getattr(error, "cause", None) or error
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"


@dataclass(frozen=True)
class Limits:
    """Tokens of one turn, and how it is drawn."""

    max_prompt_tokens: int
    max_response_tokens: int
    temperature: float
    retries: int = 2


@dataclass
class Speaker:
    """What an agent needs to speak: its policy's engine and tokenizer. `slots` bounds the requests in flight."""

    agent: str
    policy: str
    engine: Any
    tokenizer: Any
    slots: asyncio.Semaphore

    def encode(self, text: str) -> list[int]:
        """Token ids of the text as a user message, up to where the response begins."""
        messages = [{"role": "user", "content": text}]
        chat = self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        return self.tokenizer.encode(chat, add_special_tokens=False)

    def decode(self, token_ids: list[int]) -> str:
        return self.tokenizer.decode(token_ids, skip_special_tokens=True)


@dataclass
class Progress:
    """Counters of a rollout under way."""

    questions_done: int = 0
    turns_done: int = 0
    tokens: int = 0
    prompt_tokens: int = 0
    retried_turns: int = 0
    failed: list[tuple[str, str]] = field(default_factory=list)  # the questions left out: id, why


class Seat:
    """An agent in one discussion: what it says is entered in that discussion's trajectory."""

    def __init__(self, speaker: Speaker, trajectory: Trajectory, limits: Limits, seed: int, progress: Progress) -> None:
        self.speaker, self.trajectory, self.limits, self.seed, self.progress = (
            speaker,
            trajectory,
            limits,
            seed,
            progress,
        )

    async def act(self, role: str, prompt: Prompt, parents: list[Turn] = (), round: int = 1) -> Turn:
        """One turn. Raises PromptTooLong, or what the engine raised once the retries are used up."""
        speaker, turns = self.speaker, self.trajectory.turns
        turn = Turn(len(turns), speaker.agent, speaker.policy, role, round, [parent.id for parent in parents])
        alike = [(other.role, other.round, other.parents) for other in turns].count((role, round, turn.parents))
        # of what it answers, not of its id: where several turns are under way, ids depend on who answers first
        turn.seed = stable_seed(self.seed, role, round, *(parent.seed for parent in parents), alike)
        turns.append(turn)
        turn.prompt_ids, fitted = prompt.fit(speaker.encode, self.limits.max_prompt_tokens)
        turn.prompt = fitted.text()
        turn.shortened, turn.cut = fitted.discussion != prompt.discussion, fitted.subject != prompt.subject
        completion = await self._generate(turn)
        turn.response_ids, turn.log_probs = completion.token_ids, completion.log_probs
        turn.response = speaker.decode(completion.token_ids)
        turn.finish_reason = completion.finish_reason
        turn.num_tokens = completion.num_tokens or len(completion.token_ids)
        self.progress.turns_done += 1
        self.progress.tokens += turn.num_tokens
        self.progress.prompt_tokens += completion.num_prompt_tokens or len(turn.prompt_ids)
        return turn

    async def _generate(self, turn: Turn):
        for attempt in range(self.limits.retries + 1):
            seed = stable_seed(turn.seed, attempt)
            sampling = Sampling(self.limits.max_response_tokens, self.limits.temperature, seed)
            try:
                async with self.speaker.slots:
                    completion = await self.speaker.engine.generate(turn.prompt_ids, sampling)
                if completion.token_ids:
                    return completion
                error: Exception = RuntimeError("the engine returned an empty response")
            except Exception as caught:  # whatever an engine raises is retried; the last one is not swallowed
                error = caught
            self.progress.retried_turns += attempt < self.limits.retries
        raise error


class Rollout:
    """Runs one method with one set of agents."""

    def __init__(self, method: Any, speakers: list[Speaker], limits: Limits, seed: int) -> None:
        self.method, self.speakers, self.limits, self.seed = method, speakers, limits, seed

    async def run(
        self, questions: list[Question], step: int, copies: int, progress: Progress
    ) -> AsyncIterator[Trajectory]:
        """Rewarded trajectories of `copies` independent discussions per question, each as soon as it is finished.

        A question whose turn fails for good, or that cannot be judged, is left out, counted in `progress` and named in
        the log.
        """
        tasks, begun = [], Counter()  # a question may be dealt twice in a step: no two of its discussions are the same
        for question in (question for question in questions for _ in range(copies)):
            tasks.append(asyncio.create_task(self._discuss(question, step, begun[question.id], progress)))
            begun[question.id] += 1
        try:
            for task in asyncio.as_completed(tasks):
                trajectory = await task
                progress.questions_done += 1
                if trajectory is not None:
                    yield trajectory
        finally:
            for task in tasks:
                task.cancel()

    async def _discuss(self, question: Question, step: int, copy: int, progress: Progress) -> Trajectory | None:
        seed = stable_seed(self.seed, step, question.id, copy)
        trajectory = Trajectory(question.without_answer(), self.method.options.name, copy=copy)
        seats = [Seat(speaker, trajectory, self.limits, seed, progress) for speaker in self.speakers]
        try:
            await self.method.run(trajectory.question, seats, random.Random(seed))
            await asyncio.to_thread(self._reward, trajectory, question)  # verifying may run code
        except Exception as error:
            log.warning("question %s is left out of step %s: %s", question.id, step, explain(error))
            progress.failed.append((question.id, explain(error)))
            return None
        return trajectory

    def _reward(self, trajectory: Trajectory, question: Question) -> None:
        """Only a method that may see the answer gets it before the rewards are fixed."""
        if self.method.sees_answers:
            trajectory.question = question
        self.method.reward(trajectory)
        trajectory.question = question
        self.method.measure(trajectory)
