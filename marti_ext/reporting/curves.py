"""Reward and response length over the steps, per policy and role (the form of the paper's Figure 3)."""

from pathlib import Path

import matplotlib
import pandas as pd

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

from marti_ext.rundir import read_metrics  # noqa: E402

ORDER = ("solution", "evaluation", "scoring")  # other roles follow
CURVES = {"reward": "mean reward", "length": "response length (tokens)"}


def load_metrics(run: Path) -> pd.DataFrame:
    """One row per step, policy and role, with the numbers of metrics.jsonl."""
    rows = []
    for step in read_metrics(run):
        for policy, numbers in step["policies"].items():
            for role, of_role in numbers["roles"].items():
                rows.append({"step": step["step"], "policy": policy, "role": role, **of_role})
    return pd.DataFrame(rows)


def draw_curves(metrics: pd.DataFrame, folder: Path) -> list[Path]:
    """One figure per curve: a panel for each role, a line for each policy."""
    folder.mkdir(parents=True, exist_ok=True)
    return [_draw(metrics, column, label, folder / f"{column}.png") for column, label in CURVES.items()]


def _draw(metrics: pd.DataFrame, column: str, label: str, file: Path) -> Path:
    roles = sorted(set(metrics["role"]), key=lambda role: (ORDER.index(role) if role in ORDER else len(ORDER), role))
    figure, panels = plt.subplots(1, len(roles), figsize=(4.2 * len(roles), 3.4), squeeze=False, layout="constrained")
    for panel, role in zip(panels[0], roles, strict=True):
        for policy, lines in metrics[metrics["role"] == role].groupby("policy"):
            panel.plot(lines["step"], lines[column].astype(float), marker=".", label=policy)
        panel.set(title=role, xlabel="step", ylabel=label)
        panel.xaxis.get_major_locator().set_params(integer=True)
        panel.grid(alpha=0.3)
    panels[0][0].legend()
    figure.savefig(file, dpi=120)
    plt.close(figure)
    return file
