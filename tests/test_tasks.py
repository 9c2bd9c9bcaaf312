"""Answers are found and verified: hand-written cases, hostile input, the authors' gold answers."""

import json
import os
import select
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marti_ext.tasks import coding, last_boxed, last_code_block, math, verify, verify_many

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
        ("43", "42", "wrong"),
        ("-42", "42", "wrong"),
        ("9" * 900, "42", "wrong"),
        ("x" * 2000, "42", "wrong"),
        ("42", "", "wrong"),
        ("", "42", "invalid"),
    ],
)
def test_math_fast(content, gold, verdict, monkeypatch):
    monkeypatch.setattr(math, "_compare_slow", lambda *_: pytest.fail("not decided by the fast path"))
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
        ("0.25", r"\frac{6}{25}", "wrong"),
        ("x+1", "x+2", "wrong"),
        (r"\frac{1}{", "5", "invalid"),
        (r"\frac", "5", "wrong"),
        ("?!", "5", "wrong"),
        ("\ud800\x00", "5", "wrong"),
    ],
)
def test_math_slow(content, gold, verdict):
    assert boxed("math", content, gold) == verdict


def test_math_without_box_is_invalid():
    assert verify("math", "The answer is 42.", "42").verdict == "invalid"


def test_math_hang_is_ended_and_the_next_comparison_works(monkeypatch):
    monkeypatch.setattr(math, "DEADLINE", 1)
    math._forget_worker()
    hanging = verify("math", r"\boxed{9^{9^{9^9}}}", "5")
    monkeypatch.undo()
    assert hanging.verdict == "wrong"
    assert "longer than 1 s" in hanging.reason
    assert boxed("math", "0.5", r"\frac{1}{2}") == "correct"


def test_a_dead_worker_is_replaced():
    assert boxed("math", "0.5", r"\frac{1}{2}") == "correct"
    math._worker.kill()
    math._worker.wait()
    assert boxed("math", "0.5", r"\frac{1}{2}") == "correct"


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
    ],
)
def test_science_reads(content, value):
    assert boxed("science", content, str(value)) == "correct"
    assert boxed("science", content, str(value * 1.07)) == "wrong"


@pytest.mark.parametrize(
    "content",
    ["", "x", "3/4", r"\frac{3}{4}", r"5\sqrt{2}", r"5\pi", "3 or 4", "2^3", "3, 4", "1,5", r"3 \pm 1", "2+3", "1e999"],
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
        (r"\left(B\right)", "correct"),
        ("(B)", "correct"),
        ("B.", "correct"),
        ("B)", "correct"),
        ("A", "wrong"),
        ("E", "invalid"),
        ("AB", "invalid"),
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


def test_test_functions_that_are_never_called_are_called():
    wrong = program("def add(a, b):\n    return 0")
    assert verify("coding", wrong, ADD_TESTS).verdict == "wrong"
    assert verify("coding", program(ADD), ADD_TESTS).correct
    # Arguments with defaults do not stop a call; a test that wants a fixture cannot be called.
    assert verify("coding", wrong, "def test_add(a=1, *, b=2):\n    assert add(a, b) == 3").verdict == "wrong"
    assert coding._missing_calls("def test_a(): pass\ndef test_b(x): pass\ndef test_c(*, x): pass\ntest_a()") == []


@pytest.mark.parametrize("gold", ["", "# nothing", "assert (", "assert '\ud800'", "a\x00b"])
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


@pytest.mark.parametrize("parent", ["os._exit(0)", "pass", "os.waitpid(child, 0)"])
def test_forked_child_does_not_outlive_the_test(parent, tmp_path):
    """The parent leaves early, passes, or waits for ever; the child's end is awaited through its process descriptor."""
    code = (
        f"import os, signal\nchild = os.fork()\nif child == 0:\n    signal.pause()\n"
        f"open({str(tmp_path / 'pid')!r}, 'w').write(str(child))\n{parent}"
    )
    verdict = coding.verify(program(code), "assert True", wall_limit=2.0 if "wait" in parent else 10.0)
    assert verdict.correct == (parent == "pass")
    assert_ends(int((tmp_path / "pid").read_text()))


def assert_ends(pid):
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    ended, _, _ = select.select([descriptor], [], [], 10)
    os.close(descriptor)
    assert ended, f"process {pid} is still running"


def test_working_directory_is_empty_and_removed(tmp_path):
    code = (
        f"import os\nassert os.listdir() == []\nopen({str(tmp_path / 'where')!r}, 'w').write(os.getcwd())\n"
        "for _ in range(20):\n    os.mkdir('d'); os.chdir('d')"
    )
    assert verify("coding", program(code), "assert True").correct
    assert not Path((tmp_path / "where").read_text()).exists()


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
    assert verify_many([]) == []


TEXT = st.text(st.sampled_from("0123456789+-*/^_.,=%$()[]{} \\abcdexABCDE\n−×#\ud800") | st.characters(), max_size=40)
RESPONSE = TEXT | TEXT.map(lambda text: f"\\boxed{{{text}}}")


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(["math", "science", "choice"]), RESPONSE, TEXT)
def test_verify_never_raises(task, response, gold):
    # math-verify's own process is left out: it is slow, and test_math_slow has its share of nonsense.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(math, "_compare_slow", lambda *_: (False, "not asked"))
        assert verify(task, response, gold).verdict in ("correct", "wrong", "invalid")


@settings(max_examples=15, deadline=None)
@given(TEXT, TEXT)
def test_math_verify_never_raises(content, gold):
    assert math._compare_slow(gold, content)[0] in (True, False)
