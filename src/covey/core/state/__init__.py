"""All that core knows, in parts: each part owns some invariants, and its `check` asserts them.

The parts of a bag are joined in `bag`, all the rest in `state`. No decision is made here: parts
only keep themselves consistent. What decides is in `bags`, `match`, `protocol` and `sites`.
"""

from covey.core.state.bag import Bag
from covey.core.state.pilots import Pilot, Waiting
from covey.core.state.replicas import Draw
from covey.core.state.scene import Budget, Candidate, Scene
from covey.core.state.sites import Host, Job, Site
from covey.core.state.state import State

__all__ = [
    "Bag",
    "Budget",
    "Candidate",
    "Draw",
    "Host",
    "Job",
    "Pilot",
    "Scene",
    "Site",
    "State",
    "Waiting",
]
