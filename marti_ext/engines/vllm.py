"""vLLM engines: OpenRLHF's RolloutRayActor, made to answer one turn at a time.

`RolloutActor` is what runs in the engine's Ray process, `VllmEngines` what the driver talks to.
"""

from marti_ext import compat

compat.apply()

import asyncio  # noqa: E402
import os  # noqa: E402
from typing import Any  # noqa: E402

import ray  # noqa: E402

from marti_ext.engines import Completion, Sampling  # noqa: E402


def create_engines(args: Any, shared_pg: Any = None) -> list:
    """A policy's engines, by OpenRLHF's create_vllm_engines with our actor class in place of its own."""
    vllm_engine = compat.real_vllm_engine()
    vllm_engine.RolloutRayActor = ray.remote(RolloutActor)
    return vllm_engine.create_vllm_engines(
        num_engines=args.vllm.num_engines,
        tensor_parallel_size=args.vllm.tensor_parallel_size,
        pretrain=args.actor.model_name_or_path,
        seed=args.train.seed,
        full_determinism=False,
        enable_prefix_caching=args.vllm.enable_prefix_caching,
        enforce_eager=args.vllm.enforce_eager,
        max_model_len=args.data.max_len,
        shared_pg=shared_pg,
        gpu_memory_utilization=args.vllm.gpu_memory_utilization,
        vllm_enable_sleep=args.vllm.enable_sleep,
        logprobs_mode="processed_logprobs",  # of the distribution that was sampled from: temperature included
    )


class RolloutActor:
    """OpenRLHF's RolloutRayActor in a shell. Not a subclass: the actor group's processes hold handles to this class and
    would have to import vLLM to know it."""

    async def __init__(self, **kwargs) -> None:
        if not compat.has_gpu():
            kwargs |= {"worker_extension_cls": "marti_ext.compat.CpuWorkerWrap", "max_num_seqs": 128}
            os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")  # GiB
            # each engine a core of its own: by default all bind to the same; logical GPUs tell them apart
            os.environ["VLLM_CPU_OMP_THREADS_BIND"] = str(int(ray.get_gpu_ids()[0]) % os.cpu_count())
        actor_class = compat.real_vllm_engine().RolloutRayActor.__ray_metadata__.modified_class
        self.engine = actor_class.__new__(actor_class)
        await self.engine.__init__(**kwargs)

    async def complete(self, prompt_ids: list[int], sampling: Sampling) -> Completion:
        from vllm import SamplingParams

        # vLLM 0.29 on CPU rewinds a request's own generator after a chunk of a prompt, which a CPU generator cannot do
        seed = sampling.seed if compat.has_gpu() else None
        params = SamplingParams(max_tokens=sampling.max_tokens, temperature=sampling.temperature, seed=seed, logprobs=0)
        output = (await self.engine.generate(prompt_ids, params)).outputs[0]
        log_probs = [step[token].logprob for step, token in zip(output.logprobs, output.token_ids, strict=True)]
        return Completion(list(output.token_ids), log_probs, output.finish_reason)

    # What OpenRLHF's actor group and trainer call

    async def init_process_group(self, *args, **kwargs) -> None:
        await self.engine.init_process_group(*args, **kwargs)

    async def update_weight(self, *args, **kwargs) -> None:
        await self.engine.update_weight(*args, **kwargs)

    async def update_weight_cuda_ipc(self, *args, **kwargs) -> None:
        await self.engine.update_weight_cuda_ipc(*args, **kwargs)

    async def reset_prefix_cache(self) -> None:
        await self.engine.reset_prefix_cache()

    async def sleep(self, *args, **kwargs) -> None:
        await self.engine.sleep(*args, **kwargs)

    async def wake_up(self, *args, **kwargs) -> None:
        await self.engine.wake_up(*args, **kwargs)


class VllmEngines:
    """Driver side: the engines of one policy; a turn goes to the one with the fewest in hand."""

    def __init__(self, engines: list, sleeps: bool) -> None:
        self.engines, self.sleeps = engines, sleeps
        self.in_hand = [0] * len(engines)

    async def generate(self, prompt_ids: list[int], sampling: Sampling) -> Completion:
        index = self.in_hand.index(min(self.in_hand))
        self.in_hand[index] += 1
        try:
            return await self.engines[index].complete.remote(prompt_ids, sampling)
        finally:
            self.in_hand[index] -= 1

    async def wake_up(self) -> None:
        """Before a rollout, where actor and engine share a GPU."""
        if self.sleeps:
            await asyncio.gather(*(engine.wake_up.remote() for engine in self.engines))

    async def sleep(self) -> None:
        if self.sleeps:
            await asyncio.gather(*(engine.sleep.remote() for engine in self.engines))
