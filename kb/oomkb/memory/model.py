"""The estimate: phases by terms, the peak and its owner, intervals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from oomkb.errors import Note, note
from oomkb.memory import intervals
from oomkb.memory.activations import step_of, tower_bytes
from oomkb.memory.device import Device, capacity_bytes_of
from oomkb.memory.estimate import Estimate, Interval, Later, Phase, fuller, merged
from oomkb.memory.extra_models import ExtraMemory, extra_memory, with_critic
from oomkb.memory.host import host_phases
from oomkb.memory.images import images_of, unstated_images
from oomkb.memory.job import Job
from oomkb.memory.loops import keeps_cache, kept_logits
from oomkb.memory.offload import loads_whole
from oomkb.memory.overhead import fits_probability, meters, outside_bytes
from oomkb.memory.passes import chunked_loss_bytes, evaluation_terms, log_prob_terms
from oomkb.memory.ranks import FSDP1, GATHERED
from oomkb.memory.releases import quantizes_whole
from oomkb.memory.serving import ServingBytes, serving_bytes, start_probability
from oomkb.memory.setting import ONLINE, Setting, resolve_setting
from oomkb.memory.shape import ModelShape
from oomkb.memory.sharding import apart_of, extra_of, moments_of
from oomkb.memory.states import States, states_of, weight_bytes
from oomkb.memory.step import Extra, Step

_LOSS: Final = frozenset({"logits"})
SOURCES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "weights": "elements of every matrix of config.json x bytes of the dtype; quantized: states.QUANT_BYTES",
        "adapters": "r x (inputs + outputs) per adapted matrix; PEFT keeps adapters in fp32 by default (PR 1706)",
        "optimizer states": "oomkb.memory.optimizers, per trained element",
        "fp32 masters": "DeepSpeed and Megatron keep fp32 weights beside 16-bit ones (arXiv 1910.02054, section 3)",
        "gradients": "one element per trained element while it is whole; sharded under ZeRO-2/3 and FSDP",
        "activations": "what autograd keeps per operation, played on oomkb.memory.tape as transformers 5.23 writes it",
        "recomputed layer": "one layer's saved tensors and temporaries during recomputation (torch.utils.checkpoint)",
        "vision tower": "what the tower's layers keep, played as the decoder's are (oomkb.memory.vision)",
        "attention scores": "B x heads x S x S of eager attention, masks B x S x S of SDPA",
        "logits and loss": "T x V copies alive around the cross-entropy: compute dtype, fp32, log-softmax, gradients",
        "cast weights": "autocast's cache of cast weights; dequantized weights of a quantized base",
        "gathered weights": "units that a sharding wrapper has gathered (oomkb.memory.sharding)",
        "saved weights": "gathered ones that torch's own linear layers save under ZeRO-3 (DeepSpeed zero/linear.py)",
        "reduction buffer": "gradients on their way to being reduced",
        "optimizer temporaries": "foreach copies all second moments (torch/optim/adamw.py); fp32 gradients under ZeRO",
        "buckets": "DDP's buckets hold every gradient once more; ZeRO's reduce_bucket_size",
        "outputs of the step before": "logits (and cache) that the loop's names hold (oomkb.memory.ranks)",
        "kv cache": "2 x layers x kv heads x head dim x bytes per token, or an engine's whole pool",
        "rollout engine": "capacity x gpu_memory_utilization of a colocated engine",
        "draft model": "the draft's own weights, or one layer for a head on the target (arXiv 2401.15077)",
        "CUDA graphs": "oomkb.memory.engines.graph_bytes",
    }
)
_STEP_PHASES: Final = ("forward", "loss", "backward")
_LAYER: Final = "recomputed layer"


def in_flight(stages: int, micro_batches: int, chunks: int = 1) -> tuple[float, float]:
    """Micro-batches whose activations the first and the last stage hold at once, in whole stages.

    The first stage of 1F1B holds one micro-batch per stage, the last one its own (arXiv 2104.04473, section 2.2).
    Interleaved schedules run ``2 (p - 1) + (m - 1) p`` chunks ahead on the first of ``p`` stages with ``m`` chunks
    each, ``(m - 1) p`` on the last (Megatron-LM ``core/pipeline_parallel/schedules.py``): in whole stages
    ``p + (p - 1) / m`` on the first, as in arXiv 2205.05198, section 4.4.

    :param chunks: virtual stages on each rank.
    """
    ahead = (chunks - 1) * stages + 1
    first = ahead + 2 * (stages - 1) if chunks > 1 else stages
    most = micro_batches * chunks
    return min(most, first) / chunks, min(most, ahead) / chunks


def waiting_bytes(s: Setting, step: Step) -> tuple[float, float]:
    """Bytes of the activations of the other micro-batches that wait on the first and on the last stage."""
    one = step.saved_bytes(s.tokens, s.square)
    first, last = in_flight(s.pp, s.accum, s.chunks) if s.pp > 1 else (1.0, 1.0)
    return one * (first - 1), one * (last - 1)


def fullest(s: Setting, step: Step, phase: str, wrapped: Extra) -> tuple[float, Mapping[str, float]]:
    """What waits and what runs at the fullest instant of a phase, on whichever stage is fuller.

    :returns: bytes of waiting activations, and the terms of what runs.
    """
    size, terms = step.peak(phase, s.tokens, s.square, wrapped)
    if s.pp <= 1:
        return 0.0, terms
    first, last = waiting_bytes(s, step)
    early_size, early = step.peak(phase, s.tokens, s.square, wrapped, without=_LOSS)
    return (first, early) if early and first + early_size > last + size else (last, terms)


def estimate(
    job: Job, shape: ModelShape, device: Device | None = None, *, shapes: Mapping[str, ModelShape] | None = None
) -> Estimate:
    """What one GPU holds when ``job`` runs a model of ``shape``: pure arithmetic.

    :param shapes: shapes of other models by the name the job uses for them.
    :raises JobError: for a job that cannot be run; ``where`` names the field.
    """
    s = resolve_setting(job, shape)
    warnings = list(shape.warnings)
    if not s.training:
        return _serving(s, shape, device, shapes or {}, warnings)
    states = states_of(s, shape)
    extra = extra_memory(s, shape, device, shapes or {})
    warnings += extra.warnings
    warnings += [*_doubts(s), *s.notes, *unstated_images(job, shape)]
    loaded = weight_bytes(s, shape, float(s.held_bytes)) if loads_whole(s) else 0.0
    warnings += [note("estimate.loaded-whole", weights_bytes=loaded)] if loaded else []
    phases = _phases(s, shape, states, extra)
    beside = extra.host + _offloaded_activations(s, shape)
    base = phases["load"].total_bytes + states.optimizer + states.masters
    return _finish(
        s,
        shape,
        device,
        phases,
        warnings,
        host=(states.host + beside, states.host_most + beside, states.nvme),
        base=base,
        trainable=states.trainable,
        paged=states.paged,
        loaded=loaded,
    )


def _doubts(s: Setting) -> list[Note]:
    """Settings under which published runs needed more than 20 % above the estimate."""
    found = []
    if s.dynamic:
        found.append(note("estimate.padded"))
    if s.adapters and s.sharding in FSDP1:
        found.append(note("estimate.fsdp1-adapters"))
    if quantizes_whole(s.job, s.quant):
        found.append(note("estimate.quantized-on-card"))
    return found


def _phases(s: Setting, shape: ModelShape, states: States, extra: ExtraMemory) -> dict[str, Phase]:
    static = {"weights": states.weights, "adapters": states.adapters, **extra.models}
    kept = {
        **static,
        "optimizer states": states.optimizer,
        "fp32 masters": states.masters,
        "buckets": states.buckets,
        "rollout engine": extra.engine_in_training,
    }
    step = step_of(s, shape)
    first, last = waiting_bytes(s, step)
    tower = tower_bytes(s, shape)
    kept["vision tower"] = tower.kept + tower.pixels
    kept["outputs of the step before"] = _outputs(s, shape)
    wrapped = extra_of(s, shape, states)
    phases = {"load": _phase(static)}
    for name in _STEP_PHASES:
        if name in step.phases:
            waiting, running = fullest(s, step, name, wrapped)
            terms = merged({**kept, "activations": waiting}, running)
            if name == "loss" and s.upcast.startswith("script"):  # the new outputs have taken the old ones' name
                del terms["outputs of the step before"]
            if s.fused_ce and name == "loss":
                # The fused loss runs between forward and backward, at the fullest point of the saved activations.
                full = step.at_part("loss", "logits", "saved", s.tokens, s.square, wrapped)
                loss = merged({**kept, "activations": last}, full)
                terms = merged(loss, {"logits and loss": chunked_loss_bytes(s, shape)})
            phases[name] = _phase(terms)
    for name, moments in moments_of(s, shape, step.saved_bytes(s.tokens, s.square)).items():
        for moment in moments:
            phases[name] = fuller(phases[name], _phase(merged({**kept, "activations": first}, moment)))
    if tower.forward:
        late = {"gradients": states.gradients * (1 - shape.vision.params / shape.params if shape.vision else 1)}
        for name, size, more in (("forward", tower.forward, {}), ("backward", tower.backward, late)):
            if size:
                found = _phase({**kept, **more, "vision tower": size + tower.pixels})
                phases[name] = fuller(phases[name], found)
    kept["vision tower"] = tower.pixels
    phases["optimizer-step"] = _phase({**kept, "gradients": states.reduced, "optimizer temporaries": states.step})
    if extra.critic:
        phases = with_critic(extra.critic, shape, phases, kept, states)
    if s.eval_batch:
        phases["evaluation"] = _phase(merged(kept, evaluation_terms(s, shape)))
    if s.job.log_prob_batch and s.job.objective in ONLINE:
        phases["log-probabilities"] = _phase(merged(kept, log_prob_terms(s, shape)))
    # A whole state dict is gathered unit by unit, and each unit moved to rank 0's host memory.
    unit = float(shape.largest_params) / s.tp * s.param_bytes if s.sharding in GATHERED else 0.0
    phases["save"] = _phase({**kept, "gathered weights": unit})
    if extra.engine:
        resting = {k: v for k, v in kept.items() if k != "rollout engine"}
        phases["rollout"] = _phase({**resting, "rollout engine": extra.engine})
        phases["weight-sync"] = _phase(
            {
                **kept,
                "rollout engine": max(extra.engine_in_training, extra.engine_weights),
                "gathered weights": shape.largest_params * 2.0,
            }
        )
    return phases


def _outputs(s: Setting, shape: ModelShape) -> float:
    """Logits, and keys and values, that the loop's names hold: of the step before in forward, of this one after it."""
    d = shape.dims
    cached = 2.0 * s.tokens * d.kv_width / s.tp * s.compute_bytes * d.layers / s.pp if keeps_cache(s.job) else 0.0
    return s.tokens * d.vocab / s.tp * kept_logits(s.job, s.compute_bytes) + cached


def _offloaded_activations(s: Setting, shape: ModelShape) -> float:
    """Host memory of one machine: all that backward needs, or with checkpointing the layers' inputs."""
    if s.ckpt != "offload" and "activations" not in s.offload:
        return 0.0
    if s.job.grad_ckpt is False:
        return step_of(replace(s, ckpt="none"), shape).saved_bytes(s.tokens, s.square) * s.gpus_per_node
    return s.tokens * shape.dims.hidden * s.compute_bytes * shape.layer_count / s.pp * s.gpus_per_node


def _serving(
    s: Setting, shape: ModelShape, device: Device | None, shapes: Mapping[str, ModelShape], warnings: list[Note]
) -> Estimate:
    found = serving_bytes(s, shape, device, shapes)
    warnings += found.warnings
    static = {"weights": found.weights, "draft model": found.drafts}
    running = {"kv cache": found.cache_bytes, "activations": found.activations, "CUDA graphs": found.graphs}
    phases = {"load": _phase(static), "serving": _phase({**static, **running})}
    if found.by_engine:
        return _by_engine(s, shape, device, phases, warnings, found)
    return _finish(s, shape, device, phases, warnings, base=found.weights + found.cache_bytes)


def _by_engine(
    s: Setting,
    shape: ModelShape,
    device: Device | None,
    phases: Mapping[str, Phase],
    warnings: list[Note],
    found: ServingBytes,
) -> Estimate:
    """An engine allocates its pool once: nothing comes and goes that the allocator would keep beside it."""
    capacity, process = capacity_bytes_of(s.job, device), found.process
    meters = {"allocated": found.allocated, "reserved": found.allocated, "process": process}
    width = 1.0 if shape.known else 1.5
    return Estimate(
        allocated_bytes=found.allocated,
        reserved_bytes=found.allocated,
        process_bytes=process,
        intervals={n: intervals.interval("serving", v, width=width, most=capacity) for n, v in meters.items()},
        phases=phases,
        peak_phase="serving",
        params=shape.params,
        trainable=0,
        capacity_bytes=capacity,
        needed_bytes=process - found.cache_bytes + found.needed_bytes,
        fits_probability=None if capacity is None else start_probability(found, process, capacity),
        host_bytes=found.host,
        host_most_bytes=found.host,
        image_tokens=images_of(s.job, shape).tokens,
        assumed=s.assumed,
        warnings=tuple(dict.fromkeys(warnings)),
        served=found,
        sources=SOURCES,
    )


def _finish(
    s: Setting,
    shape: ModelShape,
    device: Device | None,
    phases: Mapping[str, Phase],
    warnings: list[Note],
    *,
    base: float,
    host: tuple[float, float, float] = (0.0, 0.0, 0.0),
    trainable: int = 0,
    paged: float = 0.0,
    loaded: float = 0.0,
) -> Estimate:
    peak = max(phases, key=lambda name: phases[name].total_bytes)
    capacity = capacity_bytes_of(s.job, device)
    if s.dynamic and s.ckpt != "none":  # inputs of checkpoints are many small blocks of one size each
        base += phases[peak].terms_bytes.get("activations", 0.0)
    # Blocks of weights that were loaded whole stay cached, and only what comes and goes finds room in them.
    apart = apart_of(s, shape) + max(0.0, loaded - max(0.0, phases[peak].total_bytes - base))
    found = meters(s, phases, base, device, capacity=capacity, paged=paged, apart=apart)
    if loaded > phases[peak].total_bytes:
        peak, phases = "load", {**phases, "load": Phase({"weights": loaded})}
        found = replace(found, allocated=loaded, needed=max(found.needed, loaded * 1.01 + outside_bytes(s, device)))
    evicted = found.evicted * max(1, min(s.world, s.gpus_per_node))
    offloaded, most = host[0] + evicted, host[1] + evicted
    script = intervals.is_script(s.job)
    if script:
        warnings.append(intervals.SCRIPT)
    fits = None
    if capacity is not None:
        sigma = intervals.needed_sigma(s, known=shape.known, doubted=bool(warnings))
        starts = all(warning.key != "estimate.rollout-short" for warning in warnings)
        fits = fits_probability(found.needed, sigma, capacity) if starts else 0.0

    def spans() -> dict[str, Interval]:
        traced = not s.cuda and not script and "torch" in s.job.versions  # reference kernels
        exact = traced and intervals.is_complete(s) and shape.known
        width = intervals.width_of(s, known=shape.known)
        return {
            meter: intervals.interval(
                "exact" if exact and meter == "allocated" else intervals.group_of(meter, s, met=not script),
                value,
                width=width,
                most=most,
                least=intervals.shortest(s, meter, phases),
            )
            for meter, value, most in (
                ("allocated", found.allocated, None),
                ("reserved", found.reserved, capacity),
                ("process", found.process, capacity),
            )
        }

    return Estimate(
        allocated_bytes=found.allocated,
        reserved_bytes=found.reserved,
        process_bytes=found.process,
        intervals=Later(spans),
        phases=phases,
        peak_phase=peak,
        params=shape.params,
        trainable=trainable,
        host_bytes=offloaded,
        host_most_bytes=most,
        nvme_bytes=host[2],
        sequence_tokens=int(s.seq) if s.training else 0,
        image_tokens=s.images.tokens,
        host_phases=Later(lambda: {n: _phase(t) for n, t in host_phases(s, shape, offloaded).items()}),
        capacity_bytes=capacity,
        needed_bytes=found.needed,
        fits_probability=fits,
        assumed=s.assumed,
        warnings=tuple(dict.fromkeys(warnings)),
        sources=SOURCES,
    )


def _phase(terms: Mapping[str, float]) -> Phase:
    """What is less than nothing (a model has fewer layers than were played) comes off the term that it belongs to."""
    held = {name: size for name, size in terms.items() if size >= 1.0}
    if len(held) < len(terms) and held and (missing := sum([size for size in terms.values() if size <= -1.0])):
        within = _LAYER if held.get(_LAYER, 0.0) > -missing else max(held, key=held.__getitem__)
        held[within] += missing
    return Phase(held)
