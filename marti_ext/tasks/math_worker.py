"""The process in which math-verify runs: one JSON line `[gold, extracted]` in, one `[equal, reason]` out.

Started by math_pool.py as a script, with no import of this package. Its argument is the deadline in seconds for one
comparison: when it passes, the kernel ends the process by SIGALRM, in the middle of C code
too, even if nobody is left to watch.
"""

import json
import logging
import os
import resource
import signal
import sys

START_DEADLINE = 120  # seconds for the imports: 3 on an idle machine, far more on a busy one
MEMORY = 4 << 30  # bytes of address space: 9^{9^{9}} ends in a MemoryError and not in the machine's swap


def equal(gold: str, extracted: str) -> tuple[bool, str]:
    from math_verify import parse, verify

    # The time-outs of math-verify itself use signals too and would undo our alarm.
    try:
        pair = [parse(f"\\boxed{{{text}}}", parsing_timeout=None, raise_on_error=True) for text in (gold, extracted)]
        same = bool(verify(*pair, timeout_seconds=None))
    except Exception as error:
        return False, f"math-verify: {type(error).__name__}: {error}"[:200]
    return same, "equal for math-verify" if same else "not equal for math-verify"


def main() -> None:
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGALRM])
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY if hard < 0 else min(MEMORY, hard), hard))
    signal.alarm(START_DEADLINE)
    # The replies keep the real standard output to themselves; whatever a library prints goes to standard error.
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    logging.disable()
    equal("1", "2")  # imports and first-use tables, before the deadline counts
    signal.alarm(0)
    print("ready", file=replies, flush=True)
    deadline = int(sys.argv[1])
    for line in sys.stdin:
        signal.alarm(deadline)
        reply = json.dumps(equal(*json.loads(line)))
        signal.alarm(0)
        print(reply, file=replies, flush=True)


if __name__ == "__main__":
    main()
