"""Measures policies: benchmarks under setups, a verdict for every question, one file for every cell.

A cell is one subject (a policy, or several that take turns) on one benchmark under one setup with one seed. Its file is
ROOT/SUBJECT/BENCHMARK/SETUP/seed_N.jsonl, a line a question as it is answered, so that a cell that was cut off goes on
where it stopped. A question that could not be asked or judged is a line with `error`; it is asked again next time, and
never counts as wrong.
"""

import asyncio
import itertools
import json
import random
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from marti_ext.benchmarks import Benchmark
from marti_ext.methods.method import Method
from marti_ext.progress import Display, clock
from marti_ext.questions import Question
from marti_ext.rollout import Limits, Progress, Rollout, Speaker
from marti_ext.rundir import write_atomically
from marti_ext.setups import SETUPS
from marti_ext.tasks import verify, verify_many
from marti_ext.trajectory import Trajectory


class Graded(Method):
    """A setup as the rollout knows methods: the verdict on its answer takes the place of rewards."""

    sees_answers = True

    def __init__(self, setup: Any) -> None:
        super().__init__(SimpleNamespace(name=setup.name), num_agents=1)
        self.setup = setup

    async def run(self, question: Question, agents: list, rng: random.Random) -> None:
        await self.setup.run(question, agents, rng)

    def reward(self, trajectory: Trajectory) -> None:
        question, turn = trajectory.question, self.setup.answer(trajectory)
        trajectory.verdict = {"turn": turn.id, **asdict(verify(question.task, turn.response, question.answer))}


# ── One cell ──


@dataclass(frozen=True)
class Cell:
    subject: str
    benchmark: Benchmark
    setup: str
    seed: int

    def file(self, root: Path) -> Path:
        return root / self.subject / self.benchmark.name / self.setup / f"seed_{self.seed}.jsonl"


async def measure(cell: Cell, root: Path, speakers: list[Speaker], limits: Limits, progress: Progress) -> None:
    """Asks what the cell's file does not answer yet; all questions are in flight at once. `progress` is this cell's own."""
    file = cell.file(root)
    file.parent.mkdir(parents=True, exist_ok=True)
    lines = {line["question"]["id"]: line for line in read_cell(file) if "error" not in line}
    before = max((line["seconds"] for line in lines.values()), default=0.0)
    _write(file, lines.values())
    open_questions = [question for question in cell.benchmark.questions if question.id not in lines]
    progress.questions_done += len(lines)
    began = time.time()
    rollout = Rollout(Graded(SETUPS[cell.setup]()), speakers, limits, cell.seed)
    with open(file, "a", encoding="utf-8") as out:
        async for trajectory in rollout.run(open_questions, step=0, copies=1, progress=progress):
            shortened = sum(turn.shortened or turn.cut for turn in trajectory.turns)
            clock = {"shortened_prompts": shortened, "seconds": round(before + time.time() - began, 3)}
            line = json.loads(trajectory.to_json()) | clock
            lines[trajectory.question.id] = line
            out.write(json.dumps(line, ensure_ascii=False) + "\n")
            out.flush()
    by_id = {question.id: question for question in cell.benchmark.questions}
    for failed, why in progress.failed:
        lines[failed] = {"question": asdict(by_id[failed]), "error": why, "seconds": 0.0}
    _write(file, (lines[question.id] for question in cell.benchmark.questions))


def read_cell(file: Path) -> list[dict[str, Any]]:
    """The whole lines of a cell's file, none if there is no file. Raises ValueError at a line that is none."""
    if not file.exists():
        return []
    *whole, last = file.read_bytes().split(b"\n")  # what has no end yet was cut by a kill
    lines = []
    for number, line in enumerate(whole, 1):
        try:
            lines.append(json.loads(line))
        except ValueError as error:
            raise ValueError(
                f"{file}, line {number}: not JSON ({error}); remove the file to measure it again"
            ) from None
    return lines


def _write(file: Path, lines) -> None:
    write_atomically(file, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))


# ── All cells of some subjects ──


class OtherSettings(ValueError):
    """A folder holds cells that were measured in another way."""


def claim(root: Path, settings: dict[str, Any], look_only: bool = False) -> None:
    """Notes in ROOT/settings.json what its cells are measured with, and what is compared with what (`subject ...`).
    Raises OtherSettings if what was noted earlier is different."""
    file = root / "settings.json"
    known = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    differing = [
        f"{key} was {known[key]}, is {value}"
        for key, value in settings.items()
        if known.get(key, value) != value and not key.startswith("subject ")
    ]
    if differing:
        raise OtherSettings(f"{root} holds measurements made otherwise: {'; '.join(differing)}. Choose another folder")
    if look_only:
        return
    root.mkdir(parents=True, exist_ok=True)
    write_atomically(file, json.dumps(known | settings, indent=1) + "\n")


def first_of_each(policies: dict[str, str]) -> dict[str, str]:
    """model -> the first policy with it. Untrained, policies with the same model are the same."""
    return {model: next(name for name in policies if policies[name] == model) for model in policies.values()}


@dataclass(frozen=True)
class Plan:
    """Which cells are measured of every subject, in this order, and how."""

    benchmarks: tuple[Benchmark, ...]
    setups: tuple[str, ...]
    seeds: tuple[int, ...]
    limits: Limits

    def cells(self, subject: str) -> list[Cell]:
        return [Cell(subject, *rest) for rest in itertools.product(self.benchmarks, self.setups, self.seeds)]

    def settings(self) -> dict[str, Any]:
        sizes = {key: getattr(self.limits, key) for key in ("temperature", "max_prompt_tokens", "max_response_tokens")}
        checksums = {
            f"benchmark {one.name}": {"label": one.label, "questions": len(one.questions), "checksum": one.checksum}
            for one in self.benchmarks
        }
        return sizes | checksums


async def evaluate(
    root: Path, subjects: dict[str, list[Speaker]], plan: Plan, display: Display, before: int = 0, after: int = 0
) -> None:
    """Measures every cell that is not complete yet. Subjects at the same time, the cells of a subject in turn; what
    failed is asked once more at the end. `before` and `after` are how many subjects were and will be measured beside these."""
    cells = [cell for subject in subjects for cell in plan.cells(subject)]
    kept = sum(_answered(cell, root) for cell in cells)
    questions = sum(len(cell.benchmark.questions) for cell in cells)
    done_before, to_come = (others * questions // len(subjects) for others in (before, after))
    under_way: dict[str, Cell] = {}
    progress: list[Progress] = []  # of the cells so far

    async def one(subject: str, speakers: list[Speaker]) -> None:
        for again in (False, True):
            for cell in plan.cells(subject):
                if again and is_complete(cell, root):
                    continue
                under_way[subject] = cell
                progress.append(Progress())
                await measure(cell, root, speakers, plan.limits, progress[-1])
                display.say(outcome(cell, root))

    def describe(seconds: float) -> str:
        now = ", ".join(f"{subject} {cell.benchmark.name} {cell.setup}" for subject, cell in under_way.items())
        done, tokens = (sum(getattr(part, what) for part in progress) for what in ("questions_done", "tokens"))
        done = min(done, questions)
        left = (questions - done + to_come) * seconds / (done - kept) if done > kept else None
        return (
            f"evaluating  {done_before + done}/{done_before + questions + to_come} answers, "
            f"{tokens / max(seconds, 1):,.0f} tokens/s{'' if left is None else f', about {clock(left)} left'}  ({now})"
        )

    await display.during(asyncio.gather(*(one(*each) for each in subjects.items())), describe)


def _answered(cell: Cell, root: Path) -> int:
    return sum("error" not in line for line in read_cell(cell.file(root)))


def is_complete(cell: Cell, root: Path) -> bool:
    answered = {line["question"]["id"] for line in read_cell(cell.file(root)) if "error" not in line}
    return answered.issuperset(question.id for question in cell.benchmark.questions)


def summarize(file: Path, questions: int) -> dict[str, Any]:
    """What a cell's file holds, in numbers; shares are of the answers that were judged, None without any. `errors` are
    all of its questions that were not."""
    lines = read_cell(file)
    judged = [line for line in lines if "error" not in line]
    verdicts = Counter(line["verdict"]["verdict"] for line in judged)
    tokens = [sum(turn["num_tokens"] for turn in line["turns"]) for line in judged]
    return {
        "questions": questions,
        "errors": questions - len(judged),
        "accuracy": _share(verdicts["correct"], len(judged)),
        "invalid": _share(verdicts["invalid"], len(judged)),
        "tokens": _share(sum(tokens), len(judged)),  # generated, per question
        "shortened_prompts": sum(line["shortened_prompts"] for line in judged),
        "seconds": max((line["seconds"] for line in lines), default=0.0),
    }


def outcome(cell: Cell, root: Path) -> str:
    """A line about a finished cell."""
    numbers = summarize(cell.file(root), len(cell.benchmark.questions))
    accuracy, invalid = (f"{numbers[key]:.1%}" if numbers[key] is not None else "--" for key in ("accuracy", "invalid"))
    errors = f", {numbers['errors']} ERRORS left out" if numbers["errors"] else ""
    where = f"{cell.subject}  {cell.benchmark.label}  {cell.setup}  seed {cell.seed}"
    return f"{where}: {accuracy} of {numbers['questions']}, invalid {invalid}, {numbers['seconds']:.0f} s{errors}"


# ── Whether rewards tell right from wrong (Appendix G, Table 6) ──


def reward_effectiveness(trajectories: list[Trajectory]) -> dict[str, float | None]:
    """Accuracy of the solutions; precision and recall of their rewards against the verifier. Runs verifiers.

    A reward counts as "correct" at 1 (every score was 3), or, `at_2`, from 1/2 on (a score of 2). Shares, None where
    nothing was predicted or nothing is right.
    """
    solutions = [(one.question, turn) for one in trajectories for turn in one.of("solution") if turn.reward is not None]
    triples = ((question.task, turn.response, question.answer) for question, turn in solutions)
    right = [verdict.correct for verdict in verify_many(triples)]

    def against(threshold: float) -> tuple[float | None, float | None]:
        positive = [turn.reward >= threshold for _, turn in solutions]
        hits = sum(a and b for a, b in zip(positive, right, strict=True))
        return _share(hits, sum(positive)), _share(hits, sum(right))

    (precision, recall), (precision_at_2, recall_at_2) = against(1.0), against(0.5)
    return {
        "solutions": len(solutions),
        "accuracy": _share(sum(right), len(right)),
        "precision": precision,
        "recall": recall,
        "precision_at_2": precision_at_2,
        "recall_at_2": recall_at_2,
    }


def _share(count: int, of: int) -> float | None:
    return count / of if of else None
