"""What runs measured, in four small tables that fit into the repository: everything that the paper's tables and figures need.

Runs are named PROFILE-VARIANT-seedN, as the scripts in experiments/ name them.
"""

import json
import re
import shlex
import sys
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from marti_ext.evaluation import read_cell
from marti_ext.reporting.examples import pick
from marti_ext.rundir import is_finished, read_metrics

LETTERS = {"correct": "c", "wrong": "w", "invalid": "i"}
MISSING = "-"
GIB_TO_GB = 2**30 / 1e9


@dataclass(frozen=True)
class Results:
    """`cells`: a row per run, stage, policy, benchmark, setup and evaluation seed; `verdicts` has a letter per question:
    (c)orrect, (w)rong, (i)nvalid, or - where it could not be judged. `extra` marks measurements made after the run.
    `curves`: a row per run, step, policy and role. `validation`: a row per run and measured step (Table 6).
    `cost`: a row per run (Table 3). `about`: the profile, and the command that saved them. `examples`: the discussions of
    Appendices I and J."""

    about: dict[str, str]
    examples: list[dict]
    cells: pd.DataFrame
    curves: pd.DataFrame
    validation: pd.DataFrame
    cost: pd.DataFrame

    def write(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for name in TABLES:
            getattr(self, name).to_csv(folder / f"{name}.csv", index=False, float_format="%.6g")
        (folder / "about.json").write_text(json.dumps(self.about, indent=1) + "\n", encoding="utf-8")
        lines = (json.dumps(example, ensure_ascii=False) + "\n" for example in self.examples)
        (folder / "examples.jsonl").write_text("".join(lines), encoding="utf-8")


TABLES = tuple(field.name for field in fields(Results) if field.type is pd.DataFrame)


def read_results(folder: Path) -> Results:
    about = json.loads((folder / "about.json").read_text(encoding="utf-8"))
    examples = [json.loads(line) for line in (folder / "examples.jsonl").read_text(encoding="utf-8").splitlines()]
    return Results(about, examples, *(pd.read_csv(folder / f"{name}.csv") for name in TABLES))


def collect(runs: Path, profile: str) -> Results:
    """From the finished runs of a profile. Raises LookupError if there is none."""
    named = re.compile(rf"{profile}-(.+)-seed(\d+)")
    found = [
        (run, match) for run in sorted(runs.glob("*")) if (match := named.fullmatch(run.name)) and is_finished(run)
    ]
    if not found:
        raise LookupError(
            f"{runs}: no finished run named {profile}-VARIANT-seedN; the scripts in experiments/ make them"
        )
    parts: dict[str, list[dict]] = {name: [] for name in TABLES}
    for run, match in found:
        name = {"variant": match[1], "seed": int(match[2])}
        lines = read_metrics(run)
        parts["cells"] += [name | row for row in _cells(run)]
        parts["curves"] += [name | row for row in _curves(lines)]
        parts["validation"] += [
            name | {"step": line["step"]} | line["validation"] for line in lines if "validation" in line
        ]
        parts["cost"].append(name | _cost(run, lines))
    about = {"profile": profile, "command": shlex.join(["python", "-m", "marti_ext", *sys.argv[1:]])}
    return Results(about, pick(runs, profile), **{name: pd.DataFrame(rows) for name, rows in parts.items()})


def _cells(run: Path) -> list[dict[str, Any]]:
    """Its own evaluation, and what `evaluate` measured afterwards."""
    rows = []
    for extra, root in ((False, run / "evaluation"), (True, run / "benchmarks")):
        for file in sorted(root.glob("*/*/*/*/seed_*.jsonl")):
            stage, policy, benchmark, setup, seed = file.relative_to(root).with_suffix("").parts
            lines = sorted(read_cell(file), key=lambda line: line["question"]["id"])
            tokens = [turn["num_tokens"] for line in lines if "error" not in line for turn in line["turns"]]
            rows.append(
                {
                    "stage": stage,
                    "policy": policy,
                    "benchmark": benchmark,
                    "setup": setup,
                    "eval_seed": int(seed.removeprefix("seed_")),
                    "extra": extra,
                    "verdicts": "".join(
                        MISSING if "error" in line else LETTERS[line["verdict"]["verdict"]] for line in lines
                    ),
                    "tokens": sum(tokens) / max(1, len(lines)),
                }
            )
    return rows


def _curves(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    keys = ("count", "reward", "length", "unreadable")
    return [
        {"step": line["step"], "policy": policy, "role": role} | {key: numbers[key] for key in keys}
        for line in lines
        for policy, of_policy in line["policies"].items()
        for role, numbers in of_policy["roles"].items()
    ]


def _cost(run: Path, lines: list[dict[str, Any]]) -> dict[str, Any]:
    """Samples: turns that were written. Memory: peaks of all policies. Hours: of the steps, without start-up and evaluation."""
    steps = [line for line in lines if line["step"]]
    policies = [policy for line in steps for policy in line["policies"].values()]
    peaks = {name: policy["peak_memory_gib"] for line in steps for name, policy in line["policies"].items()}
    config = yaml.safe_load((run / "config.yaml").read_text(encoding="utf-8"))
    return {
        "agents": sum(entry["count"] for entry in config["agents"]),
        "method": config["method"]["name"],
        "samples": sum(role["count"] for policy in policies for role in policy["roles"].values()),
        "tokens": sum(line["generated_tokens"] for line in steps),
        "memory_gb": sum(peaks.values()) * GIB_TO_GB,
        "hours": sum(line["time"]["step"] for line in steps) / 3600,
        "settings": json.dumps({"steps": len(steps), "rounds": config["method"].get("rounds")}),
    }
