"""The sandbox: right programs pass, wrong ones fail, and nothing that a program does gets out or changes the verdict."""

import os
import random
import socket
import sys
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from marti_ext.tasks import sandbox
from marti_ext.tasks.sandbox import Outcome, isolation, run_tests

pytestmark = pytest.mark.real
ADD = "def add(a, b):\n    return a + b\n"
IN_JUDGE = "assert add(1, 2) == 3"
IN_PROGRAM = "import sys\nassert add(1, 2) == 3"  # tests that import `sys` may patch the interpreter
PASSED = Outcome(True, "all tests passed")
RANDOM = random.Random(0)
isolated = pytest.mark.skipif(sandbox._kind() == "limits", reason=isolation())


@pytest.fixture(params=sorted({sandbox._kind(), "limits"}))
def every_kind(request, monkeypatch):
    monkeypatch.setattr(sandbox, "_kind", lambda: request.param)


def attack(code, tests=IN_JUDGE, wall_limit=5.0):
    """The outcome, after a look at what is still running: the wall limit is in the command line of all its processes."""
    mark = wall_limit + RANDOM.random() / 1000
    outcome = run_tests(ADD + textwrap.dedent(code), tests, mark)
    assert [pid for pid in os.listdir("/proc") if pid.isdigit() and str(mark).encode() in command_line(pid)] == []
    return outcome


def command_line(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


# Verdicts


@pytest.mark.usefixtures("every_kind")
@pytest.mark.parametrize(
    ("program", "tests"),
    [
        (ADD, IN_JUDGE),
        (ADD, IN_PROGRAM),
        (ADD, "from solution import add\ndef test_add():\n    assert add('a', 'b') == 'ab'\ntest_add()"),
        (ADD, "def check(candidate):\n    assert candidate(1, 2) == 3\ncheck(add)"),
        ("def sum(a, b):\n    return a + b", "assert sum(1, 2) == 3"),
        ("def order(x):\n    x.sort()", "x = [2, 1]\nassert order(x) is None\nassert x == [1, 2]"),
        ("def twice(f, x):\n    return f(f(x))", "assert twice(lambda x: x + 1, 1) == 3"),
        ("def fail():\n    raise KeyError('a')", "try:\n    fail()\nexcept LookupError:\n    pass\nelse:\n    assert 0"),
        ("class E(Exception): pass\ndef fail():\n    raise E", "try:\n    fail()\nexcept E:\n    pass"),
        ("class Solution:\n    def f(self, x):\n        return {x: (x, 1j)}", "assert Solution().f(1) == {1: (1, 1j)}"),
        ("from collections import Counter as count", "assert count('aab') == {'a': 2, 'b': 1}"),
        ("def squares(n):\n    yield from (i * i for i in range(n))", "assert list(squares(3)) == [0, 1, 4]"),
        ("from math import sqrt", "assert math.isclose(sqrt(2.0), 1.41421356, rel_tol=1e-6)"),
        ("from math import sqrt",
         "def off(x):\n    return math.fabs(sqrt(x) - 2)\ndef check():\n    import math\n    assert off(4.0) == 0\ncheck()"),
        ("import datetime, decimal\ndef f():\n    return datetime.date(2024, 1, 2), decimal.Decimal('1.5')",
         "import datetime\nassert f() == (datetime.date(2024, 1, 2), 1.5)"),
        ("def total(x):\n    return sum(x)", "from collections import Counter\nassert total(Counter([1, 2]).keys()) == 3"),
        ("import pickle\nclass A:\n    pass\nassert type(pickle.loads(pickle.dumps(A()))) is A", "assert True"),
        ("import os\nassert os.listdir() == []\nopen('a', 'w').write('b')", "assert True"),
        ("print('x' * 1_000_000, 'é')", "assert True"),
    ],
)  # fmt: skip
def test_right_programs_pass(program, tests):
    assert run_tests(program, tests, 10.0) == PASSED


@pytest.mark.usefixtures("every_kind")
@pytest.mark.parametrize("tests", [IN_JUDGE, IN_PROGRAM])
@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("def add(a, b):\n    return a - b", "AssertionError"),
        ("def add(a, b):\n    return c", "NameError: name 'c' is not defined"),
        ("def add(a, b):\n    return add(a, b)", "RecursionError"),
        ("def plus(a, b):\n    return a + b", "NameError: name 'add' is not defined"),
        ("def add(:", "SyntaxError"),
        ("a\x00b", "SyntaxError"),
        ("\ud800", "UnicodeEncodeError"),
        ("(" * 5000, "SyntaxError"),
    ],
)
def test_wrong_programs_fail(program, tests, reason):
    outcome = run_tests(program, tests, 10.0)
    assert not outcome.passed
    assert outcome.reason.startswith(reason) and "\n" not in outcome.reason


@pytest.mark.parametrize("tests", ["assert (", "assert '\ud800'", "a\x00b", "(" * 5000])
def test_tests_that_are_not_python_fail(tests):
    assert not run_tests(ADD, tests).passed


def test_many_threads_measured():
    """The time of a run, and that runs beside each other keep their own verdicts."""
    began = time.perf_counter()
    with ThreadPoolExecutor(4) as pool:
        outcomes = list(
            pool.map(lambda i: run_tests(f"def f():\n    return {i}", f"assert f() == {i - i % 2}", 10), range(16))
        )
    print(f"{(time.perf_counter() - began) / 16 * 1000:.0f} ms per run, 4 at a time; {isolation()}")
    assert [outcome.passed for outcome in outcomes] == [True, False] * 8


# Faults of the machine are nobody's mistake


@pytest.mark.usefixtures("every_kind")
def test_a_machine_without_processes_is_no_wrong_program(monkeypatch, tmp_path):
    def no_process(*_, **__):
        raise BlockingIOError(11, "Resource temporarily unavailable")

    assert sandbox._kind()  # found out beforehand
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(sandbox, "_talk", no_process)
    with pytest.raises(RuntimeError, match="can't run programs: .*Resource temporarily unavailable.*marti_ext doctor"):
        run_tests(ADD, IN_JUDGE)
    assert os.listdir(tmp_path) == []


@pytest.mark.usefixtures("every_kind")
def test_a_keeper_that_does_not_start_says_why(monkeypatch):
    start = "raise SystemExit('no such library')"
    monkeypatch.setattr(sandbox, "_command", lambda *_: [sys.executable, "-c", start])
    with pytest.raises(RuntimeError, match="no such library"):
        run_tests(ADD, IN_JUDGE)


@pytest.mark.skipif(sandbox._kind() != "namespaces", reason=isolation())
def test_a_judge_that_can_not_be_confined_says_why(monkeypatch):
    monkeypatch.setattr(sandbox, "_visible", lambda: ["/no/such/folder"])
    with pytest.raises(RuntimeError, match="No such file or directory"):
        run_tests(ADD, IN_JUDGE)


def test_the_strongest_isolation_that_works_is_used(monkeypatch):
    for working in ("namespaces", "bubblewrap", "limits"):
        monkeypatch.setattr(sandbox, "_works", lambda kind, working=working: kind == working)
        assert sandbox._kind.__wrapped__() == working
    monkeypatch.setattr(sandbox, "_works", lambda kind: False)
    with pytest.raises(OSError, match="does nothing"):
        sandbox._kind.__wrapped__()


# Forging


@pytest.mark.usefixtures("every_kind")
@pytest.mark.parametrize("tests", [IN_JUDGE.replace("3", "4"), IN_PROGRAM.replace("3", "4")])
@pytest.mark.parametrize(
    "code",
    [
        "import sys; sys.exit(0)",
        "import os; os._exit(0)",
        "import os; os.kill(os.getpid(), 9)",
        "import os; os.kill(os.getppid(), 9)",
        "import os; os.killpg(0, 9)",
        "print('passed\\nall tests passed')",
        "import os\nfor fd in range(64):\n    try: os.write(fd, b'passed\\nall tests passed')\n    except OSError: pass",
        "import builtins\nbuiltins.AssertionError = type('E', (BaseException,), {})",
        "import atexit, os; atexit.register(os._exit, 0)",
        "import sys; sys.settrace(lambda *_: sys.exit(0)); sys.excepthook = lambda *_: None",
        "def add(a, b):\n    import sys; sys.exit(0)",
        "def add(a, b):\n    import os; os._exit(0)",
        "import threading, time\ndef run():\n    while True: print('passed'); time.sleep(0.01)\nthreading.Thread(target=run).start()",
    ],
)
def test_a_verdict_can_not_be_had_otherwise(code, tests):
    assert not attack(code, tests).passed


ALWAYS_EQUAL = """
class Equal({base}):
    __eq__ = __le__ = __ge__ = __lt__ = __gt__ = lambda *_: True
    __ne__ = lambda *_: False
    __hash__ = None
    __sub__ = __rsub__ = __abs__ = lambda self, *_: self
def add(a, b):
    return Equal()
"""


@pytest.mark.usefixtures("every_kind")
@pytest.mark.parametrize("tests", ["assert add(1, 2) == 4", "assert 4 == add(1, 2)", "assert abs(add(1, 2) - 4) < 0.1"])
@pytest.mark.parametrize("base", ["object", "int", "list", "str"])
def test_objects_that_equal_everything_equal_nothing(base, tests):
    assert not attack(ALWAYS_EQUAL.format(base=base), tests).passed


def test_the_judge_compares_with_its_own_functions():
    cheat = "import builtins\nclass math:\n    isclose = lambda *_, **__: True\nabs = builtins.abs = lambda _: 0"
    assert not attack(cheat, "assert math.isclose(add(1, 2), 4)").passed
    assert not attack(cheat, "assert abs(add(1, 2) - 4) < 0.1").passed


def test_the_stack_and_the_memory_hold_no_token_and_no_tests():
    """The program looks for a name in the tests in every frame and every list and tuple."""
    code = """
        import gc, sys
        def add(a, b):
            frame, found = sys._getframe(), []
            while frame:
                found += map(repr, frame.f_locals.values())
                frame = frame.f_back
            found += [repr(thing) for thing in gc.get_objects() if type(thing) in (list, tuple)]
            return any("".join(("zebra", "finch")) in text for text in found)
    """
    assert attack(code, "zebrafinch = add(1, 2)\nassert zebrafinch is False", 10.0) == PASSED


def test_hostile_answers_end_the_judge_not_the_sandbox():
    for answer in (b"cos\nsystem\n(S'true'\ntR.", b"\x80\x05.", b"N.", b"0", b"\x80\x05]q\x00h\x00a."):
        assert not attack(f"import os\ndef add(a, b):\n    os.write(4, {answer!r})", "assert add(1, 2) == 4").passed
    bare = "try:\n    add(1, 2)\nexcept:\n    pass"
    assert not attack("def add(a, b):\n    import os; os._exit(0)", bare).passed


# Limits


@pytest.mark.usefixtures("every_kind")
@pytest.mark.parametrize(
    "code",
    [
        "x = bytearray(8 << 30)",
        "x = []\nwhile True: x.append(bytearray(1 << 20))",
        "with open('big', 'wb') as file:\n    for _ in range(1000): file.write(bytes(1 << 20))",
        "input()",
        "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 40, 1 << 40)); open('b', 'wb').write(bytes(9 << 20))",
    ],
)
def test_limits_end_the_program(code):
    assert not attack(code, wall_limit=10.0).passed


@pytest.mark.usefixtures("every_kind")
@pytest.mark.parametrize(
    "code",
    [
        "while True: pass",
        "import signal\nfor n in range(1, 64):\n    try: signal.signal(n, signal.SIG_IGN)\n    except (OSError, ValueError): pass\n"
        "while True: signal.pause()",
        "text = 'x' * (1 << 20)\nfor _ in range(10_000): print(text)\nwhile True: pass",
        "def add(a, b):\n    while True: pass",
    ],
)
def test_wall_limit(code):
    outcome = attack(code, wall_limit=0.5)
    assert not outcome.passed and outcome.reason.startswith("stopped after 0.5")


@isolated
def test_fork_bomb_and_many_files():
    assert not attack("import os\nwhile True:\n    try: os.fork()\n    except OSError: pass", wall_limit=1.0).passed
    count = "import os\nn = 0\ntry:\n    while True:\n        if os.fork() == 0:\n            while True: pass\n        n += 1\n"
    assert attack(count + "except BlockingIOError: pass\nassert n < 64") == PASSED
    fill = "import errno\ntry:\n    for i in range(100): open(str(i), 'wb').write(bytes(1 << 20))\n"
    assert attack(fill + "except OSError as error: assert error.errno == errno.ENOSPC\nelse: assert False") == PASSED


@pytest.mark.usefixtures("every_kind")
@pytest.mark.parametrize("end", ["", "os._exit(0)", "while True: pass", "def add(a, b): return 0"])
def test_no_daemon_survives(end):
    """A process in a session of its own, whose parent is gone; `attack` looks for it."""
    code = "import os, signal\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        signal.pause()\n    os._exit(0)\n"
    assert attack(code + end, wall_limit=0.5 if "while" in end else 10.0).passed == (end == "")


@pytest.mark.usefixtures("every_kind")
def test_deep_folders_and_threads_that_outlive_the_tests(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert attack("import os\nfor _ in range(2000):\n    os.mkdir('d'); os.chdir('d')", wall_limit=10.0) == PASSED
    assert (
        attack("import threading\nthreading.Thread(target=threading.Event().wait).start()", wall_limit=10.0) == PASSED
    )
    assert os.listdir(tmp_path) == []


# What is out of reach


@pytest.mark.usefixtures("every_kind")
def test_environment_is_scrubbed(monkeypatch):
    monkeypatch.setenv("MY_SECRET_TOKEN", "must not be seen")
    code = (
        "import os\nassert not any('SECRET' in name for name in os.environ)\nseen = open('/proc/self/environ').read()\n"
    )
    assert attack(code + "assert 'SECRET' not in seen") == PASSED


@isolated
def test_files_of_ours_are_out_of_reach(tmp_path):
    (tmp_path / "secret").write_text("secret")
    places = [tmp_path / "secret", Path(__file__), Path(sandbox.__file__), Path.home() / ".bashrc", Path("/etc/passwd")]
    code = f"import os\nassert not any(map(os.path.exists, {[str(place) for place in places]}))\n"
    assert attack(code) == PASSED
    for place in (tmp_path / "new", Path("/usr/new"), Path(os.__file__), Path("/proc/1/environ"), Path("/proc/1/mem")):
        assert not attack(f"open({str(place)!r}, 'ab').write(b'x')").passed
        assert not Path("/usr/new").exists() and not (tmp_path / "new").exists()


@isolated
def test_the_judge_and_the_kernel_are_out_of_reach():
    for path in ("/proc/1/mem", "/proc/1/environ", "/proc/1/fd/0", "/proc/1/root/etc"):
        assert not attack(f"import os\n(os.listdir if 'root' in {path!r} else open)({path!r})").passed
    code = """
        import ctypes, os
        libc = ctypes.CDLL(None)
        assert libc.unshare(0x10000000) == -1 and libc.mount(b"none", b"/tmp", b"tmpfs", 0, None) == -1
        assert libc.ptrace(16, 1, 0, 0) == -1
        pids = [int(pid) for pid in os.listdir("/proc") if pid.isdigit()]
        assert len(pids) <= 3, pids
        status = open("/proc/self/status").read()
        assert "CapEff:\\t0000000000000000" in status and "NoNewPrivs:\\t1" in status
    """
    assert attack(code) == PASSED


@isolated
def test_no_network():
    with socket.create_server(("127.0.0.1", 0)) as server:
        code = f"import socket\nsocket.create_connection(('127.0.0.1', {server.getsockname()[1]}))"
        outcome = attack(code)
    assert not outcome.passed and outcome.reason.startswith(("OSError", "ConnectionRefusedError"))


def test_a_program_has_its_time_to_itself_however_many_wait():
    """Thirty at a time, each with half of its time to compute; without turns they would share two cores."""
    busy = "import time\nwhile time.process_time() < 1.0:\n    pass\n"
    with ThreadPoolExecutor(30) as threads:
        outcomes = list(threads.map(lambda _: run_tests(busy + ADD, IN_JUDGE, 2.5), range(12)))
    assert outcomes == [PASSED] * 12
