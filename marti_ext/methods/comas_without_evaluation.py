"""CoMAS without evaluation (paper, Section 4.3.1): the score of a solution, by an agent that reads nothing else, is its reward.

The paper sees its rewards fall: agents become ever stricter judges.
"""

from typing import Literal

from pydantic import Field

from marti_ext.methods.comas import CoMAS, CoMASOptions
from marti_ext.prompts import discussion_round, scoring_alone_prompt


class Options(CoMASOptions):
    name: Literal["comas_without_evaluation"] = "comas_without_evaluation"
    evaluations: int = Field(1, ge=1, description="scorings per solution")


class CoMASWithoutEvaluation(CoMAS):
    """r(solution) = mean (score - 1) / 2, r(scoring) = -1 if it cannot be read, else 0: Eq. 7 and 8, as in CoMAS."""

    Options = Options

    def turns_per_discussion(self) -> int:
        return self.options.rounds * (1 + self.options.evaluations)

    async def _round(self, question, history, number, solver, choose, group) -> str:
        scorers = [choose() for _ in range(self.options.evaluations)]
        solution = await self._solve(question, history, number, solver)
        ask = scoring_alone_prompt(question.prompt, solution.response)
        for scorer in scorers:
            group.create_task(scorer.act("scoring", ask, parents=[solution], round=number))
        return discussion_round(solution.response, [])
