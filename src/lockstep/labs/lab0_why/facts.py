"""Published models, training runs and machines, each with its source."""

from __future__ import annotations

from typing import NamedTuple

DAY = 86_400e15
"""Operations in one PF/s-day: 10**15 per second for a day."""
OPENAI = "OpenAI 2018, AI and Compute"
ITS_PAPER = "its paper"
GPT3 = "Brown 2020 (GPT-3), table D.1"


class Model(NamedTuple):
    """A model and the compute of its training."""

    name: str
    year: float
    parameters: float | None
    pf_days: float | None
    """PF/s-days."""
    source: str


def by_tokens(parameters: float, tokens: float) -> float:
    """Return the PF/s-days of a transformer: six operations per parameter and token.

    >>> round(by_tokens(175e9, 300e9))
    3646
    """
    return 6.0 * parameters * tokens / DAY


MODELS = (
    Model("AlexNet", 2012.7, 60e6, 0.0058, f"{ITS_PAPER}; {OPENAI}"),
    Model("Seq2Seq", 2014.7, None, 0.085, OPENAI),
    Model("VGG-16", 2014.7, 138e6, 0.098, f"{ITS_PAPER}; {OPENAI}"),
    Model("ResNet-152", 2015.9, 60e6, 0.117, f"{ITS_PAPER}; {OPENAI}"),
    Model("Deep Speech 2", 2015.9, None, 0.25, OPENAI),
    Model("Google's translation", 2016.7, None, 79.0, OPENAI),
    Model("Xception", 2016.8, 23e6, 5.0, f"{ITS_PAPER}; {OPENAI}"),
    Model("Transformer, big", 2017.4, 213e6, 2.3e19 / DAY, ITS_PAPER),
    Model("AlphaGo Zero", 2017.8, None, 300_000 * 0.0058, f"300,000 AlexNets: {OPENAI}"),
    Model("BERT, large", 2018.8, 340e6, 6.16, f"{ITS_PAPER}; {GPT3}"),
    Model("GPT-2", 2019.1, 1.5e9, None, ITS_PAPER),
    Model("Megatron-LM", 2019.7, 8.3e9, None, ITS_PAPER),
    Model("T5, 11B", 2019.8, 11e9, 382.0, f"{ITS_PAPER}; {GPT3}"),
    Model("GPT-3", 2020.4, 175e9, 3640.0, GPT3),
    Model("PaLM", 2022.3, 540e9, by_tokens(540e9, 780e9), "its paper: 780 billion tokens"),
    Model("Chinchilla", 2022.2, 70e9, 5.76e23 / DAY, ITS_PAPER),
    Model("LLaMA, 65B", 2023.2, 65e9, by_tokens(65e9, 1.4e12), "its paper: 1.4 trillion tokens"),
    Model("Llama 3.1, 405B", 2024.6, 405e9, 3.8e25 / DAY, ITS_PAPER),
)


class Point(NamedTuple):
    """A published number; for a machine, its speed in PF/s."""

    name: str
    year: float
    value: float
    source: str


SUPERCOMPUTERS = tuple(
    Point(name, year, pf, f"Linpack in float64: TOP500, {edition}")
    for name, year, pf, edition in (
        ("Jaguar", 2009.9, 1.759, "November 2009"),
        ("Tianhe-1A", 2010.9, 2.566, "November 2010"),
        ("K computer", 2011.9, 10.51, "November 2011"),
        ("Titan", 2012.9, 17.59, "November 2012"),
        ("Tianhe-2", 2013.5, 33.86, "June 2013"),
        ("Sunway TaihuLight", 2016.5, 93.01, "June 2016"),
        ("Summit", 2018.5, 122.3, "June 2018"),
        ("Fugaku", 2020.5, 415.5, "June 2020"),
        ("Frontier", 2022.4, 1102.0, "May 2022"),
        ("El Capitan", 2024.9, 1742.0, "November 2024"),
    )
)
BOXES = (
    Point("8 P100", 2016.3, 0.17, "peak in float16: NVIDIA, DGX-1"),
    Point("8 V100", 2017.4, 0.96, "peak in float16: NVIDIA, DGX-1"),
    Point("16 V100", 2018.2, 2.0, "peak in float16: NVIDIA, DGX-2"),
    Point("8 A100", 2020.4, 5.0, "peak in float16, sparse: NVIDIA, DGX A100"),
    Point("8 H100", 2022.2, 32.0, "peak in float8, sparse: NVIDIA, DGX H100"),
    Point("8 B200", 2024.2, 72.0, "peak in float8, sparse: NVIDIA, DGX B200"),
)
