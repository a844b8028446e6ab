"""Rollout engine: generation and training share one GPU.

Sign
    GRPO or PPO with vLLM or SGLang in "colocate" or "hybrid" mode. It fails when the engine wakes up, right after
    generation, or when weights are synchronised; without the engine the same training fits. Memory after "sleep"
    stays high.
Mechanism
    The engine reserves its part of the card, ``gpu_memory_utilization`` x capacity, for its weights and KV blocks:
    0.8 of a 24 GiB card leaves 4.8 GiB for the trainer. Sleeping gives back the blocks (level 1) and the weights
    (level 2), though not CUDA graphs and workspaces. At the switch both copies of the weights may be resident.
    Blocks that the trainer's allocator caches are not available to the engine, as it maps memory itself.
Confirm
    Log ``torch.cuda.mem_get_info()`` before and after sleep and wake-up. Run once with the engine on its own GPU.
Fix
    Lower ``gpu_memory_utilization`` (0.3 to 0.5 beside training); enable sleep mode and offload of the trainer's
    model and optimizer during rollout; empty the allocator's cache before waking; or put the engine on GPUs of its
    own.
Cost
    A smaller share means fewer concurrent sequences and slower generation; separate GPUs idle in turn.
"""

from collections.abc import Iterator
from typing import Final

from oomdoc.diagnosis.result import Reason
from oomdoc.diagnosis.rules._sizes import peak_share
from oomdoc.diagnosis.view import DECISIVE, FAIR, STRONG, WEAK, Clue, View, weigh_clues
from oomdoc.messages import say

__all__ = ["CAUSE", "weigh"]

CAUSE: Final = "rollout-engine"

_CLUES: Final = (
    Clue("mapped-back", STRONG, signals=("cumem-oom",)),
    Clue(
        "trace",
        DECISIVE,
        frames=r"wake_?up|sharding_manager|resume_memory_occupation|update_weights_from|cumem(?:_?allocator|\.py)"
        r"|sleep_level"
        r"|move_model_to_vllm|init_vllm|_init_rollout|build_rollout|self\.llm = llm\(|prepare_vllm|vllmengine\b",
    ),
    Clue(
        "not-released",
        STRONG,
        says=r"(?:vllm|sglang|rollout|engine).{0,80}(?:没让|没有?释放|不释放|未释放|释放.{0,12}延迟"
        r"|not.{0,12}(?:releas|freed"
        r"|free)|woken|wake|resid)"
        r"|release_memory_occupation|(?:\bgrpo|\bppo|rollouts?|generation|sleep\w{0,3}"
        r"|verl)\b[^\n]{0,80}(?:not (?:properly |fully )?(?:released"
        r"|freed)|still (?:in use|occupied|held))",
    ),
    Clue(
        "with-without",
        STRONG,
        says=r"(?:without|disabl\w{1,3}|不使用|不用|关掉).{0,4}(?:vllm|sglang).{0,40}(?:works?|fine|trains?|正常"
        r"|可以)"
        r"|(?:使用|with|using) ?vllm.{0,12}(?:爆|oom|out of)",
    ),
    Clue(
        "share-named",
        STRONG,
        says=r"rollout\.gpu_memory_utilization|vllm_gpu_memory_utilization|rollout_gpu_memory|vllm_gpu_mem",
    ),
    Clue("wakes", STRONG, says=r"\bwak(?:e|es|ing)(?: |_)?up|唤醒|vllm_standby|standby mode"),
    Clue(
        "colocated-said",
        STRONG,
        says=r"refit|use_vllm[\"']?(?: ?[=:] ?| )true|(?:fast_inference|enable_sleep)\b(?! ?[=:] ?false)"
        r"|colocat|(?:verl|vllm|sglang|rollout)[^\n]{0,60}hybrid.?engine|hybrid.?engine[^\n]{0,60}(?:verl|vllm|sglang"
        r"|rollout)|同(?:一张)?卡.{0,12}vllm|(?:vllm|sglang|引擎|推理|训练|rollout)[^\n]{0,20}共用"
        r"|共用[^\n]{0,20}(?:vllm|sglang|引擎|rollout)|(?:vllm|sglang|rollout)[^\n]{0,60}(?:same (?:gpu|card"
        r"|device)"
        r"|compet|together with (?:the )?train)|update_actor|actor update"
        r"|(?:vllm|sglang|engine|rollout)[^\n]{0,40}(?:keeps its|holds? the|占着|beside the|inside the trainer"
        r"|on one card|共卡|抢)|(?:grpo|ppo|\brl\b)[^\n]{0,30}(?:vllm|sglang)[^\n]{0,30}(?:share|same)|(?:sync|update"
        r"|同步|更新)\w{0,4} ?(?:the )?(?:weights?|权重)[^\n]{0,30}(?:vllm|sglang|engine|rollout)|weights? ?sync"
        r"|(?<!a)sync\w{0,4} (?:the )?(?:weights|param)"
        r"|更新 ?actor|(?:权重|参数)同步|同步(?:权重|参数)|(?:同步|传|推送?)(?:权重|参数)?[到给] ?(?:vllm"
        r"|sglang|推理|rollout)|第二轮(?:采样"
        r"|rollout)|second rollout|推理引擎"
        r"|(?:from|between|after) (?:the )?(?:rollout|generation)s?\b[^\n]{0,12}(?:to|and"
        r"|into) (?:the )?(?:train|updat|actor)|rollout[^\n]{0,8}(?:切|转|换)[^\n]{0,6}训练|(?:grpo|ppo"
        r"|\brl\b)[^\n]{0,12}(?:开|用|加|with|using|enabl\w{0,4}) ?vllm|rollout (?:的 ?)?gpu_memory_util"
        r"|gpu_memory_util\w{0,7} [^\n=]{0,16}(?:for|of|in) (?:the )?rollout|(?:vllm|sglang"
        r"|engine)[^\n]{0,40}(?:not|n'?t) (?:being "
        r"|get )?(?:offload|unload)|(?:vllm|sglang) weights"
        r"|(?:vllm|sglang|engine)[^\n]{0,40}(?:during|in|for|at) (?:the )?(?:generation"
        r"|rollout)[^\n]{0,60}(?:backward|train|actor|fsdp)|(?:vllm|sglang|engine|引擎)[^\n]{0,16}(?:not|n'?t"
        r"|never|没有?|不会?) ?(?:go(?:es)? to )?(?:sleep|睡眠|休眠|offload|卸载|让出)|(?:generat\w{1,3}"
        r"|sampl\w{1,3}) with (?:vllm|sglang)[^\n]{0,40}(?:train|same)|updat\w{0,4}_weights|(?:采样"
        r"|生成)(?:阶段)?(?:完|结束)[^\n]{0,30}(?:训练|反向|更新)"
        r"|sleep (?:level|mode)"
        r"|(?:vllm|sglang|推理)[^\n]{0,12}(?:放|在|用)[^\n]{0,3}同一?(?:批|张|块|组|样的?) ?(?:显?卡|gpu)",
    ),
)


_TAKEN: Final = r"free memory on device[^\n]{0,60}less than desired"
_TRAINER: Final = r"rollout|\bverl\b|openrlhf|\bgrpo\b|\bppo\b|\bfsdp\b|actor|\brl\b|\brlhf\b|trainer\b"


def weigh(view: View) -> Iterator[Reason]:
    """Where it fails, what is said of the engine, and its share of the card."""
    yield from weigh_clues(view, CAUSE, _CLUES)
    taken = view.says(_TAKEN)
    if taken is not None and view.says(_TRAINER) is not None:
        yield Reason(STRONG, say("cause.rollout-engine.taken", quote=taken.text.strip()[:90]), (taken,))
    yield from peak_share(view, CAUSE)
    rollout = None if "rollout" in view.job.assumed else view.job.rollout
    if rollout is None or view.serving:
        return
    if rollout.colocated is not False and (rollout.engine or rollout.gpu_memory_utilization):
        share = rollout.gpu_memory_utilization
        weight = FAIR if rollout.colocated and (share is None or share >= 0.5) else WEAK
        yield Reason(weight, say("cause.rollout-engine.colocated", share=share if share is not None else "default"))
    if view.phase in ("rollout", "weight-sync", "generate"):
        yield Reason(WEAK, say("cause.rollout-engine.phase", phase=view.phase))
