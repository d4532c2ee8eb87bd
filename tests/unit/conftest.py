"""Settings for all unit tests."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Time limits of single examples say more about a busy machine than about the code. CI looks at the same examples each
# time: a change is judged by what it changes.
settings.register_profile(
    "project", deadline=None, derandomize="CI" in os.environ, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("project")


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with `policy` and `reward`."""
    directory = tmp_path_factory.mktemp("models")
    subprocess.run([sys.executable, Path(__file__).parent / "worker/tiny_model.py", directory], check=True)
    return directory
