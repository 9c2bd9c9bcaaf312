"""Curves and the comparison from a small run, and from runs that have measured little or nothing."""

import json
from pathlib import Path

import pytest

from marti_ext.reporting import report
from marti_ext.reporting.curves import load_metrics
from marti_ext.reporting.tables import comparison, evaluation_rows, to_markdown


def role(reward: float | None, length: float = 10.0) -> dict:
    return {"count": 2, "reward": reward, "length": length, "truncated": 0.0, "unreadable": None}


def write_metrics(run: Path, roles: tuple[str, ...] = ("solution", "evaluation", "scoring")) -> None:
    lines = [
        {
            "step": step,
            "policies": {name: {"roles": {kind: role(reward) for kind in roles}} for name in ("qwen", "llama")},
        }
        for step, reward in ((1, 0.5), (2, None), (3, 0.7))
    ]
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"step": 4, "pol')


def write_evaluation(run: Path, stage: str, accuracy: dict[str, float]) -> None:
    (run / "evaluation").mkdir(exist_ok=True)
    rows = [
        {
            "stage": stage,
            "policy": policy,
            "task": task,
            "questions": 10,
            "accuracy": value,
            "invalid": 0.1,
            "tokens": 9.0,
        }
        for policy, value in accuracy.items()
        for task in ("math", "all")
    ]
    (run / "evaluation" / f"{stage}.json").write_text(json.dumps(rows))


def test_a_run_becomes_figures_and_tables(tmp_path):
    write_metrics(tmp_path)
    write_evaluation(tmp_path, "untrained", {"qwen": 0.4, "llama": 0.5})
    write_evaluation(tmp_path, "trained", {"qwen": 0.6, "llama": 0.45})
    said = report(tmp_path)
    table = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in (tmp_path / "comparison.md").read_text().splitlines()
    ]
    assert table[0] == ["policy", "task", "questions", "untrained", "trained", "difference"]
    assert ["qwen", "all", "10", "40.0", "60.0", "+20.0"] in table
    assert ["llama", "math", "10", "50.0", "45.0", "-5.0"] in table
    assert table[-1] == ["(mean)", "all", "10", "45.0", "52.5", "+7.5"]
    for name in ("comparison.md", "comparison.csv", "figures/reward.png", "figures/length.png"):
        assert (tmp_path / name).stat().st_size > 0
        assert name.split(".")[0] in said
    assert (tmp_path / "figures/reward.png").read_bytes().startswith(b"\x89PNG")


def test_metrics_are_a_row_per_step_policy_and_role(tmp_path):
    write_metrics(tmp_path)
    metrics = load_metrics(tmp_path)
    assert len(metrics) == 3 * 2 * 3 and set(metrics["step"]) == {1, 2, 3}
    assert metrics["reward"].isna().sum() == 6


def test_roles_of_another_method_are_drawn_too(tmp_path):
    write_metrics(tmp_path, ("proposal",))
    assert "figures/reward.png" in report(tmp_path)


@pytest.mark.parametrize("stage", ["untrained", "trained"])
def test_what_was_not_measured_is_shown_as_missing(tmp_path, stage):
    write_evaluation(tmp_path, stage, {"mean": 0.4})
    table = to_markdown(comparison(evaluation_rows(tmp_path)))
    assert table.count(" -- ") == 2 * 4 and " 0.0 " not in table and "nan" not in table


def test_a_run_without_steps_and_evaluation_is_reported_as_such(tmp_path):
    said = report(tmp_path)
    assert "no steps yet" in said and "no evaluation yet" in said
    assert not list(tmp_path.iterdir())


def test_only_what_is_there_is_pointed_at(tmp_path):
    (tmp_path / "policies").mkdir()
    write_metrics(tmp_path)
    said = report(tmp_path)
    assert "metrics, a line a step" in said and "trained policies" not in said
