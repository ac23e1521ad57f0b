"""TRL's GRPO trainer with rewards that may fail, be gated, or score single steps; its loss is TRL's own."""

import copy
import warnings
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from unittest import mock

import torch
import transformers
import trl
from accelerate.utils import gather, gather_object, is_peft_model
from transformers.integrations import is_deepspeed_zero3_enabled
from trl.trainer import grpo_trainer

from recipes.common.training import environments, rollout
from recipes.common.training.gates import apply_gates, group_spread
from recipes.common.training.guard import ERROR, GRADED, NOT_APPLICABLE, TIMEOUT, UNPARSED, guard
from recipes.common.training.phases import Phases
from recipes.common.training.shared_prompt import share_prompts, why_prompts_are_not_shared
from recipes.common.training.steps import (
    check_loss,
    groups_with_spread,
    normalise_steps,
    pool,
    steps_at_tokens,
    token_advantages,
)
from rewards import reward_kind, reward_name
from rewards.contract import check_names, is_model, reward_max_error_rate

ERROR_WINDOW = 1000  # scored rows over which the rate of failures is taken
NO_STEPS_WITH_TOOLS = (
    "reward_funcs names a step reward, which cannot be placed among the turns of tools: remove it."
)
# Losses of which a completion may be left out, by what TRL divides them by: tokens of the batch, or these completions.
SKIPPABLE = {"grpo": "completions", "dr_grpo": "completions", "dapo": "tokens", "cispo": "tokens"}
RATES = {"errors": ERROR, "unparsed": UNPARSED, "timeouts": TIMEOUT}


@dataclass
class GRPOConfig(trl.GRPOConfig):
    """TRL's `GRPOConfig` with the settings of our trainer."""

    _argument_group_name = "training: TRL's GRPOConfig, and the settings of our trainer"

    reward_gates: dict | str | None = field(
        default=None,
        metadata={
            "help": "Keep a reward only where another scores above 0: {length: gsm8k_correctness}."
        },
    )
    max_reward_error_rate: float = field(
        default=0.05,
        metadata={
            "help": "Stop above this share of rows that a reward failed on, of its last 1 000."
        },
    )
    reward_timeout_s: float = field(
        default=300.0, metadata={"help": "Limit for one call of one reward in seconds."}
    )
    skip_zero_advantages: bool = field(
        default=False,
        metadata={
            "help": "Leave completions of advantage 0 out of the update: the same gradient, in less time."
        },
    )
    # transformers' default is true for most models: a search at each step for weights without
    # gradient. A mixture of experts has some.
    ddp_find_unused_parameters: bool | None = field(
        default=False,
        metadata={"help": "DDP: look for weights that got no gradient, as some experts do."},
    )
    share_prompts: bool = field(
        default=False,
        metadata={
            "help": "Compute the prompt of a group once for its completions: the same, in less time."
        },
    )
    tools: list[str] | None = field(
        default=None,
        metadata={"help": "Functions that the model may call: path/to/file.py:function."},
    )
    environment_factory: dict | str | None = field(
        default=None,
        metadata={
            "help": "path/to/file.py:Class of an environment; several by the column environment."
        },
    )
    chat_template_path: str | None = field(
        default=None,
        metadata={"help": "A Jinja file that takes the place of the tokenizer's chat template."},
    )

    @property
    def skips(self) -> bool:
        """Whether completions of advantage 0 are left out: it is asked for, and they add nothing to this loss."""
        more = (
            self.beta
            or self.entropy_coef
            or self.use_adaptive_entropy
            or self.top_entropy_quantile < 1.0
        )
        by_group = self.multi_objective_aggregation == "sum_then_normalize"
        return self.skip_zero_advantages and by_group and not more and self.loss_type in SKIPPABLE

    @property
    def order_matters(self) -> bool:
        """Whether an update depends on which completions share a micro batch, as TRL shuffles them.

        It does where a generation serves several updates, and where a mean is taken over a micro batch.
        """
        several_updates = self.gradient_accumulation_steps % self.steps_per_generation != 0
        by_entropy = (
            self.entropy_coef or self.use_adaptive_entropy or self.top_entropy_quantile < 1.0
        )
        return bool(several_updates or by_entropy or self.loss_type == "bnpo")


class RewardErrors(RuntimeError):
    """Too many rows that a reward could not score; raised on all ranks together."""


class GRPOTrainer(trl.GRPOTrainer):
    """`trl.GRPOTrainer` that works on the gathered rewards of a batch before they become advantages.

    - A row that a reward failed on (see `training/guard.py`) gets None from every reward: its advantage is 0
      and its group is normalised without it.
    - Each generation logs `errors/<reward>`, `unparsed/<reward>` and `timeouts/<reward>`: the share of the
      rows the reward applies to, over all ranks; and `completions/voided`, the share that any reward failed on.
    - A gated reward is kept only where one of its gates scored more than 0.
    - `groups/without_spread` is the share of groups that teach nothing, `groups/verifier_spread` of those in which a
      verifier tells completions apart.
    - With step rewards (DeepSeekMath, section 4.1.3; docs/grpo.md) TRL's loss gets advantages of the shape
      (completions, tokens): its own, at each token, plus the weighted sum of the normalised rewards of the steps that
      end at or after it; 0 where a token is masked. The advantage that is logged of a completion is their mean.
    - The `get_reward` of an environment is a reward like any other, the last (see `training/environments.py`).

    `reward_funcs` needs one reward that is not of the kind step. `args.reward_weights` has one weight for each; that of
    a step reward is applied after its normalisation. Raises ValueError for rewards, weights or a loss that do not go
    together, and `RewardErrors` while training, on all ranks.
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
        reward_funcs = reward_funcs if isinstance(reward_funcs, list) else [reward_funcs]
        tools = tools or environments.load_tools(args.tools)
        factory = environment_factory or environments.load_environments(args.environment_factory)
        has_tools = bool(tools or factory)
        processor = rollout.tool_processor(
            kwargs.pop("processing_class", None), model, args, has_tools
        )
        owned = [
            reward for reward in reward_funcs if isinstance(reward, environments.EnvironmentReward)
        ]
        if owned and not factory:
            raise ValueError(
                "reward_funcs has the reward of an environment: give its environment_factory, too."
            )
        owned = owned or environments.environment_rewards(factory)
        reward_funcs = [reward for reward in reward_funcs if reward not in owned] + owned
        if problems := check_names(reward_funcs):
            raise ValueError("\n".join(problems))
        weights = [1.0] * len(reward_funcs) if args.reward_weights is None else args.reward_weights
        if owned and len(weights) == len(reward_funcs) - len(
            owned
        ):  # TRL gives those of environments a weight of 1
            weights = [*weights, *[1.0] * len(owned)]
        if len(weights) != len(reward_funcs):
            raise ValueError(
                f"reward_weights has {len(weights)} values for {len(reward_funcs)} rewards."
            )
        guarded = [
            r if is_model(r) else guard(r, args.reward_timeout_s) for r in reward_funcs
        ]  # TRL calls a model
        steps = [reward_kind(reward) == "step" for reward in reward_funcs]
        if all(steps):
            raise ValueError(
                "reward_funcs needs a reward that is not of the kind step; one of weight 0 is enough."
            )
        self.step_reward_funcs = [
            reward for reward, is_step in zip(guarded, steps, strict=True) if is_step
        ]
        self.step_reward_weights = [
            weight for weight, is_step in zip(weights, steps, strict=True) if is_step
        ]
        if self.step_reward_funcs:
            check_loss(
                args.loss_type, args.importance_sampling_level, args.off_policy_mask_threshold
            )
            if has_tools:
                raise ValueError(NO_STEPS_WITH_TOOLS)
        if self.step_reward_funcs or owned:
            args = copy.copy(args)
            args.reward_weights = [
                weight for weight, is_step in zip(weights, steps, strict=True) if not is_step
            ]
        outcomes = [reward for reward, is_step in zip(guarded, steps, strict=True) if not is_step]
        kwargs |= {"tools": tools, "environment_factory": factory, "processing_class": processor}
        super().__init__(model, list(outcomes), args=args, **kwargs)  # TRL adds to the list
        rollout.keep_rewards(self, len(outcomes))
        if args.share_prompts:
            self._share_prompts()
        gates = args.reward_gates or {}
        self.reward_gates = {
            name: [of] if isinstance(of, str) else list(of) for name, of in gates.items()
        }
        self.phase = Phases()
        self.validate: Callable[[], dict[str, float]] | None = (
            None  # run.py sets it for a run with validation rows
        )
        self._recent_failures = {
            reward_name(reward): deque() for reward in guarded
        }  # (failed, scored) a generation

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

    def _prepare_inputs(self, generation_batch):
        """TRL's, which shuffles completions; their groups stay together where nothing depends on it."""
        if not self.args.share_prompts or self.args.order_matters:
            return super()._prepare_inputs(generation_batch)
        with mock.patch.object(grpo_trainer, "shuffle_sequence_dict", lambda batch: batch):
            return super()._prepare_inputs(generation_batch)

    def evaluate(self, *args, **kwargs) -> dict[str, float]:
        """Evaluate in mid-training as before and after it; as TRL does where `validate` is None.

        The shares are logged as they are named, `validation/<metric>`. transformers looks for `metric_for_best_model`
        with `eval_` in front, in the mapping that is returned.
        """
        if self.validate is None:
            return super().evaluate(*args, **kwargs)
        with self.phase("validation"):
            shares = self.validate()
        transformers.Trainer.log(
            self, dict(shares)
        )  # TRL's would write the completions of this step once more
        metrics = {f"eval_{name}": share for name, share in shares.items()}
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
        """TRL's loss; with `skip_zero_advantages` of the completions that add to it, scaled to the same gradient."""
        if not self.args.skips or self.aux_loss_enabled or "pixel_values" in inputs:
            return super()._compute_loss(model, inputs)
        counts = inputs["advantages"].reshape(len(inputs["advantages"]), -1).any(dim=1)
        most = max(
            1, gather(counts.sum()).max().item()
        )  # TRL gathers clip ratios: all ranks keep as many
        kept = counts.int().argsort(descending=True, stable=True)[:most].sort().values
        rows = {
            name: of[kept]
            for name, of in inputs.items()
            if torch.is_tensor(of) and of.shape[:1] == counts.shape
        }
        share = 1.0 if SKIPPABLE[self.loss_type] == "tokens" else most / len(counts)
        return super()._compute_loss(model, inputs | rows) * share

    def roll_out(
        self, rows: list[dict], generation_config: transformers.GenerationConfig
    ) -> list[rollout.Rollout]:
        """Complete rows as in training, tools and environments included, without scoring or logging them."""
        return rollout.rollout(self, rows, generation_config)

    def _generate_and_score_completions(self, inputs):
        output = super()._generate_and_score_completions(inputs)
        if self.args.skips:  # rounding leaves 1e-4 where a group has no spread
            first = self.accelerator.process_index * len(inputs)
            output["advantages"] = output["advantages"] * self._teaches[first : first + len(inputs)]
        if self.step_reward_funcs:
            mask = output["completion_mask"]
            steps = token_advantages(self._steps, tokens=mask.shape[1]).to(output["advantages"])
            output["advantages"] = (output["advantages"].unsqueeze(1) + steps) * mask
            self._log_advantages(output["advantages"].sum(dim=1) / mask.sum(dim=1).clamp(min=1))
        return output

    def _calculate_rewards(self, inputs, prompts, completions, completion_ids_list):
        with self.phase("scoring"):
            return self._score(inputs, prompts, completions, completion_ids_list)

    def _score(self, inputs, prompts, completions, completion_ids_list):
        rewards = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        columns = {
            name: [row[name] for row in inputs]
            for name in inputs[0]
            if name not in ("prompt", "completion")
        }
        columns |= {"trainer_state": self.state, "log_metric": self._log_metric}
        columns |= {"log_extra": self._log_completion_extra, "completion_ids": completion_ids_list}
        self._log_turns(completions)
        steps = [
            steps_at_tokens(
                reward, self._tokenizer, prompts=prompts, completions=completions, **columns
            )
            for reward in self.step_reward_funcs
        ]
        guarded = [*self.reward_funcs, *self.step_reward_funcs]
        own = [
            [GRADED] * len(prompts) if is_model(reward) else reward.outcomes for reward in guarded
        ]
        local = torch.tensor(own, device=rewards.device)
        outcomes = gather(
            local.T.contiguous()
        )  # (completions of all ranks, rewards), as the rewards are
        for column, reward in enumerate(guarded):
            if not is_model(reward):
                self._count(reward, outcomes[:, column])
        failed = ((outcomes == ERROR) | (outcomes == UNPARSED)).any(dim=1)
        rewards[failed] = torch.nan
        self._log_metric("completions/voided", failed.float().mean().item())
        rewards = apply_gates(rewards, self.reward_func_names, self.reward_gates)
        is_verifier = torch.tensor(
            [reward_kind(reward) == "verifier" for reward in self.reward_funcs]
        )
        weights, is_verifier = (
            self.reward_weights.to(rewards.device),
            is_verifier.to(rewards.device),
        )
        differ, verified = group_spread(rewards, weights, is_verifier, self._group_size())
        self._teaches = differ.repeat_interleave(self._group_size())  # (completions of all ranks,)
        self._log_metric("groups/without_spread", 1.0 - differ.float().mean().item())
        if is_verifier.any():
            self._log_metric("groups/verifier_spread", verified.float().mean().item())
        if self.step_reward_funcs:
            counts = (outcomes[:, len(self.reward_funcs) :] != NOT_APPLICABLE) & ~failed.unsqueeze(
                1
            )
            self._steps = self._weigh_steps(steps, counts)
        return rewards

    def _group_size(self) -> int:
        return self.num_generations if self.model.training else self.num_generations_eval

    def _weigh_steps(
        self, steps: list[list[list[tuple[int, float]]]], counts: torch.Tensor
    ) -> list[list[tuple[int, float]]]:
        """Turn this rank's steps into pairs (last token, weighted normalised reward), for each of its completions.

        `steps` has for each step reward the steps of this rank's completions, each by its last token; `counts`, of all
        ranks' completions and of shape (completions, step rewards), tells whether the steps of a completion count.
        """
        amounts = [
            [[amount for _, amount in of_row] for of_row in row] for row in zip(*steps, strict=True)
        ]
        everywhere = gather_object(
            amounts
        )  # a group may span ranks, and a completion has any number of steps
        rewards = [
            [
                row[column] if counted else []
                for row, counted in zip(everywhere, of_reward, strict=True)
            ]
            for column, of_reward in enumerate(counts.T.tolist())
        ]
        self._log_steps(rewards, counts.sum(dim=0).tolist())
        first = self.accelerator.process_index * len(amounts)
        weighed: list[list[tuple[int, float]]] = [[] for _ in amounts]
        for mine, everyones, weight in zip(steps, rewards, self.step_reward_weights, strict=True):
            normalised = normalise_steps(everyones, self._group_size(), self.scale_rewards)
            for row, values in enumerate(normalised[first : first + len(amounts)]):
                tokens = (
                    [token for token, _ in mine[row]] if values else []
                )  # the steps of a failed row count nothing
                weighed[row] += [
                    (token, weight * value) for token, value in zip(tokens, values, strict=True)
                ]
        return weighed

    def _log_steps(self, rewards: list[list[list[float]]], completions: list[int]) -> None:
        """Log over all ranks: mean reward of a step (NaN without any), steps of a completion, groups without spread."""
        for reward, of_one, count in zip(self.step_reward_funcs, rewards, completions, strict=True):
            name, amounts = reward_name(reward), pool(of_one)
            self._log_metric(
                f"step_rewards/{name}/mean", sum(amounts) / len(amounts) if amounts else torch.nan
            )
            self._log_metric(f"steps/{name}/count", len(amounts) / max(1, count))
        spreads = (groups_with_spread(of_one, self._group_size()) for of_one in rewards)
        differ = [any(of_group) for of_group in zip(*spreads, strict=True)]
        self._log_metric("frac_groups_without_step_spread", 1 - sum(differ) / len(differ))

    def _log_advantages(self, means: torch.Tensor) -> None:
        """Replace the advantages that TRL has just logged of all ranks by `means`, (this rank's completions,)."""
        logged, everywhere = self._logs["advantages"], gather(means).tolist()
        earlier = list(logged)[: -len(everywhere)]
        logged.clear()
        logged.extend([*earlier, *everywhere])

    def _log_turns(self, completions: list) -> None:
        """Log the share of each kind of turn, where there are tools."""
        opening = rollout.opening_of(self._tokenizer)
        turns = Counter(
            kind for each in completions if self.tools for kind in rollout.turn_kinds(each, opening)
        )
        for kind in rollout.TURN_KINDS if turns else ():
            self._log_metric(f"turns/{kind.replace(' ', '_')}", turns[kind] / turns.total())

    def _count(self, reward: Callable, outcomes: torch.Tensor) -> None:
        """Log the rates of one reward and stop when it failed on too many rows; equal on all ranks."""
        name = reward_name(reward)
        scored = int((outcomes != NOT_APPLICABLE).sum())
        counts = {rate: int((outcomes == code).sum()) for rate, code in RATES.items()}
        for rate, count in counts.items():
            self._log_metric(f"{rate}/{name}", count / max(1, scored))
        recent = self._recent_failures[name]
        recent.append((counts["errors"] + counts["unparsed"], scored))
        while sum(rows for _, rows in recent) - recent[0][1] >= ERROR_WINDOW:
            recent.popleft()
        failed, rows = (sum(column) for column in zip(*recent, strict=True))
        rate = min(self.args.max_reward_error_rate, reward_max_error_rate(reward))
        # Before a thousand rows are through, as many failures as would be too many of a thousand are enough.
        if failed > rate * max(rows, ERROR_WINDOW):
            raise RewardErrors(
                f"reward {name!r} could not score {failed} of its last {rows} rows (at most {rate:g} of {ERROR_WINDOW} "
                "may fail: max_reward_error_rate, or the reward's own max_error_rate). The first failure on this rank: "
                f"{reward.first_failure}. Where the cause lies outside, such as a server, start again: the run goes on "
                "from its last checkpoint. With a corrected reward, other rows or another limit start anew: --fresh."
            )
