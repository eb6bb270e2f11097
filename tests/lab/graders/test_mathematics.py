"""Answers that are the same in other writings, and answers that look alike and differ."""

from __future__ import annotations

import random

import pytest

from recipe.spiral.lab.graders.unwrapping import unwrapped
from tests.lab.graders.writings import changed, writings

pytest.importorskip("latex2sympy2_extended")

from recipe.spiral.lab.graders.mathematics import BEGIN, END, same

#: Of every form that the benchmarks' references have; the texts are our own.
REFERENCES = (
    *(
        "7",
        "-12",
        "070",
        "4100",
        "58,500",
        "12.5",
        ".00172",
        "-0.875",
        "3.5e33",
        "1.62e-19",
        "7e-8",
        "-1./7",
        "+3",
        "0",
    ),
    *(
        r"\frac{3}{8}",
        r"-\frac{35}{9}",
        r"\frac59",
        r"1\frac{3}{7}",
        r"6\sqrt{7}",
        r"\frac{3\sqrt{5}}{4}",
        r"12 \pi",
        "2/7",
    ),
    *(r"\frac{5}{\sqrt[3]{6}}", "10^{40}", "2^{1007}", r"\frac{80!}{2^{40}}", r"\frac{1}{1900!}", r"\binom{2n}{n}"),
    *(
        "3, 5, 8",
        "-1,0,4",
        "(3,-7)",
        "(1,4,9)",
        "(2,7),(5,1)",
        "[3,8)",
        r"(-\infty, 2) \cup (5, \infty)",
        r"x \in [-4,9]",
    ),
    *(
        r"\{2\pm\sqrt{3},-6\}",
        r"1 \pm \sqrt{13}",
        r"f(x)=\pm x+7",
        r"(4\pm2\sqrt2, 8)",
        r"\frac{-3\pm\sqrt{5}}{2}",
        r"\left( 4, \frac{\pi}{3} \right)",
        r"k \geqslant 3",
        "$17$,$23$",
        "$-4$",
    ),
    *(
        "5-4i",
        "2x^3-7x+1",
        "(a+6)(b-3)",
        "n(n-2)",
        r"\frac{n(n+1)(2 n+1)}{6}",
        r"\lfloor\frac{3 n-1}{7}\rfloor",
        "2RC+R+5C",
    ),
    *(
        "y = 3x - 4",
        "f(x)=x+9",
        "a=3, a=-5",
        "3x - 8y + 1 = 0",
        "X_{d}=115-1.5 P",
        r"m_{\max }=n^{2}-n-3",
        "N=3n",
        "SRAC=2LRAC",
    ),
    *(
        r"\frac{d x}{d t}=k x-7",
        r"y^{\prime}+3 y-r x(t)=0",
        r"\frac{e^{2 i t}}{(3+4 i)}+C e^{-2 t}",
        r"E_{1},E_{2}",
        "7.4 Z",
    ),
    *(
        r"m_{p} c^{2}\left(\gamma^{2}-2\right) \sin ^{2} \theta",
        r"\frac{1}{3}(\exp{2*t} - \exp{-2*t})",
        "np.arcsin(7/11)",
    ),
    *(
        r"(1 - 3e^{-2t}) u(t)",
        r"\sqrt{6 \pi G \rho_{0} r_{0}^{2}}",
        r"\lambda_{\text {red}} / \sqrt{3}",
        r"\frac{17}{4} m",
    ),
    *(
        r"\begin{pmatrix} -3 \\ 8 \end{pmatrix}",
        r"35^\circ",
        r"12\mbox{ cm}^2",
        r"6.1 \times 10^{16} \text{ cm}^{-3}",
        "12.5%",
    ),
    *(
        "63_8",
        r"\$17.80",
        r"6.4 \text{ cents}",
        r"10,\!070",
        "13m",
        "x=6",
        "-2 \\cos (3 t)",
        r"\log_2 5",
        r"8 \%",
        "5^{-2/3}",
    ),
)


def judged(reference: str, answer: str) -> bool | None:
    return same(unwrapped(reference, BEGIN, END), unwrapped(answer, BEGIN, END))


@pytest.mark.parametrize("reference", REFERENCES)
def test_other_writings_are_right_and_one_digit_or_sign_changed_is_wrong(reference: str) -> None:
    assert [way for way in writings(reference) if not judged(reference, way)] == []
    ways = changed(reference, random.Random(reference), 10)
    assert ways or reference in ("0", "$-4$")
    assert [way for way in ways if judged(reference, way)] == []


@pytest.mark.parametrize(
    ("reference", "answer"),
    [
        ("0", "-0"),
        (r"\text{(C)}", r"\textbf{C}"),
        (r"\text{(C)}", "(C) 12"),
        ("27", r"\textbf{(E)}\ 27"),
        (r"\text{Evelyn}", "evelyn."),
        (r"\text{ellipse}", r"{\rm ellipse}"),
        ("BADC", r"\text{B, A, D, C}"),
        ("MR=SRMC", r"\text{SRMC} = \text{MR}"),
        ("SRAC=LRAC", r"\mathrm{LRAC}=\mathrm{SRAC}"),
        ("2RC+R+C", "C+2CR+R"),
        ("6m", r"m \cdot 6"),
        ("6", r"6 \mathrm{~m}"),
        ("9.8", r"9.8\text{ m/s}^2"),
        (r"9.8\text{ m/s}^2", r"9.8\ \mathrm{m}\cdot\mathrm{s}^{-2}"),
        (r"15\mbox{ cm}^2", r"15 \text{ square centimeters}"),
        ("5000000", r"5 \text{ million dollars}"),
        ("30", r"\text{30 minutes}"),
        ("30", r"x = \text{30cm}"),
        ("30", r"\text{30 times}"),
        ("30", r"\text{30 m}"),
        (r"\text{30 min}", r"30 \text{ minutes}"),
        (r"2\text{ square units}", r"2\text{ units}^2"),
        (r"\text{5 cm}", "5"),
        (r"25\text{ cm}^2", r"\mathrm{25\,cm}^2"),
        ("5000", r"\text{\$5,000 per year}"),
        (r"\frac{1}{2}", r"\mathrm{\frac12~cup}"),
        (r"3\cdot10^8", r"\mathrm{3\times10^{8}\ m/s}"),
        ("0.5", r"\text{.5 miles}"),
        ("58500", "58 500"),
        ("27", "3^3 = 27"),
        ("27", "AB = 27"),
        (r"1-\frac{1}{\mathrm{e}}", r"\frac{e-1}{e}"),
        ("2i", r"(1+\mathrm{i})^2"),
        (r"\frac{1}{3}", r"0.\overline{3}"),
        (r"\frac{2}{3}", "0.66666666"),
        (r"\frac{8}{21}", "0.38095238095238093"),
        (r"\frac{1}{3}", "0.333333"),
        (r"137 \frac{1}{2}", "137 1/2"),
        ("17.5%", "0.175"),
        ("2^{10}", "2^(5+5)"),
        (r"4\sqrt{2}", r"4\sqrt(2)"),
        (r"4\sqrt{2}", "4sqrt(2)"),
        (r"\frac34", r"\frac 3{4}"),
        ("8", "4(2)"),
        (r"x=\pm 2", "-2, 2"),
        (r"f(x)=\pm x", r"f(x)=-x \text{ or } f(x)=x"),
        (r"(4\pm2\sqrt2, 8)", r"(4-\sqrt{8},8),(4+\sqrt{8},8)"),
        (r"\frac{-3 \pm \sqrt{5}}{2}", r"\frac{-3-\sqrt5}{2}, \frac{-3+\sqrt5}{2}"),
        (r"\pm 1, \pm 2", "1,2,-1,-2"),
        (r"(2\pm 1, 4\mp 1)", "(3,3),(1,5)"),
        ("no", r"\textbf{No}."),
        ("ab", "ba"),
        ("at", "ta"),
        ("1011_2", "(1011)_{2}"),
        ("(1,2)", "x=1, y=2"),
        ("[-2,7]", r"x\in[-2,7]"),
        (r"x \in [-2,7]", r"7\ge x\ge -2"),
        (r"(-\infty, 2) \cup (3, \infty)", r"x<2 \text{ or } x>3"),
        (r"(-\infty,0)\cup(0,\infty)", r"\mathbb{R}\setminus\{0\}"),
        (r"E_{1},E_{2}", r"E_2 \text{ and } E_1"),
        (r"\frac{d x}{d t}=k x-a", "kx-a"),
        (r"\frac{d^{2} v}{d t^{2}}+\frac{v}{L C}=\frac{w}{L C}", r"LC\frac{d^2 v}{dt^2}+v=w"),
        (r"y^{\prime}+r y=0", "y' = -ry"),
        (r"\sqrt{4 \pi \rho_{0} r_{0}^{2}}", r"2r_0\sqrt{\pi\rho_0}"),
        (r"\frac{1}{2}(\exp{a*t} + \exp{-a*t})", r"\cosh(at)"),
        ("np.arcsin(10/13)", r"\sin^{-1}\left(\frac{10}{13}\right)"),
        (r"\sin (3 t) / 5", r"\frac{\sin{3t}}{5}"),
        (r"\binom{2n}{n}", r"\frac{(2n)!}{(n!)^2}"),
        ("10", r"\binom 5 2"),
        (r"\binom52", "10"),
        (r"\binom nk", r"\binom{n}{k}"),
        ("3", r"\log_2 8"),
        ("2", r"\log_10 100"),
        (r"\log_2 3", r"\log_{2}3"),
        (r"\log_2 3", r"\log_2(3)"),
        (r"\log_23", r"\frac{\ln 3}{\ln 2}"),
        (r"\lceil n / 2\rceil+1", r"\left\lfloor\frac{n+1}{2}\right\rfloor+1"),
        (r"m_{\max }=n^{2}-n-1", r"m_{\text{max}}=n^2-n-1"),
        (r"\begin{pmatrix} 1/5 \\ -2 \end{pmatrix}", r"\begin{bmatrix}0.2\\-2\end{bmatrix}"),
        ("t(0,4]", r"t\left(0,4\right]"),  # cannot be read
    ],
)
def test_the_same(reference: str, answer: str) -> None:
    assert judged(reference, answer) is True


@pytest.mark.parametrize(
    ("reference", "answer"),
    [
        ("2.88e-19", "3.88e-19"),
        ("-1./3", "-1./4"),
        (".0000672", ".0000673"),
        (r"\frac{1}{2004!}", r"\frac{1}{2006!}"),
        (r"\frac{1}{2004!}", "0"),
        ("0", "10^{-30}"),
        ("10^{100}", "10^{100}+1"),
        (r"1-\frac{1}{\mathrm{e}}", r"1+\frac{1}{\mathrm{e}}"),
        ("123456.7", "123456.8"),
        ("400000", "400000.4"),
        ("3.14159265", "3.14159266"),
        (r"\pi", "3.1416"),
        (r"\frac{1}{3}", "0.333334"),
        ("0.2", r"0.2\%"),
        ("4", r"4\sqrt(2)"),
        ("4", "4 \\text{ or } 5"),
        ("5", "2(3)"),
        ("27", "2 7"),
        ("27", "-x = 27"),
        ("3", "1,2,3"),
        ("1,2,n", r"1,2,\ldots,n"),
        ("BADC", "ABCD"),
        ("BADC", "A B C D"),
        (r"\text{NO}", r"\text{ON}"),
        ("no", "on"),
        ("yes", r"\text{sye}"),
        ("or", "and"),
        ("up", "p u p"),
        (r"f(x)=\pm x", "f(x)=x"),
        (r"(4\pm2\sqrt2, 8)", r"4\pm2\sqrt2, 8"),
        (r"(4\pm2\sqrt2, 8)", r"(4+2\sqrt2, 8)"),
        (r"(2\pm 1, 4\mp 1)", "(3,5),(1,3)"),
        (r"\text{east}", r"\text{west}"),
        (r"\text{(C)}", "(B) 12"),
        ("MR=SRMC", "MR=SRCM"),
        ("6m", "6"),
        ("6", "6m"),
        ("5", "5 million"),
        (r"15\mbox{ cm}^2", r"15\mbox{ cm}^3"),
        ("5", r"\text{6 cm}"),
        ("5", r"\text{5 cm by 6 cm}"),
        ("3", r"\text{3 hours 20 minutes}"),
        (r"15\text{ cm}^2", r"\text{15 cm}^3"),
        (r"\text{7 PM}", r"\text{7 AM}"),
        ("2", r"\text{2x}"),
        ("5", r"\text{5 squared}"),
        ("5", r"5 \text{ squared}"),
        ("5", "5 squared"),
        (r"\text{5 squared}", "5"),
        ("5", r"\text{5 factorial}"),
        ("5", r"\text{5 times three}"),
        ("5", "5 times three"),
        ("5", r"\text{5 mod n}"),
        ("4", r"\text{4 x}"),
        ("4", r"4 \text{ x}"),
        ("7", r"\text{7 in base nine}"),
        ("7", r"7 \text{ base nine}"),
        (r"\text{4 July}", r"\text{4 June}"),
        (r"4 \text{ July}", r"4 \text{ June}"),
        (r"\text{3 red}", r"\text{3 blue}"),
        ("4", r"\log_2 8"),
        (r"\log_2 3", r"\log_3 2"),
        ("9", r"\binom 5 2"),
        (r"6 \text{ kcal m}^{-2}", r"6 \text{ kcal m}^{2}"),
        ("52_8", "52_9"),
        ("(1,2)", "(2,1)"),
        ("(1,2)", "[1,2]"),
        ("x>3", r"x\ge 3"),
        ("|x|", "x"),
        (r"\lfloor x \rfloor", "x"),
        (r"\lfloor\log_2 n\rfloor+1", r"\lceil\log_2 n\rceil"),
        (r"\sin 30^\circ", r"\sin 30"),
        ("y'", "y"),
        ("N=n", "N=2n"),
        ("t(0,4]", "(0,4]"),
    ],
)
def test_not_the_same(reference: str, answer: str) -> None:
    assert not judged(reference, answer)


@pytest.mark.parametrize(
    "answer", ["(", r"\frac{1}", "1 2", r"1,\ldots,9", r"\begin{pmatrix} 1", "x ==== 2", "\x02\x03\x00"]
)
def test_what_cannot_be_read_is_told_apart(answer: str) -> None:
    assert judged("7", answer) is None
    assert judged(answer, answer) is True
