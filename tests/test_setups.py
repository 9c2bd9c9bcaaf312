"""The inference setups with scripted agents: who is asked what, in answer to whom, and which turn is graded."""

import asyncio
import json

import pytest
from engines import speakers

from marti_ext.evaluation import Graded
from marti_ext.questions import Question
from marti_ext.rollout import Limits, Progress, Rollout
from marti_ext.setups import PAPER, SETUPS

QUESTION = Question("q", "math", "test", "What is 1 + 1?", "2")


def ask(setup: str, script, question: Question = QUESTION, agents: int = 1):
    rollout = Rollout(Graded(SETUPS[setup]()), speakers(script, agents), Limits(100_000, 10_000, 0.7), seed=3)

    async def run():
        return [one async for one in rollout.run([question], 0, 1, Progress())]

    (trajectory,) = asyncio.run(run())
    return trajectory


def boxed(*numbers: int):
    """A script whose calls answer with these numbers, in turn."""
    left = list(numbers)
    return lambda prompt, seed: f"\\boxed{{{left.pop(0)}}}"


def test_vanilla_is_one_call():
    trajectory = ask("vanilla", boxed(2))
    assert len(trajectory.turns) == 1 and trajectory.verdict["verdict"] == "correct"
    assert trajectory.verdict["extracted"] == "2" and trajectory.verdict["turn"] == 0


def test_consistency_reads_five_solutions_and_writes_the_sixth():
    trajectory = ask("consistency", boxed(11, 12, 13, 14, 15, 2))
    *samples, last = trajectory.turns
    assert len(samples) == 5 and len({turn.prompt for turn in samples}) == 1
    assert len({turn.seed for turn in samples}) == 5
    assert last.role == "aggregation" and last.parents == [0, 1, 2, 3, 4]
    assert all(f"Solution {k}:\n{turn.response}" in last.prompt for k, turn in enumerate(samples, 1))
    assert trajectory.verdict["turn"] == last.id and trajectory.verdict["verdict"] == "correct"


@pytest.mark.parametrize(
    ("answers", "extracted"),
    [((5, 2, 2, 5, 2), "2"), ((5, 2, 2, 5, 7), "5"), ((5, 2, 3, 4, 7), "5")],
)
def test_the_vote_goes_to_the_most_frequent_answer_and_then_to_the_first(answers, extracted):
    trajectory = ask("vote", boxed(*answers))
    assert len(trajectory.turns) == 5 and trajectory.verdict["extracted"] == extracted


def test_an_answer_that_cannot_be_read_has_no_vote():
    left = ["?", "?", "?", "\\boxed{2.0}", "?"]
    assert ask("vote", lambda prompt, seed: left.pop(0)).verdict["verdict"] == "correct"
    assert ask("vote", lambda prompt, seed: "?").verdict["verdict"] == "invalid"


@pytest.mark.parametrize(
    ("task", "alike", "other"),
    [
        ("math", ["\\boxed{\\frac12}", "\\boxed{ \\frac12 }"], "\\boxed{3}"),
        ("choice", ["\\boxed{B}", "\\boxed{\\text{(b)}}"], "\\boxed{A}"),
        ("science", ["\\boxed{3.5}", "\\boxed{3.5}"], "\\boxed{4}"),
        ("coding", ["```python\nx = 1\n```", "So:\n```python\nx = 1\n```"], "```python\nx = 2\n```"),
    ],
)
def test_every_task_has_votes(task, alike, other):
    gold = {"math": "1/2", "choice": "B", "science": "3.5", "coding": "assert x == 1"}[task]
    left = [other, *alike, "no answer", alike[0]]
    question = Question("q", task, "test", "?", gold)
    assert ask("vote", lambda prompt, seed: left.pop(0), question).verdict["turn"] == 1


def test_assistant_and_user_talk_until_the_last_turn():
    said = iter(range(1, 10))
    trajectory = ask("autogen", lambda prompt, seed: f"message {next(said)} \\boxed{{2}}")
    assert [turn.role for turn in trajectory.turns] == ["assistant", "user", "assistant", "user", "assistant"]
    assert [turn.parents for turn in trajectory.turns] == [[], [0], [1], [2], [3]]
    last = trajectory.turns[-1].prompt
    assert last.index("Assistant:\nmessage 1") < last.index("User:\nmessage 2") < last.index("Assistant:\nmessage 3")
    assert trajectory.verdict["turn"] == 4


def test_the_stop_word_ends_the_conversation_and_the_assistant_is_graded():
    trajectory = ask("autogen", lambda prompt, seed: "\\boxed{2} TERMINATE")
    assert len(trajectory.turns) == 1
    replies = ["\\boxed{2}", "\\boxed{3} TERMINATE"]
    trajectory = ask("autogen", lambda prompt, seed: replies.pop(0))
    assert len(trajectory.turns) == 2 and trajectory.verdict["turn"] == 0


def test_debaters_read_the_others_and_their_own_solution():
    trajectory = ask("debate", boxed(11, 12, 13, 21, 22, 23, 2))
    turns = trajectory.turns
    assert [turn.round for turn in turns] == [1, 1, 1, 2, 2, 2, 3]
    second = turns[4]
    assert second.parents == [0, 1, 2] and "Your solution:\n\\boxed{12}" in second.prompt
    assert "Solution 1:\n\\boxed{11}" in second.prompt and "Solution 2:\n\\boxed{13}" in second.prompt
    assert turns[6].parents == [3, 4, 5] and "\\boxed{22}" in turns[6].prompt and "\\boxed{12}" not in turns[6].prompt
    assert trajectory.verdict == {"turn": 6, "verdict": "correct", "extracted": "2", "reason": "same text"}


@pytest.mark.parametrize("setup", SETUPS)
@pytest.mark.parametrize("agents", [1, 2, 4])
def test_several_policies_take_turns(setup, agents):
    """One plays every participant; of several, each plays as soon as there are participants for it."""
    trajectory = ask(setup, lambda prompt, seed: "\\boxed{2}", agents=agents)
    assert len(trajectory.turns) == SETUPS[setup].turns
    participants = {"vanilla": 1, "autogen": 2, "debate": 3}.get(setup, 5)
    assert len({turn.agent for turn in trajectory.turns}) == min(agents, participants)


@pytest.mark.parametrize("setup", PAPER)
def test_no_setup_sees_the_answer_and_the_stored_line_is_whole(setup):
    question = Question("q", "math", "test", "What is it?", "31415926")
    trajectory = ask(setup, lambda prompt, seed: "\\boxed{2}", question)
    assert not any("31415926" in turn.prompt for turn in trajectory.turns)
    stored = json.loads(trajectory.to_json())
    assert stored["verdict"]["verdict"] == "wrong" and stored["question"]["answer"] == "31415926"
    assert stored["method"] == setup
