"""Packed attention on one GPU against one sequence at a time in float32: output and gradients, a JSON line a case.

python tests/gpu/attention.py     exit code 1 if flash is farther off than bfloat16's rounding
"""

import json
import sys
from pathlib import Path

import torch
import torch.nn.functional as F  # noqa: N812

sys.path[:0] = [str(Path(__file__).parents[2] / "runtime/src")]

from colocated_runtime.worker import attention  # noqa: E402

CASES = {"qwen2.5-7b": (28, 4, 128), "qwen2.5-1.5b": (12, 2, 128), "as many keys as queries": (8, 8, 64)}
LENGTHS = [1, 700, 64, 4096, 129]
ROUNDING = 0.02


def run(dtype: torch.dtype, states: list[torch.Tensor], slope: torch.Tensor) -> list[torch.Tensor]:
    leaves = [one.to(dtype).requires_grad_() for one in states]
    bounds = F.pad(torch.tensor(LENGTHS).cumsum(0), (1, 0)).to(torch.int32).cuda()
    output, _ = attention.varlen_attention(None, *leaves, None, cu_seq_lens_q=bounds, max_length_q=max(LENGTHS))
    return [output.detach(), *torch.autograd.grad(output, leaves, slope.to(dtype))]


def distance(one: torch.Tensor, other: torch.Tensor) -> float:
    return float((one.float() - other.float()).norm() / other.float().norm())


def main() -> int:
    torch.manual_seed(1)
    worst = 0.0
    for name, (heads, keys, width) in CASES.items():
        tokens = sum(LENGTHS)
        states = [torch.randn(1, count, tokens, width, device="cuda") for count in (heads, keys, keys)]
        states = [one.bfloat16().float() for one in states]
        slope = torch.randn(1, tokens, heads, width, device="cuda").bfloat16().float()
        exact, flash = (run(dtype, states, slope) for dtype in (torch.float32, torch.bfloat16))
        pairs = zip(("out", "dq", "dk", "dv"), flash, exact, strict=True)
        found = {part: distance(one, other) for part, one, other in pairs}
        worst = max(worst, *found.values())
        print(json.dumps({"case": name, "device": torch.cuda.get_device_name(), "torch": torch.__version__, **found}))
    return 0 if worst < ROUNDING else 1


if __name__ == "__main__":
    sys.exit(main())
