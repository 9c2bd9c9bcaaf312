"""Question records and where they come from."""

import codecs
import dataclasses
import json
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

TASKS = ("math", "coding", "science", "choice")
CHOICE = re.compile(r"\(?[A-Da-d]\)?\.?")


class BadData(ValueError):
    """Rows of a question file that cannot be used, each named by file and line."""


@dataclass(frozen=True)
class Question:
    """One record, the same as the MARTI / CoMAS JSON. `answer` is None where a method must not see it."""

    id: str
    task: str
    source: str
    prompt: str
    answer: str | None = None

    def without_answer(self) -> "Question":
        return dataclasses.replace(self, answer=None)


KEYS = tuple(field.name for field in dataclasses.fields(Question))


def load_questions(path: Path) -> list[Question]:
    """Reads a .jsonl file of records, or a .json file that holds a list of them; keys that are not ours are ignored.

    Raises BadData with every bad row of the file, by line (.jsonl) or position in the list (.json).
    """
    questions, problems, places = [], [], {}
    for place, row in _rows(path):
        found = [row.args[0]] if isinstance(row, BadData) else _problems_with(row, places)
        if found:
            problems.append(f"{path}, {place}: {'; '.join(found)}")
        else:
            places[row["id"]] = place
            questions.append(Question(**{key: row[key] for key in KEYS}))
    if not questions and not problems:
        problems.append(f"{path}: no questions; expected one JSON record a line with {', '.join(KEYS)}")
    if problems:
        more = [f"... and {len(problems) - 20} more bad rows"] if len(problems) > 20 else []
        raise BadData("\n".join(problems[:20] + more))
    return questions


def _rows(path: Path) -> Iterator[tuple[str, object]]:
    """(place, row) of every row; a row that is not JSON is a BadData."""
    try:
        content = path.read_bytes().removeprefix(codecs.BOM_UTF8)
    except OSError as error:
        raise BadData(f"{path}: cannot be read ({error.strerror})") from None
    if path.suffix != ".json":
        for number, line in enumerate(content.split(b"\n"), 1):
            if line.strip():
                yield f"line {number}", _parse(line)
        return
    rows = _parse(content)
    if isinstance(rows, BadData):
        raise BadData(f"{path}: {rows}")
    if not isinstance(rows, list):
        raise BadData(f"{path}: expected a list of question records, found {type(rows).__name__}")
    yield from ((f"record {number}", row) for number, row in enumerate(rows, 1))


def _parse(content: bytes) -> object:
    """JSON, or a BadData that says why it is none."""
    try:
        return json.loads(content.decode())
    except UnicodeDecodeError as error:
        return BadData(f"not UTF-8 (byte {error.start + 1})")
    except json.JSONDecodeError as error:
        line = f"line {error.lineno}, " if error.lineno > 1 else ""
        return BadData(f"not JSON ({error.msg}: {line}column {error.colno})")
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, thousands of brackets
        return BadData(f"not JSON that can be read ({error})")


def _problems_with(row: object, places: dict[str, str]) -> list[str]:
    if not isinstance(row, dict):
        return [f"expected a JSON object, found {type(row).__name__}"]
    problems = [problem for key in KEYS if (problem := _problem_with(row, key))]
    if not problems and row["task"] not in TASKS:
        problems.append(f"unknown task {row['task']!r}; expected one of {', '.join(TASKS)}")
    if not problems and row["task"] == "choice" and not CHOICE.fullmatch(row["answer"].strip()):
        problems.append(f"the answer to a choice must be a letter A-D, found {row['answer'][:40]!r}")
    if not problems and row["id"] in places:
        problems.append(f"id {row['id']!r} is that of {places[row['id']]} too")
    return problems


def _problem_with(row: dict, key: str) -> str | None:
    if key not in row:
        return f"`{key}` is missing"
    value = row[key]
    if not isinstance(value, str):
        return f"`{key}` must be a string, found {type(value).__name__}"
    if any("\ud800" <= char <= "\udfff" for char in value):
        return f"`{key}` holds half a character (a lone surrogate)"
    return None if value.strip() else f"`{key}` is empty"


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
