"""TRL's GRPO trainer with rewards that may fail: what failed is counted and voided, and shaping may be gated."""

from collections import deque
from collections.abc import Callable

import torch
import trl
from accelerate.utils import gather

from recipes.common.reward_guard import ERROR, NOT_APPLICABLE, TIMEOUT, UNPARSED, guard
from recipes.common.reward_matrix import apply_gates, shaping_only_share
from rewards import reward_kind, reward_name
from rewards.contract import reward_max_error_rate

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

    Args besides TRL's:
        reward_gates: name of a reward -> name or names of the rewards that must judge the completion right.
        max_reward_error_rate: the run stops above this share of errors and unparsed rows of one reward over
            its last 1 000 rows (0.0 to 1.0).
        reward_timeout_s: limit for one call of one reward, in seconds.

    Raises:
        RewardErrors: while training, on all ranks.
    """

    def __init__(
        self,
        *args,
        reward_funcs: list[Callable],
        reward_gates: dict[str, list[str] | str] | None = None,
        max_reward_error_rate: float = 0.05,
        reward_timeout_s: float = 300.0,
        **kwargs,
    ):
        guarded = [guard(reward, reward_timeout_s) for reward in reward_funcs]
        super().__init__(*args, reward_funcs=guarded, **kwargs)
        self.reward_gates = {
            name: [gates] if isinstance(gates, str) else list(gates) for name, gates in (reward_gates or {}).items()
        }
        self.max_reward_error_rate = max_reward_error_rate
        self._recent_failures = {reward_name(reward): deque() for reward in guarded}  # (failed, scored) a generation

    def _calculate_rewards(self, inputs, prompts, completions, completion_ids_list):
        rewards = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        local = torch.tensor([reward.outcomes for reward in self.reward_funcs], device=rewards.device)
        outcomes = gather(local.T.contiguous())  # (completions of all ranks, rewards), as the rewards are
        for column, reward in enumerate(self.reward_funcs):
            self._count(reward, outcomes[:, column])
        rewards[((outcomes == ERROR) | (outcomes == UNPARSED)).any(dim=1)] = torch.nan
        rewards = apply_gates(rewards, self.reward_func_names, self.reward_gates)
        self._log_metric("frac_groups_shaping_only", self._shaping_only(rewards))
        return rewards

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
