"""The command `evaluate`: seven benchmarks under four setups against a chat server, resume, errors, tables."""

import csv
import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest
from endpoint import Finder, serving

from marti_ext import benchmarks, cli
from marti_ext.benchmarks import PAPER, load
from marti_ext.engines import endpoint
from marti_ext.evaluation import OtherSettings, claim
from marti_ext.questions import KEYS
from marti_ext.setups import PAPER as SETUPS
from marti_ext.subjects import of_models, of_run

ROOT = Path(__file__).parent.parent
GOLD, WRONG = {}, {}  # responses by the question's prompt

# Of each benchmark two questions of our own in its form: prompt, gold answer, a right and a wrong response.
QUESTIONS = {
    "gsm8k": ("math", [
        ("Ada has 3 coins and finds 4. How many has she?", "3 + 4 = 7\n#### 7", "\\boxed{7}", "\\boxed{8}"),
        ("Ben sells 1,200 pens and then 34 more. How many?", "#### 1,234", "\\boxed{1234}", "\\boxed{1243}"),
    ]),
    "math500": ("math", [
        ("Simplify $\\frac{2}{4}$.", "\\frac{1}{2}", "It is $\\boxed{\\frac12}$.", "$\\boxed{\\frac13}$"),
        ("Solve $x^2 < 1$.", "(-1,1)", "\\boxed{(-1, 1)}", "\\boxed{[-1, 1]}"),
    ]),
    "humaneval": ("coding", [
        ("Complete:\n```python\ndef twice(x):\n```", "def check(candidate):\n    assert candidate(2) == 4\n\ncheck(twice)\n",
         "```python\ndef twice(x):\n    return 2 * x\n```", "```python\ndef twice(x):\n    return x\n```"),
        ("Complete:\n```python\ndef last(xs):\n```", "def check(candidate):\n    assert candidate([1, 3]) == 3\n\ncheck(last)\n",
         "```python\ndef last(xs):\n    return xs[-1]\n```", "```python\ndef last(xs):\n    return xs[0]\n```"),
    ]),
    "mbpp": ("coding", [
        ("Write a function that adds.", "assert add(1, 2) == 3\nassert add(0, 0) == 0",
         "```python\ndef add(a, b):\n    return a + b\n```", "```python\ndef add(a, b):\n    return a * b\n```"),
        ("Write a function that negates.", "assert neg(1) == -1",
         "```python\ndef neg(a):\n    return -a\n```", "```python\nimport sys\nsys.exit(0)\n```"),
    ]),
    "scibench": ("science", [
        ('How long is it?\n\nThe unit of the answer should be "m".', "12.5", "\\boxed{12.4}", "\\boxed{13.5}"),
        ("How fast is light, in m/s?", "299792458", "\\boxed{3.0 \\times 10^8}", "\\boxed{3e7}"),
    ]),
    "gpqa": ("choice", [
        ("Which?\n\n(A) this\n(B) that\n(C) both\n(D) none", "B", "\\boxed{B}", "\\boxed{A}"),
        ("Which not?\n\n(A) this\n(B) that\n(C) both\n(D) none", "D", "\\boxed{D}", "\\boxed{C}"),
    ]),
    "mmlu": ("choice", [
        ("Who?\n\n(A) one\n(B) two\n(C) three\n(D) four", "A", "\\boxed{A}", "\\boxed{D}"),
        ("Where?\n\n(A) here\n(B) there\n(C) nowhere\n(D) somewhere", "C", "\\boxed{\\text{C}}", "\\boxed{B}"),
    ]),
}  # fmt: skip


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """data/benchmarks with the questions above."""
    for name, (task, rows) in QUESTIONS.items():
        source = "stand-in:other" if name == "gpqa" else name
        lines = [
            dict(zip(KEYS, (f"{name}-{k}", task, source, row[0], row[1]), strict=True)) for k, row in enumerate(rows)
        ]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        for prompt, _, right, wrong in rows:
            GOLD[prompt], WRONG[prompt] = right, wrong
    monkeypatch.setattr(benchmarks, "FOLDER", tmp_path)
    monkeypatch.setattr(endpoint, "RETRIES", 0)
    return tmp_path


def answering(responses: dict[str, str], default: str = ""):
    """A script that answers the question that is asked, in whatever role."""
    find = Finder(question for name in PAPER for question in load(name).questions)

    def script(prompt: str, seed: int) -> str:
        question = find(prompt)
        return "Hello" if question is None else responses.get(question.prompt, default)

    return script


def evaluate(server, out: Path, *more: object) -> None:
    cli.main(["evaluate", "--endpoint", server.url, "--model", "test/model", "--out", str(out), *map(str, more)])


def rows(out: Path) -> list[dict]:
    with open(out / "summary.csv", newline="") as file:
        return list(csv.DictReader(file))


def cell(out: Path, benchmark: str, setup: str, seed: int = 1) -> list[dict]:
    file = out / "test__model" / benchmark / setup / f"seed_{seed}.jsonl"
    return [json.loads(line) for line in file.read_bytes().splitlines()]


def without_clock(line: dict) -> dict:
    return {key: value for key, value in line.items() if key != "seconds"}


# ── Seven benchmarks under four setups ──


@pytest.mark.parametrize(("kind", "accuracy", "invalid"), [("gold", 100, 0), ("wrong", 0, 0), ("unparsable", 0, 100)])
def test_every_benchmark_under_every_setup(folder, tmp_path, capsys, kind, accuracy, invalid):
    responses = {"gold": GOLD, "wrong": WRONG, "unparsable": {}}[kind]
    with serving(answering(responses, default="I do not know.")) as server:
        evaluate(server, tmp_path / "out")
    table = rows(tmp_path / "out")
    assert len(table) == len(PAPER) * len(SETUPS)
    for row in table:
        assert (float(row["accuracy"]), float(row["invalid"])) == (accuracy, invalid), row
        assert (row["questions"], row["errors"], row["seeds"]) == ("2", "0", "1")
    assert Counter(row["setup"] for row in table) == dict.fromkeys(SETUPS, 7)
    assert {row["benchmark"] for row in table} == {*PAPER[:5], "gpqa (stand-in: other)", "mmlu"}
    shown = capsys.readouterr().out
    assert "gpqa (stand-in: other)" in (tmp_path / "out/summary.md").read_text() and f"{accuracy}.0" in shown


def test_the_server_is_asked_as_said(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "key-of-the-environment")
    with serving(answering(GOLD)) as server:
        evaluate(server, tmp_path / "out", "--benchmarks", "mmlu", "--setups", "vanilla", "--max-response-tokens", 99)
    hello, *asked = server.requests
    assert len(asked) == 2
    for request in asked:
        assert (request["model"], request["temperature"], request["max_tokens"]) == ("test/model", 0.7, 99)
        assert request["key"] == "Bearer key-of-the-environment"
    (line, _) = cell(tmp_path / "out", "mmlu", "vanilla")
    assert line["turns"][0]["num_tokens"] == 5 and line["turns"][0]["prompt"].startswith("Problem:\nWho?")
    assert line["verdict"]["extracted"] == "A"
    for file in (tmp_path / "out").rglob("*"):
        assert file.is_dir() or b"key-of-the-environment" not in file.read_bytes()


def test_seeds_give_mean_and_deviation(folder, tmp_path):
    """One of two questions is right with the first seed, both with the second."""
    seeds = []

    def script(prompt: str, seed: int) -> str:
        if "Who?" in prompt:
            seeds.append(seed)
        return answering(WRONG if "Who?" in prompt and len(seeds) == 1 else GOLD)(prompt, seed)

    with serving(script) as server:
        options = ("--benchmarks", "mmlu", "--setups", "vanilla", "--seeds", 1, 2)
        evaluate(server, tmp_path / "out", *options)
    (row,) = rows(tmp_path / "out")
    assert (row["seeds"], float(row["accuracy"])) == ("2", 75.0)
    assert float(row["deviation"]) == pytest.approx(35.355, abs=1e-3)
    assert "75.0 ± 35.4" in (tmp_path / "out/summary.md").read_text()
    assert len(set(seeds)) == 2


# ── Errors and interruptions ──


def test_what_failed_is_marked_and_only_it_is_asked_again(folder, tmp_path, capsys):
    out, broken = tmp_path / "out", [True]
    gold = answering(GOLD)

    def script(prompt: str, seed: int) -> str | int:
        return 500 if broken and "Who?" in prompt else gold(prompt, seed)

    options = ("--benchmarks", "mmlu", "--setups", "vanilla", "consistency")
    with serving(script) as server:
        evaluate(server, out, *options)
        assert [row["errors"] for row in rows(out)] == ["1", "1"]
        assert [float(row["accuracy"]) for row in rows(out)] == [100.0, 100.0]  # of what was judged
        assert "100.0 !" in (out / "summary.md").read_text() and "ERRORS" in capsys.readouterr().out
        failed, judged = cell(out, "mmlu", "vanilla")
        assert "500" in failed["error"] and "verdict" not in failed and judged["verdict"]["verdict"] == "correct"
        broken.clear()
        before = len(server.requests)
        evaluate(server, out, *options)
        assert len(server.requests) - before == 1 + 1 + 6  # hello; of each setup, the one question
        assert [row["errors"] for row in rows(out)] == ["0", "0"]
        before = len(server.requests)
        evaluate(server, out, *options)
        assert len(server.requests) - before == 1


def by_chance(gold, wrong):
    """Right or wrong as prompt and seed have it."""
    return lambda prompt, seed: (gold if (len(prompt) + seed) % 3 else wrong)(prompt, seed)


@pytest.mark.real
def test_a_killed_evaluation_goes_on_to_the_same_result(folder, tmp_path):
    options = ["--benchmarks", *(str(folder / f"{name}.jsonl") for name in ("gsm8k", "math500", "mmlu"))]
    options += ["--setups", "consistency", "debate", "--requests", "2"]
    script, enough, held = by_chance(answering(GOLD), answering(WRONG)), threading.Event(), threading.Event()
    with serving(script) as server:
        evaluate(server, tmp_path / "whole", *options)

    def slow(prompt: str, seed: int) -> str:
        if len(server.requests) > 45 and not held.is_set():
            enough.set()
            held.wait(60)
        return script(prompt, seed)

    out = tmp_path / "killed"
    with serving(slow) as server:
        command = [sys.executable, "-m", "marti_ext", "evaluate", "--endpoint", server.url, "--model", "test/model"]
        process = subprocess.Popen([*command, "--out", out, *options], cwd=ROOT, stdout=subprocess.DEVNULL)
        assert enough.wait(60)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        held.set()
        assert any(out.rglob("seed_1.jsonl")) and not (out / "summary.csv").exists()
        before = len(server.requests)
        evaluate(server, out, *options)
        assert 1 < len(server.requests) - before < 6 * 6 + 6 * 7
    for file in sorted((tmp_path / "whole").rglob("seed_1.jsonl")):
        again = out / file.relative_to(tmp_path / "whole")
        lines = [[without_clock(json.loads(line)) for line in one.read_text().splitlines()] for one in (file, again)]
        assert lines[0] == lines[1], file
    assert len(rows(out)) == len(rows(tmp_path / "whole")) == 6


NASTY = "line\u2028and\u2029and\x85next, half a \ud800 character, \x00 and \u4e2d\u6587 "


def test_no_text_of_a_model_harms_a_cell(folder, tmp_path):
    """Line breaks of Unicode, half a character; and a cut in the middle of a character of several bytes."""
    options = ("--benchmarks", "mmlu", "--setups", "vanilla", "consistency")
    with serving(lambda prompt, seed: NASTY + answering(GOLD)(prompt, seed)) as server:
        evaluate(server, tmp_path / "out", *options)
        assert [(row["accuracy"], row["errors"]) for row in rows(tmp_path / "out")] == [("100.0", "0")] * 2
        file = tmp_path / "out" / "test__model" / "mmlu" / "vanilla" / "seed_1.jsonl"
        whole = file.read_bytes()
        before = len(server.requests)
        evaluate(server, tmp_path / "out", *options)
        assert len(server.requests) == before + 1 and file.read_bytes() == whole
        file.write_bytes(whole[: whole.rindex("\u4e2d".encode()) + 1])
        evaluate(server, tmp_path / "out", *options)
        assert len(server.requests) == before + 1 + 1 + 1
    lines = cell(tmp_path / "out", "mmlu", "vanilla")
    assert len(lines) == 2 and all("\u4e2d\u6587" in line["turns"][0]["response"] for line in lines)


def test_a_damaged_file_is_named_and_left_as_it_is(folder, tmp_path):
    options = ("--benchmarks", "mmlu", "--setups", "vanilla")
    with serving(answering(GOLD)) as server:
        evaluate(server, tmp_path / "out", *options)
        file = tmp_path / "out" / "test__model" / "mmlu" / "vanilla" / "seed_1.jsonl"
        damaged = b"{" + file.read_bytes()
        file.write_bytes(damaged)
        with pytest.raises(SystemExit, match="seed_1.jsonl, line 1: not JSON .* remove the file"):
            evaluate(server, tmp_path / "out", *options)
    assert file.read_bytes() == damaged


@pytest.mark.parametrize("cut", [1, 40, -1])
def test_a_line_that_a_kill_cut_is_asked_again(folder, tmp_path, cut):
    options = ("--benchmarks", "mmlu", "--setups", "vanilla")
    with serving(answering(GOLD)) as server:
        evaluate(server, tmp_path / "out", *options)
        file = tmp_path / "out" / "test__model" / "mmlu" / "vanilla" / "seed_1.jsonl"
        whole = file.read_bytes()
        second = whole.index(b"\n") + 1
        file.write_bytes(whole[: second + cut] if cut > 0 else whole[:cut])
        evaluate(server, tmp_path / "out", *options)
    assert [line["question"]["id"] for line in cell(tmp_path / "out", "mmlu", "vanilla")] == ["mmlu-0", "mmlu-1"]


def test_what_failed_is_asked_once_more_at_the_end(folder, tmp_path):
    failures = [500]
    gold = answering(GOLD)

    def script(prompt: str, seed: int) -> str | int:
        return failures.pop() if failures and "Who?" in prompt else gold(prompt, seed)

    with serving(script) as server:
        evaluate(server, tmp_path / "out", "--benchmarks", "mmlu", "--setups", "vanilla")
    assert [row["errors"] for row in rows(tmp_path / "out")] == ["0"]


def test_an_endpoint_reads_all_solutions_however_long(folder, tmp_path):
    gold = answering(GOLD)
    with serving(lambda prompt, seed: "long " * 8000 + gold(prompt, seed)) as server:
        evaluate(server, tmp_path / "out", "--benchmarks", "mmlu", "--setups", "consistency")
    last = cell(tmp_path / "out", "mmlu", "consistency")[0]["turns"][-1]
    assert last["role"] == "aggregation" and last["prompt"].count("Solution ") == 5
    assert {row["shortened_prompts"] for row in rows(tmp_path / "out")} == {"0.0"}


# ── What is refused ──


def test_what_never_began_binds_nobody(folder, tmp_path):
    dead = ["evaluate", "--endpoint", "http://127.0.0.1:9/v1", "--model", "test/model", "--out", str(tmp_path / "out")]
    with pytest.raises(SystemExit):
        cli.main(dead)
    with serving(answering(GOLD)) as server:
        evaluate(server, tmp_path / "out", "--benchmarks", "mmlu", "--setups", "vanilla", "--limit", 1)
    assert rows(tmp_path / "out")[0]["questions"] == "1"


def test_two_at_a_time_do_not_write_to_one_folder(folder, tmp_path):
    held = (
        "import sys, time; from pathlib import Path; from marti_ext.rundir import lock; file = lock(Path(sys.argv[1]))"
    )
    out = tmp_path / "out"
    out.mkdir()
    other = subprocess.Popen([sys.executable, "-c", held + "; print('held', flush=True); sys.stdin.read()", out],
                             cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # fmt: skip
    assert other.stdout.readline() == b"held\n"
    with serving(answering(GOLD)) as server, pytest.raises(SystemExit, match="another process is writing to"):
        evaluate(server, out, "--benchmarks", "mmlu", "--setups", "vanilla")
    other.communicate()


def test_changed_weights_are_not_taken_for_those_that_were_measured(tmp_path):
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    (model / "model.safetensors").write_bytes(b"")
    (subject,) = of_models([str(model)], None)
    claim(tmp_path, subject.settings())
    claim(tmp_path, subject.settings())
    os.utime(model / "model.safetensors", (1e9, 1e9))
    with pytest.raises(OtherSettings, match="weights .* was .*, is .* of 2001-09-09"):
        claim(tmp_path, subject.settings())


def test_only_a_finished_run_is_measured(tmp_path):
    config = (ROOT / "experiments/configs/toy/comas.yaml").read_text()
    (tmp_path / "config.yaml").write_text(config)
    with pytest.raises(ValueError, match="is not finished: go on with it first"):
        of_run(tmp_path, together=False)
    for name in ("qwen", "llama"):
        (tmp_path / "policies" / name).mkdir(parents=True)
        (tmp_path / "policies" / name / "config.json").write_text("{}")
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints/state.json").write_text('{"step": 20, "finished": true}')
    assert [(one.name, one.untrained, len(one.models)) for one in of_run(tmp_path, together=False)] == [
        ("untrained/qwen", "untrained/qwen", 1), ("untrained/llama", "untrained/llama", 1),
        ("trained/qwen", "untrained/qwen", 1), ("trained/llama", "untrained/llama", 1)]  # fmt: skip
    assert [(one.name, len(one.models)) for one in of_run(tmp_path, together=True)] == [
        ("untrained/all", 2), ("trained/all", 2)]  # fmt: skip


def test_other_settings_do_not_mix(folder, tmp_path, capsys):
    with serving(answering(GOLD)) as server:
        evaluate(server, tmp_path / "out", "--benchmarks", "mmlu", "--setups", "vanilla")
        for option, words in (
            (("--temperature", 1), "temperature was 0.7, is 1.0"),
            (("--limit", 1), "benchmark mmlu was"),
        ):
            with pytest.raises(SystemExit) as refused:
                evaluate(server, tmp_path / "out", "--benchmarks", "mmlu", "--setups", "vanilla", *option)
            assert words in str(refused.value) and "Choose another folder" in str(refused.value)
        evaluate(server, tmp_path / "out", "--benchmarks", "mmlu", "gsm8k", "--setups", "autogen", "--seeds", 2)
    assert len(rows(tmp_path / "out")) == 3


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--endpoint", "http://127.0.0.1:9/v1", "--model", "m"], "Is the server running"),
        (["--endpoint", "http://127.0.0.1:9/v1"], "--endpoint needs --model"),
        (["--policies", "nowhere/at/all"], "no model in HF format"),
        (["--policies", "data/toy"], "no model in HF format"),
        (["--policies", "marti_ext/toy-coma"], "no run (./run_all.sh"),
        (["--policies", "data/toy/models/qwen2", "--together"], "--together goes with a run"),
        (["--policies", "data/toy/models/qwen2", "--gpus", "2"], "leave the option out"),
        (["--policies", "runs/never-made"], "no run (./run_all.sh"),
        (["--endpoint", "127.0.0.1:9/v1", "--model", "m"], "begins with http://"),
        (["--policies", "data/toy/models/qwen2", "--max-response-tokens", "8192"], "lower --max-response-tokens"),
        (["--policies", "data/toy/models/qwen2", "--temperature", "-1"], "expected 0 or more"),
        (["--policies", "data/toy/models/qwen2", "--benchmarks", "gsm8k", "mnlu"], "mnlu: no such benchmark"),
    ],
)
def test_bad_input_is_refused_with_a_remedy(folder, tmp_path, arguments, words):
    with pytest.raises(SystemExit) as refused:
        cli.main(["evaluate", *arguments, "--out", str(tmp_path / "out")])
    assert words in str(refused.value)
    assert not list((tmp_path / "out").rglob("seed_*"))


def test_a_benchmark_that_is_not_made_yet_names_its_maker(folder, tmp_path):
    (folder / "scibench.jsonl").unlink()
    with pytest.raises(SystemExit, match="scibench: .*python data/prepare.py makes it"):
        cli.main(["evaluate", "--policies", "data/toy/models/qwen2", "--out", str(tmp_path / "out")])
