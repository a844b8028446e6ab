"""What kind of turn it is: which question is asked, whether anything is to change, small talk."""

from __future__ import annotations

import re
from typing import Final

__all__ = [
    "asks_only",
    "compares",
    "doubts",
    "in_domain",
    "invents",
    "largest_asked",
    "only_remarks",
    "pleasantry",
    "says_yes",
    "topic_of",
    "without_courtesy",
]

_ASK: Final = re.compile(
    r"(?i)\A\W{0,3}(?:(?:hmm+|ok(?:ay)?|so|and|but|well|wait|btw|then|or|oh|also)[,.\s]{1,3}){0,3}"
    r"(?:(?:is|are|was|were|does|did|will|would|should|has|explain|tell\sme)\s|do\s(?:i|we|you|they|these|those|the|my)\s"
    r"|what(?:'s|\sis|\sare|\sdoes|\sdo|\sdid)\s(?!.{0,80}\b(?:if|with|at|on)\b))"
    r"|\bwhy\b|\bjust\s(?:asking|curious|wondering)\b|\b(?:don'?t|do\snot)\s(?:change|apply|touch)\b|\bnot\syet\b"
    r"|\bwithout\s(?:changing|applying)\b|\bhypothetical|\bin\stheory\b|\bout\sof\scuriosity\b|\bnot\sasking\sto\schange\b|\bsuppose\b|\bimagine\b"
    r"|\bwould\b.{1,60}\b(?:help|save|matter|make\sa\sdifference|be\s(?:enough|ok|okay|fine|sufficient)|suffice|handle|do\sit|work|fit|cope)\b"
    r"|\bdo(?:es)?\b.{1,60}\b(?:help|matter|take|use|cost|fit|suffice|work)\b|\bis\b.{1,40}\benough\b"
    r"|\bshould\si\b|\bwhich\b.{0,30}\b(?:better|best|prefer|pick|choose)\b|\bhow\smuch\s(?:would|does|do|will|could)\b.{1,60}\bsave\b|\bworth\sit\b|\bdo\si\s(?:even\s)?need\b|\bcompare\b"
    r"|是不是|为什么|为啥|为何|怎么不|只是问|只问|问问|问一下|好奇|[先暂]时?(?:别|不)(?:要|用|真)?(?:改|动)|不要改|别真?的?改|别动|不用改|有用吗|有没有用|有帮助吗"
    r"|值得吗|值不值|能省多少|省多少|差多少|涨多少|多多少|占多少|占地方|会不会更|够吗|够不够|够用吗|假设一下|对比|比较一下|相比|哪[个种]更|差别|区别|是什么|什么意思|会影响|哪来"
)
_COMPARE: Final = re.compile(
    r"(?i)\bwhich\b.{0,60}\b(?:fast|slow|quick)\w{0,3}\b|\b(?:fast|slow|quick)(?:er|est)\b|\bfewer\stokens\b|\b(?:slow|speed)\s?(?:down|up)s?\b"
    r"|\bhow\s(?:much\s)?(?:slow|fast)\b|\bthroughput\b|\bspeed\b|\btok(?:en)?s?\s?(?:/|per\s)s"
    r"|(?:哪个|哪种|哪一个|谁|哪边).{0,12}(?:快|慢)|最快|更快|快多少|慢多少|[快慢][一了]?[点些]|会?(?:变|更)[快慢]|会慢|会快|吞吐|速度"
)
_INVENT: Final = re.compile(
    r"(?i)\bmake\s(?:it|one|that|something|a\snumber)\sup\b|\bpretend\b|\bignore\s(?:all|your|the|previous|any)\b|\bsystem\s?(?:prompt|:)|\byou\sare\snow\b"
    r"|\b(?:say|tell\sme|write|claim|confirm|promise|state|report|answer)\b.{0,40}\b(?:it|that|this)\s(?:\w{1,10}\s)?(?:needs|fits|uses|takes|is\s\d|will\sfit)\b"
    r"|编一个|编个|随便(?:写|说|给)|假装|忽略.{0,12}(?:规则|指令|设定|提示)|直接(?:说|写|回答|告诉).{0,8}(?:放得下|够|不会)"
    r"|(?:输出|回答|写成?)\s?[：:].{0,24}(?:GiB|GB|放得下|够)|别管(?:计算|结果)|不用算|你现在是"
)
_YES: Final = re.compile(
    r"(?i)\A\W{0,3}(?:(?:ok(?:ay)?|yes|yeah|yep|sure|please|great|good|fine|alright|right|then|so|and|well|good\sidea|sounds\sgood|嗯+|好(?:的|吧|啊|呀)?|行(?:吧)?|可以|那|就|对|是的|没问题)[\s,.!，。！]{0,3}){0,4}"
    r"(?:(?:let'?s\s)?(?:do|apply|use|take|try|make|accept|keep|go\s(?:with|for))\s(?:it|that|this|so|the\schange|those|them)(?:\s(?:change|one|then|now|please))?"
    r"|apply|go\sahead|make\sthe\schange|do\sso|改吧|改(?:了)?吧|就?(?:这样|这么)(?:改|办|做|定)?(?:吧)?|就改(?:了|吧)?|应用(?:吧|一下|它|这个)?|采纳|就用(?:这个|它)(?:吧)?|用(?:这个|它)吧|照做|就它(?:了|吧)|那就改(?:吧)?|改"
    r")?[\s.!~，。！、]{0,4}(?:please|pls|thanks|吧|了)?[\s.!~，。！]{0,3}\Z"
)
_PRAISE_ALONE: Final = re.compile(
    r"(?i)\A\W{0,3}(?:(?:ok(?:ay)?|great|good|nice|cool|fine|wow|lovely|awesome|perfect|brilliant|neat|thanks?|thank\syou|thx|cheers|ta|many|so|much|very"
    r"|a\slot|谢谢|多谢|感谢|不错|很好|太好了|好)[\s,.!，。！~]{0,3}){0,4}(?:thanks?|thank\syou|thx|cheers|great|nice|cool|good|awesome|perfect|brilliant|neat|lovely|wow"
    r"|谢谢|多谢|感谢|不错|很好|太好了)[\s.!~，。！]{0,4}\Z"
)
_PLAN: Final = re.compile(
    r"(?i)\b(?:apply|use|take|do|accept|go\swith)\b.{0,16}\b(?:plan|suggestion|proposal|recommendation|fix)\b|(?:按|用|采纳|采用|照|应用)(?:着|了)?(?:你|这个|上面|刚才|第一个)?(?:的|说的|给的)?(?:方案|建议|做法|计划)"
)
_PLEASANTRIES: Final = (
    (
        "identity",
        re.compile(
            r"(?i)\b(?:who|what)\s(?:exactly\s)?are\syou\b|\bwhat\s(?:can|do)\syou\s(?:do|know)\b|\bhow\sdo\syou\swork\b|\A\W{0,3}/?help\W{0,3}\Z|你是谁|你是什么|你是干|你能(?:做|干|帮)|你会(?:做|干)?什么|怎么用你|\A帮助\Z"
        ),
    ),
    (
        "thanks",
        re.compile(
            r"(?i)\b(?:thanks|thank\syou|thx|cheers|appreciate|much\sobliged|awesome|perfect)\b|谢谢|多谢|感谢|辛苦|太好了|厉害"
        ),
    ),
    ("bye", re.compile(r"(?i)\A\W{0,3}(?:bye|goodbye|see\syou|good\snight|再见|拜拜|晚安)")),
    (
        "greeting",
        re.compile(
            r"(?i)\A\W{0,3}(?:hi|hello|hey|good\s(?:morning|afternoon|evening)|你好|您好|在吗|在么|嗨|哈喽|hallo)\b(?:\sthere)?\W{0,3}\Z|\A(?:你好|您好|在吗|在么|在不在|嗨|哈喽|早上好)\W{0,3}(?:啊|呀)?\W{0,3}\Z"
        ),
    ),
)
_TOPICS: Final = (
    (
        "pick",
        re.compile(
            r"(?i)\bwhich\b.{0,40}\b(?:pick|recommend|choose|take|prefer|best|better|cheap\w{0,3}|use)\b|\brecommend|\bsuggest|\byour\s(?:pick|choice|advice)\b|\banything\selse\b|\bwhat\s(?:else\s)?(?:can|could|should|would|do)\s(?:i|you|we)\s(?:do|try|change|suggest|recommend)\b|\bcheap|\bleast\s(?:slowdown|effort|pain)|\bbest\s(?:option|plan|way)|\bother\s(?:options?|ways?)\b|\bhow\s(?:do|can|could)\si\s(?:fix|make|get)\b|建议|推荐|(?:给|有).{0,4}方案|怎么办|怎么解决|还有(?:什么|啥|哪些|别的|其他)|别的办法|其他办法|最省|最便宜|选哪|哪个(?:方案)?(?:最)?(?:好|合适)|哪种(?:最)?好|怎么(?:改|调)"
        ),
    ),
    (
        "fits",
        re.compile(
            r"(?i)\bfits?\b|\benough\b|\bheadroom\b|\bleft\b|\broom\b|\bwill\sit\srun\b|\bsafe\b|[装放]得?下|够[吗不用]|跑得|能跑|会(?:不会)?(?:爆|oom)|还剩|余量|行[吗不]"
        ),
    ),
)
_LARGEST: Final = re.compile(
    r"(?i)\b(?:biggest|largest|longest|maximum|highest|max)\b(?![\s_-](?:model|seq|len|pixels|num|new|prompt|completion|response))|\bhow\s(?:big|large|long|high|far|many\stokens)\b|最大(?!长度\s?\d|像素)|最长|最多|多大|多长|上限|能开(?:到)?多"
)
_DOMAIN: Final = re.compile(
    r"(?i)memor|\boom\b|gpu|vram|cuda|batch|train|token|layer|model|lora|zero|fsdp|quant|off-?load|checkpoint|logit|optimi|gradient|weight|cache|attention"
    r"|infer|serv|vllm|\bfit|gib|\bgb\b|seq|length|parallel|\bwhy\b|explain|\bplans?\b|patch|yaml|config|cheap|option|\bpeak\b|dominat|\beat(?:s|ing)\b|spend|precision|bf16|fp16|reference|critic|rollout|alpha|\bram\b"
    r"|显存|内存|显卡|卡|训练|微调|推理|模型|批|长度|量化|参数|优化器|梯度|激活|权重|并行|[装放]得?下|够|爆|为什么|方案|补丁|峰值|参考|占"
)


_DOUBTS: Final = re.compile(
    r"(?i)\b(?:do|did|does)(?:n'?t|\snot)\s(?:really\s)?(?:trust|love|like)\b|\b(?:worried|afraid|nervous|skeptical|hate)\b"
    r"|\bnot\s(?:so\s|too\s|really\s)?(?:sure|convinced|happy|keen)\b|放心|担心|怀疑|不确定|纠结|犹豫|[害恐]怕"
)
_COURTESY: Final = re.compile(
    r"(?i)\A\W{0,3}(?:thanks|thank\syou|thx|great|cool|nice|perfect|awesome|谢谢|好的|不错|太好了)\s?[,，!！.。]\s?"
    r"|[\s,，.!。！;]{0,3}(?:\b(?:thanks|thank\syou|thx|cheers)(?:\s(?:a\slot|so\smuch|again|in\sadvance))?|谢谢|多谢|感谢)(?:你|您|了|啦|大佬)?[\s.!。！~]{0,3}\Z"
)


def doubts(turn: str) -> bool:
    """Whether a turn says how somebody feels about a setting, and orders nothing."""
    return bool(_DOUBTS.search(turn) and not _ORDERS.search(turn))


def without_courtesy(turn: str) -> str:
    """The turn without its thanks."""
    return turn if _PRAISE_ALONE.match(turn) else _COURTESY.sub("", turn)


def asks_only(turn: str) -> bool:
    """Whether nothing is to change, whatever values are named."""
    return bool(_ASK.search(turn))


def compares(turn: str) -> bool:
    """Whether speed is asked about."""
    return bool(_COMPARE.search(turn)) and topic_of(turn) != "pick"


def invents(turn: str) -> bool:
    """Whether a figure or a verdict is dictated."""
    return bool(_INVENT.search(turn))


def says_yes(turn: str) -> str:
    """``proposal`` where the last hypothetical change is to be made, ``plan`` where oomdoc's own proposal is."""
    if _PLAN.search(turn):
        return "plan"
    if _PRAISE_ALONE.match(turn):
        return ""
    return "proposal" if len(turn) <= 48 and any(c.isalnum() for c in turn) and _YES.match(turn) else ""


def only_remarks(turn: str) -> bool:
    """Praise, or a word about the time: nothing is to be changed."""
    return bool(_AWAY.search(turn) or (_PRAISE.search(turn) and not _ORDERS.search(turn)))


_AWAY: Final = re.compile(
    r"(?i)\b(?:i'?ll\s|i'?m\s|will\s)?(?:be\s)?(?:right\s)?back\s(?:in|at|by|after|around)\s(?:an?\s|\d)|\bbrb\b|\bafk\b|\b(?:give|gimme)\s(?:me\s)?(?:a|an|\d{1,3})\s?"
    r"(?:sec|min|moment|hour)|\bsee\syou\s(?:at|in)\b|\bin\sa\s(?:minute|moment|bit|sec)\b|\b(?:lunch|coffee|meeting|break)\b|(?:分钟|小时)后(?:回|再)|等我|稍等|待会儿?(?:回|见|再)|开个会|吃饭"
)
_PRAISE: Final = re.compile(
    r"(?i)\b(?:love|loving|like|adore|impressed|amazing|awesome|great|nice|cool|neat|brilliant|fantastic|wonderful|clever|handy|sweet|thanks|thank\syou|cheers|good\s(?:job|work|stuff|one))\b"
    r"|不错|厉害|[真太]棒|好用|牛|谢谢|感谢|喜欢"
)
_ORDERS: Final = re.compile(
    r"(?i)[=?？]|\b(?:set|use|using|make|change|switch|try|turn|put|go|drop|lower|raise|reduce|increase|halve|double|cut|move|enable|disable|add|remove|do|apply|take|give|keep|need|want"
    r"|what|how|would|could|can|should|if|to|let'?s|now|but|instead|with\s\d)\b|\d\s?(?:k\b|tokens|gpus?|cards)|改|设|换|用|开|关|调|降|加|减|试|如果|要是|怎么|能不能|会不会|多少|吗|呢"
)


def pleasantry(turn: str) -> str:
    """Small talk that deserves an answer of its own."""
    return next((name for name, pattern in _PLEASANTRIES if pattern.search(turn)), "") if len(turn) <= 80 else ""


def topic_of(turn: str) -> str:
    """What a question is about, beside the parts of the memory."""
    return next((name for name, pattern in _TOPICS if pattern.search(turn)), "")


def largest_asked(turn: str) -> bool:
    """Whether a limit is asked for."""
    return bool(_LARGEST.search(turn))


def in_domain(turn: str) -> bool:
    """Whether a turn without any known question is oomdoc's business at all."""
    return bool(_DOMAIN.search(turn) or topic_of(turn) or largest_asked(turn))
