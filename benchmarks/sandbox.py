"""What the sandbox of the coding verifier costs, and how many programs a second all cores run.

    python -m benchmarks.sandbox [--pairs 100] [--rounds 15]     under a minute, from the root of the repository

Overhead: a short program and its tests, verified in the sandbox (`run_tests`: isolation, judge, verdict, clean-up), and
the same text in a bare `python -I -c`. The two alternate, and so does which is first; after one of each to warm up.

Throughput: `--rounds` times, programs that compute for about 30 ms are verified by one thread and by as many threads as
this process has cores; the two alternate. 10 programs a core and round.

Prints medians in milliseconds, of the differences in each pair as well, and programs a second with the median of the
rounds' ratios. Expect at most 50 ms more than the bare interpreter, and at least 0.8 of the number of cores as ratio.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from marti_ext.tasks.sandbox import isolation, run_tests

PROGRAM = "def add(a, b):\n    return a + b\n"
TESTS = "def check(candidate):\n    assert candidate(1, 2) == 3\n    assert candidate('a', 'b') == 'ab'\ncheck(add)\n"
BUSY = "def squares(n):\n    return sum(i * i for i in range(n))\n"
BUSY_TESTS = "assert squares(400_000) == 400_000 * 399_999 * 799_999 // 6"
CORES = len(os.sched_getaffinity(0))
TARGET_MS, TARGET_SHARE = 50, 0.8


def milliseconds(action: Callable[[], None]) -> float:
    began = time.perf_counter()
    action()
    return 1000 * (time.perf_counter() - began)


def bare() -> None:
    subprocess.run([sys.executable, "-I", "-c", PROGRAM + TESTS], check=True)


def sandboxed() -> None:
    assert run_tests(PROGRAM, TESTS).passed


def overhead(pairs: int) -> dict:
    bare(), sandboxed()
    seen: dict[Callable, list[float]] = {bare: [], sandboxed: []}
    for number in range(pairs):
        for action in (bare, sandboxed) if number % 2 else (sandboxed, bare):
            seen[action].append(milliseconds(action))
    more = [with_it - without for without, with_it in zip(seen[bare], seen[sandboxed], strict=True)]
    medians = {"bare": seen[bare], "sandboxed": seen[sandboxed], "overhead": more}
    result = {f"{name}_ms": round(statistics.median(values), 1) for name, values in medians.items()}
    print(", ".join(f"{name.removesuffix('_ms')} {value} ms" for name, value in result.items()), flush=True)
    return result


def programs_a_second(threads: int) -> float:
    count = 10 * CORES
    began = time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        outcomes = list(pool.map(lambda _: run_tests(BUSY, BUSY_TESTS, 60.0), range(count)))
    assert all(outcome.passed for outcome in outcomes)
    return count / (time.perf_counter() - began)


def throughput(rounds: int) -> dict:
    print(f"{'round':>6} {'1 thread, programs/s':>21} {f'{CORES} threads':>12} {'ratio':>6}")
    seen = []
    for number in range(1, rounds + 1):
        order = (1, CORES) if number % 2 else (CORES, 1)
        rates = {threads: programs_a_second(threads) for threads in order}
        seen.append((rates[1], rates[CORES], rates[CORES] / rates[1]))
        print("{:>6} {:>21.1f} {:>12.1f} {:>6.2f}".format(number, *seen[-1]), flush=True)
    one, many, ratio = (statistics.median(values) for values in zip(*seen, strict=True))
    print(f"{'median':>6} {one:>21.1f} {many:>12.1f} {ratio:>6.2f}")
    return {"one_thread": round(one, 1), "all_cores": round(many, 1), "ratio": round(ratio, 2)}


def main() -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.sandbox", description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=15)
    args = parser.parse_args()
    print(f"{isolation()}; load {os.getloadavg()[0]:.1f} on {CORES} cores")
    result = overhead(args.pairs) | throughput(args.rounds)
    met = result["overhead_ms"] <= TARGET_MS and result["ratio"] >= TARGET_SHARE * CORES
    targets = {"target_ms": TARGET_MS, "target_ratio": round(TARGET_SHARE * CORES, 2), "met": met}
    print("RESULT " + json.dumps({"benchmark": "sandbox"} | result | targets | {"cores": CORES}))


if __name__ == "__main__":
    main()
