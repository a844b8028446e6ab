"""Follow-ups of a conversation without a language model: what they go on from, and why a figure is what it is."""

from __future__ import annotations

import pytest
from talking import answers_of, talk

from oomdoc.chat.prices import price_of
from oomkb.memory.job import Job

MEASURED = (
    "Unsloth QLoRA on Phi-4 (14B), seq len 2048, RTX 6000 Ada 48GB. I measured in nvidia-smi: batch 4 peaks at 17.2 GiB, "
    "batch 8 at 25.0 GiB. will 16 fit?"
)


def test_other_sizes_are_answered_by_the_figures_that_were_measured():
    _, (_, more, most) = answers_of(MEASURED, "24?", "so what's the biggest")
    assert more.startswith("No, by your own figures.")
    assert "56.20 GiB" in more  # 9.4 + 24 x 1.95
    assert "batch 18 (about 44.50 GiB)" in most


def test_measured_figures_say_nothing_of_another_length():
    _, (_, answer) = answers_of(MEASURED, "seq_len 4096")
    assert "by your own figures" not in answer.lower()


def test_a_question_goes_on_from_what_was_asked_about():
    session, (_, _, answer) = answers_of(
        "vLLM, Qwen3-8B, one L20, 32k context", "what if it was two L20 with TP=2?", "64k?"
    )
    assert "2 × L20" in answer
    assert session.job.get("serving.max_model_len") == 65536


def test_my_own_card_is_the_one_of_the_run():
    _, answers = answers_of(
        "vLLM, Qwen3-8B, one RTX A6000 48GB, 32k context",
        "just out of curiosity, what would it be on an H100?",
        "ok on my own card then, 16 users at 4k each?",
    )
    assert "RTX A6000" in answers[-1]
    assert "H100" not in answers[-1]


def test_hardware_that_is_corrected():
    session, _ = answers_of("vLLM, Qwen3-8B, A100 80GB, 32k context", "sorry, no A100. it's 2x RTX A6000 48GB")
    assert (session.job.gpu, session.job.gpus) == ("RTX A6000 48GB", 2)


@pytest.mark.parametrize(
    ("turn", "field", "value"),
    [
        ("q8_0 for k and v", "serving.kv_dtype", "q8_0"),
        ("K 和 V 都用 q4_0", "serving.kv_dtype", "q4_0"),
        ("with an f16 kv cache", "serving.kv_dtype", "fp16"),
        ("weights and kv cache in fp8", "quant", "fp8"),
        ("W8A8 权重", "quant", "int8"),
    ],
)
def test_formats_of_the_cache_and_of_the_weights(turn, field, value):
    session, _ = answers_of("vLLM, Qwen3-8B, one A100 80GB, 32k context", turn)
    assert session.job.get(field) == value


def test_a_format_after_the_caches_is_the_caches():
    session, _ = answers_of(
        "llama-server -m Qwen3-32B-Q4_K_M.gguf -c 32768 on a 4090", "with a q4_0 kv cache", "q8_0, 16k"
    )
    assert (session.job.quant, session.job.get("serving.kv_dtype")) == ("q4_k_m", "q8_0")


@pytest.mark.parametrize(
    ("run", "turn", "said"),
    [
        (
            "vLLM, Qwen3-14B, one A100 80GB",
            "why is it only 160 KB a token? it has 40 heads",
            "8 KV heads × 128 × 2 bytes",
        ),
        ("vLLM, DeepSeek-V2-Lite-Chat, one L20", "why so little cache per token?", "one latent of 512 + 64"),
        ("vLLM, gemma-3-27b-it, one A100 80GB", "why is the kv cache so small?", "sliding window of 1,024 tokens"),
        ("vLLM, Qwen3-30B-A3B, one A100 80GB", "why so much? only 3B are active", "all 30.5 billion"),
    ],
)
def test_why_a_part_takes_what_it_takes(run, turn, said):
    assert said in answers_of(run, turn)[1][-1]


@pytest.mark.parametrize(
    "turn", ["how many tokens/s will each user see?", "how long will one epoch take?", "每秒能出多少 token"]
)
def test_rates_and_times_are_not_computed(turn):
    answer = answers_of("vLLM, Qwen3-8B, one A100 80GB", turn)[1][-1]
    assert "not computed" in answer or "不计算" in answer
    assert "GiB" not in answer


def test_a_printed_error_stands_before_the_guess_that_it_is_memory():
    question = "it reports CUDA error: an illegal memory access was encountered, did it run out of memory?"
    answer = answers_of("SGLang, Qwen3-8B, one A100 80GB", question)[1][-1]
    assert "not a lack of memory" in answer


ADAPTED = "LoRA of Qwen2.5-7B on 4x A100 40GB, rank 16, batch 4, 4096 tokens, gradient checkpointing on"
OFFLOADED = "ZeRO-3 with optimizer and parameter offload to cpu, full fine-tune of Llama-3.1-8B, 4x A100 40GB, batch 1, 4096 tokens"


@pytest.mark.parametrize(
    ("turn", "changed"),
    [
        ("ok micro_batch=2 then, the rest stays", {"micro_batch": 2}),
        ("好，batch 改成 2", {"micro_batch": 2}),
        ("seq 2048 then", {"seq_len": 2048}),
        ("yes please, and batch 2", {"fused_ce": True, "micro_batch": 2}),
        ("可以，就这样，同时 batch 改成 2", {"fused_ce": True, "micro_batch": 2}),
        ("go ahead", {"fused_ce": True}),
    ],
)
def test_what_was_only_supposed_is_made_where_it_is_agreed_to(turn: str, changed: dict[str, object]) -> None:
    _, replies = talk(ADAPTED, "would a fused cross entropy help?", turn)
    assert replies[-1]["changed"] == changed


@pytest.mark.parametrize(
    "turn", ["be back in half an hour", "afk, lunch", "gimme 5 minutes", "先去接个电话，十分钟后回来"]
)
def test_who_leaves_for_a_while_changes_nothing(turn: str) -> None:
    session, (*_, reply) = talk(ADAPTED, "batch 2", turn)
    assert reply["changed"] == {}
    assert session.job.micro_batch == 2
    assert "GiB" not in reply["answer"]


def test_a_setting_beside_a_leave_is_made() -> None:
    session, _ = talk(ADAPTED, "batch 2 for now, brb")
    assert session.job.micro_batch == 2


@pytest.mark.parametrize(
    "turn",
    [
        "[rank6]: this one stopped",
        "only rank 1 crashed",
        "rank 2 is at 39 GiB",
        "在 rank 3 上挂了",
        "rank 4's log is empty",
    ],
)
def test_a_rank_of_a_process_is_none_of_adapters(turn: str) -> None:
    session, _ = talk(ADAPTED, turn)
    assert session.job.get("lora.r") == 16


@pytest.mark.parametrize("turn", ["adapters of rank 8", "rank 8 then", "lora rank 8 crashed less", "rank 降到 8"])
def test_a_rank_of_adapters(turn: str) -> None:
    session, _ = talk(ADAPTED, turn)
    assert session.job.get("lora.r") == 8


@pytest.mark.parametrize("turn", ["r=4, bs=2, 1024 tokens", "bs 2，1k token，r=4", "1,024 tokens, r=4, bs=2"])
def test_tokens_in_a_list_of_settings_are_the_length(turn: str) -> None:
    session, _ = talk(ADAPTED, turn)
    assert (session.job.seq_len, session.job.micro_batch, session.job.get("lora.r")) == (1024, 2, 4)


@pytest.mark.parametrize(
    ("turn", "left"),
    [
        ("drop the parameter offload, leave the optimizer's", ("optimizer",)),
        ("参数的卸载去掉", ("optimizer",)),
        ("skip offloading the weights, the optimizer stays offloaded", ("optimizer",)),
        ("turn the optimizer offload off", ("param",)),
        ("drop offloading", ()),
    ],
)
def test_one_offload_is_taken_away(turn: str, left: tuple[str, ...]) -> None:
    session, _ = talk(OFFLOADED, turn)
    assert tuple(session.job.offload or ()) == left


@pytest.mark.parametrize(
    "turn", ["full with cpu offload or QLoRA, which one is better?", "QLoRA 还是全参加 offload，推荐哪个？"]
)
@pytest.mark.parametrize("before", [(), ("how much would optimizer offload save?",)])
def test_alternatives_with_a_setting_of_their_own_set_nothing(turn: str, before: tuple[str, ...]) -> None:
    _, (*_, reply) = talk(ADAPTED.replace("LoRA", "full fine-tuning"), *before, turn)
    assert reply["changed"] == {}


@pytest.mark.parametrize("turn", ["any headroom left?", "how much of the card stays free?", "还有多少余量？"])
def test_what_is_left_of_the_card(turn: str) -> None:
    _, (*_, reply) = talk(ADAPTED, "batch 2", turn)
    estimate = price_of(Job.from_document(reply["job"]), "en")[0].estimate
    left = (estimate.capacity_bytes - estimate.needed_bytes) / 2**30
    assert f"{left:.2f} GiB" in reply["answer"].split("\n")[0]


@pytest.mark.parametrize(
    ("turn", "language"),
    [("max length 2048 please", "en"), ("how about 2 cards", "en"), ("bs=2, r=8", "zh"), ("zero3", "zh")],
)
def test_the_language_of_a_turn_of_keys_is_the_conversations(turn: str, language: str) -> None:
    session, _ = talk("Qwen2.5-7B 做 LoRA，一张 A100 40GB，长度 4096，batch 4，放得下吗？", turn)
    assert session.language == language


def test_the_largest_is_no_less_than_what_fits() -> None:
    run = "full fine-tune of Llama-3.1-8B with the HF Trainer, weights loaded in bf16, one A100 80GB, batch 4, 4096 tokens"
    _, (answer,) = answers_of(f"{run}, gradient checkpointing is on")
    assert answer.startswith("Yes")
    assert "At batch 4 up to 4,096 tokens fit" in answer


@pytest.mark.parametrize(
    ("turn", "said"),
    [
        ("nvidia-smi peaked at 60 GiB, is that what you predicted?", ("60.00 GiB", "more than estimated")),
        ("memory_allocated 显示 12G，和你估的差多少", ("12.00 GiB", "比估计少")),
    ],
)
def test_measured_figures_are_held_against_the_estimate(turn: str, said: tuple[str, ...]) -> None:
    _, (*_, reply) = talk(ADAPTED, "batch 2", turn)
    assert reply["changed"] == {}
    assert all(part in reply["answer"].split("\n")[0] for part in said)
