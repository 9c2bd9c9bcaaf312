"""Turns become OpenRLHF experience, rewards become advantages."""

from marti_ext import compat

compat.apply()

import torch  # noqa: E402
from openrlhf.models.utils import masked_mean  # noqa: E402
from openrlhf.trainer.ppo_utils.experience import Experience  # noqa: E402
from openrlhf.trainer.ppo_utils.experience_maker import RemoteExperienceMaker  # noqa: E402

from marti_ext.trajectory import Turn  # noqa: E402


def to_experience(turn: Turn) -> Experience:
    """One turn as one sample: the tokens that the engine read and wrote, the reward on the last of them.

    sequences (1, T), action_mask (1, T-1) true where the next token is of the response, rewards (1,). The role travels
    in `labels`.
    """
    prompt, response = len(turn.prompt_ids), len(turn.response_ids)
    if not prompt or not response:
        raise ValueError(
            f"turn {turn.id} ({turn.role}) of {turn.agent} has no prompt or no response tokens: not trainable"
        )
    total = prompt + response
    action_mask = torch.zeros(1, total - 1, dtype=torch.bool)
    action_mask[:, prompt - 1 :] = True
    rollout_log_probs = torch.zeros(1, total - 1)
    rollout_log_probs[:, prompt - 1 :] = torch.tensor(turn.log_probs)
    reward = torch.tensor([turn.reward], dtype=torch.float32)
    return Experience(
        sequences=torch.tensor([turn.prompt_ids + turn.response_ids]),
        attention_mask=torch.ones(1, total, dtype=torch.long),
        action_mask=action_mask,
        rollout_log_probs=rollout_log_probs,
        rewards=reward,
        response_length=torch.tensor([float(response)]),
        total_length=torch.tensor([float(total)]),
        truncated=torch.tensor([float(turn.truncated)]),
        labels=[turn.role],
        info={"reward": reward.clone()},
    )


class ExperienceMaker(RemoteExperienceMaker):
    """REINFORCE++ for one policy (Eq. 9 and 10). OpenRLHF computes returns with the KL in the reward (Eq. 9) and whitens
    them over all tokens of the policy's batch (Eq. 10); `per_role` whitens them within each role instead.

    `engine_gap` is the mean |log-prob of the engine - log-prob of the trainer| of a sample's tokens: it shows engines
    with stale weights. DPO needs no advantages, and its log-probs are at another temperature than the engine's.
    """

    @torch.no_grad()
    def compute_advantages_and_returns(self, experiences: list[Experience]) -> list[Experience]:
        for experience in experiences if self.args.marti.credit != "dpo" else ():
            gap = (experience.action_log_probs - experience.rollout_log_probs).abs()
            experience.info["engine_gap"] = masked_mean(gap, experience.action_mask, dim=-1)
        experiences = super().compute_advantages_and_returns(experiences)
        if self.args.marti.whitening == "per_role":
            whiten_per_role(experiences)
        return experiences


def whiten_per_role(experiences: list[Experience]) -> None:
    """Eq. 10 over the tokens of each role: sets `advantages` (B, A) from the unwhitened `returns` (B, A)."""
    returns = torch.cat([experience.returns.flatten() for experience in experiences]).float()
    action = torch.cat([experience.action_mask.flatten() for experience in experiences]).bool()
    roles = [[role] * experience.returns.shape[1] for experience in experiences for role in experience.labels]
    roles = [role for row in roles for role in row]
    advantages = torch.zeros_like(returns)
    for role in sorted(set(roles)):
        mask = torch.tensor([other == role for other in roles]) & action
        if mask.any():
            mean, variance = returns[mask].mean(), returns[mask].var(unbiased=False)
            advantages[mask] = (returns[mask] - mean) * variance.clamp(min=1e-8).rsqrt()
    sizes = [experience.returns.numel() for experience in experiences]
    for experience, flat in zip(experiences, advantages.split(sizes), strict=True):
        experience.advantages = flat.view_as(experience.returns)
