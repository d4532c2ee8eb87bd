"""Settings for all unit tests."""

from hypothesis import HealthCheck, settings

# Time limits of single examples say more about a busy machine than about the code.
settings.register_profile("project", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("project")
