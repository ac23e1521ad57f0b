"""The parts that every recipe shares, one room for each question."""

import logging
import warnings

# TRL 1.16 speaks to transformers 5.23 by this older name: nothing that a user of a recipe could change.
warnings.filterwarnings("ignore", message=".*gradient_checkpointing` is deprecated", category=FutureWarning)

# DeepSpeed, which accelerate imports, warns where there is no accelerator; preflight names the device of a run.
logging.getLogger("DeepSpeed").addFilter(lambda record: "Setting accelerator to CPU" not in str(record.msg))
