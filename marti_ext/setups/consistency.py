"""Self-consistency (Wang et al., 2022): several solutions, then one answer from them."""

import asyncio
import random
from collections import Counter

from marti_ext.prompts import aggregation_prompt, solution_prompt
from marti_ext.questions import Question
from marti_ext.tasks import extract
from marti_ext.trajectory import Trajectory, Turn

SAMPLES = 5


async def sample(question: Question, agents: list) -> list[Turn]:
    """Solutions that are independent of each other."""
    prompt = solution_prompt(question.task, question.prompt)
    return await asyncio.gather(*(agents[k % len(agents)].act("solution", prompt) for k in range(SAMPLES)))


class Consistency:
    """The model itself reads the solutions and writes the final one."""

    name = "consistency"
    turns = SAMPLES + 1

    async def run(self, question: Question, agents: list, rng: random.Random) -> None:
        solutions = await sample(question, agents)
        ask = aggregation_prompt(question.task, question.prompt, [turn.response for turn in solutions])
        await agents[0].act("aggregation", ask, parents=solutions, round=2)

    def answer(self, trajectory: Trajectory) -> Turn:
        return trajectory.turns[-1]


class Vote:
    """The most frequent answer counts, of equally frequent ones the first; one that cannot be read has no vote."""

    name = "vote"
    turns = SAMPLES

    async def run(self, question: Question, agents: list, rng: random.Random) -> None:
        await sample(question, agents)

    def answer(self, trajectory: Trajectory) -> Turn:
        answers = [extract(trajectory.question.task, turn.response) for turn in trajectory.turns]
        votes = Counter(answer for answer in answers if answer is not None)
        winner = votes.most_common(1)[0][0] if votes else None
        return trajectory.turns[answers.index(winner)]
