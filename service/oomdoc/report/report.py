"""What the library hands back: a diagnosis or an estimate that can be printed, served or shown in a notebook."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from oomdoc.report.estimates import estimate_document

if TYPE_CHECKING:
    from oomdoc.diagnosis.result import Diagnosis
    from oomkb.memory.estimate import Estimate
    from oomkb.pricing import Priced

__all__ = ["EstimateReport", "Report"]


@dataclass(frozen=True)
class Report:
    """A diagnosis in a language."""

    diagnosis: Diagnosis
    language: str = "en"

    def document(self, *, identifier: str | None = None) -> dict[str, Any]:
        """The contract's JSON document."""
        from oomdoc.report.document import diagnosis_document

        return diagnosis_document(self.diagnosis, self.language, identifier=identifier)

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

    def _repr_html_(self) -> str:
        from oomdoc.report.html import diagnosis_html

        return diagnosis_html(self.document(), self.language)


@dataclass(frozen=True)
class EstimateReport:
    """The price of a job."""

    priced: Priced

    @property
    def estimate(self) -> Estimate:
        """The estimate in bytes."""
        return self.priced.estimate

    @property
    def peak_gib(self) -> dict[str, float]:
        """The peak by meter: ``allocated``, ``reserved``, ``process``."""
        peaks: dict[str, float] = self.document()["peak_gib"]
        return peaks

    def document(self, *, identifier: str | None = None, language: str = "en") -> dict[str, Any]:
        """The contract's JSON document."""
        return estimate_document(self.estimate, identifier=identifier, language=language)

    def text(self, *, language: str = "en", width: int = 100, colour: bool = False) -> str:
        """For a terminal: a bar per phase."""
        from oomdoc.report.terminal import estimate_text

        return estimate_text(self.document(language=language), language, width=width, colour=colour)

    def __str__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        from oomdoc.report.html import estimate_html

        return estimate_html(self.document(), "en")
