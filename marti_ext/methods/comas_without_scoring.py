"""CoMAS without scoring (paper, Section 4.3.1): evaluators judge a solution right or wrong and are rewarded for agreement.

The paper sees its rewards climb to 1: agents learn to call every solution correct.
"""

import re
from statistics import mean
from typing import Literal

from pydantic import Field

from marti_ext.methods.comas import CoMAS, CoMASOptions, last_tag
from marti_ext.prompts import discussion_round, judgment_prompt
from marti_ext.trajectory import Trajectory, Turn

JUDGMENT_TAG = re.compile(r"<judgment>(.*?)</judgment>", re.DOTALL)
JUDGMENTS = {"correct": 1, "incorrect": 0}


def extract_judgment(response: str) -> int | None:
    """1 or 0, by the last judgment tag; None unless it is exactly "correct" or "incorrect"."""
    return JUDGMENTS.get(last_tag(JUDGMENT_TAG, response))


class Options(CoMASOptions):
    name: Literal["comas_without_scoring"] = "comas_without_scoring"
    evaluations: int = Field(2, ge=2, description="judgments per solution")


class CoMASWithoutScoring(CoMAS):
    Options = Options
    scored_role = "evaluation"

    def turns_per_discussion(self) -> int:
        return self.options.rounds * (1 + self.options.evaluations)

    async def _round(self, question, history, number, solver, choose, group) -> str:
        evaluators = [choose() for _ in range(self.options.evaluations)]
        solution = await self._solve(question, history, number, solver)
        ask = judgment_prompt(question.prompt, solution.response, history)
        evaluations = await self._evaluate(evaluators, ask, solution, group)
        return discussion_round(solution.response, [evaluation.response for evaluation in evaluations])

    def reward(self, trajectory: Trajectory) -> None:
        """r(solution): share of its readable judgments that say correct. r(evaluation): share of the other readable ones
        that say the same, -1 if it cannot be read; without another one there is nothing to agree with and no reward."""
        for solution in trajectory.of("solution"):
            evaluations = trajectory.children(solution, "evaluation")
            for evaluation in evaluations:
                evaluation.score = extract_judgment(evaluation.response)
            readable = [evaluation for evaluation in evaluations if evaluation.score is not None]
            solution.reward = mean(evaluation.score for evaluation in readable) if readable else self.unreadable
            for evaluation in evaluations:
                evaluation.reward = self._agreement(evaluation, readable)

    def _agreement(self, evaluation: Turn, readable: list[Turn]) -> float | None:
        if evaluation.score is None:
            return -1.0
        others = [float(other.score == evaluation.score) for other in readable if other is not evaluation]
        return mean(others) if others else None
