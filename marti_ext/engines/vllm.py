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

    class RolloutActor(vllm_engine.RolloutRayActor.__ray_metadata__.modified_class):
        async def __init__(self, *positional, **kwargs) -> None:
            kwargs["trust_remote_code"] = args.marti.trust_remote_code  # OpenRLHF says True
            if not compat.has_gpu():
                kwargs["worker_extension_cls"] = "marti_ext.compat.CpuWorkerWrap"
                kwargs["max_num_seqs"] = 128
                os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")  # GiB
                # by default every engine binds to the same first cores
                os.environ["VLLM_CPU_OMP_THREADS_BIND"] = str(args.marti.index % os.cpu_count())
            await super().__init__(*positional, **kwargs)

        async def complete(self, prompt_ids: list[int], sampling: Sampling) -> Completion:
            from vllm import SamplingParams

            params = SamplingParams(
                max_tokens=sampling.max_tokens, temperature=sampling.temperature, seed=sampling.seed, logprobs=0
            )
            output = (await self.generate(prompt_ids, params)).outputs[0]
            log_probs = [step[token].logprob for step, token in zip(output.logprobs, output.token_ids, strict=True)]
            return Completion(list(output.token_ids), log_probs, output.finish_reason)

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
