"""The folder of a run. Every file is written aside and renamed; a step counts when `checkpoints/state.json` names it."""

import json
import os
import shlex
import shutil
import subprocess
import sys
from contextlib import contextmanager
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import yaml

from marti_ext.config import ROOT, Config, ConfigError
from marti_ext.trajectory import open_jsonl

MAY_CHANGE = {"runs_dir", "train.steps", "train.epochs", "checkpoint", "log"}  # by a resumed run


def write_atomically(path: Path, text: str) -> None:
    """A reader sees the old file or the new one, also after a crash."""
    aside = path.with_name(path.name + ".part")
    with open(aside, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)


class RunDir:
    def __init__(self, config: Config) -> None:
        self.config, self.path = config, config.run_dir
        self.metrics_file = self.path / "metrics.jsonl"
        self.state_file = self.path / "checkpoints" / "state.json"

    # ── Opening ──

    def problem(self, resume: str) -> str | None:
        """Why this run cannot begin here; looks only, changes nothing."""
        exists = (self.path / "config.yaml").exists()
        if resume == "must" and not self.state_file.exists():
            return f"--resume must: {self.path} holds no checkpoint"
        if resume == "never" and self.path.exists() and any(self.path.iterdir()):
            return f"{self.path} exists: continue it with --resume auto, or choose another name (--set name=...)"
        if resume == "auto" and self.path.exists() and any(self.path.iterdir()) and not exists:
            return f"{self.path} exists but holds no config.yaml, so it is no run to continue: choose another name"
        if exists:
            changed = _differences(yaml.safe_load((self.path / "config.yaml").read_text()), self.config.model_dump())
            if changed:
                return f"{self.path} was begun with other settings: {'; '.join(changed)}. Choose another name"
        return self._not_writable()

    def _not_writable(self) -> str | None:
        folder = self.path
        while not folder.exists():
            folder = folder.parent
        if not folder.is_dir():
            return f"runs_dir: {folder} is a file, not a folder"
        probe = folder / f".probe-{os.getpid()}"
        try:
            probe.touch()
            probe.unlink()
        except OSError as error:
            return f"runs_dir: cannot write to {folder} ({error.strerror}): choose another with --set runs_dir=..."
        return None

    def open(self) -> dict[str, Any] | None:
        """Makes the folder, or takes up its last complete step; returns the state to continue from."""
        for part in ("checkpoints", "trajectories", "policies", "figures", "evaluation"):
            (self.path / part).mkdir(parents=True, exist_ok=True)
        write_atomically(self.path / "config.yaml", yaml.safe_dump(self.config.model_dump(), sort_keys=False))
        self._record_origin()
        state = json.loads(self.state_file.read_text()) if self.state_file.exists() else None
        self._forget_after(state["step"] if state else 0)
        return state

    def _record_origin(self) -> None:
        with open(self.path / "command.txt", "a") as file:
            file.write(shlex.join([Path(sys.executable).name, *sys.argv]) + "\n")
        git = ["git", "-C", str(ROOT)]
        commit = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True).stdout.strip()
        diff = subprocess.run([*git, "diff", "HEAD"], capture_output=True, text=True).stdout
        write_atomically(self.path / "code.diff", f"commit {commit or 'unknown'}\n{diff}")
        packages = sorted({f"{package.metadata['Name']}=={package.version}" for package in distributions()})
        write_atomically(
            self.path / "environment.txt", "\n".join([f"python {sys.version.split()[0]}", *packages]) + "\n"
        )

    def _forget_after(self, step: int) -> None:
        """Removes what was written for steps that did not become complete."""
        if self.metrics_file.exists():
            lines = [line for line in self.metrics() if line["step"] <= step]
            write_atomically(self.metrics_file, "".join(json.dumps(line) + "\n" for line in lines))
        for file in (self.path / "trajectories").iterdir():
            if file.suffix == ".part" or int(file.name.split(".")[0].removeprefix("step_")) > step:
                file.unlink()
        if step == 0:
            shutil.rmtree(self.path / "tensorboard", ignore_errors=True)

    # ── Writing ──

    @contextmanager
    def trajectories(self, name: str):
        """A writer of trajectories under this name (`trajectories/step_00001`, ...); the file appears when it is whole."""
        final = self.path / f"{name}.jsonl.gz"
        aside = final.with_name(final.name + ".part")
        with open_jsonl(aside.with_suffix(".part.gz"), "w") as file:
            yield lambda trajectory: file.write(trajectory.to_json() + "\n")
        aside.with_suffix(".part.gz").replace(final)

    def log(self, line: dict[str, Any]) -> None:
        """Appends one step to metrics.jsonl."""
        with open(self.metrics_file, "a") as file:
            file.write(json.dumps(line) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def metrics(self) -> list[dict[str, Any]]:
        """The lines of metrics.jsonl; a last line that a kill cut short is left out."""
        lines = self.metrics_file.read_text().splitlines() if self.metrics_file.exists() else []
        whole = []
        for line in lines:
            try:
                whole.append(json.loads(line))
            except json.JSONDecodeError:
                break
        return whole

    def complete_step(self, state: dict[str, Any]) -> None:
        """The marker: from here on the step counts."""
        write_atomically(self.state_file, json.dumps(state))


def check_run(run: Path) -> Path:
    """A run folder given on the command line. Raises ConfigError if it is none."""
    if not (run / "config.yaml").is_file():
        raise ConfigError([f"{run}: no run folder (it holds no config.yaml); runs are written to runs/<name>"])
    return run


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
