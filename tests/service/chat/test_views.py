"""Views that a conversation may ask for, and turns that set nothing."""

from __future__ import annotations

import pytest
from talking import talk

YAML = """axolotl run on one L40S 48GB

base_model: mistralai/Mistral-7B-v0.3
adapter: lora
lora_r: 16
sequence_len: 8192
micro_batch_size: 4
gradient_accumulation_steps: 4
gradient_checkpointing: true
bf16: true
"""


def test_the_configuration_is_the_pasted_one_with_the_changes() -> None:
    _, (*_, whole, diff) = talk(YAML, "micro_batch_size: 1", "give me the yaml", "diff pls")
    assert "micro_batch_size: 1\n" in whole["answer"]
    assert "sequence_len: 8192\n" in whole["answer"]
    assert "-micro_batch_size: 4\n+micro_batch_size: 1" in diff["answer"]


def test_without_a_paste_the_lines_are_in_the_framework_s_keys() -> None:
    told = "qwen2.5-7b lora r 16 with LLaMA-Factory on a 4090, cutoff_len 2048, batch 2"
    _, (*_, reply) = talk(told, "show me the config")
    assert "cutoff_len: 2048" in reply["answer"]
    assert "per_device_train_batch_size: 2" in reply["answer"]


def test_which_change_saved_most() -> None:
    _, (*_, reply) = talk(YAML, "micro_batch_size: 2", "lora_r: 8", "which one saved more?")
    rows = [line for line in reply["answer"].splitlines() if line.startswith("- ")]
    assert "micro_batch" in rows[0]


def test_alternatives_stand_side_by_side_and_change_nothing() -> None:
    _, (*_, reply) = talk(YAML, "lora vs full? just comparing")
    assert reply["changed"] == {}
    assert [line.partition(":")[0] for line in reply["answer"].splitlines()[:2]] == ["lora", "full"]


def test_what_was_only_asked_about_is_dropped_not_undone() -> None:
    _, (*_, reply) = talk(YAML, "micro_batch_size: 1", "would 8-bit adam help?", "never mind")
    assert reply["changed"] == {}


@pytest.mark.parametrize("said", ["whats the biggest chunk now", "大头是啥", "where does the memory go?"])
def test_the_largest_terms(said: str) -> None:
    _, (*_, reply) = talk(YAML, said)
    assert reply["changed"] == {}
    assert reply["answer"].count("GiB") >= 3


def test_requests_of_a_length_are_counted_not_set() -> None:
    told = "vllm serve Qwen/Qwen3-8B --max-model-len 16384 on one A100 80GB"
    _, (*_, reply) = talk(told, "how many concurrent 8k requests is that")
    assert reply["changed"] == {}
    assert "8,192" in reply["answer"]


def test_a_second_card_is_one_more_card() -> None:
    session, _ = talk("llama-server -m qwen2.5-coder-32b-instruct-q4_k_m.gguf -c 16384 on a 3090", "got a second 3090")
    assert session.job.gpus == 2
    assert session.job.get("serving.max_model_len") == 16384


def test_a_pasted_log_is_of_the_conversation_s_run() -> None:
    # 4 × 8,192 tokens × 32,000 words × 4 bytes = 3.91 GiB: the logits in fp32
    message = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.91 GiB.\nwhat is this?"
    _, (*_, reply) = talk(YAML.replace("v0.3", "v0.1"), message)
    assert reply["diagnosis"]["causes"][0]["cause"] == "logits"
    assert "?" not in reply["answer"].splitlines()[0]


def test_lines_of_a_log_set_nothing() -> None:
    log = "INFO [kv_cache_utils.py] GPU KV cache size: 75,456 tokens\nINFO started\n\nis that ok?"
    session, (*_, reply) = talk("vllm serve Qwen/Qwen3-8B --max-model-len 16384 on one A100 80GB", log)
    assert reply["changed"] == {}
    assert session.job.get("serving.max_model_len") == 16384


def test_a_line_of_the_pasted_file_with_another_value() -> None:
    toml = (
        "torchtitan pretraining meta-llama/Llama-3.1-8B on 8x H100 80GB\n\n[training]\nlocal_batch_size = 1\n"
        'seq_len = 8192\n\n[activation_checkpoint]\nmode = "selective"\n'
    )
    _, (*_, reply) = talk(toml, 'mode = "full"')
    assert reply["changed"] == {"grad_ckpt": True}


@pytest.mark.parametrize(
    ("turns", "mixed"),
    [
        (("full fine-tuning of Qwen2.5-7B, bf16, one H200",), True),
        (("full fine-tuning of Qwen2.5-7B, bf16, one H200", "pure bf16"), False),
        (("qwen2.5-7b lora bf16 on one H200", "and full?"), True),
        (("full fine-tuning of Qwen2.5-7B with LLaMA-Factory, bf16, one H200", "pure_bf16 then"), False),
    ],
)
def test_bf16_of_full_training_is_mixed_precision(turns: tuple[str, ...], mixed: bool) -> None:
    session, (*_, reply) = talk(*turns)
    # 7.6 billion parameters: 16 bytes each in mixed precision, 8 in pure 16 bits
    assert (reply["peak_gib"] > 100) is mixed
    assert session.job.method == "full"
