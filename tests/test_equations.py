"""Credit and loss (Eq. 9 to 11) as OpenRLHF and our experience maker compute them, against a literal reading of the paper."""

import math
import random
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from marti_ext.actor import PairBuffer, PairLoss
from marti_ext.batches import trainable, whole_batches
from marti_ext.experience import ExperienceMaker, to_experience  # first: it applies compat
from marti_ext.trajectory import Turn

BETA = 0.05


def turn(prompt: int, response: int, reward: float, role: str = "solution", number: int = 0) -> Turn:
    rng = random.Random(f"{prompt}{response}{reward}{role}{number}")
    ids = [rng.randrange(1, 99) for _ in range(prompt + response)]
    return Turn(
        number, "a", "a", role, 1, [], reward=reward, finish_reason="stop",
        prompt_ids=ids[:prompt], response_ids=ids[prompt:], log_probs=[-1.0] * response, num_tokens=response,
    )  # fmt: skip


TURNS = [
    turn(5, 3, 1.0, "solution"),
    turn(2, 6, 0.0, "solution", 1),
    turn(4, 1, 0.5, "evaluation"),
    turn(9, 4, 1.0, "evaluation", 1),
    turn(3, 2, -1.0, "scoring"),
    turn(6, 5, 0.0, "scoring", 1),
]


def literal_advantages(turns, kl_rows, beta, groups) -> list[list[float]]:
    """Eq. 9: A_t = r(o) - beta * sum over the tokens from t to the end of log pi / pi_ref.
    Eq. 10: minus the mean, by the standard deviation, over all tokens of a group of turns."""
    raw = [[one.reward - beta * sum(row[t:]) for t in range(len(row))] for one, row in zip(turns, kl_rows, strict=True)]
    result = [list(row) for row in raw]
    for group in set(groups):
        tokens = [value for row, own in zip(raw, groups, strict=True) if own == group for value in row]
        mean = sum(tokens) / len(tokens)
        std = math.sqrt(sum((value - mean) ** 2 for value in tokens) / len(tokens))
        for index, own in enumerate(groups):
            if own == group:
                result[index] = [(value - mean) / (std + 1e-12) if std > 1e-4 else 0.0 for value in raw[index]]
    return result


def maker(whitening: str, beta: float) -> ExperienceMaker:
    args = SimpleNamespace(
        algo=SimpleNamespace(
            advantage=SimpleNamespace(estimator="reinforce", gamma=1.0, lambd=1.0, no_std_norm=False),
            kl=SimpleNamespace(use_loss=False, estimator="k1"),
        ),
        rollout=SimpleNamespace(n_samples_per_prompt=1),
        reward=SimpleNamespace(
            clip_range=(-10, 10), overlong_buffer_len=None, overlong_penalty_factor=1, stop_properly_penalty_coef=None
        ),
        marti=SimpleNamespace(whitening=whitening, credit="reinforce"),
    )
    return ExperienceMaker(None, None, None, None, SimpleNamespace(value=beta), SimpleNamespace(args=args), None)


def computed_advantages(turns, kl_rows, beta, whitening) -> list[list[float]]:
    """Through OpenRLHF: each turn an experience of its own, as if its forward pass had given these log-ratios."""
    experiences = []
    for index, (one, row) in enumerate(zip(turns, kl_rows, strict=True)):
        experience = to_experience(one)
        experience.index = [index]
        experience.kl = torch.zeros(experience.action_mask.shape)
        experience.kl[experience.action_mask] = torch.tensor(row)
        experience.action_log_probs = torch.zeros(experience.action_mask.shape)
        experiences.append(experience)
    done = maker(whitening, beta).compute_advantages_and_returns(experiences)
    return [experience.advantages[experience.action_mask].tolist() for experience in done]


def close(found, expected) -> bool:
    pairs = zip(found, expected, strict=True)
    return all(torch.allclose(torch.tensor(a), torch.tensor(b), atol=2e-3, rtol=1e-3) for a, b in pairs)


@pytest.mark.parametrize("beta", [0.0, BETA])
@pytest.mark.parametrize("whitening", ["batch", "per_role"])
def test_advantages_are_those_of_the_paper(whitening, beta):
    rng = random.Random(1)
    kl_rows = [[rng.gauss(0, 0.3) for _ in one.response_ids] for one in TURNS]
    groups = ["all" if whitening == "batch" else one.role for one in TURNS]
    found = computed_advantages(TURNS, kl_rows, beta, whitening)
    assert close(found, literal_advantages(TURNS, kl_rows, beta, groups))


@settings(max_examples=25)
@given(
    st.lists(
        st.tuples(
            st.integers(1, 6), st.integers(1, 6), st.sampled_from([-1.0, 0.0, 0.25, 0.5, 1.0]), st.sampled_from("sec")
        ),
        min_size=2,
        max_size=8,
    ),
    st.sampled_from(["batch", "per_role"]),
)
def test_whitened_advantages_have_mean_0_and_deviation_1_over_the_tokens(shapes, whitening):
    turns = [turn(*shape, number) for number, shape in enumerate(shapes)]
    rows = [[0.0] * len(one.response_ids) for one in turns]
    found = computed_advantages(turns, rows, 0.0, whitening)
    groups = ["all" if whitening == "batch" else one.role for one in turns]
    for group in set(groups):
        tokens = torch.tensor([value for row, own in zip(found, groups, strict=True) if own == group for value in row])
        rewards = {one.reward for one, own in zip(turns, groups, strict=True) if own == group}
        assert abs(tokens.mean()) < 1e-3
        assert len(rewards) == 1 or abs(tokens.std(unbiased=False) - 1) < 1e-2


def test_with_batch_whitening_a_readable_score_is_pushed_below_the_mean_and_per_role_it_is_not():
    turns = [turn(3, 4, 1.0), turn(3, 4, 0.0, "evaluation"), turn(3, 4, 0.0, "scoring"), turn(3, 4, 0.0, "scoring", 1)]
    rows = [[0.0] * 4] * 4
    assert computed_advantages(turns, rows, 0.0, "batch")[2][0] < -0.5
    assert computed_advantages(turns, rows, 0.0, "per_role")[2][0] == 0.0


@pytest.mark.parametrize("loss", ["token_mean", "sequence_sum"])
def test_the_loss_is_the_clipped_objective_of_eq_11(loss):
    """Minus Eq. 11: summed over each sequence's tokens, averaged over sequences; or its token mean."""
    from openrlhf.models import PolicyLoss

    from marti_ext.actor import SequenceSumLoss

    generator = torch.Generator().manual_seed(0)
    mask = torch.tensor([[0, 1, 1, 1, 1], [0, 0, 1, 1, 0], [1, 1, 1, 1, 1]]).bool()
    old, new, advantages = (torch.randn(3, 5, generator=generator) * scale for scale in (0.5, 0.6, 1.0))
    objective = 0.0
    for i in range(3):
        for t in range(5):
            if mask[i, t]:
                rho, a = math.exp(new[i, t] - old[i, t]), float(advantages[i, t])
                objective += min(rho * a, max(min(rho, 1.2), 0.8) * a)
    expected = -objective / (int(mask.sum()) if loss == "token_mean" else 3)
    make = PolicyLoss if loss == "token_mean" else SequenceSumLoss
    found = make(0.2, 0.2)(
        new, old, advantages, action_mask=mask, batch_num_tokens=mask.sum(), global_batch_size=torch.tensor(3.0)
    )[0]
    assert found.item() == pytest.approx(expected, rel=1e-4)


# ── From turns to samples ──


def test_an_experience_has_the_engines_tokens_and_marks_the_response():
    one = turn(4, 3, 0.5)
    experience = to_experience(one)
    assert experience.sequences.tolist() == [one.prompt_ids + one.response_ids]
    assert experience.action_mask.tolist() == [[False, False, False, True, True, True]]
    predicted = experience.sequences[:, 1:][experience.action_mask]
    assert predicted.tolist() == one.response_ids  # the positions whose next token is the response's
    assert experience.rollout_log_probs[experience.action_mask].tolist() == one.log_probs
    assert experience.rewards.tolist() == [0.5]


def test_an_empty_response_never_becomes_a_sample():
    with pytest.raises(ValueError, match="no response tokens"):
        to_experience(turn(4, 0, 0.5))


def test_truncated_and_unrewarded_turns_are_left_out_unless_wanted():
    truncated, unrewarded, good = turn(2, 2, 1.0), turn(2, 2, 0.0, number=1), turn(2, 2, 0.0, number=2)
    truncated.finish_reason, unrewarded.reward = "length", None
    assert trainable([truncated, unrewarded, good], train_on_truncated=False) == [good]
    assert trainable([truncated, unrewarded, good], train_on_truncated=True) == [truncated, good]


@given(st.integers(0, 40), st.integers(1, 9), st.integers(0, 3))
def test_whole_batches_keep_all_that_fit_and_drop_the_rest_at_random(count, batch, seed):
    turns = [turn(1 + number % 5, 2, 0.0, number=number) for number in range(count)]
    kept = whole_batches([[one] for one in turns], batch, random.Random(seed))
    assert len(kept) == count // batch * batch
    assert len({one.id for one in kept}) == len(kept)
    assert whole_batches([[one] for one in turns], batch, random.Random(seed)) == kept


def test_every_actor_of_a_policy_gets_turns_of_like_length():
    turns = [turn(1 + number, 2, 0.0, number=number) for number in range(17)]
    kept = whole_batches([[one] for one in turns], 8, random.Random(0), actors=2)
    halves = [[len(one.prompt_ids) for one in half] for half in (kept[:8], kept[8:])]
    assert all(half == sorted(half) for half in halves)
    assert all(0 < right - left < 4 for left, right in zip(*halves, strict=True))


def test_what_is_dropped_is_not_always_the_same():
    turns = [turn(2, 2, 0.0, number=number) for number in range(10)]
    dropped = {
        frozenset(range(10)) - {one.id for one in whole_batches([[one] for one in turns], 8, random.Random(seed))}
        for seed in range(30)
    }
    assert len(dropped) > 10


# ── DPO ──


def test_the_pair_loss_is_dpos_whatever_the_micro_batches():
    torch.manual_seed(0)
    beta, log_probs, reference = 0.1, -torch.rand(8, 5), -torch.rand(8, 5)
    mask = torch.arange(5) < torch.tensor([5, 3, 1, 4, 2, 5, 5, 1])[:, None]
    loss = PairLoss(beta)

    def literal() -> float:
        """-log sigmoid(beta ((log pi - log pi_ref of the preferred one) - (the same of the other))), mean over pairs."""
        gains = [
            sum(log_probs[row, t].item() - reference[row, t].item() for t in range(5) if mask[row, t])
            for row in range(8)
        ]
        margins = [beta * (gains[row] - gains[row + 1]) for row in range(0, 8, 2)]
        return sum(-math.log(1 / (1 + math.exp(-margin))) for margin in margins) / 4

    def ours(rows: slice, **info) -> torch.Tensor:
        return loss(log_probs[rows], reference[rows], None, action_mask=mask[rows], **info)[0]

    whole = ours(slice(0, 8), dp_size=1, global_batch_size=torch.tensor(8.0), batch_num_tokens=None)
    assert whole.item() == pytest.approx(literal(), rel=1e-5)
    parts = [ours(slice(k, k + 2), dp_size=1, global_batch_size=torch.tensor(8.0 / 4)) for k in (0, 2, 4, 6)]
    assert sum(parts).item() / 4 == pytest.approx(literal(), rel=1e-5)  # DeepSpeed divides by the micro-batches


def test_a_micro_batch_of_pairs_holds_both_turns_of_each():
    buffer = PairBuffer.__new__(PairBuffer)
    buffer.items, buffer.packing_samples, buffer.dynamic_batch = list("AaBbCc"), False, False
    assert [buffer[k] for k in range(len(buffer))] == [["A", "a"], ["B", "b"], ["C", "c"]]
