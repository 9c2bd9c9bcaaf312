"""Untrained and trained, side by side."""

import json
from pathlib import Path

import pandas as pd

from marti_ext.evaluation import COLUMNS

MEAN = "(mean)"  # no policy can have this name


def evaluation_rows(run: Path) -> pd.DataFrame:
    """The rows of evaluation/*.json: stage, policy, task, questions, accuracy, invalid, tokens."""
    rows = [row for file in sorted((run / "evaluation").glob("*.json")) for row in json.loads(file.read_text())]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def comparison(rows: pd.DataFrame) -> pd.DataFrame:
    """One row per policy and task, and the mean over policies: accuracy untrained, trained and their difference, in
    percent. What was not measured is missing."""
    if rows.empty:
        return rows
    mean = rows.groupby(["stage", "task"], as_index=False)[["questions", "accuracy"]].mean().assign(policy=MEAN)
    both = pd.concat([rows, mean])
    counts = both.groupby(["policy", "task"])["questions"].max().astype(int)
    wide = 100 * both.pivot_table(index=["policy", "task"], columns="stage", values="accuracy")
    wide = wide.reindex(columns=["untrained", "trained"])
    wide["difference"] = wide["trained"] - wide["untrained"]
    wide.insert(0, "questions", counts)
    order = [*dict.fromkeys(rows["policy"]), MEAN]
    tasks = [*sorted(set(rows["task"]) - {"all"}), "all"]
    wide = wide.reset_index()
    wide["policy"] = pd.Categorical(wide["policy"], order, ordered=True)
    wide["task"] = pd.Categorical(wide["task"], tasks, ordered=True)
    return wide.sort_values(["policy", "task"], ignore_index=True)


def to_markdown(table: pd.DataFrame) -> str:
    """The comparison as a Markdown table that also reads well as plain text."""
    rows = [["policy", "task", "questions", "untrained", "trained", "difference"]]
    for row in table.itertuples():
        numbers = [_number(row.untrained), _number(row.trained), _number(row.difference, "+")]
        rows.append([str(row.policy), str(row.task), str(row.questions), *numbers])
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in rows
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines) + "\n"


def _number(value: float, sign: str = "") -> str:
    return "--" if pd.isna(value) else f"{value:{sign}.1f}"
