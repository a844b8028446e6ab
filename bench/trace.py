"""Exact peaks of tensor bytes of a real training step, without a GPU and without weights.

usage: python bench/trace.py JOB.json            one job document (or {"id", "job"}), prints one JSON row
       python bench/trace.py --batch JOBS.jsonl  one {"id", "job"} a line in, one row a line out

A real ``transformers`` model (with ``peft`` adapters where the job has them) takes real steps under PyTorch's
FakeTensorMode: nothing is computed, every tensor has its true size, dtype and lifetime. Every live storage is counted,
rounded up to 512 bytes as the CUDA caching allocator does. Two steps are run; the peak is over the second, with the
optimizer's states in place. Sizes are GiB.

The kernels are the CPU's: they save what CUDA's save, but for dropout (a mask of the input's dtype, not of one byte)
and layer norms under autocast (in the input's dtype, not in fp32).
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import warnings
import weakref
from collections import Counter
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
warnings.filterwarnings("ignore")

import torch  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils._pytree import tree_leaves  # noqa: E402

GIB = 1 << 30
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16, None: torch.bfloat16}


class Meter(TorchDispatchMode):
    """Counts the bytes of all live storages that operations produce."""

    def __init__(self, *, events: bool = False) -> None:
        super().__init__()
        self.seen: dict[int, weakref.ref] = {}
        self.sizes: dict[int, int] = {}
        self.live = 0
        self.peak = 0
        self.events: list[tuple[str, int, int]] | None = [] if events else None
        self.owners: dict[int, tuple[str, int]] = {}
        self.top: Counter | None = None
        self.op = ""

    def add(self, tensor: torch.Tensor) -> None:
        """Count the storage of a tensor, once."""
        tensor = getattr(tensor, "_local_tensor", tensor)  # a DTensor owns nothing itself
        storage = tensor.untyped_storage()
        key = id(storage)
        if key in self.seen:
            return
        size = -(-storage.nbytes() // 512) * 512
        self.seen[key] = weakref.ref(storage, lambda _, k=key: self._free(k))
        self.sizes[key] = size
        self.live += size
        if self.events is not None:
            self.owners[key] = (f"{self.op} {tuple(tensor.shape)} {str(tensor.dtype)[6:]}", size)
            self.events.append((f"+{self.owners[key][0]}", size, self.live))
        if self.live > self.peak:
            self.peak = self.live
            if self.events is not None:
                self.top = None
                self.at = len(self.events)

    def _free(self, key: int) -> None:
        if self.seen.pop(key, None) is None:
            return
        size = self.sizes.pop(key)
        self.live -= size
        if self.events is not None:
            self.events.append((f"-{self.owners.pop(key)[0]}", -size, self.live))

    def resized(self, storage: torch.UntypedStorage) -> None:
        """FSDP empties and refills the storages of gathered parameters in place."""
        key = id(storage)
        if key not in self.seen:
            return
        size = -(-storage.nbytes() // 512) * 512
        change, self.sizes[key] = size - self.sizes[key], size
        self.live += change
        self.peak = max(self.peak, self.live)
        if self.events is not None and change:
            self.events.append((f"{'+' if change > 0 else '-'}resize {self.owners[key][0]}", change, self.live))

    def __enter__(self) -> Any:
        plain, meter = torch.UntypedStorage.resize_, self

        def resize(storage: Any, size: Any) -> Any:
            out = plain(storage, size)
            meter.resized(storage)
            return out

        self.plain_resize = plain
        torch.UntypedStorage.resize_ = resize
        return super().__enter__()

    def __exit__(self, *details: Any) -> Any:
        torch.UntypedStorage.resize_ = self.plain_resize
        return super().__exit__(*details)

    def reset(self) -> None:
        """Start a new peak from what is alive now."""
        self.peak = self.live

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        self.op = func.name()
        for leaf in tree_leaves(out):
            if isinstance(leaf, torch.Tensor):
                self.add(leaf)
        return out


def build_config(model: dict[str, Any]) -> Any:
    from transformers import AutoConfig

    fields = {k: v for k, v in model.items() if k not in ("model_type", "name")}
    return AutoConfig.for_model(model["model_type"], **fields)


def build_model(job: dict[str, Any]) -> Any:
    from transformers import AutoModelForCausalLM

    config = build_config(job["model"])
    attention = {"eager": "eager", "sdpa": "sdpa"}.get(job.get("attention") or "sdpa", "sdpa")
    # Weights are made in the wanted dtype directly, as from_pretrained leaves them.
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(
            config, attn_implementation=attention, dtype=DTYPES[job.get("param_dtype")]
        )
    model.config.use_cache = False
    return model


def adapt(model: Any, job: dict[str, Any]) -> Any:
    from peft import LoraConfig, get_peft_model

    lora = job["lora"]
    targets = lora.get("targets") or "all-linear"
    config = LoraConfig(
        r=lora.get("r") or 8,
        lora_alpha=lora.get("alpha") or 16,
        lora_dropout=lora.get("dropout") or 0.0,
        target_modules=targets if isinstance(targets, str) else list(targets),
        use_dora=bool(lora.get("dora")),
        task_type="CAUSAL_LM",
    )
    with torch.device("meta"):
        wrapped = get_peft_model(model, config, autocast_adapter_dtype=lora.get("dtype", "fp32") == "fp32")
    for name, parameter in wrapped.named_parameters():
        if "lora_" in name:  # made on the meta device, they missed PEFT's cast to the base's dtype
            parameter.data = parameter.data.to(DTYPES[lora.get("dtype", "fp32")])
    return wrapped


def make_optimizer(params: Any, job: dict[str, Any]) -> Any:
    impl = job.get("optimizer_impl") or "foreach"
    flags = (
        {"foreach": impl == "foreach", "fused": impl == "fused"}
        if impl != "single"
        else {"foreach": False, "fused": False}
    )
    name = job.get("optimizer") or "adamw"
    if name == "adamw":
        return torch.optim.AdamW(params, lr=1e-5, **flags)
    if name == "sgd":
        return torch.optim.SGD(params, lr=1e-5, **flags)
    if name == "sgd_momentum":
        return torch.optim.SGD(params, lr=1e-5, momentum=0.9, **flags)
    if name == "adagrad":
        return torch.optim.Adagrad(params, lr=1e-5, foreach=impl == "foreach")
    if name == "rmsprop":
        return torch.optim.RMSprop(params, lr=1e-5, foreach=impl == "foreach")
    if name == "adafactor":
        from transformers.optimization import Adafactor

        return Adafactor(params, lr=1e-5, relative_step=False, scale_parameter=False)
    raise SystemExit(f"bench/trace.py has no optimizer {name!r}")


def autocast(job: dict[str, Any]) -> Any:
    kind = job.get("autocast") or "none"
    return nullcontext() if kind == "none" else torch.autocast("cpu", dtype=DTYPES[kind])


def token_ids(rows: int, length: int, device: str) -> Any:
    return torch.zeros((rows, length), dtype=torch.long, device=device)


def sft_loss(model: Any, job: Any, device: Any) -> Any:
    ids = token_ids(job["micro_batch"], job["seq_len"], device)
    labels = ids.clone()
    with autocast(job):
        return model(input_ids=ids, labels=labels, use_cache=False).loss


def dpo_loss(model: Any, job: Any, device: Any, reference: Any = None) -> Any:
    rows, length = 2 * job["micro_batch"], job["seq_len"]
    ids = token_ids(rows, length, device)
    labels = ids.clone()

    def logps(network: Any) -> Any:
        logits = network(input_ids=ids, labels=labels, use_cache=False).logits.to(torch.float32)
        shifted, target = logits[:, :-1, :], labels[:, 1:].clone()
        mask = target != -100
        picked = torch.gather(shifted.log_softmax(-1), dim=2, index=target.unsqueeze(2)).squeeze(2)
        return (picked * mask).sum(-1), logits

    with autocast(job):
        policy, policy_logits = logps(model)
    with torch.no_grad(), autocast(job):
        if reference is not None:
            ref, _ = logps(reference)
        else:
            with model.disable_adapter():
                ref, _ = logps(model)
    del policy_logits
    half = job["micro_batch"]
    margin = (policy[:half] - policy[half:]) - (ref[:half] - ref[half:])
    return -torch.nn.functional.logsigmoid(0.1 * margin).mean()


def materialise(model: Any, device: str) -> Any:
    """Give every parameter and buffer a (fake) storage on ``device``; tied ones stay tied."""
    made: dict[int, Any] = {}
    for module in model.modules():
        for kind in (module._parameters, module._buffers):
            for name, old in kind.items():
                if old is None:
                    continue
                if id(old) not in made:
                    new = torch.empty(old.shape, dtype=old.dtype, device=device)
                    made[id(old)] = torch.nn.Parameter(new, old.requires_grad) if kind is module._parameters else new
                kind[name] = made[id(old)]
    return model


def prepare(job: dict[str, Any]) -> Any:
    model = build_model(job)
    if job.get("grad_ckpt"):
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    if job.get("method") == "lora" or job.get("lora"):
        if job.get("grad_ckpt"):
            model.enable_input_require_grads()
        model = adapt(model, job)
    model.train()
    return model


def one_step(model: Any, job: Any, device: Any, optimizer: Any, meter: Any, reference: Any) -> Any:
    row = {}
    meter.reset()
    loss = dpo_loss(model, job, device, reference) if job.get("objective") == "dpo" else sft_loss(model, job, device)
    row["after_forward"], row["peak_forward"] = meter.live, meter.peak
    meter.reset()
    loss.backward()
    del loss
    row["peak_backward"] = meter.peak
    meter.reset()
    optimizer.step()
    row["peak_step"] = meter.peak
    optimizer.zero_grad(set_to_none=True)
    gc.collect()
    row["after_step"] = meter.live
    return row


def trace(job: dict[str, Any], *, device: str = "cpu", events: bool = False) -> dict[str, Any]:
    """The measured part of a row, in GiB; with ``events``, the meter comes along for reading."""
    with ExitStack() as stack:
        model, reference = prepare(job), None
        if job.get("objective") == "dpo" and not job.get("lora"):
            reference = build_model(job).eval().requires_grad_(False)
        if job.get("sharding") == "fsdp2":
            import trace_fsdp

            mesh = trace_fsdp.start(job["world"], device)
        stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True))
        for network in filter(None, (model, reference)):
            materialise(network, device)
        if job.get("sharding") == "fsdp2":
            model = trace_fsdp.shard(model, job, mesh)
        meter = stack.enter_context(Meter(events=events))
        for network in filter(None, (model, reference)):
            for tensor in (*network.parameters(), *network.buffers()):
                meter.add(tensor)
        static = meter.live
        optimizer = make_optimizer([p for p in model.parameters() if p.requires_grad], job)
        row: dict[str, Any] = {}
        for _ in range(2):
            if meter.events is not None:
                meter.events.clear()
            row = one_step(model, job, device, optimizer, meter, reference)
        peak = max(row["peak_forward"], row["peak_backward"], row["peak_step"])
        sizes = {"allocated_gib": peak, "static_gib": static, **row}
        measured: dict[str, Any] = {k: round(v / GIB, 4) for k, v in sizes.items()}
        measured["params"] = sum(p.numel() for p in model.parameters())
        measured["trainable"] = sum(p.numel() for p in model.parameters() if p.requires_grad)
    if events:
        measured["events"] = meter.events
    return measured


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("--batch", action="store_true")
    parser.add_argument(
        "--events", action="store_true", help="also print every allocation and release of the second step"
    )
    options = parser.parse_args()
    text = Path(options.file).read_text()
    rows = [json.loads(line) for line in text.splitlines() if line.strip()] if options.batch else [json.loads(text)]
    for row in rows:
        job = row.get("job", row)
        try:
            measured = trace(job, events=options.events)
        except Exception as error:  # a family that cannot be traced is reported and skipped
            if not options.batch:
                raise
            print(json.dumps({"id": row.get("id"), "error": f"{type(error).__name__}: {error}"[:300]}), flush=True)
            continue
        for name, size, live in measured.pop("events", None) or ():
            print(f"{live / GIB:9.4f} {size / 2**20:+10.2f} MiB {name}", file=sys.stderr)
        print(json.dumps({"id": row.get("id"), "job": job, "measured": measured}), flush=True)
        gc.collect()
    return 0


if __name__ == "__main__":
    sys.exit(main())
