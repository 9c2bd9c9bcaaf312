"""Figures 3, 4 and 5 in the paper's form, from measured results; seeds as a band. Each returns a matplotlib Figure."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from marti_ext.reporting.paper import TABLES, UNTRAINED, measured, published
from marti_ext.reporting.results import Results

ABLATIONS = {
    "comas": "CoMAS",
    "comas_without_evaluation": "w/o Evaluation",
    "comas_without_scoring": "w/o Scoring",
}
DISCUSSION = ("solution", "evaluation")  # a scoring's reward is no part of the game


def figure3(results: Results) -> Figure:
    """Training dynamics of CoMAS: mean response length, and mean reward of solutions and evaluations, of each agent."""
    curves = results.curves[results.curves["variant"] == "comas"]
    figure = Figure(figsize=(9, 3.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    for agent, part in curves.groupby("policy"):
        _band(left, part, "length", agent)
        _band(right, part[part["role"].isin(DISCUSSION)], "reward", agent)
    _finish(left, "step", "response length (tokens)")
    _finish(right, "step", "reward")
    return figure


def figure4(results: Results) -> Figure:
    """Left: averages over benchmarks with and without evaluation and scoring, change to untrained. Right: their rewards."""
    figure = Figure(figsize=(9, 3.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    _bars(left, 7, results, ("vanilla", "consistency"))
    for variant, label in ABLATIONS.items():
        curves = results.curves[results.curves["variant"] == variant]
        _band(right, curves[curves["role"].isin(DISCUSSION)], "reward", label)
    _finish(right, "step", "reward of solutions and evaluations")
    return figure


def figure5(results: Results) -> Figure:
    """Averages over benchmarks, change to untrained. Left: by number of agents. Right: agents with the same base and with
    different ones."""
    figure = Figure(figsize=(11, 3.4), layout="constrained")
    panels = figure.subplots(1, 2)
    for panel, number in zip(panels, (8, 9), strict=True):
        _bars(panel, number, results, ("vanilla", "consistency", "autogen", "debate"))
    return figure


def _band(panel: Axes, curves: pd.DataFrame, column: str, label: str) -> None:
    """Mean over seeds of the turn-weighted mean of each step, and its range over seeds."""
    curves = curves.dropna(subset=[column])
    if curves.empty:
        return
    weighted = curves.assign(total=curves[column] * curves["count"]).groupby(["step", "seed"])[["total", "count"]].sum()
    of_seeds = (weighted["total"] / weighted["count"]).unstack("seed")
    (line,) = panel.plot(of_seeds.index, of_seeds.mean(axis=1), label=f"{label} (n={of_seeds.shape[1]})")
    panel.fill_between(of_seeds.index, of_seeds.min(axis=1), of_seeds.max(axis=1), color=line.get_color(), alpha=0.2)


def _bars(panel: Axes, number: int, results: Results, setups: tuple[str, ...]) -> None:
    """Changes to untrained by setup: a bar for each method with its 95 % interval, and what was published as a mark."""
    ours = measured(number, results).reindex(columns=["setup", "method", "change", "low", "high"])
    ours = ours.set_index(["setup", "method"])
    paper = published(number).groupby(["setup", "method"])["delta"].mean()
    methods = [row.method for row in TABLES[number] if row.method != UNTRAINED]
    width = 0.8 / len(methods)
    for index, method in enumerate(methods):
        places = np.arange(len(setups)) + (index - (len(methods) - 1) / 2) * width
        found = [ours.loc[(setup, method)] if (setup, method) in ours.index else None for setup in setups]
        change = np.array([np.nan if one is None else one["change"] for one in found], dtype=float)
        errors = [
            [np.nan, np.nan] if one is None else [one["change"] - one["low"], one["high"] - one["change"]]
            for one in found
        ]
        panel.bar(places, change, width, yerr=np.abs(np.array(errors, dtype=float)).T, capsize=2, label=method)
        panel.scatter(
            places, [paper.get((setup, method), np.nan) for setup in setups], marker="_", color="black", zorder=3
        )
    panel.scatter([], [], marker="_", color="black", label="published")
    panel.set_xticks(range(len(setups)), setups)
    panel.axhline(0, color="gray", linewidth=0.8)
    _finish(panel, "", "change to untrained (points)")


def _finish(panel: Axes, x: str, y: str) -> None:
    panel.set(xlabel=x, ylabel=y)
    panel.grid(alpha=0.3)
    panel.legend(fontsize=8)


FIGURES = {3: figure3, 4: figure4, 5: figure5}
