"""What the experiment scripts would run: every one of them, in both profiles."""

import subprocess
from pathlib import Path

import pytest

from marti_ext.config import load_config
from marti_ext.plan import plan

ROOT = Path(__file__).parent.parent
SCRIPTS = sorted(script for script in (ROOT / "experiments").glob("*.sh") if script.name != "common.sh")


@pytest.mark.real
@pytest.mark.parametrize("profile", ["toy", "paper"])
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_an_experiment_lists_its_runs(script, profile):
    done = subprocess.run([script, "--profile", profile, "--dry-run"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert f"{profile}-" in done.stdout and "GPU hours" in done.stdout


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_an_experiment_explains_itself_and_refuses_what_it_does_not_know(script):
    text = subprocess.run([script, "--help"], capture_output=True, text=True).stdout
    assert "--dry-run" in text and text[0] != "#"
    wrong = subprocess.run([script, "--profil"], capture_output=True, text=True)
    assert wrong.returncode == 2 and "unknown option '--profil'" in wrong.stderr


def test_gpu_hours_and_disk_are_scaled_from_table_3(capsys):
    plan(["experiments/configs/paper/comas.yaml", "experiments/configs/paper/size.yaml --set name=big"])
    rows = [line.split("│")[1:-1] for line in capsys.readouterr().out.splitlines() if "│" in line]
    cells = {row[0].strip(): [cell.strip() for cell in row[1:]] for row in rows}
    assert cells["paper-comas"][:6] == ["to do", "4", "8", "31", "190,464", "48,372"]
    assert float(cells["paper-comas"][6]) == pytest.approx(8 * 12.5, rel=0.1)  # Table 3: 12.5 hours on 8 GPUs
    assert float(cells["big"][6]) == pytest.approx(float(cells["paper-comas"][6]) * 7 / 3, rel=0.02)


@pytest.mark.parametrize("name", ["comas", "homogeneous", "srlm"])
def test_both_profiles_have_the_same_experiments(name):
    toy, paper = (load_config(ROOT / "experiments/configs" / profile / f"{name}.yaml") for profile in ("toy", "paper"))
    assert toy.method.name == paper.method.name
