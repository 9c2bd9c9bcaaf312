"""Find the answer in a response and verify it, for the tasks math, science, choice and coding."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from marti_ext.tasks import choice, coding, math, science
from marti_ext.tasks.extract import last_boxed, last_code_block
from marti_ext.tasks.verdict import Verdict

__all__ = ["VERIFY", "Verdict", "extract", "last_boxed", "last_code_block", "verify", "verify_many"]

AHEAD = 1000  # items; the others go on while one takes its whole deadline
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


def extract(task: str, response: str) -> str | None:
    """The answer in a response, in a form that is the same for answers written alike; None where none can be read."""
    if task == "coding":
        return last_code_block(response)
    if task == "math":
        return math.normalise(last_boxed(response) or "") or None
    found = verify(task, response, "A" if task == "choice" else "1")
    return None if found.verdict == "invalid" else found.extracted


def verify_many(items: Iterable[tuple[str, str, str]], workers: int | None = None) -> Iterator[Verdict]:
    """Verdicts on `(task, response, answer)` triples, in their order, by `workers` threads (default: one a core).

    Threads are enough: programs and math-verify run in processes of their own. Items are taken as verdicts are, at most
    AHEAD per thread in advance. Raises as `verify` does, at the verdict of the item that raised.
    """
    workers = workers or len(os.sched_getaffinity(0))
    threads = ThreadPoolExecutor(workers)
    waiting: deque[Future[Verdict]] = deque()
    try:
        for item in items:
            waiting.append(threads.submit(verify, *item))
            if len(waiting) > AHEAD * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        threads.shutdown(cancel_futures=True)
