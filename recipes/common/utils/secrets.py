"""Secrets: tokens, keys and passwords, hidden wherever a setting or a message leaves the process.

A secret is recognized by the name of its setting, option or environment variable; by its value,
after it was seen under such a name; and by the form of the tokens of some services. The name `key`
alone is one; `primary_key` and the like are harmless, unless the value has the form of a token.

*Not covered*: a secret in another encoding (base64, say), one of fewer than 8 characters that
stands in a text without its name, and likewise a `key` without a digit.
"""

import functools
import os
import re
from typing import Any

HIDDEN = "..."
SHORTEST = 8  # a shorter value may be an ordinary word in a text
WORDS = (
    r"(?:token|passw(?:or)?d|passphrase|secret|credentials?|authorization"
    r"|(?:api|access|auth|private|secret)[_-]?key)"
)
NAME = re.compile(rf".*{WORDS}", re.IGNORECASE)
KEY = re.compile(r"-*key", re.IGNORECASE)  # it may also hold the name of a column
TOKEN = re.compile(r"(?=.*\d)(?=.*[A-Za-z])[\w.+/=-]{16,}")
# Tokenizer settings such as eos_token hold a piece of text, not a secret.
OF_A_TEXT = re.compile(r".*(?:bos|eos|pad|unk|sep|cls|mask|image|video|audio|end|stop)[_-]?token")
# `name=value` or `name: value` in a text: an option, a setting, a URL parameter, a mapping entry.
# A bare `key` counts only in quotes or in a URL, as `sorted(rows, key=len)` is no secret.
NAMED = re.compile(
    rf"""((?<![\w-])[\w-]*{WORDS}|["'?&]key)(["']?\s*[:=]\s*)"""
    r"""("[^"\n]*"|'[^'\n]*'|(?:(?:bearer|basic)\s+)?[^\s"',;&{}()\[\]]+)""",
    re.IGNORECASE,
)
IN_AN_ADDRESS = re.compile(r"(://[^\s/:@]*):[^\s/@]+@")
BEARER = re.compile(r"\b(bearer\s+)[\w.~+/-]{8,}=*", re.IGNORECASE)  # an HTTP header
# Tokens of Hugging Face, OpenAI, GitHub, GitLab, Slack, Groq, Google and Amazon, and signed JSON.
FORMS = re.compile(
    r"\b(?:hf_|sk-|gh[opsur]_|github_pat_|glpat-|xox[abeprs]-|gsk_|AIza|AKIA)[\w-]{12,}"
    r"|\beyJ[\w-]{8,}\.eyJ[\w.-]+"
)
_seen: set[str] = set()


@functools.lru_cache(4096)  # each text asks for each variable of the environment
def is_secret(name: str) -> bool:
    """Whether a setting, an option or an environment variable of this name holds a secret.

    >>> [is_secret(name) for name in ("hub_token", "--api-key", "key", "eos_token", "max_tokens")]
    [True, True, True, False, False]
    """
    is_named = NAME.fullmatch(name) or KEY.fullmatch(name)
    return bool(is_named) and not OF_A_TEXT.fullmatch(name.lower())


def remember(settings: Any) -> None:
    """Remember the secret values in nested settings, so that `hide_secrets` finds them in texts."""
    if isinstance(settings, dict):
        for name, value in settings.items():
            if holds_secret(str(name), value) and is_unmistakable(str(name), str(value)):
                _seen.add(str(value).strip())
            remember(value)
    elif isinstance(settings, list | tuple):
        for value in settings:
            remember(value)


def holds_secret(name: str, value: Any) -> bool:
    """Whether a setting of this name and value is a secret; an empty value is none."""
    if not value or isinstance(value, bool):
        return False
    return is_secret(name) or (name.lower().endswith("key") and bool(TOKEN.fullmatch(str(value))))


def is_unmistakable(name: str, value: str) -> bool:
    """Whether a secret is so long, and so unlike a word, that no other text holds it by accident.

    A `key` without a digit may be the name of a column.
    """
    value = value.strip()
    is_word = KEY.fullmatch(name) and not re.search(r"\d", value)
    return len(value) >= SHORTEST and not is_word  # 8 characters


def hide_secrets(value: Any) -> Any:
    """`value` with "..." for its secrets: of a text, a mapping, or the words of a command line.

    A value that is not a text, mapping, list or tuple is returned unchanged.

    >>> hide_secrets({"hub_token": "abc", "seed": 1, "judge": {"url": "https://me:abc@host/v1"}})
    {'hub_token': '...', 'seed': 1, 'judge': {'url': 'https://me:...@host/v1'}}
    >>> hide_secrets(["--hub_token", "abc", "--hub-token=abc", "--seed", "1"])
    ['--hub_token', '...', '--hub-token=...', '--seed', '1']
    >>> hide_secrets("{'api_key': 'abc'} is no mapping of https://host/v1?token=abc&n=2")
    "{'api_key': '...'} is no mapping of https://host/v1?token=...&n=2"
    """
    if isinstance(value, str):
        return hide_in_text(value)
    if isinstance(value, dict):
        return {
            name: HIDDEN if holds_secret(str(name), content) else hide_secrets(content)
            for name, content in value.items()
        }
    if type(value) not in (list, tuple):
        return value
    words = []  # of a command line: the word after a secret option, as in --hub_token abc
    for before, word in zip([None, *value], value, strict=False):
        is_option = isinstance(before, str) and before.startswith("--") and "=" not in before
        words.append(HIDDEN if is_option and holds_secret(before, word) else hide_secrets(word))
    return type(value)(words)


def hide_in_text(text: str) -> str:
    """The text with "..." for each secret in it: a value of settings or environment, one beside its
    name (`token=abc`), in a URL or a header, or in the form of a service's tokens (`hf_...`).
    """
    secrets = set(_seen)  # values of this run's settings
    for name, value in os.environ.items():
        if is_secret(name) and is_unmistakable(name, value):  # no word that a text may hold
            secrets.add(value.strip())
    for secret in sorted(secrets, key=len, reverse=True):  # one may be a part of another
        text = text.replace(secret, HIDDEN)

    def hide_named(match: re.Match) -> str:
        """`token=abc` with "..." for its value, in its quotes; a harmless name as it is."""
        name, between, value = match.groups()
        if not is_secret(name.lstrip("\"'?&")):  # a quote, or what begins a URL's parameter
            return match[0]
        quote = value[0] if value[0] in "\"'" else ""
        return f"{name}{between}{quote}{HIDDEN}{quote}"

    text = NAMED.sub(hide_named, text)
    text = IN_AN_ADDRESS.sub(rf"\1:{HIDDEN}@", text)
    text = BEARER.sub(rf"\1{HIDDEN}", text)
    return FORMS.sub(HIDDEN, text)
