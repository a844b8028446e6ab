"""Leak: memory grows with every step until it runs out.

Sign
    Memory rises steadily, by the same amount for each step, request or round, and never falls. It fails after
    hundreds of steps with settings that began well.
Mechanism
    Something keeps a reference: a loss summed as a tensor (``loss_sum += loss`` keeps each step's graph), outputs
    collected in a list, hooks, an engine that does not give back what it took, a model that is deleted while an
    accelerator object still points to it. The allocator's cache alone looks alike, but levels off.
Confirm
    Log ``torch.cuda.memory_allocated()`` once per step: a leak grows in it, a cache only in ``memory_reserved()``.
    Record a memory snapshot and look at the oldest living blocks.
Fix
    ``loss.item()`` or ``loss.detach()``; collect results on the CPU; a newer version where a library leaks; restart
    servers or rounds in their own processes until then.
Cost
    None.
"""

from collections.abc import Iterator
from typing import Final

from oomdoc.diagnosis.result import Reason
from oomdoc.diagnosis.view import DECISIVE, FAIR, STRONG, WEAK, Clue, View, weigh_clues
from oomdoc.messages import say

__all__ = ["CAUSE", "weigh"]

CAUSE: Final = "leak"

_MEMORY: Final = r"(?:memory|vram|usage|\bmem\b|\bram\b)"
_RISES: Final = r"(?:grow|grew|increas|creep|climb|ris(?:e|ing)|going up|goes up|accumulat|build(?:s|ing)? up)"
_ON_AND_ON: Final = (
    r"(?:\bkeeps?\b|continu|constant|gradual|slowly|steadi|linear|over time|with (?:each|every|the number|more|time)"
    r"|\beach\b"
    r"|\bevery\b|step by step|as (?:the )?(?:training|steps|number|time)|more and more|until|\bsteps\b|epochs?"
    r"|after (?:some|several|a while))"
)
_GUESSED: Final = (
    r"(?:may ?be|perhaps|possibly|probably|might|could|suspect|wonder|is (?:it|this|that|there)|seems?|some (?:kind"
    r"|sort)"
    r"|是不是|可能|怀疑|疑似|似乎|好像|难道|会不会|是否)[^\n.。]{0,40}(?:\bleak|泄漏|泄露)"
    r"|\bor (?:a )?(?:memory )?leak|(?:\bleak\w{0,3}|泄漏|泄露) ?(?:\?|？|吗"
    r"|么)"
)
"""A reader's guess: most failures are taken for a leak by somebody."""
_INCREASES: Final = r"(?:increa\w{2,6}|grow\w{0,3}|grew|ris(?:es?|ing)|rose|climb\w{0,3}|upward)"
_LOADING: Final = (
    r"(?:while|when|during|at) (?:the )?load(?:ing)? (?:the )?(?:model|weights?|checkpoint)[^\n]{0,50}(?:grow|increas"
    r"|ris)"
    r"|加载[^\n]{0,8}(?:阶段|时|过程)[^\n]{0,20}(?:增|涨|升)|load ?(?:权重|模型)[^\n]{0,8}时候"
    r"|(?<!not )(?<!n't )(?<!never )(?:can go back|goes back|falls back|drops back|comes back) down"
)
"""Growth that is not of steps: while weights are read, or one that falls again by itself."""
_ENDED: Final = r"每次(?:中断|退出|结束|停止)|after (?:i |we |it (?:is|was) )?(?:interrupt|abort|ctrl.?c)\w{0,3}"
"""Memory that stays after its process is another matter."""
_CLUES: Final = (
    Clue("growth", DECISIVE, signals=("growth-over-steps", "memory-growth")),
    Clue(
        "said",
        STRONG,
        says=rf"{_MEMORY}[^\n]{{0,60}}{_RISES}[^\n]{{0,80}}{_ON_AND_ON}"
        rf"|{_MEMORY}[^\n]{{0,60}}{_ON_AND_ON}[^\n]{{0,30}}{_RISES}"
        rf"|{_ON_AND_ON}[^\n]{{0,30}}{_RISES}[^\n]{{0,40}}{_MEMORY}|{_MEMORY}[^\n]{{0,30}}(?:grow|grew|creep|climb)"
        r"|(?:after|in|with) (?:each|every) (?:iteration|step|call|request)[^\n]{0,30}\d ?[mg]i?b"
        r"|(?:gradual\w{0,2}|slow\w{0,2}|steadi\w{0,2}|constant\w{0,2}|continuous\w{0,2}) (?:memory |vram |gpu "
        r"|ram )*(?:growth"
        r"|increase|rise|grow)"
        r"|(?:显存|内存).{0,20}(?:慢慢|逐渐|逐步|不断|越来越|缓慢|持续|一点点|会?一直).{0,8}(?:涨|增|上升"
        r"|升高|变大|变多)|memory.{0,24}higher (?:after|each|every|with)"
        r"|显存.{0,8}变高|(?:越来越)(?:多|高|大)"
        r"|linear(?:ly)? (?:grow|increas|fill|with (?:the )?(?:steps|time|number))|fills? up (?:\w{1,9} )?(?:with"
        r"|over) "
        r"(?:the )?(?:steps|time)|longer and longer|eventually (?:oom|out of|runs)"
        r"|(?:memory|vram)[^\n]{0,24}(?:increments|adds up|accumulat|piles? up|keeps? going)"
        r"|(?:never|\bnot|n'?t) (?:\w{1,8} ){0,2}(?:given back|giv(?:e|ing) back|releas\w{1,3}|freed?"
        r"|come (?:back )?down|go (?:back )?down|drop\w{0,4})\b[^\n]{0,50}(?:request|call|inference|generat"
        r"|iteration|loop|round|prompt|epoch|next|step)|(?:each|every) (?:\w{1,12} )?(?:call|request|time|loop"
        r"|iteration|inference|generation|eval\w{0,6})\b[^\n]{0,40}(?:(?:leaves?|adds?|takes?|uses?|eats?"
        r"|needs?) [^\n]{0,12}more|(?:not|n'?t) (?:come |go )?(?:back )?(?:down|releas|freed))"
        r"|\bdel(?:et\w{1,3})?(?: the)? model\b[^\n]{0,60}(?:memory|vram|显存)[^\n]{0,30}(?:still|\bnot|n'?t|没"
        r"|不)|memory_allocated[^\n]{0,30}(?:higher|larger|grow|more)|(?:doubl\w{1,3}|higher|larger|more) (?:by"
        r"|in|at|after|than) (?:the )?(?:\w{1,8} )?epoch|restart\w{0,3} (?:the |it )?(?:process|server|service"
        r"|program|kernel|container)?[^\n]{0,16}(?:fix|help|solv|works|fine)|重启(?:服务|进程|程序|容器)?(?:就"
        r"|后|之后)[^\n]{0,8}(?:好|恢复|正常|可以)|(?:每次|多次|反复|循环)[^\n]{0,24}显存[^\n]{0,8}(?:不释放"
        r"|没释放|不降|越|只增|增加|上涨)|只增不减|越[占用]越多|推理完[^\n]{0,4}显存[^\n]{0,4}不释放"
        r"|(?:\bnot|never|n'?t) (?:being )?reclaim|ratchet|(?:up|more) by \d{1,5} ?[mg]i?b (?:with|after|for"
        r"|per|each|every)|(?:leaves|keeps) the (?:previous|old|last) (?:model|engine|trainer|graph)|(?:每个?"
        r"|每一) ?(?:step|步|轮|次|请求)[^\n]{0,8}(?:显存|内存)[^\n]{0,6}(?:多|涨|增)|(?:几|多|上百"
        r"|\d{1,4}) ?个请求(?:之)?后[^\n]{0,6}(?:显存)?[^\n]{0,4}(?:满|爆|oom|溢出)|(?:模型|对象)(?:删"
        r"|释放)[了掉除]?[^\n]{0,4}(?:之后|后)?[^\n]{0,3}显存(?:还|仍)|一(?:晚上|夜)[^\n]{0,6}(?:oom|爆|满)"
        r"|(?:free )?(?:memory|vram) (?:shrinks|decreas\w{1,3}) (?:with|after|on|by) (?:each|every)"
        r"|never recovers|after (?:some |a few |several )?(?:dozens?|hundreds) of (?:chats|requests|calls"
        r"|messages|images)|in a (?:python )?list\b[^\n]{0,40}(?:memory|vram|climb|grow)|(?:请求|服务"
        r"|循环推理)[^\n]{0,10}显存(?:还是|仍|也)?(?:会)?(?:不断|一直|持续)",
        unless=rf"(?:will|would|does|do|can|should) (?:it|this|that|i|we) increase\b|{_LOADING}|{_ENDED}",
    ),
    Clue(
        "in-training",
        STRONG,
        says=rf"{_MEMORY}[^\n]{{0,60}}{_INCREASES}[^\n]{{0,40}}(?:during|while|when|\bas\b|with)[^\n]{{0,16}}"
        r"(?:train|fine-?tun|proceed|progress|iterat|going on|running)"
        r"|(?:during|while|when|as) (?:the )?(?:training|fine-?tuning|progress)\w{0,4}[^\n]{0,40}"
        rf"{_MEMORY}[^\n]{{0,30}}{_INCREASES}|upward trend|trend(?:s|ing) up(?:ward)?"
        r"|increas(?:e|es|ing) (?:gpu |cpu |ram |cuda )*(?:memory|vram|ram)(?: usage)? (?:and|until|till|then|over"
        r"|with (?:each|every|time|more|steps|epochs|iterations))\b"
        r"|more and more (?:\w{1,6} )?(?:memory|vram|ram)\b|不断(?:地)?(?:吃|占用?|消耗)(?:显存|内存)"
        r"|(?:显存|内存)[^\n]{0,12}(?:随着?|伴随)[^\n]{0,12}(?:增|涨|升|变大|变多)"
        r"|(?:随着?|伴随)[^\n]{0,16}(?:显存|内存)[^\n]{0,8}(?:增|涨|升|变大|变多)"
        r"|increas\w{1,3} by \d[\d.]{0,6} ?[mgk]i?b? (?:at a time|each|every|per)",
        unless=rf"during (?:the )?(?:eval|validat|load|init)|{_LOADING}",
    ),
    Clue(
        "not-falling",
        STRONG,
        says=rf"{_INCREASES}[^\n]{{0,40}}(?:\bnot|n'?t|never) (?:\w{{1,8}} ){{0,2}}(?:fall|drop"
        r"|go (?:back )?down|decreas|releas|come (?:back )?down|freed|reclaim)"
        r"|(?:显存|内存)[^\n]{0,30}(?:增|涨|升|多)[^\n]{0,30}不(?:会)?(?:再)?(?:下降|回落|回收|释放|降)"
        r"|(?:memory|vram)[^\n]{0,16}(?:won'?t|doesn'?t|not|never) (?:be |get "
        r"|being )?(?:automatically )?releas[^\n]{0,40}"
        r"(?:request|call|inference|predict|embed|query|queries|encod)"
        r"|(?:memory|vram|显存)[^\n]{0,40}(?:after|per|for) (?:each|every) (?:\w{1,10} )?(?:call|request|query|user"
        r"|client)"
        r"|(?:reset|reload|restart|clear|empty)\w{0,3} [^\n]{0,40}(?:after|between) (?:each|every)"
        r"|每(?:次)?(?:调用|推理|请求|跑)(?:一次|完|一张)?[^\n]{0,12}显存[^\n]{0,6}(?:涨|增|多)|(?:显存"
        r"|内存)[^\n]{0,4}就[涨增]"
        r"|(?:have|has|need|needs|must|had) (?:to )?(?:be )?restart\w{0,3}[^\n]{0,24}(?:daily|every|each|server|service"
        r"|container|worker|periodically)|(?:必须|只能|需要|要)(?:定期|每天)?重启(?:服务|容器|进程)"
        r"|每次(?:调用|推理|请求|运行)[^\n]{0,10}(?:清理|重启|清空)|(?:显存|内存)(?:占用)?不(?:会)?(?:自动)?(?:释放"
        r"|回收)",
        unless=r"sleep|wake_up|rollout engine|initialization|" + _LOADING,
    ),
    Clue(
        "resumed",
        STRONG,
        says=r"(?:重新|断点|resum\w{0,4}|restart\w{0,4}|重启)[^\n]{0,40}(?:正常|可以|fine|works?|ok\b|好)[^\n]{0,40}"
        r"(?:还是|again|但是|又|仍|same (?:number|point|time))",
    ),
    Clue(
        "kept",
        STRONG,
        says=r"\.append\((?:model\(|outputs?\b(?!\.)|logits\b(?!\.)|losses?\b(?!\.)|preds?\b(?!\.)"
        r"|embed\w{0,6}\b(?!\.))"
        r"|def training_epoch_end\(|create_graph ?= ?(?:true|second_order)",
    ),
    Clue(
        "keeps-growing",
        STRONG,
        says=r"(?:keeps?|kept) (?:on )?(?:grow|increas|ris|climb)ing|slowly (?:consum|eat|us|fill)ing(?: up)? (?:all"
        r"|the)",
    ),
    Clue("named", STRONG, says=r"泄漏|泄露|\bleak", unless=_GUESSED),
    Clue(
        "sweep",
        STRONG,
        says=r"(?:several|some|few|\d{1,3}|each|every|many) (?:trials|folds)\b|\b(?:trial|fold) ?\d|optuna|\bhpo\b"
        r"|hyper-?parameter (?:search|optimi[sz]ation|tuning)|grid ?search|cross-?validation|\bk-?fold|交叉验证"
        r"|[几多\d]折",
    ),
    Clue("guessed", WEAK, says=_GUESSED),
    Clue(
        "every-round",
        STRONG,
        says=r"(?:each|every|per|after each) (?:step|iteration|iter|rollout|request|call|round|epoch"
        r"|(?:micro-?)?batch)"
        r"|每(?:一)?(?:步|轮|次)(?!.{0,6}(?:save|eval|到?保存|验证|评估))|随着(?:调用|训练|请求|步数)"
        r"|iter: ?\d+ memory_allocated",
        unless=r"^(?!.{0,20000}(?:grow|grew|increas|leak|rises?|rising|涨|增长|上升|泄))",
    ),
    Clue(
        "again",
        STRONG,
        says=r"(?:initiali[sz]\w{0,4}|(?:re)?load\w{0,3}|creat\w{1,3}|instantiat\w{1,3})[^\n]{0,24}(?:with|for|on"
        r"|at|in) (?:every|each) "
        r"(?:request|call|time|iteration|loop|round)|每次(?:请求|调用|推理)[^\n]{0,8}(?:加载|初始化|创建)"
        r"|(?:on|at|after|with|from) (?:the |my |a )?(?:second|2nd|third|3rd|next) (?:time|prompt|image|request|test"
        r"|generation|run"
        r"|call|video|file)\b|(?:second|2nd|third|3rd) (?:call|time|run|pass|round|trial|fold)\b[^\n]{0,40}(?:fail|oom"
        r"|out of|crash"
        r"|die)|(?:twice|repeatedly|several times) in (?:the same|one) (?:process|session|script)"
        r"|(?:first|1st) (?:\d{1,4} |few )?(?:are |is |was |were |runs? )(?:fine|ok|good)[^\n]{0,24}(?:then|but)"
        r"|第一次(?:正常|可以|能|没问题)[^\n]{0,16}第二次",
    ),
    Clue(
        "graph-kept",
        DECISIVE,
        says=r"loss\w{0,12} ?\+= ?\w{0,16}(?:\.|_)?loss\b(?!\.item|\.detach)|retain_graph ?= ?true|\.append\(loss\)"
        r"|loss\w{0,12} ?= ?\w{0,16}loss ?\+ ?\w{0,16}loss\b(?!\.item|\.detach)",
    ),
    Clue(
        "late",
        WEAK,
        says=r"after (?:about |around |some )?\d{3,6} (?:steps|iterations|requests|calls|images)"
        r"|after a few (?:hundred|thousand) (?:steps"
        r"|requests)|[几数上]?[百千万]多?步|(?:step|iteration) ?\d{3,6}\b|after (?:a few|several|some"
        r"|\d{1,3}) (?:epochs"
        r"|days|hours)"
        r"|几轮(?:之)?后",
    ),
)
_DIALOGUE: Final = (
    r"(?:交互|对话|多轮|聊天)[^\n]{0,40}(?:增|涨|升|飙)|(?:增|涨|升|飙)[^\n]{0,40}(?:交互|对话|多轮|聊天)"
    r"|(?:conversation|chatting|multi-?turn|dialogue?)\b[^\n]{0,60}(?:grow|increas|ris)"
    r"|(?:grow|increas|ris)[^\n]{0,60}(?:conversation|chatting|multi-?turn|dialogue?)\b"
    r"|as (?:more )?tokens are generated"
    r"|while tokens are generated|as generation continues"
)
_NO_HISTORY: Final = (
    r"history[^\n]{0,12}(?:\[\]|空|empty|none|clear)|单句|单轮|请求|requests?\b|只保留|only kept|泄|\bleak"
)
"""Each question on its own, or said to be more than the history."""
_TUNES: Final = frozenset({"sft", "rm", "dpo", "pretrain", "kto", "orpo"})
_FIXED: Final = (
    r"fixed (?:length|size)|same (?:length|shape|size)|\blinear|\bflat\b|max_length padding|packed|packing|\bleak"
    r"|泄[漏露]"
)
"""Growth that longer samples would not explain."""
_SURE: Final = (".named", ".every-round", ".not-falling", ".graph-kept", ".growth", ".kept")
_OF_GROWTH: Final = (".said", ".in-training", ".keeps-growing")
_OTHERS: Final = 0.4
"""Part of what Metal allows that "other allocations" take: buffers that no tensor owns."""


def _varied(view: View) -> bool:
    """Whether a language model is tuned on samples of different lengths: the longest so far sets the peak so far."""
    named = view.stated("model") is not None or view.stated("params_b") is not None or view.job.framework is not None
    return view.training and view.objective in _TUNES and named and not (view.stated("packing") or view.says(_FIXED))


def weigh(view: View) -> Iterator[Reason]:
    """Growth that is stated, measured, or written in the loop."""
    reasons = tuple(weigh_clues(view, CAUSE, _CLUES))
    varied = _varied(view) and not any(r.message.key.endswith(_SURE) for r in reasons)
    for reason in reasons:
        doubtful = varied and reason.message.key.endswith(_OF_GROWTH)
        yield Reason(min(reason.log_odds, FAIR), reason.message, reason.spans) if doubtful else reason
    if reasons and not view.training and view.says(_DIALOGUE) and not view.says(_NO_HISTORY):
        yield Reason(-STRONG, say("cause.leak.dialogue"))
    failure = view.failure
    if failure is not None and failure.signal.name == "mps-oom":
        other, allowed = failure.signal.data.get("other_bytes"), failure.signal.data.get("capacity_bytes")
        if other and allowed and other >= _OTHERS * allowed:
            message = say("cause.leak.other-allocations", other_bytes=other, allowed_bytes=allowed)
            yield Reason(FAIR, message, (failure.signal.span,))
