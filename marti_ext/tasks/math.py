"""Mathematics: the last boxed expression against the gold one, by text, by number, or by math-verify."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from decimal import Decimal
from pathlib import Path

from marti_ext.tasks.extract import last_boxed
from marti_ext.tasks.verdict import Verdict

DEADLINE = 5  # seconds of wall time for one comparison by math-verify
# Longer boxes are prose or repetition; math-verify would spend its whole deadline on them.
MAX_LENGTH = 1000  # characters


def verify(response: str, answer: str) -> Verdict:
    """Compare the last box with the gold answer: plain LaTeX, or GSM8K's working with the result after `####`.

    Decided at once: the same text after `normalise`, equal numbers, different integers. All else goes to math-verify in
    a process of its own, one for this process and one comparison at a time, DEADLINE each; what it cannot compare is
    wrong. Safe in threads. Raises RuntimeError if that process cannot start (math-verify is not installed).
    """
    boxed = last_boxed(response)
    if not boxed:
        return Verdict("invalid", boxed, "no closed \\boxed{}" if boxed is None else "the box is empty")
    gold = answer.rpartition("####")[2].replace(",", "") if "####" in answer else answer
    if len(boxed) > MAX_LENGTH:
        return Verdict("wrong", boxed, f"the box holds more than {MAX_LENGTH} characters")
    if not gold.strip():
        return Verdict("wrong", boxed, "the gold answer is empty")
    decided = _compare_fast(normalise(gold), normalise(boxed))
    same, reason = decided or _compare_slow(gold.strip(), boxed)
    return Verdict("correct" if same else "wrong", boxed, reason)


def normalise(text: str) -> str:
    r"""The same LaTeX without what does not change its value: spaces, sizes, `$`, a final full stop, units in \text."""
    text = re.sub(r"\\[,!;: ]|\\left(?![a-z])|\\right(?![a-z])|\\?\$|~", "", text).replace("{,}", ",")
    text = re.sub(r"\\[dt]frac", r"\\frac", text)
    text = re.sub(r"\s+", "", text).removesuffix(".")
    # Behind a number \text{...} is a unit; elsewhere ("\text{Monday}") its contents are the answer.
    text = re.sub(r"^(-?[0-9.,]+)\\(?:text|mathrm|mbox)\{[^{}]*\}(?:\^\{?[0-9]\}?)?$", r"\1", text)
    text = re.sub(r"\\(?:text|mathrm|mbox)\{([^{}]*)\}", r"\1", text)
    if re.fullmatch(r"[+-]?[0-9]{1,3}(,[0-9]{3})+(\.[0-9]+)?", text):
        text = text.replace(",", "")
    return text


def _compare_fast(gold: str, given: str) -> tuple[bool, str] | None:
    if gold == given:
        return True, "same text"
    if not all(re.fullmatch(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)", text) for text in (gold, given)):
        return None
    if Decimal(gold) == Decimal(given):
        return True, "same number"
    # Decimals that differ may still be equal to the six digits that math-verify compares.
    return (False, f"{given} is not {gold}") if "." not in gold + given else None


_lock = threading.Lock()
_worker: subprocess.Popen | None = None


def _compare_slow(gold: str, given: str) -> tuple[bool, str]:
    global _worker
    with _lock:
        # It is put back only once it has answered: after Ctrl-C its late reply must not be read as the next one's.
        worker, _worker = _worker, None
        if worker is None or worker.poll() is not None:
            worker = _start_worker()
        reply = ""
        with suppress(BrokenPipeError):
            worker.stdin.write(json.dumps([gold, given]) + "\n")
            worker.stdin.flush()
            reply = worker.stdout.readline()
        if reply:
            _worker = worker
            return tuple(json.loads(reply))
        status = _stop(worker)
    return False, (
        f"math-verify took longer than {DEADLINE} s" if status == -signal.SIGALRM else f"math-verify died: {status}"
    )


def _start_worker() -> subprocess.Popen:
    # Not multiprocessing: its children import the main script again, whatever that starts (Ray, DeepSpeed).
    # -P keeps this folder, whose math.py would hide Python's own, off the worker's path.
    # A session of its own: Ctrl-C is for us; the worker ends when its standard input does.
    command = [sys.executable, "-P", str(Path(__file__).with_name("math_worker.py")), str(DEADLINE)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "encoding": "utf-8"}
    worker = subprocess.Popen(command, **pipes, start_new_session=True)
    if worker.stdout.readline() != "ready\n":
        raise RuntimeError(
            f"the math-verify process ended with status {_stop(worker)} while it started ({' '.join(command)}); its "
            "message is on standard error above. Is math-verify installed in this Python?"
        )
    return worker


def _stop(worker: subprocess.Popen) -> int:
    worker.stdout.close()
    with suppress(BrokenPipeError):
        worker.stdin.close()
    # It closed its output, so it is dead or about to be; the signal only makes sure of it.
    try:
        return worker.wait(timeout=1)
    except subprocess.TimeoutExpired:
        worker.kill()
        return worker.wait()


def _forget_worker() -> None:
    global _lock, _worker
    _lock, _worker = threading.Lock(), None


# A forked child must not talk through its parent's pipes: it would read the parent's replies.
os.register_at_fork(after_in_child=_forget_worker)
