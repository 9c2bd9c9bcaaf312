"""Ways of using agents at inference (paper, Section 4.1). A setup has a name and two hooks:

`async run(question, agents, rng)` is the interaction, on the same `agents[k].act(role, prompt, parents=...)` as in
training; one agent plays every participant, several take turns. `answer(trajectory)` is the turn that is graded.
"""

from marti_ext.setups.autogen import AutoGen
from marti_ext.setups.consistency import Consistency, Vote
from marti_ext.setups.debate import Debate
from marti_ext.setups.vanilla import Vanilla

SETUPS = {setup.name: setup for setup in (Vanilla, Consistency, Vote, AutoGen, Debate)}
PAPER = ("vanilla", "consistency", "autogen", "debate")  # those of Table 1
