"""Grade stored responses: JSON lines in, the same lines with their verdicts out."""

import gzip
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import tee
from pathlib import Path
from typing import TextIO

from marti_ext.progress import Display
from marti_ext.tasks import VERIFY, verify_many
from marti_ext.trajectory import read_lines

KEYS = ("task", "response", "answer")
EXPECTED = f"expected a JSON object with the strings {', '.join(KEYS)}, where task is one of {', '.join(VERIFY)}"
SHOWN = 20  # bad lines in an error


def grade_file(path: Path, out: Path | None = None, workers: int | None = None) -> None:
    """Writes every record of a .jsonl or .jsonl.gz file with `verdict`, `extracted` and `reason` to a new file `out`, which
    appears when it is whole, or to standard output; in their order, by `workers` threads. A summary goes to standard error.

    Raises ValueError before anything is graded: for bad lines, by file and line, and for an `out` that exists.
    """
    total = check(path)
    display, verdicts, began = Display(sys.stderr), Counter(), time.monotonic()
    quiet = out is None and sys.stdout.isatty()  # the records themselves show the progress
    with written_aside(out) if out else standard_output() as file:
        for number, record in enumerate(graded(path, workers), 1):
            file.write(json.dumps(record, ensure_ascii=False) + "\n")
            verdicts[record["verdict"]] += 1
            if not quiet and number % (total // 200 + 1) == 0:
                display.show(f"{number:,} of {total:,} graded")
    seconds = time.monotonic() - began
    counts = ", ".join(f"{verdicts[verdict]:,} {verdict}" for verdict in ("correct", "wrong", "invalid"))
    display.say(f"{total:,} graded in {seconds:.1f} s ({total / seconds:,.0f} a second): {counts}")


def check(path: Path) -> int:
    """The number of records. Raises ValueError with the bad lines of the file, or if it has none to grade."""
    if path.exists() and not path.is_file():
        raise ValueError(f"{path}: not a file; it is read twice, so a pipe will not do")
    total, problems = 0, []
    for place, line in read_lines(path):
        total += 1
        if problem := _problem_with(line):
            problems.append(f"{place}: {problem}")
    if problems:
        more = [f"... and {len(problems) - SHOWN:,} more bad lines"] if len(problems) > SHOWN else []
        raise ValueError("\n".join(problems[:SHOWN] + more + [EXPECTED]))
    if not total:
        raise ValueError(f"{path}: no records; {EXPECTED}")
    return total


def graded(path: Path, workers: int | None = None) -> Iterator[dict]:
    """The file's records, in order, each with its verdict; other keys are kept."""
    records, ahead = tee(json.loads(line) for _, line in read_lines(path))
    verdicts = verify_many((tuple(record[key] for key in KEYS) for record in ahead), workers)
    for record, verdict in zip(records, verdicts, strict=True):
        yield record | {"verdict": verdict.verdict, "extracted": verdict.extracted, "reason": verdict.reason}


def _problem_with(line: str) -> str | None:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:  # also a number of thousands of digits, thousands of brackets
        return f"not JSON ({error})"
    if not isinstance(record, dict):
        return f"not a JSON object but {type(record).__name__}"
    for key in KEYS:
        if key not in record:
            return f"`{key}` is missing"
        if not isinstance(record[key], str):
            return f"`{key}` must be a string, found {type(record[key]).__name__}"
    return None if record["task"] in VERIFY else f"unknown task {record['task']!r}"


@contextmanager
def written_aside(path: Path) -> Iterator[TextIO]:
    """A file (.gz: compressed) that has its name only once it is whole. Raises ValueError if it cannot be made or exists."""
    if path.exists():
        raise ValueError(f"{path} exists and is not overwritten: remove it, or choose another name with --out")
    aside = path.with_name(path.name + ".part")
    try:
        opener = gzip.open if path.suffix == ".gz" else open
        file = opener(aside, "wt", encoding="utf-8", errors="backslashreplace")  # half a character is \ud800 again
    except OSError as error:
        raise ValueError(f"{path}: cannot be written ({error.strerror})") from None
    try:
        with file:
            yield file
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)


@contextmanager
def standard_output() -> Iterator[TextIO]:
    sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")
    yield sys.stdout
