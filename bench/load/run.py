"""Load on ``oomdoc serve``: diagnoses and estimates per second, shedding at four times the load, memory.

    python bench/load/run.py [--seconds 60] [--rate 60] [--fresh 0.05] [--requests 50000] [--out FILE]

Client and server share the machine's cores. Because it may be busy with other things, processor seconds per request
are written beside the times, and how much of two cores was left to the run. Estimates are asked for by wrk (Debian's
package): a client in Python would take more of the processor than the server.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import subprocess
import time
from functools import partial
from pathlib import Path
from typing import Any

from client import HOST, Seen, closed_loop, open_loop
from reports import mixed
from server import Server, serving

TEXT = "text/plain"


def _figures(seen: Seen, server: Server, cpu_s: float, wall_s: float) -> dict[str, Any]:
    used, count = server.cpu_s() - cpu_s, sum(seen.statuses.values())
    return {
        "statuses": {str(k): v for k, v in sorted(seen.statuses.items())},
        "answered_per_s": round(seen.statuses[200] / wall_s, 1),
        "p50_ms": round(1000 * seen.at(0.50), 1),
        "p95_ms": round(1000 * seen.at(0.95), 1),
        "p99_ms": round(1000 * seen.at(0.99), 1),
        "server_cpu_ms_per_request": round(1000 * used / max(count, 1), 2),
        "server_cores_used": round(used / wall_s, 2),
        "machine_load_1min": round(os.getloadavg()[0], 1),
    }


def _measured(server: Server, run: Any) -> dict[str, Any]:
    cpu_s, began = server.cpu_s(), time.perf_counter()
    seen = asyncio.run(run)
    return _figures(seen, server, cpu_s, time.perf_counter() - began)


def _warm(server: Server) -> None:
    """The known reports once per worker, the way a service that has run for a while has seen them."""
    body = partial(mixed, fresh=0.0)
    asyncio.run(closed_loop(server.port, "/v1/diagnose", TEXT, body, connections=4, seconds=60, most=400))


def diagnoses(server: Server, rate: float, seconds: float, fresh: float, seed: int) -> dict[str, Any]:
    body = partial(mixed, fresh=fresh, seed=seed)
    run = open_loop(server.port, "/v1/diagnose", TEXT, body, per_second=rate, seconds=seconds)
    return {"rate": rate, "seconds": seconds, "fresh": fresh, **_measured(server, run)}


def estimates(server: Server, seconds: float, fresh: float) -> dict[str, Any]:
    if shutil.which("wrk") is None:
        raise SystemExit("wrk is not installed: apt-get install wrk")
    script = Path(__file__).with_name("estimate.lua")
    command = ["wrk", "-t1", "-c16", f"-d{seconds:.0f}s", "-s", str(script), f"http://{HOST}:{server.port}", "--"]
    cpu_s = server.cpu_s()
    done = subprocess.run([*command, str(fresh)], check=True, capture_output=True, text=True)
    seen = json.loads(done.stdout.splitlines()[-1])
    used_s = server.cpu_s() - cpu_s
    return {
        "client": "wrk -t1 -c16",
        "fresh": fresh,
        **seen,
        "answered_per_s": round((seen["requests"] - seen["not_2xx"]) / seen["seconds"], 1),
        "server_cpu_ms_per_request": round(1000 * used_s / max(seen["requests"], 1), 2),
        "server_cores_used": round(used_s / seen["seconds"], 2),
        "machine_load_1min": round(os.getloadavg()[0], 1),
    }


def limited(seconds: float) -> dict[str, Any]:
    """Four times what one caller may ask, of a server that answers it all: 429 with the time to wait."""
    with serving(workers=1, rate_per_minute="1200") as server:
        _warm(server)
        time.sleep(15)
        body = partial(mixed, fresh=0.0)
        run = open_loop(server.port, "/v1/diagnose", TEXT, body, per_second=80, seconds=seconds)
        return {"allowed_per_s": 20, "asked_per_s": 80, "seconds": seconds, **_measured(server, run)}


def memory(server: Server, requests: int) -> dict[str, Any]:
    """After a tenth as warm-up, the memory must stay: the caches are full early in a long run."""
    body = partial(mixed, fresh=0.0, known=40)
    sizes = []
    for _ in range(11):
        most = requests // 10
        asyncio.run(closed_loop(server.port, "/v1/diagnose", TEXT, body, connections=8, seconds=600, most=most))
        sizes.append(server.rss_kib())
    return {
        "requests": requests,
        "mib_after_each_tenth": [round(size / 1024) for size in sizes],
        "growth": round(sizes[-1] / sizes[0] - 1, 4),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--rate", type=float, default=60)
    parser.add_argument("--fresh", type=float, default=0.05, help="share of reports never seen before")
    parser.add_argument("--sweep", default="0.1,0.2,0.3,0.0", help="further shares, a third of the time each")
    parser.add_argument("--requests", type=int, default=50_000, help="for the memory")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("bench/results/load.json"))
    asked = parser.parse_args()
    out: dict[str, Any] = {"command": "bench/load/run.py", "cores": os.cpu_count(), "workers": asked.workers}
    with serving(workers=asked.workers, rate_per_minute="10000000") as server:
        _warm(server)
        out["diagnoses"] = diagnoses(server, asked.rate, asked.seconds, asked.fresh, 1)
        shares = [float(part) for part in asked.sweep.split(",") if part]
        out["other_shares"] = [
            diagnoses(server, asked.rate, asked.seconds / 3, share, 2 + n) for n, share in enumerate(shares)
        ]
        out["estimates"] = [estimates(server, asked.seconds / 3, share) for share in (0.0, 0.3, 1.0)]
        out["four_times"] = diagnoses(server, 4 * asked.rate, asked.seconds / 3, 0.3, 20)
        time.sleep(3)
        out["afterwards"] = diagnoses(server, asked.rate / 2, 10, 0.0, 30)
        out["memory"] = memory(server, asked.requests)
    out["limited"] = limited(asked.seconds / 3)
    text = json.dumps(out, indent=1)
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    asked.out.write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
