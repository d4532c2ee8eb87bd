"""What to know beside the figures."""

from colocated_runtime.planner.search import Candidate


def advice(chosen: Candidate) -> list[str]:
    """Sentences for a person, the most important first."""
    job = chosen.made.job
    found = []
    if not job.shape.verified:
        found.append(
            "Unverified: the formulas are not tested for this architecture; it is planned as a Llama of these sizes."
        )
    if job.lengths.guessed:
        found.append(f"The longest prompt is guessed: {job.lengths.prompt} tokens. Set trainer.vllm_max_model_length.")
    if not job.hardware.rates_known:
        found.append("The device's speed is not known: times are an A100's. Set device.product.")
    return found
