"""Questions that compare two or more ways, ask for one part, or describe no run at all."""

from __future__ import annotations

import pytest

import oomdoc
from oomdoc.intake.alternatives import comparisons_in
from oomdoc.intake.asked import asked_in


@pytest.mark.parametrize(
    ("question", "fields"),
    [
        ("ZeRO-1 or 3 for a full fine-tune of a 7B on 4 A100?", [{"sharding": "zero1"}, {"sharding": "zero3"}]),
        ("full, LoRA or QLoRA for a 7B on 48 GB?", [{"method": "full"}, {"method": "lora"}, {"method": "qlora"}]),
        ("Is SFT cheaper than DPO for Qwen3-8B?", [{"objective": "sft"}, {"objective": "dpo"}]),
        ("q4_k_m还是q8_0，24G显卡跑Qwen3-32B？", [{"quant": "q4_k_m"}, {"quant": "q8_0"}]),
        ("LoRA with bf16 on one A100, does it fit? It works on an H100.", []),
        (
            "Full SFT of an 8B: ZeRO-2 with the optimizer offloaded or ZeRO-3 without offload?",
            [{"sharding": "zero2", "offload": ("optimizer",)}, {"sharding": "zero3", "offload": ()}],
        ),
        (
            "7B 全参，batch 8 开重计算，还是 batch 2 不开重计算？",
            [{"micro_batch": 8, "grad_ckpt": True}, {"micro_batch": 2, "grad_ckpt": False}],
        ),
        (
            "LoRA with liger or QLoRA without it, for a 9B?",
            [{"method": "lora", "fused_ce": True}, {"method": "qlora", "fused_ce": False}],
        ),
        ("LoRA or QLoRA with gradient checkpointing, for a 9B?", [{"method": "lora"}, {"method": "qlora"}]),
        ("Full SFT of an 8B on 8, 16, 24 or 32 H100?", [{"gpus": n} for n in (8, 16, 24, 32)]),
        ("Serve a 70B on 2x or 4x A100 80GB?", [{"gpus": 2}, {"gpus": 4}]),
        ("7B lora，单卡还是双卡 3090？", [{"gpus": 1}, {"gpus": 2}]),
        ("LoRA of Qwen3-4B at 8k and at 32k?", [{"seq_len": 8192}, {"seq_len": 32768}]),
        ("bs 2, on 8/16/32 H100, LoRA of a 70B", [{"gpus": n} for n in (8, 16, 32)]),
        ("qlora 7b, bs 64, 1024 tokens on a 4090?", []),
        ("QLoRA of Qwen3-8B on T4, V100 or A10G?", [{"gpu": n} for n in ("T4", "V100-SXM2-32GB", "A10G")]),
        ("Would rank 16 or 64 matter for LoRA of an 8B?", [{"lora.r": 16}, {"lora.r": 64}]),
        ("What if I go from batch 2 to 6 with Qwen3-4B?", [{"micro_batch": 2}, {"micro_batch": 6}]),
        ("Can I do batch 4 and 4096 tokens?", []),
        ("How much RAM does ZeRO-3 with offload_optimizer and offload_param need for a full 7B?", []),
        ("Why do rank 1 and rank 2 hold more than the others?", []),
        ("Would going from 2 to 4 3090s help a 14B LoRA?", [{"gpus": 2}, {"gpus": 4}]),
        ("4 卡和 8 卡差多少？", [{"gpus": 4}, {"gpus": 8}]),
        ("Full SFT of a 3B: 8-bit adam or adamw?", [{"optimizer": "adamw_8bit"}, {"optimizer": "adamw"}]),
        ("Would flash attention reduce memory here?", [{"attention": "flash2"}, {"attention": "sdpa"}]),
        (
            "full fine-tune vs LoRA (r=8, every linear layer, bf16 base) vs QLoRA for a 14B?",
            [{"method": "full"}, {"method": "lora"}, {"method": "qlora"}],
        ),
        (
            "How much does activation checkpointing save for an 8B at 8k?",
            [{"grad_ckpt": True}, {"grad_ckpt": False}],
        ),
        (
            "A boss says ZeRO-3 must be used, is ZeRO-1 not enough for a 3B?",
            [{"sharding": "zero3"}, {"sharding": "zero1"}],
        ),
        ("Does Qwen3-8B with LoRA fit on a 4090 or do I need a larger card?", []),
        ("tp 2够吗还是得tp 4？vLLM 跑 70B", [{"tp": 2}, {"tp": 4}]),
        ("FSDP FULL_SHARD or HYBRID_SHARD on 2x8 H100?", [{"sharding": "fsdp"}, {"sharding": "hsdp"}]),
        ("gpu_memory_utilization 0.9 or 0.8?", [{"serving.gpu_memory_utilization": n} for n in (0.9, 0.8)]),
        ("batch 1, 2 or 4 for LoRA of a 7B?", [{"micro_batch": n} for n in (1, 2, 4)]),
        ("bs 1 now with LoRA of a 7B. Can I go to 4?", [{"micro_batch": 1}, {"micro_batch": 4}]),
        ("KV cache fp8 还是 fp16，Qwen3-32B", [{"serving.kv_dtype": "fp8"}, {"serving.kv_dtype": "bf16"}]),
        ("Would offloading the optimizer help?", [{"offload": ("optimizer",)}, {"offload": ()}]),
        ("开了 gradient checkpointing，A100 40G，会爆显存吗？", []),
        ("全参 SFT，不 offload，开 gradient checkpointing，显存够吗？", []),
        (
            "LoRA (ZeRO-3) or QLoRA (DDP) for a 32B on 4x 3090?",
            [{"method": "lora", "sharding": "zero3"}, {"method": "qlora", "sharding": "ddp"}],
        ),
        ("换成 paged_adamw_8bit 比 adamw_torch 省多少", [{"optimizer": "paged_adamw_8bit"}, {"optimizer": "adamw"}]),
        ("Qwen3-32B on 1x4090 vs 2x3090", [{"gpu": "RTX 4090", "gpus": 1}, {"gpu": "RTX 3090", "gpus": 2}]),
        (
            "A 3B. (a) ZeRO-2, no offload (b) ZeRO-2 + offload_optimizer cpu",
            [{"sharding": "zero2", "offload": ()}, {"sharding": "zero2", "offload": ("optimizer",)}],
        ),
    ],
)
def test_what_is_compared(question: str, fields: list[dict[str, str]]) -> None:
    sides = asked_in(question).alternatives
    assert [{n: v for n, v in side.fields.items() if v is not None} for side in sides] == fields


@pytest.mark.parametrize(
    ("question", "names"),
    [
        ("QLoRA or LoRA of Qwen3-8B at 2048 or 4096 tokens, bs 1, one 3090?", 4),
        ("Qwen3-8B LoRA，双卡 3090，batch 1、2还是4，长度 2048，放得下吗？", 3),
    ],
)
def test_each_run_that_is_asked_about_has_its_line_and_its_figure(question: str, names: int) -> None:
    report = oomdoc.diagnose(question)
    document, found = report.document(), report.diagnosis
    assert len(document["asked"]) == names
    for line, row, side in zip(document["sentences"], document["asked"], found.sides, strict=False):
        assert line.startswith(row["name"])
        assert f"{row['needed_gib']:.2f} GiB" in line
        again = oomdoc.estimate(found.job.with_fields(side.fields).document())
        assert again.needed_gib == pytest.approx(row["needed_gib"], abs=0.02)
    if document["grid"]:
        cells = [need for needs in document["grid"]["needed_gib"] for need in needs]
        assert cells == [row["needed_gib"] for row in document["asked"]]


def test_a_question_of_something_else_is_said_to_be_left() -> None:
    said = oomdoc.diagnose("LoRA of Qwen3-8B on a 4090 at 2048 tokens? What learning rate?").document()["sentences"]
    assert "What learning rate?" in said[-1]


def test_whether_a_card_is_needed_is_answered_in_words() -> None:
    said = oomdoc.diagnose("Do I need an A100 to qlora Llama-3.1-8B, or is my 3090 enough?").document()["sentences"]
    assert said[0].startswith("No, you do not need A100: 3090")


def test_settings_that_words_name_are_the_jobs() -> None:
    job = oomdoc.diagnose("qwen2.5-7b lora bs2 8192 a100 80g 能跑吗").document()["job"]
    assert (job["micro_batch"], job["seq_len"], job["gpu"]) == (2, 8192, "a100 80g")


def test_what_is_asked_stands_first() -> None:
    """ZeRO-3 of 7.6e9 parameters over 8: 12 bytes each of masters and moments are 10.6 GiB a card."""
    run = "full fine-tune of Qwen2.5-7B with ZeRO-3 on 8x H100 80GB at 4096"
    assert (
        "optimizer states: about 10.6"
        in oomdoc.diagnose(f"How much goes to the optimizer in a {run}?").document()["sentences"][0]
    )
    host = oomdoc.diagnose(f"How much host RAM with the optimizer offloaded, {run}?").document()["sentences"][0]
    assert host.startswith("Host memory: about 1")


def test_the_engines_own_log_says_how_many_requests_fit() -> None:
    """276,480 tokens are 90 requests of 2,560 and 500."""
    log = "INFO 09-30 kv_cache_utils.py:1091] Maximum concurrency for 40,960 tokens per request: 6.75x"
    asked = f"Only 6 users at once? Prompts of 2.5k tokens, answers of 500. Qwen3-14B on vLLM.\n\n{log}\n"
    assert "90 requests of 3,060 tokens" in oomdoc.diagnose(asked).document()["sentences"][0]


def test_a_bare_size_names_the_other_model() -> None:
    sides = asked_in("Qwen3-8B vs 14B with QLoRA on an RTX 3090").alternatives
    assert [side.fields["model"] for side in sides] == ["Qwen/Qwen3-8B", "Qwen/Qwen3-14B"]


def test_both_sides_are_answered_and_the_job_is_the_one_that_fits() -> None:
    answer = oomdoc.diagnose("LoRA or QLoRA for Qwen3-14B, bs 1 len 4096, one RTX 4090?").document()
    assert answer["sentences"][0].startswith("LoRA: no")
    assert answer["sentences"][1].startswith("QLoRA: yes")
    assert answer["job"]["method"] == "qlora"
    assert answer["job"]["seq_len"] == 4096
    assert answer["grid"] is None  # nothing else was asked


def test_machines_of_one_question_keep_their_own_cards() -> None:
    asked = asked_in("Does Qwen3-32B in fp8 run on my two 3090s (48 GB in all)? At work there is a single L40S.")
    assert [(side.fields["gpu"], side.fields["gpus"]) for side in asked.alternatives] == [("RTX 3090", 2), ("L40S", 1)]


def test_a_card_that_is_not_there_is_none() -> None:
    job = oomdoc.diagnose("We do not have an H100, only an RTX 4090. LoRA of Qwen3-8B?").document()["job"]
    assert job["gpu"] == "RTX 4090"


def test_models_are_compared_with_the_method_that_each_is_given() -> None:
    sides = asked_in("4-bit Qwen3-14B or 16-bit Qwen3-8B?").alternatives
    assert [(side.fields["model"], side.fields["quant"]) for side in sides] == [
        ("Qwen/Qwen3-14B", "nf4"),
        ("Qwen/Qwen3-8B", "none"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "Full fine-tuning of a 7B on 8x A100 80GB with ZeRO-3, batch 4, 8192 tokens: fits? If not, with CPU offload?",
        "7B 全参微调，8 张 A800 80G，zero3，bs=4，长度 8192，能跑吗？不行的话 zero3 offload 呢？",
    ],
)
def test_what_is_asked_for_the_case_that_it_does_not_fit_is_not_set(text: str) -> None:
    assert "offload" not in oomdoc.diagnose(text).document()["job"]


def test_the_number_of_a_card_is_no_length() -> None:
    question = "Qwen2.5 14B in llama.cpp, 16k context: which quant can I use on a 4060 Ti 16GB, Q4_K_M or Q8_0?"
    asked = oomdoc.diagnose(question).document()["asked"]
    assert len(asked) == 2


def test_requests_at_once_of_each_machine() -> None:
    question = "部署 Qwen2.5-72B-Instruct-AWQ，上下文 32k，4 张 4090 或者 2 张 A100 40G，分别能同时几个人用？"
    said = oomdoc.diagnose(question, language="zh").document()["sentences"]
    assert "4 × 4090 4 个" in said[0]


def test_most_of_the_figure_is_named() -> None:
    """Llama-3.1-8B: 8.03e9 parameters of 2 bytes are 14.96 GiB."""
    said = oomdoc.diagnose("LoRA of Llama-3.1-8B on one A100 40GB at 1024 tokens?").document()["sentences"]
    assert any("weights 14.96 GiB" in sentence for sentence in said)


def test_tokens_that_are_generated_count() -> None:
    job = oomdoc.diagnose("TRL GRPO of Qwen3-4B on 4x H100, 8k response length, does it fit?").document()["job"]
    assert job["completion_len"] == 8192


@pytest.mark.parametrize(
    "text", ["Closing this, it is solved: the OOM came from another job.", "不再 OOM 了，问题已经解决，谢谢"]
)
def test_what_is_over_is_not_diagnosed(text: str) -> None:
    answer = oomdoc.diagnose(text).document()
    assert answer["verdict"] == "no-failure"
    assert answer["questions"] == []


def test_what_is_not_over_is_diagnosed() -> None:
    answer = oomdoc.diagnose("The first OOM is fixed, but it runs out of memory again when saving.").document()
    assert answer["verdict"] == "device-oom"


def test_models_of_images_are_not_asked_for() -> None:
    answer = oomdoc.diagnose("Does a LoRA of SDXL fit on 12 GB?").document()
    assert answer["questions"] == []
    assert "4.84 GiB in 16 bits" in answer["sentences"][0]
    assert any("images or video" in sentence for sentence in answer["sentences"])


def test_the_cache_alone() -> None:
    """Llama-3.1-8B: 32 layers, 8 heads of 128, keys and values in 16 bits: 128 KiB a token, 4 GiB at 32,768."""
    answer = oomdoc.diagnose("How big is the KV cache of Llama-3.1-8B at 32k context?").document()
    assert "4.00 GiB for one sequence of 32,768" in answer["sentences"][0]


@pytest.mark.parametrize("text", ["All good now, thank you!", "What does expandable_segments change?"])
def test_where_no_run_is_described_none_is_asked_for(text: str) -> None:
    answer = oomdoc.diagnose(text).document()
    assert answer["outlook"] is None
    assert answer["questions"] == []


@pytest.mark.parametrize(
    ("text", "cards"),
    [("2 nodes (16×H100 in total)", 16), ("3 nodes, 24x A100", 24), ("2 nodes with 8x H100 each", 16)],
)
def test_cards_of_all_machines(text: str, cards: int) -> None:
    job = oomdoc.diagnose(f"Does full SFT of Qwen2.5-32B with ZeRO-3 fit on {text}?").document()["job"]
    assert job.get("gpus", 1) * job.get("nodes", 1) == cards or job.get("world") == cards


@pytest.mark.parametrize("text", ["What can I run on a 24 GB card?", "一张 4090 能跑多大的模型？"])
def test_of_a_card_alone_usual_sizes_are_shown(text: str) -> None:
    grid = oomdoc.diagnose(text).document()["grid"]
    assert grid["name"] == "uses-sizes"
    fits = dict(zip(grid["rows"], grid["fits"], strict=True))
    assert fits["serve-4"][grid["columns"].index("14B")]
    assert not fits["full"][grid["columns"].index("8B")]


def test_what_is_not_of_memory_gets_no_figures() -> None:
    answer = oomdoc.diagnose("Is an 8xA100 node cheaper than 4xH200 to rent?").document()
    assert answer["grid"] is None
    assert answer["questions"] == []


def test_listed_machines_are_compared_before_anything_else() -> None:
    sides = asked_in(
        "Full SFT of a 14B with FSDP or ZeRO-3: 4xA100-40G, 8xL40S or 4xH100-80G, which is the smallest that holds it?"
    ).alternatives
    assert [(side.fields["gpus"], side.fields["sharding"]) for side in sides] == [
        (count, sharding) for count in (4, 8, 4) for sharding in ("fsdp", "zero3")
    ]


@pytest.mark.parametrize("card", ["rtx 4090", "RTX 4090", "rtx4090", "4090"])
def test_a_card_in_any_case_is_the_run_s(card: str) -> None:
    job = oomdoc.diagnose(f"vllm serve Qwen/Qwen3-14B ({card}), what should I change to fit?").document()["job"]
    assert "4090" in job["gpu"]


def test_the_engine_s_own_longest_request_comes_before_round_numbers() -> None:
    text = """ValueError: To serve at least one request with the models's max seq len (131072), (16.00 GiB KV cache is
needed, which is larger than the available KV cache memory (5.10 GiB). Based on the available memory, the estimated
maximum model length is 41776.
vllm serve meta-llama/Llama-3.1-8B-Instruct"""
    shown = oomdoc.diagnose(
        text.replace("is\nneeded", "is needed").replace("estimated\nmaximum", "estimated maximum")
    ).text()
    assert "131072 → 65536" not in shown
    assert "→ 40" in shown


def test_the_cache_alone_is_asked_for_in_few_words() -> None:
    said = oomdoc.diagnose("only the kv cache, no weights: Llama-3.1-8B at 16384 ctx").document()["sentences"]
    assert "2.00 GiB for one sequence of 16,384" in said[0]


@pytest.mark.parametrize(
    ("question", "length"),
    [
        ("It needs 8192 tokens on one 4090, ok?", 8192),
        ("Can we go up to 16384?", 16384),
        ("要 32k 上下文，够吗", 32768),
        ("I want 1024 in-batch negatives, does batch 48 at 512 tokens fit?", None),
        ("We need 2000 examples a day, is a 4090 enough?", None),
    ],
)
def test_a_length_that_is_asked_about(question: str, length: int | None) -> None:
    assert asked_in(question).target_length == length


@pytest.mark.parametrize(
    ("question", "first", "answer"),
    [
        (
            "Two vllm servers of llama 3.1 8b on one h100 80gb, both --gpu-memory-utilization 0.9?",
            "servers-over",
            "fits",
        ),
        ("Can I run two SGLang servers with Qwen2.5-7B on a single 4090?", "servers", "does-not-fit"),
        ("一张 A100 80G 上跑两个 vllm 实例，Qwen2.5-14B，行吗", "servers", "fits"),
    ],
)
def test_engines_that_share_one_card(question: str, first: str, answer: str) -> None:
    found = oomdoc.diagnose(question)
    assert found.diagnosis.summary[0].key == f"answer.{first}"
    assert found.document()["outlook"]["answer"] == answer


def test_engines_on_cards_of_their_own_share_nothing() -> None:
    found = oomdoc.diagnose("Two vLLM servers of Llama-3.1-8B on one node with 8 H100?")
    assert not [m for m in found.diagnosis.summary if m.key.startswith("answer.servers")]


@pytest.mark.parametrize(
    "text", ["两张 3090 总共 48G 显存，LoRA 微调 Qwen3-8B 行吗？", "2x 3090, 48 GB total: LoRA of Qwen3-8B?"]
)
def test_what_all_cards_hold_together_is_divided(text: str) -> None:
    assert oomdoc.diagnose(text).document()["facts"]["capacity_gib"]["value"] == 24


@pytest.mark.parametrize(
    ("text", "names", "offload"),
    [
        (
            "ZeRO-3 or ZeRO-3 with offload to train Qwen2.5-7B in full on 8x4090?",
            ["ZeRO-3", "ZeRO-3 with offload"],
            [0, 2],
        ),
        ("8 卡 4090 全参微调 Qwen2.5-7B，zero3 还是 zero3 加 offload？", ["zero3", "zero3 加 offload"], [0, 2]),
        ("8 卡 4090 全参微调 Qwen2.5-7B，用 zero3 和 zero3+offload 哪个可行？", ["zero3", "zero3+offload"], [0, 2]),
        (
            "ZeRO-3 with optimizer offload or ZeRO-3 for Qwen2.5-7B?",
            ["ZeRO-3 with optimizer offload", "ZeRO-3"],
            [1, 0],
        ),
    ],
)
def test_one_value_with_and_without_a_setting(text: str, names: list[str], offload: list[int]) -> None:
    (sides,) = comparisons_in(text)
    assert [side.name for side in sides] == names
    assert [len(side.fields["offload"]) for side in sides] == offload


def test_a_setting_that_one_side_of_two_goes_without() -> None:
    (sides,) = comparisons_in("ZeRO-2 with offload or ZeRO-3 without for full fine-tuning of Qwen2.5-7B?")
    assert [bool(side.fields["offload"]) for side in sides] == [True, False]


def test_a_machine_whose_memory_is_named_is_used() -> None:
    answer = oomdoc.diagnose("Can I run Qwen3-30B-A3B Q4_K_M in llama.cpp with 32 GB of RAM and a 12GB 3060?").text()
    assert "--n-cpu-moe" in answer.split("GiB needed per GPU")[0]
    answer = oomdoc.diagnose("Is 64GB RAM enough to run Qwen3-235B-A22B Q4_K_M in llama.cpp with one 3090?").text()
    assert answer.startswith("No, not even with part of it in host memory")
