"""The runtime of a colocated RL job: contract, planner, launcher and worker."""
