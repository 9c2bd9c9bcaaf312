"""The rollout's schedule against a barrier after every stage, and what our own scheduling costs.

    python -m benchmarks.rollout --engine toy         real engines: two toy policies under Ray, about 4 minutes
    python -m benchmarks.rollout --engine simulated   simulated engines at the paper's size, about 2 minutes
    python -m benchmarks.rollout --engine overhead    CPU time of our scheduling for l = 1 .. 16, about 3 minutes

Run from the root of the repository. The last line is `RESULT {json}`.

Ours: marti_ext.rollout runs CoMAS, a discussion waits for nothing but its own previous turn. Barrier: the same code and
the same turns (same seeds, so the same lengths, which is checked), but a turn of a stage begins only when every turn of
the stage before has ended, as MARTI and the CoMAS authors' release do: all solutions of round 1, all evaluations, all
scorings, all solutions of round 2, ... Within a stage all agents work at the same time. Response lengths are as uneven as
real ones: log-normal, drawn from the turn's seed, 1.5 % of them at the token limit.

toy: 16 questions x 2, l = 2, m = 4, n = 1 as in the toy experiment, median 30 tokens, limit 256. The engines' actors are
made without an end token, so that a response is as long as it was drawn. Expect 1.5 times the barrier's speed; with twice
the questions nothing is gained, because a CPU is then busy at every moment of both schedules (README.md).

simulated: 64 questions x 4, l = 4, m = 8, n = 1, eight engines (two per policy), median 400 tokens, limit 4,096; an
engine with b sequences takes t0 (1 + b / b0) seconds a token (see simulation.py). Real are rollout, method, prompts,
tokenization and the choice of an engine (VllmEngines). The clock skips waiting and adds the driver's own CPU time, so a
slow driver shows. Reading the prompt costs an engine nothing, in all three schedules. Expect ours to be at least 3 times
as fast as the barrier and within 5 % of the ideal: an independent event simulation of the same turns on the same engines
in which everything but the engines is free.

overhead: the simulated rollout for l = 1, 2, 4, 8, 16 agents. Share: CPU seconds of the driver without tokenization (text)
and without the simulation's own work, divided by the duration of the rollout; simulated time, because a real rollout of
that size takes minutes on 2 to 32 GPUs, but CPU seconds are real. Ray's calls are not in it. `share_of_all_cpu` has
everything in it; most of that work is done while engines generate, so it makes a rollout longer only by `above ideal`.
Expect a share under 5 %.
"""

import argparse
import asyncio
import json
import math
import os
import random
import statistics
import time
from collections import Counter
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from statistics import NormalDist
from typing import Any

from benchmarks.simulation import Planned, SimulatedEngine, SkippingLoop, ideal_seconds
from marti_ext import rollout as rollout_module
from marti_ext.config import load_config, locate
from marti_ext.engines import Completion, Sampling
from marti_ext.methods.comas import CoMAS, CoMASOptions
from marti_ext.questions import Question, load_questions
from marti_ext.rollout import Limits, Progress, Rollout, Seat, Speaker, stable_seed
from marti_ext.trajectory import Trajectory, Turn

CONFIG = Path("experiments/configs/toy/comas.yaml")
AT_LIMIT = 0.015  # share of responses that reach the token limit
STAGES = ("solution", "evaluation", "scoring")


# ── The workload ──


def drawn_length(seed: int, median: int, limit: int) -> int:
    """Log-normal tokens of the turn with this seed."""
    spread = math.log(limit / median) / NormalDist().inv_cdf(1 - AT_LIMIT)
    uniform = (stable_seed("length", seed) + 0.5) / 2**56
    return min(limit, max(1, round(median * math.exp(spread * NormalDist().inv_cdf(uniform)))))


class Barrier:
    """Opens a stage when all turns of the stage before have ended."""

    def __init__(self, discussions: int, rounds: int) -> None:
        self.left = [discussions] * (rounds * len(STAGES))
        self.open = [asyncio.Event() for _ in self.left]
        self.open[0].set()

    def end(self, stage: int) -> None:
        self.left[stage] -= 1
        if not self.left[stage] and stage + 1 < len(self.open):
            self.open[stage + 1].set()


class GatedSeat(Seat):
    """A seat whose turns wait for their stage. The turn is entered before it waits, so ids and seeds stay the same."""

    def __init__(self, barrier: Barrier, *args) -> None:
        super().__init__(*args)
        self.barrier = barrier

    async def _generate(self, turn: Turn) -> Completion:
        stage = (turn.round - 1) * len(STAGES) + STAGES.index(turn.role)
        await self.barrier.open[stage].wait()
        completion = await super()._generate(turn)
        self.barrier.end(stage)
        return completion


async def run_once(rollout: Rollout, questions: list[Question], copies: int, rounds: int, barrier: bool) -> tuple:
    """(seconds, trajectories) of one rollout."""
    if barrier:
        rollout_module.Seat = partial(GatedSeat, Barrier(len(questions) * copies, rounds))
    loop, progress = asyncio.get_running_loop(), Progress()
    try:
        began = loop.time()
        trajectories = [one async for one in rollout.run(questions, 1, copies, progress)]
        seconds = loop.time() - began
    finally:
        rollout_module.Seat = Seat
    assert not progress.failed and not progress.retried_turns, f"turns failed: {progress}"
    return seconds, trajectories


def lengths(trajectories: list[Trajectory]) -> Counter:
    return Counter(turn.num_tokens for one in trajectories for turn in one.turns)


def show(rows: list[tuple]) -> None:
    widths = [max(len(str(row[column])) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print("  ".join(str(cell).rjust(width) for cell, width in zip(row, widths, strict=True)), flush=True)


def describe_lengths(found: Counter, limit: int) -> dict[str, float]:
    every = list(found.elements())
    return {
        "turns": len(every),
        "median_tokens": statistics.median(every),
        "mean_tokens": round(statistics.mean(every), 1),
        "at_limit": round(sum(length >= limit for length in every) / len(every), 4),
    }


# ── Real engines ──

TOY_QUESTIONS, TOY_COPIES, TOY_ROUNDS, TOY_MEDIAN, TOY_LIMIT = 16, 2, 4, 30, 256


class ForcedLengths:
    """An engine whose responses are as long as they were drawn."""

    def __init__(self, engine: Any) -> None:
        self.engine = engine

    async def generate(self, prompt_ids: list[int], sampling: Sampling) -> Completion:
        length = drawn_length(sampling.seed, TOY_MEDIAN, TOY_LIMIT)
        completion = await self.engine.generate(prompt_ids, replace(sampling, max_tokens=length))
        assert len(completion.token_ids) == length, "a response ended early"
        return completion


def endless_actor() -> Any:
    """PolicyActor whose decoder knows no end token."""
    import ray

    from marti_ext import actor
    from marti_ext.engines.transformers import Decoder

    class EndlessActor(actor._PolicyActor):
        def decode(self, requests, steps):
            if self.decoder is None:
                self.decoder = Decoder(self.actor.model.module, eos_token_ids=set())
            return super().decode(requests, steps)

    return ray.remote(num_gpus=1)(EndlessActor)


def toy(overrides: list[str], repeats: int, number: int) -> dict:
    import ray

    from marti_ext import policies as policies_module
    from marti_ext.cluster import start_ray

    config = load_config(CONFIG, ["runs_dir=/tmp/benchmark-runs", *overrides])
    policies_module.PolicyActor = endless_actor()
    try:
        start_ray(config)
        policies = policies_module.load(config, "transformers", steps=1)
        return asyncio.run(_toy(config, policies, repeats, number))
    finally:
        ray.shutdown()


async def _toy(config: Any, policies: dict, repeats: int, number: int) -> dict:
    speakers = [replace(p.speaker(name), engine=ForcedLengths(p.engine)) for name, p in policies.items()]
    limits = Limits(4096, TOY_LIMIT, 1.0)
    method = CoMAS(CoMASOptions(rounds=TOY_ROUNDS), len(speakers))
    questions = load_questions(locate(config.data.train))[:number]
    await run_once(Rollout(method, speakers, limits, 0), questions[:4], 1, TOY_ROUNDS, False)  # warm-up
    rows, seconds = [("", "ours s", "barrier s", "ratio")], {"ours": [], "barrier": []}
    for seed in range(1, repeats + 1):
        found = {}
        for name in ("ours", "barrier") if seed % 2 else ("barrier", "ours"):
            rollout = Rollout(method, speakers, limits, seed)
            took, done = await run_once(rollout, questions, TOY_COPIES, TOY_ROUNDS, name == "barrier")
            seconds[name].append(took)
            found[name] = lengths(done)
            print(f"run {seed}, {name}: {took:.1f} s", flush=True)
        assert found["ours"] == found["barrier"], "the schedules did not have the same work"
        ours, barrier = seconds["ours"][-1], seconds["barrier"][-1]
        rows.append((f"run {seed}", f"{ours:.1f}", f"{barrier:.1f}", f"{barrier / ours:.2f}"))
    ratios = [barrier / ours for ours, barrier in zip(seconds["ours"], seconds["barrier"], strict=True)]
    rows.append(
        ("median", *(f"{statistics.median(seconds[n]):.1f}" for n in seconds), f"{statistics.median(ratios):.2f}")
    )
    show(rows)
    ratio = round(statistics.median(ratios), 3)
    return {
        "questions": number,
        "ratio": ratio,
        "target": 1.5,
        "met": ratio >= 1.5,
        "seconds": seconds,
    } | describe_lengths(found["ours"], TOY_LIMIT)


# ── Simulated engines at the paper's size ──

QUESTIONS, COPIES, ROUNDS, ENGINES_PER_POLICY, MEDIAN, LIMIT, MAX_PROMPT = 64, 4, 8, 2, 400, 4096, 28672


@cache
def toy_tokenizer() -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(locate("data/toy/models/qwen2"))


@cache
def some_text() -> tuple[int, ...]:
    """Token ids that responses are cut from: the toy world's own questions, in its own tokens."""
    questions = load_questions(locate("data/toy/train.jsonl"))
    text = "\n".join(f"{question.prompt} {question.answer}" for question in questions)
    ids = tuple(toy_tokenizer().encode(text, add_special_tokens=False))
    return ids * math.ceil(4 * LIMIT / len(ids))


class TimedSpeaker(Speaker):
    """A speaker that counts the CPU seconds of tokenization."""

    cpu = 0.0

    def encode(self, text: str) -> list[int]:
        began = time.process_time()
        try:
            return super().encode(text)
        finally:
            self.cpu += time.process_time() - began

    def decode(self, token_ids: list[int]) -> str:
        began = time.process_time()
        try:
            return super().decode(token_ids)
        finally:
            self.cpu += time.process_time() - began


def simulate(agents: int, barrier: bool) -> dict[str, Any]:
    """One rollout of the paper's size in simulated time."""
    from marti_ext.engines.vllm import VllmEngines

    speakers = []
    for k in range(agents):
        numbers = range(k * ENGINES_PER_POLICY, (k + 1) * ENGINES_PER_POLICY)
        draw = partial(drawn_length, median=MEDIAN, limit=LIMIT)
        engines = [SimulatedEngine(number, draw, list(some_text())) for number in numbers]
        slots = asyncio.Semaphore(256 * ENGINES_PER_POLICY)
        speakers.append(TimedSpeaker(f"a{k}", f"a{k}", VllmEngines(engines, sleeps=False), toy_tokenizer(), slots))
    method = CoMAS(CoMASOptions(rounds=ROUNDS), agents)
    rollout = Rollout(method, speakers, Limits(MAX_PROMPT, LIMIT, 1.0), seed=1)
    questions = load_questions(locate("data/toy/train.jsonl"))[:QUESTIONS]
    cpu = time.process_time()
    with asyncio.Runner(loop_factory=SkippingLoop) as runner:
        seconds, trajectories = runner.run(run_once(rollout, questions, COPIES, ROUNDS, barrier))
    return {
        "seconds": seconds,
        "cpu": time.process_time() - cpu,
        "text": sum(speaker.cpu for speaker in speakers),
        "simulation": sum(engine.cpu for speaker in speakers for engine in speaker.engine.engines),
        "trajectories": trajectories,
    }


def plan(trajectories: list[Trajectory]) -> list[Planned]:
    """The same turns for the ideal schedule: what each waits for, written out for CoMAS with n = 1."""
    planned: list[Planned] = []
    for trajectory in trajectories:
        by_name = {(turn.role, turn.round): turn for turn in trajectory.turns}
        number = {name: len(planned) + index for index, name in enumerate(by_name)}
        for (role, round), turn in by_name.items():
            parent = {
                "solution": ("evaluation", round - 1),
                "evaluation": ("solution", round),
                "scoring": ("evaluation", round),
            }[role]
            after = [number[parent]] if parent[1] else []
            planned.append(Planned(int(turn.log_probs[0]), turn.num_tokens, after))
    return planned


def simulated() -> dict:
    ours, barrier = simulate(4, False), simulate(4, True)
    found = lengths(ours["trajectories"])
    assert found == lengths(barrier["trajectories"]), "the schedules did not have the same work"
    ideal = ideal_seconds(plan(ours["trajectories"]))
    ratio, above = barrier["seconds"] / ours["seconds"], ours["seconds"] / ideal - 1
    rows = [("schedule", "seconds", "to ours", "driver CPU s")]
    for name, seconds, cpu in (
        ("ours", ours["seconds"], f"{ours['cpu']:.1f}"),
        ("barrier", barrier["seconds"], f"{barrier['cpu']:.1f}"),
        ("ideal", ideal, "--"),
    ):
        rows.append((name, f"{seconds:.1f}", f"{seconds / ours['seconds']:.3f}", cpu))
    show(rows)
    return {
        "ratio": round(ratio, 3),
        "above_ideal": round(above, 4),
        "targets": {"ratio": 3, "above_ideal": 0.05},
        "met": ratio >= 3 and above <= 0.05,
        "seconds": {"ours": ours["seconds"], "barrier": barrier["seconds"], "ideal": ideal},
    } | describe_lengths(found, LIMIT)


def overhead() -> dict:
    rows = [("agents", "turns", "rollout s", "CPU s", "of it text", "simulation", "scheduling", "share", "above ideal")]
    shares, all_cpu, above = {}, {}, {}
    for agents in (1, 2, 4, 8, 16):
        one = simulate(agents, False)
        seconds, turns = one["seconds"], sum(len(trajectory.turns) for trajectory in one["trajectories"])
        scheduling = one["cpu"] - one["text"] - one["simulation"]
        shares[agents], all_cpu[agents] = scheduling / seconds, one["cpu"] / seconds
        above[agents] = seconds / ideal_seconds(plan(one["trajectories"])) - 1
        times = [seconds, one["cpu"], one["text"], one["simulation"], scheduling]
        percents = (f"{shares[agents]:.2%}", f"{above[agents]:.2%}")
        rows.append((agents, turns, *(f"{value:.1f}" for value in times), *percents))
        print(f"l = {agents}: {seconds:.1f} s, CPU {one['cpu']:.1f} s, scheduling {scheduling:.1f} s", flush=True)
    show(rows)

    def rounded(values: dict[int, float]) -> dict[int, float]:
        return {agents: round(value, 4) for agents, value in values.items()}

    found = {"share": rounded(shares), "share_of_all_cpu": rounded(all_cpu), "above_ideal": rounded(above)}
    return found | {"target": 0.05, "met": max(shares.values()) < 0.05}


def main() -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.rollout", description=__doc__.splitlines()[0])
    parser.add_argument("--engine", choices=("toy", "simulated", "overhead"), required=True)
    parser.add_argument("--repeats", type=int, default=3, help="toy: pairs of runs, each with a seed of its own")
    parser.add_argument("--questions", type=int, default=TOY_QUESTIONS, help="toy: each discussed twice")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="toy: override a setting")
    args = parser.parse_args()
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    random.seed(0)
    result = {
        "toy": lambda: toy(args.set, args.repeats, args.questions),
        "simulated": simulated,
        "overhead": overhead,
    }[args.engine]()
    print("RESULT " + json.dumps({"benchmark": f"rollout/{args.engine}"} | result), flush=True)


if __name__ == "__main__":
    main()
