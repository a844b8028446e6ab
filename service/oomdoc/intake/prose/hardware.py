"""GPUs, how many, and how large, from what people write: ``8×A100 80G``, ``4 张 V100 16GB``, ``a single A6000``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from oomdoc.evidence import Fact
from oomdoc.intake.lines import Line
from oomdoc.intake.prose.gpu_names import GPU_NAME, is_consumer
from oomdoc.intake.prose.numbers import COUNT, to_count
from oomdoc.intake.prose.stance import worked
from oomdoc.intake.sieve import Expression, Sieve, Vocabulary, candidates
from oomkb.units import GIB

__all__ = ["read_hardware"]

_ADJECTIVE: Final = (
    r"(?:(?:nvidia|geforce|tesla|英伟达|amd|的|of|昇腾|\d{1,3} ?g(?:i?b)?(?: ?的)?"
    r"|显存|显卡|consumer|idle|spare|free|local|rented|gpus?)[\s\-]{0,3}){0,4}"
)
_TIMES: Final = r"(?:[x×✕*]|\\\*|(?:[张块个卡颗片枚]|(?P<machines>台))(?:左右|多)?|[ -]x)"
_BEFORE: Final = re.compile(
    rf"(?:(?P<nodes>\d{{1,3}}) ?[x×*] ?)?(?<![A-Za-z0-9_.\-/])(?<![a-rt-z]=)(?P<n>{COUNT}) {{0,2}}{_TIMES}"
    rf"{{0,2}} {{0,2}}{_ADJECTIVE}\Z",
    re.IGNORECASE | re.ASCII,
)
_AFTER: Final = re.compile(
    rf"['’]?s?(?: ?[(（/]?\d{{1,3}} ?g(?:i?b)?[)）]?)? {{0,2}}(?:[x×*] ?(?P<times>\d{{1,3}})(?!"
    rf"\w|\.\d)|[,，、 ]{{0,2}}(?P<cards>{COUNT}) ?(?:卡|张|块)(?!\s{{0,2}}[x×*\d]))",
    re.IGNORECASE | re.ASCII,
)
_SIZE_AFTER: Final = re.compile(
    r"['’]?s?[ \-]{0,2}(?:x ?\d{1,2} {0,2})?(?:gpus? {0,2}|显卡|单卡 ?"
    r"|卡 ?){0,2}[(（,，/]?\s{0,2}(?:with|each|every one|per card|单卡|每张"
    r"|每卡|显存|vram|(?:only |just )?has|of|a|about|约|有|是|为|are|[:：,，]){0,3}\s{0,2}(?:with )?(?P<gib>\d{1,3}(?:"
    r"\.\d{1,2})?) ?g(?:i?bs?|igabytes?|igs?)?(?![A-Za-z])(?! ?(?:of )?(?:内存|ram\b"
    r"|system|cpu|ddr|磁盘|disk))",
    re.IGNORECASE | re.ASCII,
)
_BRACKETED: Final = re.compile(
    r"[(（,，]\s{0,2}(?P<gib>\d{1,3}) ?g(?:i?b)?(?: (?:of )?)?(?:内存|ram\b|memory)", re.IGNORECASE
)
_SIZE_BEFORE: Final = re.compile(
    r"(?P<gib>\d{1,3}) ?g(?:i?bs?|igs?)?(?:[ -]|的|显存){0,3}(?:(?:of vram )?on (?:my |the |an? |our ))?"
    r"(?:nvidia |tesla |geforce |英伟达)?\Z",
    re.IGNORECASE | re.ASCII,
)
_CARDS: Final = Expression(
    rf"(?:(?<![A-Za-z0-9_.\-/=])|(?=[单双两一四八]))(?:(?P<nodes>\d{{1,3}}) ?(?:nodes? ?|台机?器? ?|机 ?)?[x×*] ?)?"
    rf"(?P<n>{COUNT}) {{0,2}}(?:[x×*]"
    rf" {{0,2}})?(?:(?P<gib>\d{{1,3}}) ?g(?:i?b)? {{0,2}}(?:vram )?(?:的 ?)?)?"
    r"(?:(?:nvidia|geforce|tesla|local|available|identical|visible) )?(?:gpus?\b(?!-)"
    r"|cards?\b|显卡|卡(?!死|住|顿|在|了|到)|张(?:显)?卡|块(?:显)?卡|npus?\b|张(?=\s{0,2}(?:显卡"
    r"|gpu|npu|\d{1,3} ?g))|(?:h\d00|a\d00)-class gpus)",
    re.IGNORECASE | re.ASCII,
)
_EACH_SIZE: Final = Expression(
    r"(?<![\d.])(?P<n>\d{1,3}) ?[*x×] ?(?P<gib>\d{2,3}) ?(?:g(?:i?b)?(?![A-Za-z\d])"
    r"|= ?\d{2,5} ?g)",
    re.IGNORECASE | re.ASCII,
)
_OF_SIZE: Final = Expression(
    r"gpus?,? {0,2}(?:with|of|has|have|having|each with|[(（])? {0,2}(?:about "
    r"|around |only )?(?P<gib>\d{1,3}(?:\.\d{1,2})?) ?g(?:i?bs?|igabytes?|igs?)?(?![A-Za-z])",
    re.IGNORECASE | re.ASCII,
)
_LOOSE_SIZE: Final = Expression(
    r"(?:(?P<a>\d{1,3}(?:\.\d{1,2})?) ?g(?:i?b)?\+?(?: 的)? {0,2}(?:的 ?)?(?:vram"
    r"|显存|显卡|video memory|v?npus?\b|gpus?\b|graphics card|card\b)"
    r"|(?:显存|vram|video memory|(?:gpu|cuda) memory)(?: ?(?:是|为|有|只有|大小|总共|of|is"
    r"|[:：]))? {0,2}(?P<b>\d{1,3}(?:\.\d{1,2})?) ?g(?:i?b)?(?![A-Za-z])"
    r"|(?:单卡|单张|每张卡?|每卡|单机单卡) ?[（(]? ?(?P<d>\d{1,3}) ?g(?:i?b)?(?![A-Za-z])"
    r"|(?:gpu|显卡) ?[:：] ?(?P<c>\d{1,3}(?:\.\d{1,2})?) ?g(?:i?b)?(?![A-Za-z])"
    r"|\bof (?P<e>\d{1,3}\.\d{1,2}) ?gi?b used"
    r"|(?P<h>\d{1,3}) ?gi?b (?:of )?unified memory|\bMax memory: (?P<i>\d{1,3}\.\d{1,3}) ?GB"
    r"|\b(?:I|we) (?:only )?(?:have|got|own) (?:a |an |only )?(?P<f>\d{1,3}) ?gi?b(?![A-Za-z])"
    r"(?! ?(?:of )?(?:host |system |cpu )?(?:ram\b|memory|disk|data|swap)))",
    re.IGNORECASE | re.ASCII,
)
_OF_TOTAL: Final = Expression(
    r"(?:显存|gpu|vram|nvidia-smi|cuda)[^.。\n]{0,30}?(?<![\d.])\d{1,3}(?:\.\d{1,3})? ?(?:gi?b"
    r"|g)? ?/ ?(?P<a>\d{1,3}(?:\.\d{1,2})?) ?(?:gi?b|g)(?![a-z])"
    r"|(?:free|used|left) (?:out )?of (?P<b>\d{1,3}(?:\.\d{1,2})?) ?(?:gi?b|g)(?! ?(?:of )?(?:ram|host"
    r"|system))(?![a-z])",
    re.IGNORECASE | re.ASCII,
)
"""How much of how much: ``显存占用 78G/80G``, ``300MB free out of 24GB``."""
_SIZE_TIMES: Final = Expression(
    r"(?<![\w.])(?P<gib>\d{1,3}) ?g(?:i?b)? ?[*x×] ?(?P<n>\d{1,3})(?![\d.]| ?g)"
    r"(?: ?(?:of )?(?:卡|张|块|gpus?|vram|cards?))?",
    re.IGNORECASE | re.ASCII,
)
"""``80G*8 VRAM``, ``显存 64G*8 卡``; only beside a word for memory or cards."""
_BESIDE: Final = re.compile(
    r"(?:显存|显卡|vram|gpus?|memory|卡)[^.。\n]{0,12}\Z|(?:卡|张|块|gpus?|vram|cards?)\Z", re.IGNORECASE
)
_ONLY: Final = Expression(
    rf"(?:only|just|actually)(?: am| i'm)? (?:us(?:e|es|ed|ing)|run(?:ning)? on|train(?:ing)? on) (?P<n>{COUNT})"
    rf"(?: of (?:them|the|my|these)|(?: of the)? (?:gpus?|cards?)\b)|(?:只用(?:了|到)?(?:其中)?|用(?:了|到)?其中)的?"
    rf" ?(?P<zh>{COUNT}) ?(?:张|块|个|卡)",
    re.IGNORECASE | re.ASCII,
)
"""How many of the cards there are that are used."""
_PARTS: Final = re.compile(r"(?:accum\w{0,12}|steps|bs|size|batch(?:es)?)\W{0,3}\Z", re.IGNORECASE | re.ASCII)
"""Before a factor that is no number of machines: ``bs 2 × accum 8 × 4 GPUs``."""
_NOTEBOOK: Final = Expression(r"(?<![a-z])colab(?![a-z])|google colaboratory", re.IGNORECASE | re.ASCII)
"""Where one card is what there is."""
_OWNED: Final = re.compile(r"\b(?:on|my|our|these|those|the|of|with|using|have|local) \Z", re.IGNORECASE | re.ASCII)
_CORES: Final = re.compile(
    r"(?:\b|tpu)v(?P<generation>[2-6])(?P<kind>[ep]?)-(?P<cores>\d{1,4})\Z", re.IGNORECASE | re.ASCII
)
"""A slice of TPUs. Versions 4 and 5p count cores, of which a chip, one device, has two; of versions 2 and 3 every core
is a device, and chips of 5e and 6e have one (Cloud TPU's pages on each version)."""
_USED: Final = re.compile(
    r"(?:占用|用了|使用(?!的)|需要|剩余|还有|可用|free|takes?|needs?|uses?|using|about"
    r"|around|at least|约|只需要?|left|leaving|requires?|大概|consum\w{1,4}"
    r"|达到)[^\d。.]{0,9}\Z",
    re.IGNORECASE | re.ASCII,
)
_NODES_RIGHT_BEFORE: Final = re.compile(
    rf"(?<![A-Za-z0-9.])(?P<n>{COUNT}) ?(?:台|nodes? ?(?:of|with|x|[,，(（:])|节点) {{0,2}}\Z", re.IGNORECASE | re.ASCII
)
_EACH_NODE: Final = re.compile(
    rf"(?<![A-Za-z0-9.])(?P<n>{COUNT}) ?(?:台|个|(?:sets?|groups?) of )?(?:机器|节点|服务器|nodes?|machines?"
    rf"|servers?)[^。.\n]{{0,24}}?(?:每台"
    r"|每天机器|每个节点|每节点|each|per node|every|with|of|containing|[x×*])",
    re.IGNORECASE | re.ASCII,
)
_LISTED: Final = Expression(
    r"(?<![\w.])(?:(?:gpu|npu|xpu|cuda device|device)s? ?(?:number|count|num)"
    r"|(?:number|num|count) (?:of )?(?:gpus?|npus?|cuda devices?|devices?)|num_gpus|n_gpus|gpu_count"
    r"|distributed world size|world[ _]size|num_processes|(?:gpu|显卡|npu) ?(?:数量?|个数|卡数)|gpus)"
    r"[`\"'*]{0,3} {0,3}(?:[:=：]{1,2}|\.{4,60}) {0,3}(?P<n>\d{1,5})(?!\w|\.\d| ?[x×*]| [a-z]*\d)"
    r"|Initializing (?P<tasks>\d{1,5}) distributed tasks"
    r"|(?:mpirun|mpiexec|horovodrun)\b[^\n]{0,160}? -np? (?P<ranks>\d{1,5})(?!\w)",
    re.IGNORECASE | re.ASCII,
)
"""What environment reports list: ``GPU number: 8``, ``world_size=16``."""
_PLURAL: Final = re.compile(r"(?<=\d)([A-Z]?)s(?=[ -]\d{2,3} ?g)", re.IGNORECASE)
_SERIES: Final = re.compile(r"10[5-8]0|20[678]0|30[5-9]0|40[6-9]0|50[6-9]0")
"""Card names that are numbers: "3090显卡" is no count."""
_TOTAL: Final = re.compile(r"(?:\btotal(?:ly)?(?: of)?|共计?|总共|合计) {0,2}\Z", re.IGNORECASE | re.ASCII)
_ARTICLE: Final = 0.65
"""How sure a count is that only an article states."""
_PRODUCT: Final = re.compile(r"-(?:SXM\d?|PCIe)|HBM\d|NVIDIA [A-Z]", re.IGNORECASE | re.ASCII)
"""The product's full name, as drivers print it: more telling than what people call it."""
_MANY: Final = Expression(
    r"multi-?gpu|distributed|多卡|多机|nproc_per_node|num_processes|\[rank[1-9]"
    r"|GPU [1-9] has|\(GPU [1-9];|tensor.parallel|gpus\b|--tp\b|几张卡"
    r"|NVLink",
    re.IGNORECASE | re.ASCII,
)


_SIEVE: Final = Sieve(
    ((one,), one)
    for one in (GPU_NAME, _CARDS, _LISTED, _EACH_SIZE, _SIZE_TIMES, _OF_SIZE, _LOOSE_SIZE, _OF_TOTAL, _ONLY)
)


def read_hardware(lines: list[Line], words: Vocabulary, *, anywhere: list[Line]) -> Iterator[Fact]:
    """Facts ``gpu``, ``gpu_count``, ``capacity_gib`` from the lines that may name hardware.

    :param anywhere: every line: logs list how many GPUs there are, and show whether several are at work.
    """
    named = {id(line) for line in lines}
    yield from (f for line in candidates(_LISTED, anywhere, words) if id(line) not in named for f in _listed(line))
    several = any(_MANY.search(line.raw) for line in candidates(_MANY, anywhere, words))
    lone = not several and any(_NOTEBOOK.search(line.raw) for line in candidates(_NOTEBOOK, anywhere, words))
    tried = {id(line): expressions for line, expressions in _SIEVE.over(lines, words)}
    for line in lines:
        here = tried.get(id(line), [])
        names = GPU_NAME.finditer(line.text) if GPU_NAME in here else ()
        facts = [f for found in names for f in _around(line, found, several, lone)]
        yield from facts or _in_catalogue(line)
        yield from _unnamed(line, here)


def _in_catalogue(line: Line) -> Iterator[Fact]:
    """Cards that only the catalogue knows."""
    from oomkb.catalog.gpus import find_all

    for mention in find_all(line.text[:1500]):
        if mention.certainty >= 2:
            span = line.span(mention.start + 1)
            yield Fact("gpu", mention.text.strip(), span, "prose", 0.7)
            if mention.count is not None:
                yield Fact("gpu_count", mention.count, span, "prose", 0.75)


def _around(line: Line, found: re.Match[str], several: bool, lone: bool) -> Iterator[Fact]:
    """What stands around one GPU name.

    :param several: whether several cards are spoken of anywhere; ``lone``: whether it runs where there is one.
    """
    text, span = line.text, line.span(line.raw.find(found[0]) + 1)
    name = _one_of(found[0].strip())
    before, after = text[max(0, found.start() - 60) : found.start()], text[found.end() : found.end() + 60]
    if _not_hardware(name, before, after):
        return
    minus = 0.3 if worked(text, found.start(), found.end()) else 0.0
    product = 0.03 if _PRODUCT.search(name) else 0.0
    yield Fact("gpu", name, span, "prose", 0.9 - minus + product)
    if (
        size := re.search(r"(?<![A-Za-z\d.])(\d{2,3}) ?G(?:i?B)?(?![A-WY-Za-wyz0-9])", name, re.IGNORECASE | re.ASCII)
    ) is not None:
        yield Fact("capacity_gib", float(size[1]), span, "prose", max(0.5, 0.85 - minus))
    elif ((size := _SIZE_AFTER.match(after)) is not None and 2 <= float(size["gib"]) <= 300) or (
        (size := _SIZE_BEFORE.search(before)) is not None and 2 <= float(size["gib"]) <= 300
    ):
        yield Fact("capacity_gib", float(size["gib"]), span, "prose", max(0.5, 0.85 - minus))
    elif (size := _BRACKETED.match(after)) is not None and _holds(name, float(size["gib"])):
        yield Fact("capacity_gib", float(size["gib"]), span, "prose", 0.7)
    count, sure = _count(before, after)
    if count is None and not several and (lone or is_consumer(name)):
        count, sure = 1, 0.55
    if count is None and (cores := _CORES.search(name)) is not None:
        each = 2 if cores["generation"] == "4" or cores["kind"].lower() == "p" else 1
        count, sure = max(1, int(cores["cores"]) // each), 0.7
    if count is not None and 1 <= count <= 20000:
        # "a V100" beside "GPU 7" names the kind of card, not how many there are.
        sure = 0.45 if several and count == 1 and sure == _ARTICLE else max(0.5, sure - minus)
        yield Fact("gpu_count", count, span, "prose", sure)


def _one_of(name: str) -> str:
    """``A100s 80gb`` names the A100 80gb, several of it."""
    return _PLURAL.sub(r"\1", name)


def _holds(name: str, gib: float) -> bool:
    """Whether the card that is named holds about so much: its own memory is meant, whatever it is called."""
    from oomkb.catalog import gpus

    device = gpus.find(name)
    return device is not None and abs(device.capacity_bytes / GIB / gib - 1) < 0.12


def _count(before: str, after: str) -> tuple[int | None, float]:
    """How many, and how sure that is."""
    if (found := _BEFORE.search(before)) is not None:
        word = found["n"].lower()
        count = to_count(word) * (int(found["nodes"]) if found["nodes"] else 1)
        ahead = before[: found.start("n")]
        if (nodes := _EACH_NODE.search(ahead) or _NODES_RIGHT_BEFORE.search(ahead)) is not None:
            count *= to_count(nodes["n"])
        elif _TOTAL.search(ahead) is not None:
            return count, 0.95
        elif found["machines"]:
            each = _AFTER.match(after)
            return (count * to_count(each["times"]), 0.92) if each is not None and each["times"] else (count, 0.5)
        return count, _ARTICLE if word in ("a", "an", "one", "一") else 0.9
    if (found := _AFTER.match(after)) is not None:
        return to_count(found["times"] or found["cards"]), 0.88
    return None, 0.0


def _not_hardware(name: str, before: str, after: str) -> bool:
    """Short names that mean something else here: ``T4`` in an identifier, ``4090`` as a step or a port."""
    bare = name.rstrip("sS").isdigit()
    if bare and not name.isdigit() and not (_BEFORE.search(before) or _OWNED.search(before)):
        return True  # seconds
    if before.endswith(("/", "\\", "_", "=", "#", "step ", "pid ", "port ", "steps ", "$")) and not before.endswith(
        "=="
    ):
        return True
    return bare and (
        before.rstrip().endswith((":", "pid", "port", "step", "GiB", "MiB", "-"))
        or (after[:1] in "/-%" and after[:1] != "")
        or re.match(r"\.\w", after) is not None
    )


def _unnamed(line: Line, tried: Sequence[Expression]) -> Iterator[Fact]:
    """Counts and sizes of cards that are not named: ``8 GPUs with 24G each``, ``两张 24G 的显卡``, ``单卡``."""
    text = line.text
    for found in _CARDS.finditer(text) if _CARDS in tried else ():
        minus = 0.3 if worked(text, found.start(), found.end()) else 0.0
        word = found["n"].lower()
        if word in ("a", "an", "one", "一") and re.match(
            r"\s{0,2}(?:time|by|of)\b", text[found.end() : found.end() + 8]
        ):
            continue
        ahead = text[max(0, found.start() - 60) : found.start()]
        nodes = found["nodes"] if found["nodes"] and not _PARTS.search(ahead) else "1"
        machines = None if found["nodes"] else _EACH_NODE.search(ahead) or _NODES_RIGHT_BEFORE.search(ahead)
        count = to_count(found["n"]) * int(nodes) * (to_count(machines["n"]) if machines is not None else 1)
        if 1 <= count <= 20000 and not _SERIES.fullmatch(found["n"]):
            sure = 0.58 if word in ("a", "an", "one", "一") else 0.8
            if re.search(r"(?:gpu|卡|显卡)\W{0,2}\Z", text[: found.start()], re.IGNORECASE | re.ASCII):
                sure = 0.4
            if _TOTAL.search(ahead) is not None:
                sure = 0.95
            yield Fact("gpu_count", count, line.span(found.start() + 1), "prose", max(0.5, sure - minus))
        if found["gib"] and 2 <= int(found["gib"]) <= 300:
            yield Fact(
                "capacity_gib", float(found["gib"]), line.span(found.start() + 1), "prose", max(0.5, 0.8 - minus)
            )
    if _LISTED in tried:
        yield from _listed(line)
    for found in _ONLY.finditer(text) if _ONLY in tried else ():
        yield Fact("gpu_count", to_count(found["n"] or found["zh"]), line.span(found.start() + 1), "prose", 0.86)
    for found in _SIZE_TIMES.finditer(text) if _SIZE_TIMES in tried else ():
        if 2 <= int(found["gib"]) <= 300 and _BESIDE.search(text[max(0, found.start() - 20) : found.end()]):
            yield Fact("gpu_count", int(found["n"]), line.span(found.start() + 1), "prose", 0.75)
            yield Fact("capacity_gib", float(found["gib"]), line.span(found.start() + 1), "prose", 0.75)
    for found in _EACH_SIZE.finditer(text) if _EACH_SIZE in tried else ():
        yield Fact("gpu_count", int(found["n"]), line.span(found.start() + 1), "prose", 0.7)
        yield Fact("capacity_gib", float(found["gib"]), line.span(found.start() + 1), "prose", 0.7)
    for pattern, sure in ((_OF_SIZE, 0.8), (_LOOSE_SIZE, 0.7), (_OF_TOTAL, 0.66)):
        for found in pattern.finditer(text) if pattern in tried else ():
            gib = next((float(g) for g in found.groups() if g), 0.0)
            if 2 <= gib <= 300 and not _USED.search(text[max(0, found.start() - 16) : found.start()]):
                yield Fact("capacity_gib", gib, line.span(found.start() + 1), "prose", sure)


def _listed(line: Line) -> Iterator[Fact]:
    for found in _LISTED.finditer(line.text):
        count = int(found["n"] or found["tasks"] or found["ranks"])
        if 1 <= count <= 20000 and not _SERIES.fullmatch(str(count)):
            yield Fact("gpu_count", count, line.span(found.start() + 1), "log", 0.72)
