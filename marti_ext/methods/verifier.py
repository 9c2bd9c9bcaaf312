"""The upper control: every agent works alone, and the verifier's verdict on its answer is its reward.

If this does not raise accuracy, the pipeline is at fault, not an intrinsic reward.
"""

import asyncio
import random
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from marti_ext.methods.method import Method
from marti_ext.prompts import solution_prompt
from marti_ext.questions import Question
from marti_ext.tasks import verify
from marti_ext.trajectory import Trajectory


class VerifierOptions(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: Literal["verifier"] = "verifier"
    samples: int = Field(8, ge=1, description="solutions of each agent to a question")


class Verifier(Method):
    Options = VerifierOptions
    sees_answers = True

    def turns_per_discussion(self) -> int:
        return self.num_agents * self.options.samples

    async def run(self, question: Question, agents: list, rng: random.Random) -> None:
        prompt = solution_prompt(question.task, question.prompt)
        await asyncio.gather(
            *(agent.act("solution", prompt) for agent in agents for _ in range(self.options.samples)),
        )

    def reward(self, trajectory: Trajectory) -> None:
        question = trajectory.question
        for solution in trajectory.of("solution"):
            solution.reward = float(verify(question.task, solution.response, question.answer).correct)
