"""Before and after: the same rows and decoding, row by row, whatever the number of processes."""

import asyncio
import itertools
import random
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from datasets import Dataset
from support.scored_by_place import TINY
from transformers import GenerationConfig

from recipes.common.evaluation.evaluate import evaluate
from recipes.common.evaluation.metrics import answer_metric
from recipes.common.evaluation.scores import compare, comparison, comparison_table
from recipes.common.sampling.idle import held_out_rows
from recipes.common.trainer import GRPOConfig, GRPOTrainer
from recipes.common.training.callbacks import Clock
from recipes.common.utils.machine import make_head_input_contiguous
from recipes.common.utils.run_files import read_rows, write_rows
from recipes.common.watch import Watch
from rewards import load_reward

pytestmark = pytest.mark.usefixtures("one_thread")
PROMPTS = [[{"role": "user", "content": f"{i} + {'1' * (i % 3 + 1)} ="}] for i in range(7)]
ROWS = [{"prompt": p, "task": "sum", "answer": str(i)} for i, p in enumerate(PROMPTS)]


def length(completion_ids, **kwargs):
    return [float(len(ids)) for ids in completion_ids]


@pytest.fixture
def trainer(model, tmp_path):
    settings = {**TINY, "max_completion_length": 8, "per_device_eval_batch_size": 2}
    args, rewards = GRPOConfig(str(tmp_path), **settings), [load_reward("xml_format"), length]
    return GRPOTrainer(str(model), rewards, args, Dataset.from_list(ROWS))


def test_the_rows_of_another_model_have_the_columns_that_rewards_take():
    settings = SimpleNamespace(num_eval_rows=7, reward_columns={"solution": "answer"})
    args = SimpleNamespace(training={"seed": 0}, recipe=settings)
    module = SimpleNamespace(load_rows=lambda settings, seed: (None, Dataset.from_list(ROWS)))
    rows = held_out_rows(SimpleNamespace(args=args, module=module))
    assert [row["solution"] for row in rows] == [row["answer"] for row in ROWS]


@pytest.mark.parametrize("name", ["n", "truncated", "mean_length", "rewards", "turns", "sampled"])
def test_a_metric_with_the_name_of_another_figure_is_refused(name):
    row = {"prompt": "?", "metrics": {name: True}, "truncated": False, "tokens": 1, "rewards": {}}
    with pytest.raises(ValueError, match=f"the metric gives .*'{name}'.*, names of"):
        compare([row])


def test_ranks_together_evaluate_every_row_once_as_one_process_does(trainer, monkeypatch):
    long = {**ROWS[3], "prompt": [{"role": "user", "content": 2000 * " "}]}  # evaluated apart
    rows = [*ROWS[:3], long, *ROWS[4:]]
    parts, calls, whole = [], [], evaluate(trainer, rows, answer_metric, samples=1)
    gather = "recipes.common.evaluation.evaluate.gather_object"
    monkeypatch.setattr(gather, lambda rows: parts.append(rows) or rows)
    seed, trainer.args.vllm_tensor_parallel_size = torch.initial_seed, 3
    for use_vllm, rank in itertools.product((False, True), range(3)):
        calls.append([])
        here = SimpleNamespace(
            accelerator=SimpleNamespace(
                process_index=rank, num_processes=3, wait_for_everyone=lambda: None
            ),
            complete=lambda *rows, **kw: calls[-1].append(seed()) or trainer.complete(*rows, **kw),
            use_vllm=use_vllm,
            **{name: getattr(trainer, name) for name in ("args", "model", "reward_funcs")},
        )
        with pytest.raises(KeyError):  # one rank alone does not hold all rows
            evaluate(here, rows, answer_metric, samples=1)
    assert [len(part) for part in parts[:3]] == [3, 2, 2]  # no reward is asked twice of a row
    merged = {row["row"]: row for part in parts[:3] for row in part}
    assert [merged[i] for i in range(7)] == whole
    assert [row["prompt"] for row in whole] == [row["prompt"] for row in rows]
    # Under ZeRO-3 a rank that has one batch less would leave the others waiting.
    assert [len(of_rank) for of_rank in calls] == [4] * 6
    assert calls[0] != calls[1] and calls[3] == calls[4] == calls[5]  # sharing a vLLM: as one


def test_an_evaluation_is_repeatable_and_leaves_the_trainer_and_what_it_draws_alone(trainer):
    def unsteady(completions, **kwargs):
        return [random.random() + np.random.rand() for _ in completions]

    trainer.reward_funcs.append(unsteady)
    trainer.model.train()
    draws, found, before = [], [], trainer.model.lm_head.weight.clone()
    for evaluated in (False, True, True):
        random.seed(1), np.random.seed(1), torch.manual_seed(1)
        if evaluated:
            found.append(evaluate(trainer, ROWS, answer_metric, samples=2))
        draws.append((random.random(), np.random.rand(), torch.rand(1).item()))
    assert draws[0] == draws[1] == draws[2]
    assert found[0] == found[1] and len(found[0][0]["samples"]) == 2
    assert trainer.model.training and torch.equal(before, trainer.model.lm_head.weight)
    assert not any(trainer._metrics.values()) and not trainer._logs["completion"]
    assert trainer.state.num_input_tokens_seen == 0


@pytest.mark.slow
def test_an_async_reward_runs_on_one_event_loop_in_evaluation_and_training(model, tmp_path):
    loops = set()

    async def later(completions, **kwargs):
        loops.add(asyncio.get_running_loop())
        return [float(len(completion[0]["content"])) for completion in completions]

    args = GRPOConfig(output_dir=str(tmp_path), **{**TINY, "max_completion_length": 8})
    trainer = GRPOTrainer(str(model), later, args, Dataset.from_list(ROWS))
    before = evaluate(trainer, ROWS, answer_metric)
    trainer.train()
    assert before[0]["rewards"]["later"] > 0.0 and len(loops) == 1


def test_a_completion_is_what_the_model_writes_greedily_after_the_templated_prompt_alone(trainer):
    trainer.model.eval()
    greedy = GenerationConfig(max_new_tokens=8, eos_token_id=1, pad_token_id=0)
    for row, one in zip(ROWS, trainer.complete(ROWS), strict=True):
        text = f"<|user|>{row['prompt'][0]['content']}<|end|><|assistant|>"
        ids = torch.tensor([trainer.processing_class(text)["input_ids"]])
        written = trainer.model.generate(ids, generation_config=greedy)[0, ids.shape[1] :].tolist()
        assert one.token_ids == written
        assert one.text == trainer.processing_class.decode(written, skip_special_tokens=True)
        assert (one.tokens, one.truncated) == (len(written), 1 not in written)


def test_a_metric_is_told_which_completions_were_cut_off(trainer):
    found = evaluate(trainer, ROWS, lambda row, text: {"cut": row["truncated"]}, samples=1)
    assert [row["metrics"]["cut"] for row in found] == [row["truncated"] for row in found]
    assert all("cut" in draw for row in found for draw in row["samples"])


def test_settings_of_generation_are_the_runs_and_end_tokens_are_the_models(trainer):
    trainer.model.eval()
    before = [one.token_ids for one in trainer.complete(ROWS)]
    trainer.model.generation_config.repetition_penalty = 5.0
    assert [one.token_ids for one in trainer.complete(ROWS)] == before
    trainer.args.repetition_penalty = 5.0
    assert [one.token_ids for one in trainer.complete(ROWS)] != before
    trainer.eos_token_ids = list(range(len(trainer.processing_class)))
    assert {(one.tokens, one.truncated) for one in trainer.complete(ROWS)} == {(1, False)}


def test_rewards_see_the_token_ids_that_they_score_and_a_plain_prompt_needs_no_template(trainer):
    rows = [{"prompt": f"{i} + 1 =", "task": "sum", "answer": "2"} for i in range(3)]
    for found in (evaluate(trainer, ROWS, answer_metric), evaluate(trainer, rows, answer_metric)):
        assert [row["rewards"]["length"] for row in found] == [float(r["tokens"]) for r in found]


def test_under_vllm_an_evaluation_completes_by_vllm_one_greedy_answer_a_prompt(trainer, tmp_path):
    seen, named = [], []

    class FakeVLLM:
        temperature, top_p = 1.0, 0.9
        generation_kwargs = {"temperature": 0.5, "ignore_eos": False}

        def sync_weights(self):
            seen.append("synced")

        def generate(self, prompts, num_generations, **kwargs):
            seen.append((self.temperature, num_generations, len(prompts)))
            named.append([*self.generation_kwargs])
            ids = [trainer.processing_class("7")["input_ids"] + [1] for _ in prompts]
            return None, ids, [[[0.0]] * len(of) for of in ids], None

    trainer.use_vllm, trainer._last_loaded_step = True, -1
    trainer.vllm_generation = FakeVLLM()
    found = evaluate(trainer, ROWS[:3], answer_metric, samples=1)
    assert [row["completion"] for row in found] == ["7"] * 3
    # The last batch is filled up: a server shares its prompts out evenly.
    assert seen == ["synced", (0.0, 1, 2), (1.0, 1, 2), (0.0, 1, 2), (1.0, 1, 2)]
    assert named[:2] == [["ignore_eos"], ["temperature", "ignore_eos"]]
    # The best checkpoint is loaded at the step whose weights vLLM already has.
    Watch(trainer, ROWS[:2], answer_metric, None, Clock(tmp_path)).after()
    assert seen[5:] == ["synced", (0.0, 1, 2)]


def test_on_a_cpu_the_head_sees_a_contiguous_last_position_and_answers_as_before(trainer):
    seen, network = [], trainer.model.eval()
    ids = torch.arange(5, 25).view(4, 5)
    options = dict(input_ids=ids, max_new_tokens=6, do_sample=False)
    before = network.generate(**options)
    network.lm_head.register_forward_hook(
        lambda module, inputs, output: seen.append(inputs[0].is_contiguous())
    )
    network.generate(**options)
    assert not all(seen), "the hook is not needed any more"
    seen.clear()
    make_head_input_contiguous(network)
    assert torch.equal(before, network.generate(**options)) and all(seen)


# Scores


def evaluated_row(strict, lenient, prompt="p", **figures):
    metrics = {"strict": strict, "lenient": lenient, "format": strict}
    row = {"prompt": prompt, "metrics": metrics, "tokens": 10, "truncated": False}
    return {**row, "rewards": {"share": 0.0}, **figures}


def test_answer_metric_tells_format_from_skill():
    text = "<reasoning>3 + 4 = 7</reasoning><answer>7</answer>"
    outcomes = [tuple(answer_metric({"answer": "7"}, one).values()) for one in (text, "3 + 4 = 7")]
    assert outcomes == [(True, True, True), (False, True, False)]


def test_compare_tests_the_paired_rows_shows_the_change_in_points_and_refuses_others():
    before = [evaluated_row(False, True, prompt=i) for i in range(10)]
    after = [evaluated_row(i < 9, True, prompt=i) for i in range(10)]
    p = {"strict": 0.00390625, "lenient": 1.0, "format": 0.00390625}
    assert compare(before, after)["mcnemar_p"] == p
    head, strict, *_, reward = comparison(*compare(before[5:], after[5:]).values())
    assert head == ["5 test questions, greedy", "before", "after", "change", "McNemar p"]
    cells = ["0.0 % (0-43)", "80.0 % (38-96)", "+80.0 pt", "0.125"]
    assert strict == ["correct in format", *cells]
    assert reward == ["share, mean", "0.00", "0.00", "+0.00"]
    assert comparison(*compare(before[5:]).values())[1] == strict[:2]
    assert comparison_table(**compare(before), first="A").split("\n")[0].endswith("greedy  A")
    with pytest.raises(ValueError, match="same rows"):
        compare(before[:1], after[1:2])


def test_a_metric_counts_on_the_rows_that_have_it_both_times():
    before, after = [evaluated_row(True, True)] * 4, [evaluated_row(True, True)] * 4
    before[0] = evaluated_row(False, True, metrics={"lenient": True})
    after[3] = evaluated_row(None, False)
    _, lenient, strict, *_ = comparison(*compare(before, after).values())
    assert lenient[:3] == ["correct answer", "100.0 % (51-100)", "75.0 % (30-95)"]
    assert strict[:3] == ["correct in format", "100.0 % (34-100) of 2", "100.0 % (34-100) of 2"]


def test_rows_are_read_back_as_written_and_nothing_half_written_stays(tmp_path):
    rows = [evaluated_row(True, False, prompt="«é»\u2028\x85\n")]
    write_rows(tmp_path / "e" / "before.jsonl", rows)
    assert read_rows(tmp_path / "e" / "before.jsonl") == rows
    assert [path.name for path in (tmp_path / "e").iterdir()] == ["before.jsonl"]
