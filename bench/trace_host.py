"""Host memory of DeepSpeed's own ZeRO engines with offload, on the CPU with real tensors: what lives where, and when.

usage: python bench/trace_host.py JOBS.jsonl [-v]    one {"id", "job"} a line in, one row a line out

``pip install deepspeed`` (0.19.8; a compiler builds ``DeepSpeedCPUAdam``). A process runs one engine. The
accelerator is the processor under another name, ``cpu:0``: a storage made for that device counts as the card's, every
other one as the host's. Ranks beyond the first are a group that talks to nobody. Pages are not locked without a card:
pinned blocks are rounded and kept as PyTorch's allocator of host memory does
(``aten/src/ATen/core/CachingHostAllocator.h``, torch 2.0 to 2.13).

``job``: ``hidden``, ``layers``, ``vocab``, ``world``, ``stage``, ``offload`` (``optimizer``, ``param``), ``accum``,
``pin_memory``, ``dtype``, ``accum_dtype``, ``sub_group_size``, ``card_free`` (bytes), ``init`` (built inside
``zero.Init``). Sizes in the row are bytes per parameter of the rank's part; ``rss`` is what the process holds in all,
tensors of both devices together, and what was imported on the way.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import traceback
import weakref
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.overrides import TorchFunctionMode
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

CARD = torch.device("cpu:0")
_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


class Places:
    """Every live storage with its place, ``host``, ``card`` or ``pinned``, and the line that made it."""

    def __init__(self) -> None:
        self.known: dict[int, tuple[weakref.ref[Any], str, int, str]] = {}
        self.live: Counter[str] = Counter()
        self.free: Counter[int] = Counter()
        self.cached = 0
        self.peak = 0
        self.at_peak: list[tuple[int, str, str]] = []

    def place(self, tensor: Any) -> str:
        """Where a tensor lies; what was made before the count began lies on the host."""
        found = self.known.get(id(tensor.untyped_storage()))
        return found[1] if found else "host"

    def add(self, tensor: Any, place: str) -> None:
        """Count a storage, once."""
        storage = tensor.untyped_storage()
        key = id(storage)
        if key in self.known:
            return
        size = storage.nbytes()
        if place == "pinned":
            size = 1 << (size - 1).bit_length() if size else 0
            if self.free[size]:
                self.free[size] -= 1
                self.cached -= size
        self.known[key] = weakref.ref(storage, partial(self._gone, key)), place, size, _line()
        self.live[place] += size
        if place != "card" and self.host > self.peak:
            self.peak = self.host
            self.at_peak = self.listed()

    def _gone(self, key: int, _: object) -> None:
        found = self.known.pop(key, None)
        if found is not None:
            _, place, size, _ = found
            self.live[place] -= size
            if place == "pinned":
                self.free[size] += 1
                self.cached += size

    @property
    def host(self) -> int:
        """Bytes of the host: tensors, pinned blocks in use and those that the allocator keeps."""
        return self.live["host"] + self.live["pinned"] + self.cached

    def listed(self) -> list[tuple[int, str, str]]:
        """(bytes, place, line) of what is on the host."""
        out: Counter[tuple[str, str]] = Counter()
        for _, place, size, line in self.known.values():
            if place != "card":
                out[place, line] += size
        return sorted(((size, *key) for key, size in out.items()), reverse=True)


def _line() -> str:
    for frame in reversed(traceback.extract_stack(limit=40)):
        if "/deepspeed/" in frame.filename and "pin_memory" not in frame.name and "accelerator" not in frame.filename:
            return f"{frame.filename.split('/deepspeed/')[-1]}:{frame.lineno}"
    return "model"


def _wanted(args: Any, kwargs: Any) -> Any:
    for value in (kwargs.get("device"), *args[1:2]):
        if isinstance(value, torch.device) or (isinstance(value, str) and value.startswith("cpu")):
            return torch.device(value)
    return None


class Moves(TorchFunctionMode):
    """``device``, ``to`` and ``cpu`` as if the card were another device than the processor."""

    def __init__(self, places: Places) -> None:
        super().__init__()
        self.places = places

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name == "__get__" and func == torch.Tensor.device.__get__:  # type: ignore[attr-defined]
            real = func(*args)
            return CARD if real.type == "cpu" and self.places.place(args[0]) == "card" else real
        if name == "cpu" or (name == "to" and _wanted(args, kwargs) is not None):
            device = torch.device("cpu") if name == "cpu" else _wanted(args, kwargs)
            on_card, to_card = self.places.place(args[0]) == "card", device == CARD
            dtype = next((v for v in (*args[1:], *kwargs.values()) if isinstance(v, torch.dtype)), args[0].dtype)
            if on_card == to_card and dtype == args[0].dtype and not kwargs.get("copy"):
                return args[0]
            with torch._C._DisableTorchDispatch():  # its place is known here
                copied = args[0].to(dtype, copy=True)
            self.places.add(copied, "card" if to_card else "host")
            return copied
        return func(*args, **kwargs)


class Counted(TorchDispatchMode):
    """New storages lie where they were asked for, or where the tensors that they are computed from lie."""

    def __init__(self, places: Places) -> None:
        super().__init__()
        self.places = places

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        device = (kwargs or {}).get("device")
        place = "card" if any(self.places.place(t) == "card" for t in tensors) else "host"
        if device is not None:
            place = "card" if torch.device(device) == CARD else "host"
        for leaf in tree_leaves(out):
            if isinstance(leaf, torch.Tensor) and leaf.device.type == "cpu":
                self.places.add(leaf, place)
        return out


def _accelerator(places: Places, job: dict[str, Any]) -> Any:
    from deepspeed.accelerator.cpu_accelerator import CPU_Accelerator

    class Card(CPU_Accelerator):  # type: ignore[misc]
        """The processor as a card of its own."""

        def device_name(self, device_index: Any = None) -> str:
            return "cpu:0"

        def current_device_name(self) -> str:
            return "cpu:0"

        def device(self, device_index: Any = None) -> Any:
            return torch.device("cpu:0")

        def on_accelerator(self, tensor: Any) -> bool:
            return bool(tensor.device == CARD)

        def is_synchronized_device(self) -> bool:
            return True

        def available_memory(self, device_index: Any = None) -> int:
            return int(job.get("card_free", 1 << 40))

        def pin_memory(self, tensor: Any, make_copy: bool = True, match_shape: bool = True) -> Any:
            with torch._C._DisableTorchDispatch():
                copy = tensor.detach().clone()
            places.add(copy, "pinned")
            return copy

    card = Card()
    card._name = "cpu:0"
    return card


def _config(job: dict[str, Any]) -> dict[str, Any]:
    offload = {"device": "cpu", "pin_memory": bool(job.get("pin_memory"))}
    zero: dict[str, Any] = {"stage": job["stage"], "overlap_comm": False, "reduce_bucket_size": 1000000}
    zero |= {f"offload_{what}": offload for what in job.get("offload", ("optimizer",))}
    if job.get("sub_group_size"):
        zero["sub_group_size"] = job["sub_group_size"]
    config: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": job.get("accum", 1),
        "zero_optimization": zero,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}},
    }
    if job.get("dtype", "bf16") != "fp32":
        config[job.get("dtype", "bf16")] = {"enabled": True}
    if job.get("accum_dtype"):
        config["data_types"] = {"grad_accum_dtype": job["accum_dtype"]}
    return config


def _rss() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))


def trace(job: dict[str, Any], *, verbose: bool = False) -> dict[str, Any]:
    """Bytes per parameter of the rank's part: after the engine is made, after two steps, and the most."""
    os.environ |= {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": str(job["world"])}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29501"}
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=job["world"])
    places = Places()
    import deepspeed
    from deepspeed.accelerator import set_accelerator
    from transformers import AutoConfig, AutoModelForCausalLM

    set_accelerator(_accelerator(places, job))
    sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None  # type: ignore[attr-defined]
    shape = {"hidden_size": job["hidden"], "num_hidden_layers": job["layers"], "vocab_size": job["vocab"]}
    shape |= {"num_attention_heads": job["hidden"] // 64, "num_key_value_heads": job["hidden"] // 64}
    shape |= {"intermediate_size": 4 * job["hidden"], "tie_word_embeddings": False}
    config, make = _config(job), AutoModelForCausalLM.from_config
    made = AutoConfig.for_model("llama", **shape)
    before = _rss()
    with Moves(places), Counted(places):
        if job.get("init"):
            with deepspeed.zero.Init(config_dict_or_path=config):
                model = make(made, dtype=_DTYPES[job.get("dtype", "bf16")])
        else:
            model = make(made, dtype=_DTYPES[job.get("dtype", "bf16")])
        count = sum(getattr(p, "ds_numel", p.numel()) for p in model.parameters())
        loaded = places.host
        engine = deepspeed.initialize(model=model, config=config, dist_init_required=False)[0]
        for name in ("has_overflow", "_loss_scale_update_and_overflow_cleanup"):
            setattr(engine.optimizer, name, lambda *_, **__: False)
        row: dict[str, Any] = {"loaded": loaded, "made": places.host, "making": places.peak}
        places.peak = 0
        for _ in range(2):
            for _ in range(job.get("accum", 1)):
                ids = torch.randint(0, job["vocab"], (1, 16), device="cpu:0")
                loss = engine(input_ids=ids, labels=ids, use_cache=False).loss
                engine.backward(loss)
                del loss
                engine.step()
    gc.collect()
    row |= {"trained": places.host, "training": places.peak, "pinned": places.live["pinned"], "kept": places.cached}
    row |= {"card": places.live["card"], "rss": _rss() - before}
    part = count / job["world"]
    if verbose:
        for label, rows in (("trained", places.listed()), ("peak", places.at_peak)):
            for size, place, line in rows:
                if size > part / 50:
                    print(f"{label:8} {size / part:7.3f} {place:7} {line}", file=sys.stderr)
    return {"params": count, **{name: round(size / part, 3) for name, size in row.items()}}


def main() -> int:
    os.environ |= {"DS_ACCELERATOR": "cpu", "TRANSFORMERS_VERBOSITY": "error"}
    import deepspeed  # noqa: F401
    import transformers  # noqa: F401  (imported once, for all)

    for line in Path(sys.argv[1]).read_text().splitlines():
        row = json.loads(line)
        if (child := os.fork()) == 0:
            torch.manual_seed(0)
            print(json.dumps({**row, "measured": trace(row["job"], verbose="-v" in sys.argv)}), flush=True)
            os._exit(0)
        if os.waitpid(child, 0)[1]:
            print(f"{row['id']} failed", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
