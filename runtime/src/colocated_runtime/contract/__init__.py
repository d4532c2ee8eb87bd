"""What the operator, the launcher and the worker say to each other. No torch, no Kubernetes client."""
