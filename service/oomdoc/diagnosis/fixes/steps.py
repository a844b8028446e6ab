"""Instructions: what somebody has to do that is no setting of the job, each with the line to type."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from oomdoc.diagnosis.fixes._remedy import (
    Context,
    Safety,
    Variant,
    is_lora,
    is_preference,
    is_rl,
    remedy,
    step,
    world_size,
)
from oomdoc.diagnosis.fixes.hardware import has_bitsandbytes
from oomdoc.diagnosis.fixes.host_memory import ZERO_FIRST
from oomdoc.diagnosis.fixes.sharding import launch_line
from oomdoc.evidence import Message, say
from oomkb.catalog import gpus
from oomkb.frameworks import in_range
from oomkb.frameworks import line as line_of
from oomkb.memory.job import Job
from oomkb.memory.ranks import FSDP
from oomkb.records.versions import is_near

_OF_WEIGHTS: Final = frozenset({"weights-load", "model-states", "extra-models", "hardware-limit"})
_OF_WORK: Final = frozenset({"activations", "attention-scores", "vision-tokens", "long-sample"})
_MIN_TOKENS: Final = 2048
_MAX_NAMED: Final = 8
"""Processes that are named."""
_WORTHWHILE: Final = 0.2
"""Share of the card from which an engine has use for what is free."""
_LOOK: Final = {
    "nvidia": "nvidia-smi --query-compute-apps=pid,used_memory,process_name --format=csv",
    "amd": "rocm-smi --showpids",
    "huawei": "npu-smi info",
}
_CHOOSE: Final = {
    "nvidia": "CUDA_VISIBLE_DEVICES",
    "amd": "HIP_VISIBLE_DEVICES",
    "huawei": "ASCEND_RT_VISIBLE_DEVICES",
}
"""What shows the processes on a maker's cards, and the variable that names those of a run."""
_PROCESSOR: Final = "processor = AutoProcessor.from_pretrained(model_id, max_pixels=401408)  # 512 tokens an image"
_SET_DEVICE: Final = "torch.cuda.set_device(int(os.environ['LOCAL_RANK']))"
_OWN_MAP: Final = "from_pretrained(..., device_map={'': int(os.environ['LOCAL_RANK'])})"
_SHARDED_DICT: Final = (
    "FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT); torch.distributed.checkpoint.save(...)"
)
_ON_RANK_0: Final = "StateDictType.FULL_STATE_DICT, FullStateDictConfig(offload_to_cpu=True, rank0_only=True)"
"""torch/distributed/fsdp/api.py, PyTorch 1.12-2.8."""
_ON_HOST: Final = "from_pretrained(..., device_map='cpu', torch_dtype=torch.bfloat16)"
_ADAPTER: Final = "torch.save({n: p.detach().cpu() for n, p in model.named_parameters() if p.requires_grad}, path)"
_INTO_HOST: Final = "get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))"
_IN_PARTS: Final = "torch.distributed.checkpoint.save(get_model_state_dict(model), checkpoint_id=path)"
"""torch/distributed/checkpoint/state_dict.py, PyTorch 2.2-2.8: with both options only rank 0 gets the whole."""
_STORAGE: Final = "BitsAndBytesConfig(load_in_4bit=True, ..., bnb_4bit_quant_storage=dtype_of_the_model)"
"""FSDP shards packed 4-bit weights since bitsandbytes 0.43; DeepSpeed's engine leaves them whole on every GPU."""


@remedy("same-numbers", "any", causes=["inactive-setting"])
def activate_setting(job: Job, context: Context) -> Iterator[Variant]:
    """A memory-saving setting that is written down but not in effect: put it where it is read."""
    inactive = context.facts.get("inactive", ())
    if job.quant in _FOUR_BIT and job.sharding == "zero3":
        yield step("load-sharded.four-bit", 0.2, line=context.line("load-sharded", _STORAGE))
        return
    for found in inactive:
        why = found["reason"]
        if not isinstance(why, Message):
            why = say(str(why), **{"setting": found["setting"], **found.get("values", {})})
        yield step("activate-setting.how", 0.5, setting=found["setting"], why=why)
    if world_size(job) == 1 and (job.sharding or "").startswith(("zero", "fsdp")):
        yield step("all-processes.how", 0.5, line=launch_line(context, max(2, (job.gpus or 1) + context.spare_gpus)))
    if not inactive:
        yield step("activate-setting.check-run" if context.serving else "activate-setting.check", 0.5)


@remedy("same-numbers", "any", causes=["fragmentation"])
def allocator(job: Job, context: Context) -> Iterator[Variant]:
    """Allocator settings, when and only when fragmentation explains the failure.

    ``expandable_segments`` lets PyTorch (2.1 and later) grow its blocks instead of stranding them; before that, and
    where vLLM's sleeping engine keeps its memory in a pool that expandable segments break, ``max_split_size_mb`` keeps
    large blocks from being cut up. Neither makes a job smaller. PyTorch notes on CUDA memory management.
    """
    export = f"export {context.facts.get('allocator_variable', 'PYTORCH_CUDA_ALLOC_CONF')}="
    conf = " ".join(v for k, v in job.env.items() if k.endswith("ALLOC_CONF")).lower()
    if context.serving and not context.script:
        return
    if in_range("<2.1", context.versions.get("torch")) or job.get("rollout.sleep") is True or is_rl(job):
        if "max_split_size_mb" not in conf:
            yield step("allocator.how", 0.3, line=f"{export}max_split_size_mb:128")
    elif "expandable_segments:true" not in conf and not context.facts.get("expandable"):
        yield step("allocator.how", 0.2, line=f"{export}expandable_segments:True")
    else:
        yield step("allocator.shapes", 0.4)


@remedy("same-numbers", "any", causes=["version-regression"])
def change_version(job: Job, context: Context) -> Iterator[Variant]:
    """Another version of a library: up to the release that fixes a memory regression, or back to the last good one.

    Which versions are affected is read from the case records (ranges in the manner of OSV); the context carries the
    match.
    """
    worked = context.facts.get("worked_with")
    if worked is not None:
        package, version = worked
        words = "change-version.worked" if package else "change-version.worked-plain"
        yield step(words, 0.1, version=version, line=f'pip install "{package}=={version}"')
    for found in context.facts.get("regressions", ()):
        if worked is not None and not found["affected"]:
            continue
        package, used, fixed, good = (found.get(name) for name in ("package", "used", "fixed", "last_good"))
        if used is None:
            yield step("change-version.check", 0.2, package=package, line=f"pip show {package}")
        if fixed:
            line = f'pip install "{package}>={fixed}"'
            yield step("change-version.up", 0.6, package=package, version=fixed, line=line)
        if good and (not fixed or is_near(used, good)):
            line = f'pip install "{package}=={good}"'
            yield step("change-version.down", 0.7, package=package, version=good, line=line)


@remedy("same-numbers", "any", causes=_OF_WEIGHTS | _OF_WORK)
def diffusion_pipeline(job: Job, context: Context) -> Iterator[Variant]:
    """Pipelines that make images or video: their parts one after the other on the GPU, smaller weights, smaller tiles.

    A pipeline's text encoders, transformer and decoder are needed one at a time. The lines are those of the library's
    record.
    """
    library = context.facts.get("pipeline")
    trained = job.objective not in (None, "inference")
    if library is None or (trained and line_of(library, "pipeline-encoders") is None):
        return
    work, weights = (context.causes[0] in causes for causes in (_OF_WORK, _OF_WEIGHTS))
    steps = ("tiles", "offload", "size") if work else ("offload", "quantize") if weights else ()
    if trained and (work or weights):
        both = line_of(library, "pipeline-trained-quantize") is not None  # a library that runs pipelines as well
        steps = ("encoders", "trained-quantize", "trained-size") if both else ("encoders", "quantize", "size")
    device = context.device or (gpus.find(job.gpu) if job.gpu else None)
    mac = bool(context.facts.get("mps"))
    shared = mac or (device is not None and device.unified)  # the host's memory is the GPU's
    lacks_kernels = (mac or not has_bitsandbytes(device)) and line_of(library, "pipeline-quantize-gguf") is not None
    for rank, name in enumerate(steps):
        own = "quantize-gguf" if lacks_kernels and name == "quantize" else name
        if (line := line_of(library, f"pipeline-{own}")) is not None and not (shared and name == "offload"):
            word = name.removeprefix("trained-")
            safety: Safety | None = "changed-numerics" if word == "quantize" else None
            yield step(f"diffusion-pipeline.{word}", 0.3 + 0.2 * rank, safety, line=line)


@remedy("changed-numerics", "any", causes=["activations"])
def calibration(job: Job, context: Context) -> Iterator[Variant]:
    """Quantising a model: the samples it is calibrated with pass each layer, all at once unless a bound is set.

    AutoAWQ 0.2.7 ``awq/quantize/quantizer.py``; llm-compressor ``oneshot`` and GPTQModel take the same two sizes.
    """
    if context.facts.get("calibrates"):
        yield step("calibration.parallel", 0.2, line=_AWQ_PARALLEL)
        yield step("calibration.fewer", 0.4, line=_FEWER_SAMPLES)


_AWQ_PARALLEL: Final = "model.quantize(..., n_parallel_calib_samples=1)"
_FEWER_SAMPLES: Final = (
    "max_calib_samples=64, max_calib_seq_len=512 (llm-compressor: num_calibration_samples, max_seq_length)"
)


@remedy("same-numbers", "training", "rl", causes=["logits", "activations", "long-sample"])
def entropy_chunks(job: Job, context: Context) -> Iterator[Variant]:
    """verl: entropy worked out piece by piece, and micro-batches bounded by tokens instead of samples.

    ``entropy_from_logits`` makes a softmax of all tokens times all words beside the logits; the chunked form takes
    2,048 rows at a time (verl 0.4, ``verl/utils/torch_functional.py``). With dynamic batches a micro-batch holds a
    number of tokens, so that eight long answers are no longer one micro-batch.
    """
    entropy, batch = (line_of(context.framework, name) for name in ("entropy-chunks", "dynamic-batch"))
    if entropy is None or batch is None or context.phase in ("engine-init", "generate", "load"):
        return
    if "logits" in context.causes[:2]:
        yield step("entropy-chunks.how", 0.3, line=entropy)
    if job.micro_tokens is None and (job.micro_batch or 1) > 1:
        longest = max(_MIN_TOKENS, (job.prompt_len or 0) + (job.completion_len or 0), job.seq_len or 0)
        yield step("entropy-chunks.dynamic", 0.5, line=batch.replace("{tokens}", str(longest)))


@remedy("same-numbers", "any", causes=["eval"])
def evaluation(job: Job, context: Context) -> Iterator[Variant]:
    """Evaluation that fits: one sample at a time, predictions moved off the GPU, logits reduced before they are kept.

    The Trainer concatenates every batch's logits on the GPU until evaluation ends unless told otherwise (transformers
    4.28-5.23, ``eval_accumulation_steps``).
    """
    if context.serving:
        yield step("evaluation.move", 0.3, line="outputs.append(out.cpu())")
        yield step("evaluation.batch", 0.4)
        return
    if not context.has("eval"):
        return
    logits = line_of(context.framework or "transformers", "evaluation-logits")
    keeps = bool(context.facts.get("keeps_predictions"))
    kept = step("evaluation.logits", 0.2 if keeps else 1.0, line=context.in_library(f"Trainer(..., {logits})"))
    if logits is not None and keeps:
        # All predictions together: smaller batches only reach the same size later, and the host holds them too.
        yield kept
    if not keeps or context.host_holds(_predictions_bytes(job, context)):
        own = context.arguments(per_device_eval_batch_size=1, eval_accumulation_steps=1)
        yield step("evaluation.how", 0.3, line=line_of(context.framework, "evaluation") or own)
    if logits is not None and not keeps:
        yield kept
    if context.has_trainer:
        yield step("evaluation.loss-only", 0.4, line=context.arguments(prediction_loss_only=True))
    else:
        yield step("evaluation.no-grad", 0.4, line="with torch.no_grad(): outputs.append(model(**batch).loss.item())")


def _predictions_bytes(job: Job, context: Context) -> float:
    """The fp32 logits of all samples of an evaluation, as far as their number is known."""
    samples, shape = context.facts.get("samples") or 0, context.shape
    return 4.0 * samples * (job.seq_len or 0) * shape.dims.vocab if shape is not None else 0.0


@remedy("changed-training", "any", causes=["vision-tokens", "attention-scores"])
def image_size(job: Job, context: Context) -> Iterator[Variant]:
    """A limit on the size of images where none is set: by default a single photo may become thousands of tokens.

    Qwen2-VL and Qwen2.5-VL take up to 12,845,056 pixels, 16,384 tokens of 28 x 28 (``preprocessor_config.json``);
    401,408 pixels are 512 tokens. Where a limit is set, ``pixels`` lowers it.
    """
    of_images = "vision-tokens" in context.causes[:2] or context.facts.get("in_vision_tower")
    if not (of_images or context.facts.get("images_decide")) or context.facts.get("pipeline"):
        return
    limited, video = (line_of(context.framework, name) for name in ("image-limit", "video-size"))
    if job.max_pixels is None and context.facts.get("image_limit_named"):
        yield step("image-size.reaches", 0.4, line=_BATCH_SHAPES)
    elif job.max_pixels is None and limited is not None:
        yield step("image-size.limited", 0.5, line=limited)
    elif job.max_pixels is None:
        yield step(
            "image-size.how", 0.5, line=line_of(context.framework, "image-size") or context.in_library(_PROCESSOR)
        )
    if job.video_frames and video is not None:
        yield step("image-size.video", 0.6, line=video)


_BATCH_SHAPES: Final = "print(batch['input_ids'].shape, batch['pixel_values'].shape)"


@remedy("same-numbers", "any", causes=["other-process"])
def kill_processes(job: Job, context: Context) -> Iterator[Variant]:
    """End what else holds the GPU: stale runs, notebooks, servers, other people's jobs (ask them)."""
    if context.facts.get("ranks_on_one_gpu"):
        return
    share = line_of(context.framework, "share")
    if context.facts.get("several_engines") and share is not None:
        yield step("kill-processes.own", 0.1, line=share)
    free = context.facts.get("engine_free_share")
    if free and free >= _WORTHWHILE and context.has("serving.utilization"):
        yield step("kill-processes.share", 0.2, line=f"--gpu-memory-utilization {int(100 * free - 1) / 100:.2f}")
    holders = list(context.facts.get("holders", ()))[:_MAX_NAMED]
    maker = context.device.vendor if context.device is not None else str(context.facts.get("maker"))
    pids = [pid for pid, _, _ in holders]
    if holders:
        named = [
            say("fixes.kill-processes.holder", name=command.rpartition("/")[2], pid=pid, held_bytes=held)
            for pid, command, held in holders
        ]
        yield step("kill-processes.held", 0.2, holders=named)
    else:
        yield step("kill-processes.look", 0.2, line=_LOOK.get(maker, _LOOK["nvidia"]))
        pids = [int(p) for p in context.facts.get("pids", ()) if str(p).isdigit()][:_MAX_NAMED]
    yield step("kill-processes.how", 0.3, line=f"kill {' '.join(map(str, pids)) or 'PID'}")
    yield step("kill-processes.elsewhere", 0.3, line=f"{_CHOOSE.get(maker, _CHOOSE['nvidia'])}=N ...")


@remedy("same-numbers", "training", causes=["optimizer-init", "weights-load", "other-process"])
def load_sharded(job: Job, context: Context) -> Iterator[Variant]:
    """Load the weights where they belong: in their own dtype, once, sharded or quantised from the start."""
    own = context.framework is None or context.has_trainer
    if own and "optimizer-init" in context.causes[:1] and context.phase == "load":
        yield step("load-sharded.states", 0.5, line="torch.load('optimizer.pt', map_location='cpu')")
    elif context.facts.get("resumes") and context.own_code:
        yield step("load-sharded.own-load", 0.2, line="torch.load(path, map_location='cpu')")
        yield step("load-sharded.own-gpu", 0.3, line=_SET_DEVICE)
    elif context.facts.get("ranks_on_one_gpu"):
        yield step("load-sharded.own-gpu", 0.3, line=_OWN_MAP if context.facts.get("device_map") else _SET_DEVICE)
        yield step("load-sharded.own-load", 0.3, line="torch.load(path, map_location='cpu')")
    elif "weights-load" in context.causes[:2] and not context.serving:
        yield from _loaded(job, context)


_HALF: Final = ("bf16", "fp16")
_FOUR_BIT: Final = ("nf4", "nf4-double", "int8")
"""Weights of bitsandbytes, which ZeRO-3 leaves whole on every card."""


def _loaded(job: Job, context: Context) -> Iterator[Variant]:
    four_bit = job.quant in _FOUR_BIT
    if four_bit and job.sharding == "zero3":
        yield step("load-sharded.four-bit", 1.0, line=context.line("load-sharded", _STORAGE))
        return
    dtype = "bfloat16" if context.device is None or context.can("bf16") else "float16"
    narrow = (job.param_dtype in _HALF and "param_dtype" not in job.assumed) or (
        context.facts.get("pipeline") is not None and job.autocast in _HALF
    )
    # A copy that is larger than the card in 16 bits needs fewer bits or several cards; a trainer that is configured
    # loads for itself.
    own_code = line_of(context.framework, "arguments") not in ("yaml", "flags") or context.facts.get("device_map")
    alone = own_code and not context.facts.get("half_exceeds_card")
    if alone and not four_bit and not narrow:
        loaded = f"from_pretrained(..., torch_dtype=torch.{dtype})"
        yield step("load-sharded.dtype", 0.4, line=context.in_library(loaded))
    if job.sharding == "zero3":
        yield step("load-sharded.zero3", 0.6, line=ZERO_FIRST)
    elif alone and world_size(job) > 1 and job.sharding in (None, "none", "ddp"):
        yield step("load-sharded.own-gpu", 0.5, line=_OWN_MAP)


@remedy("same-numbers", "training", causes=["logits"])
def logits_to_keep(job: Job, context: Context) -> Iterator[Variant]:
    """Compute logits only for the tokens that carry a loss: the prompt's logits are never needed.

    How much it saves depends on the share of prompt tokens, which the job does not tell: advice with the setting's
    name. TRL has the switch in DPO alone, and only up to 0.28.
    """
    line = line_of(context.framework, "logits-to-keep")
    if line is None or job.fused_ce or not context.has("logits_to_keep"):
        return
    if context.framework != "trl" or (is_preference(job) and in_range("<0.29", context.versions.get("trl"))):
        yield step("logits-to-keep.how", 0.5, line=line)


@remedy("same-numbers", "training", causes=["checkpoint-save", "host-ram"])
def save_settings(job: Job, context: Context) -> Iterator[Variant]:
    """Saving without gathering: sharded checkpoints instead of a whole model on one GPU."""
    if "checkpoint-save" not in context.causes and context.phase != "save":
        return
    of_host, functions = bool(context.facts.get("host_failed")), bool(context.facts.get("state_dict_functions"))
    if context.facts.get("merges") and not of_host:
        own = line_of(context.framework, "merge-host")
        yield step("save-settings.merge", 0.3, line=own or context.in_library(_ON_HOST))
        return
    gathers = job.sharding in FSDP and not of_host and (context.own_code or bool(context.facts.get("own_loop")))
    if gathers:
        yield step("save-settings.rank-0", 0.2, line=_INTO_HOST if functions else _ON_RANK_0)
    if is_lora(job) and of_host and context.own_code:
        yield step("save-settings.adapter", 0.3, line="model.save_pretrained('adapter')")
    elif context.own_code and job.sharding not in FSDP and (is_lora(job) or job.method is None):
        yield step("save-settings.adapter-host", 0.3, line=_ADAPTER)
    need: Any = context.facts.get("host_need")
    if need is not None and need.kind == "merge":
        return
    own = line_of(context.framework, "save-settings")
    if own is not None:
        yield step("save-settings.how", 0.4, line=own)
    elif job.sharding == "zero3":
        yield step("save-settings.how", 0.4, line='"stage3_gather_16bit_weights_on_model_save": false')
        if not of_host:
            yield step("save-settings.convert", 0.8, line="python zero_to_fp32.py . output/")
    elif job.sharding in FSDP and context.facts.get("own_loop"):
        yield step("save-settings.how", 0.6, line=_IN_PARTS if functions else _SHARDED_DICT)
        return
    elif job.sharding in FSDP:
        yield step("save-settings.how", 0.4, line=context.in_library("fsdp_state_dict_type: SHARDED_STATE_DICT"))
    if of_host and own is None and context.has("save") and not is_lora(job):
        yield step("save-settings.model-only", 0.4, line=context.arguments(save_only_model=True))


@remedy("same-numbers", "any", causes=["long-sample"])
def worst_batch_first(job: Job, context: Context) -> Iterator[Variant]:
    """Meet the longest batch first: a run that survives its worst batch at step one survives the rest.

    Also the cure for runs that die in the middle on one over-long sample: filter it, or cut it.
    """
    if context.serving or not (context.has_trainer or line_of(context.framework, "cut")):
        yield step("worst-batch-first.cut-plain", 0.6)
        yield step("worst-batch-first.look", 0.8)
        return
    cut = context.line("cut", "dataset = dataset.filter(lambda row: row['length'] <= {length})")
    stated = job.seq_len if "seq_len" not in job.assumed else None
    line = cut.replace("{length}", str(stated // 2) if stated else "N")
    yield step("worst-batch-first.cut", 0.6, line=line, form=cut)
    if context.own_code:
        yield step("worst-batch-first.how", 0.8, line="dataset = dataset.sort('length', reverse=True)")
    else:
        yield step("worst-batch-first.look", 0.8)
