"""Settings for all unit tests."""

import os

from hypothesis import HealthCheck, settings

# Time limits of single examples say more about a busy machine than about the code. CI looks at the same examples each
# time: a change is judged by what it changes.
settings.register_profile(
    "project", deadline=None, derandomize="CI" in os.environ, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("project")
