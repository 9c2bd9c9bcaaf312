"""What a policy trains on in a step: its trainable turns, in pairs where it learns preferences, in whole batches."""

import random
from operator import attrgetter

from marti_ext.trajectory import Turn


def trainable(turns: list[Turn], train_on_truncated: bool) -> list[Turn]:
    """The turns that have a reward and, unless told otherwise, were not truncated."""
    return [turn for turn in turns if turn.reward is not None and (train_on_truncated or not turn.truncated)]


def units(turns: list[Turn], credit: str) -> list[list[Turn]]:
    """What stays together in training: pairs for DPO, else single turns."""
    return preference_pairs(turns) if credit == "dpo" else [[turn] for turn in turns]


def preference_pairs(turns: list[Turn]) -> list[list[Turn]]:
    """[best, worst] of the turns with the same prompt, where their rewards differ; of equally good ones the first."""
    prompts: dict[tuple[int, ...], list[Turn]] = {}
    for turn in turns:
        prompts.setdefault(tuple(turn.prompt_ids), []).append(turn)
    by_reward = attrgetter("reward")
    pairs = [[max(alike, key=by_reward), min(alike, key=by_reward)] for alike in prompts.values()]
    return [pair for pair in pairs if pair[0].reward > pair[1].reward]


def whole_batches(units: list[list[Turn]], batch_size: int, rng: random.Random, actors: int = 1) -> list[Turn]:
    """As many units (a turn, or a pair of turns) as fill whole optimizer steps, the remainder dropped at random.

    OpenRLHF gives each of the policy's `actors` a part of the list: every part is like the others, and sorted by length,
    so that micro-batches of the forward pass hold little padding. For the gradient steps OpenRLHF shuffles it itself.
    """
    size = len(units[0]) if units else 1
    keep = len(units) * size // batch_size * batch_size // size
    kept = [units[index] for index in sorted(rng.sample(range(len(units)), keep))]
    kept.sort(key=lambda unit: max(len(turn.prompt_ids) + len(turn.response_ids) for turn in unit))
    return [turn for actor in range(actors) for unit in kept[actor::actors] for turn in unit]
