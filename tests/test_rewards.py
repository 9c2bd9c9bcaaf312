"""Scores, rewards (Eq. 6 to 8) and advantages' input: what CoMAS makes of a discussion."""

import asyncio
import random
from collections import Counter
from pathlib import Path

import pytest
from engines import speakers
from hypothesis import given, settings
from hypothesis import strategies as st

from marti_ext.evaluation import reward_effectiveness
from marti_ext.methods.comas import CoMAS, CoMASOptions, extract_score
from marti_ext.questions import Question
from marti_ext.rollout import Limits, Progress, Rollout
from marti_ext.trajectory import Trajectory, Turn

QUESTION = Question("q1", "math", "test", "What is 1 + 1?", "2")


@pytest.mark.parametrize(
    ("response", "score"),
    [
        ("Fine. <score>3</score>", 3),
        ("<score>1</score> no, <score>2</score>", 2),
        ("<score> 2 </score>", 2),
        ("<score>\n3\n</score>", 3),
        ("<score>2</score> or <score>5</score>", None),  # the last one counts; nothing is guessed
        ("<score>3</score>, or <score>2 < 3</score>", None),
        ("<score>2</score> and <score><b>1</b></score>", None),
        ("<score>0</score>", None),
        ("<score>2.0</score>", None),
        ("<score>two</score>", None),
        ("<score></score>", None),
        ("<score>３</score>", None),  # a full-width digit
        ("score: 3", None),
        ("<score>3", None),
        ("<SCORE>3</SCORE>", None),
        ("", None),
    ],
)
def test_the_last_score_tag_counts_and_nothing_is_guessed(response, score):
    assert extract_score(response) == score


@given(st.text() | st.text("<>/score 123"))
def test_no_text_makes_extraction_fail(text):
    assert extract_score(text) in (None, 1, 2, 3)


@given(st.text(), st.sampled_from([1, 2, 3]), st.text("abc <>/"))
def test_a_tag_in_any_text_is_found_unless_another_follows(before, score, after):
    assert extract_score(f"{before}<score>{score}</score>{after}") == score or "</score>" in after


def discussion(*rounds: list[str]) -> Trajectory:
    """A finished discussion; each round is the list of its scorings' responses, one per evaluation."""
    trajectory = Trajectory(QUESTION, "comas")

    def say(role, response, number, parents=()):
        turn = Turn(len(trajectory.turns), "a", "a", role, number, [one.id for one in parents], response=response)
        trajectory.turns.append(turn)
        return turn

    for number, scorings in enumerate(rounds, 1):
        solution = say("solution", "\\boxed{2}", number)
        for response in scorings:
            evaluation = say("evaluation", "hm", number, [solution])
            say("scoring", response, number, [solution, evaluation])
    return trajectory


def rewards(trajectory: Trajectory, role: str) -> list[float | None]:
    return [turn.reward for turn in trajectory.of(role)]


@pytest.mark.parametrize(("score", "solution", "evaluation"), [(1, 0.0, 1.0), (2, 0.5, 0.5), (3, 1.0, 0.0)])
def test_a_score_is_a_zero_sum_reward(score, solution, evaluation):
    trajectory = discussion([f"<score>{score}</score>"])
    CoMAS(CoMASOptions(), 1).reward(trajectory)
    assert rewards(trajectory, "solution") == [solution]
    assert rewards(trajectory, "evaluation") == [evaluation]
    assert rewards(trajectory, "scoring") == [0.0]
    assert trajectory.of("scoring")[0].score == score


def test_an_unreadable_score_costs_the_scorer_and_rewards_nobody():
    trajectory = discussion(["no tag"])
    CoMAS(CoMASOptions(), 1).reward(trajectory)
    assert [rewards(trajectory, role) for role in ("solution", "evaluation", "scoring")] == [[0.0], [0.0], [-1.0]]


def test_an_unreadable_score_can_leave_the_pair_out_instead():
    trajectory = discussion(["no tag"])
    CoMAS(CoMASOptions(unreadable="drop"), 1).reward(trajectory)
    assert [rewards(trajectory, role) for role in ("solution", "evaluation", "scoring")] == [[None], [None], [-1.0]]


def test_with_several_evaluations_a_solution_gets_the_mean_of_its_readable_scores():
    trajectory = discussion(["<score>3</score>", "<score>2</score>", "?"], ["<score>1</score>"])
    CoMAS(CoMASOptions(evaluations=3), 1).reward(trajectory)
    assert rewards(trajectory, "solution") == [0.75, 0.0]
    assert rewards(trajectory, "evaluation") == [0.0, 0.5, 0.0, 1.0]
    assert rewards(trajectory, "scoring") == [0.0, 0.0, -1.0, 0.0]


@given(
    st.lists(
        st.sampled_from(["<score>1</score>", "<score>2</score>", "<score>3</score>", "", "<score>9</score>"]),
        min_size=1,
    )
)
def test_readable_pairs_are_zero_sum(responses):
    trajectory = discussion(*[[response] for response in responses])
    CoMAS(CoMASOptions(), 1).reward(trajectory)
    for solution in trajectory.of("solution"):
        (evaluation,) = trajectory.children(solution, "evaluation")
        (scoring,) = trajectory.children(solution, "scoring")
        assert scoring.reward == (-1.0 if scoring.score is None else 0.0)
        if scoring.score is not None:
            assert solution.reward + evaluation.reward == 1.0


# ── The interaction ──


def role_of(prompt: str) -> str:
    return (
        "scoring" if "Solution to score" in prompt else "evaluation" if "Solution to evaluate" in prompt else "solution"
    )


def answer(prompt: str, seed: int) -> str:
    return {"solution": f"S{seed % 1000}", "evaluation": f"E{seed % 1000}", "scoring": "ok <score>2</score>"}[
        role_of(prompt)
    ]


def discuss(options: dict, agents: int = 2, script=answer, seed: int = 0, limits=Limits(4096, 64, 1.0)) -> Trajectory:
    method = CoMAS(CoMASOptions(**options), agents)
    rollout = Rollout(method, speakers(script, agents), limits, seed)

    async def run():
        return [one async for one in rollout.run([QUESTION], 1, 1, Progress())]

    (trajectory,) = asyncio.run(run())
    return trajectory


def test_a_discussion_has_m_solutions_and_m_times_n_evaluations_and_scorings():
    trajectory = discuss({"rounds": 4, "evaluations": 2})
    assert Counter(turn.role for turn in trajectory.turns) == {"solution": 4, "evaluation": 8, "scoring": 8}
    for evaluation in trajectory.of("evaluation"):
        assert [trajectory.turns[parent].role for parent in evaluation.parents] == ["solution"]
    for scoring in trajectory.of("scoring"):
        solution, evaluation = (trajectory.turns[parent] for parent in scoring.parents)
        assert evaluation.parents == [solution.id]
        assert solution.response in scoring.prompt
        assert evaluation.response in scoring.prompt


@pytest.mark.parametrize("horizon", [0, 1, 2, 5])
def test_the_discussion_shows_the_last_kappa_rounds_and_never_a_scoring(horizon):
    trajectory = discuss({"rounds": 5, "horizon": horizon})
    solutions, evaluations = trajectory.of("solution"), trajectory.of("evaluation")
    for number, solution in enumerate(solutions):
        shown = [index for index in range(5) if f"Solution:\n{solutions[index].response}\n" in solution.prompt]
        assert shown == list(range(max(0, number - horizon), number))
        assert all(f"Evaluation:\n{evaluations[index].response}" in solution.prompt for index in shown)
        assert "<score>" not in solution.prompt
        assert "<score>" not in evaluations[number].prompt
    assert not any("Discussion so far" in scoring.prompt for scoring in trajectory.of("scoring"))


def test_the_prompt_parts_stand_in_the_papers_order():
    trajectory = discuss({"rounds": 2})
    evaluation = trajectory.of("evaluation")[1].prompt
    order = ["Problem:", "Discussion so far", "Solution to evaluate", "Be critical"]
    assert sorted(order, key=evaluation.index) == order
    scoring = trajectory.of("scoring")[0].prompt
    order = ["Problem:", "Solution to score", "Evaluation of this solution", "a score of 1, 2 or 3", "<score>"]
    assert sorted(order, key=scoring.index) == order


def test_in_the_parallel_schedule_every_agent_solves_in_each_of_m_by_l_rounds():
    trajectory = discuss({"rounds": 8, "schedule": "parallel"}, agents=4)
    assert Counter((turn.round, turn.agent) for turn in trajectory.of("solution")) == {
        (number, f"a{agent}"): 1 for number in (1, 2) for agent in (1, 2, 3, 4)
    }
    first = [turn.response for turn in trajectory.of("solution") if turn.round == 1]
    for turn in trajectory.of("solution"):
        assert sum(f"Solution:\n{response}\n" in turn.prompt for response in first) == (2 if turn.round == 2 else 0)


def test_the_parallel_schedule_needs_whole_rounds():
    with pytest.raises(ValueError, match=r"rounds \(6\).*multiple.*agents \(4\)"):
        CoMAS(CoMASOptions(rounds=6, schedule="parallel"), 4)


def test_agents_are_chosen_uniformly():
    counts = Counter(turn.agent for seed in range(60) for turn in discuss({"rounds": 5}, agents=3, seed=seed).turns)
    total = sum(counts.values())
    assert total == 60 * 15
    chi2 = sum((counts[f"a{k}"] - total / 3) ** 2 / (total / 3) for k in (1, 2, 3))
    assert chi2 < 13.8  # 0.1 % of uniform draws exceed it; the seeds are fixed


@settings(max_examples=20)
@given(st.integers(1, 5), st.integers(1, 6), st.integers(1, 3))
def test_balanced_acting_gives_every_agent_the_same_share(agents, rounds, evaluations):
    options = {"rounds": rounds, "evaluations": evaluations, "acting": "balanced"}
    counts = Counter(turn.agent for turn in discuss(options, agents=agents).turns)
    assert max(counts.values()) - min(counts[f"a{k}"] for k in range(1, agents + 1)) <= 1


def test_the_same_seed_gives_the_same_discussion_and_another_seed_another():
    first, again, other = (discuss({"rounds": 4}, seed=seed) for seed in (5, 5, 6))
    assert first.to_json() == again.to_json()
    assert first.to_json() != other.to_json()


def test_run_never_sees_the_answer():
    seen = []

    class Spy(CoMAS):
        async def run(self, question, agents, rng: random.Random):
            seen.append(question.answer)
            await super().run(question, agents, rng)

    rollout = Rollout(Spy(CoMASOptions(rounds=1), 1), speakers(answer, 1), Limits(4096, 64, 1.0), 0)

    async def run():
        return [one async for one in rollout.run([QUESTION], 1, 1, Progress())]

    (trajectory,) = asyncio.run(run())
    assert seen == [None]
    assert trajectory.question.answer == "2"  # what is stored has it


# ── The method of the README ──


def test_the_readmes_method_works_as_it_stands():
    readme = (Path(__file__).parent.parent / "README.md").read_text()
    code = next(block for block in readme.split("```python\n")[1:] if "class Duel" in block).split("```")[0]
    scope: dict = {}
    exec(code, scope)
    method = scope["Duel"](scope["Duel"].Options(), 2)
    rollout = Rollout(method, speakers(lambda prompt, seed: "There is an error."), Limits(4096, 64, 1.0), 0)

    async def run():
        question = Question("q", "math", "test", "1 + 1?", "2")
        return [one async for one in rollout.run([question], 1, 1, Progress())]

    (trajectory,) = asyncio.run(run())
    assert len(trajectory.turns) == method.turns_per_discussion()
    assert [turn.reward for turn in trajectory.turns] == [1.0, -1.0]


# ── Reward effectiveness (Table 6) ──


def judged(*pairs: tuple[str, float | None]) -> list[Trajectory]:
    """Discussions of a question whose answer is 2: a solution's boxed answer and its reward."""
    question = Question("q", "math", "test", "1 + 1", "2")
    turns = [
        Turn(k, "a", "p", "solution", k, [], response=f"\\boxed{{{box}}}", reward=reward)
        for k, (box, reward) in enumerate(pairs)
    ]
    turns.append(Turn(len(turns), "a", "p", "evaluation", 1, [], response="\\boxed{2}", reward=1.0))
    return [Trajectory(question, "comas", turns)]


def test_reward_effectiveness_by_hand():
    """Right: 4 of 6. At 3: 3 predicted, 2 of them right. From 2 on: 5 predicted, 3 of them right."""
    found = reward_effectiveness(
        judged(("2", 1.0), ("2", 1.0), ("3", 1.0), ("2", 0.5), ("5", 0.5), ("2", 0.0), ("2", None))
    )
    assert found == {
        "solutions": 6, "accuracy": 4 / 6, "precision": 2 / 3, "recall": 2 / 4, "precision_at_2": 3 / 5, "recall_at_2": 3 / 4,
    }  # fmt: skip


def test_what_effectiveness_cannot_know_is_missing():
    assert set(reward_effectiveness([]).values()) == {0, None}
    found = reward_effectiveness(judged(("7", 0.0)))
    assert (found["accuracy"], found["precision"], found["recall"]) == (0.0, None, None)
