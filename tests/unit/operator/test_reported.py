"""What the reports say of checkpoints, as a condition."""

from datetime import UTC, datetime
from typing import Any

import pytest

from colocated_operator.status.reported import report_facts
from colocated_runtime.contract.grace import LEAVING
from colocated_runtime.contract.report import Checkpoint, Report, Stage

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SAVED = [Checkpoint(step=5, uri="pvc://claim/checkpoint-5", time=0)]


@pytest.mark.parametrize(
    ("fields", "fact"),
    [
        ({"checkpoints": SAVED}, ("True", "Saved", "pvc://claim/checkpoint-5")),
        ({"checkpoints": SAVED, "checkpoint_error": "step 10: full"}, ("False", "SaveFailed", "step 10: full")),
        ({"checkpoints": SAVED, "slow_save": "step 10: saving for 301 s"}, ("False", "SaveSlow", "step 10: saving")),
        ({"stage": Stage.FINISHED, "slow_save": "step 10: saving for 301 s"}, ("False", "SaveFailed", "step 10")),
        ({"checkpoint_error": "step 5: full", "slow_save": "step 10"}, ("False", "SaveFailed", "step 5: full")),
        ({"checkpoints": SAVED, "throughput": {LEAVING: 90.0}, "grace_seconds": 110.0}, ("True", "Saved", "pvc://claim")),
        ({"checkpoints": SAVED, "throughput": {LEAVING: 190.0}, "grace_seconds": 110.0},
         ("False", "GracePeriodTooShort", "takes 190 s, and the pods have 110 s")),
    ],
)  # fmt: skip
def test_checkpoint_ready(fields: dict[str, Any], fact: tuple[str, str, str]) -> None:
    values: dict[str, Any] = {"name": "job", "uid": "u", "attempt": 1, "node": 0, "stage": Stage.RUNNING}
    report = Report(**(values | {"started": 0, "updated": 0} | fields))
    found = report_facts([report], NOW)["CheckpointReady"]
    assert (found.status, found.reason) == fact[:2]
    assert fact[2] in found.message
