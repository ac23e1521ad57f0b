"""Secrets: tokens, keys and passwords, blanked wherever a setting or a message leaves the process.

A secret is recognized by the name of its setting, option or environment variable; by its value,
after it was seen under such a name; and by the form of the tokens of some services.

*Not covered*: a secret in another encoding (base64, say), and one of fewer than 8 characters
that stands in a text without its name.
"""

import os
import re
from typing import Any

BLANK = "..."
SHORTEST = 8  # a shorter value may be an ordinary word in a text
WORDS = (
    r"(?:token|passw(?:or)?d|secret|credentials?|authorization"
    r"|(?:api|access|auth|private|secret)[_-]?key)"
)
NAME = re.compile(rf"(?:.*[_-])?{WORDS}", re.IGNORECASE)
# Tokenizer settings such as eos_token hold a piece of text, not a secret.
OF_A_TEXT = re.compile(r".*(?:bos|eos|pad|unk|sep|cls|mask|image|video|audio|end|stop)[_-]?token")
# `name=value` or `name: value` in a text: an option, a setting, a URL parameter, a mapping entry.
NAMED = re.compile(
    rf"""(?<![\w-])((?:[\w-]*[_-])?{WORDS})(["']?\s*[:=]\s*["']?)([^\s"',;&{{}}()\[\]]+)""",
    re.IGNORECASE,
)
IN_AN_ADDRESS = re.compile(r"(://[^\s/:@]*):[^\s/@]+@")
# Tokens of Hugging Face, OpenAI, GitHub, Slack and Amazon.
FORMS = re.compile(r"\b(?:hf_|sk-|ghp_|github_pat_|xox[abp]-|AKIA)[\w-]{12,}")
_seen: set[str] = set()


def is_secret(name: str) -> bool:
    """Whether a setting, an option or an environment variable of this name holds a secret.

    >>> [is_secret(name) for name in ("hub_token", "--api-key", "eos_token", "max_tokens", "key")]
    [True, True, False, False, False]
    """
    return bool(NAME.fullmatch(name)) and not OF_A_TEXT.fullmatch(name.lower())


def remember(settings: Any) -> None:
    """Remember the secret values in settings, at any depth, for `hide_secrets` to find in texts."""
    if isinstance(settings, dict):
        _seen.update(
            str(of).strip() for name, of in settings.items() if _holds_secret(str(name), of)
        )
        settings = list(settings.values())
    if isinstance(settings, list | tuple):
        for value in settings:
            remember(value)


def hide_secrets(value: Any) -> Any:
    """`value` with its secrets blanked: a text, a mapping, or the words of a command line.

    A value that is not a text, mapping, list or tuple is returned unchanged.

    >>> hide_secrets({"hub_token": "abc", "seed": 1, "judge": {"base_url": "https://me:abc@host/v1"}})
    {'hub_token': '...', 'seed': 1, 'judge': {'base_url': 'https://me:...@host/v1'}}
    >>> hide_secrets(["--hub_token", "abc", "--hub-token=abc", "--seed", "1"])
    ['--hub_token', '...', '--hub-token=...', '--seed', '1']
    >>> hide_secrets("{'api_key': 'abc'} is no mapping of https://host/v1?token=abc&n=2")
    "{'api_key': '...'} is no mapping of https://host/v1?token=...&n=2"
    """
    if isinstance(value, str):
        return _blank_text(value)
    if isinstance(value, dict):
        return {
            name: BLANK if _holds_secret(str(name), of) else hide_secrets(of)
            for name, of in value.items()
        }
    if type(value) not in (list, tuple):
        return value
    blanked = []
    for before, word in zip([None, *value], value, strict=False):
        is_option = isinstance(before, str) and before.startswith("--") and "=" not in before
        blanked.append(BLANK if is_option and _holds_secret(before, word) else hide_secrets(word))
    return type(value)(blanked)


def _holds_secret(name: str, value: Any) -> bool:
    is_value = isinstance(value, str | int | float) and not isinstance(value, bool)
    return is_value and value != "" and is_secret(name)


def _blank_text(text: str) -> str:
    of_environment = {value.strip() for name, value in os.environ.items() if is_secret(name)}
    for value in sorted(_seen | of_environment, key=len, reverse=True):
        if len(value) >= SHORTEST:
            text = text.replace(value, BLANK)
    text = NAMED.sub(lambda m: m[1] + m[2] + (BLANK if is_secret(m[1]) else m[3]), text)
    return FORMS.sub(BLANK, IN_AN_ADDRESS.sub(rf"\1:{BLANK}@", text))
