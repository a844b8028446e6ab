"""The web page and its own assets; nothing is loaded from anywhere else."""

from __future__ import annotations

import json
from importlib import resources
from typing import Final

from fastapi import APIRouter
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from oomdoc.report.words import LANGUAGES, catalogue

router = APIRouter(include_in_schema=False)
_TYPES: Final = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
# Swagger UI sets styles of its own and draws with data: addresses.
_REFERENCE_POLICY: Final = _POLICY.replace("style-src 'self'", "style-src 'self' 'unsafe-inline'")
_REFERENCE_ASSETS: Final = ("swagger-ui-bundle.js", "swagger-ui.css")
_SHOWN: Final = ("page.", "phase.", "plan.", "safety.", "screen.", "term.", "verdict.")
_FILES: Final = resources.files("oomdoc.api") / "page"


@router.get("/")
async def index() -> Response:
    """The page."""
    return _file("index.html")


@router.get("/static/words-{language}.json")
async def words(language: str) -> Response:
    """The page's words, from the one catalogue per language."""
    if language not in LANGUAGES:
        raise HTTPException(404, "no such language")
    shown = {key: text for key, text in catalogue(language).items() if key.startswith(_SHOWN) or key.endswith(".title")}
    return Response(json.dumps(shown, ensure_ascii=False), media_type="application/json")


@router.get("/static/{name}")
async def static(name: str) -> Response:
    """One of the page's own files."""
    return _file(name)


@router.get("/docs")
async def api_reference() -> Response:
    """The HTTP API in Swagger UI, from assets that come with a package: nothing is loaded from elsewhere."""
    headers = {"Content-Security-Policy": _REFERENCE_POLICY, "Cache-Control": "no-cache"}
    return Response((_FILES / "reference.html").read_bytes(), media_type="text/html; charset=utf-8", headers=headers)


@router.get("/docs/{name}")
async def api_reference_asset(name: str) -> Response:
    """One of Swagger UI's files."""
    if name not in _REFERENCE_ASSETS:
        raise HTTPException(404, "no such file")
    suffix = name[name.rfind(".") :]
    entry = resources.files("fastapi_offline") / "static" / name
    return Response(entry.read_bytes(), media_type=_TYPES[suffix], headers={"Cache-Control": "max-age=86400"})


def _file(name: str) -> Response:
    suffix = name[name.rfind(".") :]
    entry = _FILES / name
    if suffix not in _TYPES or "/" in name or "\\" in name or ".." in name or not entry.is_file():
        raise HTTPException(404, "no such file")
    headers = {"Content-Security-Policy": _POLICY, "Cache-Control": "no-cache"}
    return Response(entry.read_bytes(), media_type=f"{_TYPES[suffix]}; charset=utf-8", headers=headers)
