"""Grading mathematics on all cores against math-verify's own loop in one process.

    python -m benchmarks.grading                 10,000 answers of each sort, about 10 minutes on 2 cores
    python -m benchmarks.grading --pairs 1000    a quick look

Run from the root of the repository. The last line is `RESULT {json}`.

Ours: verify_many of marti_ext.tasks, one thread and one process with math-verify a core, deadline for each comparison.
Reference: `verify(parse(gold), parse(given))` of math-verify over the same pairs, one after the other in one fresh
process. Its imports are not counted; the start of our processes is. The pairs are cut into rounds; in each, both grade the
same pairs, one side after the other and in turns first, so that other load on the machine meets both. Ratio: the
reference's seconds over all rounds divided by ours, and by round. Other load still takes from two processes what it does not
take from one; `cpu` tells what it cannot change: all our processes' CPU seconds, the start included, by the reference's.

mixed: answers as benchmarks have them (integers, decimals, fractions, percentages, radicals, intervals, tuples, sets,
polynomials, numbers with units); a third of the responses have the gold answer's text, a third its value in another form, a
third are wrong. Most are decided without math-verify, which counts as ours. undecided: only pairs that need math-verify.
Expect at least 0.85 times the number of cores for both. `mistakes` counts verdicts that the generator knows to be false.
"""

import argparse
import json
import multiprocessing
import os
import random
import time
from collections.abc import Iterator
from fractions import Fraction
from itertools import islice
from pathlib import Path

from marti_ext.tasks import math, verify_many

TARGET = 0.85  # times the number of cores


def integer(rng: random.Random) -> tuple[str, str, str]:
    """Of an answer: the text, another text with its value, and a text with another value."""
    value = rng.randint(-9, 20_000)
    return str(value), f"{value:,}", str(value + rng.choice([-1, 1, 10]))


def decimal(rng: random.Random) -> tuple[str, str, str]:
    value = Fraction(rng.randint(1, 4000), rng.choice([4, 8, 20, 25]))
    return f"{float(value):g}", latex(value), f"{float(value) + 0.5:g}"


def fraction(rng: random.Random) -> tuple[str, str, str]:
    value = Fraction(rng.randint(-50, 50), rng.choice([3, 7, 11, 13]))
    times = rng.randint(2, 5)
    return latex(value), f"{value.numerator * times}/{value.denominator * times}", latex(value + Fraction(1, 17))


def percentage(rng: random.Random) -> tuple[str, str, str]:
    value = rng.randint(1, 99)
    return rf"{value}\%", rng.choice([f"{value}", rf"\frac{{{value}}}{{100}}"]), rf"{value + 1}\%"


def radical(rng: random.Random) -> tuple[str, str, str]:
    factor, root = rng.randint(2, 12), rng.choice([2, 3, 5, 6, 7])
    return rf"{factor}\sqrt{{{root}}}", rf"\sqrt{{{factor**2 * root}}}", rf"{factor}\sqrt{{{root + 4}}}"


def interval(rng: random.Random) -> tuple[str, str, str]:
    low = rng.randint(-20, 20)
    high = low + rng.randint(1, 20)
    return f"[{low}, {high})", rf"x \in \left[{low},{high}\right)", rng.choice([f"[{low}, {high}]", f"({low}, {high})"])


def pair(rng: random.Random) -> tuple[str, str, str]:
    x, y = rng.randint(-9, 9), Fraction(rng.randint(1, 9), rng.choice([2, 4, 5]))
    return f"({x}, {latex(y)})", f"({x}, {float(y):g})", f"({latex(y + 20)}, {x})"


def finite_set(rng: random.Random) -> tuple[str, str, str]:
    values = rng.sample(range(-20, 40), 3)
    texts = [", ".join(map(str, some)) for some in (values, values[::-1], [*values[1:], 50])]
    return tuple(rf"\{{{text}\}}" for text in texts)


def polynomial(rng: random.Random) -> tuple[str, str, str]:
    a, b = rng.randint(1, 9), rng.randint(1, 9)
    return f"x^2 + {a + b}x + {a * b}", f"(x+{a})(x+{b})", f"(x+{a})(x+{b + 1})"


def with_unit(rng: random.Random) -> tuple[str, str, str]:
    value = rng.randint(2, 500)
    return str(value), rf"{value}\text{{ cm}}^2", rf"{value + 1}\text{{ cm}}^2"


KINDS = (integer, decimal, fraction, percentage, radical, interval, pair, finite_set, polynomial, with_unit)


def latex(value: Fraction) -> str:
    sign, top = "-" if value < 0 else "", abs(value.numerator)
    return f"{sign}{top}" if value.denominator == 1 else rf"{sign}\frac{{{top}}}{{{value.denominator}}}"


def answers(seed: int) -> Iterator[tuple[str, str, bool]]:
    """(gold, given, whether they are the same), without end."""
    rng = random.Random(seed)
    while True:
        texts = rng.choice(KINDS)(rng)
        which = rng.randrange(3)
        yield texts[0], texts[which], which < 2


def at_once(gold: str, given: str) -> bool:
    return math._compare_fast(math.normalise(gold), math.normalise(given)) is not None


def reference(pairs: list[tuple[str, str, bool]]) -> tuple[float, float, list[bool]]:
    """Wall seconds, CPU seconds, verdicts; in a process of its own."""
    from math_verify import parse, verify

    began, cpu = time.perf_counter(), time.process_time()
    same = [verify(parse(rf"\boxed{{{gold}}}"), parse(rf"\boxed{{{given}}}")) for gold, given, _ in pairs]
    return time.perf_counter() - began, time.process_time() - cpu, same


def ours(pairs: list[tuple[str, str, bool]]) -> tuple[float, float, list[bool]]:
    began, cpu = time.perf_counter(), cpu_seconds()
    verdicts = verify_many(("math", rf"The answer is $\boxed{{{given}}}$.", gold) for gold, given, _ in pairs)
    same = [verdict.correct for verdict in verdicts]
    return time.perf_counter() - began, cpu_seconds() - cpu, same


def cpu_seconds() -> float:
    """Of this process and those of the pool."""
    stats = [Path(f"/proc/{worker.pid}/stat").read_text().rpartition(")")[2].split() for worker in math.pool.workers]
    return time.process_time() + sum(int(stat[11]) + int(stat[12]) for stat in stats) / os.sysconf("SC_CLK_TCK")


def measure(name: str, pairs: list[tuple[str, str, bool]], rounds: int) -> dict:
    rows = {"ours": [], "math-verify": []}
    math.pool.close()  # the start of the processes is part of ours
    with multiprocessing.get_context("spawn").Pool(1) as process:
        process.apply(reference, ([("1", "2", False)],))  # its imports
        sides = [("ours", ours), ("math-verify", lambda part: process.apply(reference, (part,)))]
        print(f"{name:<10} {'ours, s':>8} {'math-verify, s':>15} {'ratio':>6} {'cpu':>6} {'load':>6}")
        for number in range(rounds):
            part = pairs[number::rounds]
            for side, grade in sides if number % 2 else sides[::-1]:
                wall, cpu, same = grade(part)
                mistakes = sum(found != truth for found, (_, _, truth) in zip(same, part, strict=True))
                rows[side].append((wall, cpu, mistakes))
            (wall, cpu, _), (their_wall, their_cpu, _) = rows["ours"][-1], rows["math-verify"][-1]
            figures = f"{wall:>8.1f} {their_wall:>15.1f} {their_wall / wall:>6.2f} {cpu / their_cpu:>6.2f}"
            print(f"{f'{number + 1} of {rounds}':<10} {figures} {os.getloadavg()[0]:>6.2f}", flush=True)
    (wall, cpu, mistakes), (their_wall, their_cpu, their_mistakes) = (
        [sum(column) for column in zip(*rows[side], strict=True)] for side in rows
    )
    return {
        "pairs": len(pairs),
        "at_once": round(sum(at_once(gold, given) for gold, given, _ in pairs) / len(pairs), 3),
        "ratio": round(their_wall / wall, 3),
        "ratios": [round(theirs[0] / own[0], 2) for own, theirs in zip(*rows.values(), strict=True)],
        "cpu": round(cpu / their_cpu, 2),
        "per_second": round(len(pairs) / wall),
        "math_verify_per_second": round(len(pairs) / their_wall),
        "mistakes": {"ours": mistakes, "math-verify": their_mistakes},
    }


def main() -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.grading", description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=10_000, help="answers of each sort")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    cores, load = len(os.sched_getaffinity(0)), os.getloadavg()[0]
    mixed = list(islice(answers(args.seed), args.pairs))
    undecided = list(islice((one for one in answers(args.seed) if not at_once(*one[:2])), args.pairs))
    result = {"benchmark": "grading", "cores": cores, "load_average_before": round(load, 2), "target": TARGET * cores}
    result |= {name: measure(name, pairs, args.rounds) for name, pairs in (("mixed", mixed), ("undecided", undecided))}
    result["met"] = min(result["mixed"]["ratio"], result["undecided"]["ratio"]) >= result["target"]
    print("RESULT " + json.dumps(result))


if __name__ == "__main__":
    main()
