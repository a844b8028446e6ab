"""What kind of turn it is: which question is asked, whether anything is to change, small talk."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from oomdoc.chat.phrases import fields_named
from oomdoc.chat.turn_words import views_of
from oomdoc.chat.wording import patterns
from oomdoc.intake.asked import asked_in
from oomkb.kept import compiled

if TYPE_CHECKING:
    from oomdoc.chat.grammar import Turn

_RE: Final = patterns("questions")
_PLEASANTRIES: Final = patterns("pleasantries")
_TOPICS: Final = patterns("topics")
_SIDES: Final = patterns("choosing")["sides"]


def says(turn: str, what: str) -> bool:
    """Whether a turn holds the words of a row of ``[questions]``: ``why``, ``largest``, ``goes_on`` ..."""
    return bool(_RE[what].search(turn))


def doubts(turn: str) -> bool:
    """Whether a turn says how somebody feels about a setting, and orders nothing."""
    return bool(_RE["doubts"].search(turn) and not _RE["orders"].search(turn))


def without_courtesy(turn: str) -> str:
    """The turn without its thanks."""
    return turn if _RE["praise_alone"].match(turn) else _RE["courtesy"].sub("", turn)


def without_echo(turn: str) -> str:
    """The turn without a figure of the last answer that it doubts first: "only 3? they are short"."""
    return _RE["echo"].sub("", turn, count=1)


WANTED: Final = {
    "batch": "micro_batch",
    "length": "seq_len",
    "cards": "gpus",
    "requests": "serving.concurrency",
    "host": "host_gib",
}
"""What a question for a quantity is about, as a job's field."""


def asks_plainly(turn: str) -> bool:
    """Whether a turn asks for the reason and names nothing: "why?", "为什么呢"."""
    return bool(_RE["why_alone"].fullmatch(turn.strip()))


def about(text: str, turn: Turn) -> tuple[str, ...]:
    """The fields that a question without values is about: a number in the next turn is for them."""
    wanted = WANTED.get(asked_in(text).wanted)
    return (wanted,) if wanted is not None and wanted not in turn.changes else ()


def asks(turn: str) -> bool:
    """Whether a turn is a question by its mark or its last word."""
    return turn.rstrip().endswith(("?", "？", "吗", "呢", "么"))


def compares(turn: str) -> bool:
    """Whether speed is asked about."""
    return bool(_RE["of_two"].search(turn) or (_RE["compare"].search(turn) and topic_of(turn) != "pick"))


def weighs_runs(turn: str) -> bool:
    """Whether it is asked which of several runs is better, or for them side by side."""
    return bool(_SIDES.search(turn))


def asks_for_amount(turn: str) -> bool:
    """Whether a quantity is asked for, whatever values are named with it: "fp16, how many cards?"."""
    asked = _RE["quantity"].search(turn) and not _RE["to_set"].search(turn)
    sized = bool(asked) and (asked_in(turn).wanted != "fit" or says(turn, "largest"))
    return sized or says(turn, "which_card")


def chooses(turn: str) -> bool:
    """Whether alternatives are set against each other: "lora vs full?"."""
    return bool(_RE["versus"].search(turn) and not _RE["compare"].search(turn))


def asks_room(turn: str) -> bool:
    """Whether it is asked what is left of the card: "how much headroom is that?", "还剩多少显存？"."""
    return bool(_ROOM_LEFT.search(turn) and not _OTHER_ROOM.search(turn))


_ROOM_LEFT: Final = compiled(
    r"(?i)\bhow\s(?:much|many)\s(?:(?:more|extra|of\s(?:it|the\scard)|free|spare|gi?bs?|gigs|gpu|memory|vram|actual|real)\s){0,3}"
    r"(?:headroom|slack|margin|room|space|spare)\b|\bhow\s(?:much|many)\b[^.?!\n]{0,40}\b(?:left(?!\s?over)|free|unused|to\sspare|spare|available|remain\w{0,3})\b"
    r"|\b(?:what(?:'?s|\sis|\sare)\s(?:the\s|my\s|our\s)?|any\s|\A\W{0,3}(?:and\s|so\s)?)(?:headroom|margin|slack|(?:memory\s|vram\s)?left|(?:remaining|spare|free)\s(?:memory|vram|room))\b"
    r"|\b(?:any|some|much)\s(?:head)?room\s(?:left|to\sspare)\b"
    r"|(?:剩|余|空)(?:下|余|出)?来?(?:的)?(?:显存)?(?:还)?有?(?:多少|多大|几个?\s?g)|(?:余量|富余|空余|剩余(?:显存)?|空闲显存)(?:还)?(?:有|是)?(?:多少|多大|几个?\s?g)"
    r"|(?:还|能)有多少(?:显存|空间|余量|富余)|多少(?:显存|空间|余量)?(?:没用|空着|剩|空余|可以?用|还能用)|有多少(?:余量|富余|空余)"
)
_OTHER_ROOM: Final = compiled(
    r"(?i)\b(?:left|room|space|headroom|free|available|spare)\s(?:\w{1,8}\s)?(?:for|to\s(?!spare))|\b(?:host|cpu|system|disk|ram|time|requests?|users?|steps?|tokens?|kv)\b"
    r"|缓存|主机|内存(?!卡)|磁盘|留给|给\s?(?:kv|缓存)|并发|请求"
)


def says_yes(turn: str) -> str:
    """``proposal`` where the last hypothetical change is to be made, ``plan`` where oomdoc's own proposal is."""
    if _RE["plan"].search(turn):
        return "plan"
    if _RE["praise_alone"].match(turn):
        return ""
    return "proposal" if len(turn) <= 48 and any(c.isalnum() for c in turn) and _RE["yes"].match(turn) else ""


def agreed_first(turn: str) -> str:
    """What is left of a turn behind words that take up the proposal: "yes, and also batch 1"; nothing where none do.

    "ok" and "好" before settings begin a turn, and agree to nothing that those do not add to.
    """
    for seam in reversed(list(_SEAM.finditer(turn, 0, _MAX_AGREEMENT))):
        head, rest = turn[: seam.start()], turn[seam.end() :]
        outright = not _BEGINS.fullmatch(head) or _ADDS.match(turn, seam.start()) or _ADDS.match(rest)
        if rest.strip() and outright and says_yes(head) == "proposal":
            return rest
    return ""


_SEAM: Final = compiled(
    r"(?i)[,，。.;；!！]|(?:\s|^)(?=and\b|but\b|also\b|with\b|plus\b)|(?=再|并且?|顺便|同时|另外|还要)"
)
_BEGINS: Final = compiled(
    r"(?i)(?:\W|\b(?:ok(?:ay)?|right|so|then|well|alright|fine|good|great|and)\b|嗯|好的?|吧|啊|呀|那|就|行){0,12}"
)
_ADDS: Final = compiled(r"(?i)\W{0,3}(?:and\b|also\b|plus\b|再|也|并|同时|顺便|另外|还要)")
_MAX_AGREEMENT: Final = 48


def without_leave(turn: str) -> str:
    """The turn without the words by which somebody leaves for a while: "back in 15", "先去吃饭"."""
    return _LEAVES.sub(" ", turn)


_LEAVES: Final = compiled(
    r"(?i)(?:\b(?:i'?ll|i\swill|i'?m|we'?ll|will|gonna)\s(?:be\s)?|\bbe\s|\A\W{0,3}|[,.;!]\s{0,2})(?:right\s)?back\s"
    r"(?:(?:in|after)\s(?:about\s|like\s)?(?:half\b|an?\b|the\b|\d{1,3}(?![\d.kK]))|at\s\d{1,2}(?=:\d\d|\s?[ap]m|\so'?clock)"
    r"|after\s\w|soon|later|shortly|tomorrow|on\s\w{2,5}day)[^,.;!?\n]{0,24}"
    r"|\b(?:brb|bbl|afk|ttyl|bbs)\b|\b(?:give|gimme)\s(?:me\s)?(?:a|an|some|\d{1,3})\s?(?:sec\w{0,4}|min\w{0,5}|moment|hours?|time)\b"
    r"|\b(?:see|talk\sto)\syou\s(?:at|in|later|tomorrow|soon)\b[^,.;!?\n]{0,16}|\b(?:hold|hang)\son\b|\A\W{0,3}(?:wait\s)?(?:one|just\sa|a)\s(?:sec|min|moment)\w{0,4}"
    r"|\b(?:(?:have|got|gotta|need)\s(?:to\s)?(?:go|run|leave|step)|stepping|off|going|heading|grabbing|getting|in|at|for|quick)\s(?:to\s|into\s|out\s|away\s|for\s)?"
    r"(?:an?\s|my\s|some\s|the\s)?(?:quick\s|short\s)?(?:lunch|dinner|coffee|meeting|call|break|bed|sleep|home|away|out)\b(?:\s(?:now|first|real\squick))?"
    r"|(?:我|先|得|要|去|在){1,3}(?:去)?(?:开个?(?:短|小)?会|吃个?(?:午|晚|早)?饭|接个?(?:电话|人|孩子)|睡觉?|忙一?(?:下|会儿?)|离开一?(?:下|会儿?)|上课|取个?快递)(?![前时省不更会])了?"
    r"|(?:等?一会儿?|等?一下|待会儿?|等会儿?|等下|晚点儿?|晚些|稍后|马上|很快|回头|(?:[\d一二两三四五六七八九十半]{1,3}\s?个?(?:分钟|小时|钟头)(?:之?后)?))(?:就|再|我)?(?:回来?|见|过来|聊|继续)"
    r"|(?:\A|[，,。])\W{0,2}(?:稍等|等我\s?(?:一?下|一会儿?|[\d一二两三四五六七八九十半]{1,3}\s?分钟)|给我\s?[\d一二两三四五六七八九十半]{1,3}\s?个?(?:分钟|小时))"
)


def only_leaves(turn: str) -> bool:
    """Whether a turn says that somebody will be back, and nothing else that is to be read."""
    rest = without_leave(turn)
    return rest != turn and not asks(turn) and len(_WORD.findall(rest)) <= _MAX_BESIDE_LEAVE


_WORD: Final = compiled(r"[A-Za-z0-9_.=-]+|[\u4e00-\u9fff]")
_MAX_BESIDE_LEAVE: Final = 8
"""Words beside a leave that are small talk: "ok thanks, brb"."""


def only_praises(turn: str) -> bool:
    """Praise: nothing is to be changed."""
    return bool(_RE["praise"].search(turn) and not _RE["orders"].search(turn))


def pleasantry(turn: str) -> str:
    """Small talk that deserves an answer of its own."""
    rows = _PLEASANTRIES.items() if len(turn) <= 80 else ()
    return next((name for name, pattern in rows if pattern.search(turn)), "")


def only_asks(turn: str) -> bool:
    """Whether a short question names nothing: it is about how the run stands."""
    return len(turn) <= 48 and bool(_RE["bare_question"].fullmatch(turn.strip()))


def topic_of(turn: str) -> str:
    """What a question is about, beside the parts of the memory: by its words as a whole, else by a pattern."""
    named, odds = _named_topic(turn), views_of(turn)
    if named in _NAMED_PRECISELY:
        return named
    best = max(odds, key=odds.__getitem__)
    least = _LEAST_VIEW.get(best)
    if least is not None and odds[best] >= least:
        return _VIEW_TOPICS.get(best, best)
    return named if odds.get(_VIEW_OF.get(named, named), 1.0) >= _LEAST_OF_NAMED else ""


def _named_topic(turn: str) -> str:
    return next((name for name, pattern in _TOPICS.items() if pattern.search(turn)), "")


_NAMED_PRECISELY: Final = frozenset({"setting", "saved", "sure", "breakdown"})
"""Topics whose patterns name nothing else."""
_VIEW_TOPICS: Final = {"history": "saved", "speed": "rate"}
"""Views that are topics of another name."""
_VIEW_OF: Final = {"saved": "history", "rate": "speed", "setting": "config", "requests": "largest"}
_LEAST_VIEW: Final = {
    **dict.fromkeys(("config", "diff", "history", "speed", "pick"), 0.65),
    **dict.fromkeys(("breakdown", "sure"), 0.8),
}
"""Probability from which a turn asks for a view, whatever it names."""
_LEAST_OF_NAMED: Final = 0.03
"""Probability of its view below which a topic that a pattern names is not asked for."""


def views(turn: str, *, serving: bool) -> str:
    """Which view of the job as it stands is wanted: ``config diff breakdown saved``, of a server ``requests``."""
    found, views = topic_of(turn), {"config", "diff", "setting", "breakdown", "saved"}
    return found if found in (views | {"requests"} if serving else views) else ""


def still_fails(turn: str) -> bool:
    """Whether a turn tells that the run fails as it is now."""
    return bool(_RE["still_fails"].search(turn)) and not _RE["supposes"].search(turn)


def in_domain(turn: str) -> bool:
    """Whether a turn without any known question is oomdoc's business at all."""
    asked = asked_in(turn)
    named = _RE["domain"].search(turn) or _named_topic(turn) or says(turn, "largest") or fields_named(turn)
    return bool(named or asked.of_memory or asked.trains or asked.serves or asked.wanted != "fit")
