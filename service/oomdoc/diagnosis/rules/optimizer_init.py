"""Optimizer initialisation: the states are made late and do not fit.

Sign
    Loading, forward and backward pass; the first ``optimizer.step()``, or the construction of the ZeRO optimizer,
    fails. The trace names ``exp_avg``, ``zeros_like``, ``_init_group`` or ``initialize_optimizer_states``. The
    request equals parameters x 4 bytes / ranks: 6.24e9 x 4 B = 23.26 GiB.
Mechanism
    Adam's two moments, 8 bytes per trained parameter in fp32, are created at the first step, so a run that has
    passed one forward and backward pass may still not have seen its steady state. Mixed precision adds a master
    copy of 4 bytes. The foreach implementation holds temporaries of the size of the parameters as well. Resuming
    with ``torch.load`` and no ``map_location`` puts the states of all ranks on one GPU.
Confirm
    "Allocated" is a whole multiple of the request (16-bit weights + gradients + master = 5 shards of weights in
    fp32 over n ranks, and so on). Step once with the plain SGD optimizer: it passes.
Fix
    Shard the optimizer (ZeRO-1 or higher, FSDP) over several ranks; 8-bit or paged Adam; Adafactor; offload to the
    CPU; LoRA; ``fused=True`` in place of foreach.
Cost
    ZeRO-1 is nearly free. 8-bit states change numerics a little; offload makes each step slower.
"""

from collections.abc import Iterator
from typing import Final

from oomdoc.diagnosis.result import Reason
from oomdoc.diagnosis.rules._copies import flat_copy
from oomdoc.diagnosis.rules._fits import beyond_weights
from oomdoc.diagnosis.rules._sizes import tensor_reasons
from oomdoc.diagnosis.view import DECISIVE, FAIR, STRONG, WEAK, Clue, View, weigh_clues
from oomdoc.messages import say

__all__ = ["CAUSE", "weigh"]

CAUSE: Final = "optimizer-init"

_CLUES: Final = (
    Clue(
        "trace",
        DECISIVE,
        frames=r"optimizer\.step|optimizer_step|_init_group|exp_avg|initialize_optimizer_states|zero_optim"
        r"|adamw?\.py|_multi_tensor"
        r"|configure_zero_optimizer|/adam\w{0,3}/(?:initializer|assign)|adam_[mv]/|fp32_flat|low_level_(?:optim|zero)"
        r"|hybrid_?adam|_foreach_"
        r"|optim/optimizer|create_fp32_part"
        r"|setup_optimizer|_init_optim_state|optim\.step\(|init_optimizer_state",
    ),
    Clue("phase", STRONG, phases=("optimizer-init", "optimizer-step")),
    Clue(
        "said",
        STRONG,
        says=r"optimizer\.step|first step|optimizer (?:init|state(?!s? ?off))|initialize_optimizer_states|optimizer\.pt"
        r"|优化器(?:状态|初始化)|优化器[^\n]{0,8}(?:step|更新)|exp_avg|(?:second|2nd) (?:training )?(?:step|batch"
        r"|iteration|backprop|backward)"
        r"|(?:at|in|on) step 2\b|第(?:二|2) ?(?:步|个 ?(?:batch|step))|(?<!before )(?:creat|initiali[sz]|build|prepar"
        r"|set(?:ting)? up)\w{0,4} "
        r"(?:the )?optimizer|deepspeed\.initialize|accelerator\.prepare|adamw? states?|(?:creating|initialising) fp32"
        r"|参数更新[^\n]{0,6}[爆炸]|创建优化器|优化器(?:创建|更新)|更新参数(?:时|的时候|那|[^\n]{0,4}就?[爆o炸])"
        r"|(?:adam|optimizer)[^\n]{0,30}moments?\b|fp32 (?:master|main) |主权重|main params|8 ?bit ?优化器"
        r"|from sgd to adam|\bsgd\b[^\n]{0,20}(?:works?|fits?|fine|runs?|可以|正常)[^\n]{0,40}\badam"
        r"|\badam\w{0,2}\b[^\n]{0,30}(?:oom|out of mem|爆)[^\n]{0,40}\bsgd\b"
        r"|(?:first|1st) (?:step|iteration|batch|forward and backward)[^\n.]{0,16}(?:passes|works|is (?:fine|ok)"
        r"|goes through|succeeds|completes)"
        r"[^\n]{0,60}(?:oom|out of mem|second|2nd)|memory (?:doubles|jumps)[^\n.]{0,30}(?:first"
        r"|1st) (?:optimi[sz]er )?(?:step|update)"
        r"|(?:只能?跑|跑完|过了?)[^\n]{0,4}(?:第?一(?:个 ?)?(?:步|step|batch|iter))[^\n]{0,12}(?:爆|oom|不够|显存)"
        r"|step 1 fails|第一步[^\n]{0,12}打出来|initiali[sz]ing zero|deepspeed initiali[sz]e"
        r"|backward[^\n]{0,6}(?:完|之后)[^\n]{0,6}更新|(?:during|in|inside|at) the step (?:function|call|method)"
        r"|(?:with|when|while|after|if|on|by) (?:load|loading) (?:the )?optim\w{0,6}\b|accelerator\.load_state",
    ),
    Clue(
        "resume",
        STRONG,
        says=r"(?:when(?:ever)?|while|after|on|upon|if) [^\n.]{0,24}resum\w{1,3}[^\n.]{0,60}(?:oom|out of mem"
        r"|memory err|fail"
        r"|crash)|(?:oom|out of mem\w{0,3}|fail\w{0,3}|crash\w{0,3})[^\n.]{0,60}(?:when|while|after|on"
        r"|upon) [^\n.]{0,16}resum"
        r"|resum\w{1,3}[^\n.]{0,40}(?:get|got|run|goes?|throws?)[^\n.]{0,24}(?:oom|out of mem)|断点续训|恢复训练"
        r"|继续训练|(?:load\w{0,3}|saved) [^\n]{0,40}(?:checkpoint|state)s?\)?[^\n]{0,30}(?:continue"
        r"|resum)\w{0,3} (?:the )?train|resum\w{1,3} (?:the )?training\b"
        r"|(?<!train\()resume_from_checkpoint ?[=:] ?(?!none|null|false)\S",
        unless=r"resum\w{1,3} (?:the )?quanti|(?<!before )\bquanti[sz]ing\b",
    ),
)


def weigh(view: View) -> Iterator[Reason]:
    """Trace, phase and the size of one shard."""
    reasons = list(weigh_clues(view, CAUSE, _CLUES))
    yield from reasons
    yield from tensor_reasons(view, CAUSE)
    copy = flat_copy(view)
    if copy is not None:
        yield Reason(
            STRONG if copy.ranks > 1 else FAIR,
            say("cause.optimizer-init.one-copy", params=copy.params_b, width=copy.width_bytes, ranks=copy.ranks),
        )
    if beyond_weights(view):
        yield Reason(-FAIR, say("cause.out-of-place"))
    if reasons and view.shares.get(CAUSE, 0.0) > 0.3:
        yield Reason(WEAK, say("cause.optimizer-init.part", percent=round(100 * view.shares[CAUSE])))
