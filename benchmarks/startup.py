"""From process start to the first turn: two toy policies, transformers engine.

    python -m benchmarks.startup [--runs 3]     about a minute a run, from the root of the repository

A child process does what `python -m marti_ext train experiments/configs/toy/comas.yaml` does up to its first turn: reads
the experiment, imports the trainer, starts Ray, launches the policies, lets each say something. Interpreter start counts.
Prints when each of these was done, in seconds since the process was started (median over the runs), and what it took.

Expect at most 100 s on 2 cores. The first run after an installation or a reboot reads 2 GB from disk and takes longer:
it is shown like the others, so look at the single runs when they differ.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

CONFIG = "experiments/configs/toy/comas.yaml"
STAGES = ("interpreter", "experiment read", "trainer imported", "policies ready", "first turn")
TARGET = 100


def child(overrides: list[str]) -> None:
    """The run itself. Prints a line `STAMP stage time` after each stage."""
    stamp("interpreter")
    import asyncio
    from pathlib import Path

    from marti_ext.config import load_config

    config = load_config(Path(CONFIG), ["runs_dir=/tmp/benchmark-runs", *overrides])
    stamp("experiment read")
    import ray

    from marti_ext import compat
    from marti_ext.engines import Sampling
    from marti_ext.trainer import launch  # with all that the trainer imports, as in a run

    kind = config.engine_kind(compat.has_gpu())
    stamp("trainer imported")

    async def first_turns(policies: dict) -> None:
        speakers = [policy.speaker(name) for name, policy in policies.items()]
        said = (s.engine.generate(s.encode("What is 1 + 1?"), Sampling(16, 1.0, 0)) for s in speakers)
        await asyncio.gather(*said)

    try:
        policies = launch(config, kind, steps=1)
        stamp("policies ready")
        asyncio.run(first_turns(policies))
        stamp("first turn")
    finally:
        ray.shutdown()


def stamp(stage: str) -> None:
    print(f"STAMP {stage} {time.time()}", flush=True)


def run_once(overrides: list[str]) -> dict[str, float]:
    """Seconds since process start at which each stage was done."""
    command = [sys.executable, "-m", "benchmarks.startup", "--child", *(f"--set={text}" for text in overrides)]
    began = time.time()
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    stamps = [line.removeprefix("STAMP ").rpartition(" ") for line in done.stdout.splitlines() if "STAMP" in line]
    return {stage: float(at) - began for stage, _, at in stamps}


def main() -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.startup", description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="override a setting")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        child(args.set)
        return
    runs = []
    for number in range(1, args.runs + 1):
        runs.append(run_once(args.set))
        print(f"run {number}: {runs[-1]['first turn']:.1f} s", flush=True)
    at = {stage: statistics.median(run[stage] for run in runs) for stage in STAGES}
    before = 0.0
    print(f"{'done':<16} {'at, s':>7} {'took, s':>8}")
    for stage in STAGES:
        print(f"{stage:<16} {at[stage]:>7.1f} {at[stage] - before:>8.1f}")
        before = at[stage]
    result = {
        "benchmark": "startup",
        "seconds": round(at["first turn"], 1),
        "target": TARGET,
        "met": at["first turn"] <= TARGET,
        "at": {stage: round(at[stage], 1) for stage in STAGES},
        "runs": [round(run["first turn"], 1) for run in runs],
        "cores": os.cpu_count(),
    }
    print("RESULT " + json.dumps(result))


if __name__ == "__main__":
    main()
