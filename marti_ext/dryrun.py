"""What a run will do and take, without loading a model: settings, GPUs, turns, optimizer steps, what is lacking."""

import os
import shutil
import subprocess

import yaml

from marti_ext import benchmarks
from marti_ext.config import (
    Config,
    cached_on_hub,
    exists,
    gpus_needed,
    is_local_model,
    locate,
    optimizer_steps,
    samples_per_step,
    total_steps,
    turns_per_step,
)
from marti_ext.questions import load_questions
from marti_ext.setups import SETUPS

UNKNOWN = "unknown until the data is there"


def visible_gpus() -> int:
    """NVIDIA GPUs that a run sees here, asked of the driver: torch need not be loaded."""
    if shutil.which("nvidia-smi") is None or os.environ.get("DS_ACCELERATOR") == "cpu":
        return 0
    listing = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True)
    count = listing.stdout.count("GPU ") if listing.returncode == 0 else 0
    allowed = os.environ.get("CUDA_VISIBLE_DEVICES")
    return count if allowed is None else min(count, sum(part.strip() not in ("", "-1") for part in allowed.split(",")))


def on_cpu(config: Config) -> bool:
    """Whether the run does without GPUs here: there are none, and the models are local, or it was asked for."""
    local = all(is_local_model(model) for model in config.policies().values())
    able = local and (config.gpus.per_policy == 1 or config.engine.kind == "vllm")
    return not visible_gpus() and not os.environ.get("RAY_ADDRESS") and (able or config.engine.kind == "transformers")


def missing_gpus(config: Config) -> list[str]:
    """A line if the run needs more GPUs than this machine has and no Ray cluster is named."""
    have, need = visible_gpus(), gpus_needed(config)
    if need <= have or on_cpu(config) or os.environ.get("RAY_ADDRESS"):
        return []
    if have:
        remedy = "use fewer agents or a lower gpus.per_policy"
    else:
        remedy = "set engine.kind: transformers and gpus.per_policy: 1 to run on the CPU"
    return [f"GPUs: {need} needed, {have} here; join several machines with Ray (README), or {remedy}"]


def missing(config: Config) -> list[str]:
    """What this machine lacks for the experiment, a line each."""
    lines = missing_gpus(config)
    for model in sorted(set(config.policies().values())):
        if is_local_model(model) and not exists(model):
            lines.append(f"model {model}: no such folder")
        elif not is_local_model(model) and not cached_on_hub(model):
            lines.append(f"model {model}: not in the local Hugging Face cache; it is downloaded when the run begins")
    files = [config.data.train, config.data.validation]
    lines += [f"data {file}: no such file (see data/README.md)" for file in files if file and not exists(file)]
    problems = map(benchmarks.problem_with, config.evaluation.benchmarks)
    return lines + [f"benchmark {problem}" for problem in problems if problem]


def describe(config: Config) -> str:
    """The whole dry run as text."""
    work = _work(config)
    width = max(map(len, work))
    sections = [
        ("Settings", yaml.safe_dump(config.model_dump(), sort_keys=False).rstrip()),
        ("Agents and GPUs", "\n".join(_placement(config))),
        ("Work", "\n".join(f"{key:<{width}}  {value}" for key, value in work.items())),
        ("Lacking on this machine", "\n".join(missing(config)) or "nothing"),
    ]
    return "\n\n".join(f"{title}\n{'-' * len(title)}\n{text}" for title, text in sections)


def _work(config: Config) -> dict[str, str]:
    """Sizes by name. Those of the whole run are unknown without `train.steps` and without the questions."""
    rollout, train, policies = config.rollout, config.train, len(config.policies())
    questions = len(load_questions(locate(config.data.train))) if exists(config.data.train) else None
    steps = total_steps(config, questions or 0) if questions or train.steps else None
    turns, samples = turns_per_step(config), samples_per_step(config) // policies

    def total(number: int) -> str:
        return f"{number * steps:,} in all" if steps else f"in all {UNKNOWN}"

    most = f"at most {optimizer_steps(config, steps):,} in all" if steps else f"in all {UNKNOWN}"
    updates = samples // train.batch_size * train.passes
    answer_tokens, prompt_tokens = turns * rollout.max_response_tokens, turns * rollout.max_prompt_tokens
    return {
        "questions": f"{questions or UNKNOWN} ({config.data.train})",
        "steps": f"{steps or UNKNOWN}, each {rollout.questions_per_step} questions x {rollout.discussions_per_question} discussions",
        "turns": f"{turns:,} a step, {total(turns)}",
        "samples": f"about {samples:,} a step and policy, {total(samples)}",
        "optimizer steps": f"about {updates:,} a step and policy, {most}",
        "generated tokens": f"at most {answer_tokens:,} a step, {total(answer_tokens)}",
        "prompt tokens": f"at most {prompt_tokens:,} a step, {total(prompt_tokens)}",
        "evaluation": _evaluation(config),
    }


def _evaluation(config: Config) -> str:
    """Benchmarks before and after training, in turns."""
    settings = config.evaluation
    if not settings.benchmarks:
        return "none"
    there = [name for name in settings.benchmarks if not benchmarks.problem_with(name)]
    questions = sum(len(benchmarks.load(name, settings.limit).questions) for name in there)
    turns = questions * sum(SETUPS[setup].turns for setup in settings.setups)
    unknown = ", and benchmarks that are not there yet" if len(there) < len(settings.benchmarks) else ""
    return (
        f"{len(settings.benchmarks)} benchmarks x {len(settings.setups)} setups, before and after training: "
        f"{questions:,} questions, at most {turns:,} turns a policy{unknown}"
    )


def _placement(config: Config) -> list[str]:
    """Who uses which GPUs; numbers are Ray's to choose, groups are not."""
    lines = []
    for index, (policy, model) in enumerate(config.policies().items()):
        agents = ", ".join(agent for agent, other, _ in config.named_agents() if other == policy)
        lines.append(f"{policy}  ({model})  agents: {agents}  {_place(config, index)}")
    return lines


def _place(config: Config, index: int) -> str:
    engine, actors = config.engine, config.gpus.per_policy
    actor = "actor + reference" if config.train.kl_weight > 0 else "actor"
    if config.engine_kind(has_gpu=not on_cpu(config)) == "transformers":
        return f"{'CPU' if on_cpu(config) else f'GPU group {index}: 1 GPU'}: {actor}; the actor generates"
    if on_cpu(config):
        return f"CPU: {actor} and {engine.per_policy} vLLM engine(s)"
    if config.gpus.colocate:
        return (
            f"GPU group {index}: {actors} GPU(s) shared by {actor} and {engine.per_policy} vLLM engine(s), taking turns"
        )
    return f"GPU group {index}: {actors} GPU(s) for {actor}, {engine.per_policy * engine.tensor_parallel} for vLLM"
