"""Measures policies on held-out questions: each policy answers alone, the verifier judges."""

import asyncio
import random
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

from marti_ext.prompts import solution_prompt
from marti_ext.questions import Question
from marti_ext.rollout import Limits, Progress, Rollout, Speaker
from marti_ext.tasks import verify
from marti_ext.trajectory import Trajectory

COLUMNS = ("stage", "policy", "task", "questions", "accuracy", "invalid", "tokens")


class Vanilla:
    """Direct inference: one solution, no discussion. The verdict becomes the turn's reward."""

    sees_answers = True

    def __init__(self) -> None:
        self.options = SimpleNamespace(name="vanilla")

    async def run(self, question: Question, agents: list, rng: random.Random) -> None:
        await agents[0].act("solution", solution_prompt(question.task, question.prompt))

    def reward(self, trajectory: Trajectory) -> None:
        question, turn = trajectory.question, trajectory.turns[0]
        verdict = verify(question.task, turn.response, question.answer)
        turn.reward = float(verdict.correct)
        trajectory.metrics = {"correct": float(verdict.correct), "invalid": float(verdict.verdict == "invalid")}


async def evaluate(
    speakers: Iterable[Speaker], questions: list[Question], limits: Limits, seed: int, progress: Progress
) -> dict[str, list[Trajectory]]:
    """policy -> a graded trajectory per question, in the order of the questions. All are in flight at once.

    A question whose turn failed for good is missing, and counted in `progress.failed`.
    """
    place = {question.id: index for index, question in enumerate(questions)}

    async def one(speaker: Speaker) -> list[Trajectory]:
        rollout = Rollout(Vanilla(), [speaker], limits, seed)
        done = [trajectory async for trajectory in rollout.run(questions, step=0, copies=1, progress=progress)]
        return sorted(done, key=lambda trajectory: place[trajectory.question.id])

    speakers = list(speakers)
    results = await asyncio.gather(*(one(speaker) for speaker in speakers))
    return {speaker.policy: result for speaker, result in zip(speakers, results, strict=True)}


def summarize(stage: str, results: dict[str, list[Trajectory]]) -> list[dict[str, Any]]:
    """One row per policy and task, and one for all tasks: COLUMNS. What nobody answered is None."""
    rows = []
    for policy, trajectories in results.items():
        tasks = sorted({trajectory.question.task for trajectory in trajectories})
        for task in [*tasks, "all"]:
            of_task = [one for one in trajectories if task in ("all", one.question.task)]
            count = len(of_task)
            rows.append(
                {
                    "stage": stage,
                    "policy": policy,
                    "task": task,
                    "questions": count,
                    "accuracy": _mean([one.metrics["correct"] for one in of_task]),
                    "invalid": _mean([one.metrics["invalid"] for one in of_task]),
                    "tokens": _mean([sum(turn.num_tokens for turn in one.turns) for one in of_task]),
                }
            )
    return rows


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None
