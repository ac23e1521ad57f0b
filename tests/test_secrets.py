"""No secret leaves a run: not in its files, its trackers, its messages."""

import json
import sys

import pytest
from support.launching import DENSE_REWARD, command, run

from recipes.common.settings import RecipeArguments, parse_arguments
from recipes.common.utils import screen
from recipes.common.utils.secrets import hide_secrets


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ({"judge": [{"password": "s3"}]}, {"judge": [{"password": "..."}]}),  # at any depth
        ({"hub_token": None, "api_key": ""}, {"hub_token": None, "api_key": ""}),  # no value
        ("got hf_abcdefghijklmnop.", "got ...."),  # the form of a service's tokens
        ("header b'x-9f8e7d6c5b'", "header b'x-...'"),  # a variable of the environment
        ({"key": "s3", "apiKey": "s3"}, {"key": "...", "apiKey": "..."}),
        ({"primary_key": "id", "sort_key": 5}, {"primary_key": "id", "sort_key": 5}),
        ({"openai_key": "a1b2c3d4e5f6g7h8"}, {"openai_key": "..."}),  # the form of a token
        ({"token": {"value": "s3"}, "api_key": ["s3"]}, {"token": "...", "api_key": "..."}),
        ("sorted(rows, key=len)", "sorted(rows, key=len)"),  # an argument of code
        ("password='two words, s3'", "password='...'"),
        ("Authorization: Basic s3cr3t==", "Authorization: ..."),  # the scheme is not the secret
        ("sent Bearer s3cr3t-s3cr3t.", "sent Bearer ..."),  # a header without its name
    ],
)
def test_a_secret_is_known_by_its_name_and_by_its_value(value, shown, monkeypatch):
    monkeypatch.setenv("MY_API_KEY", "9f8e7d6c5b\n")  # as `export MY_API_KEY="$(cat file)\n"`
    assert hide_secrets(value) == shown


def test_a_setting_that_is_refused_is_not_printed_back_where_it_is_a_secret(parse):
    problems = parse({"hub_token": 12345678, "model_revision": 5}).problems
    assert any(problem.startswith("hub_token is '...'") for problem in problems)
    assert any(problem.startswith("model_revision is 5") for problem in problems)
    assert "12345678" not in str(problems)


def test_what_the_screen_shows_has_no_secret_and_no_character_that_steers_a_terminal(
    capsys, monkeypatch
):
    known = "known-secret-1"
    parse_arguments(RecipeArguments, ["--hub_token", known])
    screen.announce(f"a row has the key '\x1b[2J\r{known}'\n\tdone")
    assert capsys.readouterr().out == "a row has the key '\\x1b[2J\\r...'\n\tdone\n"
    with pytest.raises(SystemExit):
        screen.refuse(f"reward_kwargs: {known}")
    assert capsys.readouterr().out == "reward_kwargs: ...\n"
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    screen.explain_endings()
    try:
        raise ValueError(f"Illegal header value {known}")
    except ValueError as error:
        sys.excepthook(ValueError, error, error.__traceback__)
    shown = capsys.readouterr().err
    assert "Illegal header value ..." in shown and "Traceback" in shown and known not in shown


LEAKY = """
import os


class leaky:
    kind = "shaping"

    def __init__(self, api_key, base_url):
        self.api_key, self.base_url = api_key, base_url

    def __call__(self, completions, trainer_state=None, **kwargs):
        if getattr(trainer_state, "global_step", 0):  # not while it is checked
            key = os.environ["MY_API_KEY"]
            raise ValueError(f"Illegal header value {key!r} for {self.base_url}: {self.api_key}")
        return [0.0] * len(completions)
"""


@pytest.mark.slow
def test_no_file_and_no_word_of_a_run_holds_a_secret(model, tmp_path):
    names = ("hub", "model", "environment", "reward", "address")
    secrets = [f"{name}-s3cr3t-of-a-user" for name in names]
    hub, of_model, environment, reward, address = secrets
    (tmp_path / "leaky.py").write_text(LEAKY)
    judge = {"api_key": reward, "base_url": f"https://me:{address}@host/v1"}
    settings = {
        "reward_funcs": [DENSE_REWARD, f"{tmp_path}/leaky.py:leaky"],
        "reward_kwargs": json.dumps({"leaky": judge}),
        "hub_token": hub,
        "model_init_kwargs": json.dumps({"token": of_model}),
        **{"num_train_rows": 8, "max_steps": 2, "report_to": "wandb"},
    }
    words = command("arithmetic", "quickstart", model, tmp_path / "run", launch=None, **settings)
    env = {"WANDB_MODE": "offline", "WANDB_DIR": str(tmp_path), "MY_API_KEY": f"{environment}\n"}
    printed = run(words, env=env)
    assert "Illegal header value" in printed
    left = {"what was printed": printed.encode()}
    left |= {str(file): file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    assert any(name.endswith(".wandb") for name in left)
    assert any(name.endswith("training_args.bin") for name in left)
    found = {
        (name, secret) for name, content in left.items() for secret in secrets
        if secret.encode() in content
    }  # fmt: skip
    assert found == set()
