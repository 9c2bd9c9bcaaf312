"""Turns and trajectories: what was said on a question, by whom, in answer to what. JSONL in and out."""

import gzip
import json
import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path

from marti_ext.questions import Question

STORED = (
    "id", "agent", "policy", "role", "round", "parents", "prompt", "response", "finish_reason", "num_tokens", "score", "reward",
)  # fmt: skip


@dataclass
class Turn:
    """One LLM call. Token ids and log-probs are the engine's own; they are not stored in trajectory files."""

    id: int
    agent: str
    policy: str
    role: str
    round: int
    parents: list[int]
    prompt: str = ""
    response: str = ""
    finish_reason: str = ""  # "stop", or "length" where the response was truncated
    num_tokens: int = 0  # of the response, its end token included
    score: int | None = None
    reward: float | None = None  # None: not trained on
    prompt_ids: list[int] = field(default_factory=list)
    response_ids: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)  # one per response token, at the sampling temperature
    shortened: bool = False  # the prompt lost old discussion to the limit
    cut: bool = False  # the prompt's subject was cut to the limit
    seed: int = 0  # what it is drawn with; the same whoever answers first

    @property
    def truncated(self) -> bool:
        return self.finish_reason == "length"


@dataclass
class Trajectory:
    """All turns on one question: a DAG through `Turn.parents`, in the order in which they were begun."""

    question: Question
    method: str
    turns: list[Turn] = field(default_factory=list)
    metrics: dict[str, float] = field(default_factory=dict)
    copy: int = 0  # which of the step's discussions of this question
    verdict: dict[str, str | int | None] = field(default_factory=dict)  # on the answer, where there is one

    def of(self, role: str) -> list[Turn]:
        return [turn for turn in self.turns if turn.role == role]

    def children(self, turn: Turn, role: str) -> list[Turn]:
        return [child for child in self.of(role) if turn.id in child.parents]

    def to_json(self) -> str:
        turns = [{key: getattr(turn, key) for key in STORED} for turn in self.turns]
        record = {
            "question": asdict(self.question),
            "copy": self.copy,
            "method": self.method,
            "turns": turns,
            "metrics": self.metrics,
        } | ({"verdict": self.verdict} if self.verdict else {})
        return json.dumps(record, ensure_ascii=False)


@cache
def _reader():
    """Checks types; keys that are not ours are ignored. Made here, so that help need not import pydantic."""
    from pydantic import TypeAdapter

    return TypeAdapter(Trajectory)


def read_trajectories(path: Path) -> Iterator[tuple[str, dict, Trajectory]]:
    """(place, record, trajectory) of every line of a .jsonl or .jsonl.gz file; the record is the line as it was stored,
    with keys that are not ours. Raises ValueError naming file and line of what is no trajectory or cannot be read.
    """
    for place, line in read_lines(path):
        yield (place, *_parse(place, line))


def read_lines(path: Path) -> Iterator[tuple[str, str]]:
    """(place, line) of every line of a .jsonl or .jsonl.gz file that is not empty; the place names file and line.
    Raises ValueError naming file and line of what cannot be read.
    """
    number = 0
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rt", encoding="utf-8-sig") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    yield f"{path}, line {number}", line
    except FileNotFoundError:
        raise ValueError(f"{path}: no such file") from None
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: cannot be read after line {number}: {error}") from None


def _parse(place: str, line: str) -> tuple[dict, Trajectory]:
    from pydantic import ValidationError

    try:
        record = json.loads(line)
        return record, _reader().validate_python(record)
    except json.JSONDecodeError as error:
        raise ValueError(f"{place}: not JSON ({error.msg})") from None
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, one['loc'])) or 'the line'}: {one['msg']}" for one in error.errors()[:3])
        raise ValueError(f"{place}: not a trajectory ({wrong})") from None
