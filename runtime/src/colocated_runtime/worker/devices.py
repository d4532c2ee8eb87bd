"""Whether the pod has the GPUs that it asked for, looked at before the ranks cost minutes of imports."""

from colocated_runtime.worker.errors import DevicesMissing, UserError

WORDS = 300
"""Characters of the driver's complaint that are told."""


def require(asked: int) -> None:
    """Raise DevicesMissing where this rank does not see `asked` GPUs, UserError where its torch never could."""
    import torch  # it reads the environment, which has to be prepared before

    if not (torch.version.cuda or torch.version.hip):
        raise UserError(
            f"runtime.image: its torch is built without CUDA or ROCm, and gpusPerNode is {asked}; use an image with a"
            " torch for GPUs, or set device.backend: cpu"
        )
    complaint = ""
    try:
        torch.cuda.init()
    except RuntimeError as error:
        complaint = str(error).partition("\n")[0][:WORDS]
    seen = torch.cuda.device_count()
    if complaint or seen < asked:
        raise DevicesMissing(_words(asked, seen, complaint))


def _words(asked: int, seen: int, complaint: str) -> str:
    wanted = "1 GPU" if asked == 1 else f"{asked} GPUs"
    unusable = " but can use none" if complaint and seen else ""
    why = f"{complaint}; " if complaint else ""
    return (
        f"this pod asked for {wanted} and sees {seen}{unusable}: {why}another node may show them; if this comes again,"
        " look at the node's driver, device plugin and container runtime"
    )
