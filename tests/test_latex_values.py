"""Values of LaTeX, exact or to many digits, and strict comparison of answers."""

from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.counting import calls_of

from rewards.latex.compare import compare
from rewards.latex.number import number_of
from rewards.latex.parse import Unreadable, parse, tidy
from rewards.latex.read import read_answer
from rewards.latex.value import same_value


def decide(gold: str, answer: str) -> bool:
    return compare(read_answer(gold), read_answer(answer))


def same(left: str, right: str) -> bool:
    return same_value(parse(tidy(left)), parse(tidy(right)))


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("18", 18), ("-3", -3), ("$18$", 18), ("-$18", -18), ("18€", 18), ("1{,}800", 1800),
        ("0{,}125", Fraction(1, 8)), ("2{,}5", Fraction(5, 2)), ("1 800", 1800), (r"1,\!800", 1800),
        (r"50\%", 50), ("2½", Fraction(5, 2)), (r"18\text{ dozen}", 216),
        ("2 1/2", Fraction(5, 2)), (r"-\frac{5}{2}", Fraction(-5, 2)), ("2/4", Fraction(1, 2)),
        (r"0.1\overline{6}", Fraction(1, 6)), ("18 m^2", 18), ("18 m", 18), ("18.", 18),
        ("18 cups of flour", 18), ("$18.50 per ticket", Fraction(37, 2)), ("18 thousand", 18_000),
        # An operation is left to do.
        ("36/2", None), ("9*2", None), ("2^3", None), (r"2+\frac13", None), ("|18|", None),
        ("1.5/2", None), ("1e1", None), ("--18", None), ("18/0", None),
        # Letters, and words that change a number, add another or take it back.
        ("18x", None), ("18m", None), ("18 k", None), ("18M", None), ("18 lakh", None),
        ("18 squared", None), ("18 less two", None), ("18 point five", None), ("18 or so", None),
        ("18 wrong", None), ("18 and a half", None), ("18 is", None), ("18th", None),
        # No one number.
        ("3:45", None), ("17 18", None), ("1,2", None), ("x=18", None), ("１８", None), ("", None),
        ("9" * 200, None),
    ],
)  # fmt: skip
def test_one_grammar_reads_a_number(text, number):
    assert number_of(text) == number


SAME = [  # besides the label files, which test_boxed_math reads
    ("2^10", "1024"), ("2^{3^2}", "512"), ("-2^2", "-4"), (r"8^{2/3}", "4"),
    (r"\sqrt{3+2\sqrt2}", r"1+\sqrt2"), (r"\sqrt{-4}", "2i"), (r"\lceil\pi\rceil", "4"),
    (r"10^{30}\sqrt2", r"\sqrt{2\cdot10^{60}}"), (r"e^{i\pi/3}", r"\frac{1+i\sqrt3}{2}"),
    (r"\frac{\log 8}{\log 2}", "3"), (r"\tan\frac{2\pi}{3}", r"-\sqrt3"), (r"\sqrt[3]{-8}", "-2"),
    (r"\sin^{-1} 1", r"\pi/2"), (r"1/2^{80}", "2^{-80}"), (r"\lfloor\sqrt[3]{8}\rfloor", "2"),
    # As textbooks and keyboards write.
    (r"\sin(x)^2", r"\sin^2 x"), ("ln(x)^n", r"(\ln x)^n"), ("2√16", "8"),
    # Of natural numbers, and wherever both sides have a real value.
    ("n!", "n(n-1)!"), (r"\binom{n}{k}", r"\frac{n!}{k!(n-k)!}"),
    (r"\binom{m}{n}", r"\binom{m}{m-n}"), ("(-1)^{n+2}", "(-1)^n"),
    (r"n \bmod 2", r"\frac{1-(-1)^n}{2}"), ("(a-b)^{6000}", "(b-a)^{6000}"),
    (r"\ln x^2", r"2\ln x"), (r"\sqrt{ab}", r"\sqrt a\sqrt b"), (r"\sqrt{x^2y^2}", "|xy|"),
    (r"\ln\frac{1+x}{1-x}", r"\ln(1+x)-\ln(1-x)"), (r"\sin(\arcsin x)", "x"),
    (r"\frac{\sqrt{-3}-b}{2}", r"\frac{i\sqrt3-b}{2}"), (r"\log x^2", r"2\log x"),
]  # fmt: skip
OTHER = [
    ("10^{-400}", "0"), ("1+10^{-20}", "1"), ("x", "x+10^{-400}"), (r"\sqrt{x^2}", "x"),
    (r"\sin 30", "0.5"), ("x_1", "x_2"), (r"\log x", r"\ln x"), (r"\frac10", r"\frac20"),
    # Near misses, and what no number of digits tells apart.
    (r"\sin x", r"\sin x+10^{-60}"), (r"\sin x", r"\sin x+10^{-400}"),
    (r"\sqrt2+10^{-9999}", r"\sqrt2"), (r"\sqrt{1+10^{-99}}", "1"), ("e^{-1000}", "e^{-1001}"),
    (r"e^{\pi\sqrt{163}}", "262537412640768744"), (r"\cos 10^{-99}", "1"),
    (r"\tan\frac{\pi}{2}", r"2\tan\frac{\pi}{2}"),
    # Alike near 0, above 0, or where all letters have one sign.
    (r"\lfloor n/2\rfloor", r"\lfloor n/3\rfloor"), ("|x-3|", "3-x"),
    (r"\lfloor n^2/4\rfloor", "0"),
    ("x", r"\arcsin(\sin x)"), ("|x-5000|", "5000-x"), ("|x+5000|", "x+5000"), ("|xy|", "xy"),
    ("|abc|", "abc"), ("|a-b|", "a-b"), (r"\lceil x\rceil", r"\lfloor x\rfloor+1"), ("|x|x", "x^2"),
    (r"\arctan(\tan x)", "x"), (r"\sin|x|", r"\sin x"), (r"\sqrt{(x-y)^2}", "x-y"),
    ("n!", "n^2"), ("(-1)^n", "1"), (r"n \bmod 3", r"n \bmod 2"), (r"\sin^{-1} x", r"\sin(x)^{-1}"),
    # Too large to hold.
    ("9^{9^{9^9}}", "8^{9^{9^9}}"), (r"\sinh{2356!}", "18"),
]  # fmt: skip


@pytest.mark.parametrize("expected", [True, False])
def test_values_are_equal_or_different(expected):
    pairs = SAME if expected else OTHER
    assert [pair for pair in pairs if same(*pair) is not expected] == []


@pytest.mark.parametrize(
    "text",
    [
        "", "2+", "(2", "2)", r"\frac{1}", "1..2", "x y'", r"\foo", "１８", "\x00", "--5",
        # One expression to nobody.
        "1 8", "x2", r"2\frac{7}{3}", "(1" + "+1" * 500 + ")", "(" * 60 + "1" + ")" * 60,
    ],
)  # fmt: skip
def test_what_is_no_expression_is_not_read(text):
    with pytest.raises(Unreadable):
        parse(text)


@pytest.mark.parametrize(
    "text",
    [
        "(2000!+x)^{60}", "+".join(["2999!"] * 99), "*".join([r"\sin x^x"] * 60),
        "^".join("x" * 25), r"\tan(" * 14 + "x" + ")" * 14, r"\binom{2999}{1499}" * 40,
    ],
)  # fmt: skip
def test_the_work_for_a_value_is_bounded(text):
    tree = parse(tidy(text))
    assert calls_of(lambda: same_value(tree, ("number", Fraction(18)))) < 60_000


def test_values_are_the_same_in_many_threads_and_of_their_own_precision():
    pairs = [(r"\sin 2x", r"2\sin x\cos x"), (r"\tan x\cot x", "1"), (r"\sqrt{x^2}", "x")] * 40
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda pair: same(*pair), pairs)) == [True, True, False] * 40
    with mpmath.workdps(2):
        assert not same(r"\sin x", r"\sin x+10^{-60}")


EQUAL = [  # besides the label files
    ("4th", r"4^{\text{th}}"), ("3.5", "3,5"), (r"25\text{ cm}^2", "25 square centimeters"),
    (r"\{1,2\}", "2, 1"), ("3 or 4", "4 or 3"), ("(1,3)", "1,3"), (r"\frac23", "2:3"),
    (r"(3, \cos 2y)", r"(3, 1 - 2\sin^2 y)"), ("6x", "f'(x) = 6x"),
    (r"3\text{ km/h}", r"3\ \frac{\text{km}}{\text{h}}"),
    (r"\{A,B\}", r"\{B,A\}"), ("Monday", "day = Monday"),
    ("Yes", r"\text{answer} = \text{Yes}"), ("B", "x = B"), ("J", "J. o9"), ("G", r"\text{(G) } 5"),
    (r"5\text{ pounds per square inch}", r"5\text{ pounds/square inch}"),
    ("3", r"\begin{vmatrix} 2 & 1 \\ 1 & 2 \end{vmatrix} = 3"),
    ("5 cm", r"5\text { cm}"), ("(-infinity,5)", r"(-\infty, 5)"),
    ("(-∞,1)U(2,3]", r"(2,3]\cup(-\infty,1)"),
    (r"{1,3}\cup{2,3}", r"\{1,2,3\}"), ("x>1 and x<5", "(1,5)"), (r"5>x \land x\ge1", "[1,5)"),
    (r"\frac12", r"{1 \over 2}"), ("120", r"{10 \choose 3}"), (r"\frac12", r"\nicefrac{1}{2}"),
    ("1/3", r"0.\bar{3}"), ("1/3", r"0.\dot3"), ("16/99", r"0.\overline{16}"),
    ("12.50", r"\text{\$}12.50"), ("2", r"-7 \bmod 5 = 2"),
    (r"\arctan 2", r"\operatorname{arctan} 2"), (r"6\text{ m/s}", r"6\text{ meters per second}"),
    (r"30^\circ", r"\frac{\pi}{6}"), (r"(4,\frac\pi3)", r"(4, 60^\circ)"),
    # No number is in both, so the comma means "or".
    (r"(-\infty,2)\cup(3,\infty)", "x<2, x>3"), (r"x \le 2, 3 \le x", r"(-\infty,2]\cup[3,\infty)"),
    # Brackets that are turned outwards where an interval is open.
    (r"(3,\infty)", r"]3,\infty["), (r"[1,2)\cup(3,4]", r"[1,2[ \cup ]3,4]"), ("3<x<5", "]3,5["),
    ("101_2", "(101)_2"), ("(101)_2", "101_{2}"), (r"\lg x", r"\log_{10} x"), ("7", r"\bar{x} = 7"),
    (r"\tan x", r"\operatorname{tg} x"), ("9", r"9\ \mathrm{cm^2}"), ("7", r"f_{\max} = 7"),
    (r"(1,2)", r"\begin{pmatrix} 1 \\[2pt] 2 \end{pmatrix}"), ("0.5", "P(X=2) = 0.5"),
    (r"\alpha+\beta", "α+β"), ("(1,2)", "（1，2）"), ("x=2", "x＝2。"), (r"2\frac13", "2⅓"),
    (r"\frac{41}{333}", r"0.\dot{1}2\dot{3}"), (r"[1,2]\cup[3,4]", r"[1,2] \bigcup [3,4]"),
    # Sets as exams write them, and what a letter runs through.
    (r"(2,\infty)", r"\{x|x>2\}"), ("[1,5)", r"\left\{x \,\middle|\, 1\le x<5\right\}"),
    (r"\mathbb{R}\setminus\{1\}", r"\Bbb{R} \backslash \{1\}"), ("3或5", r"5 \text{ or } 3"),
    # A formula in \text, several choices, one value in two forms, factorials and binomials.
    ("3", r"\text{x = 3}"), ("(3,4)", r"\text{(3, 4)}"), ("-2, 3", r"\text{-2 and 3}"),
    ("3.5", r"\text{\$3.50}"), ("35", r"35\text{\%}"), ("ABD", "A, B, D"), ("A,C", r"\text{AC}"),
    ("ABD", r"\text{A, B and D}"), ("B", r"\text{Option B}"), ("B", r"\textbf{Choice (B)}"),
    (r"\frac34", r"\frac34 \text{ or } 0.75"), (r"30^\circ", r"\frac\pi6 \text{ or } 30^\circ"),
    ("120", r"\frac{10!}{3!7!}"), ("120", r"\mathrm{C}_{10}^{3}"), ("120", "^{10}C_3"),
    (r"30^\circ", r"\frac{\pi}{6}\text{ radians}"), ("€5", r"5\text{ euros}"),
]  # fmt: skip
DIFFERENT = [
    ("Yes", "No = Yes"), ("even", "odd = even"), ("D", "A=B=C=D"),  # two answers
    ("III", "I, II"), ("I and II", "III"),
    ("4", r"4\text{th}"), ("17", r"17\text{ or so}"), ("17", "17 roughly"), ("3400", "(3,400)"),
    ("5", "5m"), (r"0.5\%", "0.5"), ("40/9", r"4\frac49\%"), ("71/6", "11\n5/6"),
    ("0", "0.0000001"), ("G", "g"), ("AB", "BA"), ("2516_8", "2516"), ("1:2", "2:4"),
    (r"\frac23", "3:2"), ("10, 4, -2", "4, 10, -2"), (r"\{5\}", "5"), ("5", "[5]"), ("1=0", "2=0"),
    ("-x > -3", "x > 3"), ("x > 1", r"\frac1x < 1"), (r"\frac13\sin x", r"0.333333\sin x"),
    (r"3 \pmod 7", r"3 \pmod 5"), ("0", "0 wrong"), (r"\mathbb{R}", r"(-\infty,0)\cup(0,\infty)"),
    ("(1,5)", "x>1 or x<5"), ("[1,5)", "x>1 and x<5"), ("30", r"\frac{\pi}{6}"),
    (r"\{1,3\}", r"\{1\}\cup\{2,3\}"), ("y=|x-3|", "y=3-x"), (r"\frac73x", "7/3x"),
    ("(1,5)", "x>1, x<5"), (r"(-\infty,2)\cup(3,\infty)", "x<2, y>3"), ("[3,5]", "]3,5["),
    (r"(-\infty,2)\cup(3,\infty)", "x<2 and x>3"), (r"(-\infty,5)\cup(1,\infty)", "x<5, x>1"),
    (r"\sqrt[3]{2}, \sqrt[3]{5}", "(2,5)"), ("101", "(101)_2"), ("(101)_2", "(101)_3"),
    ("(3,5)", "]3,5]"),
    # Another letter, set, unit or currency, and two values.
    ("[1,5)", r"1 \le x < 5, x \in \mathbb{Z}"), ("[1,5)", r"[1,5), x \in \mathbb{N}"),
    (r"x=2k\pi, k\in\mathbb{Z}", r"x=k\pi, k\in\mathbb{Z}"), ("3", r"3, x \in \mathbb{R}"),
    (r"\{x|x>2\}", r"\{x|x \ge 2\}"), ("3", r"\text{x = 3 or x = 4}"), ("3", r"\text{x > 3}"),
    ("3", r"\not= 3"), ("ABD", "A, B, C, D"), ("B", "A, B"), ("B", r"\text{Option B or C}"),
    (r"\frac34", r"\frac34 \text{ or } \frac43"), ("120", "C_{10}^{4}"), ("$5", "€5"),
    (r"30^\circ", r"30\text{ rad}"), ("ABD", r"\text{A, B or D}"),
    (r"\ln 2", "0.69314"), (r"\begin{pmatrix}2\\7\end{pmatrix}", "(7,2)"), ("4", "2+2 = x = 5"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("gold", "answer", "expected"),
    [*((*pair, True) for pair in EQUAL), *((*pair, False) for pair in DIFFERENT)],
)
def test_another_form_is_the_same_answer_and_a_near_miss_is_not(gold, answer, expected):
    assert decide(gold, answer) is expected


LATEX_LIKE = st.text(alphabet=r"\frac{}sqtpimxy^_0123456789+-*/=<>()[],.| !%$", max_size=60)


@settings(deadline=None)
@given(st.text(max_size=200) | LATEX_LIKE, st.text(max_size=200) | LATEX_LIKE)
def test_any_two_texts_are_compared(gold, answer):
    assert decide(gold, answer) in (True, False)
    assert number_of(gold) is None or decide(gold, gold)


@settings(deadline=None)
@given(st.integers(-999, 999), st.integers(1, 999), st.integers(1, 99))
def test_a_fraction_equals_itself_in_every_form_and_not_its_neighbour(over, under, factor):
    gold = rf"\frac{{{over}}}{{{under}}}"
    assert decide(gold, f"{over * factor}/{under * factor}")
    assert decide(gold, rf"\dfrac{{{-over}}}{{{-under}}}")
    assert not decide(gold, f"{over * factor + 1}/{under * factor}")
