"""Multiple choice: the last boxed letter."""

import re

from marti_ext.tasks.extract import last_boxed
from marti_ext.tasks.verdict import Verdict


def verify(response: str, answer: str) -> Verdict:
    r"""Compare the last boxed letter A-D, in either case, with the gold letter.

    Accepted around the letter: `\text{B}`, `\textbf{(B)}`, `(B)`, `B.`, `B)`. A letter with more text behind it
    ("B. Paris") is invalid: it is not the form that was asked for.
    """
    boxed = last_boxed(response)
    if boxed is None:
        return Verdict("invalid", None, "no closed \\boxed{}")
    letter = _letter(boxed)
    if letter is None:
        return Verdict("invalid", boxed, "the box does not hold one letter A-D")
    if letter == _letter(answer):
        return Verdict("correct", letter, "same letter")
    return Verdict("wrong", letter, f"expected {answer.strip()[:20]}")


def _letter(text: str) -> str | None:
    text = re.sub(r"\\(text|math)[a-z]*|\\(left|right|bf|rm)(?![a-z])", "", text)
    text = text.strip(" \t\r\n${}()[].,:")
    return text.upper() if re.fullmatch("[A-Da-d]", text) else None
