"""What a run will do and take, without loading a model: settings, GPUs, turns, optimizer steps, what is lacking."""

import shutil
import subprocess

import yaml

from marti_ext.config import (
    Config,
    cached_on_hub,
    gpus_needed,
    is_local_model,
    locate,
    optimizer_steps,
    total_steps,
    turns_per_step,
)
from marti_ext.questions import load_questions


def visible_gpus() -> int:
    """NVIDIA GPUs of this machine, asked of the driver: torch need not be loaded."""
    if shutil.which("nvidia-smi") is None:
        return 0
    listing = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True)
    return listing.stdout.count("GPU ") if listing.returncode == 0 else 0


def missing(config: Config, running: bool = False) -> list[str]:
    """What this machine lacks for the experiment. `running` leaves out what a run can fetch or do without."""
    import os

    lacking, have, need = [], visible_gpus(), gpus_needed(config)
    if (have or not running) and need > have and not os.environ.get("RAY_ADDRESS"):
        lacking.append(
            f"GPUs: {need} needed, {have} here; join several machines with Ray (README) or lower gpus.per_policy"
        )
    if running and have == 0:
        big = [model for model in set(config.policies().values()) if not is_local_model(model)]
        if big and need > 1 and config.engine.kind != "transformers" and not os.environ.get("RAY_ADDRESS"):
            lacking.append(
                f"GPUs: none here, and {', '.join(sorted(big))} need them (engine.kind: transformers forces the CPU)"
            )
    if not running:
        for model in sorted(set(config.policies().values())):
            if not is_local_model(model) and not cached_on_hub(model):
                lacking.append(
                    f"model {model}: not in the local Hugging Face cache; it is downloaded when the run begins"
                )
    return lacking


def describe(config: Config) -> str:
    """The whole dry run as text."""
    questions = len(load_questions(locate(config.data.train)))
    steps, turns = total_steps(config, questions), turns_per_step(config)
    rollout, policies = config.rollout, config.policies()
    kind = config.engine_kind(visible_gpus() > 0)
    rows = {
        "questions": f"{questions} in {config.data.train}",
        "steps": f"{steps} of {rollout.questions_per_step} questions x {rollout.discussions_per_question} discussions",
        "turns": f"{turns:,} a step, {turns * steps:,} in all",
        "samples": f"about {turns // len(policies):,} a step and policy, {turns * steps // len(policies):,} in all",
        "optimizer steps": f"about {turns // len(policies) // config.train.batch_size * config.train.passes} a step and policy, "
        f"at most {optimizer_steps(config, steps):,} in all",
        "generated tokens": _bound(turns * rollout.max_response_tokens, steps),
        "prompt tokens": _bound(turns * rollout.max_prompt_tokens, steps),
    }
    width = max(map(len, rows))
    lacking = missing(config)
    sections = [
        ("Settings", yaml.safe_dump(config.model_dump(), sort_keys=False).rstrip()),
        ("Agents and GPUs", "\n".join(_placement(config, kind))),
        ("Work", "\n".join(f"{key:<{width}}  {value}" for key, value in rows.items())),
        ("Lacking on this machine", "\n".join(lacking) if lacking else "nothing"),
    ]
    return "\n\n".join(f"{title}\n{'-' * len(title)}\n{text}" for title, text in sections)


def _bound(tokens: int, steps: int) -> str:
    return f"at most {tokens:,} a step, {tokens * steps:,} in all"


def _placement(config: Config, kind: str) -> list[str]:
    """Who uses which GPUs; numbers are Ray's to choose, groups are not."""
    lines, per, engine = [], config.gpus.per_policy, config.engine
    on_gpu = kind == "vllm"
    for index, (policy, model) in enumerate(config.policies().items()):
        agents = ", ".join(agent for agent, other, _ in config.named_agents() if other == policy)
        reference = " + reference" if config.train.kl_weight > 0 else ""
        if not on_gpu:
            place = "CPU: the actor generates"
        elif config.gpus.colocate:
            place = f"GPU group {index}: {per} GPU(s) shared by actor{reference} and {engine.per_policy} vLLM engine(s), taking turns"
        else:
            place = f"GPU group {index}: {per} GPU(s) for the actor{reference}, {engine.per_policy * engine.tensor_parallel} for vLLM"
        lines.append(f"{policy}  ({model})  agents: {agents}  {place}")
    return lines
