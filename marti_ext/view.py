"""Discussions of a run, readable in a terminal: who said what, in answer to what, score and reward."""

from collections.abc import Iterator
from pathlib import Path

from rich.console import Console, Group
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from marti_ext.trajectory import Trajectory, Turn, read_trajectories

COLORS = {"solution": "green", "evaluation": "yellow", "scoring": "cyan"}


def view(run: Path, question: str | None, step: int | None) -> None:
    """Prints the questions of a run, or every discussion of one question. Raises LookupError if there is none."""
    console = Console()
    if question is None:
        console.print(_listing(run, step))
        console.print(f"python -m marti_ext view {run} --question ID shows the discussions of one")
        return
    found = [(number, one) for number, one in _trajectories(run, step) if one.question.id == question]
    if not found:
        raise LookupError(f"{run}: no discussion of question {question!r}; `view {run}` lists the questions")
    with console.pager(styles=True) if console.is_terminal else _no_pager():
        for number, trajectory in found:
            console.print(_discussion(number, trajectory))


class _no_pager:
    def __enter__(self):
        return None

    def __exit__(self, *error):
        return False


def _trajectories(run: Path, step: int | None) -> Iterator[tuple[int, Trajectory]]:
    for file in sorted((run / "trajectories").glob("step_*.jsonl.gz")):
        number = int(file.name.split(".")[0].removeprefix("step_"))
        if step in (None, number):
            for trajectory in read_trajectories(file):
                yield number, trajectory


def _listing(run: Path, step: int | None) -> Table:
    table = Table("step", "question", "task", "turns", "solution rewards", "problem")
    for number, trajectory in _trajectories(run, step):
        rewards = " ".join(_reward(turn) for turn in trajectory.of("solution"))
        problem = Text(" ".join(plain(trajectory.question.prompt).split())[:60])
        question = trajectory.question
        table.add_row(
            str(number), Text(plain(question.id)), question.task, str(len(trajectory.turns)), rewards, problem
        )
    if not table.row_count:
        raise LookupError(f"{run}: no discussions stored" + (f" for step {step}" if step else ""))
    return table


def _discussion(step: int, trajectory: Trajectory) -> Group:
    question = trajectory.question
    answer = f"\n\nanswer: {plain(question.answer)}" if question.answer is not None else ""
    head = Panel(
        Text(plain(question.prompt) + answer), title=Text(f"step {step}  {plain(question.id)}  ({question.task})")
    )
    return Group(head, *(_turn(turn) for turn in sorted(trajectory.turns, key=lambda turn: (turn.round, turn.id))))


def _turn(turn: Turn) -> Padding:
    """Indented by how deep it stands: a solution, under it its evaluations, under these their scorings."""
    heading = f"round {turn.round}  {turn.role} #{turn.id} by {turn.agent}"
    heading += f" on {', '.join(f'#{parent}' for parent in turn.parents)}" if turn.parents else ""
    if turn.role == "scoring":
        heading += f"  score {turn.score if turn.score is not None else 'unreadable'}"
    heading += f"  reward {_reward(turn)}"
    heading += "  (truncated)" if turn.truncated else ""
    text = Text.assemble((heading, f"bold {COLORS.get(turn.role, 'white')}"), "\n", plain(turn.response))
    return Padding(text, (0, 0, 1, 3 * len(turn.parents)))


def _reward(turn: Turn) -> str:
    return "--" if turn.reward is None else f"{turn.reward:+.2f}"


def plain(text: str) -> str:
    """Without control characters, which a model could use to rewrite what the terminal shows."""
    return "".join(char if char in "\n\t" or char.isprintable() else "�" for char in text)
