import no_such_module  # noqa: F401


def reward(completions, **columns):
    return [0.0 for _ in completions]
