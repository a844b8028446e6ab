"""Signs that are sums: sizes, defaults of scripts, and the age of a library that a message's format tells."""

from __future__ import annotations

import pytest

from oomdoc.diagnosis.engine import view_of
from oomdoc.diagnosis.ranking import weigh
from oomdoc.intake import read_text

OLD = "(GPU 0; 15.90 GiB total capacity; {held} GiB already allocated; 0.31 GiB free; 14.90 GiB reserved in total by PyTorch)"
NEW = (
    "GPU 0 has a total capacity of 15.90 GiB of which 0.31 GiB is free. Of the allocated memory {held} GiB is allocated"
)

SIGNS = [
    (
        "cause.attention-scores.round",
        "my fine-tuning run of the chat model stops. RuntimeError: CUDA out of memory. Tried to allocate 4.00 GiB "
        + OLD.format(held="11.20"),
        "my fine-tuning run of the chat model stops. RuntimeError: CUDA out of memory. Tried to allocate 4.00 GiB. "
        + NEW.format(held="11.20"),
    ),
    (
        "cause.attention-scores.round",
        "my fine-tuning run of the chat model stops. RuntimeError: CUDA out of memory. Tried to allocate 1.50 GiB "
        + OLD.format(held="11.20"),
        "my fine-tuning run of the chat model stops. RuntimeError: CUDA out of memory. Tried to allocate 1.46 GiB "
        + OLD.format(held="11.20"),
    ),
    (
        "cause.attention-scores.requested",
        "python run_clm.py --model_name_or_path gpt2 --do_train --per_device_train_batch_size 4\n"
        "RuntimeError: CUDA out of memory. Tried to allocate 192.00 MiB " + OLD.format(held="14.70"),
        "python run_clm.py --model_name_or_path gpt2 --do_train --per_device_train_batch_size 4\n"
        "RuntimeError: CUDA out of memory. Tried to allocate 226.00 MiB " + OLD.format(held="14.70"),
    ),
    (
        "cause.attention-scores.before-fused-training",
        "fairseq-train of a summarizer: out of memory on my 24GB 3090 with --max-source-positions 9000 --max-tokens 9000",
        "fairseq-train of a summarizer: out of memory on my 24GB 3090 with --max-source-positions 512 --max-tokens 9",
    ),
    (
        "cause.logits.operator",
        'RESOURCE_EXHAUSTED, peak buffer 1: 3.1GiB op_name="jit(step)/Decoder/lm_head/convert_element_type" in our jax job',
        'RESOURCE_EXHAUSTED, peak buffer 1: 3.1GiB op_name="jit(step)/Decoder/mlp/convert_element_type" in our jax job',
    ),
    (
        "cause.logits.trace",
        'training stops\n  File "accelerate/utils/operations.py", line 781, in _convert_to_fp32\n    return tensor.float()\n'
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 6.13 GiB.",
        'training stops\n  File "accelerate/utils/operations.py", line 150, in send_to_device\n    return tensor.to(device)\n'
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 6.13 GiB.",
    ),
    (
        "cause.logits.all-positions",
        "trtllm-build with --gather_context_logits: the server runs out of GPU memory with 300 requests",
        "trtllm-build with --gemm_plugin float16: the server runs out of GPU memory with 300 requests",
    ),
    (
        "cause.size-matches",
        "our BART summarizer does not train. RuntimeError: CUDA out of memory. Tried to allocate 1.53 GiB "
        + OLD.format(held="12.20"),
        "our BART summarizer does not train. RuntimeError: CUDA out of memory. Tried to allocate 1.61 GiB "
        + OLD.format(held="12.20"),
    ),
    (
        "cause.size-matches",
        "vllm serve mistralai/Mistral-7B-Instruct-v0.1\ntorch.cuda.OutOfMemoryError: CUDA out of memory. "
        "Tried to allocate 1.75 GiB " + OLD.format(held="13.20"),
        "vllm serve mistralai/Mistral-7B-Instruct-v0.1\ntorch.cuda.OutOfMemoryError: CUDA out of memory. "
        "Tried to allocate 1.69 GiB " + OLD.format(held="13.20"),
    ),
    (
        "cause.logits.copy",
        "llamafactory-cli train --model_name_or_path Qwen/Qwen2.5-7B-Instruct --stage sft --cutoff_len 100000 goes OOM",
        "llamafactory-cli train --model_name_or_path Qwen/Qwen2.5-7B-Instruct --stage sft --cutoff_len 2000 goes OOM",
    ),
    (
        "cause.logits.copy",
        "OOM on a 4GB card: python run_mlm.py --model_name_or_path bert-base-cased --max_seq_length 384 "
        "--per_device_train_batch_size 12, which is masked language modelling",
        "OOM on a 4GB card: python run_squad.py --model_name_or_path bert-base-cased --max_seq_length 384 "
        "--per_device_train_batch_size 12, and I run run_squad.py as it is",
    ),
    (
        "cause.activations.experts",
        "our MoE runs OOM in the first hundred steps: an unlucky router sends most tokens of a batch to one expert",
        "our MoE runs OOM in the first hundred steps: every expert is a small MLP of 512 units",
    ),
    (
        "cause.activations.context",
        "I get OOM as soon as the sequence length is larger than 2048, whatever else I do",
        "I get OOM as soon as the learning rate scheduler is created, whatever else I do",
    ),
    (
        "cause.activations.limited",
        "CUDA out of memory unless I reduce the batch size to 8, then training is fine",
        "CUDA out of memory. I tried to reduce the batch size to 1, but it did not help at all",
    ),
    (
        "cause.activations.unchecked",
        "CUDA out of memory on 8 GB when training the LoRA. I do not want to use gradient checkpointing, it is slow",
        "CUDA out of memory on 8 GB when training the LoRA. gradient_checkpointing: false is what the yaml says",
    ),
    (
        "cause.activations.compute-buffer",
        "TensorRT engine: the weights take 12 GB and engine.device_memory_size asks for 13 more, so the 24 GB card is out of memory",
        "TensorRT engine: the weights take 26 GB and the 24 GB card is out of memory",
    ),
    (
        "cause.long-sample.one-dataset",
        "training of a tagger is out of GPU memory even with batch 1; with a smaller corpus it works fine",
        "training of a tagger is out of GPU memory even with batch 1; with a smaller learning rate as well",
    ),
    (
        "cause.long-sample.same-place",
        "SFT goes CUDA out of memory, always at the same step of the epoch, also with twice as many GPUs",
        "SFT goes CUDA out of memory, always at the same step when saving the adapter",
    ),
    (
        "cause.long-sample.uncut",
        "swift sft 微调时必须加 --max_length 2048 才不会 OOM，默认不是有这个值吗",
        "swift sft 微调时必须加 --deepspeed zero3 才不会 OOM，默认不是有这个值吗",
    ),
    (
        "cause.long-sample.said",
        "training the tagger: CUDA out of memory when the corpus has an extremely long word",
        "training the tagger: CUDA out of memory when the corpus has an extremely odd encoding",
    ),
    (
        "cause.long-sample.sound",
        "fine-tuning a speech model on my recordings fails with CUDA out of memory",
        "fine-tuning a speech model on my recordings, the longest of 8 seconds, fails with CUDA out of memory",
    ),
    (
        "cause.attention-scores.buffer",
        "llama_new_context_with_model: n_ctx      = 32768\n"
        "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 2300.00 MiB on device 0: cudaMalloc failed: out of memory\n"
        "ggml_gallocr_reserve_n: failed to allocate CUDA0 buffer of size 2411724800",
        "llama_new_context_with_model: n_ctx      = 4096\n"
        "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 2300.00 MiB on device 0: cudaMalloc failed: out of memory\n"
        "ggml_gallocr_reserve_n: failed to allocate CUDA0 buffer of size 2411724800",
    ),
    (
        "cause.attention-scores.square",
        "OOM in inference: the hook copies a heads * seq_len * seq_len tensor that should not be there",
        "OOM in inference: the hook copies a layers * hidden tensor that should not be there",
    ),
    (
        "cause.logits.all-positions",
        "the prefill computes logits for all prompt tokens although the server needs the last one, and runs out of memory",
        "the prefill computes the logits of the last position only, and runs out of memory",
    ),
    (
        "cause.long-sample.said",
        "training of my tagger is out of GPU memory at a single sentence of 41000 characters",
        "training of my tagger is out of GPU memory with a single card of the cheap sort",
    ),
    (
        "cause.long-sample.late",
        "LoRA training\nTrain:  18%|##        | 88/494 [04:04<18:48,  2.78s/it]\ntorch.OutOfMemoryError: CUDA out of memory.",
        "LoRA training\nTrain:   0%|          | 1/494 [00:04<18:48,  2.78s/it]\ntorch.OutOfMemoryError: CUDA out of memory.",
    ),
]


def keys(text: str) -> set[str]:
    reasons = weigh(view_of(read_text(text))[0])
    return {r.message.key for found in reasons.values() for r in found if r.log_odds > 0}


@pytest.mark.parametrize(("key", "text", "other"), SIGNS)
def test_sign(key: str, text: str, other: str) -> None:
    assert key in keys(text)
    assert key not in keys(other)


def test_rows_as_wide_as_a_known_vocabulary_decide() -> None:
    weights = []
    for width in (30522, 30600):
        text = f"ResourceExhaustedError: OOM when allocating tensor with shape[25000,{width}] and type float on GPU:0"
        reasons = weigh(view_of(read_text(text))[0])["logits"]
        weights.append(next(r.log_odds for r in reasons if r.message.key == "cause.logits.shape"))
    assert weights[0] > weights[1]


def test_an_amount_that_is_told_may_be_the_scores_of_the_length_that_is_told() -> None:
    weights = []
    for amount in (58, 47):
        text = (
            f"transformers inference on my 80GB A100: OOM for prompts of 30000 tokens, it allocates {amount} GB at once"
        )
        reasons = weigh(view_of(read_text(text))[0])["attention-scores"]
        weights.append(next(r.log_odds for r in reasons if r.message.key == "cause.attention-scores.long-text"))
    assert weights[0] > weights[1]


def test_what_grows_in_a_training_is_not_what_was_there_at_first() -> None:
    text = "full fine-tuning of a 7B: GPU memory keeps increasing until CUDA out of memory"
    reasons = weigh(view_of(read_text(text))[0])["model-states"]
    assert any(r.message.key == "cause.ran-first" and r.log_odds < 0 for r in reasons)


def test_a_head_of_classes_leaves_the_peak_to_the_layers() -> None:
    text = (
        "OOM on my 8GB card: run_glue.py with bert-base-cased, {} batch size 64, max_seq_length 512, 12 layers trained"
    )
    shares = []
    for task in ("sequence classification,", "masked language modelling,"):
        reasons = weigh(view_of(read_text(text.format(task)))[0])["logits"]
        shares.append([r for r in reasons if r.message.key == "cause.peak-share"])
    assert shares[1]
    assert not shares[0]


def test_a_share_says_less_where_neither_batch_nor_length_is_told() -> None:
    text = "LoRA fine-tuning of meta-llama/Llama-2-7b-hf on a 24GB RTX 3090, no gradient checkpointing{}: CUDA out of memory"
    shares = []
    for told in ("", ", per_device_train_batch_size 8, max_seq_length 2048"):
        reasons = weigh(view_of(read_text(text.format(told)))[0])["activations"]
        shares.append(max((r.log_odds for r in reasons if r.message.key == "cause.peak-share"), default=0.0))
    assert shares[0] < shares[1]
