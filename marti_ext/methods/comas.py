"""CoMAS: agents propose, criticise and score; the score is a zero-sum reward (paper, Sections 3.1 and 3.2)."""

import asyncio
import random
import re
from collections.abc import Callable
from statistics import mean
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from marti_ext.methods.method import Method
from marti_ext.prompts import Prompt, discussion_round, evaluation_prompt, scoring_prompt, solution_prompt
from marti_ext.questions import Question
from marti_ext.trajectory import Trajectory, Turn

SCORE_TAG = re.compile(r"<score>(.*?)</score>", re.DOTALL)


def last_tag(tag: re.Pattern, response: str) -> str:
    """What the last such tag holds; empty without one."""
    return (tag.findall(response) or [""])[-1].strip()


def extract_score(response: str) -> int | None:
    """Extract() of Eq. 6: the score in the last score tag, None unless it is 1, 2 or 3."""
    content = last_tag(SCORE_TAG, response)
    return int(content) if content in ("1", "2", "3") else None


async def _all(group: asyncio.TaskGroup, coroutines: list) -> list:
    """Their results; they run at the same time, in the group."""
    return await asyncio.gather(*map(group.create_task, coroutines))


class CoMASOptions(BaseModel):
    """What an experiment may set under `method`. Defaults are the paper's (Section 4.1.1, Table 2)."""

    model_config = ConfigDict(extra="forbid")
    name: Literal["comas"] = "comas"
    rounds: int = Field(8, ge=1, description="m, solutions per discussion")
    evaluations: int = Field(1, ge=1, description="n, evaluations per solution")
    horizon: int = Field(2, ge=0, description="kappa, rounds of discussion that are shown")
    acting: Literal["uniform", "balanced"] = Field("uniform", description="who acts: i.i.d., or dealt evenly")
    schedule: Literal["sequential", "parallel"] = Field(
        "sequential", description="one solution a round, or one of every agent in each of m/l rounds"
    )
    unreadable: Literal["penalty", "drop"] = Field(
        "penalty", description="an unreadable score rewards solution and evaluation with 0, or leaves them out"
    )


class CoMAS(Method):
    Options = CoMASOptions
    scored_role = "scoring"

    def __init__(self, options: CoMASOptions, num_agents: int) -> None:
        super().__init__(options, num_agents)
        if options.schedule == "parallel" and options.rounds % num_agents:
            raise ValueError(
                f"method.rounds ({options.rounds}) must be a multiple of the number of agents ({num_agents}) "
                "with method.schedule: parallel"
            )

    def turns_per_discussion(self) -> int:
        return self.options.rounds * (1 + 2 * self.options.evaluations)

    async def run(self, question: Question, agents: list, rng: random.Random) -> None:
        choose = self._chooser(agents, rng)
        run = self._run_parallel if self.options.schedule == "parallel" else self._run_sequential
        # Scoring does not enter the discussion, so nothing waits for it but the end. When a turn fails, the group ends all.
        async with asyncio.TaskGroup() as group:
            await run(question, agents, choose, rng, group)

    async def _run_sequential(self, question, agents, choose, rng, group) -> None:
        """m rounds of one solution each; the discussion is the last kappa rounds."""
        discussion: list[str] = []
        for number in range(1, self.options.rounds + 1):
            history = tuple(discussion[-self.options.horizon :]) if self.options.horizon else ()
            discussion.append(await self._round(question, history, number, choose(), choose, group))

    async def _run_parallel(self, question, agents, choose, rng, group) -> None:
        """m/l rounds in which every agent solves; the discussion is kappa random rounds of those before."""
        previous: list[str] = []
        for number in range(1, self.options.rounds // len(agents) + 1):
            histories = [tuple(rng.sample(previous, min(self.options.horizon, len(previous)))) for _ in agents]
            previous = await _all(
                group,
                [
                    self._round(question, history, number, agent, choose, group)
                    for agent, history in zip(agents, histories, strict=True)
                ],
            )

    async def _round(self, question, history, number, solver, choose, group) -> str:
        """A solution, its evaluations, their scorings (Eq. 5, not awaited); returns what enters h_q."""
        # Chosen before anything is awaited: who acts does not depend on which of several solvers answers first.
        evaluators = [choose() for _ in range(self.options.evaluations)]
        scorers = [choose() for _ in range(self.options.evaluations)]
        solution = await self._solve(question, history, number, solver)
        ask = evaluation_prompt(question.prompt, solution.response, history)
        evaluations = await self._evaluate(evaluators, ask, solution, group)
        for evaluation, scorer in zip(evaluations, scorers, strict=True):
            ask = scoring_prompt(question.prompt, solution.response, evaluation.response)
            group.create_task(scorer.act("scoring", ask, parents=[solution, evaluation], round=number))
        return discussion_round(solution.response, [evaluation.response for evaluation in evaluations])

    async def _solve(self, question: Question, history: tuple[str, ...], number: int, solver) -> Turn:
        """Eq. 3."""
        return await solver.act("solution", solution_prompt(question.task, question.prompt, history), round=number)

    async def _evaluate(self, evaluators: list, ask: Prompt, solution: Turn, group: asyncio.TaskGroup) -> list[Turn]:
        """Eq. 4, by all evaluators at the same time."""
        turns = [one.act("evaluation", ask, parents=[solution], round=solution.round) for one in evaluators]
        return await _all(group, turns)

    def _chooser(self, agents: list, rng: random.Random) -> Callable:
        """u_k ~ Uniform(U) per turn; `balanced` deals from a shuffled deck, so that no agent acts twice more than another."""
        if self.options.acting == "uniform":
            return lambda: rng.choice(agents)
        deck: list = []

        def deal():
            if not deck:
                deck.extend(rng.sample(agents, len(agents)))
            return deck.pop()

        return deal

    @property
    def unreadable(self) -> float | None:
        """The reward of what was not scored readably."""
        return 0.0 if self.options.unreadable == "penalty" else None

    def reward(self, trajectory: Trajectory) -> None:
        """Eq. 6 to 8. With n > 1 a solution gets the mean over its readable scores, each evaluation 1 - its own."""
        for scoring in trajectory.of("scoring"):
            scoring.score = extract_score(scoring.response)
            scoring.reward = -1.0 if scoring.score is None else 0.0
        for solution in trajectory.of("solution"):
            scores = [turn.score for turn in trajectory.children(solution, "scoring") if turn.score is not None]
            solution.reward = mean((score - 1) / 2 for score in scores) if scores else self.unreadable
        for evaluation in trajectory.of("evaluation"):
            scores = [turn.score for turn in trajectory.children(evaluation, "scoring") if turn.score is not None]
            evaluation.reward = (3 - scores[0]) / 2 if scores else self.unreadable
