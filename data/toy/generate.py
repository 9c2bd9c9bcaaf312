"""The toy world: small questions in the three tasks of the paper, in splits that share no question.

    python data/toy/generate.py            writes train.jsonl, validation.jsonl and test.jsonl beside this file

Every question comes from a *core*: a kind and its numbers. Cores, not wordings, are dealt to the splits, so no split
repeats another's question with a different name. Besides the question record, a core knows the line of work that
leads to its answer (`work`) and how plausible mistakes look (`slips`): the role demonstrations are made of these.
"""

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

SEED = 2509
SIZES = {  # questions per split and task; dealt in this order
    "test": {"math": 100, "science": 100, "coding": 60},
    "validation": {"math": 50, "science": 50, "coding": 50},
    "train": {"math": 300, "science": 300, "coding": 300},
}
NAMES = ["Ada", "Ben", "Cleo", "Dan", "Eve", "Finn", "Gia", "Hugo"]
THINGS = ["apples", "books", "coins", "eggs", "pens", "shells", "stamps", "tickets"]


@dataclass(frozen=True)
class Core:
    """A question before it is put into words. `result` is what `work` arrives at."""

    task: str
    kind: str
    numbers: tuple[int, ...]
    text: str  # with {name} and {thing} left open
    work: str
    result: str
    slips: tuple[tuple[str, str], ...]  # plausible wrong (work, result)
    tests: str = ""

    @property
    def id(self) -> str:
        return "-".join(["toy", self.task, self.kind, *map(str, self.numbers)])


def arithmetic(task: str, kind: str, text: str, symbol: str, a: int, b: int) -> Core:
    """A one-step problem: `a symbol b`. Slips are a miscount by one and the wrong operation."""
    operations = {"+": a + b, "-": a - b, "x": a * b}
    right = operations[symbol]
    other = {"+": "-", "-": "+", "x": "+"}[symbol]
    slips = [(f"{a} {symbol} {b} = {wrong}", str(wrong)) for wrong in (right + 1, right - 1, right + 10) if wrong >= 0]
    if operations[other] >= 0:
        slips.append((f"{a} {other} {b} = {operations[other]}", str(operations[other])))
    tolerance = 0.05 * right if task == "science" else 0
    slips = tuple(slip for slip in slips if abs(int(slip[1]) - right) > tolerance)
    return Core(task, kind, (a, b), text, f"{a} {symbol} {b} = {right}", str(right), slips)


def two_steps(kind: str, text: str, a: int, b: int, c: int) -> Core:
    """A two-step problem: a x b, then minus c."""
    product, right = a * b, a * b - c

    def line(product: int, end: int) -> tuple[str, str]:
        return f"{a} x {b} = {product}, {product} - {c} = {end}", str(end)

    slips = (
        line(product, right + 1),
        line(product + 1, right + 1),
        line(product, right + 10),
        line(product - 1, right - 1),
    )
    return Core("math", kind, (a, b, c), text, line(product, right)[0], str(right), slips)


def quotient(kind: str, text: str, a: int, b: int) -> Core:
    """A one-step division with a decimal result. Slips are off by a half or one, or the product, beyond the tolerance."""
    right = a / b

    def line(value: float) -> tuple[str, str]:
        return f"{a} / {b} = {value:g}", f"{value:g}"

    slips = (line(right + 1), line(right + 0.5), (f"{a} x {b} = {a * b}", str(a * b)))
    slips = tuple(slip for slip in slips if abs(float(slip[1]) - right) > 0.05 * right)
    return Core("science", kind, (a, b), text, line(right)[0], f"{right:g}", slips)


def function(kind: str, describe: str, expression: str, slips: list[str], run: Callable, inputs: list, k: int) -> Core:
    """A one-line function with three unit tests, which stand in the question as KodCode has them."""
    tests = "\n".join(f"assert solve({value!r}) == {run(value)!r}" for value in inputs)
    text = f"Write a function `solve(x)` that returns {describe}.\n\nYour code should pass these unit tests:\n```python\n{tests}\n```"
    wrong = tuple((f"return {slip}", slip) for slip in slips)
    return Core("coding", kind, (k,), text, f"return {expression}", expression, wrong, tests)


def math_cores() -> Iterator[Core]:
    for a in range(3, 25):
        for b in range(2, 12):
            yield arithmetic(
                "math", "gain", f"{{name}} has {a} {{thing}} and gets {b} more. How many {{thing}} is that?", "+", a, b
            )
            yield arithmetic(
                "math",
                "join",
                f"One box holds {a} {{thing}}, another {b}. How many {{thing}} are there in all?",
                "+",
                a,
                b,
            )
            if a > b:
                yield arithmetic(
                    "math",
                    "lose",
                    f"{{name}} has {a} {{thing}} and gives {b} away. How many {{thing}} are left?",
                    "-",
                    a,
                    b,
                )
    for a in range(2, 10):
        for b in range(2, 10):
            yield arithmetic(
                "math", "packs", f"{{name}} buys {a} packs of {b} {{thing}}. How many {{thing}} is that?", "x", a, b
            )
            yield arithmetic(
                "math", "rows", f"There are {a} rows with {b} {{thing}} each. How many {{thing}} are there?", "x", a, b
            )
            for c in range(2, 10):
                if a * b > c:
                    yield two_steps(
                        "rest",
                        f"{{name}} buys {a} packs of {b} {{thing}} and uses {c}. How many {{thing}} are left?",
                        a,
                        b,
                        c,
                    )


def science_cores() -> Iterator[Core]:
    for a in range(2, 10):
        for b in range(2, 10):
            yield arithmetic(
                "science",
                "distance",
                f"A cart moves at {a} m/s for {b} s. How far does it go? Give the answer in m.",
                "x",
                a,
                b,
            )
            yield arithmetic(
                "science",
                "force",
                f"A mass of {a} kg accelerates at {b} m/s^2. Which force acts on it? Give the answer in N.",
                "x",
                a,
                b,
            )
            yield arithmetic(
                "science",
                "voltage",
                f"A current of {a} A flows through {b} ohm. What is the voltage? Give the answer in V.",
                "x",
                a,
                b,
            )
            yield arithmetic(
                "science",
                "energy",
                f"A lamp of {a} W is on for {b} s. How much energy does it use? Give the answer in J.",
                "x",
                a,
                b,
            )
    for a in range(1, 40):
        for b in (2, 4, 5):
            yield quotient(
                "density", f"A sample of {a} g fills {b} cm^3. What is its density? Give the answer in g/cm^3.", a, b
            )
            yield quotient("speed", f"A runner covers {a} m in {b} s. What is the speed? Give the answer in m/s.", a, b)
    for a in range(10, 60):
        for b in range(2, 10):
            yield arithmetic(
                "science",
                "warming",
                f"Water at {a} C warms by {b} C. What is its temperature? Give the answer in C.",
                "+",
                a,
                b,
            )


def coding_cores() -> Iterator[Core]:
    numbers = [1, 5, 12]
    for k in range(2, 100):
        yield function(
            "plus",
            f"x plus {k}",
            f"x + {k}",
            [f"x - {k}", f"x + {k + 1}", f"x * {k}"],
            lambda x, k=k: x + k,
            numbers,
            k,
        )
        yield function(
            "minus",
            f"x minus {k}",
            f"x - {k}",
            [f"x + {k}", f"{k} - x", f"x - {k - 1}"],
            lambda x, k=k: x - k,
            numbers,
            k,
        )
        yield function(
            "times",
            f"{k} times x",
            f"{k} * x",
            [f"{k} + x", f"{k + 1} * x", f"x - {k}"],
            lambda x, k=k: k * x,
            numbers,
            k,
        )
        yield function(
            "from", f"{k} minus x", f"{k} - x", [f"x - {k}", f"{k} + x", f"{k} * x"], lambda x, k=k: k - x, numbers, k
        )
        yield function(
            "square",
            f"the square of x, plus {k}",
            f"x * x + {k}",
            [f"x + {k}", f"x * x - {k}", f"2 * x + {k}"],
            lambda x, k=k: x * x + k,
            numbers,
            k,
        )
        yield function(
            "largest",
            f"the larger of x and {k}",
            f"max(x, {k})",
            [f"min(x, {k})", f"max(x, {k - 1})", f"x + {k}"],
            lambda x, k=k: max(x, k),
            [k - 1, k + 1, k + 9],
            k,
        )
        yield function(
            "smallest",
            f"the smaller of x and {k}",
            f"min(x, {k})",
            [f"max(x, {k})", f"min(x, {k + 1})", f"x - {k}"],
            lambda x, k=k: min(x, k),
            [k - 1, k + 1, k + 9],
            k,
        )


CORES = {"math": math_cores, "science": science_cores, "coding": coding_cores}


def record(core: Core, rng: random.Random) -> dict[str, str]:
    """The question record (id, task, source, prompt, answer) of a core, with a name and a thing drawn for it."""
    prompt = core.text.replace("{name}", rng.choice(NAMES)).replace("{thing}", rng.choice(THINGS))
    return {"id": core.id, "task": core.task, "source": "toy", "prompt": prompt, "answer": core.tests or core.result}


def splits() -> dict[str, list[Core]]:
    """split -> cores, no core in two splits. Kinds come in equal shares as far as they reach."""
    dealt: dict[str, list[Core]] = {name: [] for name in [*SIZES, "rest"]}
    for task, cores in CORES.items():
        rng = random.Random(f"{SEED}-{task}")
        by_kind: dict[str, list[Core]] = {}
        for core in cores():
            by_kind.setdefault(core.kind, []).append(core)
        for kind in by_kind.values():
            rng.shuffle(kind)
        turns = [kind[i] for i in range(max(map(len, by_kind.values()))) for kind in by_kind.values() if i < len(kind)]
        start = 0
        for name, sizes in SIZES.items():
            dealt[name] += turns[start : start + sizes[task]]
            start += sizes[task]
        dealt["rest"] += turns[start:]
    return dealt


def main() -> None:
    folder = Path(__file__).parent
    dealt = splits()
    for name in SIZES:
        rng = random.Random(f"{SEED}-{name}")
        rows = [record(core, rng) for core in dealt[name]]
        rng.shuffle(rows)
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        print(f"{name}.jsonl: {len(rows)} questions")


if __name__ == "__main__":
    main()
