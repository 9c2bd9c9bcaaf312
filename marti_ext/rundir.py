"""The folder of a run. Every file is written aside and renamed; a step counts when `checkpoints/state.json` names it."""

import fcntl
import gzip
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from functools import cache
from importlib.metadata import distributions
from pathlib import Path
from typing import Any, TextIO

import yaml

from marti_ext.config import ROOT, Config

MAY_CHANGE = {"runs_dir", "train.steps", "train.epochs", "checkpoint", "log"}  # by a resumed run


def write_atomically(path: Path, text: str) -> None:
    """A reader sees the old file or the new one, also after a crash."""
    aside = path.with_name(path.name + ".part")
    with open(aside, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)


class RunInUse(RuntimeError):
    """Another process is writing to this run."""


def lock(folder: Path) -> TextIO:
    """Held until the file is closed or this process ends. Raises RunInUse."""
    file = open(folder / ".lock", "w")  # noqa: SIM115
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise RunInUse(f"another process is writing to {folder}: wait for it, or choose another folder") from None
    return file


class RunDir:
    def __init__(self, config: Config) -> None:
        self.config, self.path = config, config.run_dir
        self.metrics_file = self.path / "metrics.jsonl"
        self.state_file = self.path / "checkpoints" / "state.json"

    # ── Opening ──

    def problem(self, resume: str) -> str | None:
        """Why this run cannot begin here; looks only, changes nothing."""
        try:
            return self._conflict(resume) or self._not_writable()
        except OSError as error:
            return f"runs_dir: {self.path} cannot be used ({error.strerror}): choose another with --set runs_dir=..."

    def _conflict(self, resume: str) -> str | None:
        begun = (self.path / "config.yaml").exists()
        used = self.path.exists() and any(self.path.iterdir())
        if resume == "must" and not self.state_file.exists():
            return f"--resume must: {self.path} holds no checkpoint"
        if resume == "never" and used:
            return f"{self.path} exists: continue it with --resume auto (as ./run_all.sh does), or choose another name (--set name=...)"
        if used and not begun:
            return f"{self.path} exists but holds no config.yaml, so it is no run to continue: choose another name"
        if not begun:
            return None
        try:
            stored = yaml.safe_load((self.path / "config.yaml").read_bytes())
        except yaml.YAMLError:
            stored = None
        if not isinstance(stored, dict):
            return f"{self.path}: its config.yaml cannot be read, so it cannot be continued: choose another name"
        if changed := _differences(stored, self.config.model_dump()):
            return f"{self.path} was begun with other settings: {'; '.join(changed)}. Choose another name"
        return None

    def _not_writable(self) -> None:
        """Raises OSError if a file cannot be made where the run will be."""
        folder = next(folder for folder in (self.path, *self.path.parents) if folder.exists())
        with tempfile.TemporaryFile(dir=folder):
            pass

    def open(self) -> dict[str, Any] | None:
        """Makes the folder, or takes up its last complete step; returns the state to continue from."""
        for part in ("checkpoints", "trajectories", "validation", "policies", "figures", "evaluation"):
            (self.path / part).mkdir(parents=True, exist_ok=True)
        self.lock = lock(self.path)
        write_atomically(self.path / "config.yaml", yaml.safe_dump(self.config.model_dump(), sort_keys=False))
        self._record_origin()
        state = json.loads(self.state_file.read_text()) if self.state_file.exists() else None
        self._forget_after(state["step"] if state else 0)
        return state

    def _record_origin(self) -> None:
        """What it takes to run it again, added to what earlier starts of the run recorded where it has changed.
        Nothing of the environment's variables is written: keys are kept there."""
        command = shlex.join(["python", "-m", "marti_ext", *sys.argv[1:]])
        code = f"commit {_git('rev-parse', 'HEAD') or 'unknown'}\n{_git('diff', 'HEAD')}\n"
        if untracked := _git("ls-files", "--others", "--exclude-standard"):
            code += f"not under version control:\n{untracked}\n"
        for name, text in {"command.txt": command + "\n", "code.diff": code, "environment.txt": _packages()}.items():
            file = self.path / name
            before = file.read_text(encoding="utf-8") if file.exists() else ""
            if name == "command.txt" or not before.endswith(text):
                write_atomically(file, before + text)

    def _forget_after(self, step: int) -> None:
        """Removes what was written for steps that did not become complete."""
        if step == 0:
            shutil.rmtree(self.path / "tensorboard", ignore_errors=True)
            self.metrics_file.unlink(missing_ok=True)
        if self.metrics_file.exists():
            lines = [line for line in read_metrics(self.path) if line["step"] <= step]
            write_atomically(self.metrics_file, "".join(json.dumps(line) + "\n" for line in lines))
        for folder in ("trajectories", "validation"):
            for number, file in step_files(self.path / folder):
                if number > step:
                    file.unlink()
        for file in self.path.rglob("*.part"):
            file.unlink()

    # ── Writing ──

    @contextmanager
    def trajectories(self, name: str):
        """A writer of trajectories under this name (`trajectories/step_00001`, ...); the file appears when it is whole."""
        final = self.path / f"{name}.jsonl.gz"
        aside = final.with_name(final.name + ".part")
        with gzip.open(aside, "wt", encoding="utf-8") as file:
            yield lambda trajectory: file.write(trajectory.to_json() + "\n")
        aside.replace(final)

    def log(self, line: dict[str, Any]) -> None:
        """Appends one step to metrics.jsonl."""
        with open(self.metrics_file, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def complete_step(self, state: dict[str, Any]) -> None:
        """The marker: from here on the step counts."""
        write_atomically(self.state_file, json.dumps(state))


def check_run(run: Path) -> Path:
    """A run folder given on the command line. Raises LookupError if it is none."""
    if not (run / "config.yaml").is_file():
        raise LookupError(f"{run}: no run folder (it holds no config.yaml); runs are written to runs/<name>")
    return run


def is_finished(run: Path) -> bool:
    """Trained, measured and saved."""
    state = run / "checkpoints" / "state.json"
    return state.exists() and bool(json.loads(state.read_bytes()).get("finished"))


def read_metrics(run: Path) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl; a last line that a kill cut short is left out."""
    file = run / "metrics.jsonl"
    whole = []
    for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else []:
        try:
            whole.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return whole


def step_files(folder: Path) -> list[tuple[int, Path]]:
    """(step, file) of what a folder of a run holds for single steps, in order."""
    named = re.compile(r"step_(\d+)\.jsonl\.gz")
    files = [(match, file) for file in folder.glob("*") if (match := named.fullmatch(file.name))]
    return sorted((int(match[1]), file) for match, file in files)


@cache
def _packages() -> str:
    packages = sorted({f"{package.metadata['Name']}=={package.version}" for package in distributions()})
    return "\n".join([f"python {sys.version.split()[0]}", *packages]) + "\n"


def _git(*arguments: str) -> str:
    """What git says about this code; nothing where there is no git or no repository."""
    if shutil.which("git") is None:
        return ""
    return subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True).stdout.strip()


def _differences(old: dict, new: dict, at: str = "") -> list[str]:
    found = []
    for key in [*old, *(key for key in new if key not in old)]:
        place = f"{at}{key}"
        if place in MAY_CHANGE or old.get(key) == new.get(key):
            continue
        if isinstance(old.get(key), dict) and isinstance(new.get(key), dict):
            found += _differences(old[key], new[key], place + ".")
        else:
            found.append(f"{place} {old.get(key)!r} is now {new.get(key)!r}")
    return found
