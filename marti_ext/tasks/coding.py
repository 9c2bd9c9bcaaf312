"""Programs: run the last block of code and the gold tests in a sandbox."""

import ast

from marti_ext.tasks.extract import last_code_block
from marti_ext.tasks.sandbox import run_tests
from marti_ext.tasks.verdict import Verdict

WALL_LIMIT = 3.0  # seconds, the start of the interpreter (0.05 s) included; the paper names none


def verify(response: str, answer: str, wall_limit: float = WALL_LIMIT) -> Verdict:
    """Run the gold tests (`answer`) against the last block of code; correct if their last line is reached in time.

    Gold tests are statements that raise where the program is wrong: asserts on its names (MBPP), a function that is
    called with one (HumanEval's `check(name)`), calls of test functions (the CoMAS release). Functions `test_...` without
    arguments that are never called (KodCode, pytest) are called at the end; names may be imported from `solution`.
    Tests that would run nothing are passed by no program.

    sandbox.py says what is out of the program's reach, and which wrong programs can pass all the same. Safe in threads.
    Not a program in the response: invalid. Raises RuntimeError where this machine can't run programs.
    """
    code = last_code_block(response)
    if code is None:
        return Verdict("invalid", None, "no closed block of Python code")
    try:
        calls = _missing_calls(answer)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return Verdict("wrong", code, f"the gold tests are not Python: {error}")
    if calls is None:
        return Verdict("wrong", code, "the gold answer runs no tests")
    passed, reason = run_tests(code, "\n".join([answer, *calls]), wall_limit)
    return Verdict("correct" if passed else "wrong", code, reason)


def _missing_calls(tests: str) -> list[str] | None:
    """A call for each test function that the tests never call; None if there would still be nothing that runs."""
    tree = ast.parse(tests)
    called = {node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]
    calls = [f"{f.name}()" for f in functions if f.name not in called and not _needs_arguments(f.args)]
    return calls if calls or not all(map(_only_defines, tree.body)) else None


def _needs_arguments(args: ast.arguments) -> bool:
    return len(args.posonlyargs + args.args) > len(args.defaults) or None in args.kw_defaults


def _only_defines(statement: ast.stmt) -> bool:
    definitions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    kinds = (*definitions, ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign, ast.Pass)
    text = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    return text or isinstance(statement, kinds)
