"""The Ray class of a policy: OpenRLHF's PolicyModelActor that can also generate, resume and report. Runs in a worker."""

from marti_ext import compat

compat.apply()

import os  # noqa: E402
import resource  # noqa: E402

import ray  # noqa: E402
import torch  # noqa: E402
from openrlhf.models import PolicyLoss  # noqa: E402
from openrlhf.trainer.ray.launcher import ReferenceModelActor  # noqa: E402
from openrlhf.trainer.ray.ppo_actor import PolicyModelActor  # noqa: E402
from transformers import set_seed  # noqa: E402

from marti_ext.engines import Completion, Sampling  # noqa: E402
from marti_ext.engines.transformers import Decoder  # noqa: E402


class SequenceSumLoss(PolicyLoss):
    """Eq. 11 as printed: the sum over a sequence's tokens, averaged over the sequences of the optimizer step."""

    def forward(self, *args, batch_num_tokens, global_batch_size, **kwargs):
        return super().forward(*args, batch_num_tokens=global_batch_size, global_batch_size=global_batch_size, **kwargs)


def use_cores(share: float) -> None:
    """Without a GPU, gives this process its share of the cores; Ray would allow it one."""
    if not compat.has_gpu():
        torch.set_num_threads(max(1, int(os.cpu_count() * share)))


class _PolicyActor(PolicyModelActor.__ray_metadata__.modified_class):
    def init_model_from_pretrained(self, strategy, pretrain, max_steps=None, vllm_engines=None) -> None:
        use_cores(strategy.args.marti.core_share)
        super().init_model_from_pretrained(strategy, pretrain, max_steps, vllm_engines)
        if strategy.args.marti.loss == "sequence_sum":
            self.trainer.actor_loss_fn.__class__ = SequenceSumLoss
        self.decoder: Decoder | None = None

    def decode(self, requests: list[tuple[int, list[int], Sampling]], steps: int) -> list[tuple[int, Completion]]:
        """Engine `transformers`: see Decoder.advance."""
        if self.decoder is None:
            eos = self.actor.model.module.generation_config.eos_token_id
            eos = set(eos) if isinstance(eos, list) else {eos} - {None}
            self.decoder = Decoder(self.actor.model.module, eos | {self.tokenizer.eos_token_id})
        return self.decoder.advance(requests, steps)

    def seed(self, seed: int) -> None:
        """Seeds what the next fit draws. Called every step, so that a resumed run draws what an unbroken one does."""
        set_seed((seed + self._rank) % 2**32)

    def load_checkpoint(self, tag: str) -> None:
        """Weights, optimizer and schedule of the checkpoint `tag`. OpenRLHF's own loading takes the newest there is,
        which after a kill may be another step for each policy."""
        folder = os.path.join(self.strategy.args.ckpt.path, "_actor")
        if sleeps := self.strategy.args.ds.enable_sleep:
            self.reload_states()
        loaded, _ = self.strategy.load_ckpt(self.actor.model, folder, tag=tag)
        if loaded is None:
            raise FileNotFoundError(f"no checkpoint {tag} in {folder}")
        if sleeps:
            self.offload_states()

    def peak_memory(self) -> float:
        """GiB: of the GPU where there is one, else of this process."""
        if compat.has_gpu():
            return torch.cuda.max_memory_allocated() / 2**30
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


class _ReferenceActor(ReferenceModelActor.__ray_metadata__.modified_class):
    def init_model_from_pretrained(self, strategy, pretrain) -> None:
        use_cores(strategy.args.marti.core_share)
        super().init_model_from_pretrained(strategy, pretrain)


PolicyActor = ray.remote(num_gpus=1)(_PolicyActor)
ReferenceActor = ray.remote(num_gpus=1)(_ReferenceActor)
