"""Find the answer in a response and verify it, for the tasks math, science, choice and coding."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from marti_ext.tasks import choice, coding, math, science
from marti_ext.tasks.extract import last_boxed, last_code_block
from marti_ext.tasks.verdict import Verdict

__all__ = ["VERIFY", "Verdict", "last_boxed", "last_code_block", "verify", "verify_many"]

VERIFY: dict[str, Callable[[str, str], Verdict]] = {
    "math": math.verify,
    "science": science.verify,
    "choice": choice.verify,
    "coding": coding.verify,
}


def verify(task: str, response: str, answer: str) -> Verdict:
    """Verdict on a response of the given task against its gold answer, see the task's module for what counts.

    No text of response or answer raises or hangs; an unknown task is a ValueError. Safe in threads.
    """
    if task not in VERIFY:
        raise ValueError(f"unknown task {task!r}; known: {', '.join(VERIFY)}")
    return VERIFY[task](response, answer)


def verify_many(items: list[tuple[str, str, str]], workers: int | None = None) -> list[Verdict]:
    """Verdicts on `(task, response, answer)` triples, in their order, by `workers` threads (default: one a core).

    Threads are enough: programs and math-verify run in processes of their own.
    """
    with ThreadPoolExecutor(workers or os.cpu_count()) as pool:
        return list(pool.map(lambda item: verify(*item), items))
