"""Gathers: whole layers, buckets and prefetches of sharded training.

Sign
    The trace ends in ``all_gather``, ``unshard``, ``fetch_sub_module``, ``reduce_scatter`` or in a context that
    gathers parameters for generation. The request equals a whole weight matrix: 152064 x 5120 x 2 B = 1.45 GiB
    under ZeRO-3.
Mechanism
    ZeRO-3 and FSDP keep a shard but compute with whole layers: a 70B layer is 1.6 GiB in 16 bit, its embedding 2
    GiB, in and out copies and the prefetched next layer beside it. ``reduce_bucket_size``,
    ``stage3_prefetch_bucket_size`` and ``stage3_max_live_parameters`` are counts of elements, 2 bytes each: 2e9 is
    4 GiB. Generation under ZeRO-3 or the hybrid engine may gather the whole model on every GPU: 131 GiB for a 70B.
Confirm
    The request is the size of one unsharded matrix or of a bucket and does not change with the batch.
Fix
    Buckets back to "auto" or 5e7; smaller prefetch and live-parameter limits; do not gather for generation
    (``ds3_gather_for_generation=false``) or use an engine; wrap each decoder layer; reshard after forward; limit
    FSDP's all-gathers; tensor parallelism for the largest matrices.
Cost
    Smaller buckets and less prefetch mean more, smaller messages: a few per cent on fast links.
"""

from collections.abc import Iterator
from typing import Final

from oomdoc.diagnosis.result import Reason
from oomdoc.diagnosis.rules._sizes import peak_share, tensor_reasons
from oomdoc.diagnosis.view import DECISIVE, FAIR, STRONG, Clue, View, weigh_clues
from oomdoc.messages import say
from oomkb.units import GIB

__all__ = ["CAUSE", "weigh"]

CAUSE: Final = "zero3-gather"

_CLUES: Final = (
    Clue(
        "trace",
        DECISIVE,
        frames=r"all_?gather(?!_(?:bucket|partition|object|keys))|reduce_and_partition|unshard|_fsdp_param"
        r"|fetch_sub_module"
        r"|partition_parameters"
        r"|partitioned_param"
        r"|gathered_?param|summon_full"
        r"|reduce_scatter(?![\"']? ?[:=])|allreduce_bucket|(?<!_)prefetch(?!_bucket|_factor|_policy)"
        r"|unwrap_model_for_generation|reduce_ipg|flat_param",
    ),
    Clue(
        "said",
        STRONG,
        says=r"(?:(?:reduce|allgather|prefetch|ipg)_?bucket(?:_size)?|(?<!_)bucket_size|max_live_param\w{0,6}"
        r"|overlap_comm)(?![\w\"':=]| [:=])"
        r"|hybrid_engine|(?:deepspeed|step.?3|inference_tp)[^\n]{0,60}hybrid.engine|hybrid.engine[^\n]{0,60}(?:zero"
        r"|gather|inference_tp)"
        r"|unwrap_model_for_generation"
        r"|gather\w{0,3} (?:all |the |every )?(?:entire |whole |full )?(?:param|model|weight)"
        r"|all.?gather(?!_(?:bucket|partition|object|keys))"
        r"|ds3_gather|fetch(?:ing)? (?:the )?param|\bunshard|reshard_after_forward|z3_leaf"
        r"|leaf_module"
        r"|sync_ref(?:erence)?_model|syncrefmodel|reduce.?scatter(?![\"'=:]| [:=])|communication buffer"
        r"|bucket sizes? (?:is|are|in|调)|聚合(?:参数|专家|权重|后)|gather\w{0,3} (?:one|a|full"
        r"|all) [^\n]{0,16}(?:layer|param|expert|weight|model)|wrap policy|(?:remov\w{1,3}|without|dropp\w{2,3}"
        r"|delet\w{1,3}|no|去掉|删掉?|没有?[加设]) [^\n]{0,40}layer_cls_to_wrap"
        r"|layer class to wrap|没有按层",
    ),
    Clue(
        "third-stage",
        STRONG,
        says=r"(?:zero|stage|\bz).{0,6}3\b[^\n]{0,30}(?:\bmore\b|higher|larger|更[^\n]{0,6}(?:多|高|大|消耗"
        r"|占))[^\n]{0,40}(?:zero|stage|\bz)"
        r".{0,6}[12]\b|(?:zero|stage|\bz).{0,6}2\b[^\n]{0,16}(?:works?|runs?|fine|fits|\bok\b|可以|能跑|没问题"
        r"|正常)[^\n]{0,30}(?:zero|stage"
        r"|\bz).{0,6}3\b[^\n]{0,16}(?:oom|fail|out of|爆|不行)|zero.?3[^\n]{0,24}反而[^\n]{0,10}(?:oom|爆|更)"
        r"|(?:zero|stage)[^\n]{0,8}3 ?比 ?[^\n，。]{0,16}[12][^\n，。]{0,12}更[^\n，。]{0,6}(?:耗|多|高|大|占)"
        r"|zero.?3[^\n]{0,30}(?:oom|爆)[^\n]{0,30}(?:不用|不启动|去掉|without|disabl\w{1,3}) ?(?:deepspeed|zero)",
    ),
)
_BUCKETS: Final = (
    "reduce_bucket_size",
    "allgather_bucket_size",
    "stage3_prefetch_bucket_size",
    "stage3_max_live_parameters",
)


_SPLIT: Final = (
    r"differentiableallgather|tensor_parallel/(?:mappings|layers)|(?:from|to)_tensor_(?:model_)?parallel"
    r"|gather_from_(?:tensor|sequence|model)|sequence_parallel_region|sequenceparallel|tp_all_?gather"
    r"|tensor_model_parallel_all"
)
"""Collectives of tensor parallelism move activations: no shard of weights is gathered by them."""


def weigh(view: View) -> Iterator[Reason]:
    """Only where something is sharded and trained: a server's all-gather is part of its activations."""
    if view.serving:
        return
    yield from weigh_clues(view, CAUSE, _CLUES)
    if (view.traces(_SPLIT) or view.says(_SPLIT)) is not None:
        yield Reason(-DECISIVE, say("cause.out-of-place"))
    yield from tensor_reasons(view, CAUSE)
    yield from peak_share(view, CAUSE)
    for name in _BUCKETS:
        size = view.setting(name)
        if isinstance(size, int | float) and 2 * size >= 2 * GIB and name != "stage3_max_live_parameters":
            yield Reason(FAIR, say("cause.zero3-gather.bucket", key=name, size_bytes=2 * size))
            break
    if view.setting("enable_hybrid_engine") not in (None, False):
        yield Reason(STRONG, say("cause.zero3-gather.hybrid-engine"))
