"""The whole job in small, as a person starts it: the toy pipeline, a kill and a resume, real questions."""

import gzip
import itertools
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from marti_ext.loggers import flatten

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]
ROOT = Path(__file__).parent.parent
REAL = ROOT.parent / "shared" / "datasets" / "comas_validation"
SMALL = {
    "train.steps": 4, "train.batch_size": 16, "train.micro_batch_size": 8, "train.forward_batch_size": 8, "method.rounds": 2,
    "rollout.questions_per_step": 6, "evaluation.limit": 5, "evaluation.every": 2,
}  # fmt: skip


def command(runs: Path, name: str, *more: str, **settings) -> list[str]:
    values = (
        SMALL | {"runs_dir": runs, "name": name} | {key.replace("__", "."): value for key, value in settings.items()}
    )
    sets = [word for key, value in values.items() for word in ("--set", f"{key}={value}")]
    return [sys.executable, "-m", "marti_ext", "train", "experiments/configs/toy/comas.yaml", *sets, *more]


def run(arguments: list[str]) -> str:
    done = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def marti(*arguments: str) -> str:
    return run([sys.executable, "-m", "marti_ext", *arguments])


def metrics(run_dir: Path) -> list[dict]:
    return [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]


def repeatable(line: dict) -> dict:
    """The numbers of a line of metrics, without clock and machine. `engine_gap` is a difference of what is rounded
    differently."""
    machine = ("time", "tokens_per_second", "peak_memory_gib", "engine_gap")
    return {key: number for key, number in flatten(line).items() if not set(key.split("/")) & set(machine)}


def stored(run_dir: Path, step: int) -> list[dict]:
    lines = gzip.decompress((run_dir / "trajectories" / f"step_{step:05}.jsonl.gz").read_bytes()).decode().splitlines()
    return [json.loads(line) for line in lines]


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def straight(runs) -> tuple[Path, str]:
    return runs / "straight", run(command(runs, "straight"))


def test_the_job_leaves_everything_in_the_run_directory(straight):
    path, said = straight
    assert "trained/llama  toy-science  debate  seed 1: " in said
    assert "trained/(mean)" in said
    for name in ("config.yaml", "command.txt", "code.diff", "environment.txt", "comparison.csv", "figures/reward.png",
                 "figures/length.png", "trajectories/step_00004.jsonl.gz", "tensorboard",
                 "validation/step_00004.jsonl.gz", "evaluation/untrained/qwen/toy-math/autogen/seed_1.jsonl"):  # fmt: skip
        assert (path / name).exists(), name
    assert not list(path.rglob("*.part"))
    kept = {folder.name for folder in (path / "checkpoints" / "qwen" / "_actor").glob("step_*")}
    assert kept == {"step_3", "step_4"}  # checkpoint.keep


def test_metrics_have_what_the_paper_plots(straight):
    lines = metrics(straight[0])
    assert [line["step"] for line in lines] == [0, 1, 2, 3, 4]
    assert ["validation" in line for line in lines] == [True, False, True, False, True]
    for line in lines[::2]:
        assert line["validation"]["solutions"] == 5 * 2
        assert all(0 <= line["validation"][key] <= 1 for key in ("accuracy", "precision", "recall"))
    for line in lines[1:]:
        assert set(line["policies"]) == {"qwen", "llama"}
        assert (
            sum(role["count"] for policy in line["policies"].values() for role in policy["roles"].values()) == 6 * 2 * 6
        )
        for policy in line["policies"].values():
            turns = sum(role["count"] for role in policy["roles"].values())
            assert policy["samples"] + policy["dropped"] + policy["not_trainable"] == turns
            assert policy["optimizer_steps"] == policy["samples"] // 16
            assert policy["grad_norm"] > 0
            assert 0 <= policy["clip_ratio"] < 1
            assert policy["engine_gap"] < 1e-4
            assert policy["learning_rate"] == pytest.approx(3e-4)
        assert {"rollout", "experience", "training", "sync", "step"} <= set(line["time"])
        assert line["generated_tokens"] > 0


def test_trained_policies_load_and_differ_from_their_base(straight):
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    for policy, base in {"qwen": "qwen2", "llama": "llama"}.items():
        folder = straight[0] / "policies" / policy
        trained = AutoModelForCausalLM.from_pretrained(folder)
        untrained = AutoModelForCausalLM.from_pretrained(ROOT / "data/toy/models" / base)
        assert type(trained) is type(untrained)
        pairs = zip(trained.state_dict().values(), untrained.state_dict().values(), strict=True)
        assert any(not torch.equal(ours, theirs) for ours, theirs in pairs)
        assert AutoTokenizer.from_pretrained(folder).chat_template


def test_stored_discussions_rescore_to_themselves_and_can_be_read(straight):
    file = straight[0] / "trajectories" / "step_00001.jsonl.gz"
    stored = gzip.decompress(file.read_bytes()).decode()
    assert marti("rescore", str(file), "--method", "comas") == stored
    question = json.loads(stored.splitlines()[0])["question"]["id"]
    seen = marti("view", str(straight[0]), "--question", question)
    assert question in seen
    assert "solution #0" in seen
    assert "reward" in seen


def test_saved_policies_measured_by_the_command_give_what_the_run_measured(straight, tmp_path):
    """Loaded anew, without actors: the same answers to the same questions with the same seed."""
    options = (
        "--benchmarks",
        "toy-math",
        "toy-coding",
        "--setups",
        "vanilla",
        "debate",
        "--limit",
        "5",
        "--out",
        tmp_path,
    )
    said = marti("evaluate", "--policies", str(straight[0]), *map(str, options))
    assert "trained/(mean)" in said and (tmp_path / "summary.md").exists()
    for stage, policy in itertools.product(("untrained", "trained"), ("qwen", "llama")):
        for cell in ("toy-math/vanilla", "toy-coding/debate"):
            file = f"{stage}/{policy}/{cell}/seed_1.jsonl"
            answers = [
                [json.loads(line) for line in (root / file).read_text().splitlines()]
                for root in (straight[0] / "evaluation", tmp_path)
            ]
            said = [[[turn["response"] for turn in line["turns"]] for line in lines] for lines in answers]
            assert said[0] == said[1] and len(said[0]) == 5, file


def test_a_finished_run_is_not_run_again_and_a_new_one_does_not_overwrite_it(straight, runs):
    before = (straight[0] / "metrics.jsonl").read_bytes()
    assert "is complete" in run(command(runs, "straight", "--resume", "auto"))
    refused = subprocess.run(command(runs, "straight"), cwd=ROOT, capture_output=True, text=True)
    assert refused.returncode != 0
    assert "--resume auto" in refused.stderr
    assert (straight[0] / "metrics.jsonl").read_bytes() == before


def test_a_killed_run_continues_to_the_same_metrics(straight, runs):
    """2 steps, SIGKILL, 2 steps: what is said, scored and rewarded as in 4 steps in one go; the numbers of training, which
    hold sums of floats in any order, nearly the same."""
    process = subprocess.Popen(
        command(runs, "killed"),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    seen = []
    for line in process.stdout:
        seen.append(line)
        if "step 2/4 " in line and "reward" not in line and " s (rollout" in line:
            os.kill(process.pid, signal.SIGKILL)
            break
    process.wait()
    assert process.returncode == -signal.SIGKILL, "".join(seen)
    said = run(command(runs, "killed", "--resume", "must"))
    assert "continuing after step 2" in said
    assert [line["step"] for line in metrics(runs / "killed")] == [0, 1, 2, 3, 4]
    for killed, whole in zip(metrics(runs / "killed"), metrics(straight[0]), strict=True):
        killed, whole = repeatable(killed), repeatable(whole)
        of_training = {key for key in whole if key.split("/")[-1] in ("loss", "grad_norm", "clip_ratio", "update_kl")}
        assert {key: killed[key] for key in of_training} == pytest.approx(
            {key: whole[key] for key in of_training}, rel=0.01, abs=1e-4
        )
        assert {key: killed.get(key) for key in killed.keys() - of_training} == {
            key: whole[key] for key in whole.keys() - of_training
        }


@pytest.mark.skipif(not REAL.exists(), reason="the real questions of shared/datasets/comas_validation are not here")
def test_two_steps_on_real_questions(runs):
    """MATH, KodCode and WebInstruct questions: long prompts, LaTeX, code fences, unit tests, truncation, verdicts."""
    names = ("math", "coding", "science")
    by_task = [json.loads((REAL / f"{name}.json").read_text()) for name in names]
    questions = [row for rows in itertools.zip_longest(*by_task) for row in rows if row]
    assert len(questions) == 500
    file = runs / "real.json"
    file.write_text(json.dumps(questions))
    settings = {
        "data.train": file, "evaluation.benchmarks": f"[{file}]", "evaluation.setups": "[vanilla, debate]",
        "evaluation.limit": 9, "evaluation.max_response_tokens": 12, "evaluation.every": "null",
        "train.steps": 2, "train.train_on_truncated": "true", "train.batch_size": 8, "train.micro_batch_size": 2,
        "train.forward_batch_size": 2, "rollout.questions_per_step": 12, "rollout.discussions_per_question": 1,
        "rollout.max_prompt_tokens": 2000, "rollout.max_response_tokens": 12,
    }  # fmt: skip
    run(command(runs, "real", **settings))
    lines = metrics(runs / "real")
    assert len(lines) == 2
    seen = []
    for line in lines:
        assert (line["discussions"], line["failed"]) == (12, 0)
        assert all(policy["optimizer_steps"] > 0 for policy in line["policies"].values())
        assert any(role["truncated"] > 0 for policy in line["policies"].values() for role in policy["roles"].values())
        seen += stored(runs / "real", line["step"])
    assert {record["question"]["task"] for record in seen} == set(names)
    assert all(len(record["turns"]) == 6 for record in seen)
    for setup, turns in (("vanilla", 1), ("debate", 7)):
        file = runs / "real" / "evaluation" / "trained" / "llama" / "real" / setup / "seed_1.jsonl"
        answers = [json.loads(line) for line in file.read_text().splitlines()]
        assert Counter(answer["question"]["task"] for answer in answers) == dict.fromkeys(names, 3)
        assert all(len(answer["turns"]) == turns and answer["verdict"]["verdict"] != "correct" for answer in answers)


@pytest.mark.skipif(not REAL.exists(), reason="the real questions of shared/datasets/comas_validation are not here")
def test_every_real_question_fits_and_what_is_too_long_is_shortened():
    """Every prompt of every role of all 500, beside texts that are too long: within the limit, the problem whole."""
    from transformers import AutoTokenizer

    from marti_ext.prompts import evaluation_prompt, scoring_prompt, solution_prompt
    from marti_ext.questions import load_questions
    from marti_ext.rollout import Speaker

    questions = [one for name in ("math", "coding", "science") for one in load_questions(REAL / f"{name}.json")]
    long = "x = 1\n" * 400
    speaker = Speaker("a", "p", None, AutoTokenizer.from_pretrained(ROOT / "data/toy/models/llama"), None)
    for question in questions:
        for prompt in (
            solution_prompt(question.task, question.prompt, (long, long)),
            evaluation_prompt(question.prompt, long, (long,)),
            scoring_prompt(question.prompt, long, long),
        ):
            ids, fitted = prompt.fit(speaker.encode, 2000)
            assert len(ids) <= 2000
            assert question.prompt in fitted.text()
