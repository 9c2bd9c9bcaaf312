"""The positive control: the discussion of CoMAS, but a solution is rewarded by the verifier's verdict on its answer.

Evaluations and scorings are rewarded as in CoMAS. If this does not raise accuracy, the pipeline is at fault, not the
intrinsic reward.
"""

from typing import Literal

from marti_ext.methods.comas import CoMAS, CoMASOptions
from marti_ext.tasks import verify
from marti_ext.trajectory import Trajectory


class VerifierOptions(CoMASOptions):
    name: Literal["verifier"] = "verifier"


class Verifier(CoMAS):
    Options = VerifierOptions
    sees_answers = True

    def reward(self, trajectory: Trajectory) -> None:
        super().reward(trajectory)
        question = trajectory.question
        for solution in trajectory.of("solution"):
            solution.reward = float(verify(question.task, solution.response, question.answer).correct)
