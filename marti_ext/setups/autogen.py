"""AutoGen (Wu et al., 2024): an assistant and a user proxy talk until the stop word, without running code."""

import random

from marti_ext.prompts import STOP_WORD, chat_prompt
from marti_ext.questions import Question
from marti_ext.trajectory import Trajectory, Turn

ASSISTANT_TURNS = 3


class AutoGen:
    name = "autogen"
    turns = 2 * ASSISTANT_TURNS - 1

    async def run(self, question: Question, agents: list, rng: random.Random) -> None:
        messages: list[Turn] = []
        for number in range(self.turns):
            speaker = ("assistant", "user")[number % 2]
            said = [turn.response for turn in messages]
            ask = chat_prompt(question.task, question.prompt, said, speaker)
            parents, agent = messages[-1:], agents[number % 2 % len(agents)]
            messages.append(await agent.act(speaker, ask, parents=parents, round=number // 2 + 1))
            if STOP_WORD in messages[-1].response:
                return

    def answer(self, trajectory: Trajectory) -> Turn:
        """The assistant's last message."""
        return trajectory.of("assistant")[-1]
