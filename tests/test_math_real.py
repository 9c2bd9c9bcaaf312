"""Every gold answer of MATH-500 and GSM8K grades correct, and wrong answers planted beside it grade wrong."""

import json
import re
from functools import cache
from pathlib import Path

import pytest

from marti_ext.tasks import verify_many

pytestmark = pytest.mark.real

DATASETS = Path(__file__).parents[2] / "shared/datasets"

# What grades correct although it differs from the gold answer: (gold, planted), by reason.
EXCEPTIONS = {
    "an equation for x is its right-hand side": {("5", "x=5")},
    "units are not compared": {
        (r"864 \mbox{ inches}^2", r"864 \mbox{ inches}^3"),
        (r"15\mbox{ cm}^2", r"15\mbox{ cm}^3"),
    },
    "math-verify leaves infinity out of an interval however it is written": {
        (r"(-\infty, 0]", r"[-\infty, 0]"),
        (r"(-\infty, 2) \cup (3, \infty)", r"[-\infty, 2) \cup (3, \infty)"),
        (r"(2,\infty)", r"(2,\infty]"),
        (r"(5,\infty)", r"(5,\infty]"),
    },
}


@cache
def rows(name):
    path = DATASETS / name
    if not path.exists():
        pytest.skip(f"the raw benchmark file is not at {path}")
    return [json.loads(line) for line in path.read_text().splitlines()]


def math500():
    return rows("math500/test.jsonl")


def gsm8k():
    return rows("gsm8k/test.jsonl")


def final(answer):
    return answer.rpartition("####")[2].strip()


def not_graded(expected, pairs):
    """Those of the `(gold, response)` pairs with another verdict, each with it."""
    verdicts = verify_many(("math", response, gold) for gold, response in pairs)
    return [(pair, verdict) for pair, verdict in zip(pairs, verdicts, strict=True) if verdict.verdict != expected]


def boxed(content):
    return f"So it is $\\boxed{{{content}}}$."


def test_all_math500_solutions_are_correct():
    assert len(math500()) == 500
    assert not_graded("correct", [(row["answer"], row["solution"]) for row in math500()]) == []


def test_all_gsm8k_golds_are_correct():
    assert len(gsm8k()) == 1319
    assert not_graded("correct", [(row["answer"], boxed(final(row["answer"]))) for row in gsm8k()]) == []


def test_gsm8k_working_without_a_box_is_invalid():
    assert not_graded("invalid", [(row["answer"], row["answer"]) for row in gsm8k()]) == []


def test_a_number_beside_gsm8ks_is_wrong():
    golds = [(row["answer"], int(final(row["answer"]).replace(",", ""))) for row in gsm8k()]
    for planted in (lambda n: n + 1, lambda n: n * 10, lambda n: -n - 1, lambda n: n / 2 + 0.25):
        assert not_graded("wrong", [(answer, boxed(planted(number))) for answer, number in golds]) == []


def test_wrong_answers_to_math500_are_wrong():
    """The answer to the next question, and slips in the answer."""
    answers = [row["answer"] for row in math500()]
    others = set(zip(answers, answers[1:] + answers[:1], strict=True))
    pairs = sorted(
        (others | {(gold, slip) for gold in answers for slip in slips(gold)}) - {(gold, gold) for gold in answers}
    )
    assert len(pairs) > 1700
    found = not_graded("wrong", [(gold, boxed(planted)) for gold, planted in pairs])
    excepted = {(gold, boxed(planted)) for group in EXCEPTIONS.values() for gold, planted in group}
    assert {pair for pair, _ in found} == excepted


def slips(gold):
    """Each digit another one, each kind of bracket, sign or relation turned once, 1 added."""
    for digit in re.finditer(r"\d", gold):
        yield gold[: digit.start()] + str((int(digit[0]) + 1) % 10) + gold[digit.end() :]
    swaps = ["+-", "-+", "<>", "><"] + (["([", "[(", ")]", "])"] if r"\infty" in gold or "[" in gold else [])
    for old, new in swaps:
        if old in gold:
            yield gold.replace(old, new, 1)
    yield f"{gold}+1"
