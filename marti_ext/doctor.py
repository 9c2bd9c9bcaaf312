"""What is installed and what works here: each line a real check, with a remedy where it fails."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version

PACKAGES = (
    "openrlhf",
    "deepspeed",
    "ray",
    "torch",
    "transformers",
    "datasets",
    "pandas",
    "matplotlib",
    "math-verify",
    "pydantic",
)


def doctor() -> int:
    """Prints a line per check as it is made; returns how many failed."""
    checks: dict[str, tuple[Callable[[], str], str]] = {
        "Python": (_python, "use Python 3.11 (./setup.sh finds it, or PYTHON=... ./setup.sh)"),
        "compiler": (_compiler, "install g++: DeepSpeed compiles its optimizer at first use"),
        "packages": (_packages, "run ./setup.sh"),
        "sandbox": (
            _sandbox,
            "install bubblewrap (bwrap), or allow user namespaces: model-written programs run beside our files here",
        ),
        "GPU": (_gpu, "the driver or a CUDA build of torch is missing; without a GPU the toy profile still runs"),
        "flash-attn": (_flash_attn, ""),
        "Ray": (_ray, "is another Ray running? `ray status`, or unset RAY_ADDRESS"),
        "DeepSpeed": (
            _deepspeed,
            "see the error; rm -r .venv/torch_extensions .venv/.installed, then ./setup.sh, builds it anew",
        ),
        "transformers engine": (_transformers_engine, "run ./setup.sh; the toy policies are in data/toy/models"),
        "vLLM engine": (_vllm, "run ./setup.sh; engine.kind: transformers works without vLLM"),
    }
    failed = weak = 0
    for name, (check, remedy) in checks.items():
        print(f"{name:<20} ...", end="", flush=True)
        began = time.time()
        try:
            result, mark = check(), "ok "
        except UserWarning as warning:  # it works, but not as well as it could
            result, mark = f"{warning}\n{'':<25}{remedy}", "!! "
            weak += 1
        except Exception as error:  # whatever is wrong is what the doctor is here to say
            result, mark = f"{type(error).__name__}: {str(error).strip().splitlines()[-1] if str(error) else ''}", "NO "
            result += f"\n{'':<25}{remedy}"
            failed += 1
        print(f"\r{name:<20} {mark} {result} ({time.time() - began:.0f} s)", flush=True)
    marked = f", {weak} not as well as it could (!!)" if weak else ""
    print(f"everything works{marked}" if not failed else f"{failed} of {len(checks)} checks failed{marked}")
    return failed


def _python() -> str:
    if sys.version_info[:2] != (3, 11):
        raise RuntimeError(f"this is Python {sys.version.split()[0]}")
    return sys.version.split()[0]


def _compiler() -> str:
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        raise RuntimeError("neither g++ nor clang++ is there")
    return subprocess.run([compiler, "--version"], capture_output=True, text=True).stdout.splitlines()[0]


def _packages() -> str:
    missing = []
    for package in PACKAGES:
        try:
            version(package)
        except PackageNotFoundError:
            missing.append(package)
    if missing:
        raise RuntimeError(f"not installed: {', '.join(missing)}")
    return ", ".join(f"{package} {version(package)}" for package in PACKAGES[:5])


def _sandbox() -> str:
    """Runs a program as the coding verifier does."""
    from marti_ext.tasks.sandbox import isolation

    if isolation().startswith("limits"):
        raise UserWarning(isolation())
    return isolation()


def _gpu() -> str:
    from marti_ext.dryrun import visible_gpus

    count = visible_gpus()
    if not count:
        return "none: everything runs on the CPU"
    import torch

    total = sum(
        float((torch.ones(1000, 1000, device=f"cuda:{index}") @ torch.ones(1000, 1, device=f"cuda:{index}")).sum())
        for index in range(count)
    )
    if total != 1e6 * count:
        raise RuntimeError(f"a product on the GPU gave {total}")
    return f"{count} x {torch.cuda.get_device_name(0)}"


def _flash_attn() -> str:
    try:
        return version("flash-attn")
    except PackageNotFoundError:
        return "not installed: attention is PyTorch's own (sdpa)"


def _ray() -> str:
    import ray

    ray.init(log_to_driver=False, include_dashboard=False, logging_level="ERROR")
    answer = ray.get(ray.remote(num_cpus=0)(lambda: 6 * 7).remote())
    resources = ray.cluster_resources()
    ray.shutdown()
    if answer != 42:
        raise RuntimeError(f"a task returned {answer}")
    return f"a task ran; {resources.get('CPU', 0):g} CPUs, {resources.get('GPU', 0):g} GPUs"


def _deepspeed() -> str:
    """Builds or loads the optimizer that training uses."""
    from marti_ext import compat

    compat.apply()
    from deepspeed.ops.op_builder import FusedAdamBuilder

    FusedAdamBuilder().load()
    return "its Adam is compiled and loads"


def _transformers_engine() -> str:
    from marti_ext import compat

    compat.apply()
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from marti_ext.config import locate
    from marti_ext.engines import Sampling
    from marti_ext.engines.transformers import Decoder

    folder = locate("data/toy/models/qwen2")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    decoder = Decoder(AutoModelForCausalLM.from_pretrained(folder), {tokenizer.eos_token_id})
    prompt = tokenizer.encode("<|im_start|>user\nProblem:\n2 + 2?<|im_end|>\n<|im_start|>assistant\n")
    finished = decoder.advance([(0, prompt, Sampling(16, 1.0, 0))], steps=16)
    return f"a toy policy wrote {len(finished[0][1].token_ids)} tokens"


def _vllm() -> str:
    """Starts a real engine on a toy policy, in a process of its own."""
    from marti_ext.config import locate

    code = (
        "import sys, vllm\n"
        "engine = vllm.LLM(sys.argv[1], enforce_eager=True, max_model_len=256, gpu_memory_utilization=0.3)\n"
        "out = engine.generate('2 + 2', vllm.SamplingParams(max_tokens=4))\n"
        "print('tokens:', len(out[0].outputs[0].token_ids), vllm.__version__)\n"
    )
    environment = os.environ | {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "0"}
    command = [sys.executable, "-c", code, str(locate("data/toy/models/qwen2"))]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    line = next((line for line in result.stdout.splitlines() if line.startswith("tokens:")), None)
    if line is None:
        raise RuntimeError((result.stderr or result.stdout)[-300:])
    return f"vLLM {line.split()[2]} wrote {line.split()[1]} tokens"
