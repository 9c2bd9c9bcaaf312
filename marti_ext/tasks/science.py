"""Science problems with a number as the answer, right within five per cent."""

import re
from math import isfinite

from marti_ext.tasks.extract import last_boxed
from marti_ext.tasks.verdict import Verdict

RELATIVE_TOLERANCE = 0.05  # our decision; the paper names none
ZERO_TOLERANCE = 1e-9  # absolute, where the gold answer is 0 and a relative tolerance has no meaning

_EXPONENT = r"\{\s*[+-]?[0-9]+\s*\}|[+-]?[0-9]+"
_NUMBER = re.compile(
    rf"""(?P<sign>[+-]?)\s*
    (?: 10\s*\^\s*(?P<power>{_EXPONENT})
      | (?P<mantissa>(?:[0-9]{{1,3}}(?:[,\ ][0-9]{{3}})+(?![0-9])|[0-9]+)(?:\.[0-9]*)?|\.[0-9]+)
        (?: [eE](?P<e>[+-]?[0-9]+)
          | \s*(?:\\times|\\cdot|[×·*xX])\s*10\s*\^\s*(?P<times>{_EXPONENT}) )? )""",
    re.VERBOSE,
)
_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻", "0123456789+-")
# One unit: \text{...}, a Greek prefix or letters, with an exponent perhaps; between units a space, a point, a slash or \frac.
# A digit can only be an exponent, so that "3/4", "5\sqrt{2}", "3 or 4" and "2^3" are not read as 3, 5, 3 and 2.
# Everything repeats possessively: no backtracking, time linear in the length of the box.
_UNIT = re.compile(
    r"(?:[\s/*·().{}]|\\(?:cdot|[dt]?frac)(?![A-Za-z]))*+"
    r"(?:(?:\\(?:text|textrm|mathrm|mbox|operatorname|unit)\s*+\{(?:[^{}]|\{[^{}]*+\})*+\}"
    r"|\\(?:mu|Omega|degree|circ|AA|ell)(?![A-Za-z])|\\?%|°|\^\s*+(?:\{\\circ\}|\\circ)|[A-Za-zµμΩÅ]++(?:-[A-Za-z]++)*+)"
    r"(?:[\^_]\s*+(?:\{[+-]?+[0-9]++\}|[+-]?+[0-9]++))?+"
    r"(?:[\s/*·().{}]|\\(?:cdot|[dt]?frac)(?![A-Za-z]))*+)*+"
)


def verify(response: str, answer: str) -> Verdict:
    r"""Compare the last boxed decimal number with the gold number.

    Accepted: `1200`, `1,200.5`, `1.2e-3`, `1.2 \times 10^{-3}`, `10^5`, something and `=` or `\approx` before the
    number, a unit behind it (`\text{m}`, `\mathrm{m/s^2}`, `\frac{m}{s}`, `m/s`, `\%`; never interpreted). Not decimal numbers, so
    invalid: fractions, roots, multiples of pi, ranges, several numbers.
    """
    boxed = last_boxed(response)
    if boxed is None:
        return Verdict("invalid", None, "no closed \\boxed{}")
    value, gold = _number(boxed), _number(answer)
    if value is None:
        return Verdict("invalid", boxed, "the box does not hold one decimal number")
    if gold is None:
        return Verdict("wrong", boxed, f"the gold answer is not a number: {answer[:40]!r}")
    # The factor keeps a deviation of exactly 5 % inside, whatever the rounding of binary floats.
    tolerance = abs(gold) * RELATIVE_TOLERANCE * (1 + 1e-9) if gold else ZERO_TOLERANCE
    if abs(value - gold) <= tolerance:
        return Verdict("correct", boxed, f"{value:g} is within 5 % of {gold:g}")
    return Verdict("wrong", boxed, f"{value:g} is not within 5 % of {gold:g}")


def _number(text: str) -> float | None:
    text = re.sub("[⁰¹²³⁴-⁹⁺⁻]+", lambda power: f"^{{{power[0].translate(_SUPERSCRIPTS)}}}", text)
    text = re.sub("[−–]", "-", text.replace("{,}", ","))
    text = re.sub(r"\\left(?![a-z])|\\right(?![a-z])|\\[,!;:$ ]|\\q?quad|\$|~", " ", text)
    text = re.split(r"=|\\approx|\\sim(?:eq)?(?![a-z])|[≈∼≃]", text)[-1].strip()
    text = re.sub(r"^(?:\\(?:text|math|bold)[a-z]*\s*)?\{(.*)\}$|^\((.*)\)$", r"\1\2", text, flags=re.DOTALL)
    # A thin space is written both between thousands and before a unit: it has become a space, which both may have.
    text = re.sub(r"\s+", " ", text).strip()
    number = _NUMBER.match(text)
    if number is None or not _UNIT.fullmatch(text, number.end()):
        return None
    exponent = number["e"] or number["times"] or number["power"] or "0"
    mantissa = re.sub("[, ]", "", number["mantissa"] or "1")
    value = float(f"{number['sign']}{mantissa}e{exponent.strip('{} ')}")
    return value if isfinite(value) else None
