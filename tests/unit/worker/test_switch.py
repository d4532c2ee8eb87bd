"""The device's memory changes hands: in which order, what is spared where it does not suffice, what is told."""

from contextlib import contextmanager

import pytest

pytestmark = pytest.mark.torch

torch = pytest.importorskip("torch")

from colocated_runtime.planner.settings import EngineSettings  # noqa: E402
from colocated_runtime.worker import switch  # noqa: E402
from colocated_runtime.worker.phases import Moved  # noqa: E402
from colocated_runtime.worker.switch import GIB, Switch  # noqa: E402

WEIGHTS, CACHE = 14 * GIB, 50 * GIB


class Device:
    """139 GiB, an engine of 64 that can sleep, and a trainer that uses and caches as much as it is told."""

    def __init__(self, monkeypatch):
        self.trainer, self.cached, self.mapped, self.keeps = 20 * GIB, 0, {"weights", "kv_cache"}, 0
        self.told, self.sampled, self.moved = [], [], []
        monkeypatch.setattr(switch, "free_bytes", self.free)
        monkeypatch.setattr(torch.cuda, "empty_cache", self.empty)
        monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)

    def free(self):
        engine = ("weights" in self.mapped) * WEIGHTS + ("kv_cache" in self.mapped) * CACHE
        free = 139 * GIB - self.trainer - self.cached - (engine or self.keeps)
        assert free >= 0, "out of memory"
        return free

    def empty(self):
        self.cached = 0

    def sleep(self, level):
        self.mapped.clear()
        self.empty()  # as vLLM's allocator does

    def wake_up(self, tags):
        self.mapped.update(tags)
        self.free()

    @contextmanager
    def handover(self, what):
        yield (moved := Moved())
        self.moved.append((what, moved.bytes))

    def sample(self):
        self.sampled.append(self.free())

    def pressure(self, message, kind="Device"):
        self.told.append((kind, message))

    def switch(self, level=2, frees=WEIGHTS + CACHE):
        return Switch(self, EngineSettings(0.5, level, 1024, 64, sleep_frees=frees), self)


@pytest.fixture
def device(monkeypatch):
    return Device(monkeypatch)


def a_rollout(made, left_by_generation=0):
    made.make_room()
    made.wake("weights")
    made.make_room()
    made.wake("kv_cache")
    made._llm.cached = left_by_generation
    return made.sleep()


def test_with_room_nothing_is_spared(device):
    made = device.switch()
    made.spare = lambda: pytest.fail("nobody asked")
    assert made.sleep()
    device.cached = 100 * GIB
    for _ in range(5):
        assert a_rollout(made, left_by_generation=GIB)
    assert device.told == []
    assert device.sampled, "the peak before the cache was emptied is the phase's own"


def test_each_hand_over_tells_its_bytes(device):
    made = device.switch()
    made.sleep()
    device.cached = 100 * GIB
    device.moved.clear()
    a_rollout(made, left_by_generation=GIB)
    assert device.moved == [
        ("empty the cache", 100 * GIB), ("wake weights", WEIGHTS), ("empty the cache", 0), ("wake kv_cache", CACHE),
        ("empty the cache", GIB), ("sleep", WEIGHTS + CACHE),
    ]  # fmt: skip


def test_what_is_missing_is_spared_before_the_wake_up(device):
    made = device.switch()
    made.sleep()
    device.trainer = 90 * GIB

    def spare():
        device.trainer -= 28 * GIB
        return 28 * GIB

    made.spare = spare
    assert a_rollout(made)
    ((kind, message),) = device.told
    assert kind == "Device"
    assert message.startswith("the engine would lack 15.00 GiB to wake; 28.00 GiB of optimizer states")


def test_without_that_the_wake_up_fails(device):
    made = device.switch()
    made.sleep()
    device.trainer = 90 * GIB
    with pytest.raises(AssertionError, match="out of memory"):
        a_rollout(made)


def test_a_sleep_that_frees_too_little_is_told_once(device):
    made = device.switch()
    device.keeps = 10 * GIB
    made.sleep()
    a_rollout(made)
    ((kind, message),) = device.told
    assert kind == "Sleep"
    assert message == "the sleeping engine gave 54.00 GiB back, 64.00 GiB were planned"


def test_without_a_plan_nothing_is_known_of_sleep(device):
    made = device.switch(frees=0)
    device.keeps = 10 * GIB
    made.sleep()
    assert device.told == []


def test_level_0_keeps_everything(device):
    made = device.switch(level=0)
    assert not a_rollout(made)
    assert device.mapped == {"weights", "kv_cache"}


def test_weights_that_are_awake_are_not_woken_again(device):
    made = device.switch()
    made.sleep()
    made.wake("weights")
    device.wake_up = lambda tags: pytest.fail("mapped twice")
    made.wake("weights")
