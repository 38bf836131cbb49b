"""Training on proofs: an environment, rewards, pairs of wrong and right kernels, and a policy over the knowledge."""

from argus.agents.training.environment import OptimizeEnv
from argus.agents.training.pairs import Pair, better, repairs, split
from argus.agents.training.rewards import Outcome, judged, reward
from argus.agents.training.world import World

__all__ = ["OptimizeEnv", "Outcome", "Pair", "World", "better", "judged", "repairs", "reward", "split"]
