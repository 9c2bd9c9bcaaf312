"""The real thing: two policies of different architecture on OpenRLHF's actors, DeepSpeed and both engines, under Ray."""

import asyncio
import random
from collections import Counter
from pathlib import Path
from statistics import mean

import pytest

from marti_ext.config import load_config
from marti_ext.methods.comas import CoMAS, CoMASOptions
from marti_ext.questions import load_questions
from marti_ext.rollout import Limits, Progress, Rollout

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]
ROOT = Path(__file__).parent.parent
LIMITS = Limits(512, 64, 1.0)


@pytest.fixture(scope="session")
def config(tmp_path_factory):
    """The toy experiment with a KL penalty, so that reference groups are started too."""
    overrides = [f"runs_dir={tmp_path_factory.mktemp('runs')}", "train.kl_weight=0.01", "train.learning_rate=1e-3"]
    overrides += ["train.batch_size=16", "train.micro_batch_size=8", "train.forward_batch_size=8"]
    return load_config(ROOT / "experiments/configs/toy/comas.yaml", overrides)


@pytest.fixture(scope="session")
def cluster(config):
    import ray

    from marti_ext.cluster import start_ray

    start_ray(config)
    yield
    ray.shutdown()


@pytest.fixture(scope="session")
def policies(cluster, config):
    """One start-up for the whole layer: qwen and llama, each with a reference group, on the embedded engine."""
    from marti_ext.policies import load

    return load(config, "transformers", steps=10)


def discuss(policies, seed: int, count: int = 6) -> list:
    speakers = [policy.speaker(name) for name, policy in policies.items()]
    for policy in policies.values():
        policy.slots = asyncio.Semaphore(64)
    rollout = Rollout(CoMAS(CoMASOptions(rounds=2), len(speakers)), speakers, LIMITS, seed)
    questions = load_questions(ROOT / "data/toy/train.jsonl")[:count]

    async def run():
        return [one async for one in rollout.run(questions, seed, 1, Progress())]

    return [turn for one in asyncio.run(run()) for turn in one.turns]


def batch_of(turns: list, policy: str) -> list:
    from marti_ext.batches import trainable, whole_batches

    own = trainable([turn for turn in turns if turn.policy == policy], train_on_truncated=True)
    return whole_batches([[turn] for turn in own], 16, random.Random(0))


def trainer_log_probs(policy, turns: list) -> list[list[float]]:
    """Of the response tokens, by the training forward of OpenRLHF's actor."""
    import ray

    from marti_ext.experience import to_experience

    found = []
    for turn in turns:
        one = to_experience(turn)
        inputs = {"sequences": one.sequences, "action_mask": one.action_mask, "attention_mask": one.attention_mask}
        log_probs = ray.get(policy.actors.async_run_method("forward", **inputs))[0]
        found.append(log_probs[one.action_mask].tolist())
    return found


def gap(policy, turns: list) -> float:
    """Mean |log-prob of the engine - log-prob of the trainer| over all response tokens."""
    rows = zip(turns, trainer_log_probs(policy, turns), strict=True)
    return mean(abs(a - b) for turn, row in rows for a, b in zip(turn.log_probs, row, strict=True))


def train_all(policies, turns: list, step: int) -> dict[str, dict]:
    async def run():
        work = {name: asyncio.to_thread(policy.train, batch_of(turns, name), step) for name, policy in policies.items()}
        return dict(zip(work, await asyncio.gather(*work.values()), strict=True))

    return asyncio.run(run())


def test_two_architectures_discuss_and_train_at_the_same_time(policies):
    turns = discuss(policies, seed=1)
    assert {turn.policy for turn in turns} == {"qwen", "llama"}
    assert Counter(turn.role for turn in turns) == {"solution": 12, "evaluation": 12, "scoring": 12}
    first = train_all(policies, discuss(policies, seed=2, count=12), step=1)
    second = train_all(policies, discuss(policies, seed=3, count=12), step=2)
    for name in policies:
        assert first[name]["actor_grad_norm"] > 0
        assert first[name]["kl"] == pytest.approx(0, abs=1e-3)  # the reference is the policy's own beginning
        assert abs(second[name]["kl"]) > 1e-4
        assert second[name]["actor_lr"] == pytest.approx(1e-3)


def test_the_embedded_engine_generates_with_the_present_weights(policies):
    """Its log-probs agree with the trainer's before and after an update, for both architectures."""
    for step in (11, 12):
        turns = discuss(policies, seed=step)
        for name, policy in policies.items():
            assert gap(policy, [turn for turn in turns if turn.policy == name][:12]) < 1e-4
        train_all(policies, discuss(policies, seed=100 + step, count=12), step)


def test_training_one_policy_leaves_the_other_as_it_is(policies):
    turns = discuss(policies, seed=21, count=12)
    probe = [turn for turn in turns if turn.policy == "llama"][:4]
    before = trainer_log_probs(policies["llama"], probe)
    own = [turn for turn in turns if turn.policy == "qwen"][:4]
    own_before = trainer_log_probs(policies["qwen"], own)
    policies["qwen"].train(batch_of(turns, "qwen"), 21)
    assert sum(trainer_log_probs(policies["llama"], probe), []) == pytest.approx(sum(before, []), abs=1e-5)
    assert sum(trainer_log_probs(policies["qwen"], own), []) != pytest.approx(sum(own_before, []), abs=1e-5)


def furthest(numbers: list[float], others: list[float]) -> float:
    return max(abs(a - b) for a, b in zip(numbers, others, strict=True))


def test_a_checkpoint_brings_back_weights_optimizer_and_schedule(policies):
    """From the same checkpoint the same step gives the same weights, but for the last bits of gradients' sums: Adam's first
    steps make them a little larger where a gradient is almost 0, and they stay a hundred times smaller than the step."""
    import ray

    policy = policies["qwen"]
    turns = discuss(policies, seed=31, count=12)
    batch, probe = batch_of(turns, "qwen"), [turn for turn in turns if turn.policy == "qwen"][:4]

    def probed() -> list[float]:
        return [number for row in trainer_log_probs(policy, probe) for number in row]

    ray.get(policy.save_checkpoint(30))
    saved = probed()
    policy.train(batch, 31)
    once = probed()
    policy.train(batch, 32)
    twice = probed()
    ray.get(policy.load_checkpoint(30))
    assert probed() == pytest.approx(saved, abs=1e-5)
    policy.train(batch, 31)
    assert furthest(probed(), once) < 0.01 * min(furthest(once, saved), furthest(twice, once))


def test_what_a_turn_says_does_not_depend_on_the_batch_it_is_in(policies):
    alone = {(turn.policy, tuple(turn.prompt_ids)): turn.response_ids for turn in discuss(policies, seed=41, count=1)}
    crowd = {(turn.policy, tuple(turn.prompt_ids)): turn.response_ids for turn in discuss(policies, seed=41, count=30)}
    assert alone.items() <= crowd.items()


def test_trained_weights_reach_vllm(cluster, config):
    """A policy with a vLLM engine, weights broadcast after each update: engine and trainer agree."""
    import ray

    from marti_ext.config import openrlhf_args
    from marti_ext.policies import Policy

    args = openrlhf_args(config, "qwen", 2, "vllm")
    args.algo.kl.init_coef = 0.0
    args.ckpt.path, args.ckpt.output_dir = args.ckpt.path + "-vllm", args.ckpt.output_dir + "-vllm"
    policy = Policy("vllm", args, "vllm", requests=64)
    ray.get(policy.load(max_steps=10))
    policy.ready()
    before = discuss({"vllm": policy}, seed=51)
    assert gap(policy, before[:16]) < 0.02
    for step in (51, 52, 53):
        policy.train(batch_of(discuss({"vllm": policy}, seed=100 + step, count=12), "vllm"), step)
    stale = gap(policy, before[:16])  # what the engine said before the updates no longer fits
    after = discuss({"vllm": policy}, seed=52)
    fresh = gap(policy, after[:16])
    print(f"mean |delta log-prob| after sync {fresh:.4f}, of the old weights {stale:.4f}")
    assert fresh < 0.02 < stale
