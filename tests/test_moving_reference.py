"""A reference that moves: at its steps and no others, by the asked share, and through a checkpoint and back."""

import json
import shutil
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from support.launching import DENSE_REWARD, ROOT, TINY, run
from support.scored_by_place import give, make_trainer
from support.tiny_model import assert_same_weights
from transformers import TrainerCallback

from recipes.common import run as run_module
from recipes.common.checks.preflight import preflight
from recipes.common.data.recipe import import_recipe
from recipes.common.settings import RecipeArguments, parse_arguments
from recipes.common.training.moving_reference import REFERENCE, restore_reference, save_reference

pytestmark = pytest.mark.usefixtures("one_thread")

CONFIG = str(ROOT / "recipes/arithmetic/quickstart.yaml")
# Full training of four steps, a checkpoint every two; where the reference moves is each test's own.
MOVING = {
    **TINY,
    "bf16": "false",
    "num_eval_rows": 0,
    "num_train_rows": 8,
    "max_steps": 4,
    "learning_rate": 0.01,
}
MOVING |= {
    "preset": "iterative_grpo",
    "beta": 0.5,
    "ref_model_sync_steps": 2,
    "reward_funcs": DENSE_REWARD,
}


def train_by_recipe(patch: pytest.MonkeyPatch, model: Path, folder: Path, **settings) -> Path:
    """The arithmetic recipe's own main(), in this process; returns the folder."""
    settings = {**MOVING, "model_name_or_path": model, "output_dir": folder, **settings}
    words = [word for name, value in settings.items() for word in (f"--{name}", str(value))]
    patch.chdir(ROOT)
    patch.setattr(run_module, "use_all_cores", lambda training: None)
    patch.setattr(sys, "argv", ["train.py", "--config", CONFIG, *words])
    import_recipe(Path(CONFIG)).main()
    return folder


class Watch(TrainerCallback):
    """Policy and reference after each step, TRL's own callbacks done."""

    def __init__(self, trainer):
        self.trainer, self.policy, self.reference = trainer, [], []
        self.on_step_end()

    def on_step_end(self, *args, **kwargs) -> None:
        for model, seen in (
            (self.trainer.model, self.policy),
            (self.trainer.ref_model, self.reference),
        ):
            seen.append([parameter.detach().clone() for parameter in model.parameters()])


def watched(model: Path, folder: Path, **config) -> Watch:
    config = {"beta": 0.5, "learning_rate": 0.01, "max_steps": 5, "sync_ref_model": True, **config}
    config["log_completions"] = False
    trainer = make_trainer(
        model, folder, [give("reward", [1.0, 0.0, 0.5, 0.2])], ["a", "b"], {}, **config
    )
    watch = Watch(trainer)
    trainer.add_callback(watch)
    trainer.train()
    return watch


def same(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return all(torch.equal(mine, theirs) for mine, theirs in zip(one, other, strict=True))


def test_with_alpha_1_the_reference_is_the_policy_of_the_last_step_that_moved_it(model, tmp_path):
    watch = watched(model, tmp_path, ref_model_mixup_alpha=1.0, ref_model_sync_steps=2)
    assert not any(same(watch.policy[step], watch.policy[step + 1]) for step in range(5))
    for step, of in enumerate([0, 0, 2, 2, 4, 4]):
        assert same(watch.reference[step], watch.policy[of]), step


def test_with_alpha_06_the_reference_is_the_mixture_and_still_in_between(model, tmp_path):
    watch = watched(model, tmp_path, ref_model_mixup_alpha=0.6, ref_model_sync_steps=3)
    for step in (1, 2):
        assert same(watch.reference[step], watch.policy[0])
    mixed = [
        0.4 * start + 0.6 * policy
        for start, policy in zip(watch.policy[0], watch.policy[3], strict=True)
    ]
    for step in (3, 4, 5):
        torch.testing.assert_close(watch.reference[step], mixed, rtol=0, atol=1e-6)


@pytest.fixture(scope="module")
def whole(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four steps; the reference moves, and a checkpoint is saved, after the second and the fourth."""
    with pytest.MonkeyPatch.context() as patch:
        return train_by_recipe(
            patch, model, tmp_path_factory.mktemp("runs") / "whole", ref_model_mixup_alpha=0.6
        )


@pytest.mark.slow
def test_a_resumed_run_ends_with_policy_and_reference_of_the_uninterrupted_one(
    whole, model, tmp_path, monkeypatch
):
    shutil.copytree(whole, tmp_path / "again")
    shutil.rmtree(tmp_path / "again" / "checkpoint-4")
    for name in ("summary.json", "model.safetensors"):
        (tmp_path / "again" / name).unlink()
    config = json.loads((whole / "run_config.json").read_text())
    assert (config["preset"], config["sync_ref_model"]) == (["iterative_grpo"], True)
    again = train_by_recipe(monkeypatch, model, tmp_path / "again", ref_model_mixup_alpha=0.6)
    for name in (
        "model.safetensors",
        f"checkpoint-4/{REFERENCE}",
        "checkpoint-4/model.safetensors",
    ):
        assert_same_weights(whole / name, again / name)


@pytest.mark.slow
def test_a_checkpoint_holds_the_reference_as_it_is_after_the_move_of_its_step(whole, model):
    start, policy = (
        load_file(model / "model.safetensors"),
        load_file(whole / "checkpoint-2" / "model.safetensors"),
    )
    for name, seen in load_file(whole / "checkpoint-2" / REFERENCE).items():
        torch.testing.assert_close(seen, 0.4 * start[name] + 0.6 * policy[name], rtol=0, atol=1e-6)
    assert not list(whole.rglob("*.partial"))


@pytest.mark.slow
def test_by_epochs_a_checkpoint_holds_the_reference_too(model, tmp_path, monkeypatch):
    folder = train_by_recipe(
        monkeypatch, model, tmp_path / "run", save_strategy="epoch", num_train_rows=2, max_steps=2
    )
    assert {path.name for path in folder.glob(f"checkpoint-*/{REFERENCE}")} == {REFERENCE}
    assert len(list(folder.glob("checkpoint-*"))) == 2


@pytest.mark.slow
def test_two_processes_under_zero2_resume_to_the_same_policy_and_reference(model, tmp_path):
    settings = {
        **MOVING,
        "per_device_train_batch_size": 4,
        "ref_model_mixup_alpha": 0.6,
        "use_cpu": "true",
    }
    given = [word for name, value in settings.items() for word in (f"--{name}", str(value))]
    script = [
        "tests/support/resumed_reference.py",
        str(tmp_path),
        "--model_name_or_path",
        str(model),
        *given,
    ]
    launcher = [
        "-m",
        "accelerate.commands.accelerate_cli",
        "launch",
        "--config_file=accelerate_configs/zero2.yaml",
    ]
    run([sys.executable, *launcher, "--num_processes=2", *script], env={"DS_ACCELERATOR": "cpu"})
    whole, again = tmp_path / "whole", tmp_path / "again"
    for name in ("model.safetensors", f"checkpoint-4/{REFERENCE}"):
        assert_same_weights(whole / name, again / name)


def test_a_reference_comes_back_bit_for_bit_and_that_of_another_model_is_refused(tmp_path):
    one, other = torch.nn.Linear(3, 2).bfloat16(), torch.nn.Linear(3, 2).bfloat16()
    save_reference(one, tmp_path / "checkpoint-1")
    restore_reference(other, tmp_path / "checkpoint-1")
    assert same(list(one.parameters()), list(other.parameters()))
    with pytest.raises(ValueError, match="holds the parameters of another model"):
        restore_reference(torch.nn.Linear(2, 2), tmp_path / "checkpoint-1")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--use_peft", "true"], "stop after each N steps and start again from the merged model"),
        (["--beta", "0"], "sync_ref_model is set with beta 0, where no reference is loaded"),
        (
            ["--ref_model_mixup_alpha", "0"],
            "ref_model_mixup_alpha is 0.0; it must be more than 0 and at most 1",
        ),
        (
            ["--ref_model_sync_steps", "0"],
            "ref_model_sync_steps is 0; it must be a whole number of at least 1",
        ),
    ],
)
def test_what_a_moving_reference_does_not_go_with_is_refused(words, message):
    args = parse_arguments(
        RecipeArguments, ["--preset", "iterative_grpo", "--use_cpu", "--bf16", "false", *words]
    )
    problems = preflight(args, None, None, [], lambda row: "").problems
    assert sum(message in problem for problem in problems) == 1


@pytest.mark.parametrize(("steps", "moves"), [(99, False), (100, False), (101, True), (-1, True)])
def test_a_reference_that_will_never_move_is_noted(steps, moves):
    words = [
        "--model_name_or_path",
        "org/model",
        f"--max_steps={steps}",
        "--use_cpu",
        "--bf16",
        "false",
        "--dry_run",
    ]
    args = parse_arguments(RecipeArguments, ["--preset", "iterative_grpo", *words])
    notes = [
        note
        for note in preflight(args, None, None, [], lambda row: "").notes
        if "never moves" in note
    ]
    note = f"the reference never moves before the end: ref_model_sync_steps is 100, and the run ends after {steps}"
    assert notes == [] if moves else notes == [note]
