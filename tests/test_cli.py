"""The commands as a person types them: help, dry run, rescore, view, doctor."""

import gzip
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from test_config import folder, load  # noqa: F401

from marti_ext import cli, doctor
from marti_ext.cli import main
from marti_ext.questions import Question
from marti_ext.rundir import RunDir
from marti_ext.tasks import sandbox
from marti_ext.trajectory import Trajectory, Turn

ROOT = Path(__file__).parent.parent
TOY = "experiments/configs/toy/comas.yaml"
HEAVY = ("torch", "transformers", "ray", "deepspeed", "vllm", "pandas", "matplotlib", "numpy", "pydantic", "rich")


def python(code: str, *arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-c", code, *arguments], cwd=ROOT, capture_output=True, text=True)


def fails(capsys, *arguments: object) -> str:
    """The error of a command, which leaves stdout to its results."""
    with pytest.raises(SystemExit) as stop:
        main([str(argument) for argument in arguments])
    assert str(stop.value).startswith("error: ")
    return str(stop.value)


def discussion(response: str = "<score>3</score>", question: str = "1") -> Trajectory:
    turns = [
        Turn(0, "ada", "ada", "solution", 1, [], "solve", "It is \\boxed{2}", "stop", 5, reward=0.25),
        Turn(1, "ben", "ben", "evaluation", 1, [0], "attack", "No mistake found.", "stop", 4),
        Turn(2, "ada", "ada", "solution", 2, [], "again", "Still 2", "length", 3),
        Turn(3, "ben", "ben", "scoring", 1, [0, 1], "score", response, "stop", 6, score=1, reward=-1.0),
    ]
    return Trajectory(Question(question, "math", "s", "1 + 1?", "2"), "comas", turns)


# ── Help ──


def test_help_is_complete_and_imports_nothing_heavy():
    code = """
import contextlib, io, sys
from marti_ext.cli import main
for command in ([], ["train"], ["evaluate"], ["grade"], ["report"], ["view"], ["rescore"], ["doctor"]):
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.suppress(SystemExit):
        main([*command, "--help"])
    print(out.getvalue())
assert not set(sys.argv[1:]) & set(sys.modules), set(sys.argv[1:]) & set(sys.modules)
"""
    done = python(code, *HEAVY)
    assert done.returncode == 0, done.stderr
    for word in ("train", "evaluate", "--endpoint", "--seeds", "grade", "--workers",
                 "report", "view", "rescore", "doctor", "--set", "--dry-run",
                 "--resume", "--question", "--step",
                 "--method", "FILE.jsonl", "RUN"):  # fmt: skip
        assert word in done.stdout


# ── Train ──


def test_a_dry_run_prints_everything_and_loads_no_torch():
    code = (
        "import sys; from marti_ext.cli import main; main(sys.argv[1:]);"
        "assert not {'torch', 'transformers', 'ray', 'pandas'} & set(sys.modules)"
    )
    done = python(code, "train", TOY, "--dry-run", "--set", "train.steps=3")
    assert done.returncode == 0, done.stderr
    for words in ("Settings", "name: toy-comas", "Agents and GPUs", "agents: llama", "steps             3, each 16",
                  "turns             384 a step, 1,152 in all", "generated tokens  at most 24,576 a step",
                  "Lacking on this machine"):  # fmt: skip
        assert words in done.stdout


def test_a_wrong_setting_fails_a_dry_run(capsys, folder):  # noqa: F811
    file = folder / "experiment.yaml"
    error = fails(capsys, "train", file, "--dry-run", "--set", "train.clip=7", "--set", "train.stps=7")
    assert error.startswith(f"error: {file}: 2 problem(s)\n- train.clip") and "did you mean steps?" in error


def test_a_run_is_refused_before_anything_is_loaded(capsys, folder):  # noqa: F811
    file = folder / "experiment.yaml"
    assert "no such file" in fails(capsys, "train", file, "--set", "data.train=none.jsonl")
    run = RunDir(load(folder))
    run.open()
    assert f"{run.path} exists" in fails(capsys, "train", file)
    assert "holds no checkpoint" in fails(capsys, "train", file, "--resume", "must", "--set", "name=other")
    assert "train.clip 0.2 is now 0.3" in fails(capsys, "train", file, "--resume", "auto", "--set", "train.clip=0.3")
    assert "runs_dir" in fails(capsys, "train", file, "--set", f"runs_dir={file}/x")
    hub = [word for index in (0, 1) for word in ("--set", f"agents.{index}.model=org/big")]
    both = fails(capsys, "train", file, "--set", "gpus.per_policy=32", "--set", "engine.per_policy=32", *hub)
    assert "exists" in both and "GPUs: 64 needed" in both


# ── Rescore ──


def rescored(capsys, *arguments: object) -> list[dict]:
    main(["rescore", *map(str, arguments)])
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_rescoring_changes_score_and_reward_and_nothing_else(capsys, tmp_path):
    stored = json.loads(discussion("<score>3</score>").to_json())
    stored["question"]["level"], stored["turns"][0]["note"], stored["run"] = 5, "\ud800 kept", {"a": [1]}
    del stored["metrics"], stored["turns"][1]["score"], stored["turns"][1]["reward"]
    expected = json.loads(json.dumps(stored))
    for turn, reward in zip(expected["turns"], (1.0, 0.0, 0.0, 0.0), strict=True):
        turn |= {"score": 3 if turn["role"] == "scoring" else None, "reward": reward}
    (tmp_path / "one.jsonl").write_text(json.dumps(stored) + "\n\n" + json.dumps(stored))
    with gzip.open(tmp_path / "one.jsonl.gz", "wt") as file:
        file.write("\ufeff" + json.dumps(stored) + "\n")
    assert rescored(capsys, tmp_path / "one.jsonl", "--method", "comas") == [expected] * 2
    assert rescored(capsys, tmp_path / "one.jsonl.gz", "--method", "comas") == [expected]
    assert rescored(capsys, tmp_path / "one.jsonl", "--method", "srlm")[0]["method"] == "srlm"
    dropped = rescored(capsys, tmp_path / "one.jsonl", "--method", "comas", "--set", "unreadable=drop")
    assert [turn["reward"] for turn in dropped[0]["turns"]] == [1.0, 0.0, None, 0.0]


def test_stored_lines_come_back_as_they_were(capsys, tmp_path):
    line = discussion().to_json()
    (tmp_path / "one.jsonl").write_text(line)
    main(["rescore", str(tmp_path / "one.jsonl"), "--method", "comas"])
    (tmp_path / "two.jsonl").write_text(once := capsys.readouterr().out)
    main(["rescore", str(tmp_path / "two.jsonl"), "--method", "comas"])
    assert capsys.readouterr().out == once


def test_stored_lines_that_cannot_be_rescored(capsys, tmp_path):
    file, good = tmp_path / "bad.jsonl", json.loads(discussion().to_json())
    for bad, expected in {
        "{": "not JSON",
        "[]": "not a trajectory",
        json.dumps(good | {"question": {"id": "1"}}): "question.prompt",
        json.dumps(good | {"turns": [{"id": 0}]}): "turns.0.role",
        json.dumps(good | {"turns": [good["turns"][0] | {"response": None}]}): "turns.0.response",
        json.dumps(good | {"turns": 3}): "turns",
    }.items():
        file.write_text(json.dumps(good) + "\n" + bad)
        error = fails(capsys, "rescore", file, "--method", "comas")
        assert f"{file}, line 2: " in error and expected in error and "\n" not in error
    file.write_text(json.dumps(good | {"question": good["question"] | {"answer": None}}))
    expected = f"{file}, line 1: method verifier needs question.answer and a known question.task"
    assert expected in fails(capsys, "rescore", file, "--method", "verifier")
    assert "method.ronds: unknown" in fails(capsys, "rescore", file, "--method", "comas", "--set", "ronds=2")
    assert "method.name: found 'x'" in fails(capsys, "rescore", file, "--method", "x")


def test_files_that_cannot_be_read(capsys, tmp_path):
    whole = gzip.compress("\n".join([discussion().to_json()] * 3).encode(), mtime=0)
    file = tmp_path / "cut.jsonl.gz"
    for content in (whole[:-20], b"no gzip", whole[:30] + b"\0\0\0\0" + whole[34:]):
        file.write_bytes(content)
        assert f"{file}: cannot be read after line " in fails(capsys, "rescore", file, "--method", "comas")
    (tmp_path / "latin.jsonl").write_bytes(b"\xff\n")
    assert f"{tmp_path / 'none.jsonl'}: no such file" in fails(
        capsys, "rescore", tmp_path / "none.jsonl", "--method", "comas"
    )
    for name in ("latin.jsonl", "."):
        assert "cannot be read" in fails(capsys, "rescore", tmp_path / name, "--method", "comas")


# ── View ──


@pytest.fixture
def run(folder) -> Path:  # noqa: F811
    run = RunDir(load(folder))
    run.open()
    with run.trajectories("trajectories/step_00001") as write:
        write(discussion())
        write(discussion("no score", question="[red]2"))
    return run.path


def test_questions_are_listed_and_discussions_shown_in_order(capsys, run):
    main(["view", str(run)])
    listing = capsys.readouterr().out
    assert "[red]2" in listing and "+0.25 --" in listing and "1 + 1?" in listing
    main(["view", str(run), "--question", "1"])
    seen = capsys.readouterr().out
    places = [seen.index(words) for words in (
        "answer: 2", "round 1  solution #0 by ada  reward +0.25", "   round 1  evaluation #1 by ben on #0  reward --",
        "      round 1  scoring #3 by ben on #0, #1  score 1  reward -1.00",
        "round 2  solution #2 by ada  reward --  (truncated)",
    )]  # fmt: skip
    assert places == sorted(places)


def test_what_cannot_be_shown(capsys, run, tmp_path):
    assert "no discussion of question '9'" in fails(capsys, "view", run, "--question", "9")
    assert "no discussions stored for step 3" in fails(capsys, "view", run, "--step", "3")
    assert "no run folder" in fails(capsys, "view", tmp_path / "nowhere")
    (run / "trajectories" / "step_00002.jsonl.gz").write_bytes(b"")
    (run / "trajectories" / "step_00003.jsonl.gz").write_bytes(b"x")
    assert "step_00003.jsonl.gz: cannot be read" in fails(capsys, "view", run)


def test_hostile_text_is_shown_harmlessly(capsys, run):
    hostile = discussion("\x1b[2J\x1b]0;title\x07 [bold red]tag[/] [/] \u202eback \r over \x9b1m", question="h\x1b[1m")
    hostile.turns[0].agent = "[link=x]eve\x1b[0m"
    with gzip.open(run / "trajectories" / "step_00002.jsonl.gz", "wt") as file:
        file.write(hostile.to_json())
    for arguments in ([], ["--question", "h\x1b[1m"]):
        main(["view", str(run), *arguments])
        seen = capsys.readouterr().out
        assert not {"\x1b", "\x07", "\r", "\u202e", "\x9b"} & set(seen)
    assert "[bold red]tag[/] [/]" in seen and "[link=x]eve" in seen


@pytest.mark.parametrize("command", ["view", "rescore"])
def test_a_reader_that_leaves_is_no_error(run, command):
    file = run / "trajectories" / "step_00001.jsonl.gz"
    with gzip.open(file, "wt") as out:
        out.write((discussion().to_json() + "\n") * 1000)
    arguments = {"view": ["view", run, "--question", "1"], "rescore": ["rescore", file, "--method", "comas"]}[command]
    writer = subprocess.Popen([sys.executable, "-m", "marti_ext", *map(str, arguments)], cwd=ROOT,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)  # fmt: skip
    assert writer.stdout.readline()
    writer.stdout.close()
    assert writer.stderr.read() == ""
    writer.stderr.close()
    writer.wait()


# ── Doctor ──


def test_the_doctor_names_what_fails_and_what_to_do(capsys, monkeypatch):
    for check in ("_packages", "_gpu", "_flash_attn", "_ray", "_deepspeed", "_transformers_engine"):
        monkeypatch.setattr(doctor, check, lambda: "fine")
    monkeypatch.setattr(doctor.sys, "version_info", (3, 9))

    def broken():
        raise RuntimeError("long story\nno engine")

    monkeypatch.setattr(doctor, "_vllm", broken)
    monkeypatch.setattr(doctor, "_compiler", lambda: "fine")
    with pytest.raises(SystemExit) as stop:
        main(["doctor"])
    seen = capsys.readouterr().out
    assert stop.value.code == 2
    assert "NO  RuntimeError: this is Python" in seen and "use Python 3.11" in seen
    assert "NO  RuntimeError: no engine" in seen and "engine.kind: transformers works without vLLM" in seen
    assert "2 of 10 checks failed" in seen


@pytest.mark.parametrize(
    ("kind", "mark"), [("namespaces", "ok  namespaces:"), ("bubblewrap", "ok  bubblewrap:"), ("limits", "!!  limits:")]
)
def test_the_doctor_names_the_isolation_and_warns_where_there_is_little(capsys, monkeypatch, kind, mark):
    for check in ("_python", "_compiler", "_packages", "_gpu", "_flash_attn", "_ray", "_deepspeed", "_transformers_engine",
                  "_vllm"):  # fmt: skip
        monkeypatch.setattr(doctor, check, lambda: "fine")
    monkeypatch.setattr(sandbox, "_kind", lambda: kind)
    assert doctor.doctor() == 0
    seen = capsys.readouterr().out
    assert mark in seen and "everything works" in seen
    assert ("install bubblewrap" in seen) == (kind == "limits")


def test_packages_that_are_missing_are_named(monkeypatch):
    monkeypatch.setattr(doctor, "PACKAGES", ("pydantic", "no-such-package"))
    with pytest.raises(RuntimeError, match="not installed: no-such-package"):
        doctor._packages()
    monkeypatch.setattr(doctor.shutil, "which", lambda name: None)
    with pytest.raises(RuntimeError, match="neither"):
        doctor._compiler()


def test_the_readme_of_the_data_is_true(tmp_path, capsys):
    """Its example record is one, and its command works."""
    text = (ROOT / "data/README.md").read_text()
    record = next(line for line in text.splitlines() if line.startswith('{"id"'))
    (tmp_path / "my.jsonl").write_text(record)
    command = next(line for line in text.splitlines() if "data.train=my.jsonl" in line).split()
    words = [word.replace("my.jsonl", f"{tmp_path}/my.jsonl") for word in command[3:]]
    main([*words, "--dry-run"])
    assert yaml.safe_load(capsys.readouterr().out.split("Agents and GPUs")[0].split("--------")[1])["name"] == "mine"


@pytest.mark.parametrize(("command", "hint"), [("train", "--resume auto"), ("evaluate", "the same command goes on")])
def test_an_interrupted_command_says_at_once_how_to_go_on(command, hint, monkeypatch, capsys):
    def interrupt(args):
        os.kill(os.getpid(), signal.SIGINT)
        pytest.fail("was not interrupted")

    monkeypatch.setattr(cli, f"_{command}", interrupt)
    arguments = {"train": ["train", "x.yaml"], "evaluate": ["evaluate", "--policies", "x"]}[command]
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(SystemExit, match="130"):
        main(arguments)
    said = capsys.readouterr().err
    assert "interrupted: stopping" in said and hint in said
    assert signal.getsignal(signal.SIGINT) is before
