"""What parses as a report fits into a status; what a pod can only have made up does not parse."""

import json

import pytest
from pydantic import ValidationError
from tests.unit.contract.plans import plan
from tests.unit.operator.cluster import Life, last_words, report

from colocated_operator.observe import Pulled
from colocated_runtime.contract.outcome import Outcome
from colocated_runtime.contract.report import REPORT_LIMIT, TERMINATION_LIMIT, Report

CHECKPOINT = {"step": 1, "uri": "pvc://c/x", "time": 1.0}
PLAN = plan().model_dump(by_alias=True, mode="json")


@pytest.mark.parametrize(
    "lie",
    [
        {"modelUri": "x" * 5000},
        {"updated": 1e300},
        {"pressure": [{"sequence": 1, "time": 1.0, "kind": "k" * 253}]},
        {"checkpoints": [CHECKPOINT | {"time": 1e300}]},
        {"checkpoints": [CHECKPOINT | {"uri": "x" * 5000}]},
        {"checkpoints": [CHECKPOINT] * 2000},
        {"progress": {"step": -1, "totalSteps": 5}},
        {"progress": {"step": 1, "totalSteps": 5, "etaSeconds": float("inf")}},
        {"metrics": {"reward": float("nan")}},
        {"metrics": {"k" * 300: 1.0}},
        {"plan": PLAN | {"stepSeconds": float("nan")}},
        {"plan": PLAN | {"settings": PLAN["settings"] | {"tensorParallel": 10**30}}},
        {"plan": PLAN | {"settings": PLAN["settings"] | {"gpuMemoryUtilization": float("inf")}}},
        {"plan": PLAN | {"phases": PLAN["phases"] * 5}},
        {"exitCode": 10**30},
        {"plan": PLAN | {"settings": PLAN["settings"] | {"tokensAtOnce": 10**30}}},
        {"evaluations": [{"step": 1, "mean": float("inf"), "low": 0, "high": 1, "prompts": 1}]},
    ],
    ids=lambda lie: next(iter(lie)),
)
def test_lie_does_not_parse(lie: dict[str, object]) -> None:
    good = json.loads(report(3).model_dump_json(by_alias=True))
    with pytest.raises(ValidationError):
        Report.model_validate_json(json.dumps(good | lie))


def test_every_whole_number_has_bounds() -> None:
    """An API server refuses a status with a number of more than 64 bits; the job would stand still."""
    schema = Report.model_json_schema()
    fields = [
        (f"{model['title']}.{name}", kind)
        for model in [schema, *schema["$defs"].values()]
        for name, field in model.get("properties", {}).items()
        for kind in field.get("anyOf", [field])
        if kind.get("type") == "integer" and "enum" not in kind
    ]
    assert len(fields) > 20
    assert [name for name, kind in fields if not {"minimum", "exclusiveMaximum"} <= kind.keys()] == []


def test_largest_report_that_parses_becomes_a_status() -> None:
    good = json.loads(report(3).model_dump_json(by_alias=True))
    most = {
        "modelUri": "x" * 4096,
        "checkpoints": [CHECKPOINT | {"step": step, "time": 3.9e9} for step in range(1000)],
        "metrics": {f"{'k' * 240}{number}": 1e308 for number in range(1000)},
        "evaluations": [{"step": step, "mean": 1e308, "low": 0, "high": 1, "prompts": 1} for step in range(10_000)],
        "progress": {"step": 2**52, "totalSteps": 1, "etaSeconds": 3.9e9},
    }
    life = Life()
    life.passes(2)
    life.reports["pod-1-0"] = Pulled(Report.model_validate_json(json.dumps(good | most)))
    life.passes(2)
    assert life.status["phase"] == "Running"
    assert life.status["progress"]["percent"] == 100
    assert len(life.status["metrics"]) == 64


@pytest.mark.parametrize("limit", [TERMINATION_LIMIT, REPORT_LIMIT])
def test_a_report_is_cut_only_where_it_must_be(limit: int) -> None:
    room = limit - len(report(3).within(limit))
    fits = report(3, message="m" * (room - len('"message":"",')))
    assert len(fits.within(limit)) == limit
    assert Report.model_validate_json(fits.within(limit)) == fits
    longer = fits.model_copy(update={"message": fits.message + "m"})
    assert len(longer.within(limit)) < limit
    assert Report.model_validate_json(longer.within(limit)).checkpoints == fits.checkpoints


def test_last_words_fit_into_a_termination_message() -> None:
    metrics = {f"metric/{n}": 1 / 3 for n in range(500)}
    words = last_words(Outcome.CRASH, 3, traceback="t" * 50_000, metrics=metrics, plan=plan())
    assert len(words.encode()) <= TERMINATION_LIMIT
    assert Report.model_validate_json(words).outcome is Outcome.CRASH
