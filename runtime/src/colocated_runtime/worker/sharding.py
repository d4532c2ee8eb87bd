"""The trainer's weights, gradients and optimizer states shared out over the ranks: FSDP2, as accelerate sets it up.

All of them keep the model's own type, as where every rank holds the whole: accelerate would train a float32 copy of
16-bit weights under its own mixed precision, at twice the memory and with other mathematics.
"""

from typing import Any

from accelerate import Accelerator, PartialState
from accelerate.utils import DistributedType, FullyShardedDataParallelPlugin
from accelerate.utils.fsdp_utils import fsdp2_prepare_model

SHARDED = DistributedType.FSDP

OPTIONS: dict[str, Any] = {
    "fsdp": True,
    "fsdp_config": {
        "version": 2,
        "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
        "reshard_after_forward": True,
        # Each rank writes its part; gathered into one file, a 70B model and its states would not fit into host memory.
        "state_dict_type": "SHARDED_STATE_DICT",
        "cpu_ram_efficient_loading": False,
    },
}
"""TRL's options for it."""


def also_on_cpus(trainer: Any) -> None:
    """Have a trainer whose options ask for FSDP use it on CPUs, too.

    accelerate (1.15, state.py) knows it on devices alone and trains by DistributedDataParallel else, without a word.
    """
    state = trainer.accelerator.state
    if trainer.args.fsdp and state.distributed_type == DistributedType.MULTI_CPU:
        state.distributed_type = PartialState().distributed_type = SHARDED
        state.fsdp_plugin = FullyShardedDataParallelPlugin(**trainer.args.fsdp_plugin_args)
        trainer.is_fsdp_enabled = True


def share_out(accelerator: Accelerator, model: Any) -> None:
    """Leave each rank its part of every weight, on its device. A collective.

    accelerate would do so when training begins; the engine needs the room before.
    """
    fsdp2_prepare_model(accelerator, model)
