"""What a verification returns."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Verdict:
    """Outcome for one response.

    `invalid` means that the response has no answer in the asked form, so `extracted` is None or unusable;
    `wrong` means that it has one and it is not the gold answer. `reason` is one line for people, never parsed.
    """

    verdict: Literal["correct", "wrong", "invalid"]
    extracted: str | None
    reason: str

    @property
    def correct(self) -> bool:
        return self.verdict == "correct"
