"""Inside a training job: ``import oomdoc.hook; oomdoc.hook.watch()``, or ``with watch(): train()``.

Standard library only until a failure, and nothing on the device even then. It never swallows or replaces the
original exception: whatever goes wrong in here is dropped, and the job dies of what it died of.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Final

from oomdoc.hook_report import CAPTURE_SCHEMA, report_text

_NAMES: Final = frozenset({"OutOfMemoryError", "OutOfMemory", "CUDAOutOfMemoryError", "XlaRuntimeError"})
_WORDS: Final = ("out of memory", "RESOURCE_EXHAUSTED", "CUBLAS_STATUS_ALLOC_FAILED", "can't allocate memory")
_MAX_FRAMES: Final = 60
_MAX_TENSORS: Final = 400
_MAX_DEPTH: Final = 40
_CONFIGS: Final = ("training_args", "args", "config", "cfg", "script_args", "model_config", "hparams")
_STATS: Final = (
    "allocated_bytes.all.current",
    "allocated_bytes.all.peak",
    "reserved_bytes.all.current",
    "reserved_bytes.all.peak",
    "inactive_split_bytes.all.current",
    "num_alloc_retries",
    "num_ooms",
)


class Watch(contextlib.AbstractContextManager["Watch"]):
    """Watches for a memory failure: as a context, or for the rest of the process through ``sys.excepthook``."""

    def __init__(self, folder: str | os.PathLike[str] | None = None, *, diagnose: bool = True) -> None:
        self._folder = Path(folder or os.environ.get("OOMDOC_REPORTS") or "oomdoc-reports")
        self._diagnose = diagnose
        self._fired = False

    def install(self) -> Watch:
        """Handle exceptions that nobody catches; the hook that was there runs first."""
        previous = sys.excepthook

        def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
            previous(kind, error, trace)
            self.fire(error, trace)

        sys.excepthook = hook
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self.fire(error, trace)

    def fire(self, error: BaseException, trace: TracebackType | None = None) -> Path | None:
        """Write the report of a memory failure and print the diagnosis once per job; ``None`` for other errors."""
        try:
            if self._fired or not is_memory_failure(error):
                return None
            self._fired = True
            report = capture(error, trace or error.__traceback__)
            path = self._write(report)
            if self._diagnose and self._first_of_the_job():
                _print(report, path)
        except Exception:  # the job's own error must stay the one that is seen
            return None
        return path

    def _write(self, report: Mapping[str, Any]) -> Path:
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"oom-rank{report['rank']}-{os.getpid()}.json"
        partial = path.with_suffix(".part")
        partial.write_text(json.dumps(report, ensure_ascii=False, default=str, indent=1), encoding="utf-8")
        partial.replace(path)
        return path

    def _first_of_the_job(self) -> bool:
        """Ranks of one job share a file; the one that makes it speaks."""
        job = (
            os.environ.get("TORCHELASTIC_RUN_ID")
            or os.environ.get("SLURM_JOB_ID")
            or os.environ.get("MASTER_PORT")
            or os.getpid()
        )
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        name = "".join(c if c.isalnum() else "-" for c in f"{job}-{attempt}")
        try:
            os.close(os.open(self._folder / f".spoken-{name}", os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        except FileExistsError:
            return False
        return True


def watch(folder: str | os.PathLike[str] | None = None, *, diagnose: bool = True) -> Watch:
    """Watch this process for a memory failure from now on; also a context manager.

    :param folder: where reports go, one JSON file per rank (default: ``OOMDOC_REPORTS`` or ``oomdoc-reports``).
    :param diagnose: whether the first failing rank prints the diagnosis.
    """
    return Watch(folder, diagnose=diagnose).install()


def is_memory_failure(error: BaseException) -> bool:
    """Whether an exception, or what caused it, is running out of memory."""
    seen: BaseException | None = error
    for _ in range(10):
        if seen is None:
            return False
        named = any(kind.__name__ in _NAMES for kind in type(seen).__mro__)
        text = str(seen)[:20_000]
        if isinstance(seen, MemoryError) or (named and "memory" in text.lower()) or any(w in text for w in _WORDS):
            return True
        seen = seen.__cause__ or seen.__context__
    return False


def capture(error: BaseException, trace: TracebackType | None) -> dict[str, Any]:
    """What can be known without touching the device: message, frames, shapes, allocator, modules, settings."""
    frames = list(_frames(trace))
    return {
        "schema": CAPTURE_SCHEMA,
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "rank": int(os.environ.get("RANK", "0") or 0),
        "world": int(os.environ.get("WORLD_SIZE", "1") or 1),
        "command": sys.argv[:200],
        "error": {"type": type(error).__name__, "message": str(error)[:20_000]},
        "traceback": "".join(traceback.format_exception(type(error), error, trace))[-60_000:],
        "tensors": _tensors(frames),
        "modules": _modules(frames),
        "optimizer": _optimizer(frames),
        "settings": _settings(frames),
        "allocator": _allocator(),
        "versions": _versions(),
        "environment": {k: v for k, v in os.environ.items() if k.startswith(("PYTORCH_", "NPROC", "CUDA_VISIBLE"))},
    }


def _print(report: Mapping[str, Any], path: Path) -> None:
    from oomdoc.library import diagnose

    options: dict[str, Any] = {}
    if report["world"] > 1:
        options["world"] = report["world"]
    text = diagnose(report_text(report), options=options).text(width=100)
    sys.stderr.write(f"\noomdoc (report: {path})\n\n{text}\n")
    sys.stderr.flush()


def _frames(trace: TracebackType | None) -> Iterator[FrameType]:
    count = 0
    while trace is not None and count < _MAX_FRAMES:
        yield trace.tb_frame
        trace, count = trace.tb_next, count + 1


def _tensors(frames: list[FrameType]) -> list[dict[str, Any]]:
    """Names and shapes of the tensors in the innermost frames; attributes only, no operation on any."""
    found: list[dict[str, Any]] = []
    for frame in reversed(frames):
        for name, value in list(frame.f_locals.items())[:200]:
            shape = getattr(value, "shape", None)
            if shape is None or not hasattr(value, "dtype") or not hasattr(value, "element_size"):
                continue
            with contextlib.suppress(Exception):
                found.append(
                    {
                        "function": frame.f_code.co_name,
                        "name": name,
                        "shape": [int(n) for n in shape],
                        "dtype": str(value.dtype),
                        "device": str(value.device),
                        "bytes": int(value.numel()) * int(value.element_size()),
                    }
                )
            if len(found) >= _MAX_TENSORS:
                return found
    return found


def _modules(frames: list[FrameType]) -> list[str]:
    """Class names of the modules on the stack, outermost first."""
    names: list[str] = []
    for frame in frames:
        owner = frame.f_locals.get("self")
        if owner is not None and hasattr(owner, "named_parameters") and hasattr(owner, "forward"):
            name = type(owner).__name__
            if not names or names[-1] != name:
                names.append(name)
    return names[-_MAX_DEPTH:]


def _optimizer(frames: list[FrameType]) -> dict[str, Any] | None:
    for frame in reversed(frames):
        for value in list(frame.f_locals.values())[:200]:
            owner = getattr(value, "optimizer", value)
            groups = getattr(owner, "param_groups", None)
            if isinstance(groups, list) and groups:
                first = {
                    k: v for k, v in groups[0].items() if k != "params" and isinstance(v, int | float | bool | str)
                }
                parameters = sum(len(g.get("params", ())) for g in groups)
                return {"type": type(owner).__name__, "groups": len(groups), "tensors": parameters, "first": first}
    return None


def _settings(frames: list[FrameType]) -> dict[str, Any]:
    """Plain values of the configuration objects on the stack (TrainingArguments and the like)."""
    settings: dict[str, Any] = {}
    for frame in frames:
        owner = frame.f_locals.get("self")
        for name in _CONFIGS:
            for value in (frame.f_locals.get(name), getattr(owner, "__dict__", {}).get(name)):
                if value is not None:
                    settings.update({k: v for k, v in _plain(value).items() if k not in settings})
    return dict(list(settings.items())[:400])


def _plain(value: Any) -> dict[str, Any]:
    with contextlib.suppress(Exception):
        mapping = value if isinstance(value, Mapping) else value.to_dict() if hasattr(value, "to_dict") else vars(value)
        return {
            str(k): v
            for k, v in mapping.items()
            if isinstance(v, bool | int | float | str)
            and not str(k).startswith("_")
            and "token" not in str(k)
            and len(str(v)) < 500
        }
    return {}


def _allocator() -> dict[str, Any]:
    """The caching allocator's counters, where torch is loaded and has a device; reading them allocates nothing."""
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    found: dict[str, Any] = {}
    with contextlib.suppress(Exception):
        if cuda is None or not cuda.is_initialized():
            return {}
        stats = cuda.memory_stats()
        found = {name: int(stats[name]) for name in _STATS if name in stats}
        found["device"] = cuda.get_device_name()
        found["total_bytes"] = int(cuda.get_device_properties(cuda.current_device()).total_memory)
    return found


def _versions() -> dict[str, str]:
    names = (
        "torch",
        "transformers",
        "deepspeed",
        "accelerate",
        "peft",
        "trl",
        "bitsandbytes",
        "vllm",
        "flash_attn",
        "liger_kernel",
    )
    found = {}
    for name in names:
        version = getattr(sys.modules.get(name), "__version__", None)
        if version:
            found[name.replace("_", "-")] = str(version)
    return found
