"""What kind of network a report is about: one of language with its billions of weights, or a smaller one of pictures.

Weights, optimizer states, caches of tokens and vocabularies fill cards for large language models and for the tools that
run them. A detector, a GAN or a speech network has a hundredth of the weights: what fills the card there is what a
batch, a picture or a recording leaves in the layers.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from oomdoc.diagnosis.view import View
from oomdoc.intake.sieve import alternatives

__all__ = ["DRAWS", "is_light", "is_small", "of_pictures", "scores_no_words", "speaks_of_language"]

DRAWS: Final = (
    r"hunyuan.?video|\bwan ?2(?:\.\d|\b)|\bcogvideo|\bltx.?video|\bmochi\b|\bopen.?sora|stable.?(?:video|diffusion)"
    r"|text.?(?:to|2).?(?:video|image)|image.?(?:to|2).?video|\b[ti]2v\b|\bt2i\b|\bdiffusers\b|video generation"
    r"|comfyui|\bsdxl\b"
    r"|混元视频|[文图]生(?:视频|图)|视频生成|生成视频|扩散模型"
)
"""Models that draw: they make images and videos of noise, read none as tokens and keep no cache of tokens."""

_LANGUAGE: Final = alternatives(
    r"llama|qwen|mi[sx]tral|alpaca|\bglm|chatglm|baichuan|gpt|falcon|deepseek|internlm|gemma|\bphi-?\d"
    r"|starcoder|bloom|\bopt-\d|llava|vicuna|megatron|nemo\b|[- ]vl\b|internvl|minicpm|cogvlm|nanochat"
    r"|\b\d{1,3}(?:\.\d)?b\b|\d{1,3}(?:\.\d)? ?billion|\d{1,4}亿"
    r"|llm|\bmlx\b|sglang|\btgi\b|text.?generation|exllama|ggml|gguf|ollama|lora\b|deepspeed|\bzero.?[123]\b|fsdp"
    r"|megatron|\bsft\b|\bdpo\b|\bgrpo\b|\bppo\b|\brlhf|\btrl\b|peft|unsloth|axolotl|torchtune|litgpt"
    r"|micro.?batch|\bseq\b|max_?seq|\btokens?\b|cutoff|instruct\b|language.?model|语言模型|大模型|对话|聊天|交互"
    r"|\bchat|微调|prompt"
    r"|causallm|kv.?cache|\bm?[vl]lm|千问|hugging ?face"
    r"|m(?:ax|in).?pixels|understanding|\bsdxl|\bflux|hunyuan|cogvideo|\bwan ?2|\bltx|\bkohya|多模态|multi-?modal"
    r"|checkpoint shards"
    r"|上下文|context (?:length|window|size)|\b[48].?bit\b|quantiz|量化|sentence.?transformers|embedding model"
)
_STATED: Final = ("params_b", "model", "quant", "rollout", "serving")
_LIGHT: Final = 0.7e9
_TOLD: Final = 60
_WIDE_COUNTS: Final = 2
"""How much must be told for a silence to say something: 60 letters, of which a Chinese one counts three."""
_SPLIT: Final = frozenset({"zero1", "zero2", "zero3", "fsdp", "fsdp2", "megatron", "device-map"})

_PICTURES: Final = alternatives(
    r"u-?net\b|gan\d?s?(?:-\w{1,4})?\b|\byolo|detectron|\bmm(?:det|seg|cv|rotate|action|detection)|r-?cnn\b"
    r"|segment(?:ation|ing)\b"
    r"|super.?resolution|srgan|resnet|\bvgg|deeplab|\bnerf\b|gaussian|splat|point ?cloud|pointnet|lidar|\bpose\b"
    r"|denois|deblur|dehaz|matting|inpaint|style ?transfer|\bvae\b|diffusion|\bsdxl?\b|controlnet|k-?sampler"
    r"|to.?video|speech|\basr\b|\btts\b|audio|voice|wav2vec|whisper|conformer|\bconv(?:\dd|olution\w{0,3})?\b"
    r"|batch.?norm|upsampl|图像|分割|检测|超分|图片|视频|\bcnn|imagenet|\bcoco\b|cifar|keras|protein|alphafold|\bdetr\b"
    r"|depth|stereo|optical flow|images?\b|\bimg|patch.?size|\bcrop|\bgraphs? (?:neural|conv)|\bgnn|\bgcn|\brnn|lstm"
    r"|seq2seq|word2vec|tacotron|vocoder|dreambooth|textual inversion|\d{3,4} ?[x×*] ?\d{3,4}|resolution|video"
    r"|picture|frames\b|num_?frame|vsr\b|gt_size|caffe|theano|mxnet"
)


_NO_WORDS: Final = alternatives(
    r"\brun_(?:squad|ner|glue|classifier|swag|multiple_choice|qa|xnli)\b|sequence.?classif|token.?classif"
    r"|(?:question.?answering|text.?classif\w{0,8}) (?:model|head|task|script)|sequencetagger|\bner\b"
    r"|automodelfor(?:sequence|token|question|multiple)"
    r"|sentence.?transformers|\bembedding models?\b|\bre-?rank|cross-?encoder|bi-?encoder"
    r"|flagembedding|\bbge-|文本分类|命名实体|向量模型"
)
_WORDS_AFTER_ALL: Final = alternatives(r"\bmlm\b|masked.?l(?:m\b|anguage)|run_mlm|causal.?l(?:m\b|anguage)|lm_head")


def scores_no_words(view: View) -> bool:
    """Whether what is trained ends in a few classes, spans or a vector: there are no logits over a vocabulary."""
    if view.objective == "rm":
        return True
    return _NO_WORDS.search(view.text) is not None and _WORDS_AFTER_ALL.search(view.text) is None


def speaks_of_language(view: View) -> bool:
    """Whether a large language model, or a tool that only such models need, is named."""
    job = view.job
    if any(view.stated(name) is not None for name in _STATED) or view.stated("sharding") in _SPLIT:
        return True
    return job.objective not in (None, "sft", "inference", "pretrain") or _named(view.text) or _named(view.trace)


def is_small(view: View) -> bool:
    """Whether no language model is named, where so much is told that one would have been."""
    return _says_enough(view.text) and not speaks_of_language(view)


def is_light(view: View) -> bool:
    """Whether the model that is named is so small that its states fit any card: BERT, GPT-2, T5-base."""
    estimate = view.estimate
    return view.stated("model") is not None and estimate is not None and estimate.params < _LIGHT


def of_pictures(view: View) -> bool:
    """Whether the network is one of pictures, sound, points or molecules, and no language model is named."""
    return is_small(view) and _PICTURES.search(view.text) is not None


def _says_enough(text: str) -> bool:
    beginning = text[:_TOLD]
    return len(text) + _WIDE_COUNTS * sum(letter >= "\u4e00" for letter in beginning) >= _TOLD


@lru_cache(maxsize=16)
def _named(text: str) -> bool:
    return _LANGUAGE.search(text) is not None
