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
)
"""Families of models count as packages do: theirs are no versions that one goes up or back to."""
_V: Final = _MODEL + r"v?\d{1,3}\.(?:x\b|\d{1,3}(?:\.[\w.]{1,12})?(?! ?[gmk]i?b|\d| ?%|x\b| ?b(?:illion)?(?![a-z\d])))"
_SAME: Final = (
    r"(?:every|all|any|each) versions?|other versions? (?:too|as well)|same (?:error|problem|oom) (?:with|in|on)"
    r"|(?:fraction|utili[sz]|static)[\w -]{0,16} from 0?\.\d"
)
_WELL: Final = r"(?:works?\b|worked|fine|runs\b|ran\b|as expected|\bfits|loads in|it is about|can train|trained)"
_CLUES: Final = (
    Clue(
        "comparison",
        DECISIVE,
        prose=True,
        says=rf"(?:with|on|in|using|under|and) [^\n.]{{0,24}}{_V}[^\n]{{0,60}}{_WELL}"
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
        rf"|same machine and image with [^\n]{{0,16}}{_V}",
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
        r"|(?:patch|commit|pr|merge)\b[^\n]{0,40}(?:causes?|breaks?|broke|leads? to)\b",
    ),
    Clue(
        "commit",
        STRONG,
        prose=True,
        says=r"(?:before|after|since|earlier|previous|until|with) (?:the )?commit|(?:之前的?|之后的?"
        r"|从).{0,20}commit|commit.{0,16}(?:之后|之前)|earlier [\w-]{2,20} commit",
    ),
    Clue(
        "before-after",
        STRONG,
        prose=True,
        says=r"(?:used to (?:be able|run|work|fit|train|load)|previously|before (?:the )?updat\w{0,3}"
        r"|before that).{0,60}(?:work|fit|run|train"
        r"|fine)|(?:work|fit|ran|train)\w{0,3}.{0,24}(?:before\b|previously|weeks? ago|months? ago"
        r"|yesterday)|(?:a few|few|one|a|last|\d) (?:weeks?|months?) ago|last (?:week|month)"
        r"|no longer (?:works|fits|runs|starts|loads|trains|possible)|since (?:the )?(?:first |new "
        r"|latest )?(?:version|release|update)|does not (?:load|work|fit) any ?more"
        r"|nothing (?:else )?(?:in my config )?(?:was |is |has )?changed|别的.{0,6}没动"
        r"|(?<!报错)(?<!出错)(?<!训练)(?<!运行)之前.{0,12}(?:能跑"
        r"|可以|正常|不会)|升级|更新(?:后|到|之后)|回退|降级|退回|(?:previous|old\w{0,2}|earlier|prior) (?:version"
        r"|release|image"
        r"|build)\w{0,1}[^\n]{0,40}(?:work|fine|\bok\b|fit|no (?:problem|issue)|did not|didn)|(?:work|ran|fit"
        r"|train)\w{0,3}"
        r"[^\n]{0,20} (?:in|on|with|under) (?:the )?(?:previous|old\w{0,2}|earlier|prior|last) (?:version|release"
        r"|image|build)"
        r"|以前[^\n]{0,12}(?:能跑|可以|没|正常|不会)",
        unless=r"(?:previously|before|used to|earlier)[^\n.]{0,50}\b\d{1,3}(?:\.\d)?b\b"
        r"|(?:之前|以前)[^\n。]{0,20}\d{1,3}(?:\.\d)?b\b",
    ),
    Clue(
        "update-named",
        STRONG,
        prose=True,
        says=r"upgrad|downgrad|after (?:the |an? )?updat|(?<!using )(?<!use )(?<!using the )(?<!use the )(?<!on the )"
        r"latest (?:version|iteration|main|release|commit)"
        r"|nightly|\bbug (?:of|in)\b|older versions?|新版|旧版|老版本|reverting|roll(?:ed|ing)? back"
        r"|current version"
        r"|(?:new|newer|latest|minor|previous) release|(?:which|哪个|这个) ?(?:version|版本)|pinning the old"
        r"|换了(?:镜像|版本|环境)|重新装环境|new environment|merged change|used to run|最新代码|(?:更新"
        r"|升级) ?\w{2,16} ?(?:以后|之后|后)|than the (?:last|previous) (?:one|version|release)",
        unless=_SAME,
    ),
)
_FEW: Final = 2
_ROOM: Final = (0.7, 0.9)
"""Predicted part of the card up to which an estimate contradicts a failure in full, and from which not at all."""


def weigh(view: View) -> Iterator[Reason]:
    """What is said of versions, what ranges hold the stated ones, and an estimate that fits."""
    reasons = list(weigh_clues(view, CAUSE, _CLUES))
    yield from reasons
    for advisory in view.advisories:
        if advisory.case.partition("/")[0] != CAUSE:
            continue
        fits = view.fullness is not None and view.fullness < 1.0
        held = advisory.needs and applies(advisory.needs, view.job)
        # Who names one or two versions suspects them; a list of the whole environment suspects nothing.
        named = len(view.evidence.versions) <= _FEW and bool(view.evidence.prose)
        weight = STRONG if reasons or (held and (fits or named)) else FAIR if held or fits or named else WEAK
        if held and fits and view.fullness is not None and view.fullness < sum(_ROOM) / 2:
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
    for suspect in () if view.advisories else view.suspects[:1]:
        yield Reason(
            weight * sure, say("cause.version-regression.suspect", package=suspect.package, range=range_of(suspect))
        )
