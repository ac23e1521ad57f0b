"""Let FSDP2 shard on CPUs: `accelerate launch ... tests/support/fsdp_on_cpu.py SCRIPT ARGUMENTS`.

torch's `fully_shard` works over gloo, but accelerate looks for FSDP only where a launch is on
accelerators (MULTI_GPU and the like). Here it takes a launch on CPUs for one, while it looks.
"""

import runpy
import sys
from pathlib import Path

from accelerate import DistributedType
from accelerate.state import AcceleratorState, PartialState

initialize = AcceleratorState.__init__


def initialize_as_on_accelerators(state: AcceleratorState, *args, **kwargs) -> None:
    """What `AcceleratorState.__init__` does, on CPUs as on accelerators."""
    processes = PartialState(cpu=True)
    if processes.distributed_type == DistributedType.MULTI_CPU:
        processes.distributed_type = DistributedType.MULTI_GPU
    initialize(state, *args, **kwargs)
    assert state.distributed_type == DistributedType.FSDP, "accelerate shards no more by this way"


if __name__ == "__main__":
    AcceleratorState.__init__ = initialize_as_on_accelerators
    script = sys.argv[1]
    del sys.argv[0]
    sys.path[0] = str(Path(script).parent)
    runpy.run_path(script, run_name="__main__")
