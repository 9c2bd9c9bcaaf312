"""How agents interact and how their turns are rewarded: one file per method.

A method is a class with two hooks:

- `async run(question, agents, rng)`: the interaction. `await agents[k].act(role, prompt, parents=..., round=...)` makes
  agent k speak and returns its Turn, which is entered in the trajectory when it begins.
- `reward(trajectory)`: sets `turn.reward` (and `turn.score`); a turn left at None is not trained on.

`Options` is a pydantic model of what the experiment file may set under `method`. `sees_answers` says whether `reward`
gets the question with its answer; `run` never does.
"""

from marti_ext.methods.comas import CoMAS
from marti_ext.methods.verifier import Verifier

METHODS = {"comas": CoMAS, "verifier": Verifier}
