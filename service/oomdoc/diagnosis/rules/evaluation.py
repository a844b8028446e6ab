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
from oomdoc.diagnosis.view import DECISIVE, STRONG, Clue, View, weigh_clues

__all__ = ["CAUSE", "weigh"]

CAUSE: Final = "eval"

_CLUES: Final = (
    Clue("phase", STRONG, phases=("eval", "evaluation")),
    Clue(
        "trace",
        DECISIVE,
        frames=r"evaluation_loop|prediction_step|\bevaluate\b|compute_metrics|nested_concat|pad_across"
        r"|gather_for_metrics|eval_step|validation_step|predict_loop|/eval(?:uat\w{1,5})?[/.]|\w{0,12}_eval\("
        r"|evaluator",
    ),
    Clue(
        "said",
        STRONG,
        says=r"(?:during|in|at) .{0,24}(?:evaluation|validation) (?:phase|stage|step)|(?:during|in|when|while"
        r"|at|once|before|after|start\w{0,3}|doing|do|run\w{0,4}"
        r"|the) (?:the )?(?:an? )?(?:eval|evaluat\w{1,4}|validation|prediction|dev set)\b"
        r"|evaluate.{0,12}(?:就|时|oom|fail)|\beval.{0,16}(?:oom|爆|会|的时候|过程)"
        r"|验证(?:集|时|阶段)|评估(?:时|阶段|过程|就|模型|超)|评测(?:时|过程|模型)|预测(?:时|阶段|过程)|do_predict"
        r"|测试集|lm_eval\b|lmms.eval|lm-eval|opencompass|evalscope|eval_accumulation_steps|evaluation (?:grows|fails"
        r"|step)"
        r"|(?<![a-z_])predict(?:ions?)?\b[^\n]{0,24}(?:oom|out of|gather|concat|fills|显存|爆)|trainer\.predict"
        r"|predict_with_generate[^\n]{0,24}(?:oom|out|爆)|preprocess_logits_for_metrics|validation (?:set|loss|pass)"
        r"|encod(?:e|ing) (?:around |about |~)?\d[\d.]* ?(?:m\b|million|k\b|万|亿)|eval(?:uation)? loss|评测脚本"
        r"|per_device_eval_batch_size[^\n]{0,16}(?:默认|default|larger|太大|too)",
    ),
)


def weigh(view: View) -> Iterator[Reason]:
    """Phase, trace and words."""
    yield from weigh_clues(view, CAUSE, _CLUES)
