"""HumanEval and MBPP as published, through the coding verifier: their own solutions pass, and planted bugs do not."""

import ast
import random
import sys
from pathlib import Path

import pytest

from marti_ext.tasks import verify_many

ROOT = Path(__file__).parent.parent
REAL = ROOT.parent / "shared" / "datasets"
sys.path.insert(0, str(ROOT / "data"))

import prepare  # noqa: E402

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(
        not all((REAL / name).is_dir() for name in ("humaneval", "mbpp")), reason=f"the real files are not here: {REAL}"
    ),
]
SLOW = {"mbpp-123"}  # sums divisors up to 9999 one by one: its own solution takes about the 3 s that there are
WRONG_RESULTS = """
def wrong(value):
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float, complex)):
        return 2 * value + 1
    return value + "!" if isinstance(value, str) else [value]

original = {{}}
exec({code!r}, original)
globals().update(original)
for name in {names}:
    globals()[name] = lambda *arguments, name=name: wrong(original[name](*arguments))
"""
SWAPPED = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mult, ast.Div: ast.Mult, ast.Mod: ast.Mult,
    ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.And: ast.Or, ast.Or: ast.And, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip


def solutions(name):
    """The published solution and the gold tests of each question, by id."""
    sources = prepare.Sources(REAL, prepare.SEED)
    rows = [row for path in sources.files(name) for row in prepare.read_rows(path)]
    code = {f"{name}-{row['task_id']}": row.get("code") or row["prompt"] + row["canonical_solution"] for row in rows}
    return {question.id: (code[question.id], question.answer) for question in sources.questions(name)}


def passed(programs):
    """The ids of those that pass."""
    items = [("coding", f"```python\n{code}\n```", tests) for code, tests in programs.values()]
    return {key for key, verdict in zip(programs, verify_many(items), strict=True) if verdict.correct}


def with_wrong_results(code, tests):
    """Each function that the tests name computes what it did, and returns something else."""
    defined = {node.name for node in ast.parse(code).body if isinstance(node, ast.FunctionDef)}
    named = {node.id for node in ast.walk(ast.parse(tests)) if isinstance(node, ast.Name)}
    return WRONG_RESULTS.format(code=code, names=sorted(defined & named)), tests


def operator_of(node):
    return node.ops[0] if isinstance(node, ast.Compare) else getattr(node, "op", None)


def with_an_operator_swapped(code, tests):
    """Some operator is another one; None if there is no operator."""
    tree = ast.parse(code)
    places = [node for node in ast.walk(tree) if type(operator_of(node)) in SWAPPED]
    if not places:
        return None
    node = random.Random(code).choice(places)
    swapped = SWAPPED[type(operator_of(node))]()
    if isinstance(node, ast.Compare):
        node.ops[0] = swapped
    else:
        node.op = swapped
    return ast.unparse(tree), tests


@pytest.mark.parametrize(("name", "size"), [("humaneval", 164), ("mbpp", 500)])
def test_their_own_solutions_pass_and_wrong_results_do_not(name, size):
    programs = solutions(name)
    assert len(programs) == size
    assert set(programs) - passed(programs) <= SLOW
    assert passed({key: with_wrong_results(*program) for key, program in programs.items()}) == set()


def test_almost_every_swapped_operator_is_caught():
    """Not all: some make no difference, and some none that HumanEval's tests look at. Printed, for people."""
    programs = {key: with_an_operator_swapped(*program) for key, program in solutions("humaneval").items()}
    programs = {key: program for key, program in programs.items() if program}
    missed = passed(programs)
    print(f"{len(programs) - len(missed)} of {len(programs)} caught; not {', '.join(sorted(missed))}")
    assert len(missed) < len(programs) / 10
