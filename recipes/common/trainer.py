"""TRL's GRPO trainer with rewards that may fail, be gated, or score single steps; its loss is TRL's
own.

A completion's way: `complete` or TRL's `_generate` writes it, `score` asks the rewards and settles
with all ranks what counts, and `_generate_and_score_completions` makes its advantage of that.
Shapes in names: C completions of all ranks (P groups of G), c those of this rank, R rewards of
completions, S step rewards, A all rewards, T tokens.
"""

import copy
import warnings
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
import transformers
import trl
from accelerate.utils import gather, is_peft_model
from transformers.integrations import is_deepspeed_zero3_enabled
from transformers.trainer_utils import rotate_checkpoints
from trl.trainer import grpo_trainer

from recipes.common.training import environments, rollout
from recipes.common.training.completion import Rollout
from recipes.common.training.gates import group_spread, void_and_gate
from recipes.common.training.guard import FAILURES, GRADED, GRADED_BY, NOT_APPLICABLE, Graded, guard
from recipes.common.training.shared_prompt import share_prompts, why_prompts_are_not_shared
from recipes.common.training.steps import StepRewards, TokenStep, check_loss, token_advantages
from recipes.common.utils.machine import fastest_dtype
from recipes.common.utils.secrets import blank
from rewards import reward_kind, reward_name
from rewards.contract import check_names, is_model, reward_of

NO_STEPS_WITH_TOOLS = (
    "reward_funcs names a step reward, which cannot be placed among the turns of tools: remove it."
)
OWN = ("prompt", "completion", "completion_ids")  # columns that TRL keeps from a reward
# Losses of which a completion may be left out, by what TRL divides them by: tokens of the batch, or
# these completions.
SKIPPABLE = {"grpo": "completions", "dr_grpo": "completions", "dapo": "tokens", "cispo": "tokens"}


def _setting(default: Any, text: str) -> Any:
    """A field of the configuration with its help."""
    return field(default=default, metadata={"help": text})


@dataclass
class GRPOConfig(trl.GRPOConfig):
    """TRL's `GRPOConfig` with the settings of our trainer."""

    _argument_group_name = "training: TRL's GRPOConfig, and the settings of our trainer"

    reward_gates: dict | str | None = _setting(
        None, "Keep a reward only where another scores above 0: {length: gsm8k_correctness}."
    )
    max_reward_error_rate: float = _setting(
        0.05, "Stop above this share of rows that a reward failed on, of its last 1 000."
    )
    reward_timeout_s: float = _setting(300.0, "Limit for one call of one reward in seconds.")
    skip_zero_advantages: bool = _setting(
        False, "Leave completions of advantage 0 out of the update: the same, in less time."
    )
    # transformers' default is true for most models: a search at each step for weights without
    # gradient. A mixture of experts has some.
    ddp_find_unused_parameters: bool | None = _setting(
        False, "DDP: look for weights that got no gradient, as some experts do."
    )
    share_prompts: bool = _setting(
        False, "Compute the prompt of a group once for its completions, in less time."
    )
    tools: list[str] | None = _setting(
        None, "Functions that the model may call: path/to/file.py:function."
    )
    environment_factory: dict | str | None = _setting(
        None, "path/to/file.py:Class of an environment; several by the column environment."
    )
    chat_template_path: str | None = _setting(
        None, "A Jinja file that takes the place of the tokenizer's chat template."
    )

    def __getstate__(self) -> dict:
        """What training_args.bin keeps: it goes to the Hub with the model."""
        return blank(vars(self))

    def __copy__(self) -> "GRPOConfig":
        copied = object.__new__(type(self))
        vars(copied).update(vars(self))
        return copied

    def to_dict(self) -> dict:
        """What W&B and TensorBoard get."""
        return blank(super().to_dict())

    @property
    def uses_entropy(self) -> bool:
        """Whether the loss has a bonus for entropy, or drops tokens by it."""
        bonus = self.entropy_coef or self.use_adaptive_entropy
        return bool(bonus or self.top_entropy_quantile < 1.0)

    @property
    def skips(self) -> bool:
        """Whether completions of advantage 0 are left out: asked for, and nothing to this loss."""
        more = self.beta or self.uses_entropy
        by_group = self.multi_objective_aggregation == "sum_then_normalize"
        return self.skip_zero_advantages and by_group and not more and self.loss_type in SKIPPABLE

    @property
    def order_matters(self) -> bool:
        """Whether an update depends on which completions share a micro batch, as TRL shuffles them.

        It does where a generation serves several updates, and where a mean is taken over a micro
        batch.
        """
        several_updates = self.gradient_accumulation_steps % self.steps_per_generation != 0
        return several_updates or self.uses_entropy or self.loss_type == "bnpo"


def add_model_arguments(training: GRPOConfig, model: trl.ModelConfig) -> None:
    """Hand the model's arguments to the trainer, as `trl/scripts/grpo.py` does."""
    given = {
        "revision": model.model_revision,
        "attn_implementation": model.attn_implementation,
        "dtype": fastest_dtype()[0] if model.dtype == "fastest" else model.dtype,
    }
    given = {name: value for name, value in given.items() if value is not None}
    training.model_init_kwargs = {**given, **(training.model_init_kwargs or {})}


@dataclass
class Scores:
    """A generation scored: what rewards gave this rank's completions, and what counts on all."""

    graded: dict[str, Graded]  # by the name of the reward; those of reward models are not here
    step_rewards: list[str]
    rewards_CR: torch.Tensor  # after voids and gates, NaN for none
    teaches_C: torch.Tensor  # whether its group has spread
    steps: list[list[TokenStep]]  # of this rank's completions, weighted; none without step rewards


class GRPOTrainer(trl.GRPOTrainer):
    """`trl.GRPOTrainer` that works on the rewards of a batch before they become advantages.

    - A row that a reward failed on (see `training/guard.py`) gets None from every reward: its
      advantage is 0 and its group is normalised without it.
    - Each generation logs `errors/<reward>`, `unparsed/<reward>` and `timeouts/<reward>`: the share
      of the rows the reward applies to, over all ranks; and `completions/voided`, the share that
      any reward failed on.
    - A gated reward is kept only where one of its gates scored more than 0.
    - `groups/without_spread` is the share of groups that teach nothing, `groups/verifier_spread` of
      those in which a verifier tells completions apart.
    - With step rewards (DeepSeekMath, section 4.1.3; docs/grpo.md) TRL's loss gets advantages of
      the shape (completions, tokens): its own, at each token, plus the weighted sum of the
      normalised rewards of the steps that end at or after it; 0 where a token is masked. The
      advantage that is logged of a completion is their mean.
    - The `get_reward` of an environment is a reward like any other, the last (see
      `training/environments.py`).

    `reward_funcs` needs one reward that is not of the kind step. `args.reward_weights` has one
    weight for each; that of a step reward is applied after its normalisation. Raises ValueError for
    rewards, weights or a loss that do not go together, and `RewardErrors` while training, on all
    ranks.
    """

    def __init__(
        self,
        model,
        reward_funcs: list[Callable | str] | Callable | str,
        args: GRPOConfig,
        tools=None,
        environment_factory=None,
        **kwargs,
    ):
        tools = tools or environments.load_tools(args.tools)
        factory = environment_factory or environments.load_environments(args.environment_factory)
        has_tools = bool(tools or factory)
        processor = rollout.tool_processor(
            kwargs.pop("processing_class", None), model, args, has_tools
        )
        reward_funcs = reward_funcs if isinstance(reward_funcs, list) else [reward_funcs]
        owned = [each for each in reward_funcs if isinstance(each, environments.EnvironmentReward)]
        if owned and not factory:
            raise ValueError(
                "reward_funcs has the reward of an environment: give its environment_factory, too."
            )
        owned = owned or environments.environment_rewards(factory)
        reward_funcs = [reward for reward in reward_funcs if reward not in owned] + owned
        if problems := check_names(reward_funcs):
            raise ValueError("\n".join(problems))
        weights = environments.all_weights(args.reward_weights, reward_funcs)
        weights = [1.0] * len(reward_funcs) if weights is None else weights
        if len(weights) != len(reward_funcs):
            raise ValueError(
                f"reward_weights has {len(weights)} values for {len(reward_funcs)} rewards."
            )
        # TRL calls a reward model itself.
        guarded = [
            reward.call if reward.is_model else guard(given, args.reward_timeout_s)
            for given, reward in zip(reward_funcs, map(reward_of, reward_funcs), strict=True)
        ]
        weighted = list(zip(guarded, weights, strict=True))
        outcomes = [(r, weight) for r, weight in weighted if reward_kind(r) != "step"]
        steps = [(r, weight) for r, weight in weighted if reward_kind(r) == "step"]
        if not outcomes:
            raise ValueError(
                "reward_funcs needs a reward that is not of the kind step; one of weight 0 is "
                "enough."
            )
        if steps:
            check_loss(
                args.loss_type, args.importance_sampling_level, args.off_policy_mask_threshold
            )
            if has_tools:
                raise ValueError(NO_STEPS_WITH_TOOLS)
        self.steps = StepRewards([reward for reward, _ in steps], [weight for _, weight in steps])
        if steps or owned:  # weights that TRL does not know of
            args = copy.copy(args)
            args.reward_weights = [weight for _, weight in outcomes]
        kwargs |= {"tools": tools, "environment_factory": factory, "processing_class": processor}
        super().__init__(model, [reward for reward, _ in outcomes], args=args, **kwargs)
        rollout.keep_rewards(self, len(outcomes))
        if args.share_prompts:
            self._share_prompts()
        gates = args.reward_gates or {}
        self.reward_gates = {
            name: [of] if isinstance(of, str) else list(of) for name, of in gates.items()
        }
        # run.py sets them: what times a phase of the run, whether `Watch` evaluates the validation
        # rows, and what it says of a generation (rows, completions, advantages).
        self.phase: Callable[[str], AbstractContextManager] = nullcontext
        self.is_watched = False
        self.observe: Callable[..., dict[str, float]] | None = None

    def _share_prompts(self) -> None:
        """For the policy and the reference model, or say why not."""
        partitioned = self.is_fsdp_enabled or is_deepspeed_zero3_enabled()
        for model in filter(None, (self.model, self.ref_model)):
            inner = self.accelerator.unwrap_model(model)
            inner = inner.get_base_model() if is_peft_model(inner) else inner
            reason = why_prompts_are_not_shared(self.args, inner.config)
            if reason is None:
                share_prompts(inner, partitioned)
            elif model is self.model:
                warnings.warn(f"share_prompts has no effect: {reason}.", stacklevel=3)

    def log(self, *args, **kwargs) -> None:
        """TRL's, whose table of completions a model's odd tool call cannot break."""
        completions = self._logs["completion"]
        for i, completion in enumerate(list(completions)):
            completions[i] = rollout.loggable(completion)
        super().log(*args, **kwargs)

    def _save_checkpoint(self, *args, **kwargs) -> None:
        """TRL's; the oldest checkpoints are those of the least step, whatever the clock says."""
        with rollout.replaced(transformers.trainer, rotate_checkpoints=_rotate_by_step):
            super()._save_checkpoint(*args, **kwargs)

    def _prepare_inputs(self, generation_batch):
        """TRL's; groups stay together where nothing depends on TRL's shuffling."""
        if not self.args.share_prompts or self.args.order_matters:
            return super()._prepare_inputs(generation_batch)
        with rollout.replaced(grpo_trainer, shuffle_sequence_dict=_in_order):
            return super()._prepare_inputs(generation_batch)

    def evaluate(self, *args, **kwargs) -> dict[str, float]:
        """Leave the validation rows to the callback `Watch`, as before and after; or as TRL does.

        transformers looks for `metric_for_best_model` in the mapping that is returned.
        """
        if not self.is_watched:
            return super().evaluate(*args, **kwargs)
        metrics: dict[str, float] = {}
        self.control = self.callback_handler.on_evaluate(
            self.args, self.state, self.control, metrics
        )
        return metrics

    def training_step(self, *args, **kwargs):
        with self.phase("updating"):
            return super().training_step(*args, **kwargs)

    def _generate(self, *args, **kwargs):
        with self.phase("generating"):
            return super()._generate(*args, **kwargs)

    def _compute_loss(self, model, inputs):
        """TRL's loss; with `skip_zero_advantages` of the completions that add to it."""
        if not self.args.skips or self.aux_loss_enabled or "pixel_values" in inputs:
            return super()._compute_loss(model, inputs)
        counts_c = inputs["advantages"].reshape(len(inputs["advantages"]), -1).any(dim=1)
        # TRL gathers clip ratios, so all ranks keep as many.
        most = max(1, gather(counts_c.sum()).max().item())
        kept = counts_c.int().argsort(descending=True, stable=True)[:most].sort().values
        rows = {
            name: of[kept]
            for name, of in inputs.items()
            if torch.is_tensor(of) and of.shape[:1] == counts_c.shape
        }
        share = 1.0 if SKIPPABLE[self.loss_type] == "tokens" else most / len(counts_c)
        return super()._compute_loss(model, inputs | rows) * share

    def complete(self, rows: list[dict], do_sample: bool = False) -> list[Rollout]:
        """Complete rows as in training, tools included, without scoring or logging them."""
        return rollout.complete(self, rows, do_sample)

    def _generate_and_score_completions(self, inputs):
        kept: list[tuple[list, Scores]] = []

        def calculate(inputs, prompts, completions, *ids) -> torch.Tensor:
            with self.phase("scoring"):
                kept.append((completions, self.score(inputs, prompts, completions, *ids)))
            return kept[0][1].rewards_CR  # all that TRL's method takes

        with rollout.replaced(self, _calculate_rewards=calculate):
            output = super()._generate_and_score_completions(inputs)
        ((completions, scores),) = kept
        advantages_c = output["advantages"]
        if self.args.skips:  # rounding leaves 1e-4 where a group has no spread
            first = self.accelerator.process_index * len(inputs)
            advantages_c = advantages_c * scores.teaches_C[first : first + len(inputs)]
        output["advantages"] = advantages_c
        if self.steps.rewards:
            mask_cT = output["completion_mask"]
            steps_cT = token_advantages(scores.steps, tokens=mask_cT.shape[1]).to(advantages_c)
            advantages_cT = (advantages_c.unsqueeze(1) + steps_cT) * mask_cT
            output["advantages"] = advantages_cT
            advantages_c = advantages_cT.sum(dim=1) / mask_cT.sum(dim=1).clamp(min=1)
            self._log_advantages(advantages_c)
        if self.observe and self.model.training:
            for name, value in self.observe(inputs, completions, advantages_c.tolist()).items():
                self._metrics["train"][name].append(value)
        return output

    def score(self, inputs, prompts, completions, completion_ids_list) -> Scores:
        """Score this rank's completions, and settle with all ranks what counts of them."""
        graded: dict[str, Graded] = {}  # filled by the guards
        given_CR = super()._calculate_rewards(
            [{**row, GRADED_BY: graded} for row in inputs],
            prompts,
            completions,
            completion_ids_list,
        )
        self._log_turns(completions)
        columns = {name: [row[name] for row in inputs] for name in inputs[0] if name not in OWN}
        columns |= {"prompts": prompts, "completions": completions, "trainer_state": self.state}
        columns |= {"log_metric": self._log_metric, "log_extra": self._log_completion_extra}
        columns["completion_ids"] = completion_ids_list
        graded_S, steps_Sc = self.steps.grade(self._tokenizer, **columns)
        graded |= graded_S
        outcomes_CA = self._gather_outcomes(graded, len(prompts)).to(given_CR.device)
        failed_C = torch.isin(outcomes_CA, torch.tensor(FAILURES, device=given_CR.device)).any(1)
        self._log_metric("completions/voided", failed_C.float().mean().item())
        rewards_CR = void_and_gate(given_CR, failed_C, self.reward_func_names, self.reward_gates)
        teaches_C = self._log_spread(rewards_CR)
        weighed_c: list[list[TokenStep]] = []
        if self.steps.rewards:
            counts_CA = (outcomes_CA != NOT_APPLICABLE) & ~failed_C.unsqueeze(1)
            counts_CS = counts_CA[:, len(self.reward_funcs) :].tolist()
            rank = self.accelerator.process_index
            how = (rank, self._group_size(), self.scale_rewards)
            weighed_c, metrics = self.steps.weigh(steps_Sc, counts_CS, *how)
            for name, value in metrics.items():
                self._log_metric(name, value)
        return Scores(graded, list(graded_S), rewards_CR, teaches_C, weighed_c)

    def _group_size(self) -> int:
        return self.num_generations if self.model.training else self.num_generations_eval

    def _gather_outcomes(self, graded: dict[str, Graded], completions: int) -> torch.Tensor:
        """The outcomes of all ranks, (C, A), counted and logged; too many failures stop all."""
        rewards = [*self.reward_funcs, *self.steps.rewards]
        own_Ac = [
            [GRADED] * completions if is_model(reward) else graded[reward_name(reward)].outcomes
            for reward in rewards
        ]
        local_cA = torch.tensor(own_Ac, device=self.accelerator.device).T.contiguous()
        outcomes_CA = gather(local_cA)
        for reward, outcomes_C in zip(rewards, outcomes_CA.T.tolist(), strict=True):
            if is_model(reward):
                continue
            rates = reward.count(outcomes_C, self.args.max_reward_error_rate)
            for rate, share in rates.items():
                self._log_metric(f"{rate}/{reward_name(reward)}", share)
        return outcomes_CA

    def _log_spread(self, rewards_CR: torch.Tensor) -> torch.Tensor:
        """Tell of each completion whether its group has spread, (C,)."""
        weights_R = self.reward_weights.to(rewards_CR.device)
        differ_P = group_spread(rewards_CR, weights_R, self._group_size())
        self._log_metric("groups/without_spread", 1.0 - differ_P.float().mean().item())
        kinds = [reward_kind(reward) for reward in self.reward_funcs]
        if "verifier" in kinds:
            is_verifier_R = torch.tensor([kind == "verifier" for kind in kinds]).to(weights_R)
            by_verifier_P = group_spread(rewards_CR, weights_R * is_verifier_R, self._group_size())
            self._log_metric("groups/verifier_spread", by_verifier_P.float().mean().item())
        return differ_P.repeat_interleave(self._group_size())

    def _log_advantages(self, means_c: torch.Tensor) -> None:
        """Replace the advantages that TRL has just logged by those of this rank's completions."""
        logged, means_C = self._logs["advantages"], gather(means_c).tolist()
        earlier = list(logged)[: -len(means_C)]
        logged.clear()
        logged.extend([*earlier, *means_C])

    def _log_turns(self, completions: list) -> None:
        """Log the share of each kind of turn, where there are tools."""
        if not self.tools:
            return
        opening = rollout.opening_of(self._tokenizer)
        turns = Counter(kind for each in completions for kind in rollout.turn_kinds(each, opening))
        for kind in rollout.TURN_KINDS if turns else ():
            self._log_metric(f"turns/{kind.replace(' ', '_')}", turns[kind] / turns.total())


def _rotate_by_step(use_mtime: bool = True, **options) -> None:
    rotate_checkpoints(**options)


def _in_order(batch: dict) -> dict:
    return batch
