"""Brings up Ray and the policies. Light itself: what takes long is imported while Ray starts."""

import importlib
import logging
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ray

from marti_ext import compat
from marti_ext.config import Config, gpus_needed

if TYPE_CHECKING:
    from marti_ext.policies import Policy


class CannotLaunch(RuntimeError):
    """What only the cluster or a loaded tokenizer shows to be wrong, and what to do."""


def launch(config: Config, kind: str, steps: int) -> dict[str, "Policy"]:
    """Ray, and on it all policies of an experiment, loaded."""
    with ThreadPoolExecutor(1) as thread:
        imported = thread.submit(importlib.import_module, "marti_ext.policies")
        start_ray(config)  # not in the other thread: Ray's processes end with the thread that started them
        policies = imported.result()
    return policies.load(config, kind, steps)


def start_ray(config: Config) -> None:
    """Ray as large as an experiment needs. Raises CannotLaunch when the cluster has too few GPUs."""
    logical = 2 * len(config.policies()) * max(config.gpus.per_policy, config.engine.per_policy)
    connect(gpus_needed(config), logical)


def connect(need: int, logical: int) -> None:
    """Connects to the cluster in RAY_ADDRESS, or starts Ray here; without GPUs, with so many logical ones.

    Raises CannotLaunch when there are fewer than `need` GPUs.
    """
    root = str(Path(__file__).resolve().parent.parent)
    path = os.pathsep.join(part for part in (root, os.environ.get("PYTHONPATH")) if part)
    environment = {"PYTHONPATH": path, "TOKENIZERS_PARALLELISM": "false", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
    os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"  # else Ray warns here that it will change
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if not compat.has_gpu():
        environment["DS_ACCELERATOR"] = os.environ["DS_ACCELERATOR"] = "cpu"
        environment["MKL_CBWR"] = "AUTO,STRICT"  # the same product to the last bit wherever its factors lie in memory
        os.environ.pop("CUDA_VISIBLE_DEVICES", None)  # beside an empty one Ray refuses logical GPUs
        if not os.environ.get("RAY_ADDRESS"):
            # not more CPUs: Ray starts an idle worker for each
            options |= {"num_gpus": logical, "num_cpus": logical, "include_dashboard": False}
    ray.init(runtime_env={"env_vars": environment}, **options)
    if (have := ray.cluster_resources().get("GPU", 0)) < need:
        raise CannotLaunch(
            f"{need} GPUs are needed, the Ray cluster has {have:g}: add nodes, or lower agents or gpus.per_policy"
        )
