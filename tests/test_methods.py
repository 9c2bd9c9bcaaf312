"""The ablations and baselines: who says what to whom, and rewards worked out by hand."""

import asyncio
import random
from collections import Counter

import pytest
from engines import speakers
from hypothesis import given
from hypothesis import strategies as st

from marti_ext.batches import preference_pairs, whole_batches
from marti_ext.config import METHODS
from marti_ext.methods.comas_without_scoring import extract_judgment
from marti_ext.methods.srlm import extract_rating
from marti_ext.questions import Question
from marti_ext.rollout import Limits, Progress, Rollout
from marti_ext.trajectory import Trajectory, Turn

MATH = Question("q1", "math", "test", "What is 1/2 + 1/4?", r"\frac{3}{4}")
SCIENCE = Question("q2", "science", "test", "How far in m?", "7.5")
ROLES = {"Solution to score": "scoring", "Solution to judge": "evaluation", "Solution to rate": "rating"}


def make(name: str, agents: int = 1, **options):
    return METHODS[name](METHODS[name].Options(**options), agents)


def role_of(prompt: str) -> str:
    return next((role for heading, role in ROLES.items() if heading in prompt), "solution")


def discuss(method, script, question: Question = MATH, seed: int = 0) -> Trajectory:
    rollout = Rollout(method, speakers(script, method.num_agents), Limits(4096, 64, 1.0), seed)

    async def run():
        return [one async for one in rollout.run([question], 1, 1, Progress())]

    (trajectory,) = asyncio.run(run())
    assert len(trajectory.turns) == method.turns_per_discussion()
    return trajectory


def told(question: Question = MATH) -> Trajectory:
    return Trajectory(question, "test")


def say(trajectory: Trajectory, role: str, response: str, *parents: Turn, agent: str = "a1", round: int = 1) -> Turn:
    turn = Turn(len(trajectory.turns), agent, agent, role, round, [parent.id for parent in parents], response=response)
    trajectory.turns.append(turn)
    return turn


def rewards(trajectory: Trajectory, role: str = "solution") -> list[float | None]:
    return [turn.reward for turn in trajectory.of(role)]


# ── CoMAS without evaluation ──


def test_without_evaluation_the_score_alone_is_the_reward():
    trajectory = told()
    for scores in (["<score>3</score>"], ["<score>2</score>", "<score>1</score>"], ["no"]):
        solution = say(trajectory, "solution", "S")
        for score in scores:
            say(trajectory, "scoring", score, solution)
    make("comas_without_evaluation").reward(trajectory)
    assert rewards(trajectory) == [1.0, 0.25, 0.0]
    assert rewards(trajectory, "scoring") == [0.0, 0.0, 0.0, -1.0]


def test_without_evaluation_nobody_evaluates():
    method = make("comas_without_evaluation", 2, rounds=3, horizon=1)
    trajectory = discuss(method, lambda prompt, seed: f"{role_of(prompt)}{seed % 1000} <score>2</score>")
    assert Counter(turn.role for turn in trajectory.turns) == {"solution": 3, "scoring": 3}
    first, second, _ = trajectory.of("solution")
    assert first.response in second.prompt
    for scoring in trajectory.of("scoring"):
        assert trajectory.turns[scoring.parents[0]].response in scoring.prompt
        assert "valuation" not in scoring.prompt
        assert "Discussion" not in scoring.prompt
    assert rewards(trajectory) == [0.5] * 3


# ── CoMAS without scoring ──

RIGHT, WRONG, UNCLEAR = "<judgment>correct</judgment>", "<judgment>incorrect</judgment>", "I think it is correct."


def test_without_scoring_evaluators_are_rewarded_for_agreement():
    trajectory = told()
    for judgments in ([RIGHT, RIGHT], [RIGHT, WRONG], [WRONG, UNCLEAR], [UNCLEAR, UNCLEAR]):
        solution = say(trajectory, "solution", "S")
        for judgment in judgments:
            say(trajectory, "evaluation", judgment, solution)
    method = make("comas_without_scoring")
    method.reward(trajectory)
    assert rewards(trajectory) == [1.0, 0.5, 0.0, 0.0]
    assert rewards(trajectory, "evaluation") == [1.0, 1.0, 0.0, 0.0, None, -1.0, -1.0, -1.0]
    method.options.unreadable = "drop"
    method.reward(trajectory)
    assert rewards(trajectory) == [1.0, 0.5, 0.0, None]


def test_without_scoring_agreement_is_a_share_of_the_readable_others():
    trajectory = told()
    solution = say(trajectory, "solution", "S")
    for judgment in (RIGHT, RIGHT, WRONG, UNCLEAR, RIGHT):
        say(trajectory, "evaluation", judgment, solution)
    make("comas_without_scoring", evaluations=5).reward(trajectory)
    assert rewards(trajectory) == [0.75]
    assert rewards(trajectory, "evaluation") == [2 / 3, 2 / 3, 0.0, -1.0, 2 / 3]


@pytest.mark.parametrize(
    ("response", "judgment"),
    [
        (RIGHT, 1),
        (WRONG, 0),
        ("<judgment>incorrect</judgment> no, <judgment> correct\n</judgment>", 1),
        ("<judgment>right</judgment>", None),
        ("<judgment>correct", None),
        ("<judgment>Correct</judgment>", None),
        ("", None),
    ],
)
def test_the_last_judgment_counts_and_nothing_is_guessed(response, judgment):
    assert extract_judgment(response) == judgment


def test_without_scoring_judgments_enter_the_discussion():
    method = make("comas_without_scoring", 2, rounds=2)
    trajectory = discuss(method, lambda prompt, seed: f"{role_of(prompt)}{seed % 1000} {RIGHT}")
    assert Counter(turn.role for turn in trajectory.turns) == {"solution": 2, "evaluation": 4}
    assert all(turn.response in trajectory.of("solution")[1].prompt for turn in trajectory.of("evaluation")[:2])
    assert rewards(trajectory) == [1.0, 1.0]


# ── The verifier, and TTRL ──


def box(answer: str) -> str:
    return rf"It is \boxed{{{answer}}}."


def test_the_verifiers_verdict_is_the_reward_of_everyone_who_works_alone():
    answers = [r"\frac{3}{4}", "0.75", "0.7", "3/4"]
    trajectory = discuss(make("verifier", 2, samples=4), lambda prompt, seed: box(answers[seed % 4]))
    for turn in trajectory.turns:
        assert not turn.parents
        assert turn.reward == float("0.7}" not in turn.response)
    assert Counter(turn.agent for turn in trajectory.turns) == {"a1": 4, "a2": 4}


def test_the_majoritys_answer_is_the_label_whatever_form_it_has():
    trajectory = told()
    for answer in (box("0.5"), box("3/4"), box("0.75"), "no box", box(r"\frac{1}{2}"), box(r"\frac{6}{8}")):
        say(trajectory, "solution", answer)
    say(trajectory, "solution", box("9"), agent="a2")
    method = make("ttrl", 2)
    method.reward(trajectory)
    assert rewards(trajectory) == [0.0, 1.0, 1.0, 0.0, 0.0, 1.0, 1.0]  # a2 has a majority of its own
    method.measure(trajectory)
    assert trajectory.metrics == {"majority_share": (3 / 6 + 1) / 2, "label_accuracy": 0.5}


def test_of_equally_frequent_answers_the_first_is_the_label():
    trajectory = told()
    for answer in (box("2"), box("1"), box("1"), box("2")):
        say(trajectory, "solution", answer)
    make("ttrl").reward(trajectory)
    assert rewards(trajectory) == [1.0, 0.0, 0.0, 1.0]


def test_without_a_readable_answer_there_is_no_label():
    trajectory = told()
    say(trajectory, "solution", "no box")
    method = make("ttrl")
    method.reward(trajectory)
    method.measure(trajectory)
    assert rewards(trajectory) == [0.0]
    assert trajectory.metrics == {"majority_share": 0.0, "label_accuracy": 0.0}


@pytest.mark.parametrize(("elsewhere", "reward"), [("constant", 0.5), ("skip", None)])
def test_outside_mathematics_ttrl_has_no_labels(elsewhere, reward):
    method = make("ttrl", samples=2, elsewhere=elsewhere)
    trajectory = discuss(method, lambda prompt, seed: box("7.5"), SCIENCE)
    assert rewards(trajectory) == [reward, reward]
    assert trajectory.metrics == {}


# ── MAPoRL ──


def test_in_the_debate_everyone_reads_itself_and_at_most_two_others():
    trajectory = discuss(make("maporl", 4), lambda prompt, seed: f"S{seed % 10_000}.")
    first, second = trajectory.turns[:4], trajectory.turns[4:]
    assert all("Solution 1" not in turn.prompt for turn in first)
    orders = set()
    for own, turn in zip(first, second, strict=True):
        assert (turn.agent, turn.round) == (own.agent, 2)
        shown = [other for other in first if other.response in turn.prompt]
        assert own in shown
        assert len(shown) == 3
        assert sorted(turn.parents) == [other.id for other in shown]
        orders.add(tuple(turn.parents).index(own.id))
    assert len(orders) > 1  # one's own is not always at the same place


def debate(*rounds: str) -> Trajectory:
    """A debate of two; each round has a letter for each, r(ight) or w(rong)."""
    trajectory = told()
    for number, verdicts in enumerate(rounds, 1):
        for agent, verdict in enumerate(verdicts, 1):
            say(trajectory, "solution", box("3/4" if verdict == "r" else "1"), agent=f"a{agent}", round=number)
    return trajectory


def test_a_debater_is_rewarded_for_its_own_answer():
    trajectory = debate("rw", "rr", "wr")
    make("maporl", 2).reward(trajectory)
    assert rewards(trajectory) == [1.0, 0.0, 1.0, 1.0, 0.0, 1.0]


def test_influence_adds_what_followed_discounted():
    trajectory = debate("rw", "rr", "wr")
    make("maporl", 2, rewards="influence", discount=0.5).reward(trajectory)
    # round 1: weights 1, 1/2, 1/4; later rounds have 1 and 1/2 right: (own + 0.5 + 0.125) / 1.75
    # round 2: (own + 0.25) / 1.5; round 3: own
    expected = [1.625 / 1.75, 0.625 / 1.75, 1.25 / 1.5, 1.25 / 1.5, 0.0, 1.0]
    assert rewards(trajectory) == pytest.approx(expected)


# ── SRLM ──


@given(st.text("<>/score 12345") | st.text())
def test_no_text_makes_a_rating_fail(text):
    assert extract_rating(text) in (None, 0, 1, 2, 3, 4, 5)


@pytest.mark.parametrize(
    ("response", "points"),
    [("<score>0</score>", 0), ("<score> 5 </score>", 5), ("<score>6</score>", None), ("<score>2.5</score>", None)],
)
def test_points_go_from_0_to_5(response, points):
    assert extract_rating(response) == points


def test_a_solution_gets_the_mean_of_its_own_authors_ratings():
    trajectory = told()
    for ratings in (["<score>5</score>", "<score>4</score>", "?"], ["<score>1</score>"], ["?", "<score>7</score>"]):
        solution = say(trajectory, "solution", "S")
        for rating in ratings:
            say(trajectory, "rating", rating, solution)
    make("srlm").reward(trajectory)
    assert rewards(trajectory) == [4.5, 1.0, None]
    assert rewards(trajectory, "rating") == [None] * 6
    assert [turn.score for turn in trajectory.of("rating")] == [5, 4, None, 1, None, None]


def test_agents_rate_what_they_wrote_themselves():
    method = make("srlm", 2, samples=3, ratings=2)
    trajectory = discuss(method, lambda prompt, seed: f"{role_of(prompt)}{seed % 1000} <score>3</score>")
    assert Counter((turn.agent, turn.role) for turn in trajectory.turns) == {
        (agent, role): count for agent in ("a1", "a2") for role, count in (("solution", 3), ("rating", 6))
    }
    for rating in trajectory.of("rating"):
        (solution,) = (trajectory.turns[parent] for parent in rating.parents)
        assert solution.agent == rating.agent
        assert solution.response in rating.prompt


# ── Pairs ──


def rewarded(number: int, prompt: int, reward: float, length: int = 2) -> Turn:
    made = Turn(number, "a", "a", "solution", 1, [], reward=reward)
    made.prompt_ids, made.response_ids = [prompt] * 3, [1] * length
    return made


def test_pairs_are_the_best_and_the_worst_of_a_prompt_and_ties_are_dropped():
    turns = [rewarded(k, k % 2, reward) for k, reward in enumerate([4.0, 2.0, 5.0, 2.0, 1.0, 2.0, 5.0, 2.0])]
    assert [[turn.id for turn in pair] for pair in preference_pairs(turns)] == [[2, 4]]


@given(st.integers(0, 20), st.sampled_from([2, 4, 8]), st.sampled_from([1, 2]))
def test_batches_never_part_a_pair(count, batch, actors):
    pairs = [[rewarded(2 * k, k, 1.0, 1 + k % 5), rewarded(2 * k + 1, k, 0.0)] for k in range(count)]
    kept = whole_batches(pairs, batch * actors, random.Random(0), actors)
    assert len(kept) == 2 * count // (batch * actors) * batch * actors
    for best, worst in zip(kept[0::2], kept[1::2], strict=True):
        assert best.prompt_ids == worst.prompt_ids
        assert (best.reward, worst.reward) == (1.0, 0.0)


@pytest.mark.parametrize("name", METHODS)
def test_a_method_gets_the_answer_only_if_it_judges_by_it(name):
    method = make(name, 2)
    seen = []
    reward = method.reward

    def spy(trajectory):
        seen.append(trajectory.question.answer)
        reward(trajectory)

    method.reward = spy
    discuss(method, lambda prompt, seed: f"{box('1')} <score>2</score> {RIGHT}")
    assert seen == ([MATH.answer] if name in ("maporl", "verifier") else [None])
