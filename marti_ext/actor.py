"""The Ray class of a policy: OpenRLHF's PolicyModelActor that can also generate, resume and report. Runs in a worker."""

from marti_ext import compat

compat.apply()

import os  # noqa: E402
import resource  # noqa: E402

import ray  # noqa: E402
import torch  # noqa: E402
from openrlhf.models import DPOLoss, PolicyLoss  # noqa: E402
from openrlhf.trainer.ppo_utils import NaiveReplayBuffer  # noqa: E402
from openrlhf.trainer.ray.launcher import ReferenceModelActor  # noqa: E402
from openrlhf.trainer.ray.ppo_actor import PolicyModelActor  # noqa: E402
from transformers import set_seed  # noqa: E402

from marti_ext.engines import Completion, Sampling  # noqa: E402
from marti_ext.engines.transformers import Decoder  # noqa: E402


class SequenceSumLoss(PolicyLoss):
    """Eq. 11 as printed: the sum over a sequence's tokens, averaged over the sequences of the optimizer step."""

    def forward(self, *args, batch_num_tokens, global_batch_size, **kwargs):
        return super().forward(*args, batch_num_tokens=global_batch_size, global_batch_size=global_batch_size, **kwargs)


class PairBuffer(NaiveReplayBuffer):
    """Samples come and go in pairs, the preferred one first; a micro-batch holds whole pairs."""

    def __len__(self) -> int:
        return len(self.items) // 2

    def __getitem__(self, index: int) -> list:
        return self.items[2 * index : 2 * index + 2]

    def collate_fn(self, pairs: list):
        return super().collate_fn([sample for pair in pairs for sample in pair])


class PairLoss(torch.nn.Module):
    """DPO (Rafailov et al., 2023) in the place of the policy loss. The reference is the policy before the step, whose
    log-probs (B, A) come with the samples. What OpenRLHF logs as clip ratio and KL is here the share of pairs in which the
    preferred one gained more, and the mean margin of the gains."""

    def __init__(self, beta: float) -> None:
        super().__init__()
        self.loss = DPOLoss(beta)

    def forward(self, log_probs, reference, advantages, *, action_mask, dp_size, global_batch_size, **_):
        of_sequence = [(values * action_mask).sum(-1) for values in (log_probs, reference)]
        (chosen, rejected), (chosen_before, rejected_before) = ((one[0::2], one[1::2]) for one in of_sequence)
        loss, gain, other_gain = self.loss(chosen, rejected, chosen_before, rejected_before)
        share = len(log_probs) / global_batch_size * dp_size  # of the optimizer step
        return loss * share, (gain > other_gain).float().mean(), (gain - other_gain).mean(), None, None


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
        if strategy.args.marti.credit == "dpo":
            self.trainer.actor_loss_fn = PairLoss(strategy.args.marti.dpo_beta)
            self.trainer.replay_buffer.__class__ = PairBuffer
            self.trainer.replay_buffer.sample_batch_size //= 2
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
