"""The experiment file: its schema, how it is read and checked, and what it means in OpenRLHF's terms."""

import difflib
import json
import math
import os
import re
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from marti_ext.methods import METHODS
from marti_ext.questions import BadData, load_questions

ROOT = Path(__file__).resolve().parent.parent
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
POLICY_NAME = re.compile(r"[A-Za-z0-9][\w.-]*")


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid")


class AgentConfig(Section):
    """One agent, or `count` alike. Agents that name the same policy share it; otherwise each has its own."""

    model: str = Field(description="folder in HF format, or the name of a model on the Hugging Face hub")
    name: str = Field("agent", description="with count > 1, numbered: name-1, name-2, ...")
    count: int = Field(1, ge=1)
    policy: str | None = Field(None, description="the policy it acts through; its own by default")


class DataConfig(Section):
    train: str = Field(description="question records, .jsonl or .json")
    evaluation: str | None = Field(None, description="held-out questions, measured before and after training")


class RolloutConfig(Section):
    questions_per_step: int = Field(64, ge=1, description="Table 2: macro rollout batch size")
    discussions_per_question: int = Field(4, ge=1, description="Table 2: number of prompt reuse")
    temperature: float = Field(1.0, gt=0)
    max_prompt_tokens: int = Field(28672, ge=16)
    max_response_tokens: int = Field(4096, ge=1)
    requests_per_engine: int = Field(256, ge=1, description="turns in flight at one engine")
    retries: int = Field(2, ge=0, description="of a failed turn, before its question is left out")


class TrainConfig(Section):
    epochs: int = Field(1, ge=1, description="passes over the training questions")
    steps: int | None = Field(None, ge=1, description="instead of epochs")
    batch_size: int = Field(64, ge=1, description="turns per optimizer step, of one policy")
    micro_batch_size: int = Field(2, ge=1)
    forward_batch_size: int = Field(
        2, ge=1, description="Table 2: micro rollout batch size; log-probs before the update"
    )
    passes: int = Field(1, ge=1, description="over the turns of a step")
    learning_rate: float = Field(1e-6, gt=0)
    weight_decay: float = Field(0.0, ge=0)
    scheduler: Literal["constant", "constant_with_warmup", "linear", "cosine_with_min_lr"] = "constant"
    warmup_ratio: float = Field(0.0, ge=0, lt=1)
    max_grad_norm: float = Field(1.0, gt=0)
    clip: float = Field(0.2, gt=0, lt=1)
    discount: float = Field(1.0, gt=0, le=1)
    kl_weight: float = Field(0.0, ge=0, description="beta of Eq. 9; above 0 a reference group is started")
    whitening: Literal["batch", "per_role"] = "batch"
    loss: Literal["token_mean", "sequence_sum"] = "token_mean"
    train_on_truncated: bool = False
    max_idle_steps: int = Field(3, ge=1, description="stop when a policy had no gradient in so many steps in a row")
    gradient_checkpointing: bool = False
    zero_stage: Literal[2, 3] = 2
    lora_rank: int = Field(0, ge=0)
    precision: Literal["bf16", "fp16"] = "bf16"


class EngineConfig(Section):
    kind: Literal["auto", "vllm", "transformers"] = Field("auto", description="auto: vllm with GPUs, else transformers")
    per_policy: int = Field(1, ge=1)
    tensor_parallel: int = Field(1, ge=1)
    gpu_memory: float = Field(0.5, gt=0, lt=1, description="share of a GPU that vLLM may take")
    prefix_cache: bool = True
    eager: bool = Field(False, description="vLLM without CUDA graphs")


class GpuConfig(Section):
    per_policy: int = Field(1, ge=1, description="actors per policy (data parallel)")
    colocate: bool = Field(True, description="engine and actor share GPUs (hybrid engine, sleep mode)")


class EvaluationConfig(Section):
    temperature: float = Field(0.7, ge=0)
    max_response_tokens: int = Field(2048, ge=1)
    limit: int | None = Field(None, ge=1, description="questions, the first of the file")


class CheckpointConfig(Section):
    every: int = Field(1, ge=1, description="steps")
    keep: int = Field(2, ge=1)


class LogConfig(Section):
    wandb_project: str | None = None


class Config(Section):
    name: str = Field(description="of the run: its folder under runs_dir")
    runs_dir: str = "runs"
    seed: int = 42
    method: dict[str, Any] = Field(description="name, and the options of that method")
    agents: list[AgentConfig] = Field(min_length=1)
    data: DataConfig
    rollout: RolloutConfig = RolloutConfig()
    train: TrainConfig = TrainConfig()
    engine: EngineConfig = EngineConfig()
    gpus: GpuConfig = GpuConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    log: LogConfig = LogConfig()
    trust_remote_code: bool = Field(False, description="run code that comes with a model")

    @model_validator(mode="before")
    @classmethod
    def _method_defaults(cls, data: Any) -> Any:
        """Writes the method's defaults out, so that the stored config says everything."""
        method = data.get("method") if isinstance(data, dict) else None
        if isinstance(method, dict) and method.get("name") in METHODS:
            options = METHODS[method["name"]].Options(**method)
            return data | {"method": options.model_dump()}
        return data

    @property
    def run_dir(self) -> Path:
        return Path(self.runs_dir) / self.name

    def named_agents(self) -> list[tuple[str, str, str]]:
        """(agent, policy, model) of every agent, in order."""
        named = []
        for entry in self.agents:
            for number in range(1, entry.count + 1):
                name = f"{entry.name}-{number}" if entry.count > 1 else entry.name
                named.append((name, entry.policy or name, entry.model))
        return named

    def policies(self) -> dict[str, str]:
        """policy -> model."""
        return {policy: model for _, policy, model in self.named_agents()}

    def make_method(self) -> Any:
        method = METHODS[self.method["name"]]
        return method(method.Options(**self.method), len(self.named_agents()))

    def engine_kind(self, has_gpu: bool) -> str:
        return self.engine.kind if self.engine.kind != "auto" else ("vllm" if has_gpu else "transformers")


class ConfigError(ValueError):
    """Everything that is wrong with an experiment file, a line each."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        super().__init__("\n".join(f"- {problem}" for problem in problems))


def load_config(path: Path, overrides: list[str] = ()) -> Config:
    """Reads an experiment file, applies `a.b=c` overrides, checks it. Raises ConfigError with all problems."""
    if not path.is_file():
        raise ConfigError([f"{path}: no such file; the shipped experiments are in experiments/configs/"])
    try:
        data = yaml.safe_load(path.read_text())
    except yaml.YAMLError as error:
        raise ConfigError([f"{path}: not YAML: {error}"]) from None
    if not isinstance(data, dict):
        raise ConfigError([f"{path}: expected settings as `key: value`, found {type(data).__name__}"])
    problems = [problem for override in overrides if (problem := _override(data, override))]
    try:
        config = Config(**data)
    except ValidationError as error:
        raise ConfigError(problems + [_explain(detail, data) for detail in error.errors()]) from None
    problems += _contradictions(config)
    if problems:
        raise ConfigError(problems)
    return config


def _override(data: dict, text: str) -> str | None:
    """Sets `a.b.0.c=value` in data; returns what is wrong with it."""
    key, equals, value = text.partition("=")
    if not equals:
        return f"--set {text}: expected KEY=VALUE"
    node: Any = data
    *path, last = key.split(".")
    for part in path:
        if isinstance(node, list):
            if not part.isdigit() or int(part) >= len(node):
                return f"--set {text}: the list has {len(node)} entries, {part!r} is none of them"
            node = node[int(part)]
        elif isinstance(node, dict):
            node = node.setdefault(part, {})
    if isinstance(node, list) and last.isdigit() and int(last) < len(node):
        node[int(last)] = yaml.safe_load(value)
    elif isinstance(node, dict):
        number = re.fullmatch(r"[+-]?\d+(\.\d*)?[eE][+-]?\d+", value)  # YAML reads 1e-4 as text
        node[last] = float(value) if number else yaml.safe_load(value)
    else:
        return f"--set {text}: {'.'.join(path)} has no parts"
    return None


def _explain(detail: dict, data: dict) -> str:
    """One line for one of pydantic's errors: where, what was found, what was expected."""
    where = ".".join(map(str, detail["loc"])) or "the file"
    if detail["type"] == "extra_forbidden":
        return f"{where}: unknown setting" + _nearest(detail["loc"])
    if detail["type"] == "missing":
        return f"{where}: missing"
    message = detail["msg"].removeprefix("Input should be ").removeprefix("Value error, ")
    return f"{where}: found {detail['input']!r}, expected {message}"


def _nearest(location: tuple) -> str:
    """The known setting with the most similar name, in the same section first."""
    section: Any = Config
    for part in location[:-1]:
        if isinstance(part, str):
            found = section.model_fields[part].annotation if part in section.model_fields else METHODS.get("")
            section = found if isinstance(found, type) and issubclass(found, BaseModel) else AgentConfig
    known = list(section.model_fields)
    match = difflib.get_close_matches(str(location[-1]), known, n=1, cutoff=0.5)
    return f"; did you mean {match[0]}?" if match else f"; known here: {', '.join(known)}"


def _contradictions(config: Config) -> list[str]:
    """What no single field shows."""
    problems = []
    name = config.method.get("name")
    if name not in METHODS:
        problems.append(f"method.name: found {name!r}, expected one of {', '.join(METHODS)}")
    else:
        try:
            config.make_method()
        except ValueError as error:
            problems.append(str(error))
    if not POLICY_NAME.fullmatch(config.name):
        problems.append(f"name: {config.name!r} is a folder name: letters, digits, '.', '_' and '-' only")
    agents = [agent for agent, _, _ in config.named_agents()]
    for agent in sorted({agent for agent in agents if agents.count(agent) > 1}):
        problems.append(f"agents: {agent!r} is there twice; give each entry its own name")
    for agent, policy, model in config.named_agents():
        if not POLICY_NAME.fullmatch(policy) or not POLICY_NAME.fullmatch(agent):
            problems.append(f"agents: {agent!r} / {policy!r}: names are letters, digits, '.', '_' and '-' only")
        if config.policies()[policy] != model:
            problems.append(f"agents: {agent} shares policy {policy} but names another model ({model})")
    train, world = config.train, config.gpus.per_policy
    for field in ("micro_batch_size", "forward_batch_size"):
        if train.batch_size % (getattr(train, field) * world):
            problems.append(
                f"train.batch_size ({train.batch_size}) must be a multiple of train.{field} x gpus.per_policy "
                f"({getattr(train, field)} x {world}): actors with unequal shares wait for each other forever"
            )
    engine = config.engine
    if engine.kind == "transformers" and (engine.per_policy, engine.tensor_parallel, world) != (1, 1, 1):
        problems.append(
            "engine.kind: transformers generates with the one actor of the policy; engine.per_policy, "
            "engine.tensor_parallel and gpus.per_policy must be 1 (or use vllm)"
        )
    if engine.kind == "vllm" and config.gpus.colocate and engine.per_policy * engine.tensor_parallel != world:
        problems.append(
            f"gpus.colocate: engine.per_policy x engine.tensor_parallel ({engine.per_policy} x {engine.tensor_parallel}) "
            f"must be gpus.per_policy ({world}), since they share the GPUs; or set gpus.colocate: false"
        )
    if train.lora_rank and engine.kind == "vllm":
        problems.append("train.lora_rank: the weight sync sends adapters that vLLM does not know; use full weights (0)")
    return problems + _bad_files(config)


def _bad_files(config: Config) -> list[str]:
    """Data and model folders that are there but wrong, or local ones that are not there."""
    problems = []
    for field in ("train", "evaluation"):
        name = getattr(config.data, field)
        if name is None:
            continue
        path = locate(name)
        if not path.is_file():
            problems.append(f"data.{field}: {name}: no such file (data/README.md says how to make it)")
            continue
        try:
            load_questions(path)
        except BadData as error:
            problems.append(f"data.{field}: {error}")
    for model in sorted(set(config.policies().values())):
        problems += _bad_model(model)
    return problems


def locate(name: str) -> Path:
    """A path as given, or else relative to the repository."""
    path = Path(name).expanduser()
    return path if path.exists() or path.is_absolute() or not (ROOT / path).exists() else ROOT / path


def is_local_model(model: str) -> bool:
    return locate(model).exists() or not HUB_ID.fullmatch(model)


def _bad_model(model: str) -> list[str]:
    """What is wrong with a local model folder; hub models are looked at when they are loaded."""
    if not is_local_model(model):
        return []
    folder = locate(model)
    if not folder.is_dir():
        return [f"agents: model {model}: no such folder"]
    try:
        architectures = json.loads((folder / "config.json").read_text()).get("architectures")
    except (OSError, json.JSONDecodeError, AttributeError):
        return [f"agents: model {model}: no readable config.json in it, so it is no model in HF format"]
    problems = []
    if not architectures:
        problems.append(f"agents: model {model}: config.json names no architecture")
    if not [*folder.glob("*.safetensors"), *folder.glob("*.bin")]:
        problems.append(f"agents: model {model}: it holds no weights (*.safetensors)")
    try:
        tokenizer = json.loads((folder / "tokenizer_config.json").read_text())
    except (OSError, json.JSONDecodeError):
        return [*problems, f"agents: model {model}: no readable tokenizer_config.json in it"]
    if not tokenizer.get("chat_template") and not (folder / "chat_template.jinja").exists():
        problems.append(
            f"agents: model {model}: its tokenizer has no chat template; take an instruction-tuned model "
            "or put a chat_template.jinja into the folder"
        )
    return problems


# ── What a run will take ──


def total_steps(config: Config, questions: int) -> int:
    return config.train.steps or max(1, config.train.epochs * questions // config.rollout.questions_per_step)


def turns_per_step(config: Config) -> int:
    discussions = config.rollout.questions_per_step * config.rollout.discussions_per_question
    return discussions * config.make_method().turns_per_discussion()


def optimizer_steps(config: Config, steps: int) -> int:
    """Of one policy in a run, for the schedule. Turns fall to policies at random, so this allows four standard
    deviations more than the mean: a cosine would rise again past its end."""
    turns = turns_per_step(config) * steps
    share = 1 / len(config.policies())
    most = turns * share + 4 * math.sqrt(turns * share * (1 - share))
    return max(1, math.ceil(most / config.train.batch_size) * config.train.passes)


def gpus_needed(config: Config) -> int:
    actors = config.gpus.per_policy
    engines = 0 if config.gpus.colocate else config.engine.per_policy * config.engine.tensor_parallel
    return len(config.policies()) * (actors + engines)


def openrlhf_args(config: Config, policy: str, index: int, kind: str) -> Any:
    """The namespace that OpenRLHF's command line would build for this policy, each policy its own."""
    from marti_ext import compat

    args = compat.openrlhf_args()
    gpu, vllm = compat.has_gpu(), kind == "vllm"
    train, rollout, engine = config.train, config.rollout, config.engine
    colocate = gpu and vllm and config.gpus.colocate
    args.actor.model_name_or_path = resolve_model(config.policies()[policy])
    args.actor.num_nodes = args.ref.num_nodes = 1
    args.actor.num_gpus_per_node = args.ref.num_gpus_per_node = config.gpus.per_policy
    args.actor.gradient_checkpointing_enable = train.gradient_checkpointing
    args.actor.adam.lr, args.actor.adam.weight_decay = train.learning_rate, train.weight_decay
    args.actor.lr_scheduler, args.actor.lr_warmup_ratio = train.scheduler, train.warmup_ratio
    args.actor.max_norm, args.actor.eps_clip = train.max_grad_norm, train.clip
    args.actor.eps_clip_low_high = (train.clip, train.clip)
    args.algo.advantage.estimator, args.algo.advantage.gamma = "reinforce", train.discount
    args.algo.kl.init_coef, args.algo.kl.estimator = train.kl_weight, "k1"
    args.critic.model_name_or_path = None
    args.reward.remote_url = ["the method rewards"]
    args.train.seed = config.seed + 1000 * index
    args.train.batch_size, args.train.micro_batch_size = train.batch_size, train.micro_batch_size
    args.train.max_epochs, args.train.colocate_all = train.passes, colocate
    args.rollout.n_samples_per_prompt = 1  # see DESIGN: discussions are independent, not a group
    args.rollout.batch_size = args.rollout.vllm_generate_batch_size = train.batch_size
    args.rollout.micro_batch_size = train.forward_batch_size
    args.rollout.temperature, args.rollout.max_new_tokens = rollout.temperature, rollout.max_response_tokens
    args.data.max_len = rollout.max_prompt_tokens + rollout.max_response_tokens
    args.vllm.num_engines, args.vllm.tensor_parallel_size = engine.per_policy if vllm else 0, engine.tensor_parallel
    args.vllm.sync_backend, args.vllm.enable_prefix_caching = "nccl" if gpu else "gloo", engine.prefix_cache
    args.vllm.gpu_memory_utilization, args.vllm.enforce_eager = engine.gpu_memory, engine.eager or not gpu
    args.vllm.enable_sleep = args.ds.enable_sleep = colocate
    args.ds.zero_stage, args.ds.param_dtype = train.zero_stage, train.precision
    args.ds.lora.rank = train.lora_rank
    args.ds.attn_implementation = "flash_attention_2" if gpu and compat.flash_attn_installed() else "sdpa"
    folder = config.run_dir.resolve()
    args.ckpt.path = str(folder / "checkpoints" / policy)
    args.ckpt.output_dir = str(folder / "policies" / policy)
    args.ckpt.max_num, args.ckpt.max_mem = config.checkpoint.keep + 1, math.inf
    args.logger.wandb.key = None  # our own logger: OpenRLHF's writes its arguments, key included, to W&B
    cores = 1.0 / len(config.policies())
    args.marti = type(args)(
        whitening=train.whitening, loss=train.loss, core_share=cores, trust_remote_code=config.trust_remote_code
    )
    return args


def resolve_model(model: str) -> str:
    return str(locate(model).resolve()) if is_local_model(model) else model


def cached_on_hub(model: str) -> bool:
    """Whether a hub model is in the local cache."""
    home = Path(os.environ.get("HF_HOME", Path.home() / ".cache" / "huggingface"))
    hub = Path(os.environ.get("HF_HUB_CACHE", home / "hub"))
    return (hub / f"models--{model.replace('/', '--')}").is_dir()
