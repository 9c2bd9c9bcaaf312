"""The processes in which math-verify runs: deadlines, deaths, threads, forks, and nothing left at exit."""

import os
import select
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from marti_ext.tasks import math_pool
from marti_ext.tasks.math_pool import CannotStart, MathPool

pytestmark = pytest.mark.real

ROOT = Path(__file__).parents[1]
ENDLESS = "9^{9^{9^9}}"


@pytest.fixture
def pool():
    made = MathPool(2, deadline=1)
    yield made
    made.close()


def works(pool: MathPool) -> bool:
    return pool.compare(r"\frac{1}{2}", "0.5")[0] and not pool.compare(r"\frac{1}{3}", "0.5")[0]


def gone(pid: int) -> bool:
    """Ended and waited for."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def only_worker(pool: MathPool) -> subprocess.Popen:
    (worker,) = pool.workers
    return worker


def test_processes_start_as_they_are_needed_and_no_more_than_the_pool_may_have(pool):
    assert not pool.workers
    assert works(pool) and works(pool)
    assert len(pool.workers) == 1
    with ThreadPoolExecutor(8) as threads:
        halves = list(threads.map(lambda n: pool.compare(f"\\frac{{{n}}}{{2}}", str(n / 2))[0], range(100)))
        wrong = list(threads.map(lambda n: pool.compare(f"\\frac{{{n}}}{{2}}", str(n / 2 + 1))[0], range(100)))
    assert all(halves) and not any(wrong)
    assert len(pool.workers) <= 2


def test_a_late_comparison_ends_and_the_others_go_on(pool):
    with ThreadPoolExecutor(2) as threads:
        late = threads.submit(pool.compare, "5", ENDLESS)
        assert all(works(pool) for _ in range(20))
    assert late.result() == (False, "math-verify took longer than 1 s")
    assert works(pool)
    assert len(pool.workers) <= 2


def test_the_deadline_holds_where_the_alarm_does_not(pool, monkeypatch):
    """A stopped process gets no alarm."""
    monkeypatch.setattr(math_pool, "SLACK", 0.1)
    assert works(pool)
    worker = only_worker(pool)
    os.kill(worker.pid, signal.SIGSTOP)
    assert pool.compare("5", "x") == (False, "math-verify took longer than 1 s")
    assert gone(worker.pid)
    assert works(pool)


@pytest.mark.parametrize("waited_for", [True, False])
def test_a_dead_process_is_replaced(pool, waited_for):
    assert works(pool)
    worker = only_worker(pool)
    worker.kill()
    os.waitid(os.P_PID, worker.pid, os.WEXITED | os.WNOWAIT)
    if waited_for:
        worker.wait()
    assert works(pool)
    assert gone(worker.pid) and len(pool.workers) == 1


def test_a_process_that_dies_over_a_comparison_is_named(pool, monkeypatch):
    assert works(pool)
    monkeypatch.setattr(pool, "_ask", lambda worker, pair: worker.kill() or math_pool._read(worker, 60))
    assert pool.compare("5", "x") == (False, "math-verify died: -9")
    monkeypatch.undo()
    assert works(pool)


def test_an_interrupted_comparison_leaves_no_reply_behind(pool, monkeypatch):
    assert works(pool)
    worker = only_worker(pool)

    def interrupt(worker, seconds):
        raise KeyboardInterrupt

    monkeypatch.setattr(math_pool, "_read", interrupt)
    with pytest.raises(KeyboardInterrupt):
        pool.compare("1", "1")
    monkeypatch.undo()
    assert gone(worker.pid) and not pool.workers
    assert works(pool)


def test_the_longest_texts_fit_into_the_pipe(pool):
    assert pool.compare("\U0001d465" * 2500, "\U0001d466" * 2500)[0] is False
    assert pool.compare('"\\\n\u2028' * 1000, "\ud800" * 1000)[0] is False
    assert works(pool)


def test_a_python_without_math_verify_is_an_error_that_says_so(pool, monkeypatch, tmp_path, capfd):
    (tmp_path / "math_verify.py").write_text("raise ImportError('not here')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(CannotStart, match="status 1 .*Is math-verify installed"):
        works(pool)
    assert "not here" in capfd.readouterr().err
    assert not pool.workers


def test_a_forked_child_has_processes_of_its_own(pool):
    """It forks while the parent's process is in the middle of a comparison."""
    assert works(pool)
    parents = only_worker(pool)
    asked, reply = threading.Event(), []

    def compare():
        asked.set()
        reply.append(pool.compare("5", ENDLESS))

    thread = threading.Thread(target=compare)
    thread.start()
    asked.wait()
    child = os.fork()
    if child == 0:
        fine = works(pool) and parents not in pool.workers and parents.stdin.closed
        pool.close()
        os._exit(0 if fine else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    thread.join()
    assert reply == [(False, "math-verify took longer than 1 s")]
    assert works(pool)


END = {
    "returns": "",
    "raises": "raise SystemExit(3)",
    "threads": "import threading; threading.Thread(target=pool.compare, args=('5', '9^{9^{9^9}}'), daemon=True).start()",
    "leaves": "import os; os._exit(0)",
    "killed": "import os; os.kill(os.getpid(), 9)",
}


@pytest.mark.parametrize("end", END)
def test_nothing_is_left_at_exit(end):
    code = f"""
from marti_ext.tasks.math import pool
assert pool.compare("0.5", "\\\\frac12")[0]
(worker,) = pool.workers
print(worker.pid, flush=True)
input()
{END[end]}
"""
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, text=True, **pipes) as caller:
        worker = int(caller.stdout.readline())
        descriptor = os.pidfd_open(worker)
        assert "Traceback" not in caller.communicate("go\n")[1]
    if end in ("returns", "raises", "threads"):
        assert gone(worker)
    assert select.select([descriptor], [], [], 30)[0], f"process {worker} is still running"
    os.close(descriptor)
