"""TRL's GRPO trainer with rewards that may fail, be gated, or score single steps.

The loss is TRL's own. The order of calls: `_generate` writes the completions, `_calculate_rewards`
scores them and gathers the rewards of all ranks, TRL turns the rewards into advantages, and
`_generate_and_score_completions` adds the advantages of the steps.
Shapes in names: C completions of all ranks (P groups of G), c those of this rank, R rewards of
completions, S step rewards, A all rewards, T tokens.
"""

import logging
import os
from collections import Counter, deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import torch
import trl
from accelerate.utils import gather
from transformers import trainer as hf_trainer
from trl.trainer import grpo_trainer

from recipes.common.training import completion
from recipes.common.training.advantages import group_spread, openers_of, void_and_gate
from recipes.common.training.config import SKIPPABLE, GRPOConfig
from recipes.common.training.guard import FAILURES, GRADED, NOT_APPLICABLE, Graded, Guard
from recipes.common.training.process import StepRewards, TokenStep, check_loss, token_advantages
from rewards.boundary import NOT_PASSED, as_column, contained
from rewards.contract import Reward, reward_of

SILENT = logging.Logger("silent", level=logging.CRITICAL)
NEEDED = "1.16"
if not trl.__version__.startswith(NEEDED + "."):
    raise ImportError(
        f"the recipes' trainer needs TRL {NEEDED}, whose insides it extends; {trl.__version__} is "
        f"installed: pip install 'trl=={NEEDED}.*'. A script of your own can use "
        "recipes.common.watch with TRL 1.9 to 1.16 (docs/running.md)."
    )


@dataclass
class Scores:
    """The scores of a generation: this rank's raw results, and the rewards of all ranks."""

    completions: list
    graded: dict[str, Graded]  # by the name of the reward, without reward models
    rewards_CR: torch.Tensor  # after voiding and gating; NaN: no reward
    teaches_C: torch.Tensor  # whether the group of the completion teaches anything
    steps: list[list[TokenStep]]  # of this rank, weighted; empty if the run has no step rewards


class GRPOTrainer(trl.GRPOTrainer):
    """`trl.GRPOTrainer` that voids, gates and logs the rewards before TRL computes advantages.

    The arguments are those of `trl.GRPOTrainer`; docs/running.md explains what is logged.

    - If a reward fails on a row (see `training/guard.py`), every reward of that row becomes None:
      the advantage of the row is 0, and its group is normalised without the row.
    - A gated reward is kept only where one of its gates scored more than 0.
    - With step rewards (DeepSeekMath, section 4.1.3; docs/grpo.md) TRL's loss gets advantages of
      the shape (completions, tokens). The advantage of a token is TRL's advantage of the completion
      plus the weighted sum of the normalised rewards of the steps that end at or after the token.
      It is 0 for a masked token. The log shows the mean over the tokens of each completion.
    - The `get_reward` of an environment becomes the last reward, with weight 1.

    `args` may be TRL's own configuration. If two rewards have the same name, the second is
    numbered. Without an environment, `reward_funcs` needs a reward whose kind is not step.
    `args.reward_weights` has one weight for each of `reward_funcs`; the weight of a step reward is
    applied after normalisation. Raises ValueError if the rewards, the weights and the loss do not
    fit together. Training raises `RewardErrors` on all ranks if a reward fails too often.

    Example:
        >>> trainer = GRPOTrainer("Qwen/Qwen2.5-0.5B-Instruct", my_reward, None, rows)
    """

    def __init__(
        self,
        model,
        reward_funcs=None,
        args=None,
        train_dataset=None,
        eval_dataset=None,
        processing_class=None,
        reward_processing_classes=None,
        callbacks=None,
        optimizers=(None, None),
        quantization_config=None,
        peft_config=None,
        tools=None,
        rollout_func=None,
        environment_factory=None,
    ):
        from recipes.common.training import tools as run_tools
        from recipes.common.training.vllm import vllm_like_the_training

        if args is None:
            name = model if isinstance(model, str) else model.config._name_or_path
            args = GRPOConfig(f"{name.split('/')[-1]}-GRPO")
        args = GRPOConfig.of(args)  # a copy: reward_weights changes below
        tools = tools or run_tools.load_tools(args.tools)
        environment_factory = environment_factory or run_tools.load_environment(
            args.environment_factory
        )
        has_tools = bool(tools or environment_factory)
        processing_class = run_tools.processor_of(processing_class, model, args, has_tools)

        reward_funcs = [] if reward_funcs is None else reward_funcs
        rewards = _numbered(reward_funcs if isinstance(reward_funcs, list) else [reward_funcs])
        weights = args.reward_weights or [1.0] * len(rewards)
        if len(weights) != len(rewards):
            raise ValueError(
                f"reward_weights has {len(weights)} values for {len(rewards)} rewards."
            )
        outcomes = [reward for reward in rewards if reward.kind != "step"]  # of whole completions
        if not outcomes and not environment_factory:
            raise ValueError("reward_funcs needs one that is not of the kind step, of any weight.")
        weight_of = {reward.name: weight for reward, weight in zip(rewards, weights, strict=True)}
        if args.reward_weights:
            args.reward_weights = [weight_of[reward.name] for reward in outcomes]
        steps = [reward for reward in rewards if reward.kind == "step"]
        if steps:
            check_loss(
                args.loss_type, args.importance_sampling_level, args.off_policy_mask_threshold
            )
        if steps and has_tools:
            raise ValueError(
                "reward_funcs names a step reward, which cannot be placed among the turns of "
                "tools: remove it."
            )

        with vllm_like_the_training(self):
            super().__init__(
                model=model,
                # TRL loads and calls a reward model itself.
                reward_funcs=[reward.call if reward.is_model else reward for reward in outcomes],
                args=args,
                train_dataset=train_dataset,
                eval_dataset=eval_dataset,
                processing_class=processing_class,
                reward_processing_classes=reward_processing_classes,
                callbacks=callbacks,
                optimizers=optimizers,
                quantization_config=quantization_config,
                peft_config=peft_config,
                tools=tools,
                rollout_func=rollout_func,
                environment_factory=environment_factory,
            )
        if self.environment_factories:  # replace the rewards that TRL added for get_reward
            kinds = dict.fromkeys(type(pool[0]) for pool in self._environment_pool.values())
            scoring = [kind for kind in kinds if hasattr(kind, "get_reward")]
            self.reward_funcs[len(outcomes) :] = map(run_tools.environment_reward, scoring)
        self.guards: list[Guard | None] = []  # of each of `reward_funcs`; None for a reward model
        for number, reward in enumerate(self.reward_funcs):
            guard = Guard(reward, args.reward_timeout_s) if isinstance(reward, Reward) else None
            self.guards.append(guard)
            if guard:
                self.reward_funcs[number] = guard.as_reward()
        self.steps = StepRewards(
            guards=[Guard(reward, args.reward_timeout_s) for reward in steps],
            weights=[weight_of[reward.name] for reward in steps],
        )
        if args.share_prompts:
            from recipes.common.training.shared_prompt import share_prompts_of

            share_prompts_of(self)
        self.reward_gates = openers_of(args.reward_gates)
        self.scores: Scores  # of the latest generation; TRL takes only the rewards among them
        # run.py sets these: a timer for phases, whether `Watch` evaluates the validation rows, and
        # `Watch.observe`, which takes (rows, completions, advantages) and returns what to log.
        self.phase: Callable[[str], AbstractContextManager] = nullcontext
        self.is_watched = False
        self.observe: Callable[..., dict[str, float]] | None = None

    def _build_accelerator_args(self, **kwargs):
        """Do as transformers does, without its search at each step for weights without gradient."""
        # None is false; for a model with images TRL has set true.
        self.args.ddp_find_unused_parameters = bool(self.args.ddp_find_unused_parameters)
        return super()._build_accelerator_args(**kwargs)

    # --- From a completion to its advantage

    def _generate_and_score_completions(self, inputs):
        """Do as TRL does, add the advantages of step rewards, and log what `observe` returns."""
        # Calls `_generate` and `_calculate_rewards`.
        output = super()._generate_and_score_completions(inputs)
        scores = self.scores
        # A completion that `mask_truncated_completions` masks moves nothing.
        advantages_c = output["advantages"] * output["completion_mask"].any(dim=1)
        if self.args.skips:  # in a group of equal totals rounding can leave 1e-4: make it 0
            first = self.accelerator.process_index * len(inputs)
            advantages_c = advantages_c * scores.teaches_C[first : first + len(inputs)]
        output["advantages"] = advantages_c
        if self.steps.guards:
            mask_cT = output["completion_mask"]
            steps_cT = token_advantages(scores.steps, tokens=mask_cT.shape[1]).to(advantages_c)
            advantages_cT = (advantages_c.unsqueeze(1) + steps_cT) * mask_cT
            output["advantages"] = advantages_cT
            advantages_c = advantages_cT.sum(dim=1) / mask_cT.sum(dim=1).clamp(min=1)
            # In place of the advantages that TRL has just logged, those of all ranks with steps.
            logged, means_C = self._logs["advantages"], gather(advantages_c).tolist()
            _refill(logged, [*list(logged)[: -len(means_C)], *means_C])
        if self.observe and self.model.training:
            figures = self.observe(inputs, scores.completions, advantages_c.tolist())
            for name, value in figures.items():
                self._metrics["train"][name].append(value)
        return output

    def _tokenize_prompts(self, prompts):
        """Tokenize as TRL does; a last message of the assistant is left open."""
        return completion.tokenize_begun(self, prompts) or super()._tokenize_prompts(prompts)

    def _generate(self, prompts):
        """Generate as TRL does; an answer that its prompt begins is put before the completion."""
        with self.phase("generating"):
            return completion.begin_answers(prompts, super()._generate(prompts))

    _tool_call_loop = completion.call_tools  # TRL's, across the boundary to foreign code

    def _calculate_rewards(self, inputs, prompts, completions, completion_ids_list):
        """The rewards of all ranks (completions x rewards), of which TRL makes the advantages."""
        with self.phase("scoring"):
            self.scores = self.score(inputs, prompts, completions, completion_ids_list)
        return self.scores.rewards_CR

    def score(
        self, rows: list[dict], prompts: list, completions: list, completion_ids: list[list[int]]
    ) -> Scores:
        """Score this rank's completions; gather, void (failures) and gate rewards of all ranks."""
        # Async rewards run together, on another thread: random states are restored after the last.
        around = nullcontext()
        if any(guard and guard.reward.is_async for guard in self.guards):
            around = contained("async", self.state.global_step, completions)
        # TRL calls the guarded rewards and gathers their scores, with NaN for None. It would warn
        # of every batch with a row without a score; the guard warns once.
        with around, completion.replaced(grpo_trainer, logger=SILENT):
            amounts_CR = super()._calculate_rewards(rows, prompts, completions, completion_ids)
        graded = {guard.name: guard.latest for guard in self.guards if guard}
        columns = {
            **{name: [row[name] for row in rows] for name in rows[0] if name not in NOT_PASSED},
            "prompts": prompts,
            "completions": completions,
            "completion_ids": completion_ids,
            "trainer_state": self.state,
            "log_metric": self._log_metric,
            "log_extra": self._log_completion_extra,
        }
        graded_S, steps_Sc = self.steps.grade(self._tokenizer, columns)
        graded |= graded_S
        self._log_turns(completions)

        outcomes_CA = self._gather_outcomes(graded, len(rows))
        failed_C = torch.isin(outcomes_CA, torch.tensor(FAILURES, device=amounts_CR.device)).any(1)
        self._log_metric("completions/voided", failed_C.float().mean().item())
        rewards_CR = void_and_gate(amounts_CR, failed_C, self.reward_func_names, self.reward_gates)
        self._log_parts(rewards_CR)
        teaches_P = self._spread(rewards_CR)
        steps_c: list[list[TokenStep]] = []
        if self.steps.guards:  # a step counts where its reward applies and no reward failed
            counts_CA = (outcomes_CA != NOT_APPLICABLE) & ~failed_C.unsqueeze(1)
            counts_CS = counts_CA[:, len(self.reward_funcs) :].tolist()
            steps_c, steps_differ_P = self.steps.normalise(
                steps_Sc, counts_CS, self._group_size(), self.scale_rewards, self._log_metric
            )
            teaches_P |= torch.tensor(steps_differ_P, device=teaches_P.device)
        if self.mask_truncated_completions:  # a group of truncated ones has no loss
            ended_c = [not completion.is_truncated(self, ids) for ids in completion_ids]
            ended_C = gather(torch.tensor(ended_c, device=teaches_P.device))
            teaches_P &= ended_C.view(len(teaches_P), -1).any(dim=1)
        self._log_metric("groups/without_spread", 1.0 - teaches_P.float().mean().item())
        teaches_C = teaches_P.repeat_interleave(self._group_size())
        return Scores(completions, graded, rewards_CR, teaches_C, steps_c)

    def _group_size(self) -> int:
        """How many completions a prompt has, in training or in an evaluation of TRL."""
        return self.num_generations if self.model.training else self.num_generations_eval

    def _gather_outcomes(self, graded: dict[str, Graded], count: int) -> torch.Tensor:
        """The outcome codes, such as TIMEOUT: a row for each completion of all ranks, (C, A).

        It has a column for each reward, step rewards last; a reward model counts as GRADED.
        `graded` has the results of this rank's `count` completions by the name of the reward.
        Logs how often each failed; raises `RewardErrors` on all ranks if one failed too often.
        """
        guards_A = [*self.guards, *self.steps.guards]
        outcomes_Ac = [
            graded[guard.name].outcomes if guard else [GRADED] * count for guard in guards_A
        ]
        outcomes_cA = torch.tensor(outcomes_Ac, device=self.accelerator.device).T.contiguous()
        outcomes_CA = gather(outcomes_cA)
        for guard, outcomes_C in zip(guards_A, outcomes_CA.T.tolist(), strict=True):
            if guard is not None:
                rates = guard.count(outcomes_C, self.args.max_reward_error_rate)
                for rate, share in rates.items():
                    self._log_metric(f"{rate}/{guard.name}", share)
        return outcomes_CA

    # --- What is logged of a generation

    def _log_parts(self, rewards_CR: torch.Tensor) -> None:
        """Log each reward's weighted mean over all scored completions; they add up to `reward`."""
        scored_CR = rewards_CR[~torch.isnan(rewards_CR).all(dim=1)].nan_to_num(0.0)
        parts_R = scored_CR.mean(dim=0) * self.reward_weights.to(scored_CR.device)
        for name, part in zip(self.reward_func_names, parts_R.tolist(), strict=True):
            self._log_metric(f"reward_parts/{name}", part)

    def _spread(self, rewards_CR: torch.Tensor) -> torch.Tensor:
        """Return for each group, (P,), whether the total rewards of its completions differ.

        Logs the share of groups where those of the verifiers alone do.
        """
        weights_R = self.reward_weights.to(rewards_CR.device)
        size, aggregation = self._group_size(), self.multi_objective_aggregation
        differ_P = group_spread(rewards_CR, weights_R, size, aggregation)
        kinds = [guard.reward.kind if guard else "model" for guard in self.guards]
        if "verifier" in kinds:
            is_verifier_R = torch.tensor([kind == "verifier" for kind in kinds]).to(weights_R)
            by_verifier_P = group_spread(rewards_CR, weights_R * is_verifier_R, size, aggregation)
            self._log_metric("groups/verifier_spread", by_verifier_P.float().mean().item())
        return differ_P

    def _log_turns(self, completions: list) -> None:
        """Log the share of each kind of turn, such as `turns/failed_call`, if the run has tools."""
        if not self.tools:
            return
        opening = completion.opening_of(self._tokenizer)
        turns = Counter(kind for one in completions for kind in completion.turn_kinds(one, opening))
        # TRL would take the mean of the ranks' shares, but ranks have different numbers of turns.
        counts = [turns[kind] for kind in completion.TURN_KINDS]
        counts = torch.tensor(counts, device=self.accelerator.device)
        counts = self.accelerator.reduce(counts, reduction="sum")
        for kind, count in zip(completion.TURN_KINDS, counts, strict=True):
            self._log_metric(f"turns/{kind.replace(' ', '_')}", (count / counts.sum()).item())

    def log(self, *args, **kwargs) -> None:
        """Log as TRL does; first give each column of its table one type over all ranks."""
        if not self.args.log_completions:
            return super().log(*args, **kwargs)
        from recipes.common.training.tools import as_texts
        from recipes.common.training.tracking import outlive_table

        for column in self._logs["extra"].values():
            _refill(column, as_column(list(column)))
        _refill(self._logs["completion"], list(map(as_texts, self._logs["completion"])))
        with outlive_table():
            super().log(*args, **kwargs)

    # --- The update, and evaluation

    def create_accelerator_and_postprocess(self):
        """Do as transformers does; let FSDP2 return log-probabilities in float32, as all engines.

        In bf16, accelerate's policy rounds to bfloat16 what the whole model returns.
        """
        super().create_accelerator_and_postprocess()
        plugin = getattr(self.accelerator.state, "fsdp_plugin", None)
        policy = getattr(plugin, "mixed_precision_policy", None)
        if hasattr(policy, "output_dtype"):  # FSDP1's has none
            plugin.mixed_precision_policy = replace(policy, output_dtype=None)

    def _save_checkpoint(self, model, trial):
        """Save a checkpoint with a manifest as its last file, and then delete the oldest ones.

        A kill at any time leaves a whole checkpoint; a resume can tell which one is.
        """
        from recipes.common.utils.run_files import write_manifest

        with completion.replaced(hf_trainer, rotate_checkpoints=lambda **options: None):
            super()._save_checkpoint(model, trial)
        self.accelerator.wait_for_everyone()  # each process writes files of its own
        if self.args.should_save:
            folder = Path(self._get_output_dir(trial=trial))
            saved = folder / f"checkpoint-{self.state.global_step}"
            write_manifest(saved)
            # The oldest by time are deleted: this one is the newest, also if the clock went back.
            latest = max(path.stat().st_mtime for path in folder.glob("checkpoint-*"))
            os.utime(saved, (latest + 1, latest + 1))
            hf_trainer.rotate_checkpoints(
                output_dir=str(folder),
                save_total_limit=self.args.save_total_limit,
                best_model_checkpoint=self.state.best_model_checkpoint,
                use_mtime=True,
            )

    def training_step(self, *args, **kwargs):
        with self.phase("updating"):
            return super().training_step(*args, **kwargs)

    def _prepare_inputs(self, generation_batch):
        """Prepare inputs as TRL does; with shared prompts do not shuffle, unless that matters.

        So a group stays in one micro batch, where its prompt is computed once.
        """
        if not self.args.share_prompts or self.args.order_matters or self.aux_loss_enabled:
            return super()._prepare_inputs(generation_batch)
        with completion.replaced(grpo_trainer, shuffle_sequence_dict=lambda batch: batch):
            return super()._prepare_inputs(generation_batch)

    def _compute_loss(self, model, inputs):
        """TRL's loss; `skip_zero_advantages` leaves out completions whose advantage is 0.

        Such a completion adds nothing to the gradient. A loss that is divided by the number of its
        completions is scaled by the share that is left.
        """
        if not self.args.skips or self.aux_loss_enabled or "pixel_values" in inputs:
            return super()._compute_loss(model, inputs)
        advantages = inputs["advantages"]  # by completion; with step rewards by token, too
        moves_c = advantages.reshape(len(advantages), -1).any(dim=1)
        # TRL gathers clip ratios, so every rank must keep equally many: as the rank with the most.
        most = max(1, gather(moves_c.sum()).max().item())
        movers_first = (~moves_c).int().argsort(stable=True)
        kept = movers_first[:most].sort().values
        rows = {
            name: of[kept]
            for name, of in inputs.items()
            if torch.is_tensor(of) and of.shape[:1] == moves_c.shape
        }
        share = 1.0 if SKIPPABLE[self.loss_type] == "tokens" else most / len(moves_c)
        return super()._compute_loss(model, inputs | rows) * share

    def _get_per_token_logps_and_entropies(self, *args, **kwargs):
        with completion.small_logits(self.accelerator.device):
            return super()._get_per_token_logps_and_entropies(*args, **kwargs)

    def complete(self, rows: list[dict], do_sample: bool = False) -> list[completion.Rollout]:
        """Complete rows as in training, with tools; do not score or log the completions."""
        return completion.complete(self, rows, do_sample)

    def evaluate(self, *args, **kwargs) -> dict[str, float]:
        """Evaluate by the callback `Watch` if it has validation rows, else as TRL does.

        transformers looks up `metric_for_best_model` in the returned metrics.
        """
        if not self.is_watched:
            return super().evaluate(*args, **kwargs)
        metrics: dict[str, float] = {}
        self.control = self.callback_handler.on_evaluate(
            self.args, self.state, self.control, metrics
        )
        return metrics


def _numbered(rewards: list) -> list[Reward]:
    """Number rewards that share a name (`a`, `a_2`), so that their logs stay separate."""
    numbered: dict[str, Reward] = {}
    for reward in map(reward_of, rewards):
        name, count = reward.name, 1
        while name in numbered:
            count += 1
            name = f"{reward.name}_{count}"
        numbered[name] = replace(reward, name=name)
    return list(numbered.values())


def _refill(column: deque, values: list) -> None:
    """Replace all values of a column of TRL's table of completions."""
    column.clear()
    column.extend(values)
