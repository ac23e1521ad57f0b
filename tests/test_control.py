"""Control arms know nothing of the answer, and a resumed run draws the same numbers."""

from transformers import TrainerState

from rewards import load_reward


def draw(texts: list[str], step: int = 0, seed: int = 0) -> list[float]:
    state = TrainerState(global_step=step)
    return load_reward("random", seed=seed)(
        prompts=["p"] * len(texts), completions=texts, trainer_state=state
    )


def test_random_is_the_same_for_the_same_seed_step_and_text():
    assert draw(["a", "b"]) == draw(["a", "b"]) == draw(["b", "a"])[::-1]


def test_random_differs_by_text_step_and_seed():
    assert len({*draw(["a", "b"]), *draw(["a"], step=1), *draw(["a"], seed=1)}) == 4


def test_random_is_uniform_from_zero_to_one():
    drawn = draw([str(i) for i in range(2000)])
    assert 0.0 <= min(drawn) < 0.01 and 0.99 < max(drawn) <= 1.0
    assert abs(sum(drawn) / 2000 - 0.5) < 0.02


def test_random_works_without_a_trainer():
    assert load_reward("random")(prompts=["p"], completions=["\ud800"]) == draw(["\ud800"])


def test_constant_gives_its_value():
    assert load_reward("constant", value=0.3)(prompts=["p"] * 2, completions=["a", ""]) == [
        0.3,
        0.3,
    ]
