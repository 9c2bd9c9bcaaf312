"""Our training step against OpenRLHF's own, on the same samples and the same actor.

    python -m benchmarks.training     about 3 minutes, from the root of the repository

One toy policy (transformers engine), its turns of one rollout, in whole batches. Ours is marti_ext's Policy.train: seed the
actor, make Experience objects of the turns, BasePPOTrainer.train_step with our ExperienceMaker (log-probs, advantages and
the engine gap), status. Theirs is BasePPOTrainer.train_step with OpenRLHF's RemoteExperienceMaker on Experience objects
that were made beforehand, and the actor seeded beforehand alike, so that both shuffle the same micro-batches. After one
step of each to warm up, the two alternate, and so does which is first; each step trains the same weights further.

Prints seconds a step and the median of the ratios of each pair. Expect ours at most 1.05 times theirs.
"""

import argparse
import asyncio
import json
import random
import statistics
import time
from pathlib import Path
from typing import Any

from marti_ext.config import Config, load_config, locate
from marti_ext.questions import load_questions

CONFIG = Path("experiments/configs/toy/comas.yaml")
TARGET = 1.05


def load(overrides: list[str]) -> Config:
    """The toy experiment with its first agent alone."""
    model = load_config(CONFIG, overrides).agents[0].model
    return load_config(CONFIG, ["runs_dir=/tmp/benchmark-runs", *overrides, f"agents=[{{name: qwen, model: {model}}}]"])


async def some_turns(config: Config, policy: Any) -> list:
    """Whole batches of the turns of one step's rollout."""
    from marti_ext.batches import trainable, whole_batches
    from marti_ext.rollout import Limits, Progress, Rollout

    limits = Limits(config.rollout.max_prompt_tokens, config.rollout.max_response_tokens, config.rollout.temperature)
    rollout = Rollout(config.make_method(), [policy.speaker("qwen")], limits, config.seed)
    questions = load_questions(locate(config.data.train))[: config.rollout.questions_per_step]
    copies = config.rollout.discussions_per_question
    turns = [turn async for one in rollout.run(questions, 1, copies, Progress()) for turn in one.turns]
    return whole_batches([[turn] for turn in trainable(turns, True)], config.train.batch_size, random.Random(0))


def compare(config: Config, policy: Any, pairs: int) -> dict:
    import ray
    from openrlhf.trainer.ppo_trainer import BasePPOTrainer

    from marti_ext.experience import to_experience
    from marti_ext.rollout import stable_seed

    turns = asyncio.run(some_turns(config, policy))
    samples = [to_experience(turn) for turn in turns]
    groups = (policy.actors, None, None, policy.reference)
    openrlhf = BasePPOTrainer(policy.strategy, *groups, policy.engines, policy.tokenizer)

    def ours(step: int) -> float:
        began = time.perf_counter()
        policy.train(turns, step)
        return time.perf_counter() - began

    def theirs(step: int) -> float:
        ray.get(policy.actors.async_run_method("seed", stable_seed(policy.args.train.seed, step)))
        began = time.perf_counter()
        openrlhf.train_step(samples, step)
        return time.perf_counter() - began

    ours(1), theirs(1)
    tokens = sum(len(turn.prompt_ids) + len(turn.response_ids) for turn in turns)
    print(f"{len(turns)} samples, {tokens:,} tokens, {len(turns) // config.train.batch_size} optimizer steps a step")
    print(f"{'pair':>6} {'ours, s':>8} {'OpenRLHF, s':>12} {'ratio':>6}")
    pairs_seen = []
    for number in range(1, pairs + 1):
        seconds = {step: step(number + 1) for step in ((ours, theirs) if number % 2 else (theirs, ours))}
        pair = (seconds[ours], seconds[theirs])
        pairs_seen.append(pair)
        print(f"{number:>6} {pair[0]:>8.2f} {pair[1]:>12.2f} {pair[0] / pair[1]:>6.3f}", flush=True)
    mine, other = (statistics.median(pair[side] for pair in pairs_seen) for side in (0, 1))
    ratio = statistics.median(pair[0] / pair[1] for pair in pairs_seen)
    print(f"{'median':>6} {mine:>8.2f} {other:>12.2f} {ratio:>6.3f}")
    return {"ratio": round(ratio, 4), "ours": round(mine, 3), "openrlhf": round(other, 3), "samples": len(turns)}


def main() -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.training", description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="override a setting")
    args = parser.parse_args()
    config = load(args.set)
    import ray

    from marti_ext.cluster import launch

    try:
        policy = launch(config, "transformers", steps=2 * args.pairs + 2)["qwen"]
        result = compare(config, policy, args.pairs)
    finally:
        ray.shutdown()
    summary = {"benchmark": "training"} | result | {"target": TARGET, "met": result["ratio"] <= TARGET}
    print("RESULT " + json.dumps(summary))


if __name__ == "__main__":
    main()
