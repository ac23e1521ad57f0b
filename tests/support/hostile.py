"""Completions that nobody asked for: long, empty, nested, or of letters that look alike.

Of up to 12 000 characters: more than Python reads as digits, or descends.
"""

N = 12_000
HOSTILE = {
    "empty": "",
    "null": "\x00",
    "lone surrogate": "\ud800",
    "full-width digits": "１８" * (N // 2),
    "arabic digits": "١٨" * (N // 2),
    "look-alike letters": "<аnswer>18</аnswer>",  # Cyrillic a
    "zero width": "\u200b\u200d\ufeff" * (N // 3),
    "power": "9**9**9",
    "overflow": "1e999",
    "nested braces": "{" * (N // 2) + "}" * (N // 2),
    "one letter": "a" * N,
    "one digit": "1" * N,
    "decimal digits": "1." * (N // 2),
    "fractions": "1/" * (N // 2),
    "thousands": "1" + ",111" * (N // 4) + "1",
    "dollars": "$-" * (N // 2),
    "spaces": " " * N,
    "a digit in spaces": " " * (N // 2) + "1" + " " * (N // 2),
    "half a tag": "</answer" * (N // 8),
    "tags inside out": "</answer>" * (N // 18) + "<answer>" * (N // 18),
    "joined boxes": r"\boxed{1}" + "and   " * 9 + "x" + r"\boxed{2}",
    "many joined boxes": (r"\boxed{1}" + " and or " * 6) * (N // 60),
    "all tags": "<reasoning></reasoning><answer></answer>" * (N // 40),
}
