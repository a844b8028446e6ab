"""The MCP door: the same calls as tools for agents and editors, over stdio or HTTP (official SDK).

Answers are the contract's documents; an error a person can act on is a tool error with place and next step.
"""

from __future__ import annotations

from typing import Any, Literal

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

from oomdoc import __version__
from oomkb.errors import OomdocError

__all__ = ["create_server"]

_INSTRUCTIONS = (
    "Diagnoses out-of-memory failures of LLM training and serving. Give `diagnose` the raw log together with the "
    "config or launch command. Every figure is computed or read from the input: repeat them unchanged."
)


def create_server() -> MCPServer[Any]:
    """The server with its tools."""
    server: MCPServer[Any] = MCPServer("oomdoc", version=__version__, instructions=_INSTRUCTIONS)
    for tool in (diagnose, estimate, plan, search_cases, scan):
        server.tool()(tool)
    return server


def diagnose(
    text: str,
    configs: dict[str, str] | None = None,
    job: dict[str, Any] | None = None,
    lang: Literal["auto", "en", "zh"] = "auto",
) -> dict[str, Any]:
    """Say why a job ran out of memory and what would fit: causes, evidence, estimate, plans with patches.

    text: log, config, command or question, in any mix. configs: further files by name. job: job fields stated outright.
    """
    from oomdoc.library import diagnose as run

    try:
        return run(text, configs=configs, options=job, language=lang).document()
    except OomdocError as error:
        raise ToolError(str(error)) from error


def estimate(job: dict[str, Any]) -> dict[str, Any]:
    """Say what each GPU holds, phase by phase and term by term, for a job document (model, seq_len, gpu ...)."""
    from oomdoc.library import estimate as run

    try:
        return run(job).document()
    except OomdocError as error:
        raise ToolError(str(error)) from error


def plan(
    job: dict[str, Any] | None = None, text: str = "", filename: str = "", lang: Literal["en", "zh"] = "en"
) -> dict[str, Any]:
    """Say before a run whether it fits, the largest batch that does, and what each knob buys.

    Give a job document, or the text of a config or launch script.
    """
    from oomdoc.planner import plan_document, plan_job

    try:
        return plan_document(plan_job(text, filename, job or {}), lang)
    except OomdocError as error:
        raise ToolError(str(error)) from error


def search_cases(text: str, top: int = 5, lang: Literal["en", "zh"] = "en") -> dict[str, Any]:
    """Find known out-of-memory cases that look like a text, each with its public thread."""
    from oomdoc.diagnosis.cases import find_cases
    from oomdoc.report.document import match_document

    return {"matches": [match_document(match, lang) for match in find_cases(text, top=max(1, min(top, 50)))]}


def scan(requirements: str, lang: Literal["en", "zh"] = "en") -> dict[str, Any]:
    """List known memory regressions among installed versions (the text of requirements.txt or pip freeze)."""
    from oomdoc.diagnosis.regressions import scan_seen, scan_versions
    from oomdoc.intake.requirements import parse_requirements

    versions = parse_requirements(requirements)
    return {
        "advisories": [advisory.document(lang) for advisory in scan_versions(versions)],
        "seen": [advisory.document(lang) for advisory in scan_seen(versions)],
    }
