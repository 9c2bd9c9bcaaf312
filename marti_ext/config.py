"""The experiment file: its schema, how it is read and checked, and what it means in OpenRLHF's terms."""

import copy
import difflib
import functools
import json
import math
import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Union

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator

from marti_ext import benchmarks
from marti_ext.methods import METHODS
from marti_ext.questions import load_questions
from marti_ext.setups import SETUPS

ROOT = Path(__file__).resolve().parent.parent
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
NAME = re.compile(r"[A-Za-z0-9][\w.-]*")
NOT_YAML = (yaml.YAMLError, ValueError, RecursionError)  # the latter two: the 45th of March, thousands of brackets


def locate(name: str) -> Path:
    """A path as given, or else relative to the repository."""
    path = os.path.expanduser(name)
    return ROOT / path if not os.path.exists(path) and os.path.exists(ROOT / path) else Path(path)


def exists(name: str) -> bool:
    """Whether there is such a file or folder that may be looked at."""
    return os.path.exists(locate(name))


def is_local_model(model: str) -> bool:
    return exists(model) or not HUB_ID.fullmatch(model)


# ── The experiment file. What a single value shows to be wrong is found where the value is declared. ──


def _good_questions(name: str, info: ValidationInfo) -> str:
    """A question file without a bad row. One that is not there is wrong only where the run is to begin."""
    if exists(name):
        load_questions(locate(name))
    elif info.context:
        raise ValueError(f"{name}: no such file (data/README.md says what belongs into it)")
    return name


def _good_model(model: str, info: ValidationInfo) -> str:
    """A folder in HF format with a chat template; hub models are looked at when they are loaded."""
    if exists(model):
        if problems := _problems_of_model(locate(model)):
            raise ValueError("\n".join(f"{model}: {problem}" for problem in problems))
    elif is_local_model(model) and info.context:
        raise ValueError(f"{model}: no such folder; expected a model in HF format, or its name on the hub")
    return model


def _problems_of_model(folder: Path) -> list[str]:
    settings, tokenizer = (_read_json(folder / name) for name in ("config.json", "tokenizer_config.json"))
    if settings is None:
        return ["no readable config.json in it, so it is no model in HF format"]
    problems = []
    if not settings.get("architectures"):
        problems.append("its config.json names no architecture")
    if not [*folder.glob("*.safetensors"), *folder.glob("pytorch_model*.bin")]:
        problems.append("it holds no weights (*.safetensors)")
    if tokenizer is None:
        problems.append("no readable tokenizer_config.json in it")
    elif not tokenizer.get("chat_template") and not (folder / "chat_template.jinja").exists():
        problems.append(
            "its tokenizer has no chat template; take an instruction-tuned model "
            "or put a chat_template.jinja into the folder"
        )
    return problems


def _read_json(path: Path) -> dict | None:
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def _good_benchmark(name: str, info: ValidationInfo) -> str:
    """A known name, or a file; whether its questions have to be there, the run says."""
    if problem := benchmarks.problem_with(name):
        if info.context or name not in benchmarks.PAPER:
            raise ValueError(problem)
    else:
        benchmarks.load(name)
    return name


QuestionFile = Annotated[str, AfterValidator(_good_questions)]
Model = Annotated[str, AfterValidator(_good_model)]
BenchmarkName = Annotated[str, AfterValidator(_good_benchmark)]
MethodOptions = Annotated[Union[tuple(method.Options for method in METHODS.values())], Field(discriminator="name")]  # noqa: UP007


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, coerce_numbers_to_str=True)

    @field_validator("*", mode="before")
    @classmethod
    def _no_truth_for_a_number(cls, value: Any, info: ValidationInfo) -> Any:
        if isinstance(value, bool) and cls.model_fields[info.field_name].annotation in (int, float, int | None):
            raise ValueError(f"found {str(value).lower()}, expected a number")
        return value


class AgentConfig(Section):
    """One agent, or `count` alike. Agents that name the same policy share it; otherwise each has its own."""

    model: Model = Field(description="folder in HF format, or the name of a model on the Hugging Face hub")
    name: str = Field("agent", description="with count > 1, numbered: name-1, name-2, ...")
    count: int = Field(1, ge=1)
    policy: str | None = Field(None, description="the policy it acts through; its own by default")


class DataConfig(Section):
    train: QuestionFile = Field(description="question records, .jsonl or .json")
    validation: QuestionFile | None = Field(None, description="questions for what `evaluation.every` measures")


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
    dpo_beta: float = Field(0.1, gt=0, description="of DPO, for methods that prefer one turn to another")
    train_on_truncated: bool = False
    max_idle_steps: int = Field(3, ge=1, description="stop when a policy had no gradient in so many steps in a row")
    gradient_checkpointing: bool = False
    zero_stage: Literal[2, 3] = 2
    adam_offload: bool = Field(False, description="optimizer state in the memory of the CPU")
    packing: bool = Field(False, description="no padding in micro-batches; where flash-attn is installed")
    lora_rank: int = Field(0, ge=0)
    precision: Literal["auto", "bf16", "fp16"] = Field("auto", description="auto: bf16 with GPUs, else fp32")


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
    benchmarks: list[BenchmarkName] = Field([], description="measured before and after training; names or files")
    setups: list[Literal[tuple(SETUPS)]] = Field(["vanilla"], min_length=1)
    temperature: float = Field(0.7, ge=0)
    max_response_tokens: int = Field(2048, ge=1)
    limit: int | None = Field(None, ge=1, description="questions of a benchmark and of data.validation, the first ones")
    every: int | None = Field(
        None, ge=1, description="steps; discussions on data.validation show whether rewards are right (Table 6)"
    )


class CheckpointConfig(Section):
    every: int = Field(1, ge=1, description="steps")
    keep: int = Field(2, ge=1)


class LogConfig(Section):
    wandb_project: str | None = None


class Config(Section):
    name: str = Field(description="of the run: its folder under runs_dir")
    runs_dir: str = "runs"
    seed: int = Field(42, ge=0, lt=2**31)
    method: MethodOptions = Field(description="name, and the options of that method")
    agents: list[AgentConfig] = Field(min_length=1)
    data: DataConfig
    rollout: RolloutConfig = RolloutConfig()
    train: TrainConfig = TrainConfig()
    engine: EngineConfig = EngineConfig()
    gpus: GpuConfig = GpuConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    log: LogConfig = LogConfig()

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
        return METHODS[self.method.name](self.method, len(self.named_agents()))

    def engine_kind(self, has_gpu: bool) -> str:
        return self.engine.kind if self.engine.kind != "auto" else ("vllm" if has_gpu else "transformers")


SECTIONS = {"method": METHODS["comas"].Options, "agents": AgentConfig, "data": DataConfig} | {
    name: field.annotation for name, field in Config.model_fields.items() if isinstance(field.default, Section)
}


class ConfigError(ValueError):
    """Everything that is wrong with an experiment file, a line each."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        super().__init__("\n".join(f"- {problem}" for problem in problems))


def load_config(path: Path, overrides: Sequence[str] = (), must_exist: bool = False) -> Config:
    """Reads an experiment file, applies `a.b=c` overrides, checks it. Raises ConfigError with all problems.

    A question file or model folder that is there must be good; whether one has to be there, `must_exist` says.
    """
    if not path.is_file():
        raise ConfigError([f"{path}: no such file; the shipped experiments are in experiments/configs/"])
    return _checked(Config, _read_experiment(path), overrides, must_exist)


def _read_experiment(path: Path, readers: tuple[Path, ...] = ()) -> dict:
    """The settings in the file; with `like: OTHER.yaml` those of the file OTHER beside it, where it does not say otherwise.
    A method is replaced as a whole."""
    try:
        data = yaml.safe_load(path.read_bytes())
    except (OSError, *NOT_YAML) as error:
        raise ConfigError([f"{path}: not YAML: {error}"]) from None
    if not isinstance(data, dict):
        raise ConfigError([f"{path}: expected settings as `key: value`, found {type(data).__name__}"])
    if "like" not in data:
        return data
    other = path.parent / str(data.pop("like"))
    if not other.is_file() or other in (*readers, path):
        raise ConfigError([f"{path}: like: {other} is {'no file' if not other.is_file() else 'like this file itself'}"])
    return _merge(_read_experiment(other, (*readers, path)), data)


def _merge(settings: dict, changes: dict) -> dict:
    merged = settings | changes
    for key in settings.keys() & changes.keys() - {"method"}:
        if isinstance(settings[key], dict) and isinstance(changes[key], dict):
            merged[key] = _merge(settings[key], changes[key])
    return merged


def load_method(name: str, overrides: Sequence[str] = ()) -> Any:
    """The method of this name with `option=value` overrides, for reward rules alone. Raises ConfigError."""

    class OfMethod(Section):
        method: MethodOptions

    options = _checked(OfMethod, {"method": {"name": name}}, [f"method.{text}" for text in overrides]).method
    return METHODS[name](options, num_agents=1)


def _checked(schema: type[Section], data: dict, overrides: Sequence[str], must_exist: bool = False) -> Any:
    problems = [problem for text in overrides if (problem := _override(data, text))]
    try:
        config = schema.model_validate(data, context=must_exist)
    except ValidationError as error:
        wrong = {_where(one): _explain(one) for one in error.errors()}
        problems += [line for lines in wrong.values() for line in lines]
        raise ConfigError(problems + _contradictions_beside(data, wrong)) from None
    if schema is Config:
        problems += _contradictions(config)
    if problems:
        raise ConfigError(problems)
    return config


def _override(data: dict, text: str) -> str | None:
    """Sets `a.b.0.c=value` in data; returns what is wrong with it."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        return f"--set {text}: expected KEY=VALUE"
    try:
        value = yaml.safe_load(value)
    except NOT_YAML as error:
        why = str(error).splitlines()[0]
        return f"--set {text}: the value is not YAML ({why}); quote it, as in {key}='\"...\"'"
    node: Any = data
    path = key.split(".")
    for depth, part in enumerate(path):
        if isinstance(node, list):
            if not part.isdigit() or int(part) >= len(node):
                return (
                    f"--set {text}: {'.'.join(path[:depth])} has {len(node)} entries (from 0), {part!r} is none of them"
                )
            part = int(part)
        elif not isinstance(node, dict):
            return f"--set {text}: {'.'.join(path[:depth])} has no parts"
        if depth == len(path) - 1:
            node[part] = value
        elif isinstance(node, dict) and node.get(part) is None:
            node[part] = {}
        node = node[part]
    return None


def _where(detail: dict) -> str:
    """The setting that one of pydantic's errors is about, as in agents.0.model."""
    location = detail["loc"]
    if location[0] == "method" and len(location) > 1:  # pydantic names the kind of method, the file does not
        location = ("method", *location[2:])
    return ".".join(map(str, location))


def _explain(detail: dict) -> list[str]:
    """One of pydantic's errors in plain lines: where, what was found, what was expected."""
    kind, found, message = detail["type"], detail["input"], detail["msg"]
    where = _where(detail)
    if kind == "extra_forbidden":
        return [f"{where}: unknown setting{_nearest(where, _section(detail['loc']))}"]
    if kind == "missing":
        return [f"{where}: missing; it has no default"]
    if kind == "value_error":
        return [f"{where}: {line}" for line in str(detail["ctx"]["error"]).splitlines()]
    if kind.startswith("union_tag"):
        name = detail["ctx"].get("tag")
        return [f"{where}.name: {f'found {name!r}' if name else 'missing'}, expected one of {', '.join(METHODS)}"]
    if kind == "too_short":
        return [f"{where}: found {found!r}, expected at least {detail['ctx']['min_length']}"]
    if kind in ("model_type", "model_attributes_type"):
        return [f"{where}: found {found!r}, expected settings as `key: value`"]
    return [f"{where}: found {found!r}, expected {message.removeprefix('Input should be ').split(', unable')[0]}"]


def _section(location: tuple) -> type[BaseModel]:
    """The settings among which the last part of the location would be one."""
    if len(location) == 1:
        return Config
    return METHODS[location[1]].Options if location[0] == "method" else SECTIONS[location[0]]


def _nearest(where: str, section: type[BaseModel]) -> str:
    """The known setting of this name elsewhere, or the one with the most similar name."""
    part, _, name = where.rpartition(".")
    others = {key: other for key, other in SECTIONS.items() if key != part.split(".")[0]}
    elsewhere = {f"{key}.{field}": field for key, other in others.items() for field in other.model_fields}
    nearest = difflib.get_close_matches(name, [*section.model_fields, *elsewhere.values()], n=1)
    here = [field for field in nearest if field in section.model_fields]
    found = here or [path for path, field in elsewhere.items() if field in nearest]
    return f"; did you mean {' or '.join(found)}?" if found else f"; known here: {', '.join(section.model_fields)}"


def _contradictions(config: Config) -> list[str]:
    """What no single value shows."""
    checks = (_bad_names, _bad_method, _bad_evaluation, _bad_sizes, _bad_lengths, _bad_engine)
    return [problem for check in checks for problem in check(config)]


def _contradictions_beside(data: dict, wrong: Iterable[str]) -> list[str]:
    """The contradictions between the values that are good, as far as the file can be read without the `wrong` ones."""
    rest = copy.deepcopy(data)
    for where in wrong:
        *path, last = (int(part) if part.isdigit() else part for part in where.split("."))
        node = functools.reduce(lambda node, part: node[part], path, rest)
        if isinstance(node, dict):
            node.pop(last, None)
    try:
        config = Config.model_validate(rest)
    except ValidationError:  # without what is wrong, something is missing
        return []
    return [problem for problem in _contradictions(config) if not any(where in problem for where in wrong)]


def _bad_names(config: Config) -> list[str]:
    rule = "letters, digits, '.', '_' and '-' only, a letter or digit first"
    agents, models = config.named_agents(), {}
    names = [agent for agent, _, _ in agents]
    problems = [] if NAME.fullmatch(config.name) else [f"name: found {config.name!r}, expected a folder name: {rule}"]
    for name in sorted({name for part in agents for name in part[:2] if not NAME.fullmatch(name)}):
        problems.append(f"agents: found the name {name!r}, expected {rule}")
    for name in sorted({name for name in names if names.count(name) > 1}):
        problems.append(f"agents: {name!r} is there twice; give each entry its own name")
    for agent, policy, model in agents:
        if models.setdefault(policy, model) != model:
            problems.append(f"agents: {agent} shares policy {policy}, which is {models[policy]}, but names {model}")
    return problems


def _bad_method(config: Config) -> list[str]:
    try:
        config.make_method()
    except ValueError as error:
        return [str(error)]
    return []


def _bad_evaluation(config: Config) -> list[str]:
    problems, settings = [], config.evaluation
    if settings.every and not config.data.validation:
        problems.append(
            "evaluation.every: data.validation names no questions to measure; name a file, or leave `every` out"
        )
    for key, names in (
        ("benchmarks", [benchmarks.folder_of(name) for name in settings.benchmarks]),
        ("setups", settings.setups),
    ):
        for name in sorted({name for name in names if names.count(name) > 1}):
            problems.append(f"evaluation.{key}: {name} is there twice; leave one out (of files, the names count)")
    return problems


def _bad_sizes(config: Config) -> list[str]:
    train, world, problems = config.train, config.gpus.per_policy, []
    if METHODS[config.method.name].credit == "dpo" and train.micro_batch_size % 2:
        problems.append(
            f"train.micro_batch_size ({train.micro_batch_size}) must be even with method.name: {config.method.name}: both "
            "turns of a pair are in one micro-batch"
        )
    for field in ("micro_batch_size", "forward_batch_size"):
        if train.batch_size % (getattr(train, field) * world):
            problems.append(
                f"train.batch_size ({train.batch_size}) must be a multiple of train.{field} x gpus.per_policy "
                f"({getattr(train, field)} x {world}): actors with unequal shares wait for each other forever"
            )
    if not _bad_method(config) and (most := most_samples(config, steps=1)) < train.batch_size:
        problems.append(
            f"train.batch_size ({train.batch_size}): no policy gets so many turns in a step (at most {most:.0f}), so none "
            "would learn; lower it, or raise rollout.questions_per_step or rollout.discussions_per_question"
        )
    return problems


def _bad_lengths(config: Config) -> list[str]:
    prompt, response = config.rollout.max_prompt_tokens, longest_response(config)
    problems = []
    for model in sorted(set(config.policies().values())):
        limit = (_read_json(locate(model) / "config.json") or {}).get("max_position_embeddings")
        if isinstance(limit, int) and limit < prompt + response:
            problems.append(
                f"rollout.max_prompt_tokens + max_response_tokens ({prompt} + {response}) is more than the "
                f"{limit} positions of {model} (max_position_embeddings in its config.json); lower them"
            )
    return problems


def _bad_engine(config: Config) -> list[str]:
    engine, world, problems = config.engine, config.gpus.per_policy, []
    if engine.kind == "transformers" and (engine.per_policy, engine.tensor_parallel, world) != (1, 1, 1):
        problems.append(
            "engine.kind: transformers generates with the one actor of the policy; engine.per_policy, "
            "engine.tensor_parallel and gpus.per_policy must be 1 (or use vllm)"
        )
    if engine.kind != "transformers" and config.gpus.colocate and engine.per_policy * engine.tensor_parallel != world:
        problems.append(
            f"gpus.colocate: engine.per_policy x engine.tensor_parallel ({engine.per_policy} x {engine.tensor_parallel}) "
            f"must be gpus.per_policy ({world}), since they share the GPUs; or set gpus.colocate: false"
        )
    if config.train.lora_rank and engine.kind != "transformers":
        problems.append(
            "train.lora_rank: the weight sync sends adapters that vLLM does not know; use full weights (0) "
            "or engine.kind: transformers"
        )
    return problems


# ── What a run will take ──


def longest_response(config: Config) -> int:
    """Tokens, in training or evaluation."""
    evaluated = config.evaluation.max_response_tokens if config.evaluation.benchmarks else 0
    return max(config.rollout.max_response_tokens, evaluated)


def total_steps(config: Config, questions: int) -> int:
    return config.train.steps or max(1, config.train.epochs * questions // config.rollout.questions_per_step)


def discussions_per_step(config: Config) -> int:
    return config.rollout.questions_per_step * config.rollout.discussions_per_question


def turns_per_step(config: Config) -> int:
    return discussions_per_step(config) * config.make_method().turns_per_discussion()


def samples_per_step(config: Config) -> int:
    """Turns that are trained on, of all policies, at most."""
    return discussions_per_step(config) * config.make_method().samples_per_discussion()


def most_samples(config: Config, steps: int) -> float:
    """Of one policy. Turns fall to agents at random: four standard deviations more than the mean."""
    turns = samples_per_step(config) * steps
    agents = [policy for _, policy, _ in config.named_agents()]
    share = max(Counter(agents).values()) / len(agents)
    return turns * share + 4 * math.sqrt(turns * share * (1 - share))


def optimizer_steps(config: Config, steps: int) -> int:
    """Of one policy in a run, at most, for the schedule: a cosine would rise again past its end."""
    return max(1, math.ceil(most_samples(config, steps) / config.train.batch_size) * config.train.passes)


def gpus_needed(config: Config) -> int:
    actors = config.gpus.per_policy
    separate = not config.gpus.colocate and config.engine.kind != "transformers"
    engines = 0 if not separate else config.engine.per_policy * config.engine.tensor_parallel
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
    args.train.colocate_actor_ref = train.kl_weight > 0  # a reference shares its actor's GPUs
    args.rollout.n_samples_per_prompt = 1  # discussions are independent, not a group
    args.rollout.batch_size = args.rollout.vllm_generate_batch_size = train.batch_size
    args.rollout.micro_batch_size = train.forward_batch_size
    args.rollout.temperature, args.rollout.max_new_tokens = rollout.temperature, rollout.max_response_tokens
    args.data.max_len = rollout.max_prompt_tokens + longest_response(config)
    args.vllm.num_engines, args.vllm.tensor_parallel_size = engine.per_policy if vllm else 0, engine.tensor_parallel
    args.vllm.sync_backend, args.vllm.enable_prefix_caching = "nccl" if gpu else "gloo", engine.prefix_cache
    args.vllm.gpu_memory_utilization, args.vllm.enforce_eager = engine.gpu_memory, engine.eager or not gpu
    args.vllm.enable_sleep = args.ds.enable_sleep = colocate
    precision = train.precision if train.precision != "auto" else "bf16" if gpu else "fp32"
    args.ds.zero_stage, args.ds.param_dtype = train.zero_stage, precision
    args.ds.lora.rank = train.lora_rank
    flash = gpu and compat.flash_attn_installed()
    args.ds.attn_implementation = "flash_attention_2" if flash else "sdpa"
    args.ds.adam_offload, args.ds.packing_samples = train.adam_offload, train.packing and flash
    folder = config.run_dir.resolve()
    args.ckpt.path = str(folder / "checkpoints" / policy)
    args.ckpt.output_dir = str(folder / "policies" / policy)
    args.ckpt.max_num, args.ckpt.max_mem = config.checkpoint.keep + 1, math.inf  # the policy removes the oldest, later
    args.logger.wandb.key = None  # our own logger: OpenRLHF's writes its arguments, key included, to W&B
    cores = 1.0 / len(config.policies())
    credit = METHODS[config.method.name].credit
    if credit == "dpo":
        args.rollout.temperature = 1.0  # of the trainer's log-probs: DPO compares those of the model itself
    args.marti = type(args)(
        credit=credit, dpo_beta=train.dpo_beta, whitening=train.whitening, loss=train.loss, core_share=cores
    )
    return args


def resolve_model(model: str) -> str:
    return str(locate(model).resolve()) if is_local_model(model) else model


def problem_on_hub(model: str) -> str | None:
    """Why a model cannot be had from the hub; asked for once, so that nothing expensive starts in vain."""
    if cached_on_hub(model):
        return None
    from httpx import HTTPError
    from huggingface_hub import HfApi
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError

    try:
        HfApi().auth_check(model)
    except GatedRepoError:
        return f"{model}: gated on the hub; accept its terms there and set HF_TOKEN"
    except RepositoryNotFoundError:
        return f"{model}: no such folder, and no such model on the hub (or a private one: set HF_TOKEN)"
    except (HTTPError, OSError) as error:
        why = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
        return f"{model}: the hub cannot be reached ({why}); set a proxy or HF_ENDPOINT, or name a folder in HF format"
    return None


def cached_on_hub(model: str) -> bool:
    """Whether a hub model is in the local cache."""
    home = Path(os.environ.get("HF_HOME", Path.home() / ".cache" / "huggingface"))
    hub = Path(os.environ.get("HF_HUB_CACHE", home / "hub"))
    return (hub / f"models--{model.replace('/', '--')}").is_dir()
