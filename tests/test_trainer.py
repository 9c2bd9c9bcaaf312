"""The loop with scripted engines: what a step writes, idle policies, and going on after a stop."""

import asyncio
import json
import random
from pathlib import Path

import pytest
from engines import speakers
from test_rewards import answer, role_of

from marti_ext.config import load_config
from marti_ext.progress import Display
from marti_ext.questions import QuestionSource, load_questions
from marti_ext.rundir import RunDir
from marti_ext.trainer import NoGradient, Trainer
from marti_ext.trajectory import read_trajectories

ROOT = Path(__file__).parent.parent
SETTINGS = ["train.batch_size=8", "train.micro_batch_size=4", "train.forward_batch_size=4", "rollout.questions_per_step=4",
            "rollout.max_prompt_tokens=4096", "method.rounds=2", "evaluation.benchmarks=[]"]  # fmt: skip


class ScriptedPolicy:
    """What the loop needs of a policy. `trained` remembers the turns of every update."""

    def __init__(self, name: str, script) -> None:
        self.name, self.script, self.engines, self.engine, self.trained = name, script, None, None, []

    def speaker(self, agent: str):
        speaker = speakers(self.script, 1)[0]
        speaker.agent, speaker.policy = agent, self.name
        return speaker

    def train(self, turns, step):
        self.trained.append([(turn.prompt, turn.response) for turn in turns])
        status = {"policy_loss": 0.1, "actor_grad_norm": 1.0, "ppo_clip_ratio": 0.0, "ppo_kl": 0.0, "kl": 0.0}
        times = {f"timing/{phase}": 0.0 for phase in ("make_experience", "ppo_train", "broadcast")}
        return status | times | {"actor_lr": 1e-3, "engine_gap": 0.0}

    def save_checkpoint(self, step):
        return []

    load_checkpoint = save_checkpoint

    def keep_checkpoints(self, count, until):
        pass

    def sync(self):
        pass

    def peak_memory(self):
        return 1.0


def trainer(folder: Path, script=answer, *more: str, steps: int = 4):
    config = load_config(
        ROOT / "experiments/configs/toy/comas.yaml", [f"runs_dir={folder}", "name=run", *SETTINGS, *more]
    )
    run = RunDir(config)
    state = run.open()
    policies = {name: ScriptedPolicy(name, script) for name in config.policies()}
    source = QuestionSource(load_questions(ROOT / config.data.train), config.seed)
    made = Trainer(config, run, Display(), policies, source, steps)
    if state:
        asyncio.run(made.resume(state))
    return made


def run_steps(one: Trainer, count: int) -> None:
    async def run():
        for policy in one.rollout.speakers:
            policy.slots = asyncio.Semaphore(64)
        for _ in range(count):
            await one.run_step()

    asyncio.run(run())


def metrics(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]


def stored_discussions(folder: Path) -> list:
    file = folder / "run" / "trajectories" / "step_00001.jsonl.gz"
    return [trajectory for _, _, trajectory in read_trajectories(file)]


def test_a_step_writes_its_discussions_its_metrics_and_then_its_marker(tmp_path):
    one = trainer(tmp_path)
    run_steps(one, 2)
    assert [line["step"] for line in metrics(tmp_path)] == [1, 2]
    stored = stored_discussions(tmp_path)
    assert len(stored) == 4 * 2
    assert all(turn.reward is not None for trajectory in stored for turn in trajectory.turns)
    assert json.loads((tmp_path / "run" / "checkpoints" / "state.json").read_text())["step"] == 2


def test_each_policy_trains_on_whole_batches_of_its_own_turns(tmp_path):
    one = trainer(tmp_path)
    run_steps(one, 1)
    stored = stored_discussions(tmp_path)
    (line,) = metrics(tmp_path)
    for name, policy in one.policies.items():
        own = {
            (turn.prompt, turn.response) for trajectory in stored for turn in trajectory.turns if turn.policy == name
        }
        (batch,) = policy.trained
        assert set(batch) <= own
        assert len(batch) == line["policies"][name]["samples"] == len(own) // 8 * 8
        assert line["policies"][name]["dropped"] == len(own) % 8
        assert line["policies"][name]["optimizer_steps"] == len(own) // 8


def test_a_policy_without_a_gradient_is_reported_and_then_stops_the_run(tmp_path, capsys):
    def script(prompt, seed):
        return "x" * 100  # truncated, so never trained on

    one = trainer(tmp_path, script, "train.max_idle_steps=2")
    with pytest.raises(NoGradient, match=r"qwen had no gradient in 2 steps in a row.*batch_size"):
        run_steps(one, 3)
    assert "too few turns for an optimizer step (1 in a row, stop at 2)" in capsys.readouterr().out
    assert [line["policies"]["qwen"]["optimizer_steps"] for line in metrics(tmp_path)] == [0, 0]
    assert metrics(tmp_path)[0]["policies"]["qwen"]["grad_norm"] is None


def test_after_a_stop_the_run_goes_on_as_if_nothing_had_happened(tmp_path):
    straight = trainer(tmp_path / "a")
    run_steps(straight, 4)
    run_steps(trainer(tmp_path / "b"), 2)
    (tmp_path / "b/run/metrics.jsonl").open("a").write('{"step": 3, "pol')  # a kill in the middle of step 3
    (tmp_path / "b/run/trajectories/step_00003.jsonl.gz.part").write_bytes(b"half")
    second = trainer(tmp_path / "b")
    assert second.step == 2
    run_steps(second, 2)
    for name in ("qwen", "llama"):
        assert second.policies[name].trained == straight.policies[name].trained[2:]

    def without_clock(lines):
        return [
            {key: value for key, value in line.items() if key not in ("time", "tokens_per_second")} for line in lines
        ]

    assert without_clock(metrics(tmp_path / "b")) == without_clock(metrics(tmp_path / "a"))
    assert not list((tmp_path / "b").rglob("*.part"))


def test_questions_that_fail_are_counted_and_the_step_goes_on(tmp_path):
    rng = random.Random(0)

    def script(prompt, seed):
        return RuntimeError("no") if role_of(prompt) == "solution" and rng.random() < 0.6 else answer(prompt, seed)

    run_steps(trainer(tmp_path, script), 1)
    (line,) = metrics(tmp_path)
    assert line["failed"] > 0
    assert line["failed"] + line["discussions"] == 8
    assert line["retried_turns"] > 0


# ── Validation and benchmarks ──

QUICK = ("evaluation.benchmarks=[toy-math,toy-science]", "evaluation.setups=[vanilla,vote]", "evaluation.limit=3")


def answers(folder: Path, *subject: str) -> list[dict]:
    files = sorted((folder / "run" / "evaluation").joinpath(*subject).rglob("seed_*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def test_every_k_steps_rewards_are_compared_with_the_verifier(tmp_path, capsys):
    one = trainer(tmp_path, answer, "evaluation.every=2", "evaluation.limit=3")
    asyncio.run(one.validate_untrained())
    run_steps(one, 3)
    lines = metrics(tmp_path)
    assert [line["step"] for line in lines] == [0, 1, 2, 3]
    assert [line["step"] for line in lines if "validation" in line] == [0, 2]
    first, third = (
        [
            turn.response
            for _, _, one in read_trajectories(tmp_path / f"run/validation/step_{step:05}.jsonl.gz")
            for turn in one.turns
        ]
        for step in (0, 2)
    )
    assert sorted(first) == sorted(third) and len(set(first)) > 3  # the same draws, and the script does not learn
    assert lines[0]["validation"] == lines[2]["validation"]
    assert lines[0]["validation"]["solutions"] == 3 * 2
    stored = tmp_path / "run" / "validation" / "step_00002.jsonl.gz"
    assert len(list(read_trajectories(stored))) == 3
    assert "validation after step 2: accuracy " in capsys.readouterr().out


def test_policies_are_measured_before_and_after_and_what_is_measured_stays(tmp_path):
    asked = []

    def script(prompt, seed):
        asked.append(prompt)
        return answer(prompt, seed)

    one = trainer(tmp_path, script, *QUICK)
    asyncio.run(one.evaluate("untrained"))
    assert len(answers(tmp_path, "untrained", "qwen")) == len(answers(tmp_path, "untrained", "llama")) == 2 * 2 * 3
    assert len(asked) == 2 * 2 * 3 * (1 + 5)
    asyncio.run(trainer(tmp_path, script, *QUICK).evaluate("untrained"))
    assert len(asked) == 2 * 2 * 3 * (1 + 5)
    asyncio.run(one.evaluate("trained"))
    assert len(answers(tmp_path, "trained")) == 2 * len(answers(tmp_path, "untrained", "qwen"))
    settings = json.loads((tmp_path / "run" / "evaluation" / "settings.json").read_text())
    assert settings["subject trained/llama"] == "untrained/llama"


def test_policies_with_the_same_model_are_measured_once_untrained(tmp_path):
    one = trainer(tmp_path, answer, *QUICK, "agents.1.model=data/toy/models/qwen2")
    asyncio.run(one.evaluate("untrained"))
    asyncio.run(one.evaluate("trained"))
    folder = tmp_path / "run" / "evaluation"
    assert [path.name for path in (folder / "untrained").iterdir()] == ["qwen"]
    assert sorted(path.name for path in (folder / "trained").iterdir()) == ["llama", "qwen"]
    assert json.loads((folder / "settings.json").read_text())["subject trained/llama"] == "untrained/qwen"


def test_a_prolonged_run_is_measured_again(tmp_path):
    one = trainer(tmp_path, answer, *QUICK)
    run_steps(one, 2)
    asyncio.run(one.evaluate("trained"))
    one.mark(finished=True)
    trainer(tmp_path, answer, *QUICK, steps=2)
    assert answers(tmp_path, "trained")
    trainer(tmp_path, answer, *QUICK, steps=4)
    assert not answers(tmp_path, "trained")
