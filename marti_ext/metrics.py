"""What a step was like: one line of metrics.jsonl."""

from statistics import mean
from typing import Any

from marti_ext.batches import trainable
from marti_ext.config import Config
from marti_ext.methods import METHODS
from marti_ext.rollout import Progress
from marti_ext.trajectory import Trajectory, Turn


def step_metrics(
    step: int,
    trajectories: list[Trajectory],
    batches: dict[str, list[Turn]],
    statuses: dict[str, dict],
    progress: Progress,
    times: dict[str, float],
    config: Config,
) -> dict[str, Any]:
    """One line of metrics.jsonl. What was not measured is None."""
    scored_role = METHODS[config.method.name].scored_role
    turns, policies = [turn for one in trajectories for turn in one.turns], {}
    for name, batch in batches.items():
        own, status = [turn for turn in turns if turn.policy == name], statuses.get(name, {})
        usable = trainable(own, config.train.train_on_truncated)
        policies[name] = {
            "roles": {
                role: role_metrics([turn for turn in own if turn.role == role], role == scored_role)
                for role in sorted({t.role for t in own})
            },
            "samples": len(batch),
            "not_trainable": len(own) - len(usable),
            "dropped": len(usable) - len(batch),
            "optimizer_steps": len(batch) // config.train.batch_size * config.train.passes,
            "loss": status.get("policy_loss"),
            "grad_norm": status.get("actor_grad_norm"),
            "clip_ratio": status.get("ppo_clip_ratio"),
            "update_kl": status.get("ppo_kl"),
            "preference_accuracy": status.get("preference_accuracy"),
            "preference_margin": status.get("preference_margin"),
            "kl": status.get("kl"),
            "engine_gap": status.get("engine_gap"),
            "learning_rate": status.get("actor_lr"),
        }
    phase = {"experience": "make_experience", "training": "ppo_train", "sync": "broadcast"}
    longest = {
        ours: max((status[f"timing/{theirs}"] for status in statuses.values()), default=None)
        for ours, theirs in phase.items()
    }
    return {
        "step": step,
        "policies": policies,
        "method": method_metrics(trajectories),
        "discussions": progress.questions_done - len(progress.failed),
        "failed": len(progress.failed),
        "failed_questions": sorted(question for question, _ in progress.failed),
        "retried_turns": progress.retried_turns,
        "shortened_prompts": sum(turn.shortened for turn in turns),
        "cut_prompts": sum(turn.cut for turn in turns),
        "generated_tokens": progress.tokens,
        "prompt_tokens": progress.prompt_tokens,
        "tokens_per_second": progress.tokens / times["rollout"],
        "time": {**times, **longest},
    }


def method_metrics(trajectories: list[Trajectory]) -> dict[str, float]:
    """Means of what the method measured."""
    names = dict.fromkeys(name for one in trajectories for name in one.metrics)
    return {name: mean(one.metrics[name] for one in trajectories if name in one.metrics) for name in names}


def role_metrics(turns: list[Turn], scored: bool) -> dict[str, float | None]:
    rewards = [turn.reward for turn in turns if turn.reward is not None]
    return {
        "count": len(turns),
        "reward": mean(rewards) if rewards else None,
        "length": mean(turn.num_tokens for turn in turns),
        "truncated": mean(float(turn.truncated) for turn in turns),
        "unreadable": mean(float(turn.score is None) for turn in turns) if scored else None,
    }
