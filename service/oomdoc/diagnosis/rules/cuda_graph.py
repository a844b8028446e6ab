"""CUDA graphs and compilation: captured graphs keep their own memory.

Sign
    The engine fails while "capturing CUDA graphs", or serves with more memory than its share; with
    ``--enforce-eager`` it starts. ``torch.compile`` or its autotuning is what allocates.
Mechanism
    A captured graph keeps its intermediate buffers in a private pool for each batch size: 0.5 to 3 GiB per GPU for
    dozens of sizes. Several engine versions capture after the KV cache has taken the rest of
    ``gpu_memory_utilization``, outside that budget. Compilation's autotuning runs candidates with real buffers.
Confirm
    Start once with ``--enforce-eager`` (or without ``torch.compile``) and compare ``nvidia-smi``.
Fix
    Lower ``gpu_memory_utilization`` by two or three points; fewer and smaller capture sizes; ``max_num_seqs``;
    eager mode as the last resort.
Cost
    Eager mode slows decoding of small batches by 10 to 50 %.
"""

from collections.abc import Iterator
from typing import Final

from oomdoc.diagnosis.result import Reason
from oomdoc.diagnosis.rules._sizes import peak_share
from oomdoc.diagnosis.view import DECISIVE, FAIR, STRONG, WEAK, Clue, View, weigh_clues
from oomdoc.messages import say

__all__ = ["CAUSE", "weigh"]

CAUSE: Final = "cuda-graph"

_CLUES: Final = (
    Clue(
        "trace",
        DECISIVE,
        frames=r"capture_model|cuda_graph_runner|capture_graph|graph_capture|cudagraph|capture_begin"
        r"|capture_end|cuda[/\\.]graphs\.py",
    ),
    Clue(
        "said",
        DECISIVE,
        says=r"captur\w{1,4} (?:the )?(?:cuda ?|acl ?)?graphs?|cuda ?graphs?\b|graph capture|(?:at|during"
        r"|in) capture\b|capture cuda graph|graph capturing|捕获.{0,8}(?:graph|图)|graph mode"
        r"|graph[^\n]{0,16}warm.?up|warm.?up[^\n]{0,16}graph|图模式"
        r"|graphs? (?:are |is )?captured|decode graphs?|piecewise|图捕获|(?:关闭|编译) ?graph|memory for graphs"
        r"|graph pool|deep_?gemm[^\n]{0,12}warm.?up",
    ),
    Clue(
        "workspace",
        WEAK,
        says=r"cublas_status_alloc_failed|cudnn_status_alloc_failed|cublas(?:lt)? workspace|cublascreate"
        r"|cublas[^\n]{0,24}(?:handle|工作区|分配)|cudnn workspace",
        unless=r"not_initialized",
    ),
    Clue(
        "eager-helps",
        DECISIVE,
        says=r"\b(?:works?|fine|ok|starts?|runs?|fits?|loads?|serves?|no oom|helps?|solved?|fixe[sd])\b[^\n.]{0,30}"
        r"\b(?:with|using|under|in|if|when|by|after|once)\b[^\n.]{0,24}(?:enforce.?eager|eager mode"
        r"|disable.?cuda.?graph)"
        r"|(?:enforce.?eager|eager mode|disable.?cuda.?graph)\w{0,4}[^\n.]{0,50}(?:\bworks?\b|\bfine\b|\bstarts?\b"
        r"|\bhelps"
        r"|\bsolve[sd]|\bfixe[sd]|no oom|\bfits\b|\bruns\b|\bavoids?|可以|正常|解决|就好)",
        unless=r"(?:not|n'?t|no|even|still|didn'?t) [^\n.]{0,30}(?:enforce.?eager|eager mode)"
        r"|(?:enforce.?eager|eager mode)[^\n.]{0,30}(?:not|n'?t|still|no effect)",
    ),
    Clue(
        "eager",
        FAIR,
        says=r"(?<!--)enforce.?eager(?!['\"]? ?[=:] ?(?:false|true))|eager mode|disable.?cuda.?graph",
    ),
    Clue(
        "capturing",
        STRONG,
        signals=("vllm-graph-capture", "sglang-graph-capture"),
        phases=("engine-init", "unknown"),
        unless=r"graph capturing finished",
    ),
    Clue(
        "compiled",
        STRONG,
        says=r"(?:without|disabl\w{1,3}|no) (?:torch\.?)?compil\w{0,4}[^\n]{0,40}(?:no oom|works|fine|fits|runs)"
        r"|torch\.compile[^\n]{0,24}(?:leads? to|causes?|makes?|oom|out of mem)"
        r"|(?:memory|oom|vram)\b[^\n]{0,30}\b(?:during|while|in|at) (?:the )?compil(?:ation|ing|e time)"
        r"|(?:first )?compil\w{1,3} (?:step|of the model)[^\n]{0,30}more memory|autotun\w{1,5}[^\n]{0,30}(?:allocat"
        r"|memory|oom)|编译[^\n]{0,12}(?:显存|oom|爆)",
    ),
    Clue("compiler", FAIR, says=r"torch\.compile|torchinductor|max-autotune|reduce-overhead|cudagraph_mode"),
)


def weigh(view: View) -> Iterator[Reason]:
    """Capture in the trace or the log, and a budget that leaves nothing beside it."""
    reasons = list(weigh_clues(view, CAUSE, _CLUES))
    if view.serving and _is_eager(view) and not any(r.message.key.endswith(".eager-helps") for r in reasons):
        yield Reason(-STRONG, say("cause.out-of-place"))
    yield from reasons
    yield from peak_share(view, CAUSE)
    share = view.stated("serving.gpu_memory_utilization")
    if reasons and view.serving and share is not None and share >= 0.93:
        yield Reason(FAIR, say("cause.cuda-graph.share", share=share))


_EAGER: Final = r"--enforce.?eager(?!['\"]? ?[=:] ?false)|enforce.?eager['\"]? ?[=:] ?true\b|--disable.?cuda.?graph\b"


def _is_eager(view: View) -> bool:
    """Whether the engine is told to capture no graphs."""
    return view.says(_EAGER) is not None or view.setting("enforce_eager") is True
