"""Who is measured by `evaluate`: trained and untrained policies of a run, models by name, or an endpoint; and how they
are loaded for generation alone, without actors, optimizers and gradients."""

import asyncio
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
import yaml

from marti_ext.cluster import CannotLaunch, connect
from marti_ext.config import Config, is_local_model, locate, problem_on_hub, resolve_model
from marti_ext.dryrun import visible_gpus
from marti_ext.evaluation import Plan, claim, evaluate, first_of_each, is_complete
from marti_ext.progress import Display
from marti_ext.rollout import Speaker, explain
from marti_ext.rundir import is_finished


@dataclass(frozen=True)
class Subject:
    """`models`: one plays every participant, several take turns. `untrained`: the subject that it is compared with."""

    name: str
    models: tuple[str, ...]
    untrained: str

    def settings(self) -> dict[str, str]:
        """What its cells depend on: which weights, by when they were written, and the subject that it is compared with."""
        weights = {f"weights {self.name}": ", ".join(map(_fingerprint, self.models))} if self.models else {}
        return weights | {f"subject {self.name}": self.untrained}


def _fingerprint(model: str) -> str:
    if not is_local_model(model):
        return model
    files = [*locate(model).glob("*.safetensors"), *locate(model).glob("pytorch_model*.bin")]
    newest = max((file.stat().st_mtime for file in files), default=0)
    return f"{model} of {time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(newest))}"


def settings_of_run(run: Path) -> dict[str, Any]:
    """How its own evaluation asks."""
    config = _config(run)
    return {
        "temperature": config.evaluation.temperature,
        "max_response_tokens": config.evaluation.max_response_tokens,
        "max_prompt_tokens": config.rollout.max_prompt_tokens,
    }


def benchmarks_of_run(run: Path) -> list[str]:
    return _config(run).evaluation.benchmarks


def _config(run: Path) -> Config:
    try:
        return Config.model_validate(yaml.safe_load((run / "config.yaml").read_bytes()))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ValueError(f"{run}: its config.yaml cannot be read: {error}") from None


def of_run(run: Path, together: bool) -> list[Subject]:
    """Untrained and trained policies of a finished run; policies with the same model are the same untrained. Raises
    ValueError."""
    models = _config(run).policies()
    if not is_finished(run):
        raise ValueError(f"{run} is not finished: go on with it first (train ... --resume auto)")
    if missing := [name for name in models if not (run / "policies" / name / "config.json").exists()]:
        raise ValueError(f"{run}: no trained policy {', '.join(missing)} in its folder policies/")
    trained = {name: str(run / "policies" / name) for name in models}
    if together:
        pair = ("untrained/all", tuple(models.values())), ("trained/all", tuple(trained.values()))
        return [Subject(name, of, "untrained/all") for name, of in pair]
    first = {model: f"untrained/{name}" for model, name in first_of_each(models).items()}
    untrained = [Subject(name, (model,), name) for model, name in first.items()]
    return untrained + [Subject(f"trained/{name}", (trained[name],), first[models[name]]) for name in models]


def of_models(models: list[str], untrained: str | None) -> list[Subject]:
    """Models as they are, compared with one of them if it is named. Raises ValueError."""
    names = list(dict.fromkeys([untrained, *models] if untrained else models))
    for name in names:
        on_hub = not is_local_model(name) and not locate(name).parent.is_dir() and not name.startswith("runs/")
        if not on_hub and not (locate(name) / "config.json").exists():
            raise ValueError(
                f"{name}: no run (./run_all.sh or `train` makes one), no model in HF format (no config.json in it), and no "
                "name on the hub"
            )
        if on_hub and (problem := problem_on_hub(name)):
            raise ValueError(problem)
    if len({folder_of(name) for name in names}) < len(names):
        raise ValueError(f"--policies: two of {', '.join(names)} would have the same folder; copy one elsewhere")
    return [Subject(folder_of(name), (name,), folder_of(untrained or name)) for name in names]


def folder_of(model: str) -> str:
    return model.strip("/").replace("/", "__")


# ── Loading ──


async def measure_all(
    subjects: list[Subject], plan: Plan, root: Path, settings: dict, display: Display, kind: str, width: int
) -> None:
    """As many subjects at a time as GPUs or cores allow, each on engines of `width` GPUs (vLLM's tensor parallelism)."""
    gpus = visible_gpus()
    kind = kind if kind != "auto" else "vllm" if gpus else "transformers"
    if width > 1 and (kind == "transformers" or width > gpus):
        raise ValueError(f"--gpus {width}: there are {gpus} here, and an engine of kind {kind}; leave the option out")
    places = max(1, gpus // width if gpus else os.cpu_count() or 1)
    todo = [one for one in subjects if not all(is_complete(cell, root) for cell in plan.cells(one.name))]
    for skipped in (one for one in subjects if one not in todo):
        display.say(f"{skipped.name}: every cell is complete")
    if not todo:
        return
    models = max(len(one.models) for one in todo)
    at_once = max(1, places // models)
    for start in range(0, len(todo), at_once):
        wave = todo[start : start + at_once]
        connect(width * models if gpus else 0, logical=max(places, models))
        try:
            names = ", ".join(subject.name for subject in wave)
            share = places / sum(len(subject.models) for subject in wave)
            loading = asyncio.to_thread(_load, wave, kind, width, share, plan)
            speakers = await display.during(loading, lambda seconds, names=names: f"loading {names}, {seconds:.0f} s")
            claim(root, settings)
            await evaluate(root, speakers, plan, display, before=start, after=len(todo) - start - len(wave))
        except ray.exceptions.RayError as error:
            raise CannotLaunch(f"{names} could not be loaded: {explain(error)}") from error
        finally:
            ray.shutdown()  # not only the actors: OpenRLHF's engines leave a placement group behind


def _load(wave: list[Subject], kind: str, width: int, share: float, plan: Plan) -> dict[str, list[Speaker]]:
    """The speakers of each subject, one a model. All come up at the same time."""
    loaded = {
        subject.name: [
            _speaker(f"{subject.name}-{k}", model, kind, width, share, plan) for k, model in enumerate(subject.models)
        ]
        for subject in wave
    }
    ready = "reset_prefix_cache" if kind == "vllm" else "ready"  # anything that is answered once the model is loaded
    ray.get([getattr(actor, ready).remote() for parts in loaded.values() for _, actors in parts for actor in actors])
    return {name: [speaker for speaker, _ in parts] for name, parts in loaded.items()}


def _speaker(name: str, model: str, kind: str, width: int, share: float, plan: Plan) -> tuple[Speaker, list]:
    from transformers import AutoTokenizer

    path = resolve_model(model)
    try:
        tokenizer = AutoTokenizer.from_pretrained(path)
    except (OSError, ValueError) as error:
        raise CannotLaunch(f"{model}: its tokenizer cannot be loaded: {error}") from None
    if tokenizer.chat_template is None:
        raise CannotLaunch(f"{model}: its tokenizer has no chat template; take an instruction-tuned model")
    count = max(1, int(share))  # engines, or cores of the one engine
    engine, actors = _vllm(path, width, count, plan) if kind == "vllm" else _embedded(path, count)
    return Speaker(name, name, engine, tokenizer, asyncio.Semaphore(256 * len(actors))), actors


def _vllm(path: str, width: int, count: int, plan: Plan) -> tuple[Any, list]:
    from marti_ext import compat
    from marti_ext.engines.vllm import VllmEngines, create_engines

    args = compat.openrlhf_args()
    args.actor.model_name_or_path, args.train.seed = path, 0
    args.vllm.num_engines, args.vllm.tensor_parallel_size = count, width
    args.vllm.enable_prefix_caching, args.vllm.enforce_eager = True, not compat.has_gpu()
    args.vllm.gpu_memory_utilization, args.vllm.enable_sleep = 0.9, False
    args.data.max_len = plan.limits.max_prompt_tokens + plan.limits.max_response_tokens
    engines = create_engines(args)
    return VllmEngines(engines, sleeps=False), engines


def _embedded(path: str, cores: int) -> tuple[Any, list]:
    from marti_ext.engines.transformers import Generator, TransformersEngine

    actor = ray.remote(num_gpus=1)(Generator).remote(path, cores)
    return TransformersEngine(actor), [actor]


def most_prompt_tokens(subjects: list[Subject], most: int, response: int) -> int:
    """`most`, or what the positions of the local models leave beside a response. Raises ValueError if that is nothing."""
    for model in {model for subject in subjects for model in subject.models if is_local_model(model)}:
        positions = json.loads((locate(model) / "config.json").read_bytes()).get("max_position_embeddings")
        positions = positions or most + response
        if positions <= response:
            raise ValueError(f"{model} has {positions} positions: lower --max-response-tokens ({response})")
        most = min(most, positions - response)
    return most
