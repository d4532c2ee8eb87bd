"""The picture of memory by phase over the steps."""

from itertools import pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colocated_runtime.contract.report import Phase, PhasePeak
from colocated_runtime.worker import picture as module
from colocated_runtime.worker.picture import GIB, History, picture

SVG = "{http://www.w3.org/2000/svg}"


def peak(device: float, host: float = 1) -> PhasePeak:
    return PhasePeak(device_bytes=int(device * GIB), host_bytes=int(host * GIB))


def drawn(history: History, limit: float) -> ElementTree.Element:
    return ElementTree.fromstring(picture("a <job>, attempt 1", history, int(limit * GIB)))


def curves(root: ElementTree.Element) -> dict[str, list[tuple[float, float]]]:
    """The points of each curve of the first panel, by its phase."""
    found = {}
    for line in root.iter(f"{SVG}polyline"):
        phase = line.findtext(f"{SVG}title") or ""
        points = [tuple(map(float, point.split(","))) for point in line.attrib["points"].split()]
        found.setdefault(phase, points)
    return found  # type: ignore[return-value]


def test_a_curve_for_each_phase_up_to_its_peak() -> None:
    history = History()
    for step in range(1, 6):
        history.add(step, {Phase.TRAIN: peak(100), Phase.ROLLOUT: peak(50 if step == 3 else 25)})
    root = drawn(history, 140)
    found, words = curves(root), [text.text for text in root.iter(f"{SVG}text")]
    assert {"Train 100.00", "Rollout 50.00"} < set(words)
    assert {"1", "2", "3", "4", "5"} < set(words)
    train, rollout = found["Train"], found["Rollout"]
    assert len(train) == len(rollout) == 5
    assert len({y for _, y in train}) == 1
    bottom = module.TOP + module.HEIGHT
    assert bottom - rollout[2][1] == pytest.approx((bottom - train[0][1]) / 2, abs=0.2)
    assert [x for x, _ in train] == pytest.approx([module.LEFT + module.WIDTH * part / 4 for part in range(5)])


def test_without_a_device_only_the_host_is_drawn() -> None:
    history = History()
    history.add(1, {Phase.TRAIN: peak(0, 2)})
    texts = [text.text or "" for text in drawn(history, 0).iter(f"{SVG}text")]
    assert "a <job>, attempt 1" in texts
    assert [text for text in texts if "peak GiB" in text] == [
        "host memory of the rank: peak GiB of each phase, by step"
    ]


peaks = st.builds(PhasePeak, device_bytes=st.integers(0, 2**40), host_bytes=st.integers(0, 2**40))
rows = st.lists(st.dictionaries(st.sampled_from(Phase), peaks), max_size=30)


@given(rows=rows, first=st.integers(0, 10**6), limit=st.integers(0, 2**39))
def test_any_history_gives_a_picture_within_its_frame(
    rows: list[dict[Phase, PhasePeak]], first: int, limit: int
) -> None:
    history = History()
    for step, row in enumerate(rows, start=first):
        history.add(step, row)
    root = drawn(history, limit / GIB)
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    for line in root.iter(f"{SVG}polyline"):
        for point in line.attrib["points"].split():
            x, y = map(float, point.split(","))
            assert 0 <= x <= width
            assert 0 <= y <= height


@given(st.integers(1, 5000))
def test_a_history_is_bounded_and_loses_no_peak(steps: int) -> None:
    history = History()
    for step in range(1, steps + 1):
        history.add(step, {Phase.TRAIN: PhasePeak(device_bytes=step), Phase.SYNC: PhasePeak(host_bytes=steps - step)})
    assert len(history.rows) <= module.MOST
    assert history.rows[-1][0] == steps
    assert history.rows[-1][1][Phase.TRAIN].device_bytes == steps
    assert history.rows[0][1][Phase.SYNC].host_bytes == steps - 1
    lasts = [last for last, _ in history.rows]
    assert len({later - earlier for earlier, later in pairwise(lasts[:-1])}) <= 1, "rows of equally many steps"
