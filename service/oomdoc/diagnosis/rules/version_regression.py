"""A regression: the same job fitted with another version.

Sign
    It worked before an update and fails after it, nothing else changed; going back helps. Or the memory model says
    that the job fits with room to spare, and an installed version is inside a known range.
Mechanism
    Libraries change what they keep alive: DeepSpeed 0.16.0 to 0.16.7 does not release ZeRO-3 parameters that
    gradient checkpointing gathers again; transformers 4.31 to 4.45 makes an fp32 copy of all logits; 4.38 and 4.39
    build dense causal masks; a new loader may ignore 4-bit settings.
Confirm
    Install the last good version beside the same config and compare the peaks; ``oomdoc scan`` lists known ranges
    for what is installed.
Fix
    Up to the fixed version where there is one, else down to the last good one, pinned, with the issue's link as the
    reason.
Cost
    A downgrade may lose other fixes; read the change log between the two.
"""

import re
from collections.abc import Iterator
from typing import Final

from oomdoc.diagnosis.regressions import applies, range_of
from oomdoc.diagnosis.result import Reason
from oomdoc.diagnosis.view import DECISIVE, FAIR, STRONG, WEAK, Clue, View, weigh_clues
from oomdoc.messages import say

__all__ = ["CAUSE", "weigh"]

CAUSE: Final = "version-regression"

_MODEL: Final = (
    r"(?<!\bllama)(?<!\bllama[- ])(?<!\bqwen)(?<!\bqwen[- ])(?<!\bglm)(?<!\bglm[- ])(?<!\bphi)(?<!\bphi[- ])"
    r"(?<!\bgemma)(?<!\bgemma[- ])(?<!seek[- ])(?<!seek[- ]v)(?<!\binternlm)(?<!\bmistral[- ])(?<!\bwan)(?<!\bwan[- ])"
    r"(?<!\bllava[- ])(?<!\bllava[- ]v)(?<!\bvicuna[- ])(?<!\bvicuna[- ]v)(?<!\db-)(?<!\d[bm]-)(?<!\bflux[.-])"
    r"(?<!\bubuntu )(?<!\bubuntu-)(?<!\bmacos )(?<!\bcentos )(?<!\bdebian )(?<!\bdiffusion )(?<!\bsd[- ])"
)
"""Families of models and systems count as packages do: theirs are no versions that one goes up or back to."""
_V: Final = (
    _MODEL
    + r"(?<![\d.v])(?!0\.(?:9\d?|85|75|65)(?![\d.]))"
    + r"v?\d{1,3}\.(?:x\b|\d{1,3}(?:\.[\w.]{1,12}|(?:rc|dev|post|[ab])\d{1,3}\b)?"
    + r"(?! ?[gmkt]i?b|\d|[a-z]| ?%| ?x\b| ?b(?:illion)?(?![a-z\d])"
    + r"| ?(?:epochs?|steps?|hours?|min|sec|ms\b|[smhk]\b|times\b|[倍个轮亿万秒小])))"
)
_SAME: Final = (
    r"(?:every|all|any|each|different|several|various|multiple) versions?|other versions? (?:too|as well)"
    r"|\b(?:same [^\n.]{0,24}(?:error|problem|oom|issue|behaviou?r)|similar [^\n.]{0,50})[^\n.]{0,8} (?:with|in|on)\b"
    r"(?! (?:the )?(?:different|other|all|any|smaller|larger|every) (?:\w{2,12} )?(?:model|data|prompt|file))"
    r"|(?:fraction|utili[sz]|static)[\w` '-]{0,16} from 0?\.\d"
)
_WELL: Final = (
    r"(?:works?\b|worked|fine\b(?![-_ ]?tun)|runs\b|ran\b|as expected|\bfits|loads in|it is about|can train|\btrained)"
)
_STEPS_OF: Final = (
    r"(?:(?!weight|param|grad|polic|actor|critic|optim|train|model|each|every|first|step|several|few)[\w'.+-]{1,16} )"
)
"""Words between "after" and "update"; what a training step updates is another matter."""
_BUILD: Final = r"(?:b\d{4,5}\b|(?=[a-f]{0,39}\d)(?=\d{0,39}[a-f])[0-9a-f]{7,40}\b)"
"""A numbered build, or the name of a commit."""
_BACK: Final = (
    r"(?:git[` \"]{1,3}(?:reset|checkout)|downgrad(?:e|ed|ing)|revert(?:ed|ing)?\b|pinn(?:ed|ing)\b|going back to"
    r"|(?:roll|went|going|go|switch)(?:ed"
    r"|ing)? back to)"
)
_OLD: Final = (
    r"\b(?:previous|old|older|earlier|prior|former|preceding) (?:[\w.-]{2,20} )?"
    r"(?:versions?|releases?|images?|builds?|commits?|code|revisions?|branch)\b"
)
_GOOD: Final = (
    r"(?:\bworks?\b|\bworked|\bworking\b|\bfine\b(?![-_ ]?tun)|\bok\b|\bno (?:such )?(?:problem|issue|error|oom)"
    r"|without (?:any )?(?:problem|issue|error|oom)|\b(?:able to|can|could) (?:run|train|load|fit|use|serve|start)"
    r"|\bdid ?n[o\'’]?t|\bdoes ?n[o\'’]?t|\bruns?\b|\bran\b|\bfits?\b|successful|less memory)"
)
_PACKAGES: Final = (
    r"verl|trl|vllm|sglang|transformers|peft|deepspeed|megatron|accelerate|(?:py)?torch|tensorflow|jax|unsloth|axolotl"
    r"|ollama|llama\.cpp|lmdeploy|tgi|bitsandbytes|xformers|flash-?attn|triton|cuda|drivers?|kernel|code|repo\w{0,6}"
    r"|engine|backend|loader|trainer|script|package|librar\w{1,3}|container"
)
_CLUES: Final = (
    Clue(
        "comparison",
        DECISIVE,
        prose=True,
        says=rf"{_V} (?:ooms?|fails|crashes|dies|runs? out)[^\n]{{0,40}}(?:where|while|whereas|but|and)"
        rf"[^\n]{{0,20}}{_V}"
        rf"|{_V} (?:is |was |runs? )?(?:work(?:s|ed|ing)?|fine|ok|good)\b[^\n]{{0,40}}(?:{_V}|oom|out of memory)"
        rf"|(?:but|while|whereas|and) [^\n]{{0,12}}{_V} (?:is |was |still )?(?:work(?:s|ed|ing)?|fine|ok|good)\b"
        rf"|{_V} (?:uses?|takes?|needs?|requires?|consumes?) [^\n]{{0,40}}(?:more|less)[^\n]{{0,30}}{_V}"
        r"|(?:driver|cuda|build|tag)s? v?\d{2,4}(?:\.\d{1,3}){0,2} (?:is |was )?(?:works?|fine|ok"
        r"|good)\b[^\n]{0,60}\d{2,4}"
        r"|(?:image|container|tag) (?:from|of) [^\n]{0,24}(?:works|fine|runs)[^\n]{0,40}(?:oom|out of memory)"
        r"|\b(?:main|master|head|dev)\b[^\n]{0,24}(?:,|but|while) [^\n]{0,12}(?:release|stable|tagged)[^\n]{0,20}"
        r"(?:is |are |was )?(?:fine|works?|ok)\b"
        rf"|(?:with|on|in|using|under|and) [^\n.]{{0,24}}{_V}[^\n]{{0,60}}{_WELL}"
        rf"|(?:{_WELL}|successfully)[^\n]{{0,40}} (?:with|on|in|under|using|and) [^\n.]{{0,24}}{_V}"
        rf"|{_V} ?(?:升|更新|换)?(?:级)?到 ?{_V}|{_V} ?(?:的?(?:环境|版本|代码))?(?:之?后)?,?(?:训练)?"
        r"(?:是|就|都)?(?:正常|没问题|没事|可以)"
        rf"|(?:upgrad|updat|mov|bump)\w{{1,4}} [^\n]{{0,30}}{_V}"
        rf"|{_V} (?:->|→|to) [^\n]{{0,12}}{_V}"
        rf"|no longer [^\n]{{0,50}}{_V} (?:did|does|could|can)\b|升到 ?{_V}"
        r"|(?:老|旧|之前的?|上个?)版本?.{0,8}(?:正常|没问题|没事|可以|不会)"
        rf"|revert\w{{0,4}} to [^\n]{{0,10}}{_V}|(?:out of memory|oom) (?:at|on|in|with|since) [^\n]{{0,10}}{_V}"
        rf"|did not with [^\n]{{0,30}}{_V}|switch\w{{0,3}} (?:back )?to {_V}|works? (?:fine )?(?:on|with"
        rf"|in) (?:the )?v\d\b"
        rf"|(?:using|with) {_V}[^\n]{{0,100}}(?:quadrupl|doubl|tripl|\d ?x more|more memory)"
        r"|(?:退回|回退|降级)[^\n]{0,10}(?:又?好|可以|正常)"
        rf"|same machine and image with [^\n]{{0,16}}{_V}"
        rf"|(?:able to|could|can) (?:run|train|load|fit|use|serve|start)\b[^\n]{{0,100}}{_V}[^\n]{{0,24}}\bnow\b"
        rf"|{_V}[^\n]{{0,30}}(?:相比|相较|对比|较之)[^\n]{{0,20}}{_V}|{_V}[^\n]{{0,20}}比 ?[^\n]{{0,12}}{_V}"
        rf"|(?:if|when) (?:i |we |you )?(?:use|using|install\w{{0,3}}|run\w{{0,4}}) [^\n.]{{0,24}}{_V}[^\n]{{0,16}}"
        r"(?:oom|out of mem|works?\b|train\w{0,3} starts?|crash|fails?\b)"
        r"|(?:not|n'?t|no such \w{3,12}|never) (?:\w{2,12} ){0,2}(?:present|happen|seen|see|occur|observe|reproduc"
        rf"|exist)\w{{0,5}}\b[^\n]{{0,40}} (?:in|on|with|under|using) [^\n.]{{0,20}}{_V}"
        rf"|(?:changed?|changes|introduced|started|starts|began|begins|appear(?:s|ed)) (?:in|with|since|from) "
        rf"(?:version )?{_V}|(?:better|lower|less|smaller) (?:memory )?(?:on|in|with|under) [^\n]{{0,12}}{_V}"
        rf"|\bsince (?:version |release |the )?(?:[\w-]{{2,16}} )?{_V}",
        unless=_SAME,
    ),
    Clue(
        "bisected",
        DECISIVE,
        prose=True,
        says=r"\bbisect|traced it to|last (?:successful|good) (?:run|version|commit)|(?:commit"
        r"|version) before.{0,24}(?:fine|works|good)"
        r"|(?:pr|pull request) #?\d+[^\n]{0,24}removed|regress(?:ion|ed)"
        r"|(?:oom|error|memory|bug|issue)[^\n]{0,24}(?:after|since) (?:the )?(?:pr|pull request|commit|merge)\b"
        r"|(?:bug|oom|issue|problem|leak)[^\n]{0,16}introduced (?:in|by|with|since)"
        r"|revert\w{0,3} (?:the |this |that |to )?(?:patch|commit|change|pr\b|merge)[^\n]{0,24}(?:help|fix|solv|work)"
        r"|(?:th(?:is|at|e)|recent|latest|following) (?:\w{2,10} )?(?:patch|commit|pr|pull request|merge)\b[^\n]{0,40}"
        r"(?:caus(?:es?|ed|ing)|breaks?|broke|leads? to|introduc\w{2,4})\b|(?:^|\n)revert [\"“]",
    ),
    Clue(
        "since-update",
        DECISIVE,
        prose=True,
        says=rf"(?:after|since|following|before)\s{_STEPS_OF}{{0,3}}(?:updat(?:e|es|ed|ing)|upgrad(?:e|es|ed|ing)"
        r"|bump(?:ed|ing)|git pull)\b(?! (?:steps?|of |on th|to (?:an? |the )?(?:colab|pro\b|premium|larger|bigger|rtx"
        r"|\d{2,3} ?gb)"
        r"|(?:the |my )?(?:config|batch|setting|param|weight|learning)))"
        r"|install(?:ing|ed) the (?:latest|newest|new) (?:\w{2,12} )?(?:driver|version|release|update)s?\b"
        r"|(?:git ?pull|拉取?最新代码|更新代码|更新了?依赖)[^\n，。]{0,6}(?:之后|以后|后)|(?:recent|latest|last|newest"
        r"|today'?s|yesterday'?s) (?:[\w.+-]{2,16} )?(?:updates?|upgrade|release)\b"
        r"[^\n.]{0,40}(?:caus|broke|break|lead|use[sd]? |requir|need|mak)",
    ),
    Clue(
        "commit-named",
        DECISIVE,
        prose=True,
        says=r"\b(?:previous|prior|preceding|parent|earlier|older|last) (?:\w{1,12} )?(?:commit|build|nightly)s?\b"
        rf"|(?:oom|out of memory|memory)[^\n]{{0,16}} (?:with|on|at|in|after|since|from) (?:commit |build )?{_BUILD}"
        rf"|(?:after|since|from|until|before|up to|post)[ -](?:commit |build |version )?{_BUILD}"
        rf"|(?:^|\s){_BUILD} (?:version|update|commit|build|release)\b|\bold (?:commit|build)\b"
        rf"|(?:updat|upgrad|switch|revert|check|pull)\w{{0,4}} (?:back |out )?(?:to )?(?:commit )?{_BUILD}"
        r"|\bbuild a\b[^\n]{0,120}\bbuild b\b|(?:上一个|前一个|旧的?) ?(?:commit|提交|构建)",
    ),
    Clue(
        "reverted",
        DECISIVE,
        prose=True,
        says=rf"{_BACK}[^\n]{{0,80}}(?:\bfix|\bhelp|\bsolv|\bresolv|\bwork|\bok\b|no (?:error|problem|issue)"
        r"|go(?:es|ne)? away|disappear"
        r"|able to|makes it run|\bruns?\b|loads?\b)"
        rf"|(?:fixed|resolved|solved|works?|worked|gone)[^\n]{{0,40}}{_BACK}"
        r"|(?:回退|回滚|降级|退回|换回|降回|装回|降到|回到)[^\n，。]{0,24}(?:解决|恢复|正常|好了|可以|没问题|就不|就没"
        r"|就能|就好)",
    ),
    Clue(
        "commit",
        STRONG,
        prose=True,
        says=r"(?:before|after|since|until) (?:the )?commit|(?:之前的?|之后的?"
        r"|从).{0,20}commit|commit.{0,16}(?:之后|之前)|earlier [\w-]{2,20} commit",
    ),
    Clue(
        "before-after",
        STRONG,
        prose=True,
        says=r"used to (?:be able to )?(?:run|work|fit|train|load)\b[^\n]{0,80}\bnow\b|(?:上个?月|上周|前几天|前天"
        r"|昨天|几天前)[^\n，。]{0,12}(?:还能|还可以|都能|都可以|能跑|可以跑|正常|没问题)"
        r"|(?:used to (?:be able|run|work|fit|train|load)|previously(?! (?:interrupted|saved|trained|fine))"
        r"|before that).{0,60}(?:\bwork|\bfits?\b"
        r"|\bruns?\b|\bran\b|\btrained|fine\b|able|did not|didn'?t|does(?: not|n'?t) happen)"
        r"|(?:\bwork(?:s|ed|ing)?|\bfits?(?:ted)?|\bran|\btrained)\b.{0,24}(?:before\b(?! ?(?:it\b|the|a\b|an\b|i\b"
        r"|we\b"
        r"|any|forward|train|each|this|that|they|my\b|\w{2,12}ing\b))|previously|weeks? ago|months? ago"
        r"|yesterday)|(?:(?:two|three|four|some|\d)(?: and a half)?|couple of) days ago[^\n]{0,60}(?:start|work|fine"
        r"|began)"
        r"|(?:fine|worked|ran)[^\n.]{0,24} (?:until|till|up to) (?:today|yesterday|recently|last|this|the (?:last"
        r"|latest))"
        r"|(?:worked|been using)[^\n]{0,40} for (?:an? |\w{1,6} )(?:years?|months?|weeks?)\b"
        r"|no longer (?:works|fits|runs|starts|loads|trains|possible)|since (?:the )?(?:first |new "
        r"|latest )?(?:version|release|update)|(?<!until it )does not (?:load|work|fit) any ?more"
        r"|别的.{0,6}没动"
        r"|(?<!硬件没法)(?<!硬件)升级|(?<!权重)(?<!参数)(?<!梯度)(?<!模型)更新(?:后|到|之后)|回退|降级|退回|(?:work"
        r"|ran|fit"
        r"|train)\w{0,3}"
        r"[^\n]{0,20} (?:in|on|with|under) (?:the )?last (?:version|release|image|build)"
        rf"|(?:work|ran|fit|fine|train)\w{{0,3}}[^\n]{{0,20}} (?:in|on|with|under|using) (?:the |an? )?"
        rf"(?:previous|old\w{{0,2}}|earlier|prior|former) (?:{_PACKAGES})\b"
        rf"|{_OLD}[^\n.]{{0,60}}{_GOOD}|{_GOOD}[^\n.]{{0,80}}{_OLD}"
        r"|(?:旧|老|之前的?|以前的?|上一?个|原来的?)(?:版本?|代码|镜像|分支)[^\n。]{0,20}(?:正常|可以|没问题|不会|能跑"
        r"|没有|能用)"
        r"|以前[^\n]{0,12}(?:能跑|可以|没|正常|不会)",
        unless=r"(?:previously|before|used to|earlier)[^\n.]{0,50}\b\d{1,3}(?:\.\d)?b\b"
        r"|换了(?:一?个)?[^\n。]{0,6}(?:模型|数据)|只改了"
        r"|(?:之前|以前)[^\n。]{0,20}\d{1,3}(?:\.\d)?b\b",
    ),
    Clue(
        "before-after",
        FAIR,
        prose=True,
        says=r"(?<!报错)(?<!出错)(?<!训练)(?<!运行)之前.{0,12}(?:能跑|可以|正常|不会)|stopped working"
        r"|(?:a few|few|one|a|last|\d) (?:weeks?|months?) ago|last (?:week|month)",
        unless=r"突然|\d{1,3}(?:\.\d)?b\b|换了(?:一?个)?[^\n。]{0,6}(?:模型|数据)|只改了",
    ),
    Clue(
        "unchanged",
        FAIR,
        prose=True,
        says=r"nothing (?:else )?(?:in my config )?(?:was |is |has )?changed|everything else (?:is |being |stays )?"
        r"(?:un|the same|identical)|leaving all [^\n]{0,24}unchanged"
        r"|(?:identical|same) (?:\w{1,12} ){0,2}(?:source|code|config\w{0,8}|commands?|scripts?|machine|hardware"
        r"|workflow|settings?)\b[^\n]{0,60}(?:works?\b|worked|\bruns?\b|\bran\b|loads|\bfine\b|functioning"
        r"|no (?:problem|issue))|(?:同样|相同|一样)的?(?:代码|配置|参数|命令|脚本|入参)[^\n]{0,24}(?:以前|之前|正常"
        r"|可以)",
        unless=r"(?:same|identical) [^\n]{0,60}(?:repo|paper|\bgpus?\b|a100|h100)"
        # Other models and other tasks under the same command are another comparison.
        r"|(?:gemma|qwen|llama|mi[sx]tral|deepseek|glm|baichuan|phi)[^\n]{0,30}the same|\bwithout \w{3,20} the same"
        r"|(?:相同|同样|一样)的?(?:代码|配置|参数|命令|脚本)[^\n]{0,12}(?:gemma|qwen|llama|mi[sx]tral|deepseek|glm"
        r"|模型)",
    ),
    Clue(
        "takes-more",
        STRONG,
        prose=True,
        says=r"(?:memory|vram|usage|consumption|peak)[^\n.]{0,40}(?:doubl|tripl|increas|jump|higher|more"
        r"|went (?:up )?from)[^\n.]{0,40}(?:in|with|between|across|since) (?:the )?(?:new|latest|newer|recent|newest"
        r"|last)?(?:er|est)? ?(?:\w{2,16} )?(?:versions?|releases?|builds?)\b"
        r"|fsdp2[^\n]{0,60}(?:more|higher|larger|extra)[^\n]{0,40}\bfsdp1?\b"
        r"|(?:more|higher|larger|twice|double)[^\n]{0,30}(?:memory|vram|ram)[^\n]{0,30} than [^\n]{0,24}"
        r"(?:(?:older|old|previous|earlier|last) (?:one|version|release|build|commit)|\bv\d)"
        rf"|versions? ?[<>]=? ?{_V}|[<>]=? ?{_V}[^\n]{{0,40}}(?:no longer|does not|doesn'?t)"
        r"|(?:works?|fine|safe|\bok\b|no (?:problem|issue)|runs)[^\n]{0,24}\b(?:v0|v1|legacy|old) ?(?:engine)?\b(?!\.)"
        r"|\bv0\b(?!\.)[^\n]{0,24}(?:works?\b|fine|safe|\bok\b|no (?:problem|issue)|正常|没问题)",
    ),
    Clue(
        "latest",
        FAIR,
        prose=True,
        says=r"(?<!using )(?<!use )(?<!using the )(?<!use the )(?<!on the )(?<![(=:,])(?<![(=:,] )"
        r"latest (?:version|iteration|main|release|commit)|nightly",
        unless=_SAME,
    ),
    Clue(
        "update-named",
        STRONG,
        prose=True,
        says=r"(?<!helm )(?<!--)upgrad(?:e|es|ed|ing)\b(?! (?:--|to (?:an? )?(?:colab|pro\b|premium|larger|bigger|rtx"
        r"|\d{2,3} ?gb)))|downgrad"
        r"|after (?:the |an? )?updat(?!e on th|e_)"
        r"|\bbug (?:of|in)\b[^\n]{0,16}\d\.\d|older versions?|新版|旧版|老版本|reverting|roll(?:ed|ing)? back"
        r"|current version"
        r"|(?:new|newer|latest|minor|previous) release|(?:which|哪个|这个) ?(?:version|版本)|pinning the old"
        r"|换了(?:镜像|版本|环境)|重新装环境|new environment|merged change|used to run|(?:更新"
        r"|升级) ?\w{2,16} ?(?:以后|之后|后)|than the (?:last|previous) (?:one|version|release)",
        unless=_SAME,
    ),
)
_PINNED: Final = re.compile(
    r"(?<![\w.])([a-z][a-z_-]{1,24})[ =:@v-]{0,4}(\d{1,3}\.\d{1,3}(?:\.(?:\d{1,4}|x)){0,2}(?:\.?(?:rc|dev"
    r"|post)\d{1,3})?)"
    r"(?! ?[gmkt]i?b|\d| ?%| ?x\b| ?b\b)"
)
_NO_PACKAGE: Final = re.compile(
    r"\W*|(?:(?:code)?llama|qwen|(?:chat)?glm|phi|gemma|deepseek|internlm|mistral|wan|llava|vicuna|internvl|minicpm"
    r"|baichuan"
    r"|yi|flux|gpt|from|to|than|is|of|only|about|util\w*|ratio|lr|rate|size|scale|beta|at|took|and|with|in|for|the|by"
    r"|or"
    r"|ubuntu|windows|macos|python|cuda|version|v)\W*"
)
"""What a number follows that is no package's version: models, systems, and words of a sentence."""
_EITHER: Final = rf"{_V} both\b|\bboth [^\n]{{0,24}}{_V}|[均都](?:会|出现|报|存在|有这|一样)"
"""It fails with the one as with the other."""
_FEW: Final = 2
_ROOM: Final = (0.7, 0.9)
"""Predicted part of the card up to which an estimate contradicts a failure in full, and from which not at all."""
_FAR: Final = 1 / 3


def _two_versions(view: View) -> tuple[str, str, str] | None:
    """A package of which the person names two versions: who lists what is installed names one of each."""
    seen: dict[str, str] = {}
    if view.says(_EITHER, prose=True) is not None:
        return None
    for package, version in _PINNED.findall(view.prose):
        name = package.strip("-_")
        if _NO_PACKAGE.fullmatch(name) is not None:
            continue
        first = seen.setdefault(name, version)
        if first != version and (first + version).count(".") >= _PRECISE and not first.startswith(version):
            return name, first, version
    return None


_PRECISE: Final = 3
"""Points in both together: one of them at least is told to the patch."""


def weigh(view: View) -> Iterator[Reason]:
    """What is said of versions, what ranges hold the stated ones, and an estimate that fits."""
    reasons = list(weigh_clues(view, CAUSE, _CLUES))
    two = _two_versions(view)
    if two is not None:
        package, one, other = two
        reasons.append(Reason(STRONG, say("cause.version-regression.two", package=package, one=one, other=other)))
    yield from reasons
    for advisory in view.advisories:
        if advisory.case.partition("/")[0] != CAUSE:
            continue
        fits = view.fullness is not None and view.fullness < 1.0
        held = advisory.needs and applies(advisory.needs, view.job)
        # Who names one or two versions suspects them; a list of the whole environment suspects nothing.
        named = len(view.evidence.versions) <= _FEW and bool(view.evidence.prose)
        # Where nothing is said of versions, a stated one that lies in a range was to blame in one of 25 reports.
        weight = STRONG if reasons or (held and (fits or named)) else FAIR if held else WEAK / 2
        if view.failure is not None and view.failure.kind == "host" and not reasons:
            weight = WEAK / 2
        elif held and fits and view.fullness is not None and view.fullness < sum(_ROOM) / 2:
            # All that the range asks for is in use, and by arithmetic the card would be far from full.
            weight = DECISIVE
        found = {"package": advisory.package, "version": advisory.version}
        yield Reason(weight, say("cause.version-regression.range", range=range_of(advisory), **found))
    fullness, estimate = view.fullness, view.estimate
    if fullness is None or fullness >= _ROOM[1] or estimate is None or not view.training:
        return
    sure = view.sureness * min((_ROOM[1] - fullness) / (_ROOM[1] - _ROOM[0]), 1.0)
    sizes = {"peak_bytes": estimate.process_bytes, "capacity_bytes": view.bytes_of("capacity") or 0}
    yield Reason(WEAK / 2 * sure, say("cause.version-regression.should-fit", **sizes))
    # An estimate that fits contradicts a failure with figures, and says little against a mere "OOM".
    weight = WEAK if view.bytes_of("requested") or view.bytes_of("allocated") else WEAK / 2
    if weight == WEAK and view.sureness >= 1.0 and fullness < _FAR:
        weight = FAIR  # all that decides the estimate is stated, and it is nowhere near the card's end
    for suspect in () if view.advisories else view.suspects[:1]:
        yield Reason(
            weight * sure, say("cause.version-regression.suspect", package=suspect.package, range=range_of(suspect))
        )
