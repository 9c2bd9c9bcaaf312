"""TTRL (Zuo et al., 2025): every agent works alone; the most frequent of its answers is the label that rewards them.

As in CoMAS' comparison (Section 4.1.2), only mathematics has labels: elsewhere answers cannot be counted.
"""

from statistics import mean
from typing import Literal

from pydantic import Field

from marti_ext.methods.verifier import Verifier, VerifierOptions
from marti_ext.tasks import extract, last_boxed, verify
from marti_ext.trajectory import Trajectory, Turn


class TTRLOptions(VerifierOptions):
    name: Literal["ttrl"] = "ttrl"
    elsewhere: Literal["constant", "skip"] = Field(
        "constant", description="outside mathematics: a reward of 0.5 as in the paper, or no training"
    )


class TTRL(Verifier):
    Options = TTRLOptions
    sees_answers = False

    def reward(self, trajectory: Trajectory) -> None:
        """1 for a solution with the majority's answer, 0 for another or an unreadable one."""
        if trajectory.question.task != "math":
            for solution in trajectory.of("solution"):
                solution.reward = 0.5 if self.options.elsewhere == "constant" else None
            return
        for solutions in by_agent(trajectory):
            majority = max(alike(solutions), key=len, default=[])
            for solution in solutions:
                solution.reward = float(any(solution is one for one in majority))

    def measure(self, trajectory: Trajectory) -> None:
        """How large majorities are, and how often they are right; means over agents."""
        question = trajectory.question
        if question.task != "math":
            return
        shares, right = [], []
        for solutions in by_agent(trajectory):
            majority = [solution for solution in solutions if solution.reward]
            shares.append(len(majority) / len(solutions))
            right.append(bool(majority) and verify("math", majority[0].response, question.answer).correct)
        trajectory.metrics |= {"majority_share": mean(shares), "label_accuracy": mean(right)}


def by_agent(trajectory: Trajectory) -> list[list[Turn]]:
    solutions = trajectory.of("solution")
    agents = dict.fromkeys(solution.agent for solution in solutions)
    return [[solution for solution in solutions if solution.agent == agent] for agent in agents]


def alike(solutions: list[Turn]) -> list[list[Turn]]:
    """The readable solutions in groups whose answers are equal, as the verifier of mathematics sees it."""
    groups: list[list[Turn]] = []
    for solution in solutions:
        if extract("math", solution.response) is None:
            continue
        for group in groups:
            if verify("math", solution.response, last_boxed(group[0].response)).correct:
                group.append(solution)
                break
        else:
            groups.append([solution])
    return groups
