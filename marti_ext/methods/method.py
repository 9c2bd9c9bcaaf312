"""What every method is: how agents interact, and how the turns of a trajectory are rewarded."""

import random
from typing import Any, ClassVar, Literal

from pydantic import BaseModel

from marti_ext.questions import Question
from marti_ext.trajectory import Trajectory


class Method:
    """Two hooks, `run` and `reward`; the rest has defaults."""

    Options: ClassVar[type[BaseModel]]  # what an experiment may set under `method`; its `name` is the method's
    sees_answers = False  # whether `reward` gets the question with its answer; `run` never does
    scored_role: str | None = None  # the role that is asked for a score, which may be unreadable
    credit: Literal["reinforce", "dpo"] = (
        "reinforce"  # REINFORCE++ on every turn, or DPO on the best and worst of a prompt
    )

    def __init__(self, options: Any, num_agents: int) -> None:
        self.options, self.num_agents = options, num_agents

    def turns_per_discussion(self) -> int:
        raise NotImplementedError

    def samples_per_discussion(self) -> int:
        """Turns that are trained on, at most."""
        return self.turns_per_discussion()

    async def run(self, question: Question, agents: list, rng: random.Random) -> None:
        """The interaction. `await agents[k].act(role, prompt, parents=..., round=...)` makes agent k speak and returns its
        Turn, which is entered in the trajectory when it begins."""
        raise NotImplementedError

    def reward(self, trajectory: Trajectory) -> None:
        """Sets `turn.reward` (and `turn.score`); a turn left at None is not trained on. Runs in a thread: it may verify."""
        raise NotImplementedError

    def measure(self, trajectory: Trajectory) -> None:
        """Enters numbers in `trajectory.metrics` for the log, once rewards are fixed; the question has its answer here."""
