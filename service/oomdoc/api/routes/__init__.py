"""One file per group of routes."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter

from oomdoc.api.routes import cases, chat, diagnose, estimate, feedback, health, integrations, page

__all__ = ["ROUTERS"]

ROUTERS: Final[tuple[APIRouter, ...]] = (
    cases.router,
    chat.router,
    diagnose.router,
    estimate.router,
    feedback.router,
    health.router,
    integrations.router,
    page.router,
)
