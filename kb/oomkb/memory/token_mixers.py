"""Mixers of tokens that are not attention, on the tape: state spaces, gated delta rules, short convolutions.

Where their kernels' packages are not installed, transformers 5.23 runs them in PyTorch. What that holds between the
projections was measured family by family and is kept as forms (``families/mixer_forms.toml``, made by
``bench/trace_mixers.py``); the projections themselves are played like all others. With kernels, and in other programs
than transformers, a mixer is played as attention of the model's own widths.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from oomkb.errors import Note, note
from oomkb.memory.families.mixers import MIXERS, SIZES
from oomkb.memory.forms import minus
from oomkb.memory.mode import Mixer
from oomkb.memory.releases import has_mixer_kernels
from oomkb.memory.tape import Tape, Tensor
from oomkb.tables import read_table

if TYPE_CHECKING:
    from oomkb.memory.blocks import Layer
    from oomkb.memory.job import Job
    from oomkb.memory.setting import Setting
    from oomkb.memory.shape import ModelShape

FILE: Final = Path(__file__).parent / "families" / "mixer_forms.toml"
_OUTPUTS: Final = ("inner", "values", "hidden")
"""Which of the sizes is the width that the output projection takes."""
_PACKAGES: Final = {"delta": "flash-linear-attention, causal-conv1d", "conv": "causal-conv1d"}


@cache
def _table() -> Mapping[str, Any]:
    return read_table(FILE)


def mixer_of(s: Setting, shape: ModelShape) -> Mixer | None:
    """The model's mixer as this run computes it; ``None`` where it is all attention, or a kernel's."""
    d, kind = shape.dims, _kind(shape)
    if not kind or s.mixer_kernels:
        return None
    precision = "mixed" if s.autocast else "fp32" if s.held_bytes == 4 else "16"
    forms = _table()[_table()["same"].get(d.model_type, d.model_type)][precision + (" frozen" if s.adapters else "")]
    linears = MIXERS[kind](d.fields, d.hidden)[0]
    inner = next(name for name in _OUTPUTS if name in SIZES[d.model_type](d.fields, s.seq))
    inputs = tuple((m.name, f"x{i}") for i, m in enumerate(linears[:-1]) if m.inputs == d.hidden)
    parts = (_form(forms[name]) for name in ("passing", "forward", "kept", "backward"))
    return Mixer(inputs, (linears[-1].name, "x" + inner), *parts)


def _form(text: str) -> tuple[tuple[str, float], ...]:
    pairs = (word.split(":") for word in text.split())
    return tuple((f"T*x{name}", float(size)) for name, size in pairs)


def notes_of(job: Job, shape: ModelShape) -> tuple[Note, ...]:
    """That the model's mixers are counted without kernels, where they are."""
    kind = _kind(shape)
    if not kind or has_mixer_kernels(job):
        return ()
    return (note("estimate.mixers-in-torch", packages=_PACKAGES.get(kind, "mamba-ssm, causal-conv1d")),)


def _kind(shape: ModelShape) -> str:
    """Which mixer the model's layers have beside or instead of attention; empty where it was not traced."""
    if not shape.dims.mixers or shape.dims.model_type not in SIZES:
        return ""
    return next((kind for m in shape.dims.mixers if (kind := m.removeprefix("attention+")) in MIXERS), "")


def mixer_sizes(s: Setting, shape: ModelShape) -> dict[str, float]:
    """The numbers behind a mixer's units."""
    d, kind = shape.dims, _kind(shape)
    if not kind:
        return {}
    linears = MIXERS[kind](d.fields, d.hidden)[0]
    sizes = {f"x{name}": float(value) for name, value in SIZES[d.model_type](d.fields, s.seq).items()}
    return sizes | {f"x{i}": float(m.outputs) for i, m in enumerate(linears)}


def mix(layer: Layer, x: Tensor, mixer: Mixer) -> Tensor:
    """Projections, what is between them, and the projection back."""
    tape = layer.tape
    made = [layer.project(x, "mixer." + name, "h", width) for name, width in mixer.inputs]
    units = [(t.unit, t.size) for t in made]
    size, inner = made[0].size, "T*" + mixer.output[1]
    links = [Tensor(None, t.unit, t.size, t.node) for t in made]
    del made

    def backward(tape: Tape, grad: Tensor, saved: Any, needs: Sequence[bool]) -> list[Tensor | None]:
        saved.clear()
        most = tape.hold(_more(mixer.backward, {inner: grad.size}))
        del most
        return [tape.new(*unit) if need else None for unit, need in zip(units, needs, strict=True)]

    saves = any(link.node is not None for link in links) and not tape.discard
    most = tape.hold(dict(mixer.forward if saves else mixer.passing))
    del most
    node = tape.record(links, (tape.hold(dict(mixer.kept)) if saves else None,), backward)
    out = tape.new(inner, size, node)
    return layer.project(out, "mixer." + mixer.output[0], mixer.output[1], "h")


def _more(form: Sequence[tuple[str, float]], less: Mapping[str, float]) -> dict[str, float]:
    return {unit: size for unit, size in minus(dict(form), less).items() if size > 0}
