"""Synthetic role demonstrations: what the tiny base policies learn from, in our own prompt templates.

They are imperfect on purpose. A demonstrated solution is often wrong, an evaluation sometimes misses the mistake or
invents one, a score sometimes contradicts the evidence or cannot be read. The base policies inherit these habits as
probabilities, which is what training has to work with.
"""

import random
from dataclasses import dataclass

from generate import Core, record

from marti_ext.prompts import Prompt, discussion_round, evaluation_prompt, scoring_prompt, solution_prompt

P_RIGHT = 0.62  # a solution is right
P_RIGHT_AFTER_CRITICISM = 0.70  # ... after a round of discussion
P_SOUND_EVALUATION = 0.80
P_SOUND_EVALUATION_TO_SCORE = 0.50  # says nothing about the solution: a scorer must do its own work
P_SOUND_SCORE = 0.92
P_UNREADABLE_SCORE = 0.05
ROLES = {"solution": 0.40, "evaluation": 0.28, "scoring": 0.32}


@dataclass(frozen=True)
class Attempt:
    """A solution on paper: what it arrives at, its text, and whether it is right."""

    result: str
    text: str
    right: bool


def attempt(core: Core, p_right: float, rng: random.Random) -> Attempt:
    right = rng.random() < p_right
    work, result = (core.work, core.result) if right else rng.choice(core.slips)
    if core.task == "coding":
        return Attempt(result, f"```python\ndef solve(x):\n    {work}\n```", right)
    return Attempt(result, f"{work}\nThe answer is \\boxed{{{result}}}.", right)


def comparison(work: str, result: str) -> str:
    """The work as it should be, and below its end what the solution arrives at: what a verdict rests on."""
    return f"It should be: {work}\nThe solution has: {result}\n"


def evaluation(core: Core, solution: Attempt, rng: random.Random, p_sound: float = P_SOUND_EVALUATION) -> str:
    """Recomputes the work, then compares. An unsound one recomputes wrongly, or finds nothing where there is something."""
    sound = rng.random() < p_sound
    if not sound and not solution.right:
        return rng.choice(["The solution is clear and I find no mistake.", "The explanation is too short."])
    work, result = (core.work, core.result) if sound else rng.choice(core.slips)
    verdict = "No mistake." if result == solution.result else "This mistake is fatal."
    return f"{comparison(work, solution.result)}{verdict}"


def scoring(core: Core, solution: Attempt, rng: random.Random) -> str:
    """Recomputes, compares, judges. Right solutions get a 2 now and then, as for minor flaws."""
    sound = rng.random() < P_SOUND_SCORE
    work, result = (core.work, core.result) if sound else rng.choice(core.slips)
    if result != solution.result:
        score, reason = 1, "The solution is wrong."
    else:
        score, reason = (3, "The solution is right.") if rng.random() < 0.8 else (2, "The solution has minor flaws.")
    tag = f"<score>{score}</score>"
    if rng.random() < P_UNREADABLE_SCORE:
        tag = rng.choice([f"<score>{score}", f"Score {score}.", "<score>0</score>", "<score>4</score>", ""])
    return f"{comparison(work, solution.result)}{reason} {tag}".strip()


def discussion(core: Core, rounds: int, rng: random.Random) -> tuple[str, ...]:
    texts = []
    for _ in range(rounds):
        solution = attempt(core, P_RIGHT, rng)
        texts.append(discussion_round(solution.text, [evaluation(core, solution, rng)]))
    return tuple(texts)


def demonstration(core: Core, rng: random.Random, role: str | None = None) -> tuple[Prompt, str]:
    """One prompt in one role, a random one by default, and the response to imitate."""
    problem = record(core, rng)["prompt"]
    role = role or rng.choices(list(ROLES), list(ROLES.values()))[0]
    earlier = discussion(core, rng.choices([0, 1, 2], [0.5, 0.2, 0.3])[0], rng) if role != "scoring" else ()
    solution = attempt(core, P_RIGHT_AFTER_CRITICISM if earlier else P_RIGHT, rng)
    if role == "solution":
        return solution_prompt(core.task, problem, earlier), solution.text
    if role == "evaluation":
        return evaluation_prompt(problem, solution.text, earlier), evaluation(core, solution, rng)
    heard = evaluation(core, solution, rng, P_SOUND_EVALUATION_TO_SCORE)
    return scoring_prompt(problem, solution.text, heard), scoring(core, solution, rng)
