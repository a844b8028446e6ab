"""What sharding wrappers hold beside the shards: gathered units, buckets, gradients on their way."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from oomkb.dataclass import dataclass
from oomkb.memory.ranks import FSDP1
from oomkb.memory.setting import Setting
from oomkb.memory.shape import ModelShape
from oomkb.memory.states import QUANT_BYTES, States, padded
from oomkb.memory.step import Extra

_NOTHING: Final[Mapping[str, float]] = {}
Moments = Mapping[str, list[dict[str, float]]]
"""By phase: terms of the instants at which the wrapper works between two operations of the model."""
_REDUCED: Final = 4.0
"""Bytes of an element while gradients are reduced."""
_ENDS: Final = ("first", "embedding")


@dataclass(frozen=True, slots=True)
class Units:
    """Elements per GPU (after tensor and pipeline parallelism) in the units that are gathered together."""

    layer: float
    """The largest decoder layer, with its adapters."""
    root: float
    """Embedding, output head and last norm."""
    pair: float
    """The two neighbouring layers that have most: one is gathered while the other is there."""
    layers: float
    """All decoder layers of this stage."""
    largest: float
    """The largest single parameter."""


def units_of(s: Setting, shape: ModelShape) -> Units:
    """Units of a transformer-based wrapping."""
    adapters: tuple[int, ...] = ()
    if s.adapters:
        adapters = shape.layer_adapters(s.targets, s.rank, dora=s.dora, experts=s.expert_adapters)
    # Expert parallelism leaves each rank its own experts, and only these are gathered (torchtitan ``apply_fsdp``, NeMo
    # Automodel ``components/moe/parallelizer.py``).
    return _units(shape, adapters, padded(s, shape) / s.ep - 1.0, float(s.tp), s.pp)


@lru_cache(maxsize=1024)
def _units(shape: ModelShape, adapters: tuple[int, ...], more: float, split: float, stages: int) -> Units:
    """:param more: experts beside those of the model, as a share of them: those added as padding, less other ranks'."""
    kinds = zip(shape.layers, adapters or (0,) * len(shape.layers), strict=True)
    sizes = [(layer.params + more * layer.expert_params + its, layer.count) for layer, its in kinds]
    largest = max((size for size, _ in sizes), default=0.0)
    total = sum(size * count for size, count in sizes)
    root = shape.text_params - shape.layer_params
    matrix = max((m.params for layer in shape.layers for m in layer.linears), default=0)
    return Units(
        largest / split,
        root / split,
        shape.neighbours * largest / split,
        total / split / stages,
        max(matrix, shape.dims.vocab * shape.dims.embed_width) / split,
    )


def apart_of(s: Setting, shape: ModelShape) -> float:
    """What FSDP2 reserves on the stream of its gathers, where nothing else can use it: room for the largest unit.

    The peak counts one layer of it. torchtitan and prime-rl gather embedding and head apart.
    """
    if s.sharding not in ("fsdp2", "hsdp") or s.shards < 2:
        return 0.0
    u = units_of(s, shape)
    twice = not shape.dims.tied and any(w in s.framework for w in ("titan", "prime-rl"))
    return max(0.0, u.root / (2 if twice else 1) - u.layer) * s.held_bytes


def fsdp_extra(s: Setting, shape: ModelShape) -> Extra:
    """FSDP2 (``torch.distributed.fsdp._fully_shard``), every decoder layer and the root a unit.

    Followed event by event in traces of torch 2.13 and 2.15: a gather writes one flat buffer, copies out of it, and the
    buffer lives until the next unit's copies are made; backward prefetches one unit; a unit's gradients are copied into
    one flat fp32 buffer, which lives until the next unit's is made. The root stays gathered from forward to backward.
    """
    u = units_of(s, shape)
    c = float(s.held_bytes)
    layer, pair, root = u.layer * c, u.pair * c, u.root * c
    held = 0.0 if s.reshard else u.layers * c
    reduce, one, shards, last = _reduced(s, u)
    before = shards + last if s.gradients_stay else 0.0
    if s.whole_gradients:
        before = _unsharded(s, u)

    def extra(phase: str, part: str, share: str) -> Mapping[str, float]:
        late = share == "grads"
        finished, reducing = 0.0, _NOTHING
        if phase == "forward":
            # Own copies, own flat buffer; the buffer of the unit before overlaps only while copies are made.
            copies = layer if s.reshard or share != "saved" else held
            gathered = 2 * root if part == "embedding" else root + copies + layer
        elif phase == "loss":
            gathered = root + (layer if s.reshard else held + layer)
        elif part in ("logits", "top"):
            gathered = root + (held if not s.reshard else layer if part == "logits" else pair)
        else:
            reducing = {"reduction buffer": reduce}
            ends = {"embedding": (0.0, shards), "first": (layer, shards - one)}
            inside = (pair if s.reshard or late else held - layer, shards - 2 * one if late else one)
            more, finished = ends.get(part, inside)
            gathered = root + more
        return {"gathered weights": gathered, **reducing, "gradients": before or max(0.0, finished)}

    return extra


def _reduced(s: Setting, u: Units) -> tuple[float, float, float, float]:
    """Bytes of a layer's flat gradient, then of the kept shards: of a layer, of all layers, of the root.

    Those of adapters decide no peak. Offloaded ones leave as soon as they are reduced (torch 2.13,
    ``_fully_shard/_fsdp_collectives.py``, ``foreach_reduce``).
    """
    if s.adapters:
        return 0.0, 0.0, 0.0, 0.0
    each = 0.0 if s.by_fsdp else s.param_bytes / s.shards
    return u.layer * _REDUCED, min(u.layers, u.layer) * each, u.layers * each, u.root * each


def _unsharded(s: Setting, u: Units) -> float:
    """Gradients that wait for further micro-batches before they are reduced: whole, in the dtype of the passes."""
    return 0.0 if s.adapters else (u.layers + u.root) * float(s.held_bytes)


def fsdp_moments(s: Setting, shape: ModelShape, *, saved: float) -> Moments:
    """FSDP2's own peaks, at which no operation of the model runs: while one unit takes another's place, and at the end.

    Through torch 2.14 ``wait_for_unshard`` still names the buffer of the unit before while it copies, and
    ``foreach_reduce`` the gradient that was copied last; both went into functions of their own in 2.15.

    :param saved: activations alive after forward. The events are those of :func:`fsdp_extra`.
    """
    u = units_of(s, shape)
    c, n = float(s.held_bytes), max(1.0, round(u.layers / u.layer) if u.layer else 1.0)
    layer, pair, root = u.layer * c, u.pair * c, u.root * c
    cast = layer / s.shards if s.param_bytes != c else 0.0  # shards are cast before the gather
    cast += u.layer * s.param_bytes / s.shards if s.by_fsdp else 0.0  # and come from the host before that
    named = s.torch < (2, 15)
    fetched = layer + (max(layer, cast) if named else cast)
    passed = saved * (n - 1) / n
    entered = {"gathered weights": 2 * root + fetched, "activations": saved / n}
    between = {"gathered weights": root + pair - layer + fetched, "activations": passed}
    if not s.reshard:
        between["gathered weights"] += (n - 1) * layer
    if s.adapters:
        return {"forward": [entered, between]}
    head = shape.dims.vocab * shape.dims.embed_width * c / s.tp
    reduce, _, shards, _ = _reduced(s, u)
    top = {
        "gathered weights": root + (layer if s.reshard else (n - 1) * layer),
        "reduction buffer": reduce,
        "gradients": layer + head + (_unsharded(s, u) if s.whole_gradients else 0.0),
        "activations": passed,
    }
    output = u.root * _REDUCED / s.shards  # in fp32, and cast where the shards are of another dtype
    if s.param_bytes != _REDUCED:
        output += u.root * s.param_bytes / s.shards
    final = {
        "reduction buffer": u.root * _REDUCED,
        "gradients": shards + max(root, output + (head if named and not shape.dims.tied else 0.0)),
    }
    return {"forward": [entered, between], "backward": [top, final]}


def fsdp1_extra(s: Setting, shape: ModelShape) -> Extra:
    """FSDP1 (``FullyShardedDataParallel``): flat parameters; a gathered unit is used in place, one more is prefetched.

    The reduction runs in the gathered dtype; shards and their gradients are in the parameters' own dtype. Followed in
    traces of torch 2.13; what a GPU's streams add to them is the unit gathered ahead in forward (the rate limiter lets
    two be under way) and the flat gradient that is still being reduced while the next unit runs.

    Where it offloads, ``_saved_grad_shard`` stays on the card beside the host's copy until backward has ended
    (``_flat_param.py``, ``prepare_gradient_for_optim``).
    """
    u = units_of(s, shape)
    c = QUANT_BYTES.get(s.quant, float(s.held_bytes))
    layer, pair, root = u.layer * c, u.pair * c, u.root * float(s.held_bytes)
    trained = not s.adapters
    shards = u.layers * s.param_bytes / s.shards if trained else 0.0
    one = min(shards, u.layer * s.param_bytes / s.shards)
    held = 0.0 if s.reshard else u.layers * c
    waiting = _unsharded(s, u) if s.whole_gradients else shards if s.gradients_stay and not s.by_fsdp else 0.0
    flat = trained or s.upcast_adapters  # one flat gradient for frozen and trained parameters alike
    reducing = u.layer * float(s.held_bytes) if flat and s.cuda else 0.0

    def backward(part: str, share: str) -> Mapping[str, float]:
        finished = {"first": shards - one, "embedding": shards, "layer": shards - 2 * one if share == "grads" else one}
        done = waiting or max(0.0, finished.get(part, 0.0))
        gathered = 0.0 if part in ("logits", "embedding") else layer if part == "first" else pair
        if part == "logits" and s.reshard:
            gathered = layer
        if not s.reshard and part in ("logits", "top", "layer"):
            gathered = held if part != "layer" else held - layer if share == "kept" else pair
        reduce = 0.0 if part in ("logits", "top") else reducing
        return {"gathered weights": root + gathered, "reduction buffer": reduce, "gradients": done}

    def extra(phase: str, part: str, share: str) -> Mapping[str, float]:
        if phase == "backward":
            return backward(part, share)
        ahead = layer if s.cuda else 0.0
        units = 0.0 if part in ("embedding", "logits") else layer
        if part == "logits":
            ahead = 0.0
        weights = root + (units + ahead if s.reshard else max(units + ahead, held))
        return {"gathered weights": weights, "gradients": waiting}

    return extra


def fsdp1_moments(s: Setting, shape: ModelShape, *, saved: float) -> Moments:
    """A unit's gradients joined to a flat one while they still stand, and the same of the root at the end."""
    if s.adapters:
        return {}
    u = units_of(s, shape)
    c, n = float(s.held_bytes), max(1.0, round(u.layers / u.layer) if u.layer else 1.0)
    layer, pair, root = u.layer * c, u.pair * c, u.root * c
    shards = u.layers * s.param_bytes / s.shards
    head = shape.dims.vocab * shape.dims.embed_width * c / s.tp
    held = pair if s.reshard else n * layer
    one = u.layer * s.param_bytes / s.shards
    joined, done = layer, max(0.0, shards - 2 * one)
    if s.whole_gradients:  # a unit's own are added to those of the micro-batches before, which are flat already
        joined, done = 0.0, _unsharded(s, u)
    before = done if s.whole_gradients else 0.0
    top = {
        "gathered weights": root + held,
        "gradients": layer + joined + head + before,
        "activations": saved * (n - 1) / n,
    }
    late = {
        "gathered weights": root + pair,
        "gradients": layer + joined + head + done,
        "activations": saved / n,
    }
    final = {"gathered weights": root, "gradients": 2 * root + shards}
    return {"backward": [top, late, final]}


def zero_extra(s: Setting, shape: ModelShape) -> Extra:
    """DeepSpeed ZeRO-3: parameters gathered module by module; those whose reuse is near stay (``max_live_parameters``,
    ``max_reuse_distance``, 1e9 elements by default), one prefetch bucket besides, and the reduction bucket.
    """
    u = units_of(s, shape)
    c = float(s.held_bytes)
    every = u.layers + u.root
    live = min(
        every, s.bucket("max_live_parameters", 1e9), max(s.bucket("max_reuse_distance", 1e9), u.layer + u.largest)
    )
    gathered = max(live, u.layer / 2, u.largest) * c
    prefetch = min(s.bucket("prefetch_bucket_size", 5e7), every) * c
    # What is stated is allocated whole, whatever is trained (``stage3.py``); many leave it to their framework.
    usual = 0.0 if s.adapters else min(5e8, u.layers)
    bucket = (s.bucket("reduce_bucket_size", 0.0) or usual) * c
    # ``stage3.py``: the flat buffer of gradient partitions lives where the optimizer does, whatever is accumulated.
    owned = 0.0 if "optimizer" in s.offload else (u.layers + u.root) * c / s.shards
    grads = owned if not s.adapters else 0.0
    # Saved by every linear layer until its own backward, where DeepSpeed's do not run (``offload.keeps_gathered``).
    one, whole = (0.0, 0.0) if s.reshard else (u.layer * c, (u.layers if s.ckpt == "none" else u.layer) * c)

    def extra(phase: str, part: str, share: str) -> Mapping[str, float]:
        # The partitioned gradients are one flat buffer, allocated up front.
        if part == "embedding" or (phase != "backward" and s.ckpt != "none"):
            saved = 0.0
        else:
            last = share == "grads" or part in _ENDS
            saved = one if last or (phase == "forward" and share == "none") else whole
        kept = {"saved weights": saved} if saved else _NOTHING
        return {"gathered weights": gathered + prefetch, "reduction buffer": bucket, "gradients": grads, **kept}

    return extra


def zero_early_extra(s: Setting, states: States) -> Extra:
    """ZeRO-1 and -2: the bucket stands in backward only, and the partition of the gradients fills as it runs.

    Followed in steps of DeepSpeed 0.19.8 (``bench/trace_deepspeed.py``). Gradients that wait for more micro-batches are
    whole under ZeRO-1, and the bucket waits with them.
    """
    waiting = states.gradients if s.gradients_stay else 0.0

    def extra(phase: str, part: str, share: str) -> Mapping[str, float]:
        if phase != "backward":
            early = {"buckets": states.bucket} if s.sharding == "zero1" else {}
            return {"gradients": waiting, **early} if waiting else _NOTHING
        late = part in ("embedding", "first") or (part == "layer" and share == "grads")
        own = waiting if waiting and s.sharding == "zero2" else waiting + (states.reduced if late else 0.0)
        # The first gradient makes it; under a frozen head that is a layer's.
        return {"buckets": 0.0 if s.adapters and not s.tables and part == "logits" else states.bucket, "gradients": own}

    return extra


def extra_of(s: Setting, shape: ModelShape, states: States) -> Extra:
    """What holds for the job's sharding while each part of the model runs."""
    if s.sharding == "fsdp2":
        return fsdp_extra(s, shape)
    if s.sharding in FSDP1:
        return fsdp1_extra(s, shape)
    if s.sharding == "zero3":
        return zero_extra(s, shape)
    if s.sharding in ("zero1", "zero2"):
        return zero_early_extra(s, states)
    fixed_grads = states.gradients
    if s.method == "badam" and not s.gradients_stay:  # at worst the block is the one that backward comes to last
        last = {"gradients": fixed_grads}
        return lambda phase, part, share: last if phase == "backward" and part in _ENDS else _NOTHING
    if s.gradients_stay or s.megatron:
        return lambda phase, part, share: {"gradients": fixed_grads}
    return lambda phase, part, share: _NOTHING


def moments_of(s: Setting, shape: ModelShape, saved: float) -> Moments:
    """By phase: terms at the sharding wrapper's own peaks, between the model's operations."""
    if s.sharding == "fsdp2":
        return fsdp_moments(s, shape, saved=saved)
    if s.sharding in FSDP1 and s.quant == "none":
        return fsdp1_moments(s, shape, saved=saved)
    return {}
