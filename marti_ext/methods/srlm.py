"""Self-rewarding language models (Yuan et al., 2024): an agent rates its own solutions and prefers the best to the worst.

Every agent works alone. A step is an iteration of the original: all questions, then DPO on the pairs, with the policy as
it was before the step as the reference.
"""

import asyncio
import random
import re
from statistics import mean
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from marti_ext.methods.comas import SCORE_TAG, last_tag
from marti_ext.methods.method import Method
from marti_ext.prompts import rating_prompt, solution_prompt
from marti_ext.questions import Question
from marti_ext.trajectory import Trajectory


def extract_rating(response: str) -> int | None:
    """The points in the last score tag, None unless they are 0 to 5."""
    content = last_tag(SCORE_TAG, response)
    return int(content) if re.fullmatch("[0-5]", content) else None


class SRLMOptions(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: Literal["srlm"] = "srlm"
    samples: int = Field(4, ge=2, description="solutions of each agent to a question")
    ratings: int = Field(3, ge=1, description="of each solution, by the agent itself; their mean counts")


class SRLM(Method):
    Options = SRLMOptions
    scored_role = "rating"
    credit = "dpo"

    def turns_per_discussion(self) -> int:
        return self.num_agents * self.options.samples * (1 + self.options.ratings)

    def samples_per_discussion(self) -> int:
        return self.num_agents * 2

    async def run(self, question: Question, agents: list, rng: random.Random) -> None:
        await asyncio.gather(
            *(self._solve_and_rate(question, agent) for agent in agents for _ in range(self.options.samples))
        )

    async def _solve_and_rate(self, question: Question, agent) -> None:
        solution = await agent.act("solution", solution_prompt(question.task, question.prompt))
        ask = rating_prompt(question.prompt, solution.response)
        await asyncio.gather(*(agent.act("rating", ask, parents=[solution]) for _ in range(self.options.ratings)))

    def reward(self, trajectory: Trajectory) -> None:
        """A solution gets the mean of its readable ratings. Ratings have no reward: nothing trains them directly."""
        for rating in trajectory.of("rating"):
            rating.score = extract_rating(rating.response)
        for solution in trajectory.of("solution"):
            points = [turn.score for turn in trajectory.children(solution, "rating") if turn.score is not None]
            solution.reward = mean(points) if points else None
