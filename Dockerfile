# The tested set on a GPU box. NOT BUILT HERE: no Docker was at hand; `make test-install` runs its last line.
#   docker build -t grpo-recipes .
#   docker run --gpus all --shm-size 16g -v $PWD/runs:/app/runs grpo-recipes \
#       accelerate launch --config_file accelerate_configs/single_gpu.yaml recipes/gsm8k/train.py \
#       --config recipes/gsm8k/qwen2.5-1.5b-lora.yaml --report_to none
# Code rewards isolate programs inside the container; see what is in force with
#   docker run grpo-recipes python scripts/check_sandbox.py
# The CUDA that torch is built for: DeepSpeed's builder takes no other.
FROM nvidia/cuda:13.0.1-devel-ubuntu24.04

# A compiler and headers: DeepSpeed and triton build kernels when they are first used.
RUN apt-get update && apt-get install --yes --no-install-recommends python3 python3-venv python3-dev build-essential git \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /app
ENV PATH=/app/.venv/bin:$PATH HF_HOME=/app/hub

COPY . .
RUN python3 -m venv .venv && pip install --no-cache-dir --editable . --constraint constraints.txt
