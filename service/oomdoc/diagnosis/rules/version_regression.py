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

from oomdoc.diagnosis.regressions import applies
from oomdoc.diagnosis.result import Reason
from oomdoc.diagnosis.view import DECISIVE, FAIR, STRONG, WEAK, Clue, View, weigh_clues
from oomdoc.messages import say

__all__ = ["CAUSE", "weigh"]

CAUSE: Final = "version-regression"

_V: Final = r"v?\d{1,3}\.\d{1,3}"
_CLUES: Final = (
    Clue(
        "comparison",
        DECISIVE,
        says=rf"(?:with|on|in|using|under|and) [^\n.]{{0,24}}{_V}[\w.]{{0,12}}[^\n]{{0,60}}(?:works?\b|fine"
        rf"|runs\b|as expected|fits|loads in|it is about|can train|trained)"
        rf"|(?:works?|fine|runs?|fits?|trained|loads|successfully)[^\n]{{0,40}} (?:with|on|in|under|using"
        rf"|and) [^\n.]{{0,24}}{_V}"
        rf"|{_V}[\w.]{{0,8}} ?(?:升|更新|换)?(?:级)?到 ?{_V}|(?:upgrad|updat|mov|bump)\w{{1,4}} [^\n]{{0,30}}{_V}"
        rf"|{_V}[\w.]{{0,10}} (?:->|→|to) [^\n]{{0,12}}{_V}|did not with [^\n]{{0,30}}{_V}|(?:退回|回退"
        rf"|降级)[^\n]{{0,10}}(?:又?好|可以|正常)|same machine and image with [^\n]{{0,16}}{_V}",
    ),
    Clue(
        "bisected",
        DECISIVE,
        says=r"bisect|(?:commit|traced it to)[^\n]{0,24}[0-9a-f]{7}|(?:before|after|since|earlier|previous|之前的?"
        r"|之后的?|从).{0,20}commit|regress|vllm bump|version bump|last successful run|(?:pr"
        r"|pull request) #?\d+[^\n]{0,24}removed",
    ),
    Clue(
        "before-after",
        STRONG,
        says=r"(?:used to|previously|before (?:the )?updat\w{0,3}|before that).{0,60}(?:work|fit|run|train|fine)"
        r"|(?:work|fit|ran|train)\w{0,3}.{0,24}(?:before|previously|weeks? ago|months? ago|yesterday)"
        r"|(?:last|a few|few|one|a) (?:weeks?|months?)(?: ago)?|no longer (?:work|fit|load|run)"
        r"|does not load any more|any ?more\b|nothing (?:else )?(?:in my config )?(?:was |is )?changed"
        r"|别的.{0,6}没动|之前.{0,12}(?:能跑|可以|正常|不会)|升级|更新(?:后|到|之后)|回退|降级|退回",
    ),
    Clue(
        "update-named",
        FAIR,
        says=r"upgrad|downgrad|after (?:the )?updat|latest (?:version|iteration|main|release|vera|veRL)"
        r"|latest \w{2,12}\b.{0,40}(?:oom|out of)|nightly|\bbug of\b|please use|older version|新版|旧版|老版本"
        r"|reverting|roll(?:ed)? back|current version",
    ),
)
_ROOM: Final = 0.7


def weigh(view: View) -> Iterator[Reason]:
    """What is said of versions, what ranges hold the stated ones, and an estimate that fits."""
    reasons = list(weigh_clues(view, CAUSE, _CLUES))
    yield from reasons
    for advisory in view.advisories:
        if advisory.case.partition("/")[0] != CAUSE:
            continue
        fits = view.fullness is not None and view.fullness < 1.0
        held = advisory.needs and applies(advisory.needs, view.job)
        weight = STRONG if reasons or (held and fits) else FAIR if held or fits else WEAK
        found = {"package": advisory.package, "version": advisory.version}
        span = {"introduced": advisory.introduced or "0", "fixed": advisory.fixed or "?"}
        yield Reason(weight, say("cause.version-regression.range", **found, **span))
    fullness, estimate = view.fullness, view.estimate
    if fullness is None or fullness >= _ROOM or estimate is None or not view.training:
        return
    sizes = {"peak_bytes": estimate.process_bytes, "capacity_bytes": view.bytes_of("capacity") or 0}
    yield Reason(FAIR * view.sureness, say("cause.version-regression.should-fit", **sizes))
    for suspect in view.suspects[:1]:
        found = {"package": suspect.package, "introduced": suspect.introduced, "fixed": suspect.fixed or "?"}
        yield Reason(FAIR * view.sureness, say("cause.version-regression.suspect", **found))
