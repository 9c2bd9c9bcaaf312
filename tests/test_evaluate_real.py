"""The real benchmark files under all four setups, against a server that answers right, wrong or unreadably.

A few questions of each; with MARTI_ALL_QUESTIONS=1 all 2,861 of them (about 20 minutes a kind on two cores).
"""

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest
from endpoint import Finder, serving
from test_benchmarks_real import REAL, SLOW, solutions

from marti_ext import benchmarks, cli
from marti_ext.benchmarks import PAPER, load
from marti_ext.setups import PAPER as SETUPS

ROOT = Path(__file__).parent.parent
ALL = os.environ.get("MARTI_ALL_QUESTIONS") == "1"
pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(not (REAL / "mmlu").is_dir(), reason=f"the real files are not here: {REAL}"),
    pytest.mark.timeout(7200 if ALL else 300),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """data/benchmarks as data/prepare.py makes it of the real files; GPQA is a stand-in where only its diamond set is."""
    out = tmp_path_factory.mktemp("data")
    command = [sys.executable, ROOT / "data/prepare.py", "--raw", REAL, "--stand-ins", "--out", out, "--only", *PAPER]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return out / "benchmarks"


def right(question, code: dict[str, str]) -> str:
    """The gold answer in the form that the prompt asks for."""
    if question.task == "coding":
        return f"```python\n{code[question.id]}\n```"
    return f"Hence \\boxed{{{question.answer.rpartition('####')[2].strip()}}}."


def wrong(question) -> str:
    """Readable and not right."""
    if question.task == "coding":
        return "```python\ndef no_such_function():\n    pass\n```"
    if question.task == "choice":
        return f"\\boxed{{{'B' if question.answer.strip() == 'A' else 'A'}}}"
    if question.task == "science":
        return f"\\boxed{{{2 * float(question.answer.replace(',', '')) or 1.0}}}"
    return "\\boxed{-98765.4321}"


@pytest.mark.parametrize(("kind", "accuracy", "invalid"), [("right", 100, 0), ("wrong", 0, 0), ("unreadable", 0, 100)])
def test_all_benchmarks_under_all_setups(folder, tmp_path, monkeypatch, kind, accuracy, invalid):
    monkeypatch.setattr(benchmarks, "FOLDER", folder)
    code = {key: text for name in ("humaneval", "mbpp") for key, (text, _) in solutions(name).items()}
    questions = [question for name in PAPER for question in load(name).questions]
    find = Finder(questions)

    def script(prompt: str, seed: int) -> str:
        question = find(prompt)
        if question is None:
            return "Hello"
        return {"right": right(question, code), "wrong": wrong(question), "unreadable": "I cannot tell."}[kind]

    limit = [] if ALL else ["--limit", "6"]
    with serving(script) as server:
        options = ["--endpoint", server.url, "--model", "scripted", "--out", str(tmp_path), *limit]
        cli.main(["evaluate", *options])
    with open(tmp_path / "summary.csv", newline="") as file:
        table = list(csv.DictReader(file))
    assert len(table) == len(PAPER) * len(SETUPS)
    for row in table:
        slow = 100 * len(SLOW) / int(row["questions"]) if row["benchmark"] == "mbpp" and ALL and accuracy else 0
        assert accuracy - slow <= float(row["accuracy"]) <= accuracy, row
        assert (float(row["invalid"]), row["errors"]) == (invalid, "0"), row
