"""The rollout: nothing waits for more than its own previous turn, failures stay with their question, limits hold."""

import asyncio
import logging
import random

import pytest
import torch
from engines import CharTokenizer, ScriptedEngine, local_engine, speakers
from hypothesis import given
from hypothesis import strategies as st
from test_rewards import answer, role_of
from transformers import LlamaConfig, LlamaForCausalLM

from marti_ext.engines import Completion
from marti_ext.engines import transformers as transformers_engine
from marti_ext.methods.comas import CoMAS, CoMASOptions
from marti_ext.prompts import CUT_MARK, PromptTooLong, evaluation_prompt, scoring_prompt, solution_prompt
from marti_ext.questions import Question, QuestionSource
from marti_ext.rollout import Limits, Progress, Rollout, Speaker, stable_seed


def questions(count: int) -> list[Question]:
    return [Question(f"q{k}", "math", "test", f"Problem number {k}.", "1") for k in range(count)]


def roll_out(agents, count=4, copies=1, rounds=2, limits=Limits(4096, 64, 1.0), progress=None):
    rollout = Rollout(CoMAS(CoMASOptions(rounds=rounds), len(agents)), agents, limits, 0)
    progress = progress or Progress()

    async def run():
        return [one async for one in rollout.run(questions(count), 1, copies, progress)]

    return asyncio.run(run())


def test_every_turn_goes_to_the_engine_of_its_agents_policy():
    agents = speakers(answer, 3)
    turns = [turn for one in roll_out(agents, count=6) for turn in one.turns]
    for speaker in agents:
        own = [turn for turn in turns if turn.agent == speaker.agent]
        assert {turn.policy for turn in own} == {speaker.policy}
        assert len(own) == len(speaker.engine.prompts)
        assert sorted("".join(map(chr, turn.prompt_ids)) for turn in own) == sorted(speaker.engine.prompts)


def test_copies_of_a_question_are_independent_discussions():
    found = roll_out(speakers(answer, 2), count=3, copies=4)
    assert len(found) == 12
    assert len({one.to_json() for one in found if one.question.id == "q0"}) == 4


def test_a_question_that_is_dealt_twice_in_a_step_is_discussed_anew():
    rollout = Rollout(CoMAS(CoMASOptions(rounds=1), 2), speakers(answer), Limits(4096, 64, 1.0), 0)

    async def run():
        return [one.to_json() async for one in rollout.run(questions(1) * 2, 1, 2, Progress())]

    assert len(set(asyncio.run(run()))) == 4


class HesitantEngine(ScriptedEngine):
    """Answers after a random number of rounds of the event loop."""

    def __init__(self, script, rng: random.Random) -> None:
        super().__init__(script)
        self.rng = rng

    async def generate(self, prompt_ids, sampling):
        for _ in range(self.rng.randrange(20)):
            await asyncio.sleep(0)
        return await super().generate(prompt_ids, sampling)


@pytest.mark.parametrize("schedule", ["sequential", "parallel"])
def test_what_is_said_does_not_depend_on_who_answers_first(schedule):
    options = CoMASOptions(rounds=6, evaluations=2, schedule=schedule)

    def said(delays: int) -> list:
        agents = speakers(answer, 3)
        for agent in agents:
            agent.engine = HesitantEngine(answer, random.Random(delays))
        rollout = Rollout(CoMAS(options, 3), agents, Limits(4096, 64, 1.0), 0)

        async def run():
            return [one async for one in rollout.run(questions(2), 1, 1, Progress())]

        turns = [turn for one in asyncio.run(run()) for turn in one.turns]
        return sorted((turn.seed, turn.agent, turn.role, turn.prompt, turn.response) for turn in turns)

    first = said(0)
    assert len({seed for seed, *_ in first}) == 2 * 6 * 5
    assert all(said(delays) == first for delays in range(1, 6))


def test_after_a_failed_turn_nothing_of_its_question_goes_on():
    """Two solvers are under way: when one fails for good, the other's evaluation is not asked for any more."""

    def script(prompt, seed):
        return RuntimeError("down") if role_of(prompt) == "evaluation" else answer(prompt, seed)

    class Slow(ScriptedEngine):
        async def generate(self, prompt_ids, sampling):
            for _ in range(10 * (role_of("".join(map(chr, prompt_ids))) == "solution")):
                await asyncio.sleep(0)
            return await super().generate(prompt_ids, sampling)

    agents = speakers(script, 2)
    agents[1].engine = Slow(script)  # still solves when the other's evaluation has failed
    limits = Limits(4096, 64, 1.0, retries=0)
    options = CoMASOptions(rounds=2, schedule="parallel")

    async def run():
        rollout = Rollout(CoMAS(options, 2), agents, limits, 0)
        assert [one async for one in rollout.run(questions(1), 1, 1, Progress())] == []
        asked = sum(len(agent.engine.prompts) for agent in agents)
        for _ in range(40):
            await asyncio.sleep(0)
        assert sum(len(agent.engine.prompts) for agent in agents) == asked

    asyncio.run(run())


def test_the_embedded_engine_forgets_its_requests_after_an_error_and_answers_the_retries():
    class Decoder(transformers_engine.Decoder):
        failures, most = 1, 0

        def _advance(self, requests, steps):
            self.most = max(self.most, len(self.rows) + len(requests))
            finished = super()._advance(requests, steps)
            if self.failures and self.rows:
                self.failures -= 1
                raise RuntimeError("out of memory")
            return finished

    torch.manual_seed(0)
    shape = {"vocab_size": 256, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
    model = LlamaForCausalLM(LlamaConfig(**shape, num_attention_heads=2))
    decoder = Decoder(model, {0})
    agents = [Speaker("a", "p", local_engine(decoder), CharTokenizer(), asyncio.Semaphore(8))]
    progress = Progress()
    found = roll_out(agents, count=3, rounds=1, limits=Limits(4096, 12, 1.0), progress=progress)
    assert len(found) == 3 and not progress.failed
    assert decoder.most == 3  # of each question one turn at a time
    assert progress.retried_turns == 3


def test_a_failed_turn_is_retried():
    failures = iter([RuntimeError("engine hiccup")])
    progress = Progress()
    found = roll_out(
        speakers(lambda prompt, seed: next(failures, None) or answer(prompt, seed)), count=2, progress=progress
    )
    assert len(found) == 2
    assert (progress.retried_turns, progress.failed) == (1, [])


def test_a_question_that_keeps_failing_is_left_out_counted_and_named(caplog):
    def script(prompt, seed):
        return RuntimeError("poisoned") if "Problem number 1." in prompt else answer(prompt, seed)

    progress = Progress()
    with caplog.at_level(logging.WARNING):
        found = roll_out(speakers(script), count=3, progress=progress)
    assert {one.question.id for one in found} == {"q0", "q2"}
    assert [question for question, _ in progress.failed] == ["q1"]
    assert "q1" in caplog.text
    assert "poisoned" in caplog.text


def test_an_empty_response_is_a_failure_and_never_a_turn():
    class Mute(ScriptedEngine):
        async def generate(self, prompt_ids, sampling):
            return Completion([], [], "stop")

    progress = Progress()
    assert (
        roll_out([Speaker("a", "p", Mute(answer), CharTokenizer(), asyncio.Semaphore(4))], count=1, progress=progress)
        == []
    )
    assert [question for question, _ in progress.failed] == ["q0"]


def test_all_questions_are_in_flight_at_once_up_to_the_limit_of_an_engine():
    agents = speakers(answer, 1, slots=64)
    roll_out(agents, count=20)
    assert agents[0].engine.most_in_flight >= 20
    agents = speakers(answer, 1, slots=3)
    roll_out(agents, count=20)
    assert agents[0].engine.most_in_flight == 3


def test_a_question_waits_for_nothing_but_its_own_previous_turn():
    """One question is never answered; all others finish their whole discussion meanwhile."""

    class Stuck(ScriptedEngine):
        async def generate(self, prompt_ids, sampling):
            if "Problem number 0." in "".join(map(chr, prompt_ids)):
                await release.wait()
            return await super().generate(prompt_ids, sampling)

    async def run():
        global release
        release = asyncio.Event()
        agents = [Speaker("a", "p", Stuck(answer), CharTokenizer(), asyncio.Semaphore(64))]
        rollout = Rollout(CoMAS(CoMASOptions(rounds=3), 1), agents, Limits(4096, 64, 1.0), 0)
        order = []
        async for one in rollout.run(questions(5), 1, 1, Progress()):
            order.append(one.question.id)
            if len(order) == 4:
                release.set()
        return order

    order = asyncio.run(run())
    assert order[-1] == "q0"
    assert len(order) == 5


def test_the_next_solution_does_not_wait_for_the_scoring():
    """The scoring of round 1 is held until the solution of round 2 has been asked for."""

    async def run():
        asked = asyncio.Event()

        class Held(ScriptedEngine):
            async def generate(self, prompt_ids, sampling):
                prompt = "".join(map(chr, prompt_ids))
                if role_of(prompt) == "solution" and "Discussion so far" in prompt:
                    asked.set()
                if role_of(prompt) == "scoring":
                    await asked.wait()
                return await super().generate(prompt_ids, sampling)

        agents = [Speaker("a", "p", Held(answer), CharTokenizer(), asyncio.Semaphore(8))]
        rollout = Rollout(CoMAS(CoMASOptions(rounds=2), 1), agents, Limits(4096, 64, 1.0), 0)
        return [one async for one in rollout.run(questions(1), 1, 1, Progress())]

    (trajectory,) = asyncio.run(asyncio.wait_for(run(), timeout=20))
    assert len(trajectory.turns) == 6


def test_responses_over_the_limit_are_truncated_and_marked():
    found = roll_out(speakers(lambda prompt, seed: "x" * 100), count=1, limits=Limits(4096, 10, 1.0))
    assert all(turn.truncated and turn.num_tokens == 10 for turn in found[0].turns)


def test_seeds_are_the_same_everywhere():
    assert stable_seed(1, "a") == stable_seed(1, "a") != stable_seed(1, "b")
    assert stable_seed("x") == 24888770824021634


# ── Prompts and their limit ──


def encode(text: str) -> list[int]:
    return [ord(char) for char in text]


rounds_of_text = st.lists(st.text(min_size=1, max_size=60), max_size=4).map(tuple)


@given(rounds_of_text, st.text(min_size=0, max_size=3000), st.integers(500, 3000))
def test_a_prompt_fits_its_limit_and_keeps_the_problem_and_the_newest_rounds(rounds, solution, limit):
    prompt = evaluation_prompt("What is 1 + 1?", solution, rounds)
    ids, left = prompt.fit(encode, limit)
    assert len(ids) <= limit
    assert "What is 1 + 1?" in left.text()
    assert left.discussion == rounds[len(rounds) - len(left.discussion) :]  # the oldest went first
    if len(encode(prompt.text())) <= limit:
        assert left == prompt
    if left.subject != prompt.subject:
        assert left.discussion == ()  # the solution is cut only once there is no discussion left
        assert CUT_MARK in left.text()


def test_of_two_texts_the_longer_is_cut():
    _, left = scoring_prompt("P?", "s" * 4000, "short evaluation").fit(encode, 2000)
    assert CUT_MARK in left.subject["Solution to score"]
    assert left.subject["Evaluation of this solution"] == "short evaluation"


def test_the_problem_is_never_cut():
    with pytest.raises(PromptTooLong, match="max_prompt_tokens"):
        solution_prompt("math", "p" * 1000, ("r" * 10,)).fit(encode, 500)


def test_a_question_too_long_for_the_prompt_is_left_out_and_the_step_goes_on(caplog):
    progress = Progress()
    long = Question("long", "math", "test", "p" * 5000, "1")
    rollout = Rollout(CoMAS(CoMASOptions(rounds=1), 2), speakers(answer), Limits(2000, 64, 1.0), 0)

    async def run():
        return [one async for one in rollout.run([long, *questions(1)], 1, 1, progress)]

    found = asyncio.run(run())
    assert [one.question.id for one in found] == ["q0"]
    assert [question for question, _ in progress.failed] == ["long"]


def test_shortened_and_cut_prompts_are_counted():
    def script(prompt, seed):
        return "s" * 900 if role_of(prompt) == "solution" else answer(prompt, seed)

    (trajectory,) = roll_out(speakers(script), count=1, rounds=3, limits=Limits(1100, 2000, 1.0))
    assert any(turn.shortened for turn in trajectory.of("solution"))
    assert any(turn.cut for turn in trajectory.of("scoring"))
    assert all(len(turn.prompt_ids) <= 1100 for turn in trajectory.turns)


# ── Questions ──


@given(st.integers(1, 9), st.integers(1, 20), st.integers(0, 40))
def test_the_source_deals_every_question_once_an_epoch_and_resumes_anywhere(count, size, dealt):
    source = QuestionSource(questions(count), seed=3)
    first = source.next_batch(3 * count)
    for epoch in range(3):
        assert {one.id for one in first[epoch * count : (epoch + 1) * count]} == {one.id for one in questions(count)}
    source.restore({"dealt": dealt})
    expected = source.next_batch(size)
    other = QuestionSource(questions(count), seed=3)
    other.restore({"dealt": dealt})
    assert other.next_batch(size) == expected
    assert other.state() == {"dealt": dealt + size}
