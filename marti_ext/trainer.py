"""The loop: questions, rollout, rewards, one REINFORCE++ step of every policy, metrics, checkpoint."""

import asyncio
import copy
import random
import shutil
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any

import ray

from marti_ext import compat
from marti_ext.batches import trainable, units, whole_batches
from marti_ext.benchmarks import load as load_benchmark
from marti_ext.cluster import launch
from marti_ext.config import Config, locate, total_steps
from marti_ext.evaluation import Plan, claim, evaluate, first_of_each, reward_effectiveness
from marti_ext.loggers import Loggers
from marti_ext.metrics import step_metrics
from marti_ext.progress import Display, clock
from marti_ext.questions import QuestionSource, load_questions
from marti_ext.rollout import Limits, Progress, Rollout, stable_seed
from marti_ext.rundir import RunDir
from marti_ext.tasks.sandbox import weakness
from marti_ext.trajectory import Trajectory, Turn

if TYPE_CHECKING:
    from marti_ext.policies import Policy


class NoGradient(RuntimeError):
    """A policy had too few turns for an optimizer step, several steps in a row."""


def train(config: Config, run: RunDir, display: Display) -> None:
    """A whole run in `run`, from its last complete step if there is one. Ray is started and shut down here."""
    kind = config.engine_kind(compat.has_gpu())
    questions = load_questions(locate(config.data.train))
    state = run.open()
    if any(question.task == "coding" for question in questions) and (weak := weakness()):
        display.say(f"warning: {weak}")
    try:
        asyncio.run(_train(config, run, display, kind, questions, state))
    finally:
        ray.shutdown()


async def _train(config, run, display, kind, questions, state) -> None:
    steps = total_steps(config, len(questions))
    if state and state.get("finished") and state["step"] >= steps:
        display.say(f"{run.path} is complete: {state['step']} steps")
        return
    names = ", ".join(config.policies())
    # a thread for each policy's training, and some for verifying
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(len(config.policies()) + 8))
    start = asyncio.to_thread(launch, config, kind, steps)
    policies = await display.during(start, lambda seconds: f"loading policies {names} ({kind} engine), {seconds:.0f} s")
    display.say(f"policies ready: {names} ({kind} engine)")
    trainer = Trainer(config, run, display, policies, QuestionSource(questions, config.seed), steps)
    if state:
        await trainer.resume(state)
    trainer.loggers = Loggers(config, run.path, first_step=trainer.step + 1)
    if not trainer.step:
        await trainer.evaluate("untrained")
        await trainer.validate_untrained()
    while trainer.step < steps:
        await trainer.run_step()
    await trainer.save_policies()
    await trainer.evaluate("trained")
    trainer.mark(finished=True)
    trainer.loggers.close()


class Trainer:
    """Policies in training. `step` is the last complete step."""

    def __init__(
        self,
        config: Config,
        run: RunDir,
        display: Display,
        policies: dict[str, "Policy"],
        source: QuestionSource,
        steps: int,
    ) -> None:
        self.config, self.run, self.display, self.policies, self.source = config, run, display, policies, source
        self.steps, self.step = steps, 0
        self.idle = Counter(dict.fromkeys(policies, 0))  # steps in a row without a gradient
        rollout = config.rollout
        self.limits = Limits(
            rollout.max_prompt_tokens, rollout.max_response_tokens, rollout.temperature, rollout.retries
        )
        speakers = [policies[policy].speaker(agent) for agent, policy, _ in config.named_agents()]
        self.method = config.make_method()
        self.rollout = Rollout(self.method, speakers, self.limits, config.seed)
        self.loggers: Loggers | None = None
        self.seconds: list[float] = []  # of the steps so far
        self.ended = time.time()  # the last of them

    async def resume(self, state: dict[str, Any]) -> None:
        """Takes up the state of the last complete step: every policy at that step, every engine with its weights."""
        self.step = state["step"]
        self.source.restore(state["source"])
        self.idle.update(state["idle"])
        waits = [wait for policy in self.policies.values() for wait in policy.load_checkpoint(self.step)]
        await asyncio.gather(*waits)
        for policy in self.policies.values():
            policy.keep_checkpoints(self.config.checkpoint.keep, until=self.step)
        await asyncio.gather(*(asyncio.to_thread(policy.sync) for policy in self.policies.values()))
        if self.step < self.steps:  # a finished run that is prolonged is measured again
            shutil.rmtree(self.run.path / "evaluation" / "trained", ignore_errors=True)
        self.display.say(f"continuing after step {self.step}")

    # ── One step ──

    async def run_step(self) -> None:
        step, times = self.step + 1, {}
        began = time.time()
        trajectories, progress = await self._roll_out(step)
        turns = [turn for one in trajectories for turn in sorted(one.turns, key=lambda turn: turn.seed)]
        times["rollout"] = time.time() - began
        batches = {name: self._batch(name, turns, step) for name in self.policies}
        statuses = await self._train(batches, step)
        times["train_wall"] = time.time() - began - times["rollout"]
        line = step_metrics(step, trajectories, batches, statuses, progress, times, self.config)
        for name, policy in self.policies.items():
            line["policies"][name]["peak_memory_gib"] = await asyncio.to_thread(policy.peak_memory)
        line["time"]["step"] = time.time() - began
        if self.config.evaluation.every and step % self.config.evaluation.every == 0:
            line["validation"] = await self._validate(step)
            line["time"]["validation"] = time.time() - began - line["time"]["step"]
        self._log(line)
        self.step = step
        if step % self.config.checkpoint.every == 0 or step == self.steps:
            await self._checkpoint()
        self._report(line)
        self._check_idle()

    async def _roll_out(self, step: int) -> tuple[list[Trajectory], Progress]:
        """All discussions of the step, in the order of their questions; they are written to disk as they finish."""
        progress = Progress()
        questions = self.source.next_batch(self.config.rollout.questions_per_step)
        expected = len(questions) * self.config.rollout.discussions_per_question
        began = time.time()

        def describe(seconds: float) -> str:
            rate = progress.tokens / max(time.time() - began, 1e-9)
            return (
                f"step {step}/{self.steps}  rollout  {progress.questions_done}/{expected} discussions, "
                f"{progress.turns_done} turns, {rate:,.0f} tokens/s{self._time_left()}"
            )

        finished = await self.display.during(self._collect(questions, step, progress), describe)
        order = {question.id: index for index, question in enumerate(questions)}
        finished.sort(key=lambda one: (order[one.question.id], one.copy))  # they finish in the order of chance
        return finished, progress

    async def _collect(self, questions, step, progress) -> list[Trajectory]:
        finished = []
        await self._engines("wake_up")
        with self.run.trajectories(f"trajectories/step_{step:05}") as write:
            copies = self.config.rollout.discussions_per_question
            async for trajectory in self.rollout.run(questions, step, copies, progress):
                write(trajectory)
                finished.append(trajectory)
        await self._engines("sleep")
        return finished

    async def _engines(self, call: str) -> None:
        engines = [policy.engine for policy in self.policies.values() if policy.engines]
        await asyncio.gather(*(getattr(engine, call)() for engine in engines))

    def _batch(self, policy: str, turns: list[Turn], step: int) -> list[Turn]:
        own = [turn for turn in turns if turn.policy == policy]
        usable = trainable(own, self.config.train.train_on_truncated)
        rng = random.Random(stable_seed(self.config.seed, "batch", policy, step))
        return whole_batches(
            units(usable, self.method.credit), self.config.train.batch_size, rng, self.config.gpus.per_policy
        )

    async def _train(self, batches: dict[str, list[Turn]], step: int) -> dict[str, dict]:
        """All policies at the same time; those without a whole batch rest."""
        busy = {name: batch for name, batch in batches.items() if batch}
        work = asyncio.gather(
            *(asyncio.to_thread(self.policies[name].train, batch, step) for name, batch in busy.items())
        )
        samples = sum(map(len, busy.values()))
        statuses = await self.display.during(
            work,
            lambda seconds: (
                f"step {step}/{self.steps}  training on {samples} turns, {seconds:.0f} s{self._time_left()}"
            ),
        )
        for name in batches:
            self.idle[name] = 0 if name in busy else self.idle[name] + 1
        return dict(zip(busy, statuses, strict=True))

    async def _checkpoint(self) -> None:
        await asyncio.gather(*(wait for policy in self.policies.values() for wait in policy.save_checkpoint(self.step)))
        self.mark()
        for policy in self.policies.values():
            policy.keep_checkpoints(self.config.checkpoint.keep, until=self.step)

    def mark(self, finished: bool = False) -> None:
        """From here on the step counts, and with `finished` the run is done: measured and saved."""
        state = {"step": self.step, "source": self.source.state(), "idle": dict(self.idle), "finished": finished}
        self.run.complete_step(state)

    def _check_idle(self) -> None:
        limit = self.config.train.max_idle_steps
        for name, count in self.idle.items():
            if count:
                self.display.say(
                    f"policy {name} had too few turns for an optimizer step ({count} in a row, stop at {limit})"
                )
            if count >= limit:
                raise NoGradient(
                    f"policy {name} had no gradient in {count} steps in a row: fewer than train.batch_size "
                    f"({self.config.train.batch_size}) trainable turns a step. Lower it, or raise rollout.questions_per_step "
                    "or rollout.max_response_tokens (truncated turns are not trained on)"
                )

    def _log(self, line: dict[str, Any]) -> None:
        self.run.log(line)
        if self.loggers:
            self.loggers.log(line)

    # ── What is seen ──

    def _time_left(self) -> str:
        if not self.seconds:
            return ""
        left = mean(self.seconds) * (self.steps - self.step) - (time.time() - self.ended)
        return f", about {clock(max(0, left))} left"

    def _report(self, line: dict[str, Any]) -> None:
        self.seconds.append(line["time"]["step"] + line["time"].get("validation", 0))
        self.ended = time.time()
        rewards = []
        for name, policy in line["policies"].items():
            roles = policy["roles"]
            parts = [f"{role} {roles[role]['reward']:+.2f}" for role in roles if roles[role]["reward"] is not None]
            rewards.append(f"{name}: {', '.join(parts)}")
        self.display.say(
            f"step {self.step}/{self.steps}  {line['time']['step']:.1f} s "
            f"(rollout {line['time']['rollout']:.1f}, {line['tokens_per_second']:,.0f} tokens/s)  "
            f"{' | '.join(rewards)}{self._time_left()}"
        )

    # ── Before and after ──

    async def evaluate(self, stage: str) -> None:
        """Measures every policy on the benchmarks; what was measured before an interruption stays. Untrained, policies
        with the same model are one."""
        settings = self.config.evaluation
        if not settings.benchmarks:
            return
        limits = replace(
            self.limits, temperature=settings.temperature, max_response_tokens=settings.max_response_tokens
        )
        benchmarks = tuple(load_benchmark(name, settings.limit) for name in settings.benchmarks)
        plan = Plan(benchmarks, tuple(settings.setups), (self.config.seed,), limits)
        models = self.config.policies()
        first = first_of_each(models)
        names = models if stage == "trained" else first.values()
        root = self.run.path / "evaluation"
        untrained = {f"subject {stage}/{name}": f"untrained/{first[models[name]]}" for name in names}
        claim(root, plan.settings() | untrained)
        await self._engines("wake_up")
        await evaluate(
            root, {f"{stage}/{name}": [self.policies[name].speaker(name)] for name in names}, plan, self.display
        )
        await self._engines("sleep")

    async def validate_untrained(self) -> None:
        if self.config.evaluation.every:
            self._log({"step": 0, "policies": {}, "validation": await self._validate(0)})

    async def _validate(self, step: int) -> dict[str, float | None]:
        """Discussions as in training, on data.validation, always with the same random draws: are their rewards right?"""
        questions = load_questions(locate(self.config.data.validation))[: self.config.evaluation.limit]
        rollout, progress, finished = copy.copy(self.rollout), Progress(), []
        rollout.seed = stable_seed(self.config.seed, "validation")

        async def discuss() -> dict[str, float | None]:
            with self.run.trajectories(f"validation/step_{step:05}") as write:
                async for trajectory in rollout.run(questions, step=0, copies=1, progress=progress):
                    write(trajectory)
                    finished.append(trajectory)
            return {"failed": len(progress.failed)} | await asyncio.to_thread(reward_effectiveness, finished)

        await self._engines("wake_up")
        numbers = await self.display.during(
            discuss(), lambda _: f"validating after step {step}  {progress.questions_done}/{len(questions)} discussions"
        )
        await self._engines("sleep")
        shown = {
            key: "--" if numbers[key] is None else f"{numbers[key]:.1%}" for key in ("accuracy", "precision", "recall")
        }
        self.display.say(
            f"validation after step {step}: " + ", ".join(f"{key} {value}" for key, value in shown.items())
        )
        return numbers

    async def save_policies(self) -> None:
        waits = [wait for policy in self.policies.values() for wait in policy.actors.async_save_model()]
        await self.display.during(asyncio.gather(*waits), lambda seconds: f"saving policies, {seconds:.0f} s")
        self.display.say(f"trained policies are in {Path(self.run.path, 'policies')}")
