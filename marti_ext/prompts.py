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


def discussion_round(solution: str, evaluations: list[str]) -> str:
    """How a finished round enters the discussion."""
    return "\n\n".join([f"Solution:\n{solution}", *(f"Evaluation:\n{evaluation}" for evaluation in evaluations)])
