"""Multi-agent debate (Du et al., 2023): everybody solves, reads the others and solves anew; then one answer from all."""

import asyncio
import random

from marti_ext.prompts import Prompt, aggregation_prompt, debate_prompt, solution_prompt
from marti_ext.questions import Question
from marti_ext.trajectory import Trajectory, Turn

PARTICIPANTS = 3
ROUNDS = 2


class Debate:
    name = "debate"
    turns = PARTICIPANTS * ROUNDS + 1

    async def run(self, question: Question, agents: list, rng: random.Random) -> None:
        solutions: list[Turn] = []
        for number in range(1, ROUNDS + 1):
            prompts = [self._prompt(question, solutions, k) for k in range(PARTICIPANTS)]
            solutions = await asyncio.gather(
                *(
                    agents[k % len(agents)].act("solution", prompt, parents=solutions, round=number)
                    for k, prompt in enumerate(prompts)
                )
            )
        ask = aggregation_prompt(question.task, question.prompt, [turn.response for turn in solutions])
        await agents[0].act("aggregation", ask, parents=solutions, round=ROUNDS + 1)

    def _prompt(self, question: Question, solutions: list[Turn], participant: int) -> Prompt:
        if not solutions:
            return solution_prompt(question.task, question.prompt)
        said = [turn.response for turn in solutions]
        others = said[:participant] + said[participant + 1 :]
        return debate_prompt(question.task, question.prompt, others, own=said[participant])

    def answer(self, trajectory: Trajectory) -> Turn:
        return trajectory.turns[-1]
