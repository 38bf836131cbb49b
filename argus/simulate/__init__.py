"""The executor of explicit IR: NumPy, all threads at once, with shadow state that checks what the verifier proves."""

from argus.simulate.outcome import NotReplayable, Outcome, Violation
from argus.simulate.replay import replay
from argus.simulate.run import explore, simulate

__all__ = ["NotReplayable", "Outcome", "Violation", "explore", "replay", "simulate"]
