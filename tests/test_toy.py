"""The toy world: its splits, its demonstrations, and that the base policies are as imperfect as they should be."""

import asyncio
import random
import sys
from pathlib import Path

import pytest

from marti_ext.methods.comas import CoMAS, CoMASOptions
from marti_ext.questions import load_questions
from marti_ext.rollout import Limits, Progress, Rollout, Speaker
from marti_ext.tasks import verify

TOY = Path(__file__).parent.parent / "data" / "toy"
sys.path.insert(0, str(TOY))

import generate  # noqa: E402
from demonstrations import demonstration  # noqa: E402


def test_the_splits_are_those_of_the_generator_and_share_no_question():
    dealt = generate.splits()
    ids = [core.id for cores in dealt.values() for core in cores]
    assert len(ids) == len(set(ids))
    prompts = set()
    for name in generate.SIZES:
        questions = load_questions(TOY / f"{name}.jsonl")
        assert {question.id for question in questions} == {core.id for core in dealt[name]}
        assert not prompts & {question.prompt for question in questions}
        prompts |= {question.prompt for question in questions}


@pytest.mark.parametrize("task", ["math", "science", "coding"])
def test_right_work_is_verified_and_every_slip_is_not(task):
    rng = random.Random(0)
    for core in rng.sample([core for core in generate.splits()["test"] if core.task == task], 8):
        question = generate.record(core, rng)

        def solved(work, result, core=core):
            return (
                f"```python\ndef solve(x):\n    {work}\n```"
                if core.task == "coding"
                else f"{work}\n\\boxed{{{result}}}"
            )

        assert verify(task, solved(core.work, core.result), question["answer"]).correct
        for work, result in core.slips:
            assert verify(task, solved(work, result), question["answer"]).verdict == "wrong", (core.id, work)


def test_demonstrations_cover_every_role_and_task():
    rng = random.Random(0)
    cores = generate.splits()["train"]
    seen = [demonstration(rng.choice(cores), rng) for _ in range(300)]
    assert any("<score>" in response for _, response in seen)
    assert any(response.startswith("```python") for _, response in seen)
    assert any(prompt.discussion for prompt, _ in seen)


@pytest.mark.real
@pytest.mark.parametrize("base", ["qwen2", "llama"])
def test_a_base_policy_is_imperfect(base, measured):
    """Solution accuracy at temperature 1 between 30 % and 75 % in every task; scores readable in at least 85 %."""
    for task in ("math", "science", "coding"):
        assert 0.30 <= measured[base][task] <= 0.75, (task, measured[base])
    assert measured[base]["readable"] >= 0.85


@pytest.mark.real
@pytest.mark.parametrize("base", ["qwen2", "llama"])
def test_the_scores_of_a_base_policy_tell_right_from_wrong(base, measured):
    """Chance is 0.5 (standard error about 0.02); it does not reach 1 either."""
    assert 0.70 <= measured[base]["balanced_accuracy"] <= 0.95, measured[base]


@pytest.fixture(scope="module")
def measured():
    def measure(base: str) -> dict[str, float]:
        import torch
        from engines import local_engine
        from transformers import AutoModelForCausalLM, AutoTokenizer

        from marti_ext.engines.transformers import Decoder

        torch.set_num_threads(2)
        tokenizer = AutoTokenizer.from_pretrained(TOY / "models" / base)
        model = AutoModelForCausalLM.from_pretrained(TOY / "models" / base, dtype=torch.float32)
        engine = local_engine(Decoder(model, {tokenizer.eos_token_id}))
        speaker = Speaker(base, base, engine, tokenizer, asyncio.Semaphore(128))
        rollout = Rollout(CoMAS(CoMASOptions(rounds=2), 1), [speaker], Limits(512, 64, 1.0), seed=0)
        questions = load_questions(TOY / "test.jsonl")

        async def discuss():
            return [one async for one in rollout.run(questions, step=0, copies=1, progress=Progress())]

        return summary(asyncio.run(discuss()))

    return {base: measure(base) for base in ("qwen2", "llama")}


def summary(trajectories) -> dict[str, float]:
    """Accuracy of first solutions per task; readability and balanced accuracy of scores (right: at least 2)."""
    correct: dict[str, list[float]] = {"math": [], "science": [], "coding": []}
    called_right: dict[bool, list[float]] = {True: [], False: []}
    scorings, readable = 0, 0
    for one in trajectories:
        for solution in one.of("solution"):
            right = verify(one.question.task, solution.response, one.question.answer).correct
            if solution.round == 1:
                correct[one.question.task].append(float(right))
            for scoring in one.children(solution, "scoring"):
                scorings += 1
                if scoring.score is not None:
                    readable += 1
                    called_right[right].append(float(scoring.score >= 2))
    share = {right: sum(called) / len(called) for right, called in called_right.items()}
    return {
        **{task: sum(values) / len(values) for task, values in correct.items()},
        "readable": readable / scorings,
        "balanced_accuracy": (share[True] + 1 - share[False]) / 2,
    }
