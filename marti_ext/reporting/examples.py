"""Appendices I and J: a full discussion and both failure modes, picked by rule from the last steps of our own runs."""

import json
from collections.abc import Callable
from pathlib import Path

from marti_ext.rundir import step_files
from marti_ext.tasks import verify
from marti_ext.trajectory import Trajectory, Turn, read_trajectories


def _right(trajectory: Trajectory, solution: Turn) -> bool:
    question = trajectory.question
    return verify(question.task, solution.response, question.answer).correct


def learns_from_criticism(trajectory: Trajectory) -> bool:
    """A wrong solution with the lowest score comes before a right one with the highest."""
    scored = [(one.reward, _right(trajectory, one)) for one in trajectory.of("solution")]
    return (0.0, False) in scored and (1.0, True) in scored[scored.index((0.0, False)) :]


def too_strict(trajectory: Trajectory) -> bool:
    """Right solutions, and all of them have the lowest score."""
    solutions = trajectory.of("solution")
    return all(one.reward == 0.0 for one in solutions) and any(_right(trajectory, one) for one in solutions)


def too_kind(trajectory: Trajectory) -> bool:
    """A wrong solution that every evaluation calls correct."""
    return any(one.reward == 1.0 and not _right(trajectory, one) for one in trajectory.of("solution"))


RULES: dict[str, tuple[str, Callable[[Trajectory], bool]]] = {
    "Appendix I: a discussion": ("comas", learns_from_criticism),
    "Appendix J: failure without evaluation": ("comas_without_evaluation", too_strict),
    "Appendix J: failure without scoring": ("comas_without_scoring", too_kind),
}


def pick(runs: Path, profile: str) -> list[dict]:
    """For each rule the first trajectory that fits, of the latest step that has one; runs in the order of their seeds."""
    picked = []
    for title, (variant, fits) in RULES.items():
        for run in sorted(runs.glob(f"{profile}-{variant}-seed*")):
            if found := _last(run, fits):
                step, trajectory = found
                picked.append({"title": title, "run": run.name, "step": step} | json.loads(trajectory.to_json()))
                break
    return picked


def _last(run: Path, fits: Callable[[Trajectory], bool]) -> tuple[int, Trajectory] | None:
    for step, file in reversed(step_files(run / "trajectories")):
        for trajectory in sorted(
            (one for *_, one in read_trajectories(file)), key=lambda one: (one.question.id, one.copy)
        ):
            if fits(trajectory):
                return step, trajectory
    return None


def to_markdown(example: dict) -> str:
    """An example as it is read in a notebook: who said what, score and reward."""
    rule = RULES[example["title"]][1].__doc__
    parts = [
        f"## {example['title']}",
        f"*{rule}* Run `{example['run']}`, step {example['step']}, question `{example['question']['id']}`.",
        _quoted(example["question"]["prompt"]),
        f"Answer: `{' '.join(example['question']['answer'].split())}`",
    ]
    for turn in example["turns"]:
        numbers = [f"{key} {turn[key]:g}" for key in ("score", "reward") if turn[key] is not None]
        parts += [
            f"**{turn['role']}** of {turn['agent']}, round {turn['round']}: {', '.join(numbers)}",
            _quoted(turn["response"]),
        ]
    return "\n\n".join(parts)


def _quoted(text: str) -> str:
    """As it stands, whatever a model wrote: an indented block has no end that a text could contain."""
    return "\n".join(f"    {line}" for line in text.splitlines())
