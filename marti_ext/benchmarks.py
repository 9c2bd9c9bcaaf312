"""What policies are measured on: the paper's seven benchmarks, the toy world's three, and files of one's own."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from marti_ext.questions import Question, load_questions

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "data" / "benchmarks"  # data/prepare.py writes it
PAPER = ("gsm8k", "math500", "humaneval", "mbpp", "scibench", "gpqa", "mmlu")  # the columns of Table 1
TOY = {"toy-math": "math", "toy-coding": "coding", "toy-science": "science"}


@dataclass(frozen=True)
class Benchmark:
    """`stand_in` names the sources that take the place of what could not be had; they are told apart in every table."""

    name: str
    questions: tuple[Question, ...]
    stand_in: str = ""

    @property
    def label(self) -> str:
        return f"{self.name} (stand-in: {self.stand_in})" if self.stand_in else self.name

    @property
    def checksum(self) -> str:
        """Of the questions, the same for the same questions in the same order."""
        text = json.dumps([vars(question) for question in self.questions], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def folder_of(name: str) -> str:
    """What its answers are kept under."""
    return name if name in PAPER or name in TOY else Path(name).stem


def problem_with(name: str) -> str | None:
    """What is wrong with the name of a benchmark; whether its questions are good, `load` says."""
    if name in TOY or Path(name).is_file():
        return None
    if name not in PAPER:
        return f"{name}: no such benchmark and no such file; known: {', '.join((*PAPER, *TOY))}, or a file of questions"
    if not (FOLDER / f"{name}.jsonl").is_file():
        return f"{name}: {FOLDER / name}.jsonl is not there; .venv/bin/python data/prepare.py makes it (data/README.md)"
    return None


def load(name: str, limit: int | None = None) -> Benchmark:
    """The first `limit` questions of a benchmark, or of a file of question records. Raises ValueError, BadData."""
    if problem := problem_with(name):
        raise ValueError(problem)
    if name in TOY:
        questions = [one for one in load_questions(ROOT / "data/toy/test.jsonl") if one.task == TOY[name]]
    else:
        questions = load_questions(FOLDER / f"{name}.jsonl" if name in PAPER else Path(name))
    sources = {one.source.removeprefix("stand-in:") for one in questions if one.source.startswith("stand-in:")}
    return Benchmark(folder_of(name), tuple(questions[:limit]), ", ".join(sorted(sources)))
