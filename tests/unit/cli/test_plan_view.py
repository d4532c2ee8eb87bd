"""A plan on the terminal and as a picture."""

import xml.etree.ElementTree as ElementTree

import pytest
from rich.console import Console
from tests.unit.contract.plans import GIB, bad_plan, items, plan

from colocated_operator.cli.picture import picture
from colocated_operator.cli.plan_view import bar, plan_view, words
from colocated_runtime.contract.phase import Phase
from colocated_runtime.contract.plan import PhasePlan, Plan

SVG = "{http://www.w3.org/2000/svg}"


def shown(value: Plan, width: int = 100) -> list[str]:
    console = Console(width=width, color_system=None)
    with console.capture() as capture:
        console.print(plan_view("job", value))
    return capture.get().splitlines()


def row(lines: list[str], start: str) -> list[str]:
    (line,) = (line for line in lines if line.startswith(start))
    return line.removeprefix(start).split()


def drawn(value: Plan) -> ElementTree.Element:
    return ElementTree.fromstring(picture("job", value))


def test_every_item_stands_under_its_phase_and_totals_are_sums() -> None:
    lines = shown(plan())
    assert row(lines, "KV cache ") == ["50.0"]
    assert row(lines, "optimizer ") == ["28.5", "28.5"]
    totals = [row([line], "total") for line in lines if line.startswith("total")]
    assert totals == [["108.2", "63.0"], ["6.0", "8.0"]]


def test_settings_stand_under_the_names_of_the_spec() -> None:
    lines = [line.strip() for line in shown(plan())]
    assert row(lines, "trainer.per_device_train_batch_size ") == ["8"]
    assert row(lines, "memory.gpuMemoryUtilization ")[0] == "0.6"


def test_verdict_comes_first_and_a_refusal_is_shown_whole() -> None:
    assert shown(plan())[0] == "job: fits"
    lines = shown(bad_plan())
    assert lines[0] == "job: does not fit"
    assert bad_plan().refusal in " ".join(lines)


def test_what_is_guessed_is_said() -> None:
    text = " ".join(shown(plan(verified=False, advice=["the prompts' length is a guess"])))
    assert "unverified" in text
    assert "note: the prompts' length is a guess" in text


def test_every_line_fits_a_terminal() -> None:
    phases = [PhasePlan(phase=phase, device=items(trainerWeights=14.2), host=items(process=1.0)) for phase in Phase]
    assert max(len(line) for line in shown(plan(phases=phases), 100)) <= 100


@pytest.mark.parametrize(
    ("used", "text"), [(0, "········│·"), (40, "████····│·"), (45, "████▌···│·"), (100, "████████│█")]
)
def test_bar(used: int, text: str) -> None:
    assert bar(used, budget=80, full=100, width=10).plain == text


@pytest.mark.parametrize(
    ("name", "text"), [("kvCache", "KV cache"), ("trainerWeights", "trainer weights"), ("cudaContext", "CUDA context")]
)
def test_names_of_items_in_words(name: str, text: str) -> None:
    assert words(name) == text


def test_the_picture_is_to_scale() -> None:
    bars = [r for r in drawn(plan()).iter(f"{SVG}rect") if r.find(f"{SVG}title") is not None]
    heights = {(r.get("x"), r.find(f"{SVG}title").text.split(":")[0]): float(r.get("height")) for r in bars}  # type: ignore[union-attr, arg-type]
    left = min(x for x, _ in heights)
    assert len(bars) == sum(len(phase.device) for phase in plan().phases)
    assert heights[left, "KV cache"] / heights[left, "context"] == pytest.approx(40, rel=0.05)
    lines = [line for line in drawn(plan()).iter(f"{SVG}line") if line.get("stroke-width")]
    device, budget = (float(line.get("y1")) for line in lines)  # type: ignore[arg-type]
    scale = heights[left, "KV cache"] / 50
    assert (budget - device) / scale == pytest.approx(7, rel=0.05), "7 GiB of headroom"


def test_the_picture_says_whether_it_fits_and_escapes_what_it_is_told() -> None:
    assert "job: does not fit" in picture("job", bad_plan())
    odd = plan(phases=[PhasePlan(phase=Phase.TRAIN, device=items(**{"a<b&c": 1.0}))], budget_bytes=GIB)
    titles = [title.text for title in drawn(odd).iter(f"{SVG}title")]
    assert titles == ["a<b&c: 1.0 GiB"]


def test_a_plan_without_phases_can_be_drawn() -> None:
    assert drawn(plan(phases=[])).tag == f"{SVG}svg"
