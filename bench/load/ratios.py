"""Answers per second of eight clients (closed loop), as ratios to ``/healthz`` in the same run.

And the times of diagnoses while another client adds twelve cases a second.

    python bench/load/ratios.py [--seconds 10]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import time
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any

from client import Connection, Seen
from reports import mixed, report
from server import ROOT, serving

CLIENTS = 8
Asked = tuple[str, bytes, str]


async def closed(
    port: int, ask: Callable[[int], Asked], seconds: float, pause_s: float = 0.0, clients: int = CLIENTS
) -> Seen:
    """Each client asks again when it is answered (and has paused)."""
    seen, numbers, end = Seen(), count(), time.perf_counter() + seconds

    async def one() -> None:
        connection = Connection(port)
        while time.perf_counter() < end:
            path, body, kind = ask(next(numbers))
            began = time.perf_counter()
            status = await connection.post(path, body, kind)
            seen.statuses[status] += 1
            if status in (200, 201, 405):
                seen.times_s.append(time.perf_counter() - began)
            await asyncio.sleep(pause_s)

    await asyncio.gather(*(one() for _ in range(clients)))
    return seen


def health(_number: int) -> Asked:
    """Refused as a POST (405), through all that stands before every route but rates."""
    return "/healthz", b"", "text/plain"


def diagnosis(fresh: float, number: int) -> Asked:
    return "/v1/diagnose", mixed(number, fresh=fresh, seed=9), "text/plain"


def document(path: str, make: Callable[[int], dict[str, Any]], number: int) -> Asked:
    return path, json.dumps(make(number)).encode(), "application/json"


def job(number: int) -> dict[str, Any]:
    return {"model": "Qwen/Qwen2.5-7B", "method": "lora", "micro_batch": 1, "seq_len": 1000 + number, "gpu": "RTX 4090"}


def figures(seen: Seen, seconds: float) -> dict[str, Any]:
    return {
        "statuses": {str(k): v for k, v in seen.statuses.items()},
        "per_s": round(len(seen.times_s) / seconds, 1),
        "p50_ms": round(1000 * seen.at(0.5), 1),
        "p99_ms": round(1000 * seen.at(0.99), 1),
        "max_ms": round(1000 * seen.at(1.0), 1),
    }


async def while_cases_come(port: int, seconds: float) -> Seen:
    """One client's new diagnoses, while another adds twelve cases a second."""
    record = next(iter(sorted((ROOT / "cases" / "leak").glob("*.yaml")))).read_text(encoding="utf-8")
    case = partial(document, "/v1/cases", lambda n: {"id": f"leak/load-{n:05d}", "yaml": record})
    new = partial(diagnosis, 1.0)
    both = closed(port, lambda n: new(10**6 + n), seconds, 0.1, 1), closed(port, case, seconds, 1 / 12, 1)
    seen, added = await asyncio.gather(*both)
    seen.statuses[201] = added.statuses[201]
    return seen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10)
    seconds = parser.parse_args().seconds
    chat = {"text": "LoRA of Qwen2.5-7B on one RTX 4090, seq 4096, batch 1"}
    asked: dict[str, Callable[[int], Asked]] = {
        "healthz": health,
        "repeats": partial(diagnosis, 0.0),
        "10 % new": partial(diagnosis, 0.1),
        "all new": lambda n: ("/v1/diagnose", report(10**7 + n).encode(), "text/plain"),
        "chat": partial(document, "/v1/chat", lambda n: {"text": f"{chat['text']} and {n} samples"}),
        "plan": partial(document, "/v1/plan", lambda n: {"job": job(n)}),
    }
    out: dict[str, Any] = {"cores": os.cpu_count(), "clients": CLIENTS, "load_before": os.getloadavg()[0]}
    with serving(workers=1, rate_per_minute="10000000") as server:
        asyncio.run(closed(server.port, partial(diagnosis, 0.0), seconds))
        for name, ask in asked.items():
            out[name] = figures(asyncio.run(closed(server.port, ask, seconds)), seconds)
            out[name]["ratio"] = round(out[name]["per_s"] / out["healthz"]["per_s"], 3)
            print(name, out[name], flush=True)
        out["while 12 cases a second come"] = figures(asyncio.run(while_cases_come(server.port, seconds)), seconds)
    out["load_after"] = os.getloadavg()[0]
    print(json.dumps(out, indent=1))


if __name__ == "__main__":
    main()
