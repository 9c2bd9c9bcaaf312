"""Multiple choice: the last boxed letter."""

import re

from marti_ext.tasks.extract import last_boxed
from marti_ext.tasks.verdict import Verdict


def verify(response: str, answer: str) -> Verdict:
    r"""Compare the last boxed letter A-D, in either case, with the gold letter.

    Accepted around the letter: `\text{B}`, `\textbf{(B)}`, `(B)`, `B.`, `B)`, quotes, sizes. A letter with more text behind it
    ("B. Paris") is invalid: it is not the form that was asked for.
    """
    boxed = last_boxed(response)
    if boxed is None:
        return Verdict("invalid", None, "no closed \\boxed{}")
    letter, gold = _letter(boxed), _letter(answer)
    if letter is None:
        return Verdict("invalid", boxed, "the box does not hold one letter A-D")
    if letter == gold:
        return Verdict("correct", letter, "same letter")
    expected = f"expected {gold}" if gold else f"the gold answer is not a letter A-D: {answer[:40]!r}"
    return Verdict("wrong", letter, expected)


def _letter(text: str) -> str | None:
    text = re.sub(r"\\(text|math|bold)[a-z]*|\\(left|right|bf|rm|underline|[lL]arge|LARGE|[hH]uge)(?![a-z])", "", text)
    text = re.sub(r"\\[,;:! ]|\\q?quad", " ", text).strip(" \t\r\n${}()[].,:*`'\"")
    return text.upper() if re.fullmatch("[A-Da-d]", text) else None
