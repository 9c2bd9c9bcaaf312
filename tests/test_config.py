"""The experiment file: what is read, what is refused and with which words, and the two files that ship."""

import json
import os
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from marti_ext import dryrun
from marti_ext.config import ConfigError, load_config, load_method, most_samples, optimizer_steps

ROOT = Path(__file__).parent.parent
PAPER = ROOT / "experiments/configs/paper/comas.yaml"
TOY = ROOT / "experiments/configs/toy/comas.yaml"
ROW = {"id": "1", "task": "math", "source": "s", "prompt": "1 + 1?", "answer": "2"}


def make_model(folder: Path, **tokenizer) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text('{"architectures": ["LlamaForCausalLM"], "max_position_embeddings": 40960}')
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": "{{ messages }}"} | tokenizer))
    (folder / "model.safetensors").write_bytes(b"")
    return folder


@pytest.fixture
def folder(tmp_path) -> Path:
    """Holds a model, a question file and a good experiment file, `experiment.yaml`."""
    make_model(tmp_path / "model")
    (tmp_path / "train.jsonl").write_text(json.dumps(ROW))
    settings = {
        "name": "one",
        "runs_dir": str(tmp_path / "runs"),
        "method": {"name": "comas"},
        "agents": [{"model": str(tmp_path / "model"), "name": "a"}, {"model": str(tmp_path / "model"), "name": "b"}],
        "data": {"train": str(tmp_path / "train.jsonl")},
    }
    (tmp_path / "experiment.yaml").write_text(yaml.safe_dump(settings))
    return tmp_path


def load(folder: Path, *overrides: str, **more):
    return load_config(folder / "experiment.yaml", overrides, **more)


def problems(folder: Path, *overrides: str, **more) -> list[str]:
    with pytest.raises(ConfigError) as error:
        load(folder, *overrides, **more)
    return error.value.problems


# ── Reading ──


def test_a_file_like_another_says_only_what_differs(folder):
    (folder / "base.yaml").write_text(
        "like: experiment.yaml\nname: two\nrollout: {temperature: 0.5}\nmethod: {name: comas, rounds: 3}"
    )
    (folder / "more.yaml").write_text("like: base.yaml\nname: three\nrollout: {retries: 7}\nmethod: {name: ttrl}")
    config = load_config(folder / "more.yaml", ["rollout.questions_per_step=5"])
    assert (config.name, config.method.name, len(config.agents)) == ("three", "ttrl", 2)
    assert (config.rollout.temperature, config.rollout.retries, config.rollout.questions_per_step) == (0.5, 7, 5)
    assert not hasattr(config.method, "rounds")  # another method's options do not survive


@pytest.mark.parametrize(
    ("like", "expected"),
    [("none.yaml", "is no file"), ("a.yaml", "is like this file itself"), ("b.yaml", "is like this")],
)
def test_a_file_like_nothing_or_like_itself_is_an_error(folder, like, expected):
    (folder / "a.yaml").write_text(f"like: {like}")
    (folder / "b.yaml").write_text("like: a.yaml")
    with pytest.raises(ConfigError, match=f"like: .*{expected}"):
        load_config(folder / "a.yaml")


def test_an_option_of_another_method_is_no_suggestion(folder):
    (found,) = problems(folder, "method={name: ttrl, rounds: 2}")
    assert found == "method.rounds: unknown setting; known here: name, samples, elsewhere"


def test_dpo_needs_whole_pairs_in_a_micro_batch(folder):
    overrides = ["method={name: srlm}", "train.micro_batch_size=1", "train.batch_size=4"]
    (found,) = problems(folder, *overrides)
    assert "train.micro_batch_size (1) must be even with method.name: srlm" in found


def test_the_methods_defaults_are_written_out_and_the_stored_config_says_the_same(folder):
    config = load(folder, "method.rounds=3")
    assert config.model_dump()["method"]["rounds"] == 3
    assert config.model_dump()["method"]["horizon"] == 2
    (folder / "again.yaml").write_text(yaml.safe_dump(config.model_dump(), sort_keys=False))
    assert load_config(folder / "again.yaml") == config


def test_overrides_reach_lists_numbers_null_booleans_and_empty_sections(folder):
    make_model(folder / "other")
    text = (folder / "experiment.yaml").read_text() + "train:\nrollout: {temperature: 7e-1}\n"
    (folder / "experiment.yaml").write_text(text)
    config = load(
        folder, f"agents.0.model={folder}/other", "train.learning_rate=1e-4", "train.steps=5", "data.validation=null",
        "train.train_on_truncated=true", "name=7", "agents.1={name: c, count: 2, model: org/model}",
    )  # fmt: skip
    assert config.agents[0].model == f"{folder}/other"
    assert config.train.learning_rate == 1e-4 and config.train.steps == 5 and config.train.train_on_truncated is True
    assert config.rollout.temperature == 0.7 and config.data.validation is None and config.name == "7"
    assert [name for name, _, _ in config.named_agents()] == ["a", "c-1", "c-2"]


def test_agents_that_name_a_policy_share_it(folder):
    config = load(folder, "agents.0.policy=p", "agents.1.policy=p")
    assert list(config.policies()) == ["p"]


def test_shared_policies_get_more_turns(folder):
    more = [{"model": str(folder / "model"), "name": name, "policy": "p"} for name in "cde"]
    config = load(folder, f"agents={json.dumps([*more, {'model': str(folder / 'model'), 'name': 'alone'}])}")
    turns = 64 * 4 * 8 * 3
    assert turns * 0.75 < most_samples(config, 1) < turns * 0.8
    assert optimizer_steps(config, 10) >= 10 * turns * 0.75 / 64


# ── Refusing ──


def test_everything_wrong_is_listed_at_once(folder):
    (folder / "train.jsonl").write_text('{"id": 1}\nnonsense\n')
    (folder / "empty").mkdir()
    found = problems(
        folder, "train.stepps=3", "method.ronds=4", "agents.0.modle=x", f"agents.1.model={folder}/empty", "train.clip=2",
        "train.learning_rate=abc", "gpus.per_policy=0", "agents.7.name=x", "runs_dir.x=1", "novalue", "name=[",
    )  # fmt: skip
    text = "\n".join(found)
    for line in (
        "train.stepps: unknown setting; did you mean steps?",
        "method.ronds: unknown setting; did you mean rounds?",
        "agents.0.modle: unknown setting; did you mean model?",
        f"agents.1.model: {folder}/empty: no readable config.json in it, so it is no model in HF format",
        "train.clip: found 2, expected less than 1",
        "train.learning_rate: found 'abc', expected a valid number",
        "gpus.per_policy: found 0, expected greater than or equal to 1",
        f"data.train: {folder}/train.jsonl, line 1: `id` must be a string",
        f"data.train: {folder}/train.jsonl, line 2: not JSON",
        "--set agents.7.name=x: agents has 2 entries (from 0), '7' is none of them",
        "--set runs_dir.x=1: runs_dir has no parts",
        "--set novalue: expected KEY=VALUE",
        "--set name=[: the value is not YAML",
    ):
        assert line in text
    assert len(found) == 13
    assert not any("\n" in problem or "pydantic" in problem for problem in found)


def test_contradictions_between_good_values_are_listed_beside_the_bad_ones(folder):
    found = problems(folder, "train.clip=2", "train.batch_size=7", "train.micro_batch_size=x", "method.ronds=3")
    assert len(found) == 4
    assert any("train.batch_size (7) must be a multiple of train.forward_batch_size" in problem for problem in found)
    assert not any("multiple of train.micro_batch_size" in problem for problem in found)  # that is not known


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("learning_rate=1", "learning_rate: unknown setting; did you mean train.learning_rate?"),
        ("temperature=1", "temperature: unknown setting; did you mean rollout.temperature or evaluation.temperature?"),
        ("zzz=1", "zzz: unknown setting; known here: name, runs_dir"),
        ("method.name=comass", "method.name: found 'comass', expected one of comas, comas_without_evaluation, "),
        ("method=comas", "method: found 'comas', expected settings as `key: value`"),
        ("method={rounds: 2}", "method.name: missing, expected one of comas, comas_without_evaluation, "),
        ("method.rounds=0", "method.rounds: found 0, expected greater than or equal to 1"),
        ("train=3", "train: found 3, expected settings as `key: value`"),
        ("train.whitening=none", "train.whitening: found 'none', expected 'batch' or 'per_role'"),
        ("train.learning_rate=.inf", "train.learning_rate: found inf, expected a finite number"),
        ("train.steps=1.5", "train.steps: found 1.5, expected a valid integer"),
        ("train.steps=true", "train.steps: found true, expected a number"),
        ("agents=[]", "agents: found [], expected at least 1"),
        ("agents=[{name: x}]", "agents.0.model: missing"),
        ("seed=-1", "seed: found -1, expected greater than or equal to 0"),
        ("name=../x", "name: found '../x', expected a folder name"),
        ("agents.0.name=a b", "agents: found the name 'a b', expected letters"),
        ("agents.1.name=a", "agents: 'a' is there twice"),
        ("train.micro_batch_size=3", "train.batch_size (64) must be a multiple of train.micro_batch_size x gpus.per_policy (3 x 1)"),
        ("train.batch_size=8192", "train.batch_size (8192): no policy gets so many turns in a step"),
        ("engine.per_policy=2", "gpus.colocate: engine.per_policy x engine.tensor_parallel (2 x 1) must be gpus.per_policy (1)"),
        ("train.lora_rank=8", "train.lora_rank: "),
        ("rollout.max_prompt_tokens=65536", "is more than the 40960 positions of"),
    ],
)  # fmt: skip
def test_one_wrong_setting_is_one_plain_line(folder, override, expected):
    (found,) = problems(folder, override)
    assert expected in found


def test_settings_that_exclude_each_other(folder):
    (found,) = problems(folder, "method.schedule=parallel", "method.rounds=3")
    assert "method.rounds (3) must be a multiple of the number of agents (2)" in found
    make_model(folder / "other")
    (found,) = problems(folder, "agents.0.policy=p", "agents.1.policy=p", f"agents.1.model={folder}/other")
    assert "b shares policy p" in found
    (found,) = problems(folder, "engine.kind=transformers", "gpus.per_policy=2")
    assert "engine.kind: transformers generates with the one actor" in found


def test_a_file_that_is_no_experiment(tmp_path):
    for content in (b"just text", b"a: [", b"\xff\xfe\xfa", b"- 1", b""):
        (tmp_path / "x.yaml").write_bytes(content)
        with pytest.raises(ConfigError, match=r"x\.yaml"):
            load_config(tmp_path / "x.yaml")
    with pytest.raises(ConfigError, match="no such file"):
        load_config(tmp_path / "none.yaml")


KEYS = st.sampled_from(["name", "train", "train.clip", "agents", "agents.0", "agents.0.model", "method", "data.train"])


@settings(max_examples=30)
@given(KEYS | st.text(max_size=8), st.text(max_size=12) | st.sampled_from(["{}", "[1]", "2024-13-45", "{a: 1}", "~"]))
def test_no_override_crashes(key, value):
    try:
        load_config(TOY, [f"{key}={value}"])
    except ConfigError as error:
        assert error.problems


def test_the_options_of_a_method_alone():
    assert load_method("comas", ["unreadable=drop"]).options.unreadable == "drop"
    for name, overrides, expected in (
        ("comas", ["unreadible=drop"], "method.unreadible: unknown setting; did you mean unreadable?"),
        ("nope", [], "method.name: found 'nope', expected one of comas"),
        ("comas", ["unreadable"], "--set method.unreadable: expected KEY=VALUE"),
    ):
        with pytest.raises(ConfigError, match=expected):
            load_method(name, overrides)


# ── Models and data that are not there ──


def test_models_that_are_none(folder):
    make_model(folder / "silent", chat_template=None)
    make_model(folder / "light").joinpath("model.safetensors").unlink()
    make_model(folder / "mute").joinpath("tokenizer_config.json").write_text("[]")
    for name, expected in {
        "silent": "its tokenizer has no chat template",
        "light": "it holds no weights",
        "mute": "no readable tokenizer_config.json",
        "train.jsonl": "no readable config.json",
    }.items():
        (found,) = problems(folder, f"agents.0.model={folder / name}")
        assert found.startswith(f"agents.0.model: {folder / name}: ") and expected in found
    (folder / "silent" / "chat_template.jinja").write_text("{{ messages }}")
    assert load(folder, f"agents.0.model={folder}/silent")


def test_what_is_not_there_stops_a_run_and_is_listed_by_a_dry_run(folder):
    absent = [f"data.train={folder}/none.jsonl", f"agents.0.model={folder}/nothing", "train.epochs=2"]
    found = problems(folder, *absent, "train.clip=3", must_exist=True)
    assert len(found) == 3 and all("no such" in line for line in found if "clip" not in line)
    text = dryrun.describe(load(folder, *absent))
    lacking = text[text.index("Lacking") :]
    assert f"{folder}/none.jsonl: no such file" in lacking and f"{folder}/nothing: no such folder" in lacking
    assert "turns             6,144 a step, in all unknown until the data is there" in text
    assert "turns             6,144 a step, 43,008 in all" in dryrun.describe(load(folder, *absent, "train.steps=7"))


def test_bad_rows_fail_a_dry_run_too(folder):
    (folder / "train.jsonl").write_text("[]\n")
    (found,) = problems(folder)
    assert found == f"data.train: {folder}/train.jsonl, line 1: expected a JSON object, found list"


# ── GPUs ──


def gpus(monkeypatch, count: int) -> None:
    listing = "".join(f"GPU {index}: NVIDIA H100 80GB HBM3 (UUID: GPU-{index})\n" for index in range(count))
    for name in ("RAY_ADDRESS", "CUDA_VISIBLE_DEVICES", "DS_ACCELERATOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(dryrun.shutil, "which", lambda name: name if count else None)
    done = SimpleNamespace(stdout=listing, returncode=0)
    monkeypatch.setattr(dryrun.subprocess, "run", lambda *_, **__: done)


def test_gpus_are_counted_as_a_run_would_see_them(monkeypatch):
    gpus(monkeypatch, 4)
    assert dryrun.visible_gpus() == 4
    for allowed, count in {"": 0, "-1": 0, "2": 1, "0,1,3": 3}.items():
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", allowed)
        assert dryrun.visible_gpus() == count
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    assert dryrun.visible_gpus() == 0


def test_more_gpus_than_there_are(folder, monkeypatch):
    gpus(monkeypatch, 1)
    (line,) = dryrun.missing_gpus(load(folder))
    assert line.startswith("GPUs: 2 needed, 1 here")
    (line,) = dryrun.missing_gpus(load(folder, "gpus.colocate=false"))
    assert line.startswith("GPUs: 4 needed, 1 here")
    monkeypatch.setenv("RAY_ADDRESS", "first:6379")
    assert not dryrun.missing_gpus(load(folder))


def test_local_models_run_on_the_cpu_and_hub_models_only_when_asked(folder, monkeypatch):
    gpus(monkeypatch, 0)
    hub = [f"agents.{index}.model=org/big" for index in (0, 1)]
    assert not dryrun.missing_gpus(load(folder))
    assert dryrun.missing_gpus(load(folder, *hub))
    assert not dryrun.missing_gpus(load(folder, *hub, "engine.kind=transformers"))
    assert dryrun.missing_gpus(load(folder, "gpus.per_policy=2", "engine.per_policy=2"))


def test_who_uses_which_gpus(folder, monkeypatch):
    gpus(monkeypatch, 8)
    text = dryrun.describe(load(folder, "gpus.colocate=false", "engine.tensor_parallel=2", "train.kl_weight=0.1"))
    assert "agents: b  GPU group 1: 1 GPU(s) for actor + reference, 2 for vLLM" in text
    assert "shared by actor and 1 vLLM" in dryrun.describe(load(folder))


# ── The files that ship ──


@pytest.mark.parametrize("file", sorted((ROOT / "experiments/configs").rglob("*.yaml")), ids=lambda file: file.stem)
def test_every_shipped_experiment_loads(file):
    assert dryrun.describe(load_config(file))


def test_every_row_of_table_2():
    """CoMAS, Appendix C. AdamW, gradient clipping and DeepSpeed are OpenRLHF's only way."""
    config = load_config(PAPER)
    rollout, train, method = config.rollout, config.train, config.method
    assert set(config.policies().values()) == {"Qwen/Qwen2.5-3B-Instruct"}  # Foundation model
    assert len(config.policies()) == len(config.named_agents()) == 4  # Number of trained agents
    assert (method.name, method.rounds, method.evaluations) == ("comas", 8, 1)  # Number of solution, evaluation rounds
    assert method.horizon == 2  # Horizon for discussion history
    assert rollout.max_prompt_tokens == 28672  # Token limit for prompts
    assert rollout.max_response_tokens == 4096  # Token limit for responses
    assert rollout.temperature == 1.0  # Training temperature
    assert config.evaluation.temperature == 0.7  # Evaluation temperature
    assert train.discount == 1.0  # Discount factor
    assert train.clip == 0.2  # Clipping epsilon
    assert train.kl_weight == 0.0  # Weight of KL penalty
    assert train.epochs == 1 and train.steps == 2000 // 64  # Number of training epochs
    assert rollout.discussions_per_question == 4  # Number of prompt reuse
    assert train.batch_size == 64  # Macro training batch size
    assert train.micro_batch_size == 2  # Micro training batch size
    assert rollout.questions_per_step == 64  # Macro rollout batch size
    assert train.forward_batch_size == 2  # Micro rollout batch size
    assert train.learning_rate == 1e-6  # Learning rate
    assert train.weight_decay == 0.0  # Weight decay
    assert train.max_grad_norm == 1.0  # Gradient norm; Gradient clipping
    assert train.gradient_checkpointing  # Gradient checkpoint
    assert train.precision == "bf16"  # Mixed precision
    assert config.engine.kind == "vllm"  # Enable vLLM
    assert train.zero_stage == 3  # Enable DeepSpeed


def test_the_paper_is_counted_without_its_data():
    text = dryrun.describe(load_config(PAPER))
    for line in ("31, each 64 questions x 4 discussions", "6,144 a step, 190,464 in all", "about 24 a step and policy"):
        assert line in text
    assert f"{64 * 4 * 24 * 4096:,} a step" in text


def test_a_gpu_query_that_fails_counts_none(monkeypatch):
    gpus(monkeypatch, 2)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: SimpleNamespace(stdout="GPU 0", returncode=9))
    assert dryrun.visible_gpus() == 0
    assert "CUDA_VISIBLE_DEVICES" not in os.environ
