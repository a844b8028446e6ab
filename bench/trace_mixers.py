"""What a layer's token mixer holds between its projections, as linear forms of its dimensions.

usage: python bench/trace_mixers.py > kb/oomkb/memory/families/mixer_forms.toml    [NAME ...] for some of them

State spaces, gated delta rules and short convolutions run in transformers' own PyTorch functions where their kernels'
packages are not installed. Each family's module is run under fake tensors for several sizes, its projections replaced
by what they make, and the bytes that the rest needs are fitted: while it runs without and with a graph, what the graph
keeps, and what backward holds at most. A form that does not meet every size within 1 % is reported on standard error.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from functools import partial
from importlib import import_module
from itertools import product
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from oomdoc.tracing.building import build_config, materialise
from oomdoc.tracing.meter import Meter, scalars
from oomkb.memory.families.mixers import SIZES

PRECISIONS = {"fp32": (torch.float32, None), "16": (torch.bfloat16, None), "mixed": (torch.float32, torch.bfloat16)}
FORMS = ("passing", "forward", "kept", "backward")
OUTPUTS = ("out_proj", "o_proj")
_TOLERANCE = 0.01


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


def measured(make: Callable[[], Any], hidden: int, precision: str, length: int, trained: bool) -> list[int]:
    """Bytes of the four forms for one module and one sequence."""
    held, autocast = PRECISIONS[precision]
    with torch.device("meta"):
        module = make().to(held).train().requires_grad_(trained)
    with FakeTensorMode(allow_non_fake_inputs=True), scalars(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        materialise(module, "cpu")
        link = torch.empty(1, requires_grad=True)
        _stub(module, hidden, autocast or held, link)
        x = torch.empty((1, length, hidden), dtype=held)
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
            meter.reset()
            found.sum().backward()
            out.append(meter.peak - base)
    return out


def fitted(samples: list[tuple[dict[str, float], list[int]]]) -> tuple[list[dict[str, float]], float]:
    """Bytes per token by size, for each form, and how far the worst sample is off."""
    import numpy as np

    names = sorted({name for sizes, _ in samples for name in sizes})
    samples = [({name: sizes.get(name, 0.0) for name in names}, found) for sizes, found in samples]
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


Configs = list[dict[str, Any]]
_DELTA = (  # key heads, value heads, their widths
    (4, 8, 128, 128), (4, 16, 64, 128), (8, 16, 128, 64), (2, 8, 256, 128), (6, 12, 96, 192),
    (8, 8, 96, 192), (6, 6, 128, 96), (16, 16, 64, 128), (4, 4, 256, 64),
)  # fmt: skip
_SPACES = ((16, 64, 1, 128), (32, 64, 2, 64), (24, 32, 4, 128), (16, 128, 8, 32), (8, 64, 8, 256), (48, 32, 1, 16))
"""Heads, their width, groups, state."""
_SELECTIVE = ((512, 16, 2), (768, 8, 2), (256, 32, 2), (512, 16, 4))
"""Hidden size, state, expansion."""
_CHUNK = 64


def _deltas(*, grouped: bool = True) -> Configs:
    names = ("linear_num_key_heads", "linear_num_value_heads", "linear_key_head_dim", "linear_value_head_dim")
    return [dict(zip(names, sizes, strict=True)) for sizes in _DELTA if grouped or sizes[0] == sizes[1]]


def _spaces(heads: str, width: str, groups: str, state: str, expand: str = "", **more: Any) -> Configs:
    names = (heads, width, groups, state)
    return [
        {
            **dict(zip(names, sizes, strict=True)),
            "hidden_size": sizes[0] * sizes[1] // 2,
            **({expand: 2} if expand else {}),
        }
        | {"mamba_chunk_size": _CHUNK, "chunk_size": _CHUNK, **dict.fromkeys(more, sizes[0] * sizes[1])}
        for sizes in _SPACES
    ]


def _selective(state: str, expand: str) -> Configs:
    return [{"hidden_size": h, state: s, expand: e} for h, s, e in _SELECTIVE]


def families() -> dict[str, tuple[str, Configs]]:
    """By name: the class of transformers, and configurations that differ in every size."""
    mamba = ("mamba_n_heads", "mamba_d_head", "mamba_n_groups", "mamba_d_state")
    return {
        "lfm2": ("Lfm2ShortConv", [{"hidden_size": h, "layer_types": ["conv"] * 4} for h in (256, 512, 1024)]),
        "granitemoehybrid": ("GraniteMoeHybridMambaLayer", _spaces(*mamba, "mamba_expand")),
        "qwen3_5_text": ("Qwen3_5GatedDeltaNet", _deltas()),
        "falcon_h1": ("FalconH1Mixer", _spaces(*mamba, mamba_d_ssm=True)),
        "nemotron_h": (
            "NemotronHMamba2Mixer",
            _spaces("mamba_num_heads", "mamba_head_dim", "n_groups", "ssm_state_size"),
        ),
        "qwen3_next": ("Qwen3NextGatedDeltaNet", _deltas()),
        "olmo_hybrid": ("OlmoHybridGatedDeltaNet", _deltas(grouped=False)),
        "falcon_mamba": ("FalconMambaMixer", _selective("state_size", "expand")),
        "mamba2": ("Mamba2Mixer", _spaces("num_heads", "head_dim", "n_groups", "state_size", "expand")),
        "jamba": ("JambaMambaMixer", _selective("mamba_d_state", "mamba_expand")),
        "mamba": ("MambaMixer", _selective("state_size", "expand")),
    }


def _module(name: str) -> Any:
    folder = name.removesuffix("_text")
    return getattr(import_module(f"transformers.models.{folder}.modeling_{folder}"), families()[name][0])


def _built(make: Any, config: Any) -> Any:
    module = make(config, layer_idx=0)
    if config.model_type == "falcon_h1":  # which its layer gives it
        module.register_buffer("mup_vector", torch.ones(1, 1, module.in_proj.out_features))
    return module


def forms_of(name: str) -> dict[str, dict[str, str]]:
    """The forms of one family's mixer by precision, trained or frozen."""
    make, sizes_of = _module(name), SIZES[name]
    lengths = (48,) if "states" in sizes_of({}, 1) else (256, 160)  # of the former every token is a step of a loop
    configs = [build_config({"model_type": name, **given}) for given in families()[name][1]]
    of: dict[str, dict[str, str]] = {}
    for precision, trained in product(PRECISIONS, (True, False)):
        samples = []
        for length, config in product(lengths, configs):
            sizes = sizes_of({**config.to_dict(), "model_type": name}, length)
            found = measured(partial(_built, make, config), config.hidden_size, precision, length, trained)
            samples.append(({size: value * length for size, value in sizes.items()}, found))
        forms, worst = fitted(samples)
        label = precision if trained else precision + " frozen"
        if worst > _TOLERANCE:
            print(f"{name} {label}: worst {worst:.1%}", file=sys.stderr)
        texts = (" ".join(f"{size}:{value:g}" for size, value in form.items()) for form in forms)
        of[label] = dict(zip(FORMS, texts, strict=True))
    return of


def main() -> int:
    for name in sys.argv[1:] or families():
        print(f"\n[{name}]")
        for label, forms in forms_of(name).items():
            print(f'"{label}" = {{' + ", ".join(f'{form} = "{text}"' for form, text in forms.items()) + "}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
