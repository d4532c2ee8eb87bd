"""What the engine's start leaves out."""

from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.torch

ARCHITECTURE = "Qwen2ForCausalLM"


@pytest.fixture
def no_subprocess(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """vLLM's registry with an empty cache, which may start no process."""
    monkeypatch.setenv("VLLM_CACHE_ROOT", str(tmp_path))
    from vllm.model_executor.models import registry

    def refuse(work: Any) -> None:
        raise AssertionError("a process was started")

    monkeypatch.setattr(registry, "_run_in_subprocess", refuse)
    monkeypatch.setitem(registry.ModelRegistry.models, ARCHITECTURE, registry.ModelRegistry.models[ARCHITECTURE])
    return registry


def test_the_models_class_is_looked_at_in_this_process(no_subprocess: Any) -> None:
    """The first half fails when vLLM itself does so: then `inspect_here` can go."""
    from colocated_runtime.worker.engine import inspect_here

    models = no_subprocess.ModelRegistry.models
    with pytest.raises(AssertionError, match="a process was started"):
        models[ARCHITECTURE].inspect_model_cls()
    inspect_here([ARCHITECTURE, "NoSuchModel"])
    assert models[ARCHITECTURE].inspect_model_cls().is_text_generation_model
