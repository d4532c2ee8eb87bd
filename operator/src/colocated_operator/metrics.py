"""Prometheus metrics of the operator."""

from prometheus_client import Counter, Gauge, Histogram

PASS_SECONDS = Histogram("colocated_pass_seconds", "Duration of one pass of one job.")
ATTEMPTS = Counter("colocated_attempts_created_total", "Attempts created.")
API_ERRORS = Counter("colocated_api_errors_total", "Passes that the API server failed.", ["code"])
JOBS = Gauge("colocated_jobs", "ColocatedRLJobs by phase.", ["phase"])
