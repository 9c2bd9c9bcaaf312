"""Answers are found and verified: hand-written cases, hostile input, the authors' gold answers."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marti_ext.tasks import AHEAD, coding, last_boxed, last_code_block, math, verify, verify_many

VALIDATION = Path(__file__).parents[1] / "../shared/datasets/comas_validation"


def gold_answers(task):
    path = VALIDATION / f"{task}.json"
    if not path.exists():
        pytest.skip(f"the validation set of the CoMAS authors is not at {path.resolve()}")
    return [row["answer"] for row in json.loads(path.read_text())]


def boxed(task, content, gold):
    return verify(task, f"So the answer is \\boxed{{{content}}}.", gold).verdict


def program(code):
    return f"My solution:\n```python\n{code}\n```\nIt works."


# Extraction


@pytest.mark.parametrize(
    ("text", "content"),
    [
        (r"\boxed{5}", "5"),
        (r"first \boxed{5}, then \boxed{ 6 }", "6"),
        (r"\boxed{\frac{1}{\sqrt{2}}} and } more", r"\frac{1}{\sqrt{2}}"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed{\left\{ x \right.}", r"\left\{ x \right."),
        (r"\boxed{\boxed{7}}", "7"),
        (r"$\boxed 5$", "5"),
        (r"\boxed {5}", "5"),
        (r"\boxed{}", ""),
        (r"\boxed{5} but then \boxed{6", None),
        (r"\boxed{\}", None),
        (r"\boxed", None),
        (r"\boxedfoo{5}", None),
        ("5", None),
    ],
)
def test_last_boxed(text, content):
    assert last_boxed(text) == content


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("```python\na\n```", "a"),
        ("```python\na\n```\n```python\nb\n```", "b"),
        ("```python\na\n```\noutput:\n```\n1\n```", "a"),
        ("```\na\n```", "a"),
        ("```\na\n```\n```\nb\n```", "b"),
        ("```bash\nls\n```", None),
        ("```python\na", None),
        ("```python\na\n```\n```python\nb", "a"),
        ("```python\nnever closed\n```python\nb\n```", "b"),
        ("- item\n  ```Python title=x\n  if a:\n      b\n  ```", "if a:\n    b"),
        ("```python\r\na\r\n```", "a"),
        ("```python\ns = '\u2028```'\n```", "s = '\u2028```'"),
        ("no code, but `x` and ```x```", None),
    ],
)
def test_last_code_block(text, code):
    assert last_code_block(text) == code


def test_extraction_is_linear():
    """A quadratic search takes minutes on these."""
    assert last_boxed(r"\boxed{" * 300_000) is None
    assert last_boxed(r"\boxed " * 300_000) is None
    assert last_code_block("```python\n" * 300_000) is None
    assert boxed("science", "1 " + "m^{2}" * 40 + "+", "1") == "invalid"
    assert boxed("science", "1" + "m^{2} " * 50_000 + "+", "1") == "invalid"
    assert boxed("science", "1" + r"\frac{m}" * 50_000 + "+", "1") == "invalid"
    assert boxed("choice", r"\, (" * 50_000 + "AB", "A") == "invalid"


# Mathematics


@pytest.mark.parametrize(
    ("content", "gold", "verdict"),
    [
        ("42", "42", "correct"),
        ("42.0", "42", "correct"),
        (r"\$1,234.", "1234", "correct"),
        (r"24{,}000", "24,000", "correct"),
        (r"24,\!000", "24,000", "correct"),
        (r"\dfrac{ 6 }{25}", r"\frac{6}{25}", "correct"),
        (r"\left( 1, \frac12 \right)", r"(1,\frac12)", "correct"),
        (r"12\text{ cm}^2", "12", "correct"),
        ("Monday", r"\text{Monday}", "correct"),
        ("18", "She has 9 * 2 = <<9*2=18>>18 left.\n#### 18", "correct"),
        ("1234", "#### 1,234", "correct"),
        ("18 eggs", "#### 18", "correct"),
        ("-18", "#### -18", "correct"),
        ("1 000", "1000", "correct"),
        ("10{:}30", "10:30", "correct"),
        (r"\varnothing", r"\emptyset", "correct"),
        ("0.6666667", "0.66666666667", "correct"),
        ("-0", "0", "correct"),
        (r"6.72 \times 10^{-5}", ".0000672", "correct"),
        ("6.02e23", r"6.02 \cdot 10^{23}", "correct"),
        ("52_{8}", "52_8", "correct"),
        ("43", "42", "wrong"),
        ("-42", "42", "wrong"),
        ("42.5", "42", "wrong"),
        (".0000673", ".0000672", "wrong"),
        ("1000000.5", "1000000.6", "wrong"),
        ("1" * 50 + "2", "1" * 50 + "3", "wrong"),
        ("1e999", "1e-999", "wrong"),
        ("52_9", "52_8", "wrong"),
        ("53_8", "52_8", "wrong"),
        ("9" * 900, "42", "wrong"),
        ("x" * 2000, "42", "wrong"),
        ("42", "", "wrong"),
        ("42", "####", "wrong"),
        ("42", "x" * 2000, "wrong"),
        ("", "42", "invalid"),
    ],
)
def test_math_fast(content, gold, verdict, monkeypatch):
    monkeypatch.setattr(math.pool, "compare", lambda *_: pytest.fail("not decided by the fast path"))
    assert boxed("math", content, gold) == verdict


@pytest.mark.parametrize(
    ("content", "gold", "verdict"),
    [
        ("0.24", r"\frac{6}{25}", "correct"),
        (r"\frac{\sqrt{2}}{2}", r"\frac{1}{\sqrt{2}}", "correct"),
        ("45", r"45^\circ", "correct"),
        (r"50\%", "50", "correct"),
        ("x = 5", "5", "correct"),
        ("(x+1)^2", "x^2 + 2x + 1", "correct"),
        (r"\{2, 1\}", r"\{1, 2\}", "correct"),
        ("2, 1", "1,2", "correct"),
        (r"4 \text{ or } 5", "4,5", "correct"),
        (r"\pm 2", "2,-2", "correct"),
        (r"x \in [1, 2)", r"\left[1,2\right)", "correct"),
        (r"[5,\infty)\cup(-\infty,3]", r"(-\infty, 3] \cup [5, \infty)", "correct"),
        (r"\frac12", r"50\%", "correct"),
        ("50 percent", r"50\%", "correct"),
        (r"5\text{ cm}", "5 cm", "correct"),
        (r"10\pi\text{ square units}", r"10\pi", "correct"),
        (r"\textbf{(C)}", r"\text{(C)}", "correct"),
        ("52", "52_8", "correct"),
        ("0.25", r"\frac{6}{25}", "wrong"),
        ("x+1", "x+2", "wrong"),
        (r"\{1, 2, 3\}", r"\{1, 2\}", "wrong"),
        ("(2, 1)", "(1, 2)", "wrong"),
        ("[1, 2]", "[1, 2)", "wrong"),
        (r"(-\infty, 3) \cup [5, \infty)", r"(-\infty, 3] \cup [5, \infty)", "wrong"),
        ("1 1/2", "11/2", "wrong"),
        (r"5\%", r"50\%", "wrong"),
        ("5 million", "5", "wrong"),
        ("42 or 43", "42", "wrong"),
        (r"\text{odd}", r"\text{even}", "wrong"),
        (r"3.14", r"\pi", "wrong"),
        (r"\frac{1}{", "5", "invalid"),
        (r"\frac", "5", "wrong"),
        ("?!", "5", "wrong"),
        ("\ud800\x00", "5", "wrong"),
    ],
)
def test_math_slow(content, gold, verdict):
    assert boxed("math", content, gold) == verdict


@pytest.mark.parametrize("response", ["", "The answer is 42.", "#### 42", r"\boxed{42} or rather \boxed{4"])
def test_math_without_box_is_invalid(response):
    assert verify("math", response, "#### 42").verdict == "invalid"


INTEGER = st.integers(-(10**9), 10**9)


def grouped(number):
    return f"{number:,}"


@given(
    INTEGER, st.sampled_from([str, grouped, "{}.0".format, "${}$".format, r"{}\text{{ km}}^2".format, " {} .".format])
)
def test_math_integers_in_any_form(number, form):
    assert boxed("math", form(number), str(number)) == "correct"
    assert boxed("math", form(number), f"working <<3*4=12>> #### {grouped(number)}") == "correct"
    assert boxed("math", form(number + 1), str(number)) == "wrong"


@given(st.decimals(-1000, 1000, places=8), st.integers(-3, 3))
def test_math_decimals_differ_as_numbers_do(gold, off):
    given_value = gold + off * min(1, abs(gold)) * math.TOLERANCE * 2
    expected = "correct" if gold == given_value else "wrong"
    assert boxed("math", f"{given_value:f}", f"{gold:f}") == expected


@given(
    st.lists(st.sampled_from(["1", "23", r"\frac{1}{2}", r"\sqrt{2}", "x", "+", "(", ")", ",", r"\cup", " ", r"\,"]))
)
def test_math_normal_form_is_stable(parts):
    once = math.normalise("".join(parts))
    assert math.normalise(once) == once


@settings(max_examples=30)
@given(st.lists(st.fractions(-20, 20, max_denominator=12), min_size=2, max_size=4, unique=True), st.randoms())
def test_math_sets_are_equal_in_any_order_and_tuples_are_not(values, random):
    other = random.sample(values, len(values))
    content, shuffled = (", ".join(latex(value) for value in some) for some in (values, other))
    assert boxed("math", rf"\{{{shuffled}\}}", rf"\{{{content}\}}") == "correct"
    assert boxed("math", rf"\{{{shuffled}, 21\}}", rf"\{{{content}\}}") == "wrong"
    assert boxed("math", f"({shuffled})", f"({content})") == ("correct" if values == other else "wrong")


@settings(max_examples=30)
@given(INTEGER, st.integers(2, 10**4))
def test_math_fractions(numerator, denominator):
    fraction = rf"\frac{{{numerator}}}{{{denominator}}}"
    assert boxed("math", rf"\dfrac{{{3 * numerator}}}{{{3 * denominator}}}", fraction) == "correct"
    assert boxed("math", f"{numerator}/{denominator}", fraction) == "correct"
    assert boxed("math", f"{numerator + 1}/{denominator}", fraction) == "wrong"


def latex(value):
    return str(value) if value.denominator == 1 else rf"\frac{{{value.numerator}}}{{{value.denominator}}}"


def test_math_golds_grade_correct():
    golds = gold_answers("math")[:50]
    assert [gold for gold in golds if boxed("math", gold, gold) != "correct"] == []


# Science


@pytest.mark.parametrize(
    ("content", "value"),
    [
        ("1200", 1200),
        ("1,200.5", 1200.5),
        (r"1\,200", 1200),
        ("-.5", -0.5),
        ("− 3.", -3),
        ("1.2e-3", 1.2e-3),
        (r"1.2 \times 10^{-3}", 1.2e-3),
        (r"1.2\cdot10^{5}\,\text{Pa}", 1.2e5),
        ("1.2*10^-3", 1.2e-3),
        ("1.2 x 10^3 m", 1200),
        ("10^{5}", 1e5),
        ("-10^5", -1e5),
        ("10", 10),
        (r"3.2 \text{ m/s}^2", 3.2),
        (r"3.2\ \mathrm{kg\,m^{-2}}", 3.2),
        ("3.2 m/s^2", 3.2),
        (r"3.2 \mu\text{m}", 3.2),
        (r"32^\circ\text{C}", 32),
        ("5 eV", 5),
        ("5 ft-lb", 5),
        (r"50\%", 50),
        (r"\$5.00", 5),
        (r"\text{3.2 m}", 3.2),
        (r"v = 3.2", 3.2),
        (r"x \approx 3.2", 3.2),
        (r"\sim 3.2", 3.2),
        (r"E \simeq 3.2\text{ eV}", 3.2),
        ("–3.2", -3.2),
        ("1.2×10⁻³", 1.2e-3),
        ("1.2E+3", 1200),
        ("3.2 kg m⁻³", 3.2),
        (r"3.2 \frac{m}{s^2}", 3.2),
        (r"3.2\ \dfrac{\text{J}}{\text{mol}\cdot\text{K}}", 3.2),
        ("(3.2)", 3.2),
        ("{3.2}", 3.2),
        (r"\boldsymbol{3.2 \times 10^{4}}", 32000),
        (r"\textbf{3.2}", 3.2),
    ],
)
def test_science_reads(content, value):
    assert boxed("science", content, str(value)) == "correct"
    assert boxed("science", content, str(value * 1.07)) == "wrong"


@pytest.mark.parametrize(
    "content",
    [
        "",
        "x",
        "3/4",
        r"\frac{3}{4}",
        r"5\sqrt{2}",
        r"5\pi",
        "3 or 4",
        "2^3",
        "2³",
        "3–4",
        r"3\frac{1}{2}",
        "(3)(4)",
        "3, 4",
        "1,5",
        r"3 \pm 1",
        "2+3",
        "1e999",
    ],
)
def test_science_needs_one_decimal_number(content):
    assert boxed("science", content, "3") == "invalid"


@pytest.mark.parametrize(
    ("content", "gold", "verdict"),
    [
        ("1.05", "1.0", "correct"),
        ("0.95", "1.0", "correct"),
        ("1.051", "1.0", "wrong"),
        ("-105", "-100", "correct"),
        ("-1", "1", "wrong"),
        ("5.1e-9", "5e-09", "correct"),
        ("0", "0.0", "correct"),
        ("0.001", "0.0", "wrong"),
        ("0", "1e-12", "wrong"),
        ("3", "three", "wrong"),
        ("3", "inf", "wrong"),
    ],
)
def test_science_tolerance(content, gold, verdict):
    assert boxed("science", content, gold) == verdict


def test_science_golds_grade_correct():
    assert [gold for gold in gold_answers("science") if boxed("science", gold, gold) != "correct"] == []


# Choice


@pytest.mark.parametrize(
    ("content", "verdict"),
    [
        ("B", "correct"),
        ("b", "correct"),
        (r"\text{B}", "correct"),
        (r"\textbf{(B)}", "correct"),
        (r"\mathrm{B}", "correct"),
        (r"\boldsymbol{B}", "correct"),
        (r"\Large\underline{B}", "correct"),
        (r"\, B \,", "correct"),
        ("**B**", "correct"),
        ("'B'", "correct"),
        (r"\left(B\right)", "correct"),
        ("(B)", "correct"),
        ("B.", "correct"),
        ("B)", "correct"),
        ("A", "wrong"),
        ("E", "invalid"),
        ("AB", "invalid"),
        (r"\text{A}\text{B}", "invalid"),
        ("Β", "invalid"),  # a Greek letter
        ("A or B", "invalid"),
        ("B. Paris", "invalid"),
        ("", "invalid"),
    ],
)
def test_choice(content, verdict):
    assert boxed("choice", content, "B") == verdict


def test_choice_gold_may_have_parentheses():
    assert boxed("choice", "C", "(C)") == "correct"
    assert boxed("choice", "C", "nonsense") == "wrong"
    assert "not a letter A-D" in verify("choice", r"\boxed{C}", "nonsense").reason


# Coding

ADD_TESTS = "def test_add():\n    assert add(1, 2) == 3\n"
ADD = "def add(a, b):\n    return a + b"


def test_right_and_wrong_programs():
    assert verify("coding", program(ADD), ADD_TESTS + "test_add()").correct
    assert verify("coding", program(ADD), "assert add(1, 2) == 3").correct
    wrong = verify("coding", program(ADD.replace("+", "-")), ADD_TESTS + "test_add()")
    assert (wrong.verdict, wrong.reason) == ("wrong", "AssertionError")
    assert verify("coding", program("def add(:"), "assert add(1, 2) == 3").verdict == "wrong"
    assert verify("coding", "def add(a, b): return a + b", "assert True").verdict == "invalid"


@pytest.mark.parametrize(
    "gold",
    [
        "assert add(1, 2) == 3\nassert add(-1, 1) == 0",
        "METADATA = {}\n\ndef check(candidate):\n    assert candidate(1, 2) == 3\n\ncheck(add)",
        "from solution import add\n\n" + ADD_TESTS,
        "from solution import add as plus\n\ndef test_plus():\n    assert plus(1, 2) == 3",
        "import pytest\nfrom solution import *\n\n"
        + ADD_TESTS
        + "    with pytest.raises(TypeError):\n        add(1, 'a')",
        ADD_TESTS + "\ndef test_more():\n    assert add(0, 0.5) == 0.5\n\ntest_add()\ntest_more()",
        ADD_TESTS + "\nif __name__ == '__main__':\n    test_add()",
        "def test_add(a=1, *, b=2):\n    assert add(a, b) == 3",
    ],
    ids=["MBPP", "HumanEval", "KodCode", "renamed", "pytest", "CoMAS", "main", "defaults"],
)
def test_every_format_of_gold_tests(gold):
    right, wrong = verify("coding", program(ADD), gold), verify("coding", program(ADD + " + 1"), gold)
    assert right.correct, right.reason
    assert (wrong.verdict, wrong.reason) == ("wrong", "AssertionError")


def test_only_missing_calls_are_added():
    assert coding._missing_calls("def test_a(): pass\ndef test_b(x): pass\ndef test_c(*, x): pass\ntest_a()") == []
    assert coding._missing_calls("def test_a(): pass\ndef test_b(): test_a()") == ["test_b()"]


NOTHING_RUNS = [
    "",
    "# nothing",
    "'text'",
    "x = 1",
    "def check(f):\n    assert f(1, 2) == 3",
    "def test_add(x):\n    add(x, 1)",
]


@pytest.mark.parametrize("gold", [*NOTHING_RUNS, "assert (", "assert '\ud800'", "a\x00b"])
def test_gold_without_tests_is_never_passed(gold):
    assert verify("coding", program(ADD), gold).verdict == "wrong"


@pytest.mark.parametrize(
    "cheat",
    [
        "import sys; sys.exit(0)",
        "import os; os._exit(0)",
        "raise SystemExit",
        "import os; os.kill(os.getpid(), 9)",
        "import os\nfor fd in range(3, 20):\n    try: os.write(fd, b'0' * 32)\n    except OSError: pass\nos._exit(0)",
        "x = 'a' * (8 << 30)",
        "while True: print('x' * 100_000)",
        "print(open(__file__).read())",
        "print(input())",
        "import os\nassert any('TOKEN' in name for name in os.environ)",
        "assert False, '\\ud800'",
        "\ud800",
        "\x00",
    ],
)
def test_cheats_and_accidents_fail(cheat, monkeypatch):
    monkeypatch.setenv("MY_SECRET_TOKEN", "must not be seen")
    assert verify("coding", program(ADD + "\n" + cheat), "assert add(1, 2) == 3").verdict == "wrong"


def test_infinite_loop_is_stopped():
    verdict = coding.verify(program("while True: pass"), "assert True", wall_limit=0.3)
    assert (verdict.verdict, verdict.reason) == ("wrong", "stopped after 0.3 s")


def test_programs_can_print_use_dataclasses_and_main():
    code = (
        "from __future__ import annotations\nimport dataclasses, pickle\n@dataclasses.dataclass\nclass A:\n    x: int\n"
        "print('x' * 1_000_000, 'é')\nassert pickle.loads(pickle.dumps(A(1))) == A(1)\nassert __name__ == '__main__'"
    )
    verdict = verify("coding", program(code), "assert A(1).x == 1")
    assert verdict.correct, verdict.reason


# All tasks


def test_unknown_task_names_the_known_ones():
    with pytest.raises(ValueError, match="'poetry'; known: math, science, choice, coding"):
        verify("poetry", "", "")


def test_verify_many_keeps_the_order():
    items = [("coding", program(f"x = {i}"), f"assert x == {i if i % 2 else -1}") for i in range(8)]
    items += [("math", f"\\boxed{{{i}/8}}", r"\frac{1}{8}") for i in range(4)] + [("choice", r"\boxed{A}", "A")]
    expected = [i % 2 == 1 for i in range(8)] + [False, True, False, False] + [True]
    assert [verdict.correct for verdict in verify_many(items, workers=4)] == expected
    assert list(verify_many([])) == []


def test_verify_many_takes_no_more_items_than_it_must():
    taken = []
    items = (taken.append(i) or ("choice", r"\boxed{A}", "A") for i in range(5 * AHEAD))
    verdicts = verify_many(items, workers=2)
    assert next(verdicts).correct
    assert len(taken) <= 2 * AHEAD + 1
    verdicts.close()
    with pytest.raises(ValueError, match="unknown task 'poetry'"):
        list(verify_many([("poetry", "", "")]))


TEXT = st.text(st.sampled_from("0123456789+-*/^_.,=%$()[]{} \\abcdexABCDE\n−×#\ud800") | st.characters(), max_size=40)
RESPONSE = TEXT | TEXT.map(lambda text: f"\\boxed{{{text}}}")


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(["math", "science", "choice"]), RESPONSE, TEXT)
def test_verify_never_raises(task, response, gold):
    # math-verify's own process is left out: it is slow, and test_math_slow has its share of nonsense.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(math.pool, "compare", lambda *_: (False, "not asked"))
        assert verify(task, response, gold).verdict in ("correct", "wrong", "invalid")


@settings(max_examples=15, deadline=None)
@given(TEXT, TEXT)
def test_math_verify_never_raises(content, gold):
    assert math.pool.compare(gold, content)[0] in (True, False)
