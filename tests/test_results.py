"""From finished runs to the paper's tables and figures, with what can be said about their certainty."""

import gzip
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from test_reporting import role

from marti_ext.cli import main
from marti_ext.questions import Question
from marti_ext.reporting import statistics
from marti_ext.reporting.compare import NAMES
from marti_ext.reporting.examples import pick, to_markdown
from marti_ext.reporting.paper import against, beside, measured, scores, table3, table6, untrained
from marti_ext.reporting.results import collect, read_results
from marti_ext.trajectory import Trajectory, Turn


def write_run(
    runs: Path, name: str, agents: int = 1, trained: str = "ccccw-", before: str = "cwwww-", seed: int = 1
) -> Path:
    """A finished run of two steps with one cell per stage and setup; letters stand for its questions' verdicts."""
    run = runs / f"toy-{name}-seed{seed}"
    words = {"c": "correct", "w": "wrong", "i": "invalid"}
    for stage, verdicts in (("untrained", before), ("trained", trained)):
        for setup in ("vanilla", "debate"):
            file = run / "evaluation" / stage / "qwen" / "toy-math" / setup / f"seed_{seed}.jsonl"
            file.parent.mkdir(parents=True)
            lines = []
            for number, letter in enumerate(verdicts):
                line = {"question": {"id": f"q{number}"}}
                judged = {"turns": [{"num_tokens": 8}], "verdict": {"verdict": words.get(letter)}}
                lines.append(line | ({"error": "500"} if letter == "-" else judged))
            file.write_text("".join(json.dumps(line) + "\n" for line in reversed(lines)))
    policy = {"roles": {"solution": role(0.5), "scoring": role(-0.5)}, "peak_memory_gib": 1.0}
    policies = {f"qwen-{k}": policy for k in range(1, agents + 1)}
    step = {"policies": policies, "generated_tokens": 100, "time": {"step": 36.0}}
    numbers = {"accuracy": 0.5, "precision": 0.25, "recall": None}
    lines = [
        {"step": 0, "policies": {}, "validation": numbers},
        {"step": 1} | step,
        {"step": 2, "validation": numbers} | step,
    ]
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (run / "config.yaml").write_text(
        yaml.safe_dump({"agents": [{"count": agents}], "method": {"name": "comas", "rounds": 4}})
    )
    (run / "checkpoints").mkdir()
    (run / "checkpoints" / "state.json").write_text('{"step": 2, "finished": true}')
    return run


@pytest.fixture
def runs(tmp_path) -> Path:
    write_run(tmp_path, "comas")
    write_run(tmp_path, "comas", trained="cccww-", seed=2)
    write_run(tmp_path, "ttrl", trained="wwwww-")
    for agents in (1, 2, 4):
        write_run(tmp_path, f"agents{agents}", agents)
    (write_run(tmp_path, "srlm") / "checkpoints" / "state.json").write_text('{"step": 1}')
    return tmp_path


def test_what_is_saved_is_what_was_collected(runs, tmp_path):
    results = collect(runs, "toy")
    results.write(tmp_path / "saved")
    again = read_results(tmp_path / "saved")
    assert set(again.cells["variant"]) == {"comas", "ttrl", "agents1", "agents2", "agents4"}  # srlm is not finished
    for name in ("table1", "table3", "table6"):
        main(["compare", name, "--runs", str(runs), "--out", str(tmp_path / "a")])
        main(["compare", name, "--results", str(tmp_path / "saved"), "--out", str(tmp_path / "b")])
        tables = (pd.read_csv(tmp_path / folder / f"{name}.csv") for folder in "ab")
        pd.testing.assert_frame_equal(*tables, rtol=1e-4)


def test_questions_stand_in_their_order_and_unjudged_ones_count_for_nothing(runs):
    found = scores(collect(runs, "toy"), untrained("comas"), "vanilla")["toy-math"]
    assert found.shape == (2, 6)
    assert np.isnan(found[:, 5]).all()
    assert found[0, :5].tolist() == [1, 0, 0, 0, 0]


def test_a_tables_numbers(runs):
    table = measured(1, collect(runs, "toy")).set_index(["setup", "method"])
    ours, ttrl = table.loc["vanilla", "CoMAS"], table.loc["vanilla", "TTRL"]
    assert (ours["average"], ours["toy-math"], ours["n"], ours["change"]) == (70, 70, 2, 50)
    assert ours["deviation"] == pytest.approx(np.std([80, 60], ddof=1))
    assert ours["low"] <= 50 <= ours["high"]
    assert ttrl["change"] == -20
    assert np.isnan(table.loc["vanilla", "Untrained"]["change"])
    assert ("vanilla", "SRLM") not in table.index


def test_methods_are_compared_on_the_same_questions(runs):
    table = against(1, collect(runs, "toy")).set_index(["setup", "method"])
    row = table.loc["vanilla", "CoMAS - TTRL"]
    assert row["change"] == 70 and row["low"] <= 70 <= row["high"] and 0 < row["p"] < 0.3
    assert set(table.index.get_level_values("setup")) == {"vanilla", "debate"}
    assert ("vanilla", "CoMAS - SRLM") not in table.index


def test_published_stands_beside_measured_and_what_was_not_measured_is_missing(runs):
    table = beside(1, collect(runs, "toy")).set_index(["setup", "method"])
    assert table.loc["vanilla", "CoMAS"]["published"] == pytest.approx(55.666, abs=0.001)
    assert table.loc["vanilla", "CoMAS"]["difference"] == pytest.approx(50 - 1.5, abs=0.01)
    assert np.isnan(table.loc["vanilla", "SRLM"]["average"])
    assert list(dict.fromkeys(index[0] for index in table.index)) == ["vanilla", "consistency", "autogen", "debate"]


def test_costs_and_reward_effectiveness(runs):
    results = collect(runs, "toy")
    costs = table3(results)
    assert costs["samples measured"].to_dict() == {1: 2 * 2 * 2, 2: 2 * 2 * 2 * 2, 4: 2 * 2 * 2 * 4}
    assert costs["hours measured"].tolist() == pytest.approx([0.02] * 3)
    assert costs["memory_gb measured"].tolist() == pytest.approx([k * 2**30 / 1e9 for k in (1, 2, 4)])
    effectiveness = table6(results)
    assert effectiveness.loc[0]["accuracy measured"] == 50 and effectiveness.loc[30]["precision published"] == 50.10
    assert np.isnan(effectiveness.loc[2]["recall measured"])


def test_every_table_and_figure_comes_from_any_results(runs, tmp_path, capsys):
    main(["compare", *NAMES, "--runs", str(runs), "--out", str(tmp_path / "out")])
    shown = capsys.readouterr().out
    assert {file.stem for file in (tmp_path / "out").iterdir()} == set(NAMES)
    assert "nan" not in shown.lower().replace("nanonets", "") and "--" in shown


def test_bad_names_and_no_runs_are_plain_errors(tmp_path):
    with pytest.raises(SystemExit, match="table2: no such table or figure; known: table1"):
        main(["compare", "table2"])
    with pytest.raises(SystemExit, match="no finished run named toy-VARIANT-seedN"):
        main(["compare", "table1", "--runs", str(tmp_path)])


# ── Statistics ──


def test_an_interval_covers_the_truth_about_as_often_as_it_says():
    rng = np.random.default_rng(1)
    covered = 0
    for _ in range(60):
        drawn = {"one": (rng.random((3, 60)) < 0.6).astype(float), "two": (rng.random((3, 40)) < 0.8).astype(float)}
        low, high = statistics.interval(drawn)
        covered += low <= 70 <= high
    assert covered >= 52


def test_the_same_scores_differ_by_nothing_and_other_ones_significantly():
    rng = np.random.default_rng(2)
    easy = {"one": (rng.random((3, 80)) < 0.8).astype(float)}
    hard = {"one": easy["one"] * (rng.random((3, 80)) < 0.7)}
    assert statistics.paired_p(easy, easy) == 1.0
    assert statistics.interval(easy, easy) == (0.0, 0.0)
    assert statistics.paired_p(hard, easy) < 0.01
    low, high = statistics.interval(hard, easy)
    assert low < high < 0


def test_the_paired_test_is_rarely_significant_by_chance():
    rng = np.random.default_rng(3)
    small = sum(
        statistics.paired_p({"one": (rng.random((2, 40)) < 0.5) * 1.0}, {"one": (rng.random((2, 40)) < 0.5) * 1.0})
        < 0.05
        for _ in range(60)
    )
    assert small <= 7


# ── Appendices I and J ──


def told(question: str, *solutions: tuple[str, float]) -> Trajectory:
    """A discussion with these solutions (text, reward); the right answer is 4."""
    turns = [
        Turn(k, "qwen", "qwen", "solution", k + 1, [], response=text, reward=reward)
        for k, (text, reward) in enumerate(solutions)
    ]
    return Trajectory(Question(question, "math", "toy", "2 + 2?", "4"), "comas", turns)


RIGHT, WRONG = r"\boxed{4}", r"\boxed{5} ```"


def test_examples_are_the_first_that_fit_in_the_latest_step_that_has_one(tmp_path):
    steps = {
        1: [told("b", (WRONG, 0.0), (RIGHT, 1.0)), told("a", (WRONG, 0.0), (RIGHT, 1.0))],
        2: [told("c", (RIGHT, 1.0), (WRONG, 0.0)), told("d", (WRONG, 1.0), (RIGHT, 0.0)), told("e", (RIGHT, 0.0))],
    }
    for variant in ("comas", "comas_without_evaluation", "comas_without_scoring"):
        folder = tmp_path / f"toy-{variant}-seed1" / "trajectories"
        folder.mkdir(parents=True)
        for step, trajectories in steps.items():
            lines = "".join(one.to_json() + "\n" for one in trajectories)
            (folder / f"step_{step:05}.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    examples = pick(tmp_path, "toy")
    assert [(one["step"], one["question"]["id"]) for one in examples] == [(1, "a"), (2, "e"), (2, "d")]
    shown = to_markdown(examples[0])
    assert "step 1, question `a`" in shown and "reward 0" in shown and "\n    " + WRONG in shown
