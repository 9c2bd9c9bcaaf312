"""MAPoRL (Park et al., 2025) as CoMAS compares with it (Section 4.1.2): a debate, rewarded by the verifier.

Every agent solves; in each further round it reads its own last solution and at most two of the others', in random order,
and solves anew. `influence` is the original's reward (its Section 3): a solution also gets a share of what followed it.
"""

import asyncio
import random
from statistics import mean
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from marti_ext.methods.method import Method
from marti_ext.prompts import aggregation_prompt, solution_prompt
from marti_ext.questions import Question
from marti_ext.tasks import verify
from marti_ext.trajectory import Trajectory, Turn

OTHERS = 2  # solutions of others that an agent reads, at most


class MAPoRLOptions(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: Literal["maporl"] = "maporl"
    rounds: int = Field(2, ge=1)
    rewards: Literal["own", "influence"] = Field("own", description="the verdict alone, or with what followed")
    discount: float = Field(0.3, ge=0, le=1, description="of later rounds, with rewards: influence")


class MAPoRL(Method):
    Options = MAPoRLOptions
    sees_answers = True

    def turns_per_discussion(self) -> int:
        return self.num_agents * self.options.rounds

    async def run(self, question: Question, agents: list, rng: random.Random) -> None:
        solutions: list[Turn] = []
        for number in range(1, self.options.rounds + 1):
            read = [self._readings(solutions, k, rng) for k in range(len(agents))]
            prompts = [
                aggregation_prompt(question.task, question.prompt, [turn.response for turn in turns])
                if turns
                else solution_prompt(question.task, question.prompt)
                for turns in read
            ]
            solutions = await asyncio.gather(
                *(
                    agent.act("solution", prompt, parents=turns, round=number)
                    for agent, prompt, turns in zip(agents, prompts, read, strict=True)
                )
            )

    def _readings(self, solutions: list[Turn], own: int, rng: random.Random) -> list[Turn]:
        """Of the last round: one's own, and at most two of the others'."""
        others = solutions[:own] + solutions[own + 1 :]
        turns = solutions[own : own + 1] + rng.sample(others, min(OTHERS, len(others)))
        rng.shuffle(turns)
        return turns

    def reward(self, trajectory: Trajectory) -> None:
        question, rounds = trajectory.question, {}
        for solution in trajectory.of("solution"):
            solution.reward = float(verify(question.task, solution.response, question.answer).correct)
            rounds.setdefault(solution.round, []).append(solution)
        if self.options.rewards == "influence":
            self._share_what_followed(rounds)

    def _share_what_followed(self, rounds: dict[int, list[Turn]]) -> None:
        """R(t) = (V(own, t) + sum over t' > t of gamma^(t'-t) mean V(all, t')) / sum over t' >= t of gamma^(t'-t)."""
        verdicts = {number: mean(turn.reward for turn in turns) for number, turns in rounds.items()}
        for number, turns in rounds.items():
            weights = {later: self.options.discount ** (later - number) for later in rounds if later > number}
            followed = sum(weight * verdicts[later] for later, weight in weights.items())
            for turn in turns:
                turn.reward = (turn.reward + followed) / (1 + sum(weights.values()))
