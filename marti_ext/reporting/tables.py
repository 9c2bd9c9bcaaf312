"""What was measured, as tables: every number per subject, benchmark and setup, and the form of the paper's Table 1."""

import json
from pathlib import Path

import pandas as pd
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from marti_ext.evaluation import summarize
from marti_ext.setups import SETUPS

MEAN = "(mean)"  # no policy can have this name
MEANS = ("difference", "invalid", "tokens", "shortened_prompts", "seconds")
KEY = ["subject", "benchmark", "setup"]


def load_cells(root: Path, settings: dict) -> pd.DataFrame:
    """One row per cell: subject, benchmark, setup, seed, and what `summarize` says."""
    rows = []
    for file in root.glob("**/seed_*.jsonl"):
        *subject, benchmark, setup, _ = file.relative_to(root).parts
        place = {"subject": "/".join(subject), "benchmark": benchmark, "setup": setup}
        numbers = summarize(file, settings[f"benchmark {benchmark}"]["questions"])
        rows.append(place | {"seed": int(file.stem.removeprefix("seed_"))} | numbers)
    return pd.DataFrame(rows)


def summary(root: Path) -> pd.DataFrame:
    """One row per subject, benchmark and setup: means over seeds, the deviation of the accuracy (of the sample), and the
    difference to the untrained subject over the seeds that both have. Where a stage (`trained/...`) has several policies,
    their mean too. `incomplete`: questions are missing, here or in the untrained cell. Accuracies in percent; what was not
    measured is missing."""
    file = root / "settings.json"
    settings = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    cells = load_cells(root, settings)
    if cells.empty:
        return cells
    asked = [key.removeprefix("subject ") for key in settings if key.startswith("subject ")]
    cells = cells.sort_values(["subject", "seed"], key=lambda c: c.map(asked.index) if c.name == "subject" else c)
    cells[["accuracy", "invalid"]] = 100 * cells[["accuracy", "invalid"]].astype(float)
    untrained = cells["subject"].map(lambda name: settings[f"subject {name}"])
    cells["untrained"] = untrained.where(untrained != cells["subject"], "")
    before = cells[[*KEY, "seed", "accuracy", "errors"]].rename(columns={"subject": "untrained"})
    cells = cells.merge(before, how="left", on=["untrained", *KEY[1:], "seed"], suffixes=("", "_before"))
    cells["difference"] = cells["accuracy"] - cells["accuracy_before"]
    cells["incomplete"] = cells["errors"] + cells["errors_before"].fillna(0) > 0
    groups = cells.groupby(KEY, sort=False)
    table = pd.DataFrame(
        {
            "seeds": groups["seed"].nunique(),
            "questions": groups["questions"].max(),
            "errors": groups["errors"].sum(),
            "incomplete": groups["incomplete"].any(),
            "accuracy": groups["accuracy"].mean(),
            "deviation": groups["accuracy"].std(),
            **{name: groups[name].mean() for name in MEANS},
        }
    ).reset_index()
    labels = {
        name.removeprefix("benchmark "): value["label"]
        for name, value in settings.items()
        if name.startswith("benchmark ")
    }
    return _ordered(pd.concat([table, _means(table)], ignore_index=True), labels)


def _means(table: pd.DataFrame) -> pd.DataFrame:
    """Over the policies of a stage. The deviation over seeds is that of single policies, so it is left out here."""
    staged = table[table["subject"].str.contains("/")]
    staged = staged.assign(subject=[f"{name.split('/')[0]}/{MEAN}" for name in staged["subject"]])
    groups = staged.groupby(KEY, sort=False)
    mean = pd.DataFrame(
        {
            "seeds": groups["seeds"].min(),
            "questions": groups["questions"].max(),
            "errors": groups["errors"].sum(),
            "incomplete": groups["incomplete"].any(),
            **{name: groups[name].mean() for name in ("accuracy", *MEANS)},
        }
    )
    return mean[groups.size() > 1].reset_index()


def _ordered(table: pd.DataFrame, labels: dict[str, str]) -> pd.DataFrame:
    """By setup, subject (untrained first, a mean after its policies) and benchmark, as they were asked for."""
    subjects = sorted(table["subject"].unique(), key=lambda name: (not name.startswith("untrained"), MEAN in name))
    for column, order in (("subject", subjects), ("benchmark", list(labels)), ("setup", list(SETUPS))):
        table[column] = pd.Categorical(table[column], order, ordered=True)
    table = table.sort_values(["setup", "subject", "benchmark"], ignore_index=True)
    table["benchmark"] = table["benchmark"].map(labels)  # with what stands in for what
    return table


def in_brief(table: pd.DataFrame) -> list[list[str]]:
    """The form of Table 1, heading first: a row per setup and subject, a column per benchmark, and their average.

    A cell is the accuracy in percent, its deviation over seeds if there are several, and the difference to the untrained
    subject in brackets; `!` marks accuracies and differences from which questions are missing.
    """
    benchmarks = list(dict.fromkeys(table.sort_values("benchmark")["benchmark"]))
    rows = [["setup", "subject", *benchmarks, "average"]]
    for (setup, subject), part in table.groupby(["setup", "subject"], observed=True, sort=False):
        cells = part.set_index("benchmark")
        whole = len(cells) == len(benchmarks)
        average = cells[["accuracy", "difference", "incomplete"]].mean(skipna=False) if whole else None
        shown = [_cell(cells.loc[name]) if name in cells.index else "--" for name in benchmarks]
        rows.append([str(setup), str(subject), *shown, "--" if average is None else _cell(average)])
    return rows


def _cell(row: pd.Series) -> str:
    if pd.isna(row["accuracy"]):
        return "--"
    deviation = f" ± {row['deviation']:.1f}" if pd.notna(row.get("deviation")) else ""
    difference = f" ({row['difference']:+.1f})" if pd.notna(row["difference"]) else ""
    return f"{row['accuracy']:.1f}{deviation}{difference}{' !' if row['incomplete'] else ''}"


def in_full(table: pd.DataFrame) -> list[list[str]]:
    """Every number, heading first."""
    formats = {
        "accuracy": ".1f",
        "deviation": ".1f",
        "difference": "+.1f",
        "invalid": ".1f",
        "tokens": ".0f",
        "seconds": ".1f",
    }
    formats |= {"shortened_prompts": ".0f"}
    columns = [column for column in table.columns if column not in formats and column != "incomplete"]
    rows = [[*columns, *formats]]
    for row in table.to_dict("records"):
        numbers = ["--" if pd.isna(row[key]) else format(row[key], form) for key, form in formats.items()]
        rows.append([*(str(row[key]) for key in columns), *numbers])
    return rows


def to_markdown(rows: list[list[str]]) -> str:
    """A Markdown table that also reads well as plain text."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in rows
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines) + "\n"


def to_terminal(rows: list[list[str]]) -> str:
    """The table as rich draws it, in colors where the output is a terminal."""
    table = Table(*(Column(name, no_wrap=name in ("setup", "subject"), min_width=6) for name in rows[0]))
    for before, row in zip(rows, rows[1:], strict=False):
        if before[0] != row[0] and before is not rows[0]:
            table.add_section()
        table.add_row(*(Text(cell, style=_style(cell)) for cell in row))
    console = Console()
    console.width = max(console.width, 9 * len(rows[0]) + 30)  # a narrow terminal wraps lines, but nothing is cut
    with console.capture() as capture:
        console.print(table)
    return capture.get()


def _style(cell: str) -> str:
    """Rise and fall against the untrained subject, as the paper colors them."""
    if cell.endswith("!"):
        return "yellow"
    return "green" if "(+" in cell and "(+0.0)" not in cell else "red" if "(-" in cell else ""


def write_tables(root: Path, folder: Path, name: str) -> str | None:
    """Writes FOLDER/NAME.md and .csv; returns the table in brief for the terminal, None if nothing was measured."""
    table = summary(root)
    if table.empty:
        return None
    brief = in_brief(table)
    table.to_csv(folder / f"{name}.csv", index=False)
    text = "Accuracy in percent (difference to the untrained policy).\n\n" + to_markdown(brief)
    text += (
        "\n`invalid`: share of answers in no readable form, in percent; `tokens`: generated per question; `seconds`: per "
        "seed; `!` and `errors`: questions are missing.\n\n"
    )
    (folder / f"{name}.md").write_text(text + to_markdown(in_full(table)), encoding="utf-8")
    return to_terminal(brief)
