"""Programs are found in a completion however the model sets its fences, and no text takes long."""

import textwrap
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.counting import calls_of

from rewards.code_blocks import (
    Block,
    code_blocks,
    extract_program,
    is_one_python_block,
    join_sources,
)

ONE, TWO = "```python\nx = 1\n```\n", "```python\nx = 2\n```\n"
# Which block is the program

# The last complete Python block wins over whatever follows, and over comments and values.
FOLLOWING = ["```\n5\n```", "```py\n# f()\n5\n```", "```js\n5\n```\n```", "```python\nx = 4", "```"]
FOLLOWING += ["```python\n>>> f(5)\n5\n```", "```py\nInput: a = 1, b = 2\n```"]
OF_SEVERAL = {f"{ONE}or\n{TWO}{later}": "x = 2\n" for later in FOLLOWING}
for name in (
    "python",
    "PY",
    "py",
    "python title=a.py",
    " python",
    "python:main.py",
    "{.python}",
    "python3.11",
):
    OF_SEVERAL[f"```{name}\nx = 1\n```\n```\n2\n```"] = "x = 1\n"
# Without a complete Python block it is the last of any kind.
OF_SEVERAL |= {
    "```\nx = 1\n```": "x = 1\n",
    "```text\nout\n```\n```\nx = 1\n```": "x = 1\n",
    "```js\nx\n```": "x\n",
    "```python\nx = 1": "x = 1\n",
    "```\nx = 1\n```\n```python\ny = 2": "y = 2\n",
    "```\nx = f(1)\n```\n```bash\npython x.py\n```\n```\n7\n```": "x = f(1)\n",
}


@pytest.mark.parametrize("text", OF_SEVERAL)
def test_the_program_is_the_last_complete_python_block_else_the_last_of_any_kind(text):
    assert extract_program(text) == OF_SEVERAL[text]
    assert extract_program(f"y = 2\n{text}", whole_text=True) == OF_SEVERAL[text]


@pytest.mark.parametrize(
    "text", ["", "x = 1", "print(`x`)", "Use `x = 1` here.", "It is ```x = 1``` then."]
)
def test_a_text_without_a_block_is_a_program_only_by_choice(text):
    assert extract_program(text) is None
    assert extract_program(text, whole_text=True) == text


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (" x = 1", "x = 1"),
        (" import math\ndef f():\n    return 1", "import math\ndef f():\n    return 1"),
        (" def f():\n     return 1\n", "def f():\n    return 1\n"),  # all of it is one to the right
        ("\n  # two\nx = 2", "\n# two\nx = 2"),
    ],
)
def test_white_space_before_the_first_line_of_a_program_is_no_part_of_it(text, code):
    assert extract_program(text, whole_text=True) == code
    assert extract_program(f"```python\n{text}\n```") == f"{code}\n"


FUTURE = "from __future__ import annotations"


@pytest.mark.parametrize(
    "sources",
    [
        ["x = 1", f'"""Adds."""\n{FUTURE}\ny = x'],
        ["x = 1\n", f"{FUTURE}; y = x\n"],
        [f"{FUTURE}\nx = 1", "from __future__ import (\n    annotations, generators)\ny = x"],
        ["x = 1", f"é = '{FUTURE}'\ny = x"],  # no import
        [f"x = 1\n{FUTURE} (", "y = 1"],  # no Python
    ],
)
def test_joined_sources_are_one_program_whose_future_imports_come_first(sources):
    program = join_sources(sources)
    if " (" in sources[0]:
        assert program == f"{sources[0]}\ny = 1\n"
    else:
        exec(program, scope := {})
        assert scope["y"] == 1


F, G = "```python\ndef f(x): return 1\n```\n", "```python\ng = f\n```\n"
USED = "from answer import f\nprint(f(1))\n"
USE = f"Example usage:\n```python\n{USED}```\n"


@pytest.mark.parametrize(
    ("text", "names", "code"),
    [
        (F + USE, ("f",), "def f(x): return 1\n"),
        (F + USE, (), USED),
        (F + USE, ("h",), USED),
        (F + F.replace("1", "2") + USE, ("f",), "def f(x): return 2\n"),
        (F.replace("python", "") + USE, ("f",), "def f(x): return 1\n"),
        (F + G + F.replace("f(x)", "h(x)"), ("f", "g"), "def f(x): return 1\ng = f\n"),
        (F.replace("\n```", "\ng = f\n```") + G, ("f", "g"), "def f(x): return 1\ng = f\n"),
        (F.replace("def f", "async def f") + USE, ("f",), "async def f(x): return 1\n"),
        (F.replace("def f(x): return 1", "f: object = abs") + USE, ("f",), "f: object = abs\n"),
        (
            F + "```python\nassert f == 1\nif f: f2 = 1\nf.x = 2\n  def f(): pass\n```",
            ("f",),
            "def f(x): return 1\n",
        ),
        (F + "Its head:\n```python\ndef f(x):\n```\n", ("f",), "def f(x): return 1\n"),
        (F + "Shorter:\n```python\ndef f(x): return (\n```\n", ("f",), "def f(x): return 1\n"),
        (F + "```python\nf = f(2)\nprint(f)\n```\n", ("f",), "def f(x): return 1\n"),
        ("```\nf = lambda x: x and f(x)\n```\n" + USE, ("f",), "f = lambda x: x and f(x)\n"),
    ],
)
def test_the_last_block_that_defines_what_the_tests_call_is_the_program(text, names, code):
    assert extract_program(text, names=names) == code


READ = "a, b = map(int, input().split())\n"
SOLVE = f"def solve():\n    {READ}    print(a + b)\n"
SCRIPT = f"{SOLVE}solve()\n"
TRIAL = "import io, sys\nsys.stdin = io.StringIO('1 2')\nprint(solve())\n"


@pytest.mark.parametrize(
    ("blocks", "code"),
    [
        ([SCRIPT, READ], SCRIPT),  # an explanation quotes it
        ([SCRIPT, TRIAL], SCRIPT),
        ([SCRIPT, SCRIPT.replace("+", "-")], SCRIPT.replace("+", "-")),
        ([SOLVE, "solve()\n"], SCRIPT),  # neither does all of it
        ([READ, "print(a + b)\n"], f"{READ}print(a + b)\n"),
    ],
)
def test_without_names_the_last_block_that_reads_and_writes_is_the_program(blocks, code):
    assert extract_program("\n".join(f"```python\n{block}```" for block in blocks)) == code


AROUND = ["So x = 1 (say):\n\n{}\n\nThis doubles.", "Sure!\n{}\nExample:\nprint(f(2))\n"]
AROUND += ["<answer>\n{}\n</answer>", "Not:\ndef f(x): return x\nThat's wrong. So:\n{}\n</s>"]


@pytest.mark.parametrize("text", AROUND)
def test_prose_and_tags_around_a_program_without_a_fence_are_no_part_of_it(text):
    program = extract_program(text.format("def f(x):\n    y = x\n\n    return 2 * y"), True, ("f",))
    assert program.strip() == "def f(x):\n    y = x\n\n    return 2 * y"


HELPER = "```python\nimport math\ndef half(x): return x / 2\n```\n"
USES_HELPER = "```python\ndef f(x): return math.floor(half(x))\n```\n"


@pytest.mark.parametrize(
    ("text", "names", "needs"),
    [
        (HELPER + USES_HELPER, ("f",), True),
        (USES_HELPER + HELPER, ("f",), True),  # a helper may stand behind
        (F + "```python\ndef g(): return 2\n```\n", ("f", "g"), True),  # the tests call both
        (HELPER.replace("math\n", "math\n```\nand\n```python\n") + USES_HELPER, ("f",), True),
        (HELPER + "```python\ndef f(half): return half\n```\n", ("f",), False),  # its argument
        (HELPER + "```python\ndef f(x): return x.half\n```\n", ("f",), False),  # an attribute
        (HELPER + "```python\ndef f(x): return half(\n```\n", ("f",), False),  # no Python
        (HELPER.replace("python", "text") + USES_HELPER, ("f",), False),  # what is no Python block
        (USES_HELPER + HELPER[:-5], ("f",), False),  # nor one that is cut off
    ],
)
def test_a_block_is_joined_with_those_that_define_what_it_lacks_and_with_no_others(
    text, names, needs
):
    blocks = [block.code for block in code_blocks(text)]
    program = extract_program(text, names=names)
    assert (program not in blocks) is needs
    if needs:
        assert sorted(program.splitlines()) == sorted("".join(blocks).splitlines())
        exec(program, scope := {})
        assert scope["f"](1) in (0, 1)


# Fences

DOCUMENTED = '''def f(x):
    """Twice `x`, as in ``f(1)``:

    ```
    f(1) == 2
    ```
    """
    return 2 * x
'''


TABS = 'def f():\n\t"""\n\t```\n\tx\n\t```\n\t"""\n'
FENCED = {  # text: its one program
    # Longer fences hold shorter ones.
    "````python\nx = '''\n```\n'''\n````": "x = '''\n```\n'''\n",
    "```python\nx = 1\n`````\nThus.": "x = 1\n",
    f"```python\n{TABS}```": TABS,
    "So:\r\n```python\r\nx = 1\r\ny = 2\r\n```\r\n": "x = 1\ny = 2\n",
    '  ```python\n  x = """\nat the margin\n  """\n  ```': 'x = """\nat the margin\n"""\n',
    "```python\nx = '''\n   \n\t\n'''\n```": "x = '''\n   \n\t\n'''\n",
}
# A fence opens behind prose, and prose about fences opens none.
for prose in ("Here it is: ", "Use `f` so: ", "**Answer:**", "- ", "1. so ", "<answer>"):
    FENCED[f"{prose}```python\nx = 1\n```"] = "x = 1\n"
for prose in (
    "Put it in ``` fences:",
    "Put it between ``` and ``` so:",
    "Open it by ``` as asked.",
):
    FENCED[f"{prose}\n{ONE}"] = "x = 1\n"
# It closes behind code or before a tag, and not within a line of code.
ENDS = ["```", "```\n", "\n``` \n", "```\nThat is `f`.", "\n```</answer>", "\n``` </answer>\nThus."]
ENDS += ["\n```.", "\n``` It doubles x.", "\n```Thus so.", "\n```&nbsp;"]
for end in ENDS:
    FENCED[f"```python\ndef f():\n    return 1{end}"] = "def f():\n    return 1\n"
for line in ("    Thus ```f(1)```", "x = '```'", "s = 'a``` b'", "# ```python"):
    FENCED[f"```python\nif x:\n{line}\n```"] = f"if x:\n{line}\n"
# A fence of Python opens a block within one that is still empty, and none of another word does.
for before in ("```", "```python", "```markdown\n", "```python\n\n"):
    FENCED[f"{before}\n```python\nx = 1\n```\nThus."] = "x = 1\n"
FENCED["```python\nx = '''\n```js\n'''\n```"] = "x = '''\n```js\n'''\n"
# A docstring with fences stays whole, whatever it is indented by.
for by in ("", "  ", "    "):
    shown = textwrap.indent(DOCUMENTED, by)
    FENCED[f"So:\n{by}```python\n{shown}{by}```\nThus."] = DOCUMENTED
# Common indentation is removed and the rest kept.
for text in (
    "- so:\n  ```python\n  if x:\n      y = 1\n  ```",
    "1. so:\n\n    ```python\n    if x:\n        y = 1\n    ```",
    "1. so:\n\t```python\n\tif x:\n\t    y = 1\n\t```",
    "1. so: ```python\n    if x:\n        y = 1\n    ```",
    "   ```python\nif x:\n    y = 1\n   ```",
    "    ```python\nif x:\n    y = 1\n```",
    "```python\n        if x:\n            y = 1\n```",
    "```python\n    if x:\n        y = 1\n    ```",
):
    FENCED[text] = "if x:\n    y = 1\n"


@pytest.mark.parametrize("text", FENCED)
def test_a_block_is_found_whole_however_its_fences_are_set(text):
    assert code_blocks(text) == [Block("python", FENCED[text], True)]


def test_a_block_that_is_cut_off_is_incomplete():
    cut = Block("python", "y =\n", False)
    assert code_blocks(ONE + "```python\ny =") == [Block("python", "x = 1\n", True), cut]
    assert code_blocks("```") == [Block("", "", False)]
    assert code_blocks("```md\nSo:\n" + ONE)[0] == Block("md", "So:\n", False)
    assert code_blocks("```python\n\n```") == [Block("python", "", True)]


# The asked format


ASKED = [ONE, f"So:\n{ONE}Thus.", "````py\nx\n````", "Thus: ```python\nx = 1```", "- a\n\n  " + ONE]
OTHERS = ["", "x = 1", ONE + TWO, ONE + "```", "```\nx = 1\n```", "```js\nx\n```"]
OTHERS += ["```python\nx = 1", "```python\n \n```"]


@pytest.mark.parametrize(
    ("text", "asked"), [*((text, True) for text in ASKED), *((text, False) for text in OTHERS)]
)
def test_one_python_block_and_nothing_else_is_the_asked_format(text, asked):
    assert is_one_python_block(text) is asked


# Any text

LINE = st.text(st.characters(exclude_characters="`\r\n"), max_size=20) | st.sampled_from(
    ["", "    ", "\t`x``", "  # `"]
)


@given(
    st.lists(LINE),
    st.sampled_from(["```", "````"]),
    st.sampled_from(["", "  ", "\t", "      "]),
)
def test_the_code_of_a_block_comes_back_exactly(lines, mark, indentation):
    lines = ["x = 1", *lines]
    shown = "\n".join(indentation + line for line in lines)
    text = f"So:\n\n{indentation}{mark}python\n{shown}\n{indentation}{mark}\nThus."
    assert code_blocks(text) == [Block("python", "\n".join(lines) + "\n", True)]


# Texts of n characters.
HOSTILE = {
    "backticks": lambda n: "`" * n,
    "spaces before a fence": lambda n: " " * n + "```",
    "spaces in a block": lambda n: "```python\n" + " " * n + "x\n```",
    "spaces on the first line, many fences": lambda n: (
        "```python\n" + " " * (n // 2) + "\n" + "     ```\n" * (n // 18)
    ),
    "ever deeper lines": lambda n: (
        "```python\n" + "".join(" " * i + "x\n" for i in range(int((2 * n) ** 0.5)))
    ),
    "an open block of longer fences": lambda n: "````\n" + "```x\n" * (n // 5),
    "fences": lambda n: "```\n" * (n // 4),
    "fences behind prose": lambda n: "a ```b\n" * (n // 7),
    "fences in one line": lambda n: "```x```" * (n // 7),
    "lines that are no Python": lambda n: "it's\n" * (n // 5),
}


@pytest.mark.parametrize("make", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_text_takes_steps_in_proportion_to_its_length(make):
    short, long = (
        calls_of(partial(extract_program, make(n), True, ("x", "f"))) for n in (4_000, 40_000)
    )
    assert long < 15 * short
