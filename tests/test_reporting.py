"""Curves and the comparison from a small run, and from runs that have measured little or nothing."""

import json
from pathlib import Path

from marti_ext.reporting import report
from marti_ext.reporting.curves import load_metrics
from marti_ext.reporting.tables import in_brief, in_full, summary, to_markdown


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


def write_cell(root: Path, subject: str, benchmark: str, right: int, wrong: int = 0, invalid: int = 0, errors: int = 0,
               setup: str = "vanilla", seed: int = 1) -> None:  # fmt: skip
    verdicts = ["correct"] * right + ["wrong"] * wrong + ["invalid"] * invalid
    question = {"id": "1", "task": "math", "source": "s", "prompt": "?", "answer": "!"}
    lines = [
        {
            "question": question,
            "turns": [{"num_tokens": 9}],
            "verdict": {"verdict": one},
            "seconds": 3.0,
            "shortened_prompts": 0,
        }
        for one in verdicts
    ]
    lines += [{"question": question, "error": "500", "seconds": 0.0}] * errors
    file = root / subject / benchmark / setup / f"seed_{seed}.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))


def write_settings(
    root: Path, benchmarks: tuple[str, ...] = ("math", "code"), questions: int = 10, **subjects: str
) -> None:
    root.mkdir(parents=True, exist_ok=True)
    settings = {f"benchmark {name}": {"label": name, "questions": questions} for name in benchmarks}
    names = {f"subject {name.replace('_', '/')}": untrained for name, untrained in subjects.items()}
    (root / "settings.json").write_text(json.dumps(settings | names))


def cells_of(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_a_run_becomes_figures_and_tables(tmp_path):
    write_metrics(tmp_path)
    root = tmp_path / "evaluation"
    before = {"qwen": "untrained/qwen", "llama": "untrained/llama"}
    write_settings(root, **{f"{stage}_{name}": before[name] for stage in ("untrained", "trained") for name in before})
    for subject, math, code in (
        ("untrained/qwen", 4, 2),
        ("untrained/llama", 5, 3),
        ("trained/qwen", 6, 2),
        ("trained/llama", 4, 5),
    ):
        write_cell(root, subject, "math", right=math, wrong=9 - math, invalid=1)
        write_cell(root, subject, "code", right=code, wrong=10 - code)
    said = report(tmp_path)
    text = (tmp_path / "comparison.md").read_text()
    table = [cells_of(line) for line in text.splitlines() if line.startswith("|")]
    assert table[0] == ["setup", "subject", "math", "code", "average"]
    assert [row[1] for row in table[2:8]] == [
        "untrained/qwen", "untrained/llama", "untrained/(mean)", "trained/qwen", "trained/llama", "trained/(mean)"]  # fmt: skip
    assert table[5] == ["vanilla", "trained/qwen", "60.0 (+20.0)", "20.0 (+0.0)", "40.0 (+10.0)"]
    assert table[6] == ["vanilla", "trained/llama", "40.0 (-10.0)", "50.0 (+20.0)", "45.0 (+5.0)"]
    assert table[7] == ["vanilla", "trained/(mean)", "50.0 (+5.0)", "35.0 (+10.0)", "42.5 (+7.5)"]
    full = next(row for row in table if row[:3] == ["trained/qwen", "math", "vanilla"])
    assert full[3:] == ["1", "10", "0", "60.0", "--", "+20.0", "10.0", "9", "3.0", "0"]
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


def test_what_was_not_measured_is_shown_as_missing(tmp_path):
    write_settings(tmp_path, a="a", b="a", questions=1)
    write_cell(tmp_path, "a", "math", right=1)
    write_cell(tmp_path, "b", "code", right=1)
    write_cell(tmp_path, "b", "math", right=0, errors=1)
    table = summary(tmp_path)
    assert in_brief(table)[1:] == [["vanilla", "a", "100.0", "--", "--"], ["vanilla", "b", "--", "100.0", "--"]]
    assert "nan" not in to_markdown(in_full(table))


def test_errors_are_marked_and_are_no_wrong_answers(tmp_path):
    """Nor are questions that a kill kept from being asked; and a difference to a cell that lacks some is marked too."""
    write_settings(tmp_path, ("math",), questions=5, a="a", b="a")
    write_cell(tmp_path, "a", "math", right=1, wrong=1, errors=2)
    write_cell(tmp_path, "b", "math", right=4, wrong=1)
    table = summary(tmp_path)
    assert in_brief(table)[1:] == [
        ["vanilla", "a", "50.0 !", "50.0 !"], ["vanilla", "b", "80.0 (+30.0) !", "80.0 (+30.0) !"]]  # fmt: skip
    assert list(table["errors"]) == [3, 0]


def test_differences_are_over_the_seeds_that_both_have(tmp_path):
    write_settings(tmp_path, ("math",), a="a", b="a")
    write_cell(tmp_path, "a", "math", right=5, wrong=5, seed=1)
    write_cell(tmp_path, "b", "math", right=6, wrong=4, seed=1)
    write_cell(tmp_path, "b", "math", right=10, seed=2)
    assert in_brief(summary(tmp_path))[2][2] == "80.0 ± 28.3 (+10.0)"


def test_mean_and_deviation_are_over_seeds(tmp_path):
    write_settings(tmp_path, ("math",), a="a", b="a")
    for seed, right in ((1, 4), (2, 5), (3, 6)):
        write_cell(tmp_path, "a", "math", right=right, wrong=10 - right, seed=seed)
        write_cell(tmp_path, "b", "math", right=right + 1, wrong=9 - right, seed=seed)
    assert in_brief(summary(tmp_path))[1:] == [
        ["vanilla", "a", "50.0 ± 10.0", "50.0"], ["vanilla", "b", "60.0 ± 10.0 (+10.0)", "60.0 (+10.0)"]]  # fmt: skip


def test_a_run_without_steps_and_evaluation_is_reported_as_such(tmp_path):
    said = report(tmp_path)
    assert "no steps yet" in said and "no evaluation yet" in said
    assert not list(tmp_path.iterdir())


def test_only_what_is_there_is_pointed_at(tmp_path):
    (tmp_path / "policies").mkdir()
    write_metrics(tmp_path)
    said = report(tmp_path)
    assert "metrics, a line a step" in said and "trained policies" not in said
