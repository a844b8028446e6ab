"""A stand-in for a language model's endpoint: a real local server whose answers, faults and tastes a test chooses."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

__all__ = ["StandIn", "completion", "stream_of"]


def completion(text: str, **more: Any) -> dict[str, Any]:
    """A completion in one piece, as servers send it."""
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"} | more
    return {"choices": [choice], "usage": {"prompt_tokens": 10, "completion_tokens": 5}}


def stream_of(*deltas: dict[str, Any], finish: str = "stop", done: bool = True) -> bytes:
    """The same as server-sent events."""
    chunks = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]} if done else {"choices": []})
    lines = [f"data: {json.dumps(chunk)}\n\n" for chunk in chunks] + (["data: [DONE]\n\n"] if done else [])
    return "".join(lines).encode()


class StandIn:
    """``say`` gives what each request is answered with: a document, bytes as they are, or a status and its text."""

    def __init__(self, say: Callable[[dict[str, Any]], Any]) -> None:
        self.say = say
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.drip_s = 0.0
        self.cut_at: int | None = None
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                endpoint.requests.append(body | {"path": self.path})
                endpoint.keys.append(self.headers.get("authorization"))
                said = endpoint.say(body)
                status, said = said if isinstance(said, tuple) else (200, said)
                raw = said if isinstance(said, bytes) else json.dumps(said).encode()
                self.send_response(status)
                self.send_header("content-length", str(len(raw)))
                self.end_headers()
                raw = raw if endpoint.cut_at is None else raw[: endpoint.cut_at]
                try:
                    for at in range(0, len(raw), 10 if endpoint.drip_s else len(raw) or 1):
                        self.wfile.write(raw[at : at + 10] if endpoint.drip_s else raw)
                        self.wfile.flush()
                        time.sleep(endpoint.drip_s)
                except OSError:
                    return

            def log_message(self, *_: Any) -> None:
                return

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        """Stop it."""
        self.server.shutdown()
        self.server.server_close()
