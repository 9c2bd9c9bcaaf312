"""The command `plan`: what a list of runs would take, a line each."""

import re
import shlex
from collections.abc import Iterable
from pathlib import Path

from rich.console import Console
from rich.table import Table

from marti_ext.config import (
    Config,
    exists,
    gpus_needed,
    load_config,
    locate,
    most_samples,
    resolve_model,
    total_steps,
    turns_per_step,
)
from marti_ext.dryrun import on_cpu
from marti_ext.questions import load_questions
from marti_ext.rundir import is_finished

# Table 3: with 1, 2 and 4 agents every agent has 2,000 questions x 4 discussions x 6 turns, and a run takes about 12 hours.
HOURS, TURNS, BILLIONS = 12, 48_000, 3
CHECKPOINT_BYTES = 14  # per parameter: weights in bf16, their copy and Adam's two moments in fp32
GIB = 2**30


def plan(lines: Iterable[str]) -> None:
    """Prints a table. A line is an experiment file and its `--set KEY=VALUE`. Raises ConfigError, ValueError."""
    columns = ("run", "state", "agents", "GPUs", "steps", "turns", "samples a policy", "GPU hours", "disk, GiB")
    table, totals = Table(*columns), {"turns": 0, "hours": 0.0, "disk": 0.0}
    for line in dict.fromkeys(lines):
        file, *words = shlex.split(line)
        config = load_config(Path(file), [word for word in words if word != "--set"])
        table.add_row(*_row(config, totals))
    table.add_section()
    table.add_row(
        "all", "", "", "", "", f"{totals['turns']:,}", "", f"{totals['hours']:,.0f}", f"{totals['disk']:,.1f}"
    )
    console = Console()
    console.width = max(console.width, 130)
    console.print(table)
    print(
        "GPU hours: scaled from Table 3 by turns per agent and size of the model; 0 on a CPU. Evaluation comes on top."
    )


def _row(config: Config, totals: dict[str, float]) -> list[str]:
    models, steps = config.policies(), config.train.steps
    if not steps and exists(config.data.train):
        steps = total_steps(config, len(load_questions(locate(config.data.train))))
    if not steps:
        return [config.name, _state(config), str(len(models)), str(gpus_needed(config)), *["--"] * 5]
    turns = turns_per_step(config) * steps
    sizes = [_billions(model) for model in models.values()]
    gpus = 0 if on_cpu(config) else gpus_needed(config)
    hours = disk = None
    if None not in sizes:
        hours = gpus * HOURS * turns / len(models) / TURNS * max(sizes) / BILLIONS
        disk = sum(sizes) * 1e9 * (2 + CHECKPOINT_BYTES * (config.checkpoint.keep + 1)) / GIB
    if _state(config) != "finished":
        for key, value in (("turns", turns), ("hours", hours), ("disk", disk)):
            totals[key] += value or 0
    shown = ["--" if value is None else form.format(value) for value, form in ((hours, "{:,.0f}"), (disk, "{:,.1f}"))]
    counts = [str(steps), f"{turns:,}", f"{most_samples(config, steps):,.0f}"]
    return [config.name, _state(config), str(len(config.named_agents())), str(gpus), *counts, *shown]


def _state(config: Config) -> str:
    run = config.run_dir
    return "finished" if is_finished(run) else "begun" if (run / "config.yaml").exists() else "to do"


def _billions(model: str) -> float | None:
    """Parameters in billions: of a folder by its weights, of a hub model by its name."""
    if exists(model):
        return sum(file.stat().st_size for file in Path(resolve_model(model)).glob("*.safetensors")) / 2 / 1e9
    found = re.search(r"(\d+(?:\.\d+)?)B\b", model)
    return float(found[1]) if found else None
