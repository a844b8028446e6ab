"""Extra models: reference, reward, critic, teacher or draft models beside the trained one.

Sign
    The same model fits in SFT and fails in DPO, PPO, KTO, GRPO or distillation. Several models of equal size are
    named in the command, each without sharding or offload.
Mechanism
    A frozen model costs 2 bytes per parameter on each GPU, unless it is sharded or offloaded too: four 8B models of
    a PPO run without ZeRO-3 are 60 GiB before gradients. A critic is trained as well and brings its own 16 bytes
    per parameter. With LoRA no reference copy is needed, because switching the adapter off gives the reference.
Confirm
    Add up parameters x 2 bytes for every model that the job loads; compare the memory after loading with it.
Fix
    LoRA, so that the reference is the base itself; ZeRO-3 or FSDP for the frozen models too; keep them on the CPU
    between uses; serve the reward model elsewhere; precompute reference log-probabilities.
Cost
    Precomputing costs one pass over the data and memory afterwards nothing. Offload costs a transfer per use.
"""

from collections.abc import Iterator
from typing import Final

from oomdoc.diagnosis.result import Reason
from oomdoc.diagnosis.rules._sizes import peak_share
from oomdoc.diagnosis.view import FAIR, STRONG, WEAK, Clue, View, weigh_clues
from oomdoc.messages import say

__all__ = ["CAUSE", "weigh"]

CAUSE: Final = "extra-models"

_CLUES: Final = (
    Clue(
        "named",
        STRONG,
        says=r"(?:reference|\bref|reward|critic|teacher|draft|judge|value)[ _-]?model|ref_model|(?:four|three"
        r"|several|4|3) models"
        r"|teacher|precompute_ref|参考模型|奖励模型|(?:教师|评论|老师)模型",
    ),
    Clue(
        "sft-fits",
        STRONG,
        says=r"(?:sft|lora).{0,30}(?:fits|fine|works).{0,60}(?:dpo|ppo|grpo|kto)"
        r"|sft[^\n]{0,30}(?:能跑|能够?|正常|支持|没问题|可以|runs?|trains|fine|works|fits)[^\n]{0,40}(?:dpo|ppo|grpo"
        r"|kto|rlhf)[^\n]{0,60}(?:oom"
        r"|爆|不够|不足|out of|fail|crash|\bnot\b|n't)|(?:orpo|simpo)[^\n]{0,20}(?:works|fits|fine|runs(?! out)|可以"
        r"|正常|能跑)[^\n]{0,30}\bdpo\b",
    ),
    Clue(
        "two-copies",
        FAIR,
        says=r"(?:second|two|2|another) cop(?:y|ies) of the (?:\w{1,10} )?(?:model|weights)|(?:loaded?|resident|held"
        r"|hold\w{0,3}) (?:\w{1,12} ){0,3}(?:twice"
        r"|two models)"
        r"|(?:both|two) (?:\w{1,10} )?models? (?:are )?(?:loaded|resident|share)|two models (?:in|on|at|together"
        r"|fit)\b|(?:policy|student) and "
        r"(?:the )?(?:base|policy|teacher|student|ref\w{0,6})|teacher and (?:the )?student"
        r"|(?:memory|vram|room) (?:for"
        r"|to hold) both (?:the )?(?:\w{1,20} ){1,4}and (?:the )?(?:\w{1,20} ){1,3}models?\b|两(?:份|个)模型(?!参数"
        r"|[^\n，。]{0,4}(?:一样|相同|一致))"
        r"|(?:actor|critic|reward|ref)(?: model)?(?:, | and | & |/|、|和)(?:the )?(?:critic|reward|ref\w{0,6}|actor)\b"
        r"|(?:load|keep|hold|host|run)\w{0,3} (?:two|both|2|three|multiple|several|a second"
        r"|additional) (?:\w{1,12} )?models?"
        r"|(?:三|四|多)个 ?模型|同时加载[^\n]{0,12}模型"
        r"|critic (?:init|load)|草稿模型|[几多]个模型|judge beside|rlhf[^\n]{0,8}第三阶段"
        r"|reference (?:worker|log ?prob)",
        unless=r"(?:nodes?|gpus?|cards?) of their own|(?:separate|other|their own) (?:nodes?|gpus?|cards?)"
        r"|单独的?(?:节点|卡|机器)",
    ),
)

_BESIDE: Final = Clue(
    "beside",
    STRONG,
    says=r"(?:reranker|embedding ?(?:model|模型)|embedder|\btts\b|\basr\b|whisper|controlnet|ip-?adapter|refiner"
    r"|upscaler)[^\n]{0,60}"
    r"(?:in one process|same (?:gpu|card|time)|together|at once|\bone (?:gpu|card)"
    r"|同一张|一张卡|同时(?:加载|跑|运行|放|部署))",
)
_THIRD: Final = Clue(
    "third-step",
    STRONG,
    says=r"(?:steps?|stages?|phases?|phrases?) ?(?:1 and 2|1,? ?2|one and two|1 & 2)[^\n]{0,40}(?:normal|fine|\bok\b"
    r"|works?|run)"
    r"|(?:step|stage|phase|phrase|阶段|步骤)[ -]?(?:3|three|三)\b[^\n]{0,30}(?:oom|out of mem|爆|不够)|第三(?:步"
    r"|阶段)[^\n]{0,30}(?:oom|爆|不够)",
)
"""The third step of a preference training brings actor, critic, reference and reward together."""
_REWARD_TRAINED: Final = (
    r"train\w{0,3}[ _](?:an? |the |my )?(?:reward|rm)(?:\b|_model)|reward.?model(?:ing)? training|训练(?:奖励|reward)"
)
_KEYS: Final = (
    "teacher_model",
    "reward_model",
    "reward_model_path",
    "reward_pretrain",
    "ref_model",
    "critic_pretrain",
    "speculative_model",
    "draft_model",
)
"""Settings that bring a model beside the trained or served one."""


def weigh(view: View) -> Iterator[Reason]:
    """What is said of other models, how many the job holds, and their part of the peak."""
    trained = not view.job.extra_models and (view.objective == "rm" or view.says(_REWARD_TRAINED) is not None)
    # Then the reward model is the one that is trained
    yield from weigh_clues(view, CAUSE, (*(_CLUES[1:] if trained else _CLUES), _BESIDE))
    if view.job.objective == "ppo":
        yield from weigh_clues(view, CAUSE, (_THIRD,))
    yield from peak_share(view, CAUSE)
    models = view.job.extra_models or ()
    if models:
        weight = FAIR if len(models) > 1 else WEAK
        yield Reason(weight, say("cause.extra-models.resident", roles=[m.role for m in models]))
    elif view.job.objective == "ppo":
        yield Reason(WEAK, say("cause.extra-models.ppo"))
    key = next((name for name in _KEYS if view.setting(name) not in (None, False, "")), None)
    if key is not None and not models:
        yield Reason(FAIR, say("cause.extra-models.given", key=key))
