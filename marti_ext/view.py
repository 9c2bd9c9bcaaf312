"""Discussions of a run, readable in a terminal: who said what, in answer to what, score and reward."""

import os
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

from rich.console import Console, Group
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Column, Table
from rich.text import Text

from marti_ext.rundir import step_files
from marti_ext.trajectory import Trajectory, Turn, read_trajectories

COLORS = {"solution": "green", "evaluation": "yellow", "scoring": "cyan"}


def view(run: Path, question: str | None, step: int | None) -> None:
    """Prints the questions of a run, or every discussion of one question. Raises LookupError if there is none."""
    console = Console()
    if question is None:
        console.print(_listing(run, step))
        print(f"python -m marti_ext view {run} --question ID shows the discussions of one")
        return
    found = [(number, one) for number, one in _trajectories(run, step) if one.question.id == question]
    if not found:
        where = "" if step is None else f" in step {step}"
        raise LookupError(f"{run}: no discussion of question {question!r}{where}; `view {run}` lists the questions")
    os.environ.setdefault("LESS", "-FRX")  # R: shows colors
    with console.pager(styles=True) if console.is_terminal else nullcontext():
        for number, trajectory in found:
            console.print(_discussion(number, trajectory))


def _trajectories(run: Path, step: int | None) -> Iterator[tuple[int, Trajectory]]:
    for number, file in step_files(run / "trajectories"):
        if step in (None, number):
            for _, _, trajectory in read_trajectories(file):
                yield number, trajectory


def _listing(run: Path, step: int | None) -> Table:
    table = Table("step", Column("question", no_wrap=True), "task", "turns", "solution rewards", "problem")
    for number, trajectory in _trajectories(run, step):
        question = trajectory.question
        rewards = " ".join(_reward(turn) for turn in trajectory.of("solution"))
        problem = " ".join(question.prompt.split())[:60]
        cells = (str(number), question.id, question.task, str(len(trajectory.turns)), rewards, problem)
        table.add_row(*(Text(plain(cell)) for cell in cells))  # Text: what looks like rich's markup is none
    if not table.row_count:
        raise LookupError(f"{run}: no discussions stored" + (f" for step {step}" if step is not None else ""))
    return table


def _discussion(step: int, trajectory: Trajectory) -> Group:
    question = trajectory.question
    answer = f"\n\nanswer: {question.answer}" if question.answer is not None else ""
    title = Text(plain(f"step {step}  {question.id}  ({question.task})"))
    head = Panel(Text(plain(question.prompt + answer)), title=title)
    return Group(head, *(_turn(turn, depth) for turn, depth in _in_order(trajectory.turns)))


def _in_order(turns: list[Turn], parent: int | None = None, depth: int = 0) -> Iterator[tuple[Turn, int]]:
    """(turn, depth): a solution, under it its evaluations, under these their scorings."""
    for turn in turns:
        if (turn.parents[-1] if turn.parents else None) == parent:
            yield turn, depth
            yield from _in_order(turns, turn.id, depth + 1)


def _turn(turn: Turn, depth: int) -> Padding:
    heading = f"round {turn.round}  {turn.role} #{turn.id} by {turn.agent}"
    heading += f" on {', '.join(f'#{parent}' for parent in turn.parents)}" if turn.parents else ""
    if turn.role == "scoring":
        heading += f"  score {turn.score if turn.score is not None else 'unreadable'}"
    heading += f"  reward {_reward(turn)}"
    heading += "  (truncated)" if turn.truncated else ""
    style = f"bold {COLORS.get(turn.role, 'white')}"
    return Padding(Text.assemble((plain(heading), style), "\n", plain(turn.response)), (0, 0, 1, 3 * depth))


def _reward(turn: Turn) -> str:
    return "--" if turn.reward is None else f"{turn.reward:+.2f}"


def plain(text: str) -> str:
    """Without control characters, which a model could use to rewrite what the terminal shows."""
    return "".join(char if char in "\n\t" or char.isprintable() else "�" for char in text)
