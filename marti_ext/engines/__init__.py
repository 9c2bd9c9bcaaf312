"""Engines turn prompt tokens into response tokens. Every engine has one method:

async generate(prompt_ids: list[int], sampling: Sampling) -> Completion
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Sampling:
    """How one response is drawn. The seed makes it independent of what else is in the batch."""

    max_tokens: int
    temperature: float  # 0: greedy
    seed: int


@dataclass(frozen=True)
class Completion:
    """Response tokens, the end token included, and the log-prob of each at the sampling temperature."""

    token_ids: list[int]
    log_probs: list[float]
    finish_reason: str  # "stop" or "length"
    num_tokens: int | None = None  # as the engine counts them, where its tokens are not ours
    num_prompt_tokens: int | None = None
