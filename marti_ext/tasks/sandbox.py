"""A sandbox for programs written by models: run a program and its tests, and trust the verdict.

Four processes. The *caller* (`run_tests`) starts a *keeper* (sandbox_keeper.py), which makes the isolation, holds the
wall limit and ends everything; it starts the *judge* (sandbox_judge.py), which alone reads the tests and gives the
verdict; the judge starts the *program*'s process before it reads the tests, so they are not in the program's memory.
None of them uses the caller's environment.

Where the tests run:

- In the judge, wherever the tests only call what the program defines (HumanEval, MBPP, most of KodCode). Calls go over
  pipes; plain values (numbers, text, containers, dates) come back as such, their subclasses as the plain type, anything
  else as a `Handle` that never equals a plain value. So comparisons and `assert` are the judge's, and nothing the
  program patches, prints, returns or exits with can pass a test: it must produce the value, which it is not shown.
- In the program's own interpreter, where the tests need its classes or patch the interpreter (`unittest.mock`,
  captured output, `except TheirError`, subclasses). This depends on the tests alone, never on the program. Leaving
  early, printing, dying and patched builtins fail here too, and no token exists in memory before the tests end;
  but objects that equal everything pass, and so does code written against this sandbox that answers in our place.

What remains forgeable in the first case: what the tests pass to the program to compare itself (`obj.same_as(expected)`),
equality between two objects of the program's own classes, and truth of an object (`assert f(x)`). Programs can tell
that they are tested.

What holds, by `isolation()`:

- all: wall and CPU time, 2 GiB of address space per process, 8 MiB per file, 256 open files, no core dumps, no input,
  output thrown away, environment scrubbed, a working directory that is empty at first and gone afterwards.
- "namespaces" (own user, mount, PID, network, IPC and UTS namespaces): also at most 64 processes, 64 MiB and
  4096 files in all; only the system's and Python's own folders are visible, read-only (mounts below these keep their
  own mode); no network, no capabilities, no further user namespaces; the judge can be neither signalled nor traced;
  the end of its PID namespace, awaited before the verdict is returned, leaves no process. Where the caller is
  root, the program is not: it runs as user 65534. 64 processes may use 2 GiB each: they are the first that a machine
  short of memory ends.
- "bubblewrap", where we may not make namespaces ourselves and `bwrap` may: the same, but the program runs as our user
  (so it can kill the judge, which fails, but not read it), the number of files has no bound, and where the caller is
  root, the number of processes has none either.
- "limits": only what is said under "all". The program runs as our user, with our files, processes and network in reach,
  and can start any number of processes; they are found as descendants and ended, except where it kills the keeper
  first. Run as root, it can also read and write the judge's memory.
"""

import ast
import builtins
import marshal
import os
import signal
import subprocess
import symtable
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import NamedTuple

SLACK = 10.0  # seconds, beyond the wall limit, for the keeper to start, end everything and answer
IMPORTS_OF_PURE_TESTS = frozenset(
    ["bisect", "cmath", "collections", "copy", "datetime", "decimal", "functools", "heapq", "itertools", "math"]
    + ["operator", "pytest", "random", "re", "solution", "statistics", "string", "typing"]
)

# A core for each program: its wall limit is its own, however many threads wait to run one.
_turn = threading.Semaphore(len(os.sched_getaffinity(0)))


class Outcome(NamedTuple):
    """Whether the tests passed, and a line for people that says why not."""

    passed: bool
    reason: str


def run_tests(program: str, tests: str, wall_limit: float = 3.0) -> Outcome:
    """Run the tests against the program; passed if their last line is reached within `wall_limit` seconds. Waits while
    as many others run as there are cores.

    The tests see the program's global names, also as the module `solution`. Any text is allowed, in any thread.
    Raises RuntimeError where the machine and not the program is at fault: no process, memory or folder to be had.
    """
    try:
        names = _called_names(tests)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return Outcome(False, f"the tests are not Python: {type(error).__name__}")
    try:
        with _turn:
            verdict, reason = _keep(_kind(), program, tests, names, wall_limit)
            if verdict == "again":  # the tests pass something that can't be sent
                verdict, reason = _keep(_kind(), program, tests, None, wall_limit)
    except OSError as error:
        raise RuntimeError(
            f"the sandbox can't run programs: {error}. Has this machine run out of processes, memory, open files or "
            "disk? `python -m marti_ext doctor` shows what works"
        ) from error
    return Outcome(verdict == "passed", reason)


def weakness() -> str | None:
    """What to tell before programs of models are run here, if they are not kept apart."""
    if _kind() != "limits":
        return None
    return f"programs written by models run with {isolation()} (`python -m marti_ext doctor` has the remedy)"


def isolation() -> str:
    """Which of the cases in this module's docstring applies here, found by trying. Raises OSError if none does."""
    return {
        "bubblewrap": "bubblewrap: own namespaces, no network, no files of ours",
        "namespaces": "namespaces: own user, mount, PID and network namespaces, no network, no files of ours",
        "limits": "limits: only rlimits; programs can reach our files, processes and network",
    }[_kind()]


@cache
def _kind() -> str:
    for kind in ("namespaces", "bubblewrap"):  # the stronger first
        with suppress(OSError):
            if _works(kind) or _works(kind):  # once more: one failure on a busy machine must not weaken a whole run
                return kind
    if not _works("limits"):
        raise OSError("not even a program that does nothing ends well")
    return "limits"


def _works(kind: str) -> bool:
    return _keep(kind, "x = 1", "assert x == 1", {"x": []}, 10.0)[0] == "passed"


def _called_names(tests: str) -> dict[str, list[str]] | None:
    """The program's names that the tests call or take attributes of (which ones); None if they do more with them."""
    nodes = list(ast.walk(ast.parse(tests)))
    parents = {child: node for node in nodes for child in ast.iter_child_nodes(node)}
    imports = [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
    modules = {alias.name for node in imports if isinstance(node, ast.Import) for alias in node.names}
    modules |= {node.module or "" for node in imports if isinstance(node, ast.ImportFrom)}
    of_program = {a.name for n in imports if isinstance(n, ast.ImportFrom) and n.module == "solution" for a in n.names}
    bound = {alias.asname or alias.name.split(".")[0] for node in imports for alias in node.names} - of_program
    bound |= {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.ExceptHandler)}
    bound |= {node.id for node in nodes if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)}
    bound |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    bound -= _global_names(tests)  # bound in another function only
    loads = [node for node in nodes if isinstance(node, ast.Name) and node.id not in bound]
    # `assert sum(2, 3) == 5` is about the program's own `sum`, as there is nothing else it could be about.
    own = [node for node in loads if not hasattr(builtins, node.id)] or loads
    names: dict[str, list[str]] = {name: [] for name in of_program}
    for node in own:
        parent = parents[node]
        attribute = [parent.attr] if isinstance(parent, ast.Attribute) and isinstance(parent.ctx, ast.Load) else []
        called = isinstance(parent, ast.Call) and (node is parent.func or getattr(parent.func, "id", None) in bound)
        if not (called or attribute):
            return None
        names[node.id] = [*names.get(node.id, []), *(attribute or [""])]
    classes = [name for name in names if name[:1].isupper() and name != "Solution"]
    return None if classes or "*" in names or modules - IMPORTS_OF_PURE_TESTS else names


def _global_names(tests: str) -> set[str]:
    """The names that any function of the tests takes from the module and that are not bound there."""
    module = symtable.symtable(tests, "<tests>", "exec")
    scopes = [module]
    for scope in scopes:
        scopes += scope.get_children()
    taken = (name for scope in scopes for name in scope.get_symbols() if name.is_global() and name.is_referenced())
    return {name.get_name() for name in taken} - {name.get_name() for name in module.get_symbols() if name.is_local()}


def _keep(kind: str, program: str, tests: str, names: dict | None, wall_limit: float) -> tuple[str, str]:
    """Start a keeper, give it its work and return what it says: ("passed" | "failed" | "again", reason).

    Raises OSError where it can't start or isolate a program.
    """
    work = marshal.dumps((program, tests, names))
    with _folder(kind) as folder:
        said, error = _talk(_command(kind, wall_limit), folder, work, wall_limit + SLACK)
    began, _, said = said.partition("\n")
    verdict, _, reason = said.partition("\n")
    if began != "began":
        raise OSError(error.strip().rpartition("\n")[2] or "the keeper did not start")
    if verdict == "broken":
        raise OSError(reason)
    return verdict or "failed", " ".join(reason.split())[:200] or "the sandbox gave no verdict"


@contextmanager
def _folder(kind: str) -> Iterator[str]:
    """Where the program works: in a root of its own, or in a new folder of ours."""
    if kind != "limits":
        yield "/tmp"
        return
    folder = tempfile.mkdtemp(prefix="program-")
    try:
        yield folder
    finally:
        # Not shutil.rmtree: a program can nest folders deeper than Python's recursion goes.
        subprocess.run(["rm", "-rf", "--", folder], stderr=subprocess.DEVNULL)


def _talk(command: list[str], folder: str, work: bytes, seconds: float) -> list[str]:
    """What the command writes to its standard output and error in this time, before it is ended."""
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(command, cwd=folder, env=_environment(folder), start_new_session=True, **pipes) as keeper:
        try:
            written = keeper.communicate(work, seconds)
        except subprocess.TimeoutExpired as late:
            written = late.output, late.stderr
        finally:
            with suppress(ProcessLookupError):
                os.killpg(keeper.pid, signal.SIGKILL)
    return [(text or b"").decode("utf-8", "replace") for text in written]


def _command(kind: str, wall_limit: float) -> list[str]:
    here, visible = os.path.dirname(__file__), _visible()
    inside = "/run" if kind == "bubblewrap" else here
    # Behind Python's own folders: the `math` beside this file is not Python's.
    find = f"import sys; sys.path.append({inside!r}); import sandbox_keeper; del sys.path[-1]"
    start = f"{find}; sandbox_keeper.keep({kind!r}, {wall_limit!r}, {visible!r})"
    python = [sys.executable, "-I", "-X", "utf8", "-c", start]
    return [*_bubblewrap(here, inside, visible), *python] if kind == "bubblewrap" else python


def _bubblewrap(here: str, inside: str, visible: list[str]) -> list[str]:
    command = ["bwrap", "--unshare-all", "--as-pid-1", "--die-with-parent", "--cap-drop", "ALL", "--size", "67108864"]
    command += ["--tmpfs", "/", "--dir", "/tmp", "--proc", "/proc", "--dev", "/dev", "--chdir", "/tmp"]
    for path in visible:
        link = os.path.islink(path)
        command += ["--symlink", os.readlink(path), path] if link else ["--ro-bind", path, path]
    for file in ("sandbox_keeper.py", "sandbox_judge.py"):
        command += ["--ro-bind", f"{here}/{file}", f"{inside}/{file}"]
    return [*command, "--"]


def _environment(home: str) -> dict[str, str]:
    """No keys or tokens of ours; LD_LIBRARY_PATH because some Pythons do not start without it."""
    ours = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}
    return ours | {"HOME": home, "TMPDIR": home, "LANG": "C.UTF-8", "OMP_NUM_THREADS": "1"}


def _visible() -> list[str]:
    """The folders and files that a Python program needs to run."""
    system = ["/usr", "/bin", "/lib", "/lib64", "/etc/ld.so.cache", "/etc/localtime", "/etc/alternatives"]
    libraries = [path for path in os.environ.get("LD_LIBRARY_PATH", "").split(":") if os.path.isabs(path)]
    paths = dict.fromkeys([*system, sys.base_prefix, sys.prefix, *libraries])
    return [path for path in paths if os.path.lexists(path)]
