"""The paper's tables, measured beside published. Published numbers are in analysis/paper/."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from marti_ext.config import ROOT
from marti_ext.reporting import statistics
from marti_ext.reporting.results import Results
from marti_ext.setups import PAPER as SETUPS

PUBLISHED = ROOT / "analysis" / "paper"
UNTRAINED = "Untrained"


@dataclass(frozen=True)
class Row:
    """A row of a table: its name in the paper, and the runs that measure it, the first variant that there is."""

    method: str
    variants: tuple[str, ...]
    stage: str = "trained"


def untrained(*variants: str) -> Row:
    return Row(UNTRAINED, variants, "untrained")


MAIN = (
    untrained("comas"),
    Row("SRLM", ("srlm",)),
    Row("MAPoRL", ("maporl",)),
    Row("TTRL", ("ttrl",)),
    Row("CoMAS", ("comas",)),
)
TABLES: dict[int, tuple[Row, ...]] = {  # those of accuracies
    1: (*MAIN, Row("Verifier (not in the paper)", ("verifier",))),
    4: MAIN,
    5: (untrained("size"), Row("CoMAS", ("size",))),
    7: (
        untrained("comas"),
        Row("CoMAS", ("comas",)),
        Row("w/o Evaluation", ("comas_without_evaluation",)),
        Row("w/o Scoring", ("comas_without_scoring",)),
    ),
    8: (
        untrained("agents1"),
        Row("CoMAS (1-Agent)", ("agents1",)),
        Row("CoMAS (2-Agent)", ("agents2",)),
        Row("CoMAS (4-Agent)", ("agents4", "comas")),
    ),
    9: (untrained("agents2"), Row("Homogeneous", ("agents2",)), Row("Heterogeneous", ("heterogeneous", "comas"))),
}


REFERENCES = {1: "CoMAS", 4: "CoMAS", 7: "CoMAS", 8: "CoMAS (4-Agent)", 9: "Heterogeneous"}


def published(number: int) -> pd.DataFrame:
    """As printed: setup, method, benchmark, accuracy and its change to untrained (Table 4: its deviation); or the columns of
    Tables 3 and 6."""
    return pd.read_csv(PUBLISHED / f"table{number}.csv")


# ── Measured ──


def scores(results: Results, row: Row, setup: str, extra: bool = False) -> statistics.Scores:
    """benchmark -> (seeds, questions), the mean over policies; empty if nothing was measured. With `extra`, what was
    measured after the run, where evaluation seeds are the seeds."""
    cells = results.cells
    cells = cells[(cells["stage"] == row.stage) & (cells["setup"] == setup) & (cells["extra"] == extra)]
    variant = next((one for one in row.variants if (cells["variant"] == one).any()), None)
    chosen = cells[cells["variant"] == variant]
    seed = "eval_seed" if extra else "seed"
    return {
        benchmark: np.array([_right(of_seed["verdicts"]) for _, of_seed in part.groupby(seed)])
        for benchmark, part in chosen.groupby("benchmark", sort=False)
    }


def _right(verdicts: pd.Series) -> np.ndarray:
    """(questions,) share of policies that were right, nan where a question could not be judged."""
    letters = np.array([list(word) for word in verdicts])
    return np.where(letters == "-", np.nan, letters == "c").mean(axis=0)


def measured(number: int, results: Results) -> pd.DataFrame:
    """A row per setup and method: accuracy per benchmark and on average, its deviation over seeds, how many seeds, the
    change to the same run's untrained policies with its 95 % interval, and the paired test's p-value. In percent."""
    rows = []
    extra = number == 4
    for setup in ("vanilla",) if extra else SETUPS:
        for row in TABLES[number]:
            if found := scores(results, row, setup, extra):
                before = scores(results, untrained(*row.variants), setup, extra) if row.stage == "trained" else {}
                rows.append({"setup": setup, "method": row.method} | _numbers(found, before))
    return pd.DataFrame(rows)


def _numbers(found: statistics.Scores, before: statistics.Scores) -> dict[str, float]:
    each = {name: 100 * float(np.nanmean(values)) for name, values in found.items()}
    seeds = [[100 * np.nanmean(of_seed) for of_seed in values] for values in found.values()]
    over_seeds = np.mean(seeds, axis=0)
    deviation = float(np.std(over_seeds, ddof=1)) if len(over_seeds) > 1 else np.nan
    numbers = each | {"average": statistics.accuracy(found), "deviation": deviation, "n": len(over_seeds)}
    if before.keys() != found.keys():
        return numbers
    low, high = statistics.interval(found, before)
    change = numbers["average"] - statistics.accuracy(before)
    return numbers | {"change": change, "low": low, "high": high, "p": statistics.paired_p(found, before)}


def against(number: int, results: Results) -> pd.DataFrame:
    """A row per setup and method: by how much the table's main method is ahead of it on the same questions, with the 95 %
    interval and the paired test's p-value. Rows with other benchmarks are left out."""
    rows, extra = [], number == 4
    reference = next(row for row in TABLES[number] if row.method == REFERENCES[number])
    for setup in ("vanilla",) if extra else SETUPS:
        ours = scores(results, reference, setup, extra)
        for row in TABLES[number]:
            theirs = scores(results, row, setup, extra)
            if row is reference or not ours or ours.keys() != theirs.keys():
                continue
            ahead = statistics.accuracy(ours) - statistics.accuracy(theirs)
            low, high = statistics.interval(ours, theirs)
            numbers = {"change": ahead, "low": low, "high": high, "p": statistics.paired_p(ours, theirs)}
            rows.append({"setup": setup, "method": f"{reference.method} - {row.method}"} | numbers)
    return pd.DataFrame(rows)


def beside(number: int, results: Results) -> pd.DataFrame:
    """A row per setup and method: the average over benchmarks and its change to untrained, measured and published, and the
    difference of the changes. Where the benchmarks are other ones, as in the toy world, only changes can be compared."""
    paper = published(number)
    averages = paper.groupby(["setup", "method"], sort=False)["accuracy"].mean().reset_index(name="published")
    before = averages[averages["method"] == UNTRAINED].set_index("setup")["published"]
    averages["published change"] = averages["published"] - averages["setup"].map(before)
    averages.loc[averages["method"] == UNTRAINED, "published change"] = np.nan
    ours = measured(number, results)
    if ours.empty:
        ours = pd.DataFrame(columns=["setup", "method", "average", "deviation", "n", "change", "low", "high", "p"])
    columns = ["setup", "method", "average", "deviation", "n", "change", "low", "high", "p"]
    table = averages.merge(ours.reindex(columns=columns), how="outer", on=["setup", "method"], sort=False)
    order = {name: index for index, name in enumerate([*SETUPS, *(row.method for row in TABLES[number])])}
    table = table.sort_values(["setup", "method"], key=lambda column: column.map(order), ignore_index=True)
    table["difference"] = table["change"] - table["published change"]
    return table


# ── Tables 3 and 6 ──


def table3(results: Results) -> pd.DataFrame:
    """Cost by number of agents, measured (means over seeds) and published."""
    cost = results.cost[results.cost["variant"].isin(["agents1", "agents2", "agents4"])]
    if not (cost["agents"] == 4).any():
        cost = pd.concat([cost, results.cost[(results.cost["variant"] == "comas") & (results.cost["agents"] == 4)]])
    columns = ["samples", "tokens", "memory_gb", "hours"]
    ours = cost.groupby("agents")[columns].mean()
    return ours.join(published(3).set_index("agents"), how="outer", lsuffix=" measured", rsuffix=" published")


def table6(results: Results) -> pd.DataFrame:
    """Accuracy of solutions, precision and recall of rewards by step of CoMAS' training, in percent; means over seeds."""
    columns = ["accuracy", "precision", "recall"]
    ours = results.validation[results.validation["variant"] == "comas"]
    ours = 100 * ours.groupby("step")[columns].mean()
    return ours.join(published(6).set_index("step"), how="outer", lsuffix=" measured", rsuffix=" published")


SPECIAL: dict[int, Callable[[Results], pd.DataFrame]] = {3: table3, 6: table6}
