"""Turns and trajectories: what was said on a question, by whom, in answer to what. JSONL in and out."""

import gzip
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
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
    group: str | None = None  # turns that are compared with each other, for credit that needs it
    prompt_ids: list[int] = field(default_factory=list)
    response_ids: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)  # one per response token, at the sampling temperature
    shortened: bool = False  # the prompt lost old discussion to the limit
    cut: bool = False  # the prompt's subject was cut to the limit

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

    def of(self, role: str) -> list[Turn]:
        return [turn for turn in self.turns if turn.role == role]

    def children(self, turn: Turn, role: str) -> list[Turn]:
        return [child for child in self.of(role) if turn.id in child.parents]

    def to_json(self) -> str:
        turns = [{key: getattr(turn, key) for key in STORED} for turn in self.turns]
        record = {"question": asdict(self.question), "method": self.method, "turns": turns, "metrics": self.metrics}
        return json.dumps(record, ensure_ascii=False)

    @classmethod
    def from_json(cls, line: str) -> "Trajectory":
        record = json.loads(line)
        question = Question(**record["question"])
        turns = [Turn(**turn) for turn in record["turns"]]
        return cls(question, record["method"], turns, record.get("metrics", {}))


def open_jsonl(path: Path, mode: str):
    """Opens a .jsonl or .jsonl.gz file as text; mode is "r" or "w"."""
    opener = gzip.open if path.suffix == ".gz" else open
    return opener(path, mode + "t", encoding="utf-8")


def read_trajectories(path: Path) -> Iterator[Trajectory]:
    """Trajectories of a .jsonl or .jsonl.gz file. Raises ValueError naming file and line of a bad one."""
    with open_jsonl(path, "r") as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                try:
                    yield Trajectory.from_json(line)
                except (json.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
                    raise ValueError(
                        f"{path}, line {number}: not a trajectory ({type(error).__name__}: {error}); "
                        "expected the keys question, method, turns"
                    ) from None
