"""The verdict on a conversion."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lockstep.doctor.findings import Finding

EQUAL, DIFFERS, FAILED, INDIVISIBLE = "equal", "differs", "failed", "indivisible"
ASIDE = {"dropped_validation", "missing_no_sync", "starving_loader", "needless_find_unused"}
"""Rules about what the original did as well, or about speed: they decide nothing here."""
STRICT = {"same_seed"}
"""Rules whose findings decide here although they are only possible bugs elsewhere."""


@dataclass(frozen=True)
class Difference:
    """The first place where two runs differ."""

    step: int
    """Counted from 1."""
    what: str
    """The name of a weight, "the loss", or another description."""
    difference: float | None = None
    """For a weight, the mean over its elements."""
    bound: float | None = None
    """The difference that rounding explains."""


@dataclass(kw_only=True)
class Comparison:
    """The result on a number of ranks, compared with the original."""

    replicas: int
    """Number of ranks; 1 means started by plain python."""
    resumed: bool = False
    """Whether both were resumed from a checkpoint that the result had written."""
    status: str
    """`equal`, `differs`, `failed` if there was nothing to compare, or `indivisible` if the result
    itself says that a batch cannot be divided by this number of ranks."""
    steps: int = 0
    """Compared steps of all optimizers."""
    difference: float = 0.0
    """Difference of the weight or loss that comes closest to its bound."""
    bound: float = 0.0
    explained: float = 0.0
    """The largest share of what training changes that would pass as rounding, on several ranks."""
    clear: int = 0
    """Steps up to which no more of it would pass as rounding than a proof allows."""
    closest: str = ""
    """Name of that weight or loss."""
    precision: str = ""
    """`float64`, if rounding grew too fast in float32 to compare."""
    first: Difference | None = None
    reason: str = ""
    advice: str = ""
    log: str = ""
    """Last lines of a run that failed."""
    notes: list[str] = field(default_factory=list)
    """Lines that were printed differently, where that proves nothing."""
    apart: int = 0
    """How many numbers, or lines with another text, were printed differently."""

    @property
    def text(self) -> str:
        """The comparison in one line."""
        ranks = "1 process" if self.replicas == 1 else f"{self.replicas} ranks"
        ranks += ", resumed from a checkpoint of the result" * self.resumed
        if self.status == EQUAL:
            if self.replicas == 1:
                return f"{ranks}: equal to the bit in {self.steps} steps, and in what it prints"
            how = " in float64, as rounding grows too fast in float32" if self.precision else ""
            return (
                f"{ranks}: equal in {self.steps} steps{how}; closest is {self.closest}: difference "
                f"{self.difference:.1e}, rounding explains {self.bound:.1e}"
            )
        if self.status == INDIVISIBLE:
            return f"{ranks}: not compared. The result ends there and says: {self.reason}"
        text = f"{ranks}: {self.status}"
        if self.first is not None:
            text += f" from step {self.first.step} on, in {self.first.what}"
            if self.first.difference is not None:
                text += f" (by {self.first.difference:.1e}"
                text += f", rounding explains {self.first.bound:.1e})"
        return f"{text}: {self.reason} {self.advice}".rstrip()


@dataclass(kw_only=True)
class Verdict:
    """The outcome of a proof."""

    failure: str = ""
    """Why there is nothing to compare with: the original could not be run."""
    log: str = ""
    """Last lines of the original, if it failed."""
    comparisons: list[Comparison] = field(default_factory=list)
    neutralised: list[str] = field(default_factory=list)
    """What all runs do in the same way, or leave out, because of the probes."""
    fake_cuda: list[str] = field(default_factory=list)
    """What the CPU answered for: cuda, nccl and so on."""
    fake_data: list[str] = field(default_factory=list)
    """Missing data and libraries, and the replacement of each."""
    findings: list[Finding] = field(default_factory=list)
    """Findings of the doctor in the result on two ranks."""

    @property
    def proved(self) -> bool:
        """Whether every run is equal, and the doctor is certain of no bug.

        A number of ranks by which the batch cannot be divided is left out if another one is equal.
        """
        divided = [one for one in self.comparisons if one.status != INDIVISIBLE]
        equal = all(one.status == EQUAL for one in divided)
        left_out = len(divided) < len(self.comparisons)
        equal = equal and (not left_out or any(one.replicas > 1 for one in divided))
        bugs = [
            f
            for f in self.findings
            if (f.certain and f.rule.name not in ASIDE) or f.rule.name in STRICT
        ]
        return bool(self.comparisons) and equal and not bugs

    def described(self) -> dict[str, Any]:
        """Return the verdict as a dictionary, for --json."""
        findings = [finding.described() for finding in self.findings]
        return {"proved": self.proved, **asdict(replace(self, findings=[])), "findings": findings}
