"""Launches policies and trains them: each its own actor group, reference group, engine, optimizer, folder and seed."""

from marti_ext import compat

compat.apply()

import asyncio  # noqa: E402
import logging  # noqa: E402
import shutil  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import ray  # noqa: E402
from openrlhf.trainer.ppo_trainer import BasePPOTrainer  # noqa: E402
from openrlhf.trainer.ray.launcher import RayActorGroup  # noqa: E402
from openrlhf.utils import get_strategy, get_tokenizer  # noqa: E402
from ray.util.placement_group import placement_group  # noqa: E402

from marti_ext.actor import PolicyActor, ReferenceActor  # noqa: E402
from marti_ext.cluster import CannotLaunch  # noqa: E402
from marti_ext.config import Config, openrlhf_args, optimizer_steps  # noqa: E402
from marti_ext.engines.transformers import TransformersEngine  # noqa: E402
from marti_ext.experience import ExperienceMaker, to_experience  # noqa: E402
from marti_ext.rollout import Speaker, stable_seed  # noqa: E402
from marti_ext.trajectory import Turn  # noqa: E402

logging.getLogger("openrlhf").setLevel(logging.WARNING)
for name in ("openrlhf.trainer.ppo_trainer", "openrlhf.trainer.ppo_utils.experience_maker"):
    logging.getLogger(name).setLevel(logging.WARNING)  # they print a sample and a line a phase, for one policy


class Policy:
    """Driver side of one policy."""

    def __init__(self, name: str, args: Any, kind: str, requests: int) -> None:
        self.name, self.args = name, args
        self.strategy = get_strategy(args)
        self.tokenizer = get_tokenizer(args.actor.model_name_or_path, None, "left", self.strategy)
        if self.tokenizer.chat_template is None:  # of a local folder the config has said so already
            raise CannotLaunch(
                f"agents: the tokenizer of {args.actor.model_name_or_path} has no chat template; take an instruction-tuned model"
            )
        group = None
        if args.train.colocate_all or args.algo.kl.init_coef > 0:  # a reference shares its actor's GPUs
            bundles = [{"GPU": 1, "CPU": 1}] * args.actor.num_gpus_per_node
            group = placement_group(bundles, strategy="PACK")
            ray.get(group.ready())
        share = 0.2 if group else 1
        workers = args.actor.num_gpus_per_node
        self.actors = RayActorGroup(1, workers, PolicyActor, pg=group, num_gpus_per_actor=share)
        self.reference = None
        if args.algo.kl.init_coef > 0:
            self.reference = RayActorGroup(1, workers, ReferenceActor, pg=group, num_gpus_per_actor=share)
        self.engines: list | None = None
        if kind == "vllm":
            from marti_ext.engines.vllm import VllmEngines, create_engines

            self.engines = create_engines(args, group if args.train.colocate_all else None)
            self.engine: Any = VllmEngines(self.engines, args.vllm.enable_sleep)
        else:
            self.engine = TransformersEngine(self.actors._actor_handlers[0])
        self.slots = asyncio.Semaphore(requests * max(1, len(self.engines or [])))

    def load(self, max_steps: int) -> list:
        """Starts loading the models; returns what to wait for."""
        model = self.args.actor.model_name_or_path
        waits = self.actors.async_init_model_from_pretrained(self.strategy, model, max_steps, self.engines)
        if self.reference:
            waits += self.reference.async_init_model_from_pretrained(self.strategy, model)
        return waits

    def ready(self) -> None:
        """Call once loaded: makes OpenRLHF's trainer, with our experience maker in it."""
        groups = (self.actors, None, None, self.reference)
        self.trainer = BasePPOTrainer(self.strategy, *groups, self.engines, self.tokenizer)
        ours = ExperienceMaker(*groups, self.trainer.kl_ctl, self.strategy, self.tokenizer)
        self.trainer.experience_maker = ours

    def speaker(self, agent: str) -> Speaker:
        return Speaker(agent, self.name, self.engine, self.tokenizer, self.slots)

    def train(self, turns: list[Turn], step: int) -> dict[str, Any]:
        """One step of REINFORCE++ on these turns: log-probs, advantages, optimizer steps, weight sync. Or of DPO, where
        they are pairs, the preferred one first.

        `turns` fill whole batches. Returns OpenRLHF's status, one number per key.
        """
        ray.get(self.actors.async_run_method("seed", stable_seed(self.args.train.seed, step)))
        status, _ = self.trainer.train_step([to_experience(turn) for turn in turns], step)
        del status["generated_samples"]
        if self.args.marti.credit == "dpo":  # see PairLoss
            status["preference_accuracy"] = status.pop("ppo_clip_ratio")
            status["preference_margin"] = status.pop("ppo_kl")
        return status

    def sync(self) -> None:
        """Sends the weights to the engines; the embedded engine has them."""
        if self.engines:
            self.trainer.broadcast_to_vllm()

    def save_checkpoint(self, step: int) -> list:
        return self.actors.async_run_method("save_checkpoint", tag=f"step_{step}")

    def load_checkpoint(self, step: int) -> list:
        return self.actors.async_run_method("load_checkpoint", f"step_{step}")

    def keep_checkpoints(self, count: int, until: int) -> None:
        """Removes all but the last `count` up to step `until`: older ones, and what an interrupted step left behind."""
        folders = {int(folder.name[5:]): folder for folder in Path(self.args.ckpt.path, "_actor").glob("step_*")}
        kept = sorted(step for step in folders if step <= until)[-count:]
        for step in folders.keys() - kept:
            shutil.rmtree(folders[step])

    def peak_memory(self) -> float:
        """GiB, of the largest of its actors."""
        return max(ray.get(self.actors.async_run_method("peak_memory")))


def load(config: Config, kind: str, steps: int) -> dict[str, Policy]:
    """All policies of an experiment, loaded; every actor and engine comes up at the same time."""
    policies = {}
    for index, name in enumerate(config.policies()):
        args = openrlhf_args(config, name, index, kind)
        policies[name] = Policy(name, args, kind, config.rollout.requests_per_engine)
    ray.get([wait for policy in policies.values() for wait in policy.load(optimizer_steps(config, steps))])
    for policy in policies.values():
        policy.ready()
    return policies
