"""Question records and where they come from."""

import dataclasses
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

TASKS = ("math", "coding", "science", "choice")


class BadData(ValueError):
    """Rows of a question file that cannot be used, each named by file and line."""


@dataclass(frozen=True)
class Question:
    """One record, the same as the MARTI / CoMAS JSON. `answer` is None where a method must not see it."""

    id: str
    task: str
    source: str
    prompt: str
    answer: str | None

    def without_answer(self) -> "Question":
        return dataclasses.replace(self, answer=None)


def load_questions(path: Path) -> list[Question]:
    """Reads a .jsonl file of records, or a .json file that holds a list of them.

    Raises BadData with every bad row of the file, by line (.jsonl) or position in the list (.json).
    """
    questions, problems, seen = [], [], set()
    for place, row in _rows(path):
        problem = _problem_with(row, seen)
        if problem:
            problems.append(f"{place}: {problem}")
        else:
            seen.add(row["id"])
            questions.append(Question(**{field.name: row[field.name] for field in dataclasses.fields(Question)}))
    if not questions and not problems:
        problems.append(f"{path}: no questions; expected one JSON record a line with id, task, source, prompt, answer")
    if problems:
        more = [f"... and {len(problems) - 20} more"] if len(problems) > 20 else []
        raise BadData("\n".join(problems[:20] + more))
    return questions


def _rows(path: Path) -> Iterator[tuple[str, object]]:
    text = path.read_text(encoding="utf-8", errors="replace")
    if path.suffix == ".json":
        try:
            rows = json.loads(text)
        except json.JSONDecodeError as error:
            raise BadData(f"{path}, line {error.lineno}: not JSON ({error.msg})") from None
        if not isinstance(rows, list):
            raise BadData(f"{path}: expected a list of question records, found {type(rows).__name__}")
        yield from ((f"{path}, record {number}", row) for number, row in enumerate(rows, 1))
        return
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                yield f"{path}, line {number}", json.loads(line)
            except json.JSONDecodeError as error:
                yield f"{path}, line {number}", f"not JSON ({error.msg})"


def _problem_with(row: object, seen: set[str]) -> str | None:
    if isinstance(row, str):
        return row
    if not isinstance(row, dict):
        return f"expected a JSON object, found {type(row).__name__}"
    for key in ("id", "task", "source", "prompt", "answer"):
        if key not in row:
            return f"`{key}` is missing; expected id, task, source, prompt, answer"
        if not isinstance(row[key], str):
            return f"`{key}` must be a string, found {type(row[key]).__name__}"
        if not row[key].strip():
            return f"`{key}` is empty"
    if row["task"] not in TASKS:
        return f"unknown task {row['task']!r}; expected one of {', '.join(TASKS)}"
    return f"id {row['id']!r} occurs twice" if row["id"] in seen else None


class QuestionSource:
    """Deals questions in a fresh random order every epoch. Its state is one number, so a checkpoint can hold it."""

    def __init__(self, questions: list[Question], seed: int) -> None:
        self.questions, self.seed, self.dealt = questions, seed, 0

    def next_batch(self, size: int) -> list[Question]:
        """The next `size` questions; an epoch's end inside a batch runs on into the next epoch."""
        batch = [self._at(self.dealt + offset) for offset in range(size)]
        self.dealt += size
        return batch

    def _at(self, position: int) -> Question:
        epoch, index = divmod(position, len(self.questions))
        return self.questions[self._order(epoch)[index]]

    def _order(self, epoch: int) -> list[int]:
        order = list(range(len(self.questions)))
        random.Random(f"{self.seed}/epoch {epoch}").shuffle(order)
        return order

    def state(self) -> dict[str, int]:
        return {"dealt": self.dealt}

    def restore(self, state: dict[str, int]) -> None:
        self.dealt = state["dealt"]
