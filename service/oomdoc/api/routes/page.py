"""The web page and its own assets; nothing is loaded from anywhere else."""

from __future__ import annotations

from importlib import resources
from typing import Final

from fastapi import APIRouter
from fastapi.responses import Response
from starlette.exceptions import HTTPException

__all__ = ["router"]

router = APIRouter(include_in_schema=False)
_TYPES: Final = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_FILES: Final = resources.files("oomdoc.api") / "page"


@router.get("/")
async def index() -> Response:
    """The page."""
    return _file("index.html")


@router.get("/static/{name}")
async def static(name: str) -> Response:
    """One of the page's own files."""
    return _file(name)


def _file(name: str) -> Response:
    suffix = name[name.rfind(".") :]
    entry = _FILES / name
    if suffix not in _TYPES or "/" in name or "\\" in name or ".." in name or not entry.is_file():
        raise HTTPException(404, "no such file")
    headers = {"Content-Security-Policy": _POLICY, "Cache-Control": "no-cache"}
    return Response(entry.read_bytes(), media_type=f"{_TYPES[suffix]}; charset=utf-8", headers=headers)
