"""Experts: decision trees that operators edit, each with its own opinion on how much of a host may be lent.

`state` names what an expert sees, `tree` is the expert itself, `files` reads and checks its TOML. `compiled`
(numba) evaluates many at once for the learner and `fitting` (scikit-learn) learns one from history; both are
imported from their modules by those who need them, since what they rest on is slow to load.
"""

from asad.experts.files import Problem, check_experts, default_folder, load_expert, load_experts, parse_expert
from asad.experts.state import ACTIONS, FEATURES, INDEX, Feature, State, state
from asad.experts.tree import Expert, Leaf, Node, Reached, Step

__all__ = [
    "ACTIONS",
    "FEATURES",
    "INDEX",
    "Expert",
    "Feature",
    "Leaf",
    "Node",
    "Problem",
    "Reached",
    "State",
    "Step",
    "check_experts",
    "default_folder",
    "load_expert",
    "load_experts",
    "parse_expert",
    "state",
]
