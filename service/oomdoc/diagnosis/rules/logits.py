"""Logits: tensors as wide as the vocabulary.

Sign
    The trace ends in ``cross_entropy``, ``log_softmax``, an entropy or a log-probability function, or in the output
    head. The size asked for equals tokens x vocabulary x 2 or 4 bytes: 8192 x 152064 x 4 B = 4.64 GiB. A small
    model with a large vocabulary fails where a larger one with 32,000 words fitted.
Mechanism
    The head turns every token into one number per word. With 151,936 words, 8,192 tokens are 4.64 GiB in fp32; the
    loss keeps the logits, their fp32 copy, the log-softmax and the gradient, about 12 bytes per token and word at
    the start of the backward pass. DPO sends chosen and rejected through together, so tokens double; GRPO and PPO
    build them again for log-probabilities and entropy. Sharding, offload and LoRA leave all of it where it is,
    because the tensors depend on tokens and vocabulary only.
Confirm
    Halve the sequence length or the micro-batch: the failing size halves with it. Divide the request by vocabulary
    x 4; a whole number of tokens is no accident.
Fix
    A loss that never builds the whole matrix (Liger's fused linear cross entropy, cut cross entropy, a chunked
    loss); fewer tokens per micro-batch; ``logits_to_keep`` where only the completion counts; vocabulary-parallel
    loss with tensor parallelism. Check that a fused loss is really in effect for this model and objective.
Cost
    A fused or chunked loss costs nothing to a few per cent. A shorter sequence changes what is trained on; a
    smaller micro-batch with more accumulation only costs utilisation.
"""

from collections.abc import Iterator
from typing import Final

from oomdoc.diagnosis.forensics import rounding_of, tensors_of_family
from oomdoc.diagnosis.result import Reason, TensorMatch
from oomdoc.diagnosis.rules._fits import beyond_weights
from oomdoc.diagnosis.rules._network import scores_no_words
from oomdoc.diagnosis.rules._shapes import is_a_vocabulary, is_vocabulary_wide, refused, shapes_in
from oomdoc.diagnosis.rules._sizes import peak_share, tensor_reasons
from oomdoc.diagnosis.view import DECISIVE, FAIR, STRONG, WEAK, Clue, View, weigh_clues
from oomdoc.messages import say
from oomkb.units import GIB

__all__ = ["CAUSE", "weigh"]

CAUSE: Final = "logits"

# Families by their vocabulary: of 128,000 words and more, and of 32,000 to 65,000.
_MANY_WORDS: Final = r"(?:bloom|gemma|qwen|llama.?3|mt5|xlm|nllb|glm-?4|phi-?4|deepseek)"
_FEW_WORDS: Final = (
    r"(?:\bopt|llama.?2|llama-?(?:7|13)b|vicuna|gpt-?2|gpt-?neo|pythia|mistral|falcon|tinyllama|\bt5"
    r"|internlm-?(?:7|20)b|baichuan-?(?:7|13)b)"
)
_FITS: Final = r"(?:\bcan\b|could|works?|fits?|\bfine\b|\bable\b|success|可以|能|正常|没问题)"
_FAILS: Final = r"(?:\boom|out.of.mem|爆|不够|不足|\bfail|can'?t|cannot)"

_CLUES: Final = (
    Clue(
        "trace",
        DECISIVE,
        frames=r"(?<!binary_)cross_entropy|log_?softmax|logsumexp|(?:entropy|logprobs?)_from_logits|get_batch_logps"
        r"|causallmloss|(?<![,\"'])lm_head(?![,\"']|\.weight)|compute_logprobs|prompt_logprobs|vocab_parallel"
        r"|distributedlogprob"
        r"|log_probs_and_entropy|compute_log_probs\(logits|_loss_step|token_logprobs|convert_(?:outputs_)?to_fp32",
    ),
    Clue(
        "operator",
        DECISIVE,
        says=r"op_name=[^\n]{0,160}/(?:lm_head|logits?|log_softmax|cross_entropy|softmax_cross\w{0,30})/",
    ),
    Clue(
        "all-positions",
        DECISIVE,
        says=r"(?:logits|log.?probs)\b[^\n]{0,40}(?:every|each|all)[^\n]{0,20}(?:position|token|prompt)s?\b"
        r"|(?:every|each|all)[^\n]{0,24}(?:position|token)s?\b[^\n]{0,24}(?:logits|log.?probs)"
        r"|(?:gather|return)_(?:all|context)_\w{0,12}logits|(?:每个|所有)[^\n]{0,8}(?:位置|token)[^\n]{0,8}logits",
    ),
    Clue("sampler", STRONG, says=r"warming up sampler|dummy (?:sampler )?requests|sampler.{0,20}(?:warm|profil)"),
    Clue(
        "said",
        STRONG,
        says=r"(?<!binary.)cross.?entropy|\bgather_generation_logits|\blogits\b(?! ?=)|log.?softmax"
        r"|log.?prob\w{0,12} (?:tensor|matrix)"
        r"|prompt.?logprobs"
        r"|return_?log_?probs?\b|\b(?:top_)?logprobs ?[=:]"
        r"|\blog.?p(?:s|robs?)\b|log probabilit|\bentropy (?:loss|bonus|comput|calc|chunk|from|of|over)"
        r"|(?:comput|calculat)\w{1,4} (?:the )?entropy|shift_logits|at the loss\b|(?:loss"
        r"|损失)(?:函数)?[^\n]{0,8}(?:那里|那一步)[^\n]{0,8}(?:爆|oom|炸|显存|申请)|算(?:损失|loss)|(?:liger"
        r"|fused loss)[^\n]{0,30}(?:fix|help|之后|解决)|larger tokenizer|bigger vocab",
    ),
    Clue(
        "prompts-scored",
        FAIR,
        says=r"log.?likelihood|\bprompt_?logprobs|perplexity|困惑度|(?:\b|get_|compute_|calculate_)ppl\b(?! ?[=:])",
    ),
    Clue("upcast", FAIR, says=r"upcast\w{0,3}\b[^\n]{0,30}(?:logits|float.?32|fp32)|logits?[^\n]{0,16}\.float\(\)"),
    Clue(
        "without",
        STRONG,
        says=r"(?:return_?logprobs?|logprobs?|prompt_logprobs)[^\n]{0,12}(?:=|to|off)[^\n]{0,3}(?:false|none|0"
        r"|off)\b[^\n]{0,80}(?:works?|fine"
        r"|fits|no oom|not (?:run|go|get)|n'?t (?:run|go|get|oom)|正常|可以|没问题|不会)"
        r"|(?:without|disabl\w{1,3}|不(?:要|开|返回)|去掉|关掉?) ?(?:the )?(?:prompt "
        r"|return.?)?log.?prob\w{0,6}[^\n]{0,40}(?:works?|fine|fits|正常|可以"
        r"|没问题|不会)",
    ),
    Clue(
        "larger-fits",
        STRONG,
        says=rf"{_FITS}[^\n]{{0,60}}{_FEW_WORDS}[^\n]{{0,160}}{_MANY_WORDS}[^\n]{{0,80}}{_FAILS}"
        rf"|{_FEW_WORDS}[^\n]{{0,30}}{_FITS}[^\n]{{0,100}}{_MANY_WORDS}[^\n]{{0,80}}{_FAILS}"
        rf"|{_MANY_WORDS}[^\n]{{0,60}}{_FAILS}[^\n]{{0,120}}{_FITS}[^\n]{{0,40}}{_FEW_WORDS}",
    ),
    Clue("vocabulary", FAIR, says=r"vocab(?:ulary)?[ _-]?(?:size)?\b|词表|128k words"),
    Clue("unfused", STRONG, says=r"no liger kernels? supported|(?:liger|fused).{0,40}(?:not|unsupported|silently)"),
)

_LARGE_CARD: Final = 192 * GIB
"""Where none is told: then only what is much for any card counts."""
_COPY_LARGE: Final = 0.12
"""One fp32 copy of an eighth of the card: with three alive at the peak it takes over a third."""


def weigh(view: View) -> Iterator[Reason]:
    """Trace, size of the request, and how large one fp32 copy is on this card."""
    yield from weigh_clues(view, CAUSE, _CLUES)
    engine = view.says(_SCORED_BY_ENGINE)
    if engine is not None:
        yield Reason(FAIR, say("cause.logits.engine", quote=engine.text.strip()[:90]), (engine,))
    shape = refused(view)
    if shape and not is_vocabulary_wide(shape):
        yield Reason(-FAIR, say("cause.out-of-place"))
    else:
        yield from tensor_reasons(view, CAUSE, _of_family(view))
    yield from peak_share(view, CAUSE)
    if beyond_weights(view):
        yield Reason(WEAK, say("cause.large-request", requested_bytes=view.bytes_of("requested") or 0))
    wide = next((shape for shape in shapes_in(view) if is_vocabulary_wide(shape)), None)
    if wide is not None:
        weight = DECISIVE if is_a_vocabulary(wide[-1]) else STRONG
        yield Reason(weight, say("cause.logits.shape", shape=" × ".join(map(str, wide))))
    copy, capacity = _one_copy_bytes(view), view.bytes_of("capacity") or _LARGE_CARD
    if copy and not view.job.fused_ce and view.stated("seq_len"):
        share = copy / capacity
        if share >= _COPY_LARGE / 2:
            weight = STRONG if share >= _COPY_LARGE else WEAK
            yield Reason(
                weight, say("cause.logits.copy", copy_bytes=copy, tokens=_tokens(view), vocabulary=_vocabulary(view))
            )
    tokens = _scored_at_once(view)
    if tokens >= _MANY_TOKENS:
        yield Reason(
            STRONG if tokens >= 4 * _MANY_TOKENS else FAIR,
            say("cause.logits.scored", tokens=tokens, one_bytes=tokens * _COMMON_VOCABULARY * 2),
        )


_FAMILIES: Final = (
    (r"\bseq2seq", (50_265, 32_128, 250_112)),
    (r"\bm?bart\b|\broberta\b", (50_265,)),
    (r"\b(?:flan-?)?t5\b", (32_128,)),
    (r"\bmt5\b", (250_112,)),
    (r"\bgpt-?2\b", (50_257,)),
    (r"\bbloomz?\b", (250_880,)),
)
"""Words for a family whose members share one vocabulary, and what programs for text to text are run with."""


def _of_family(view: View) -> list[TensorMatch]:
    """Logits over the vocabulary of the family that is named, where no model is known and the request fits."""
    requested, failure = view.bytes_of("requested"), view.failure
    if view.shape is not None or not requested or failure is None or failure.kind != "device" or not view.training:
        return []
    sizes = next((sizes for words, sizes in _FAMILIES if view.says(words) is not None), ())
    found = tensors_of_family(requested, rounding_of(requested), sizes)
    return found if sum(tensor.match for tensor in found) >= _SURE else []


_SCORED_BY_ENGINE: Final = (
    r"lm[-_ ]?eval[^\n]{0,60}(?:vllm|sglang)|(?:vllm|sglang)[^\n]{0,80}lm[-_ ]?eval|--model vllm[^\n]{0,200}--tasks"
)
"""An evaluation by likelihoods asks an engine for log-probabilities of every token of the prompts."""
_MANY_TOKENS: Final = 16_384
_SURE: Final = 0.6
"""Below this a count that is solved for may be chance, where not even the model is known."""
_COMMON_VOCABULARY: Final = 128_000
_GLOBAL: Final = ("ppo_micro_batch_size", "log_prob_micro_batch_size", "micro_rollout_batch_size")
_PER_GPU: Final = ("ppo_micro_batch_size_per_gpu", "log_prob_micro_batch_size_per_gpu")


def _scored_at_once(view: View) -> int:
    """Tokens whose log-probabilities one GPU of an RL trainer computes together; sizes for all GPUs are divided."""
    sizes = [view.setting(name) for name in _PER_GPU]
    ranks = view.ranks or 1
    shared = (view.setting(name) for name in _GLOBAL)
    sizes += [size / ranks for size in shared if isinstance(size, int | float)]
    rows = max((float(size) for size in sizes if isinstance(size, int | float)), default=0.0)
    if not rows and view.job.objective in ("grpo", "ppo", "rloo"):
        rows = 0.5 * float(view.stated("micro_batch") or 0)  # a length is prompt and completion: only this is scored
    return int(rows * (view.job.seq_len or 0))


def _tokens(view: View) -> int:
    job = view.job
    pairs = 2 if job.objective in ("dpo", "orpo", "simpo", "kto", "rm") else 1
    return pairs * (job.micro_batch or 1) * (job.seq_len or 0)


def _vocabulary(view: View) -> int:
    return view.shape.dims.vocab if view.shape is not None else 0


def _one_copy_bytes(view: View) -> int:
    # A server keeps the logits of the last token of each sequence only.
    return 0 if view.serving or scores_no_words(view) else _tokens(view) * _vocabulary(view) * 4
