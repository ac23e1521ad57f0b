"""TRL's GRPO trainer with rewards that may fail, be gated, or judge steps; its loss is TRL's own."""

from collections import deque
from collections.abc import Callable

import torch
import trl
from accelerate.utils import gather, gather_object

from recipes.common.during.guard import ERROR, NOT_APPLICABLE, TIMEOUT, UNPARSED, guard
from recipes.common.during.matrix import apply_gates, shaping_only_share
from recipes.common.during.steps import check_loss, groups_with_spread, normalise_steps, pool, token_advantages
from recipes.common.during.token_positions import tokens_that_hold
from rewards import reward_kind, reward_name
from rewards.audit.call import NOT_PASSED
from rewards.contract import check_names, reward_max_error_rate
from rewards.parsing import completion_text
from rewards.steps import Steps, check_is_step_reward, check_pays_completions

ERROR_WINDOW = 1000  # scored rows over which the rate of failures is judged
RATES = {"errors": ERROR, "unparsed": UNPARSED, "timeouts": TIMEOUT}


class RewardErrors(RuntimeError):
    """Too many rows could not be graded; raised on all ranks together."""


class GRPOTrainer(trl.GRPOTrainer):
    """`trl.GRPOTrainer` that works on the gathered rewards of a batch before they become advantages.

    - A row that a reward failed on (see `reward_guard`) gets None from every reward: its advantage is 0
      and its group is normalised without it.
    - Each generation logs `errors/<reward>`, `unparsed/<reward>` and `timeouts/<reward>`: the share of the
      rows the reward was to score, over all ranks.
    - A gated reward is paid only where one of its gates paid more than 0.
    - `frac_groups_shaping_only` is the share of groups that differ in shaping rewards alone.
    - With step rewards (DeepSeekMath, section 4.1.3; docs/grpo.md) TRL's loss gets advantages of the shape
      (completions, tokens): its own, at each token, plus the weighted sum of the normalised rewards of the steps that
      end at or after it; 0 where a token is masked. The advantage that is logged of a completion is their mean.

    Args besides TRL's:
        step_reward_funcs: rewards of the kind step (rewards/steps.py), beside at least one in `reward_funcs`.
        step_reward_weights: one a step reward, applied after the normalisation; 1.0 each when None.
        reward_gates: name of a reward -> name or names of the rewards that must judge the completion right.
        max_reward_error_rate: the run stops above this share of errors and unparsed rows of one reward over
            its last 1 000 rows (0.0 to 1.0).
        reward_timeout_s: limit for one call of one reward, in seconds.

    Raises:
        ValueError: a step reward in `reward_funcs`, or another in `step_reward_funcs`; two of one name; weights that do
            not go with them; a loss in which tokens cannot have advantages of their own.
        RewardErrors: while training, on all ranks.
    """

    def __init__(
        self,
        *args,
        reward_funcs: list[Callable],
        step_reward_funcs: list[Callable] | None = None,
        step_reward_weights: list[float] | None = None,
        reward_gates: dict[str, list[str] | str] | None = None,
        max_reward_error_rate: float = 0.05,
        reward_timeout_s: float = 300.0,
        **kwargs,
    ):
        for reward in reward_funcs:
            check_pays_completions(reward)
        check_names([*reward_funcs, *(step_reward_funcs or [])])
        guarded = [guard(reward, reward_timeout_s) for reward in reward_funcs]
        super().__init__(*args, reward_funcs=guarded, **kwargs)
        self._take_step_rewards(step_reward_funcs or [], step_reward_weights, reward_timeout_s)
        self.reward_gates = {
            name: [gates] if isinstance(gates, str) else list(gates) for name, gates in (reward_gates or {}).items()
        }
        self.max_reward_error_rate = max_reward_error_rate
        judges = [*guarded, *self.step_reward_funcs]
        self._recent_failures = {reward_name(reward): deque() for reward in judges}  # (failed, scored) a generation

    def _take_step_rewards(self, rewards: list[Callable], weights: list[float] | None, timeout_s: float) -> None:
        for reward in rewards:
            check_is_step_reward(reward)
        if rewards:
            check_loss(self.loss_type, self.importance_sampling_level, self.args.off_policy_mask_threshold)
        if weights is not None and len(weights) != len(rewards):
            raise ValueError(f"step_reward_weights has {len(weights)} values for {len(rewards)} step rewards.")
        self.step_reward_funcs = [guard(reward, timeout_s) for reward in rewards]
        self.step_reward_weights = weights or [1.0] * len(rewards)

    def _generate_and_score_completions(self, inputs):
        output = super()._generate_and_score_completions(inputs)
        if self.step_reward_funcs:
            mask = output["completion_mask"]
            steps = token_advantages(self._steps, tokens=mask.shape[1]).to(output["advantages"])
            output["advantages"] = (output["advantages"].unsqueeze(1) + steps) * mask
            self._log_advantages(output["advantages"].sum(dim=1) / mask.sum(dim=1).clamp(min=1))
        return output

    def _calculate_rewards(self, inputs, prompts, completions, completion_ids_list):
        rewards = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        judged = self._judge_steps(inputs, prompts, completions, completion_ids_list)
        judges = [*self.reward_funcs, *self.step_reward_funcs]
        local = torch.tensor([reward.outcomes for reward in judges], device=rewards.device)
        outcomes = gather(local.T.contiguous())  # (completions of all ranks, rewards), as the rewards are
        for column, reward in enumerate(judges):
            self._count(reward, outcomes[:, column])
        failed = ((outcomes == ERROR) | (outcomes == UNPARSED)).any(dim=1)
        rewards[failed] = torch.nan
        rewards = apply_gates(rewards, self.reward_func_names, self.reward_gates)
        self._log_metric("frac_groups_shaping_only", self._shaping_only(rewards))
        if self.step_reward_funcs:
            scored = (outcomes[:, len(self.reward_funcs) :] != NOT_APPLICABLE) & ~failed.unsqueeze(1)
            self._steps = self._weigh_steps(judged, scored)
        return rewards

    def _judge_steps(self, inputs, prompts, completions, completion_ids_list) -> list[list[list[tuple[int, float]]]]:
        """Of this rank's completions, by step reward (called as TRL calls a reward), each step by its last token."""
        columns = {name: [row[name] for row in inputs] for name in inputs[0] if name not in NOT_PASSED}
        columns |= {
            "trainer_state": self.state,
            "log_metric": self._log_metric,
            "log_extra": self._log_completion_extra,
        }
        judged = [
            reward(prompts=prompts, completions=completions, completion_ids=completion_ids_list, **columns)
            for reward in self.step_reward_funcs
        ]
        for reward, steps in zip(self.step_reward_funcs, judged, strict=True):
            self._log_completion_extra(f"steps/{reward_name(reward)}", [_shown(of_one) for of_one in steps])
        return [
            [
                self._at_tokens(reward, row, ids, completion_text(completion), of_one or [])
                for row, (ids, completion, of_one) in enumerate(
                    zip(completion_ids_list, completions, steps, strict=True)
                )
            ]
            for reward, steps in zip(self.step_reward_funcs, judged, strict=True)
        ]

    def _at_tokens(
        self, reward: Callable, row: int, ids: list[int], text: str, steps: Steps
    ) -> list[tuple[int, float]]:
        """The steps by their last tokens. A text that is not its tokens' is an error of the row, told to all ranks."""
        try:
            tokens = tokens_that_hold(self._tokenizer, ids, text, [end for end, _ in steps]) if steps else []
        except ValueError as error:
            reward.outcomes[row], reward.first_failure = ERROR, reward.first_failure or str(error)
            return []
        return [(token, amount) for token, (_, amount) in zip(tokens, steps, strict=True)]

    def _weigh_steps(
        self, judged: list[list[list[tuple[int, float]]]], scored: torch.Tensor
    ) -> list[list[tuple[int, float]]]:
        """Of each of this rank's completions the tokens that its steps end with, and what each step is worth.

        Args:
            judged: by step reward, the steps of this rank's completions by their last tokens.
            scored: (completions of all ranks, step rewards), whether the steps count; without failed rows.
        """
        amounts = [[[amount for _, amount in steps] for steps in row] for row in zip(*judged, strict=True)]
        everywhere = gather_object(amounts)  # a group may span ranks, and a completion has any number of steps
        paid = [
            [row[column] if counts else [] for row, counts in zip(everywhere, of_reward, strict=True)]
            for column, of_reward in enumerate(scored.T.tolist())
        ]
        group = self.num_generations if self.model.training else self.num_generations_eval
        self._log_steps(paid, scored.sum(dim=0).tolist(), group)
        first = self.accelerator.process_index * len(amounts)
        weighed: list[list[tuple[int, float]]] = [[] for _ in amounts]
        for steps, everyones, weight in zip(judged, paid, self.step_reward_weights, strict=True):
            worth = normalise_steps(everyones, group, self.scale_rewards)[first : first + len(amounts)]
            for row, mine in enumerate(worth):
                tokens = [token for token, _ in steps[row]] if mine else []  # a failed row's steps are worth nothing
                weighed[row] += [(token, weight * amount) for token, amount in zip(tokens, mine, strict=True)]
        return weighed

    def _log_steps(self, paid: list[list[list[float]]], completions: list[int], group: int) -> None:
        """Over all ranks: mean reward of a step (NaN without any), steps of a completion, groups without difference."""
        for reward, of_one, count in zip(self.step_reward_funcs, paid, completions, strict=True):
            name, amounts = reward_name(reward), pool(of_one)
            self._log_metric(f"step_rewards/{name}/mean", sum(amounts) / len(amounts) if amounts else torch.nan)
            self._log_metric(f"steps/{name}/count", len(amounts) / max(1, count))
        differ = [any(of_one) for of_one in zip(*(groups_with_spread(of_one, group) for of_one in paid), strict=True)]
        self._log_metric("frac_groups_without_step_spread", 1 - sum(differ) / len(differ))

    def _log_advantages(self, means: torch.Tensor) -> None:
        """Put `means`, (this rank's completions,), in the place of what TRL has just logged of all ranks."""
        logged, everywhere = self._logs["advantages"], gather(means).tolist()
        earlier = list(logged)[: -len(everywhere)]
        logged.clear()
        logged.extend([*earlier, *everywhere])

    def _count(self, reward: Callable, outcomes: torch.Tensor) -> None:
        """Log the rates of one reward and stop when too much of it failed; equal on all ranks."""
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
        rate = min(self.max_reward_error_rate, reward_max_error_rate(reward))
        # Before a thousand rows are through, as many failures as would be too many of a thousand are enough.
        if failed > rate * max(rows, ERROR_WINDOW):
            raise RewardErrors(
                f"reward {name!r} could not grade {failed} of its last {rows} rows (at most {rate:g} of {ERROR_WINDOW} "
                "may fail: max_reward_error_rate, or what the reward itself declares). The first failure on this rank: "
                f"{reward.first_failure}. Mend the reward or the rows, and start again: the run goes on from its last "
                "checkpoint."
            )

    def _shaping_only(self, rewards: torch.Tensor) -> float:
        group = self.num_generations if self.model.training else self.num_generations_eval
        is_shaping = torch.tensor([reward_kind(reward) == "shaping" for reward in self.reward_funcs])
        weights = self.reward_weights.to(rewards.device)
        return shaping_only_share(rewards, weights, is_shaping.to(rewards.device), group)


def _shown(steps: Steps | None) -> str | None:
    """`_shown([(9, 1.0), (20, -1.0)]) == "9:+1 20:-1"`"""
    return None if steps is None else " ".join(f"{end}:{reward:+g}" for end, reward in steps)
