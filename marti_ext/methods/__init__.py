"""How agents interact and how their turns are rewarded: one file per method, each a `Method` (method.py)."""

from marti_ext.methods.comas import CoMAS
from marti_ext.methods.comas_without_evaluation import CoMASWithoutEvaluation
from marti_ext.methods.comas_without_scoring import CoMASWithoutScoring
from marti_ext.methods.maporl import MAPoRL
from marti_ext.methods.srlm import SRLM
from marti_ext.methods.ttrl import TTRL
from marti_ext.methods.verifier import Verifier

METHODS = {
    "comas": CoMAS,
    "comas_without_evaluation": CoMASWithoutEvaluation,
    "comas_without_scoring": CoMASWithoutScoring,
    "maporl": MAPoRL,
    "srlm": SRLM,
    "ttrl": TTRL,
    "verifier": Verifier,
}
