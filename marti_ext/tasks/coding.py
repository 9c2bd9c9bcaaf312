"""Programs: run the last block of code with the gold tests in a process of its own."""

import ast
import os
import secrets
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress

from marti_ext.tasks.extract import last_code_block
from marti_ext.tasks.verdict import Verdict

WALL_LIMIT = 3.0  # seconds, the start of the interpreter (0.1 s) included; the paper names none

# Run by `python -c` before the program: limits first, then the program from standard input, under the name __main__.
_LAUNCH = """
import resource
for limit, value in ((resource.RLIMIT_FSIZE, 8 << 20), (resource.RLIMIT_AS, 4 << 30), (resource.RLIMIT_CORE, 0)):
    hard = resource.getrlimit(limit)[1]
    value = value if hard < 0 else min(value, hard)
    resource.setrlimit(limit, (value, value))
del resource, limit, value, hard
exec(compile(__import__("sys").stdin.buffer.read(), "<program>", "exec"))
"""


def verify(response: str, answer: str, wall_limit: float = WALL_LIMIT) -> Verdict:
    """Run the last block of code followed by the gold tests (`answer`); correct if the last line is reached in time.

    Test functions without arguments that the tests define and never call are called at the end. That the end was
    reached is shown by a random token which the program's own last line writes to a pipe, so leaving early
    (`sys.exit(0)`, `os._exit(0)`) does not pass. Safe in threads. Not a program in the response: invalid.

    This is a harness, not a sandbox. What it holds: wall time, 4 GiB of address space and 8 MiB per written file for
    each process (output counts as a file, so printing more is an error), no standard input, no environment variables
    of ours, an empty working directory that is removed, and the end of every process in the program's group.
    What it does not hold: the program runs as our user, with our files, processes and network in reach; it can leave
    its group (`setsid`) and live on; it can start any number of processes and fill the disk with many files; and it
    shares the interpreter with the tests, so objects that equal everything pass, as does code that looks
    for the token in its own stack.
    """
    code = last_code_block(response)
    if code is None:
        return Verdict("invalid", None, "no closed block of Python code")
    try:
        calls = _missing_calls(answer)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return Verdict("wrong", code, f"the gold tests are not Python: {error}")
    if calls is None:
        return Verdict("wrong", code, "the gold answer has no tests")
    passed, reason = _run("\n".join([code, "", answer, *calls]), wall_limit)
    return Verdict("correct" if passed else "wrong", code, reason)


def _missing_calls(tests: str) -> list[str] | None:
    """A call for each test function that the tests never call; None if there are no statements at all."""
    tree = ast.parse(tests)
    if not tree.body:
        return None
    called = {node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]
    return [f"{f.name}()" for f in functions if f.name not in called and not _needs_arguments(f.args)]


def _needs_arguments(args: ast.arguments) -> bool:
    return len(args.posonlyargs + args.args) > len(args.defaults) or None in args.kw_defaults


def _run(program: str, wall_limit: float) -> tuple[bool, str]:
    token = secrets.token_hex(16)
    directory = tempfile.mkdtemp(prefix="program-")
    token_read, token_write = os.pipe()
    os.set_blocking(token_read, False)  # a process that left its group may hold the other end for ever
    program += f'\n__import__("os").write({token_write}, b"{token}")\n'
    with tempfile.TemporaryFile() as output:
        try:
            process = subprocess.Popen(
                [sys.executable, "-I", "-X", "utf8", "-c", _LAUNCH],
                cwd=directory,
                env=_environment(directory),
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                start_new_session=True,
                pass_fds=(token_write,),
            )
            timed_out = _wait(process, program.encode("utf-8", "replace"), wall_limit)
            written = _read(token_read)
        finally:
            os.close(token_read)
            os.close(token_write)
            # Not shutil.rmtree: a program can nest folders deeper than Python's recursion goes.
            subprocess.run(["rm", "-rf", "--", directory], stderr=subprocess.DEVNULL)
        if timed_out:
            return False, f"stopped after {wall_limit:g} s"
        if written == token.encode():
            return True, "all tests passed"
        return False, _last_line(output) or f"ended before the end of the tests, exit status {process.returncode}"


def _wait(process: subprocess.Popen, program: bytes, wall_limit: float) -> bool:
    """Feed the program, wait for its end, end what is left of its process group; True if it was over time."""
    try:
        process.communicate(program, timeout=wall_limit)
    except subprocess.TimeoutExpired:
        return True
    else:
        return False
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _environment(directory: str) -> dict[str, str]:
    """No keys or tokens of ours; LD_LIBRARY_PATH because some Pythons do not start without it."""
    ours = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}
    return ours | {"HOME": directory, "TMPDIR": directory, "LANG": "C.UTF-8", "OMP_NUM_THREADS": "1"}


def _read(pipe: int) -> bytes:
    try:
        return os.read(pipe, 1024)
    except BlockingIOError:
        return b""


def _last_line(output) -> str:
    """The end of what the program printed: with an exception, its type and message."""
    size = os.fstat(output.fileno()).st_size
    tail = os.pread(output.fileno(), 2000, max(0, size - 2000)).decode("utf-8", "replace")
    return (tail.strip().splitlines() or [""])[-1][:200]
