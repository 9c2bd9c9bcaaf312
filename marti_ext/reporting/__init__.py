"""What a run measured, drawn: curves per agent and role, and the comparison of untrained and trained policies."""

from pathlib import Path

from marti_ext.reporting.curves import draw_curves, load_metrics
from marti_ext.reporting.tables import write_tables


def report(run: Path) -> str:
    """Writes figures and tables into the run's folder; returns what to show in the terminal."""
    lines = [f"\nResults of {run}"]
    table = write_tables(run / "evaluation", run, "comparison")
    if table:
        lines += [
            "Accuracy in percent, in brackets the difference to the untrained policy",
            table + f"table            {run / 'comparison.md'} (and .csv)",
        ]
    else:
        lines.append("no evaluation yet")
    metrics = load_metrics(run)
    if metrics.empty:
        lines.append("no steps yet")
    else:
        for figure in draw_curves(metrics, run / "figures"):
            lines.append(f"figure           {figure}")
    for name, what in {
        "metrics.jsonl": "metrics, a line a step",
        "evaluation": "every answer, with its verdict",
        "trajectories": f"discussions (python -m marti_ext view {run})",
        "policies": "trained policies in Hugging Face format",
        "tensorboard": "tensorboard --logdir",
    }.items():
        if (run / name).is_file() or any((run / name).glob("*")):
            lines.append(f"{name:<16} {run / name}: {what}")
    return "\n".join(lines)
