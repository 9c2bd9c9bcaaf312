"""The folder of a run: what it refuses, what it forgets, and that a kill at any moment leaves it readable."""

import gzip
import json
import os
import re
import subprocess
import sys

import pytest
import yaml
from test_config import folder, load  # noqa: F401

from marti_ext import rundir
from marti_ext.questions import Question
from marti_ext.rundir import RunDir, check_run, read_metrics, step_files, write_atomically
from marti_ext.trajectory import Trajectory, read_trajectories

TRAJECTORY = Trajectory(Question("1", "math", "s", "?", "!"), "comas")


@pytest.fixture
def run(folder) -> RunDir:  # noqa: F811
    return RunDir(load(folder))


def complete(run: RunDir, *steps: int) -> None:
    for step in steps:
        with run.trajectories(f"trajectories/step_{step:05}") as write:
            write(TRAJECTORY)
        run.log({"step": step})
        run.complete_step({"step": step})


# ── Beginning and going on ──


def test_a_new_run_may_begin_and_only_must_asks_for_a_checkpoint(run):
    assert run.problem("never") is None and run.problem("auto") is None
    assert run.problem("must") == f"--resume must: {run.path} holds no checkpoint"
    assert not run.path.exists()


def test_a_name_that_exists_is_refused_and_nothing_is_overwritten(run):
    run.open()
    complete(run, 1)
    before = {file: file.read_bytes() for file in run.path.rglob("*") if file.is_file()}
    assert "exists: continue it with --resume auto" in run.problem("never")
    assert run.problem("auto") is None and run.problem("must") is None
    assert {file: file.read_bytes() for file in run.path.rglob("*") if file.is_file()} == before


def test_a_folder_that_is_no_run_is_left_alone(run):
    run.path.mkdir(parents=True)
    assert run.problem("never") is None
    (run.path / "thesis.txt").write_text("mine")
    assert "exists: " in run.problem("never")
    assert "holds no config.yaml, so it is no run to continue" in run.problem("auto")
    for broken in ("[", "", "3"):
        (run.path / "config.yaml").write_text(broken)
        assert "config.yaml cannot be read" in run.problem("auto")


def test_other_settings_are_listed_and_some_may_change(run, folder):  # noqa: F811
    run.open()
    again = RunDir(load(folder, "method.rounds=3", "train.clip=0.1", "agents.0.name=z"))
    problem = again.problem("auto")
    assert "method.rounds 8 is now 3" in problem and "train.clip 0.2 is now 0.1" in problem and "agents" in problem
    assert RunDir(load(folder, "train.steps=99", "checkpoint.every=5", "log.wandb_project=p")).problem("auto") is None


def test_a_place_that_cannot_be_written_to(folder):  # noqa: F811
    (folder / "file").write_text("")
    (folder / "taken").mkdir()
    (folder / "taken" / "one").write_text("")
    for place in (f"{folder}/file", f"{folder}/file/below/it", f"{folder}/taken", "x" * 300):
        for resume in ("never", "auto"):
            problem = RunDir(load(folder, f"runs_dir={place}")).problem(resume)
            assert problem.startswith("runs_dir: ") and "cannot be used" in problem and "--set runs_dir=" in problem


def test_what_is_recorded_holds_no_secret_of_the_environment(run, monkeypatch):
    monkeypatch.setenv("WANDB_API_KEY", "secret-of-the-environment")
    monkeypatch.setattr(rundir.sys, "argv", ["marti_ext/__main__.py", "train", "a b.yaml"])
    run.open()
    complete(run, 1)
    assert (run.path / "command.txt").read_text() == "python -m marti_ext train 'a b.yaml'\n"
    assert yaml.safe_load((run.path / "config.yaml").read_text()) == run.config.model_dump()
    packages = (run.path / "environment.txt").read_text().splitlines()
    assert re.fullmatch(r"python 3\.\S+", packages[0]) and all("==" in line for line in packages[1:])
    for file in run.path.rglob("*"):
        assert file.is_dir() or b"secret-of-the-environment" not in file.read_bytes()
    run.open()
    assert len((run.path / "command.txt").read_text().splitlines()) == 2


def test_a_machine_without_git(run, monkeypatch):
    monkeypatch.setattr(rundir.shutil, "which", lambda name: None)
    run.open()
    assert (run.path / "code.diff").read_text().startswith("commit unknown")


# ── After a kill ──


def test_steps_after_the_last_complete_one_are_forgotten(run):
    assert run.open() is None
    complete(run, 1, 2)
    with run.trajectories("trajectories/step_00003") as write:
        write(TRAJECTORY)
    run.log({"step": 3})
    with open(run.metrics_file, "a") as file:
        file.write('{"step": 4, "poli')
    for name in ("trajectories/step_00004.jsonl.gz.part", "evaluation/trained.jsonl.gz.part", "config.yaml.part"):
        (run.path / name).write_bytes(b"cut")
    for number in (0, 2, 3):
        (run.path / "validation" / f"step_{number:05}.jsonl.gz").write_bytes(b"")
    (run.path / "trajectories" / "notes.txt").write_text("kept")
    assert run.open() == {"step": 2}
    run.log({"step": 3})
    assert [line["step"] for line in read_metrics(run.path)] == [1, 2, 3]
    assert [step for step, _ in step_files(run.path / "trajectories")] == [1, 2]
    assert [step for step, _ in step_files(run.path / "validation")] == [0, 2]
    assert not list(run.path.rglob("*.part")) and (run.path / "trajectories" / "notes.txt").exists()


def test_a_run_killed_before_its_first_step_begins_anew(run):
    run.open()
    run.log({"step": 1})
    (run.path / "tensorboard").mkdir()
    assert run.open() is None
    assert read_metrics(run.path) == [] and not (run.path / "tensorboard").exists()


def test_metrics_are_readable_wherever_the_last_line_was_cut(run):
    run.open()
    complete(run, 1, 2)
    whole = run.metrics_file.read_bytes()
    for cut in range(len(whole) + 1):
        run.metrics_file.write_bytes(whole[:cut])
        complete_lines = whole[: cut + 1].count(b"\n")  # the last line counts without its line break too
        assert [line["step"] for line in read_metrics(run.path)] == [1, 2][:complete_lines]


def test_a_second_process_is_kept_out(run):
    run.open()
    program = f"import fcntl; fcntl.lockf(open({str(run.path / '.lock')!r}, 'w'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    assert b"BlockingIOError" in subprocess.run([sys.executable, "-c", program], capture_output=True).stderr


def test_what_earlier_starts_ran_is_kept(run):
    run.open()
    (run.path / "code.diff").write_text("commit of the first start\n")
    run.open()
    assert (run.path / "code.diff").read_text().startswith("commit of the first start\ncommit ")
    before = (run.path / "code.diff").read_text()
    run.open()
    assert (run.path / "code.diff").read_text() == before


@pytest.mark.parametrize("name", ["trajectories/step_00001", "evaluation/trained"])
def test_trajectories_appear_when_they_are_whole(run, name):
    run.open()
    with pytest.raises(RuntimeError), run.trajectories(name) as write:
        write(TRAJECTORY)
        raise RuntimeError("killed")
    part = run.path / f"{name}.jsonl.gz.part"
    assert [file for file in part.parent.iterdir()] == [part]
    assert gzip.decompress(part.read_bytes())
    run.open()
    assert not part.exists()
    with run.trajectories(name) as write:
        write(TRAJECTORY)
    ((_, record, trajectory),) = read_trajectories(run.path / f"{name}.jsonl.gz")
    assert trajectory == TRAJECTORY and json.loads(TRAJECTORY.to_json()) == record


def test_a_file_is_the_old_one_or_the_new_one(tmp_path, monkeypatch):
    file = tmp_path / "state.json"
    write_atomically(file, "old")
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        write_atomically(file, "new")
    assert file.read_text() == "old"


def test_a_run_folder_is_known_by_its_config(run):
    with pytest.raises(LookupError, match="no run folder"):
        check_run(run.path)
    run.open()
    assert check_run(run.path) == run.path
