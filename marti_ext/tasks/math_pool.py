"""Processes in which math-verify runs, so that no comparison can hang, crash or change the caller."""

import atexit
import json
import os
import select
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

from marti_ext.tasks.math_worker import START_DEADLINE

SLACK = 2  # seconds beyond the deadline for a worker's own alarm and for its reply
GRACE = 1  # seconds from the end of a process's output to its own end


class CannotStart(RuntimeError):
    """A process with math-verify does not come up on this machine."""


class MathPool:
    """At most `size` processes, each started when a comparison finds none idle and replaced when it dies or is late.

    Safe in threads and across fork: a child has a pool of its own. At exit the processes are ended and waited for; where
    Python does not get that far (`os._exit`, a signal), they end by themselves as their standard input closes.
    """

    def __init__(self, size: int, deadline: int) -> None:
        self.size, self.deadline = size, deadline  # processes; whole seconds of wall time for one comparison
        self._reset()
        os.register_at_fork(after_in_child=self._forget)
        atexit.register(self.close)

    def compare(self, gold: str, given: str) -> tuple[bool, str]:
        """Whether math-verify finds the two equal, and why not; what it does not decide within `deadline` is not equal.

        Waits while `size` comparisons are under way. The texts together must fit into a pipe: 5,000 characters.
        Raises CannotStart if a process cannot start (math-verify is not installed).
        """
        with self.turn:
            worker, reply = self._take(), None
            try:
                reply = self._ask(worker, [gold, given])
            finally:  # after Ctrl-C too: its late reply must not be read as the next one's
                if reply:
                    self.idle.append(worker)
                else:
                    status = self._end(worker, GRACE if reply == b"" else 0)
        if reply:
            return tuple(json.loads(reply))
        if reply is None or status == -signal.SIGALRM:
            return False, f"math-verify took longer than {self.deadline} s"
        return False, f"math-verify died: {status}"

    def _take(self) -> subprocess.Popen:
        with suppress(IndexError):
            while True:
                worker = self.idle.pop()
                if worker.poll() is None:
                    return worker
                self._end(worker)
        return self._start()

    def _ask(self, worker: subprocess.Popen, pair: list[str]) -> bytes | None:
        with suppress(BrokenPipeError):
            worker.stdin.write(json.dumps(pair).encode() + b"\n")
        return _read(worker, self.deadline + SLACK)

    def _start(self) -> subprocess.Popen:
        # Not multiprocessing: its children import the main script again, whatever that starts (Ray, DeepSpeed).
        # -P keeps this folder, whose math.py would hide Python's own, off the worker's path.
        # A session of its own: Ctrl-C is for us.
        command = [sys.executable, "-P", str(Path(__file__).with_name("math_worker.py")), str(self.deadline)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "bufsize": 0}
        worker = subprocess.Popen(command, **pipes, start_new_session=True)
        self.workers.add(worker)
        if _read(worker, START_DEADLINE + SLACK) != b"ready\n":
            raise CannotStart(
                f"the math-verify process ended with status {self._end(worker, GRACE)} while it started "
                f"({' '.join(command)}); its message is on standard error above. Is math-verify installed in this Python?"
            )
        return worker

    def _end(self, worker: subprocess.Popen, grace: float = 0) -> int:
        """Its exit status; without one after `grace` seconds it is killed."""
        worker.stdin.close()
        try:
            return worker.wait(grace)
        except subprocess.TimeoutExpired:
            worker.kill()
            return worker.wait()
        finally:
            worker.stdout.close()
            self.workers.discard(worker)

    def _reset(self) -> None:
        self.turn = threading.Semaphore(self.size)
        self.idle: list[subprocess.Popen] = []
        self.workers: set[subprocess.Popen] = set()

    def _forget(self) -> None:
        """In a forked child, whose copies of the pipes would read the parent's replies and outlive the parent."""
        for worker in self.workers:
            worker.stdin.close()
            worker.stdout.close()
        self._reset()

    def close(self) -> None:
        """End the processes, in the middle of a comparison too."""
        for worker in list(self.workers):  # a daemon thread may still read its pipes, which stay open
            worker.kill()
            worker.wait()
            self.workers.discard(worker)


def _read(worker: subprocess.Popen, seconds: float) -> bytes | None:
    """A line of the worker, which writes each at once; empty if it has died, None if nothing comes in time."""
    poll = select.poll()  # select.select takes no descriptor above 1023
    poll.register(worker.stdout, select.POLLIN)
    return os.read(worker.stdout.fileno(), select.PIPE_BUF) if poll.poll(seconds * 1000) else None
