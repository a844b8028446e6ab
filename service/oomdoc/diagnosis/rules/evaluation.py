"""Evaluation: predictions pile up, or the other batch size applies.

Sign
    Training is stable for hundreds of steps and the evaluation fails, or memory climbs while it runs. The trace
    names ``evaluation_loop``, ``prediction_step`` or ``compute_metrics``.
Mechanism
    The trainer keeps every batch's logits on the GPU until the evaluation ends, unless ``prediction_loss_only`` or
    ``eval_accumulation_steps`` is set: 2048 tokens x 128,256 words x 4 B is 1 GiB for each sample. The evaluation's
    batch size is its own key and its default is 8. Generation in evaluation adds a KV cache, and the training
    step's cached blocks are still held.
Confirm
    Evaluate before the first step with 10 samples, then with 20: the peak grows with the number.
Fix
    ``per_device_eval_batch_size=1``; ``prediction_loss_only`` or ``preprocess_logits_for_metrics``;
    ``eval_accumulation_steps`` of a few (host memory then grows); evaluate in a separate run or with an engine;
    load in 16 bit for stand-alone evaluation.
Cost
    Slower evaluation; training is unchanged.
"""

from collections.abc import Iterator
from typing import Final

from oomdoc.diagnosis.result import Reason
from oomdoc.diagnosis.rules._interval import LONG, due, returns_at
from oomdoc.diagnosis.view import DECISIVE, FAIR, STRONG, WEAK, Clue, View, weigh_clues
from oomdoc.messages import say

__all__ = ["CAUSE", "weigh"]

CAUSE: Final = "eval"

_CLUES: Final = (
    Clue("phase", STRONG, phases=("eval", "evaluation")),
    Clue(
        "trace",
        DECISIVE,
        frames=r"evaluation_loop|prediction_step|\bevaluate(?: |\(|$)(?!\w{1,12}\b)|compute_metrics|nested_concat"
        r"|pad_across"
        r"|gather_for_metrics|eval_step|validation_step|predict_loop|(?<!envs)/eval(?:uat\w{1,5})?[/.]|\w{0,12}_eval\("
        r"|evaluator",
    ),
    Clue(
        "collected",
        STRONG,
        frames=r"torch\.cat\(\(?\[?\w{0,12}(?:pred|logit|output|embed|feat)\w{0,6}[, \])]|\b(?:all|total|list)_?\w{0,8}"
        r"(?:pred|logit|output|embed|feat)\w{0,8}\.append\(",
        says=r"sliding[_ ]window[_ ]inference|sav(?:e|ing) (?:the |all )?(?:model )?(?:predictions|results)\b"
        r"|(?:accumulat|collect|gather|concat|stor|keep)\w{0,6} (?:\w{1,12} ){0,4}(?:outputs?|predictions?|preds"
        r"|logits"
        r"|embeddings?) [^\n]{0,40}(?:whole|entire|all|full) (?:\w{1,10} )?(?:data ?set|samples|batches|examples)",
    ),
    Clue(
        "test-phase",
        FAIR,
        says=r"\btest(?:ing)? (?:phase|stage|step|epoch|loop|time)\b|(?:enter|begin|start)\w{0,4} (?:the |to )?tests?\b"
        r"|\b(?:validat|evaluat)(?:e|ing)\b|[\"'`]val[\"'`] mode|测试(?:阶段|时|过程)|auto(?:matic)?[ _-]batch[ _-]size"
        r"|batch[ _-]size (?:set to |= ?)?[\"'`]?auto\b|_detect_batch_size",
    ),
    Clue(
        "epoch-end",
        WEAK,
        says=r"after (?:the |an? |one |1 |first |1st |full |successful |training ){1,3}epoch\b|trained (?:an?|one|1|the"
        r" first) epoch|at the end of (?:the |an? |one |first |every |each ){1,2}epoch|第?[一1] ?个? ?(?:轮|epoch)"
        r"(?:训练)?(?:结束|完|之?后)|(?:跑|训练?)完了?(?:第?[一1]|整)? ?个? ?(?:轮|epoch)",
    ),
    Clue("harness", WEAK, says=r"lm_eval\b|lmms.eval|lm-eval|opencompass|evalscope(?! perf)|vlmeval"),
    Clue(
        "said",
        STRONG,
        says=r"(?:during|in|at) .{0,24}(?:evaluation|validation) (?:phase|stage|step)|\b(?:during|in|when|while"
        r"|at|upon|on|once|before|after|start\w{0,3}|doing|do|run\w{0,4}"
        r"|the) (?:the )?(?:an? )?(?:eval|evaluat\w{1,4}|validation|prediction|dev set)\b"
        r"|evaluate.{0,12}(?:就|时|oom|fail)|\beval.{0,16}(?:oom|爆|会|的时候|过程)"
        r"|验证(?:集|时|阶段)|评估(?:时|阶段|过程|就|模型|超)|评测(?:时|过程|模型)|预测(?:时|阶段|过程)|do_predict"
        r"|测试集|eval_accumulation_steps|evaluation (?:grows|fails"
        r"|step)"
        r"|(?<![a-z_])predict(?:ions?)?\b[^\n]{0,24}(?:oom|out of|gather|concat|fills|显存|爆)|trainer\.predict"
        r"|predict_with_generate[^\n]{0,24}(?:oom|out|爆)|preprocess_logits_for_metrics|validation (?:set|loss|pass)"
        r"|encod(?:e|ing) (?:around |about |~)?\d[\d.]* ?(?:m\b|million|k\b|万|亿)|eval(?:uation)? loss|评测脚本"
        r"|per_device_eval_batch_size[^\n]{0,16}(?:默认|default|larger|太大|too)",
    ),
)


_INTERVALS: Final = ("eval_steps", "eval_interval", "eval_freq", "test_freq", "validation_steps", "val_check_interval")
_ROUND: Final = 50


def weigh(view: View) -> Iterator[Reason]:
    """Phase, trace and words."""
    yield from weigh_clues(view, CAUSE, _CLUES)
    if view.phase not in ("eval", "evaluation", "unknown"):
        return
    every, told = due(view, _INTERVALS), returns_at(view)
    if every is not None:
        yield Reason(STRONG if told or every >= LONG else FAIR, say("cause.eval.interval", steps=every))
    elif told is not None and told % _ROUND == 0 and view.training and view.setting(*_INTERVALS) is None:
        # No interval is stated: it is the framework's own.
        sweeps = any(document.framework == "ms-swift" for document in view.evidence.documents)
        yield Reason(DECISIVE if sweeps else WEAK, say("cause.eval.interval", steps=told))
