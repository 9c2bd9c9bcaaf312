"""Mathematics: the last boxed expression against the gold one, by text, by number, or by math-verify."""

import os
import re
from decimal import Decimal

from marti_ext.tasks.extract import last_boxed
from marti_ext.tasks.math_pool import MathPool
from marti_ext.tasks.verdict import Verdict

DEADLINE = 5  # seconds of wall time for one comparison by math-verify
# Longer boxes are prose or repetition; math-verify would spend its whole deadline on them.
MAX_LENGTH = 1000  # characters
TOLERANCE = Decimal("1e-6")  # between two decimals, absolute and relative; math-verify rounds to six places

NUMBER = r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:e[+-]?[0-9]{1,3})?"
NOT_A_UNIT = "hundred|thousand|million|billion|trillion|dozen|percent"

pool = MathPool(len(os.sched_getaffinity(0)), DEADLINE)


def verify(response: str, answer: str) -> Verdict:
    """Compare the last box with the gold answer: plain LaTeX, or GSM8K's working with the result after `####`.

    Decided at once: the same text after `normalise`, two numbers, two integers with the base as an index. All else goes
    to math-verify, in one of as many processes as there are cores, with DEADLINE for each comparison; what it cannot
    compare is wrong. Units behind a number are never compared. Safe in threads and across fork. Raises CannotStart if
    such a process does not come up (math-verify is not installed).
    """
    boxed = last_boxed(response)
    if not boxed:
        return Verdict("invalid", boxed, "no closed \\boxed{}" if boxed is None else "the box is empty")
    gold = answer.rpartition("####")[2].replace(",", "").strip() if "####" in answer else answer.strip()
    if len(boxed) > MAX_LENGTH:
        return Verdict("wrong", boxed, f"the box holds more than {MAX_LENGTH} characters")
    if not 0 < len(gold) <= MAX_LENGTH:
        return Verdict("wrong", boxed, f"the gold answer holds {len(gold)} characters; expected 1 to {MAX_LENGTH}")
    same, reason = _compare_fast(normalise(gold), normalise(boxed)) or pool.compare(gold, boxed)
    return Verdict("correct" if same else "wrong", boxed, reason)


def normalise(text: str) -> str:
    r"""The same LaTeX without what does not change its value: spaces, sizes, `$`, a final full stop, units in \text."""
    text = re.sub(r"\\left(?![a-z])|\\right(?![a-z])|\\?\$|\\!", "", text)
    text = re.sub(r"\\[,;: ]|~", " ", text).strip().removesuffix(".")
    text = re.sub(r"\{([,:])\}", r"\1", text).replace(r"\varnothing", r"\emptyset")
    text = re.sub(r"\\[dt]frac", r"\\frac", text)
    text = re.sub(rf"^([+-]?[0-9.,]+)\s+(?!{NOT_A_UNIT})[a-z]{{3,}}$", r"\1", text)
    # Not in "1 1/2", which is not 11/2; but in "10 000".
    text = re.sub(r"(?<![0-9])\s+|\s+(?![0-9])|\s+(?=[0-9]{3}(?![0-9]))", "", text)
    # Behind a number \text{...} is a unit; elsewhere ("\text{Monday}") its contents are the answer.
    text = re.sub(r"^([+-]?[0-9.,]+)\\(?:text|mathrm|mbox)\{[^{}]*\}(?:\^\{?[0-9]\}?)?$", r"\1", text)
    text = re.sub(r"\\(?:text|mathrm|mbox)\{([^{}]*)\}", r"\1", text)
    text = re.sub(r"(?<=[0-9.])(?:\\times|\\cdot|×)10\^(?:\{([+-]?[0-9]{1,3})\}|([0-9]))$", r"e\1\2", text)
    text = re.sub(r"_\{([0-9]+)\}", r"_\1", text)
    if re.fullmatch(r"[+-]?[0-9]{1,3}(,[0-9]{3})+(\.[0-9]+)?", text):
        text = text.replace(",", "")
    return text


def _compare_fast(gold: str, given: str) -> tuple[bool, str] | None:
    if gold == given:
        return True, "same text"
    if _both(NUMBER, gold, given):
        near = TOLERANCE * min(1, abs(Decimal(gold)))
        same = abs(Decimal(gold) - Decimal(given)) <= near
        return same, "same number" if same else f"{given} is not {gold}"
    if _both("[0-9A-F]+_[0-9]+", gold, given):  # math-verify would not look at the base
        return False, f"{given} is not {gold}"
    return None


def _both(pattern: str, *texts: str) -> bool:
    return all(re.fullmatch(pattern, text) for text in texts)
