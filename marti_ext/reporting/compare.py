"""The command `compare`: tables and figures of the paper, measured beside published, in a terminal and as files."""

import re
from functools import partial
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure
from pandas.io.formats.style import Styler
from rich.console import Console
from rich.table import Table
from rich.text import Text

from marti_ext.reporting.figures import FIGURES
from marti_ext.reporting.paper import REFERENCES, SPECIAL, TABLES, against, beside, measured
from marti_ext.reporting.results import Results

NAMES = [f"table{number}" for number in sorted([*TABLES, *SPECIAL])] + [f"figure{number}" for number in FIGURES]


def compare(names: list[str], results: Results, folder: Path) -> str:
    """Writes NAME.csv or NAME.png into the folder; returns what to show."""
    folder.mkdir(parents=True, exist_ok=True)
    shown = []
    for name in names:
        kind, number = re.fullmatch(r"(table|figure)(\d)", name).groups()
        file = folder / f"{name}.{'csv' if kind == 'table' else 'png'}"
        if kind == "figure":
            FIGURES[int(number)](results).savefig(file, dpi=120)
        else:
            tables = _tables(int(number), results)
            pd.concat(tables.values()).to_csv(file, index=False)
            shown += [to_text(f"Table {number}, {what}", table) for what, table in tables.items()]
        shown.append(f"{name}: {file}")
    return "\n".join(shown)


def _tables(number: int, results: Results) -> dict[str, pd.DataFrame]:
    if number in SPECIAL:
        return {"measured and published": SPECIAL[number](results).reset_index()}
    tables = {"measured": measured(number, results)}
    if number in REFERENCES:
        tables["paired differences"] = against(number, results)
    tables = {what: table for what, table in tables.items() if not table.empty}
    return tables | {"averages over benchmarks, measured and published": beside(number, results)}


def show(name: str, results: Results) -> list[Styler] | Figure:
    """A table or figure for a notebook."""
    kind, number = re.fullmatch(r"(table|figure)(\d)", name).groups()
    if kind == "figure":
        return FIGURES[int(number)](results)
    return [styled(f"Table {number}, {what}", table, results) for what, table in _tables(int(number), results).items()]


def styled(title: str, table: pd.DataFrame, results: Results) -> Styler:
    caption = f"{title} (measured: {results.about['profile']} profile)"
    made = (
        table.style.format({name: partial(form, name) for name in table.columns})
        .set_caption(caption)
        .hide(axis="index")
    )
    for name in table.columns:
        made = made.map(
            lambda value, name=name: f"color: {_style(name, value)}" if _style(name, value) else "", subset=[name]
        )
    return made


def to_text(title: str, table: pd.DataFrame) -> str:
    """The table as rich draws it; what was not measured is `--`."""
    drawn = Table(*table.columns, title=title, title_justify="left")
    for row in table.to_dict("records"):
        drawn.add_row(*(Text(form(name, value), style=_style(name, value)) for name, value in row.items()))
    console = Console()
    console.width = max(console.width, 12 * len(table.columns) + 20)
    with console.capture() as capture:
        console.print(drawn)
    return capture.get()


def form(name: str, value: object) -> str:
    if isinstance(value, str):
        return value
    if pd.isna(value):
        return "--"
    if name == "p":
        return f"{value:.3f}"
    if name in ("n", "step", "agents") or value >= 1000:
        return f"{value:,.0f}" if value < 1e9 else f"{value:.3g}"
    signed = "change" in name or name in ("difference", "low", "high")
    return f"{value:+.2f}" if signed else f"{value:.2f}"


def _style(name: str, value: object) -> str:
    """Rise and fall against untrained, as the paper colors them."""
    if "change" not in name or pd.isna(value) or abs(value) < 0.005:
        return ""
    return "green" if value > 0 else "red"
