"""Uploaded files, written to disk as they arrive: each byte once, so that a folder needs the size of the upload."""

from __future__ import annotations

from pathlib import Path
from typing import IO, Final

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.exceptions import HTTPException
from starlette.requests import Request

from oomkb.errors import InputError

_MAX_FILES: Final = 16
_MAX_FIELDS: Final = 32
_FIELD_BYTES: Final = 1 << 20
_HEADER_BYTES: Final = 16 << 10


async def received(request: Request, folder: Path) -> tuple[list[tuple[str, str]], dict[str, str]]:
    """The files as (name as given, path in ``folder``), and the other fields.

    :raises InputError: where there is no file.
    :raises HTTPException: 400 for a broken form, 413 for too many or too large parts.
    """
    _, options = parse_options_header(request.headers.get("content-type", ""))
    boundary = options.get(b"boundary")
    if not boundary:
        raise HTTPException(400, "the form has no boundary")
    form = _Form(folder)
    try:
        parser = MultipartParser(boundary, form.callbacks())  # type: ignore[arg-type]
        async for chunk in request.stream():
            parser.write(chunk)
        parser.finalize()
    except FormParserError as error:
        raise HTTPException(400, "the form is broken") from error
    finally:
        form.close()
    if not form.complete:
        raise HTTPException(400, "the form ends too early")
    if not form.files:
        raise InputError("no file was sent", where="body", hint="send it as the form field `file`")
    return form.files, form.fields


class _Form:
    """What the parser calls back with."""

    def __init__(self, folder: Path) -> None:
        self.files: list[tuple[str, str]] = []
        self.fields: dict[str, str] = {}
        self.complete = False
        self._folder = folder
        self._header = (bytearray(), bytearray())
        self._disposition = b""
        self._name = ""
        self._value = bytearray()
        self._file: IO[bytes] | None = None

    def callbacks(self) -> dict[str, object]:
        return {
            "on_part_begin": self._begin,
            "on_header_field": lambda data, start, end: self._head(0, data[start:end]),
            "on_header_value": lambda data, start, end: self._head(1, data[start:end]),
            "on_header_end": self._headed,
            "on_headers_finished": self._opened,
            "on_part_data": lambda data, start, end: self._more(data[start:end]),
            "on_part_end": self._ended,
            "on_end": self._finished,
        }

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _begin(self) -> None:
        self._disposition, self._name, self._value = b"", "", bytearray()

    def _head(self, which: int, data: bytes) -> None:
        self._header[which].extend(data)
        if len(self._header[which]) > _HEADER_BYTES:
            raise HTTPException(413, "a part's header is too long")

    def _headed(self) -> None:
        if bytes(self._header[0]).lower() == b"content-disposition":
            self._disposition = bytes(self._header[1])
        self._header = (bytearray(), bytearray())

    def _opened(self) -> None:
        _, options = parse_options_header(self._disposition)
        self._name = options.get(b"name", b"").decode("utf-8", "replace")[:200]
        if b"filename" not in options:
            if len(self.fields) >= _MAX_FIELDS:
                raise HTTPException(413, f"more than {_MAX_FIELDS} fields")
            return
        if len(self.files) >= _MAX_FILES:
            raise HTTPException(413, f"more than {_MAX_FILES} files")
        given = Path(options[b"filename"].decode("utf-8", "replace").replace("\0", "") or "upload")
        ending = "".join(c for c in "".join(given.suffixes[-2:]) if c.isalnum() or c == ".")[:16]
        path = self._folder / f"{len(self.files)}{ending}"
        self._file = path.open("wb")
        self.files.append((given.name[:200] or "upload", str(path)))

    def _more(self, data: bytes) -> None:
        if self._file is not None:
            self._file.write(data)
            return
        self._value.extend(data)
        if len(self._value) > _FIELD_BYTES:
            raise HTTPException(413, "a field is too long")

    def _ended(self) -> None:
        if self._file is None:
            self.fields[self._name] = self._value.decode("utf-8", "replace")
        self.close()

    def _finished(self) -> None:
        self.complete = True
