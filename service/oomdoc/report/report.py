"""What the library hands back: a diagnosis or an estimate that can be printed, served or shown in a notebook."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oomdoc.report.estimates import estimate_document, gib
from oomkb.dataclass import dataclass

if TYPE_CHECKING:
    from oomdoc.diagnosis.result import Diagnosis
    from oomkb.memory.estimate import Estimate
    from oomkb.pricing import Priced


@dataclass(frozen=True, repr=False)
class Report:
    """A diagnosis in a language: ``print`` it, or take ``document()``, ``markdown()``, ``text(full=True)``."""

    diagnosis: Diagnosis
    language: str = "en"
    further: tuple[tuple[str, str], ...] = ()
    """The further questions of the text, each with its answer."""

    def document(self, *, identifier: str | None = None) -> dict[str, Any]:
        """The contract's JSON document."""
        from oomdoc.report.document import diagnosis_document

        return diagnosis_document(self.diagnosis, self.language, identifier=identifier, further=self.further)

    def json(self) -> str:
        """The document as text."""
        return json.dumps(self.document(), ensure_ascii=False, indent=2)

    def markdown(self) -> str:
        """For an issue, a chat or a wiki."""
        from oomdoc.report.markdown import diagnosis_markdown

        return diagnosis_markdown(self.document(), self.language)

    def text(self, *, width: int = 100, colour: bool = False, full: bool = False) -> str:
        """For a terminal: the first screen; everything with ``full``."""
        from oomdoc.report.terminal import diagnosis_text

        return diagnosis_text(self.document(), self.language, width=width, colour=colour, full=full)

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        found = self.diagnosis
        cause = f", {found.causes[0].cause} {found.causes[0].probability:.0%}" if found.causes else ""
        answer = f", {found.outlook.answer}" if found.outlook is not None else ""
        plans = f", {len(found.plans)} plans" if found.plans else ""
        return f"<Report: {found.verdict}{cause}{answer}{plans}>"

    def _repr_html_(self) -> str:
        from oomdoc.report.terminal import diagnosis_html

        return diagnosis_html(self.document(), self.language)


@dataclass(frozen=True, repr=False)
class EstimateReport:
    """What a job needs of each GPU; sizes in GiB (2**30 bytes).

    >>> found = oomdoc.estimate(model="Qwen/Qwen3-8B", method="qlora", gpu="RTX 4090")  # doctest: +SKIP
    >>> found.peak_gib, found.fits, found.interval                                      # doctest: +SKIP
    (12.71, True, (10.2, 14.5))
    """

    priced: Priced

    @property
    def estimate(self) -> Estimate:
        """The estimate in bytes, with every phase and term."""
        return self.priced.estimate

    @property
    def peak_gib(self) -> float:
        """What ``nvidia-smi`` shows for the process at its peak."""
        return gib(self.estimate.process_bytes)

    @property
    def needed_gib(self) -> float:
        """What the process cannot do without: blocks that PyTorch merely caches are not in it."""
        return gib(self.estimate.needed_bytes or self.estimate.process_bytes)

    @property
    def allocated_gib(self) -> float:
        """The tensors' own bytes, as ``torch.cuda.max_memory_allocated`` reports them."""
        return gib(self.estimate.allocated_bytes)

    @property
    def interval(self) -> tuple[float, float]:
        """Where ``peak_gib`` lies with a probability of 90 %."""
        found = self.estimate.intervals["process"]
        return gib(found.low_bytes), gib(found.high_bytes)

    @property
    def capacity_gib(self) -> float | None:
        """What the card holds; ``None`` where none is named."""
        capacity = self.estimate.capacity_bytes
        return None if capacity is None else gib(capacity)

    @property
    def fits(self) -> bool | None:
        """Whether it fits the card; ``None`` where none is named."""
        return self.estimate.fits

    @property
    def probability(self) -> float | None:
        """That it fits, 0..1; ``None`` where no card is named."""
        return self.estimate.fits_probability

    @property
    def peak_phase(self) -> str:
        """Where the peak is: ``load forward loss backward optimizer-step serving`` ..."""
        return self.estimate.peak_phase

    @property
    def by_phase(self) -> dict[str, dict[str, float]]:
        """Phase -> term -> size."""
        return {
            name: {term: gib(size) for term, size in phase.terms_bytes.items()}
            for name, phase in self.estimate.phases.items()
        }

    @property
    def assumed(self) -> dict[str, Any]:
        """Fields that nobody stated, with the values that were taken."""
        return {name: assumption.value for name, assumption in self.estimate.assumed.items()}

    def plot(self, path: str | Path | None = None) -> Any:
        """A stacked bar per phase: written to ``path`` (.svg, .png, .pdf), else a matplotlib figure.

        :raises InputError: where matplotlib is not installed, or the path's ending is no picture's.
        """
        from oomdoc.report.chart import chart, write_chart

        if path is None:
            return chart(self.document())
        write_chart(self.document(), Path(path))
        return None

    def document(self, *, identifier: str | None = None, language: str = "en") -> dict[str, Any]:
        """The contract's JSON document."""
        return estimate_document(self.estimate, identifier=identifier, language=language)

    def text(self, *, language: str = "en", width: int = 100, colour: bool = False) -> str:
        """For a terminal: a bar per phase."""
        from oomdoc.report.terminal import estimate_text

        return estimate_text(self.document(language=language), language, width=width, colour=colour)

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        capacity = self.capacity_gib
        card = f" of {capacity:.2f}" if capacity is not None else ""
        says = {True: ", fits", False: ", does not fit", None: ""}[self.fits]
        return f"<Estimate: {self.peak_gib:.2f}{card} GiB in {self.peak_phase}{says}>"

    def _repr_html_(self) -> str:
        from oomdoc.report.terminal import estimate_html

        return estimate_html(self.document(), "en")
