"""The allocations of a training run's first steps: weights, forward, backward, the optimizer's first and later steps.

The tape plays every layer (:mod:`oomkb.memory.allocator.passes`); parameters are blocks of their own, as the matrices
of ``config.json`` have them; states are made in the first step, in the middle of what activations have left behind;
batches that are padded to their own longest sample change length from micro-batch to micro-batch. Under FSDP2 and
without a wrapper the most that is alive is the estimate's to 0.1 %; FSDP1 is within 10 %, DeepSpeed, whose gathers and
buckets are one block each, within 6 % (the traces in tests/kb/memory/data). Vision towers and evaluation are a block a
phase.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Final

from oomkb.dataclass import dataclass
from oomkb.errors import JobError
from oomkb.memory.activations import env_of, head_of, mode_of
from oomkb.memory.allocator.events import Recorder
from oomkb.memory.allocator.passes import Hooks, Pass, RecordingTape, sizes_of
from oomkb.memory.allocator.wrappers import Fsdp1, Fsdp2
from oomkb.memory.device import Device
from oomkb.memory.evaluating import evaluation_terms
from oomkb.memory.extra_models import extra_memory
from oomkb.memory.job import Job
from oomkb.memory.losses import chunked_loss_bytes
from oomkb.memory.setting import Setting, resolve_setting
from oomkb.memory.shape import ModelShape, adapted
from oomkb.memory.sharding import extra_of
from oomkb.memory.states import QUANT_BYTES, States, states_of
from oomkb.memory.tape import Tensor
from oomkb.memory.towers import tower_bytes
from oomkb.units import MIB

STEPS: Final = 3
"""Optimizer steps that are played."""
_MICRO: Final = 2
"""Micro-batches of a step that are played where it has more: the first makes gradients, the second adds to them."""
_MICRO_CHANGING: Final = 8
_WORKSPACE: Final = 8_519_680
"""cuBLAS's workspace before Hopper, one for each thread that computes (``c10``: 4096 KiB x 2 + 16 KiB x 8)."""
_WORKSPACE_HOPPER: Final = 32 * MIB
_SHORTEST: Final = 1 / 16
_FSDP: Final = {"fsdp2": Fsdp2, "hsdp": Fsdp1, "fsdp": Fsdp1, "shard-grad-op": Fsdp1}


@dataclass(frozen=True, slots=True)
class _Sizes:
    """Bytes of the blocks that stay."""

    weights: tuple[float, ...]
    layers: tuple[tuple[float, ...], ...]
    """By layer: elements of each parameter."""
    root: tuple[float, ...]
    trained: tuple[float, ...]
    """Elements of each trained parameter, in the model's order."""


def lengths(s: Setting, count: int, *, seed: int = 0) -> list[int]:
    """Tokens of each of ``count`` micro-batches' rows.

    Batches padded to their longest sample: the longest of ``samples`` drawn log-uniformly from a sixteenth of the limit
    to the limit (sizes of instruction data spread about so), the limit itself among the first four, as a run of
    thousands of batches meets it.
    """
    if not s.dynamic:
        return [s.seq] * count
    rng, found = random.Random(seed), []
    for _ in range(count):
        longest = max(_SHORTEST ** rng.random() for _ in range(s.samples))
        found.append(max(1, round(s.seq * longest)))
    found[min(3, count - 1)] = s.seq
    return found


def training_events(
    job: Job,
    shape: ModelShape,
    device: Device | None = None,
    *,
    shapes: Mapping[str, ModelShape] | None = None,
    steps: int = STEPS,
) -> Recorder:
    """The events of the first ``steps`` optimizer steps of one GPU.

    :raises JobError: for a job that is not played (serving, a critic of its own on the GPU).
    """
    s = resolve_setting(job, shape)
    if not s.training:
        raise JobError("an engine allocates its pool once", where="objective", hint="the replay is for training")
    extra = extra_memory(job, s, shape, device, shapes or {})
    if extra.critic is not None:
        raise JobError("a critic trained beside the policy is not played", where="extra_models")
    run = _Run(job, s, shape, states_of(s, shape), device)
    run.load(extra.models, extra.engine_in_training)
    micro = min(s.accum, _MICRO_CHANGING if s.dynamic else _MICRO)
    drawn = lengths(s, steps * micro)
    for step in range(steps):
        run.recorder.mark(f"step {step + 1}")
        for i in range(micro):
            run.micro_batch(drawn[step * micro + i], first=i == 0)
        run.optimizer_step(first=step == 0)
    if s.eval_batch:
        run.evaluate()
    return run.recorder


class _Run:
    """One GPU's run, being played."""

    def __init__(self, job: Job, s: Setting, shape: ModelShape, states: States, device: Device | None) -> None:
        self.job, self.s, self.shape, self.states = job, s, shape, states
        self.recorder = Recorder()
        self.sizes = _sizes(s, shape, states)
        self.kinds = shape.kinds[: _stage(s, shape)]
        self.mode, self.head = mode_of(s, shape), head_of(s, shape)
        self.values = dict(env_of(s, shape))
        self.grads: list[Tensor] = []
        self.reduced: list[int] = []
        self.stuck: list[Tensor] = []
        self.workspace = _WORKSPACE_HOPPER if device and device.generation in _LARGE_WORKSPACE else _WORKSPACE
        self.started = False

    def load(self, models: Mapping[str, float], engine: float) -> None:
        """What is there before the first step."""
        recorder, states = self.recorder, self.states
        recorder.mark("load")
        recorder.each(self.sizes.weights, "weights")
        if states.adapters:
            recorder.each(_spread(self.sizes.trained, states.adapters), "adapters")
        for role, size in models.items():
            recorder.alloc(size, role)
        recorder.alloc(engine, "rollout engine")
        recorder.alloc(states.buckets, "buckets")
        if states.masters and self.s.deepspeed:
            recorder.alloc(states.masters, "fp32 masters")
            recorder.alloc(states.optimizer, "optimizer states")

    def micro_batch(self, length: int, *, first: bool) -> None:
        """Forward, loss and backward."""
        s, recorder = self.s, self.recorder
        tokens = s.batch * length / (s.cp * s.sp)
        square = tokens * length / (s.cp * s.sp)
        if not self.started:
            recorder.each([self.workspace], "cuBLAS workspace")
        held = self.s.accum > 1 and s.grads == "none" and _whole_grads(s) and first
        tape = RecordingTape(recorder, sizes_of(self.values, tokens, square), keep_grads=held or s.grads != "none")
        hooks = self._hooks()
        fixed = self._fixed("forward")
        blocks = recorder.each(list(fixed.values()), "wrapper")
        sight = tower_bytes(s, self.shape)
        pixels = recorder.alloc(sight.pixels, "vision tower: pixels")
        tower = recorder.alloc(sight.kept, "vision tower: kept")
        recorder.free(recorder.alloc(max(0.0, sight.forward - sight.kept), "vision tower: forward"))
        played = Pass(
            self.mode,
            self.head,
            self.kinds,
            tape,
            hooks=hooks,
            before=self.stuck if self.head.outlived else (),
            chunked=chunked_loss_bytes(s, self.shape, tokens) if s.fused_ce else 0.0,
        )
        self.stuck = []
        if not self.started:
            self.started = True
            recorder.each([self.workspace], "cuBLAS workspace")
        bucket = recorder.alloc(self.states.bucket, "reduction bucket")
        played.play()
        recorder.free(tower)
        recorder.free(recorder.alloc(sight.backward, "vision tower: backward"))
        recorder.free(pixels, bucket, *blocks)
        if isinstance(hooks, Fsdp2):
            self._merge(hooks.end(tape.grads.clear))
        grads, stuck = played.finish()
        if self.head.outlived:
            self.stuck = stuck
        if held or s.grads == "all":
            self.grads += grads.values()

    def evaluate(self) -> None:
        """One batch of an evaluation, a block for each of its terms."""
        terms = evaluation_terms(self.job, self.s, self.shape)
        self.recorder.mark("evaluation")
        self.recorder.free(*[self.recorder.alloc(size, f"evaluation: {name}") for name, size in terms.items()])

    def _merge(self, reduced: list[int]) -> None:
        """Reduced gradients: those of the next micro-batch are added to what is there."""
        if self.reduced:
            self.recorder.free(*reduced)
        else:
            self.reduced = reduced

    def _hooks(self) -> Hooks | None:
        s, sizes = self.s, self.sizes
        kind = _FSDP.get(s.sharding)
        if kind is None:
            return None
        each = QUANT_BYTES.get(s.quant, float(s.held_bytes)) if kind is Fsdp1 else float(s.held_bytes)
        reduced = 0.0 if s.adapters else (4.0 if kind is Fsdp2 else float(s.held_bytes)) / each
        return kind(
            self.recorder,
            [[n * each for n in layer] for layer in sizes.layers],
            [n * s.held_bytes for n in sizes.root],
            reshard=s.reshard,
            reduce=reduced,
            shards=s.shards,
            cast=s.param_bytes != s.held_bytes,
            apart=not self.shape.dims.tied and any(name in s.framework for name in ("titan", "prime-rl")),
        )

    def _fixed(self, phase: str) -> Mapping[str, float]:
        """What a wrapper that is not played event by event holds throughout a pass."""
        if self.s.sharding in _FSDP or self.s.shards < 2:
            return {}
        held = extra_of(self.s, self.shape, self.states)(phase, "layer", "saved")
        return {name: size for name, size in held.items() if name != "gradients" or self.s.sharding == "zero3"}

    def optimizer_step(self, *, first: bool) -> None:
        """States are made in the first step; what a step allocates on its way goes when it is over."""
        s, states, recorder = self.s, self.states, self.recorder
        trained = self.sizes.trained
        reduced = 0
        if not self.grads and not self.reduced:
            reduced = recorder.alloc(states.reduced if s.sharding != "zero3" else 0.0, "gradients")
        if first and not (states.masters and s.deepspeed):
            for size in _spread(trained, states.masters):
                recorder.alloc(size, "fp32 masters")
            for size in _spread(trained, states.optimizer):
                recorder.each([size / 2, size / 2], "optimizer states")
        if states.step > 0.9 * sum(trained) and len(trained) > 1:
            recorder.free(*recorder.each(_spread(trained, states.step), "optimizer temporaries"))
        else:
            recorder.free(recorder.alloc(states.step, "optimizer temporaries"))
        recorder.free(reduced, *self.reduced)
        self.reduced = []
        self.grads.clear()
        if s.emptied:
            recorder.empty()


_LARGE_WORKSPACE: Final = frozenset({"hopper", "blackwell"})


def _stage(s: Setting, shape: ModelShape) -> int:
    return max(1, round(shape.dims.layers / s.pp)) if s.pp > 1 else shape.dims.layers


def _whole_grads(s: Setting) -> bool:
    return s.sharding in ("none", "ddp", "zero1") or s.shards < 2


def _spread(parts: Sequence[float], total: float) -> list[float]:
    """``total`` bytes in the proportions of ``parts``."""
    whole = sum(parts)
    return [total * part / whole for part in parts] if whole and total else []


def _sizes(s: Setting, shape: ModelShape, states: States) -> _Sizes:
    split, bits = float(s.tp), QUANT_BYTES.get(s.quant)
    layers: list[tuple[float, ...]] = []
    for layer in shape.layers:
        matrices = [m.params / (s.ep * s.etp if m.part == "expert" else split) for m in layer.linears]
        small = float(layer.norm_params + layer.other_params)
        layers += [(*matrices, *([small] if small else []))] * layer.count
    layers = layers[: _stage(s, shape)]
    table = shape.dims.vocab * shape.dims.embed_width / split
    root = [table] if shape.dims.tied else [table, table]
    rest = max(0.0, (shape.params - sum(x.params * x.count for x in shape.layers)) / split - sum(root))
    root += [rest] if rest >= 1 else []
    held = float(s.held_bytes)
    whole = [n * (bits if bits and n > shape.dims.hidden * 8 else held) for layer in layers for n in layer]
    whole += [n * held for n in root]
    trained = _adapter_sizes(s, shape) if s.adapters else [n for layer in layers for n in layer] + root
    return _Sizes(tuple(_spread(whole, states.weights)), tuple(layers), tuple(root), tuple(trained))


def _adapter_sizes(s: Setting, shape: ModelShape) -> list[float]:
    found = []
    for layer in shape.layers:
        pair = [s.rank * n for m in layer.linears if adapted(m, s.targets) for n in (m.inputs, m.outputs)]
        found += [float(n) for n in pair] * layer.count
    return found or [1.0]
