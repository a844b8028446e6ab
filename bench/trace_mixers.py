"""What a layer's token mixer holds between its projections, as linear forms of its dimensions.

usage: python bench/trace_mixers.py > kb/oomkb/memory/families/mixer_forms.toml    [NAME ...] for some of them

State spaces, gated delta rules and short convolutions run in transformers' own PyTorch functions where their kernels'
packages are not installed. Each family's module is run under fake tensors for several sizes, its projections replaced
by what they make, and the bytes that the rest needs are fitted: while it runs without and with a graph, what the graph
keeps, and what backward holds beside that. A form that does not meet every size within 1 % is reported on standard error.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from oomdoc.tracing.building import build_config, materialise
from oomdoc.tracing.meter import Meter, scalars
from oomkb.memory.families.mixers import SIZES

PRECISIONS = {"fp32": (torch.float32, None), "16": (torch.bfloat16, None), "mixed": (torch.float32, torch.bfloat16),
              "mixed16": (torch.bfloat16, torch.bfloat16)}  # fmt: skip
FORMS = ("passing", "forward", "kept", "backward")
OUTPUTS = ("out_proj", "o_proj", "linear_out")


class _Made(torch.autograd.Function):
    """What a projection makes, without what it is made from."""

    @staticmethod
    def forward(ctx: Any, link: Any, shape: Any, dtype: Any) -> Any:
        """Of that shape."""
        return torch.empty(shape, dtype=dtype)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        """Nothing of it is kept."""
        return torch.empty(1), None, None


class _Taken(torch.autograd.Function):
    """The output projection: its input's gradient is all that comes back."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        """One number."""
        ctx.shape, ctx.dtype = x.shape, x.dtype
        return torch.empty(1)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        """As the output projection gives it."""
        return torch.empty(ctx.shape, dtype=ctx.dtype)


def _stub(module: Any, hidden: int, dtype: Any, link: Any) -> None:
    for name, child in list(module.named_children()):
        if not isinstance(child, torch.nn.Linear):
            continue
        if name in OUTPUTS:
            child.forward = lambda x: _Taken.apply(x.to(dtype))
        elif child.in_features == hidden:
            wide = child.out_features
            child.forward = lambda x, wide=wide: _Made.apply(link, (*x.shape[:-1], wide), dtype)
        else:
            continue
        child.weight = torch.nn.Parameter(torch.empty(1), requires_grad=False)
        child.bias = None


def measured(make: Callable[[], Any], hidden: int, precision: str, rows: tuple[int, int], trained: bool) -> list[int]:
    """Bytes of the four forms for one module and batch."""
    held, autocast = PRECISIONS[precision]
    with torch.device("meta"):
        module = make().to(held).train().requires_grad_(trained)
    with FakeTensorMode(allow_non_fake_inputs=True), scalars(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        materialise(module, "cpu")
        link = torch.empty(1, requires_grad=True)
        _stub(module, hidden, autocast or held, link)
        x = torch.empty((*rows, hidden), dtype=held)
        out = []
        with Meter() as meter, torch.autocast("cpu", dtype=autocast, enabled=autocast is not None):
            for tensor in (x, link, *module.parameters()):
                meter.add(tensor)
            base = meter.live
            with torch.no_grad():
                module(x)
            out.append(meter.peak - base)
            meter.reset()
            found = module(x)
            found = found[0] if isinstance(found, tuple) else found
            out += [meter.peak - base, meter.live - base]
            kept = meter.live
            meter.reset()
            found.sum().backward()
            out.append(meter.peak - kept)
    return out


def fitted(samples: list[tuple[dict[str, float], list[int]]], names: list[str]) -> tuple[list[dict[str, float]], float]:
    """Bytes per token by size, for each form, and how far the worst sample is off."""
    import numpy as np

    matrix = np.array([[sizes[name] for name in names] for sizes, _ in samples])
    forms, worst = [], 0.0
    for place in range(len(FORMS)):
        wanted = np.array([found[place] for _, found in samples], dtype=float)
        weights = 1 / np.maximum(wanted, 1.0)
        free = list(range(len(names)))
        while True:
            got = np.linalg.lstsq(matrix[:, free] * weights[:, None], wanted * weights, rcond=None)[0]
            low = [i for i, value in zip(free, got, strict=True) if value < 0.03]
            if not low:
                break
            free = [i for i in free if i not in low]
        form = {names[i]: round(float(v) * 16) / 16 for i, v in zip(free, got, strict=True)}
        worst = max(worst, *(abs(sum(form.get(n, 0) * s[n] for n in names) / w[place] - 1) for s, w in samples))
        forms.append({name: value for name, value in form.items() if value})
    return forms, worst


def families() -> dict[str, tuple[str, str, list[dict[str, Any]]]]:
    """By name: module and class of transformers, and configurations that differ in every size."""
    delta = [
        {"linear_num_key_heads": k, "linear_num_value_heads": v, "linear_key_head_dim": a, "linear_value_head_dim": b}
        for k, v, a, b in ((4, 8, 128, 128), (8, 8, 96, 192), (4, 16, 64, 128), (8, 16, 128, 64), (2, 8, 256, 128), (6, 6, 128, 96))
    ]  # fmt: skip
    heads = ((16, 64, 1, 128), (32, 64, 2, 64), (24, 32, 4, 128), (16, 128, 8, 32), (8, 64, 8, 256), (48, 32, 1, 16))
    return {
        "qwen3_5_text": ("qwen3_5", "Qwen3_5GatedDeltaNet", delta),
        "qwen3_next": ("qwen3_next", "Qwen3NextGatedDeltaNet", delta),
        "olmo_hybrid": ("olmo_hybrid", "OlmoHybridGatedDeltaNet", [d for d in delta if d["linear_num_key_heads"] == d["linear_num_value_heads"]] + [
            {"linear_num_key_heads": k, "linear_num_value_heads": k, "linear_key_head_dim": a, "linear_value_head_dim": b}
            for k, a, b in ((4, 64, 256), (16, 128, 64), (12, 256, 128), (5, 96, 32))]),
        "granitemoehybrid": ("granitemoehybrid", "GraniteMoeHybridMambaLayer", [
            {"hidden_size": n * p // 2, "mamba_expand": 2, "mamba_n_heads": n, "mamba_d_head": p, "mamba_n_groups": g, "mamba_d_state": s} for n, p, g, s in heads]),
        "bamba": ("bamba", "BambaMixer", [
            {"hidden_size": n * p // 2, "mamba_expand": 2, "mamba_n_heads": n, "mamba_d_head": p, "mamba_n_groups": g, "mamba_d_state": s} for n, p, g, s in heads]),
        "falcon_h1": ("falcon_h1", "FalconH1Mixer", [
            {"hidden_size": n * p // 2, "mamba_d_ssm": n * p, "mamba_n_heads": n, "mamba_d_head": p, "mamba_n_groups": g, "mamba_d_state": s} for n, p, g, s in heads]),
        "nemotron_h": ("nemotron_h", "NemotronHMamba2Mixer", [
            {"hidden_size": n * p // 2, "mamba_num_heads": n, "mamba_head_dim": p, "n_groups": g, "ssm_state_size": s} for n, p, g, s in heads]),
        "mamba2": ("mamba2", "Mamba2Mixer", [
            {"hidden_size": n * p // 2, "expand": 2, "num_heads": n, "head_dim": p, "n_groups": g, "state_size": s} for n, p, g, s in heads]),
        "zamba2": ("zamba2", "Zamba2MambaMixer", [
            {"hidden_size": n * p // 2, "mamba_expand": 2, "n_mamba_heads": n, "mamba_headdim": p, "mamba_ngroups": g, "mamba_d_state": s} for n, p, g, s in heads]),
        "mamba": ("mamba", "MambaMixer", [{"hidden_size": h, "state_size": s, "expand": e} for h, s, e in ((512, 16, 2), (768, 8, 2), (256, 32, 2), (512, 16, 4))]),
        "falcon_mamba": ("falcon_mamba", "FalconMambaMixer", [{"hidden_size": h, "state_size": s, "expand": e} for h, s, e in ((512, 16, 2), (768, 8, 2), (256, 32, 2), (512, 16, 4))]),
        "jamba": ("jamba", "JambaMambaMixer", [{"hidden_size": h, "mamba_d_state": s, "mamba_expand": e} for h, s, e in ((512, 16, 2), (768, 8, 2), (256, 32, 2), (512, 16, 4))]),
        "lfm2": ("lfm2", "Lfm2ShortConv", [{"hidden_size": h, "layer_types": ["conv"] * 4, "num_hidden_layers": 4} for h in (256, 512, 1024)]),
        "recurrent_gemma": ("recurrent_gemma", "RecurrentGemmaRecurrentBlock", [{"hidden_size": h, "lru_width": w, "num_attention_heads": n} for h, w, n in ((512, 512, 4), (256, 512, 8), (512, 768, 4))]),
    }  # fmt: skip


def forms_of(name: str) -> dict[str, dict[str, str]]:
    """The forms of one family's mixer by precision, trained or frozen."""
    folder, kind, configs = families()[name]
    make: Any = getattr(import_module(f"transformers.models.{folder}.modeling_{folder}"), kind)
    of: dict[str, dict[str, str]] = {}
    short = "states" in SIZES[name]({}) or "wide" in SIZES[name]({})  # a loop over tokens
    lengths = ((1, 48), (2, 64)) if short else ((1, 512), (2, 256))
    for precision in PRECISIONS:
        for trained in (True, False):
            samples, sizes_of = [], SIZES[name]
            for rows in lengths:
                for given in configs:
                    config = build_config({"model_type": name, **given})
                    sizes = {k: v * rows[0] * rows[1] for k, v in sizes_of({**config.to_dict(), "model_type": name}).items()}
                    hidden = config.hidden_size
                    found = measured(lambda c=config: make(c, layer_idx=0) if "layer_idx" in make.__init__.__code__.co_varnames else make(c), hidden, precision, rows, trained)
                    samples.append((sizes, found))
            forms, worst = fitted(samples, list(sizes_of({**config.to_dict(), "model_type": name})))
            label = precision if trained else precision + " frozen"
            if worst > 0.01:
                print(f"{name} {label}: worst {worst:.1%}", file=sys.stderr)
            of[label] = {form: " ".join(f"{k}:{v:g}" for k, v in its.items()) for form, its in zip(FORMS, forms, strict=True)}
    return of


def main() -> int:
    for name in sys.argv[1:] or families():
        print(f"\n[{name}]")
        for label, forms in forms_of(name).items():
            print(f'"{label}" = {{' + ", ".join(f'{form} = "{text}"' for form, text in forms.items()) + "}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
