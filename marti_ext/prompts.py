"""What the agents read: the wording of every role, and how a prompt is made to fit a token limit.

The order of the parts and what each role is asked for follow CoMAS, Section 3.1 and Appendix B; the words are ours.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

ANSWER_FORMAT = {
    "math": "Put the final answer in \\boxed{}, for example \\boxed{42}.",
    "science": (
        "Put the final answer as a decimal number in \\boxed{}, for example \\boxed{3}, \\boxed{0.3} or \\boxed{0.03}. "
        "The problem names the unit: leave it out of the box."
    ),
    "coding": "Put the complete code in one block that opens with ```python and closes with ```.",
    "choice": "Put the letter of the right option in \\boxed{}, for example \\boxed{A}.",
}
SOLUTION = "Work out the answer one step after the other. {answer_format}"
EVALUATION = (
    "Be critical: look for every error and weakness in this solution. List each mistake, say what is wrong and why. "
    "Be brief and clear, and do not repeat the reasoning at length."
)
SCORING = """Decide whether the evaluation is justified and give the solution a score of 1, 2 or 3:
3: the solution is entirely correct; no mistake that the evaluation names is real.
2: some mistakes that the evaluation names are real but minor; the result still holds.
1: a mistake that the evaluation names is fatal and makes the answer wrong.
First give a brief reason, without repeating the reasoning at length, then the score between <score> and </score>.
For example: The evaluation names a real sign error that changes the result. <score>1</score>"""

# The ablations and baselines, and the inference setups; the paper gives no wording for them.
SCORING_ALONE = """Check the solution and give it a score of 1, 2 or 3:
3: the solution is entirely correct.
2: it has minor mistakes; the result still holds.
1: a fatal mistake makes its answer wrong.
First give a brief reason, without repeating the reasoning at length, then the score between <score> and </score>.
For example: A sign error changes the result. <score>1</score>"""
JUDGMENT = (
    "Check this solution and judge whether its answer is correct. First give a brief reason, without repeating the "
    "reasoning at length, then <judgment>correct</judgment> or <judgment>incorrect</judgment>."
)
RATING = """Rate the solution from 0 to 5. It gets one point for each of these that is true:
- it deals with the problem that was posed;
- it takes a way that can lead to the answer;
- most of its steps are right;
- it is complete and gives its answer in the form that was asked for;
- its answer is right.
First give a brief reason, without repeating the reasoning at length, then the points between <score> and </score>.
For example: A good way, but the last step is wrong. <score>3</score>"""
AGGREGATION = (
    "The solutions above may be wrong. Compare them, decide which results hold, and write one final solution of your own. "
) + SOLUTION
DEBATE = (
    "Above are your solution and those of others. Check them against each other: keep what is right, correct what is "
    "wrong, and write your solution anew. "
) + SOLUTION
STOP_WORD = "TERMINATE"
CHAT_ASSISTANT = SOLUTION + f" When nothing is left to do, end your message with the word {STOP_WORD}."
CHAT_USER = "Reply to the last message."

CUT_MARK = "\n[... cut: too long ...]\n"


class PromptTooLong(ValueError):
    """The problem and the instruction alone exceed the prompt limit."""


@dataclass(frozen=True)
class Prompt:
    """One user message: problem, earlier discussion, what the turn is about, what to do.

    `discussion` has one text per round, oldest first. `subject` maps a heading to a text (the solution to evaluate, ...).
    """

    problem: str
    instruction: str
    discussion: tuple[str, ...] = ()
    subject: dict[str, str] = field(default_factory=dict)

    def text(self) -> str:
        parts = [f"Problem:\n{self.problem}"]
        if self.discussion:
            parts.append("Discussion so far, for your reference:\n" + "\n\n".join(self.discussion))
        parts += [f"{heading}:\n{text}" for heading, text in self.subject.items()]
        return "\n\n".join([*parts, self.instruction])

    def fit(self, encode: Callable[[str], list[int]], limit: int) -> tuple[list[int], "Prompt"]:
        """Token ids of at most `limit` tokens, and the prompt that was left after shortening.

        The oldest round of the discussion goes first, then the longest text of the subject is cut in its middle
        and marked. The problem is never touched: PromptTooLong is raised if it does not fit.
        """
        prompt, ids = self, encode(self.text())
        while len(ids) > limit:
            prompt = prompt._shorter(share=limit / len(ids))
            ids = encode(prompt.text())
        return ids, prompt

    def _shorter(self, share: float) -> "Prompt":
        if self.discussion:
            return replace(self, discussion=self.discussion[1:])
        texts = {heading: text.replace(CUT_MARK, "") for heading, text in self.subject.items()}
        longest = max(texts, key=lambda heading: len(texts[heading]), default=None)
        if longest is None or not texts[longest]:
            raise PromptTooLong(
                "the problem needs more tokens than rollout.max_prompt_tokens allows "
                f"(it begins: {self.problem[:60]!r}); raise the limit or leave the question out"
            )
        keep = int(len(texts[longest]) * min(share, 0.9) / 2)
        cut = texts[longest][:keep] + CUT_MARK + texts[longest][len(texts[longest]) - keep :]
        return replace(self, subject=self.subject | {longest: cut})


def solution_prompt(task: str, problem: str, discussion: tuple[str, ...] = ()) -> Prompt:
    """Eq. 3: a solution from the problem and the discussion."""
    return Prompt(problem, SOLUTION.format(answer_format=ANSWER_FORMAT[task]), discussion)


def evaluation_prompt(problem: str, solution: str, discussion: tuple[str, ...] = ()) -> Prompt:
    """Eq. 4: a critical evaluation of a solution."""
    return Prompt(problem, EVALUATION, discussion, {"Solution to evaluate": solution})


def scoring_prompt(problem: str, solution: str, evaluation: str) -> Prompt:
    """Eq. 5: a score of a solution in the light of an evaluation; the discussion is not shown."""
    return Prompt(problem, SCORING, (), {"Solution to score": solution, "Evaluation of this solution": evaluation})


def scoring_alone_prompt(problem: str, solution: str) -> Prompt:
    """A score of a solution without an evaluation (Section 4.3.1)."""
    return Prompt(problem, SCORING_ALONE, (), {"Solution to score": solution})


def judgment_prompt(problem: str, solution: str, discussion: tuple[str, ...] = ()) -> Prompt:
    """An evaluation that says whether the solution is correct (Section 4.3.1, without scoring)."""
    return Prompt(problem, JUDGMENT, discussion, {"Solution to judge": solution})


def rating_prompt(problem: str, solution: str) -> Prompt:
    """Points from 0 to 5, added up from single criteria, by which a policy judges itself (Yuan et al., 2024, SRLM)."""
    return Prompt(problem, RATING, (), {"Solution to rate": solution})


def discussion_round(solution: str, evaluations: list[str]) -> str:
    """How a finished round enters the discussion."""
    return "\n\n".join([f"Solution:\n{solution}", *(f"Evaluation:\n{evaluation}" for evaluation in evaluations)])


def aggregation_prompt(task: str, problem: str, solutions: list[str]) -> Prompt:
    """One solution from several: the last call of consistency and debate, the second round of MAPoRL's debate."""
    return Prompt(problem, AGGREGATION.format(answer_format=ANSWER_FORMAT[task]), _numbered(solutions))


def debate_prompt(task: str, problem: str, others: list[str], own: str) -> Prompt:
    """A solution anew, after those of the others."""
    instruction = DEBATE.format(answer_format=ANSWER_FORMAT[task])
    return Prompt(problem, instruction, (*_numbered(others), f"Your solution:\n{own}"))


def chat_prompt(task: str, problem: str, messages: list[str], speaker: str) -> Prompt:
    """The next message of `speaker`, assistant or user, in a conversation which the assistant opened."""
    said = tuple(f"{('User', 'Assistant')[k % 2 == 0]}:\n{message}" for k, message in enumerate(messages))
    if speaker == "user":
        return Prompt(problem, CHAT_USER, said)
    return Prompt(problem, CHAT_ASSISTANT.format(answer_format=ANSWER_FORMAT[task]), said)


def _numbered(solutions: list[str]) -> tuple[str, ...]:
    return tuple(f"Solution {number}:\n{solution}" for number, solution in enumerate(solutions, 1))
