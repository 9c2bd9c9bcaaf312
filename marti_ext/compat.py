"""The only place that touches upstream: what OpenRLHF 0.11.2 needs to run here, without a GPU as with one.

`apply()` is called on import by the modules that define our Ray classes, so it is in force in every process that uses
them and in no other. Every patch says why it is there and when it can go.
"""

import argparse
import ast
import importlib.machinery
import importlib.util
import itertools
import os
import sys
from datetime import datetime
from functools import cache
from pathlib import Path
from types import ModuleType, SimpleNamespace

VLLM_ENGINE = "openrlhf.trainer.ray.vllm_engine"
SAMPLES_GENERATOR = "openrlhf.trainer.ppo_utils.samples_generator"


@cache
def apply() -> None:
    """Patches upstream in this process, once."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    # DeepSpeed compiles its optimizer here, with the ninja of the environment; setup.sh has it done beforehand
    os.environ.setdefault("TORCH_EXTENSIONS_DIR", str(Path(sys.prefix, "torch_extensions")))
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    _defer_vllm()
    if not flash_attn_installed():
        _stand_in_for_flash_attn()
    if not has_gpu():
        os.environ.setdefault("DS_ACCELERATOR", "cpu")
        _cuda_calls_without_cuda()
        _openrlhf_on_cpu()


def has_gpu() -> bool:
    """Whether to use GPUs: there is one, and DeepSpeed's DS_ACCELERATOR=cpu does not say otherwise."""
    import torch

    return os.environ.get("DS_ACCELERATOR") != "cpu" and torch.cuda.is_available()


def build_extensions() -> None:
    """Compiles what DeepSpeed would compile in the first run, in every process at once: about a minute."""
    apply()
    from deepspeed.accelerator import get_accelerator

    builders = ["FusedAdamBuilder"] if has_gpu() else ["FusedAdamBuilder", "ShareMemCommBuilder"]
    for name in builders:
        get_accelerator().create_op_builder(name).load()


def flash_attn_installed() -> bool:
    return "flash_attn" not in sys.modules and importlib.util.find_spec("flash_attn") is not None


def _defer_vllm() -> None:
    """Two modules that OpenRLHF's trainer imports import vLLM: 28 s and 1 GiB in every process, also where no engine is
    made. Until it is needed, `vllm_engine` is a stand-in; `samples_generator` is one for good, our rollout is in its
    place. Can go once OpenRLHF imports vLLM where it makes engines."""
    if VLLM_ENGINE in sys.modules:
        return
    engine, generator = ModuleType(VLLM_ENGINE), ModuleType(SAMPLES_GENERATOR)

    def deferred(name):
        return lambda *args, **kwargs: getattr(real_vllm_engine(), name)(*args, **kwargs)

    engine.create_vllm_engines = deferred("create_vllm_engines")
    engine.batch_vllm_engine_call = deferred("batch_vllm_engine_call")
    generator.SamplesGenerator = None
    sys.modules[VLLM_ENGINE], sys.modules[SAMPLES_GENERATOR] = engine, generator


def real_vllm_engine() -> ModuleType:
    """OpenRLHF's own vLLM module; imports vLLM."""
    if not hasattr(sys.modules.get(VLLM_ENGINE), "RolloutRayActor"):
        del sys.modules[VLLM_ENGINE]
        import openrlhf.trainer.ray

        openrlhf.trainer.ray.vllm_engine = importlib.import_module(VLLM_ENGINE)
    return sys.modules[VLLM_ENGINE]


def _stand_in_for_flash_attn() -> None:
    """OpenRLHF imports flash-attn at the top of `ring_attn_utils` for padding helpers, which transformers has too.
    Can go once OpenRLHF imports it where ring attention is used."""
    import transformers.modeling_flash_attention_utils as helpers
    from einops import rearrange

    names = ("flash_attn", "flash_attn.bert_padding", "flash_attn.utils", "flash_attn.utils.distributed")
    modules = {name: ModuleType(name) for name in names}
    for name, module in modules.items():
        module.__spec__ = importlib.machinery.ModuleSpec(name, None)
        sys.modules[name] = module
    padding = modules["flash_attn.bert_padding"]
    padding.index_first_axis, padding.rearrange = helpers._index_first_axis, rearrange
    padding.pad_input, padding.unpad_input = helpers._pad_input, helpers._unpad_input
    modules["flash_attn.utils.distributed"].all_gather = None  # ring attention only


def _cuda_calls_without_cuda() -> None:
    """OpenRLHF asks CUDA for the device and synchronises with it; without a GPU these become harmless.
    Each is a function of its own: torch._dynamo refuses one object under two names.
    Can go once OpenRLHF uses torch.accelerator."""
    import torch

    torch.cuda.current_device = lambda: "cpu"
    torch.cuda.set_device = lambda device: None
    torch.cuda.synchronize = lambda device=None: None
    torch.cuda.current_stream = lambda device=None: None


def _openrlhf_on_cpu() -> None:
    """OpenRLHF names "cuda" where it builds its device mesh, its replay buffer and its weight-sync group, and knows no
    precision but two that many a CPU only emulates (a training step in bf16 took seven times one in fp32).
    Can go with the patches above, and once `param_dtype` may be fp32."""
    import openrlhf.trainer.ppo_utils.replay_buffer as replay_buffer
    import openrlhf.trainer.ray.ppo_actor as ppo_actor
    import openrlhf.utils.deepspeed.deepspeed as strategy
    import openrlhf.utils.utils as utils
    import torch

    make_mesh = strategy.init_device_mesh
    strategy.init_device_mesh = lambda device, *args, **kwargs: make_mesh("cpu", *args, **kwargs)

    to_dtype = utils.convert_to_torch_dtype  # imported where it is called, so replacing it here is enough
    utils.convert_to_torch_dtype = lambda name: torch.float32 if name == "fp32" else to_dtype(name)

    class CpuTorch:
        """torch, but torch.device("cuda:...") is the CPU."""

        def __getattr__(self, name):
            return getattr(torch, name)

        def device(self, spec):
            return torch.device("cpu" if str(spec).startswith("cuda") else spec)

    replay_buffer.torch = CpuTorch()
    ppo_actor.stateless_init_process_group = cpu_weight_group


def cpu_weight_group(address: str, port: int, rank: int, world_size: int, device: object = None):
    """What OpenRLHF's stateless_init_process_group is on GPUs, over vLLM's StatelessProcessGroup."""
    from vllm.distributed.utils import StatelessProcessGroup

    group = StatelessProcessGroup.create(host=address, port=port, rank=rank, world_size=world_size)
    return SimpleNamespace(broadcast=lambda tensor, src=0, stream=None: group.broadcast(tensor, src))


class _CpuWorkerWrap:
    """vLLM worker extension for weight sync on CPU, in place of OpenRLHF's WorkerWrap, which receives on CUDA.
    Can go once OpenRLHF's WorkerWrap takes the worker's device."""

    def init_process_group(self, address, port, rank_offset, world_size, group_name, backend="gloo", use_ray=False):
        import torch
        from vllm.distributed.utils import StatelessProcessGroup

        rank = torch.distributed.get_rank() + rank_offset
        self._weights = StatelessProcessGroup.create(host=address, port=port, rank=rank, world_size=world_size)

    def update_weight(self, name, dtype, shape, empty_cache=False):
        import torch

        weight = self._weights.broadcast(torch.empty(shape, dtype=dtype), 0)
        self.model_runner.model.load_weights(weights=[(name, weight)])


def __getattr__(name: str):
    """`compat.CpuWorkerWrap`: a vLLM worker looks it up before it loads the model. That is the moment to switch oneDNN
    off, which packs weights so that they cannot be reloaded in place; a tied lm_head would stay stale without an error.
    Can go once vLLM can reload packed weights."""
    if name != "CpuWorkerWrap":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import vllm._custom_ops

    vllm._custom_ops._supports_onednn = False
    return _CpuWorkerWrap


def openrlhf_args() -> SimpleNamespace:
    """OpenRLHF's own defaults as the nested namespace its classes take.

    Its parser stands under `if __name__ == "__main__"` and cannot be imported, so the statements up to parse_args are
    run here. Can go once the parser is a function.
    """
    from openrlhf.utils.config import hierarchize

    folder = importlib.util.find_spec("openrlhf").submodule_search_locations[0]
    script = ast.parse(Path(folder, "cli", "train_ppo_ray.py").read_text())
    main = next(node for node in script.body if isinstance(node, ast.If))
    statements = list(itertools.takewhile(lambda node: "parse_args" not in ast.unparse(node), main.body))
    scope = {"argparse": argparse, "datetime": datetime}
    exec(compile(ast.Module(statements, []), "openrlhf.cli.train_ppo_ray", "exec"), scope)
    return hierarchize(scope["parser"].parse_args([]))
