"""Direct inference: one solution."""

import random

from marti_ext.prompts import solution_prompt
from marti_ext.questions import Question
from marti_ext.trajectory import Trajectory, Turn


class Vanilla:
    name = "vanilla"
    turns = 1  # per question, at most

    async def run(self, question: Question, agents: list, rng: random.Random) -> None:
        await agents[0].act("solution", solution_prompt(question.task, question.prompt))

    def answer(self, trajectory: Trajectory) -> Turn:
        return trajectory.turns[-1]
