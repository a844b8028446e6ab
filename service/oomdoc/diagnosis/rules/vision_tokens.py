"""Vision tokens: images or video make the sequence, or the image tower's tensors, far longer than thought.

Sign
    A vision-language model; the trace is inside its image tower or where image embeddings are merged;
    ``max_pixels`` or the number of frames is unset. The request equals patches x width, or heads x patches squared:
    16 x 64680 x 64680 x 2 B = 124.7 GiB.
Mechanism
    Qwen2-VL and its successors make one token of 28 x 28 pixels and patches of 14 x 14: the default maximum of 12.8
    million pixels is 16,384 tokens and 65,536 patches. InternVL cuts up to 12 tiles of 256 tokens. Video multiplies
    by frames. The tower attends over patches, so its attention is quadratic in the image size unless it is fused;
    an engine's profiling run assumes images of the maximum size.
Confirm
    Print the token count of the largest image; run once with images halved in both directions: a quarter of the
    tokens.
Fix
    Set ``max_pixels`` (401,408 is 512 tokens), fewer tiles or frames; FlashAttention in the tower as well; freeze
    the tower; limit images per prompt in the engine (``limit_mm_per_prompt``, ``mm_processor_kwargs``).
Cost
    Less resolution may cost accuracy on small text and details.
"""

from collections.abc import Iterator
from typing import Final

from oomdoc.diagnosis.result import Reason
from oomdoc.diagnosis.rules._late import long_past
from oomdoc.diagnosis.rules._network import DRAWS, is_small
from oomdoc.diagnosis.rules._sizes import peak_share, tensor_reasons
from oomdoc.diagnosis.view import FAIR, STRONG, WEAK, Clue, View, weigh_clues
from oomdoc.intake.sieve import alternatives
from oomdoc.messages import say

__all__ = ["CAUSE", "DRAWS", "is_vision_model", "weigh"]

CAUSE: Final = "vision-tokens"

_SMALLER_IN_VAIN: Final = (
    r"(?:resiz|downsampl|downscal|shr[iu]nk|reduc|lower)\w{0,4} [^\n]{0,40}(?:images?|pictures?|resolution|pixels"
    r"|frames)"
    r"[^\n]{0,60}(?:\bstill\b|persist|same error|no difference|did ?n[o']?t help|does ?n[o']?t help)"
    r"|(?:缩小|降低|减少|调小)[^\n]{0,16}(?:图片|图像|分辨率|像素|帧)[^\n]{0,24}(?:仍|还是|依然|也没用|一样)"
)
"""Smaller pictures changed nothing."""
_CLUES: Final = (
    Clue(
        "trace",
        STRONG,
        frames=r"\.visual\b|\bvisual[._(]|_visual\b|\bvision[._](?!.{0,4}tower['\"])|[/_]vision\b|visionattn|visionsdpa"
        r"|vision_?(?:transformer|tower|model|encoder|embed)\w{0,12}[.(]|(?:siglip|clip|pixtral|mllama"
        r"|qwen2\w{0,6})_?vision"
        r"|\bvit_|image_embeds|pixel_values|patch_embed(?!/)|mm_projector(?!\.)|siglip|clip_encoder|get_image_features"
        r"|multimodal(?!/)",
    ),
    Clue(
        "profiled",
        FAIR,
        says=r"profil\w{1,4} run[^\n]{0,30}(?:multi-?modal|image|vision)|encoder cache|mm_encoder"
        r"|dummy[^\n]{0,20}(?:image|video)",
    ),
    Clue(
        "largest",
        STRONG,
        says=r"max_pixels\W{1,4}1\d{7}\b|16384 ?\* ?28|(?:very|too) high pixel|pixel count",
    ),
    Clue(
        "sent",
        STRONG,
        says=r"(?:when(?:ever)?|once|after|only|if|with|by|as soon as) (?:i |we |you |the user )?(?:provid|send|sent"
        r"|upload"
        r"|attach|add|past|pass|inclu|feed|process|shar|submit)\w{0,4} (?:\w{1,10} )?(?:an? |the |my |any |one )?"
        r"(?:\w{1,10} )?(?:images?|pictures?|photos?|screenshots?)\b|text[- ]only[^\n]{0,40}(?:works?|fine|\bok\b)"
        r"|(?:上传|发送|传入|输入|带|加)(?:了|一?张|多张)?图",
    ),
    Clue(
        "said",
        STRONG,
        says=r"\d{3,4} ?[x×*] ?\d{3,4}(?: px| pixels?)? ?(?:的)?(?:images?|pictures?|图)|(?:max|min)_pixels"
        r"|image (?:size|resolution|token)|resolution|high.?res"
        r"|(?<![a-z])videos?\b(?! ?(?:memory|ram\b|card|mem\b|adapter))|(?:large"
        r"|big|many|high.resolution|4k|hd"
        r"|multi\w{0,3}|several) (?:image|picture)|图片|图像|视频|分辨率|images? per|nframes|fps\b"
        r"|num_frames|frame_bucket|\bframes\b|多模态|pixel_values|\bocr\b"
        r"|multi.?image|多图|大图|视觉(?:编码器|塔|模型)|vision (?:tower|encoder|language)|image processor",
        unless=f"{DRAWS}|{_SMALLER_IN_VAIN}",
    ),
)
_MODEL_PARTS: Final = (
    "-vl",
    "_vl",
    "vl-",
    "5vl",
    "2vl",
    "25vl",
    "qwenvl",
    "vision",
    "llava",
    "internvl",
    "omni",
    "pixtral",
    "minicpm-v",
    "paligemma",
    "idefics",
    "cogvlm",
    "glm-4v",
    "visualglm",
    "molmo",
    "smolvlm",
)


def weigh(view: View) -> Iterator[Reason]:
    """Only for a model that sees: the trace, the request and what is set of sizes."""
    # Only a language model makes tokens of pictures; elsewhere pictures are what every network is fed with.
    yield from weigh_clues(view, CAUSE, _CLUES[:3] if is_small(view) else _CLUES)
    yield from tensor_reasons(view, CAUSE)
    yield from peak_share(view, CAUSE)
    if view.says(_SMALLER_IN_VAIN) is not None:
        yield Reason(-FAIR, say("cause.out-of-place"))
    if view.training and (clips := view.says(_CLIPS)) is not None:
        yield Reason(FAIR, say("cause.vision-tokens.clips", quote=clips.text.strip()[:90]), (clips,))
    elif view.says(DRAWS) is not None and not is_vision_model(view):
        yield Reason(-FAIR, say("cause.out-of-place"))
    if is_vision_model(view):
        yield Reason(WEAK, say("cause.vision-tokens.model", model=str(view.job.model or _name(view))))
        yield from _engine_and_states(view)
        if view.stated("max_pixels") is None and not _limited(view):
            yield Reason(WEAK, say("cause.vision-tokens.unset"))
        allocated, states = view.bytes_of("allocated"), view.state_bytes
        if allocated and states and view.training and allocated - states > _MOST * allocated and not long_past(view):
            yield Reason(FAIR, say("cause.vision-tokens.rest", rest_bytes=allocated - states))
        requested, capacity = view.bytes_of("requested"), view.bytes_of("capacity")
        if requested and capacity and requested > 0.1 * capacity:
            yield Reason(FAIR, say("cause.vision-tokens.huge", requested_bytes=requested))


def _engine_and_states(view: View) -> Iterator[Reason]:
    """An engine sizes itself by pictures of the largest size; where the states alone fill the card, no picture does."""
    failure = view.failure
    taken = failure is not None and (failure.kind != "device" or failure.signal.name in _TAKEN)
    load = view.estimate.phases.get("load") if view.estimate is not None else None
    weights = sum(v for k, v in load.terms_bytes.items() if "weight" in k) if load is not None else 0.0
    taken = taken or weights > _TWICE * (view.bytes_of("capacity") or weights)
    if view.serving and view.phase == "engine-init" and not taken:
        yield Reason(FAIR if failure is None else STRONG, say("cause.vision-tokens.engine"))
    states, capacity = view.state_bytes, view.bytes_of("capacity")
    if view.training and states and capacity and states >= _FULL * capacity:
        yield Reason(-FAIR, say("cause.out-of-place"))


_TAKEN: Final = frozenset({"vllm-startup-free-too-low"})
_FULL: Final = 0.9
_TWICE: Final = 2.0
"""Weights of which no reading of cards and bits makes a model that fits."""
_CLIPS: Final = (
    r"frame_(?:extraction|bucket)|num_?frames|(?:number of|max\w{0,4}|target) frames|\b\d{2,4} frames\b"
    r"|videos? of \d{1,4} ?s|(?:帧数|抽帧|\d{2,4} ?帧)"
)
"""How long the clips of a training are: each frame more is a picture's tokens more."""
_LIMITS: Final = (
    r"(?:max_pixels|max_token_num|max_dynamic_patch|image_resolution)['\"`]{0,2} ?(?:[=: ]|to)['\" ]{0,2}\d"
)


def _limited(view: View) -> bool:
    """Whether a limit of the pictures' size is given, in the settings or in words."""
    return view.setting("max_pixels", "max_dynamic_patch") is not None or view.says(_LIMITS) is not None


_MOST: Final = 0.5
_NAMED: Final = alternatives(
    r"qwen\d?(?:\.\d)?-?vl|internvl|\bllava|minicpm-?v|cogvlm|glm-?4v|visualglm|deepseek-?vl|idefics|paligemma|pixtral"
    r"|molmo|smolvlm|[- ]vision\b(?! (?:transformer|edge|api))|vision[- ]?(?:llm|language)|\bm?vlms?\b"
)
"""Models that read pictures, by the names people give them."""


def is_vision_model(view: View) -> bool:
    """Whether the model takes images, by its configuration or its name."""
    name = str(view.job.model or "").lower()
    if not name:
        return bool(_name(view))
    return any(part in name for part in _MODEL_PARTS) or (
        isinstance(view.job.model, dict) and "vision_config" in view.job.model
    )


def _name(view: View) -> str:
    """A model that reads pictures, as the person names it; empty where none is named."""
    found = _NAMED.search(view.text)
    return found[0] if found else ""
