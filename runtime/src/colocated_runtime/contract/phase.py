"""The phases of a rank."""

from enum import StrEnum


class Phase(StrEnum):
    """What the ranks are doing: the states of the memory scheduler."""

    START = "Start"
    ROLLOUT = "Rollout"
    SCORE = "Score"
    TRAIN = "Train"
    SYNC = "Sync"
    CHECKPOINT = "Checkpoint"
    EVALUATE = "Evaluate"
