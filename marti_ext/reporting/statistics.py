"""How sure a number is: bootstrap intervals over questions and seeds, and a paired test on the same questions.

Scores are arrays (seeds, questions) for each benchmark: the share of policies that were right, missing (nan) where a
question could not be judged. What is averaged over benchmarks weighs each of them the same, as the paper does.
"""

import numpy as np

Scores = dict[str, np.ndarray]
DRAWS = 2000


def accuracy(scores: Scores) -> float:
    """Mean over benchmarks, in percent."""
    return float(np.mean([100 * np.nanmean(values) for values in scores.values()]))


def interval(scores: Scores, other: Scores | None = None, level: float = 0.95) -> tuple[float, float]:
    """Of the accuracy, or with `other` of the difference to it: percentiles of a bootstrap that draws seeds and, within
    each benchmark, questions. The same questions (and, where both have as many, seeds) are drawn for both."""
    rng = np.random.default_rng(0)
    seeds = {len(values) for values in scores.values()}.pop()
    drawn = rng.integers(seeds, size=(DRAWS, seeds))
    total = np.zeros(DRAWS)
    for name, values in scores.items():
        questions = rng.integers(values.shape[1], size=(DRAWS, values.shape[1]))
        total += _means(values, drawn, questions)
        if other is not None:
            others = len(other[name])
            same = drawn if others == seeds else rng.integers(others, size=(DRAWS, others))
            total -= _means(other[name], same, questions)
    low, high = np.percentile(100 * total / len(scores), [50 * (1 - level), 50 * (1 + level)])
    return float(low), float(high)


def _means(values: np.ndarray, seeds: np.ndarray, questions: np.ndarray) -> np.ndarray:
    """(draws,) means of the values at the drawn seeds (draws, S) and questions (draws, Q)."""
    return np.nanmean(values[seeds[:, :, None], questions[:, None, :]], axis=(1, 2))


def paired_p(scores: Scores, other: Scores) -> float:
    """Two-sided p-value of a permutation test: under the null hypothesis, which of the two has which score on a question
    (mean over seeds) is chance. Its resolution is 1 / (DRAWS + 1)."""
    rng = np.random.default_rng(0)
    differences = {name: _per_question(values, other[name]) for name, values in scores.items()}
    observed = abs(sum(values.mean() for values in differences.values()))
    draws = sum(
        (values * rng.choice([-1, 1], size=(DRAWS, len(values)))).mean(axis=1) for values in differences.values()
    )
    return float((1 + np.sum(np.abs(draws) >= observed - 1e-12)) / (DRAWS + 1))


def _per_question(values: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Differences of the means over seeds, of the questions that both have."""
    judged = ~(np.isnan(values).all(axis=0) | np.isnan(others).all(axis=0))
    return np.nanmean(values[:, judged], axis=0) - np.nanmean(others[:, judged], axis=0)
