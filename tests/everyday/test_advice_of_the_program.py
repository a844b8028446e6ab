"""What to do is said in the terms of the program that runs, and not what is there, was tried, or belongs elsewhere."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import oomdoc
from oomdoc.evidence import shortened_to
from oomdoc.intake.assigned import assigned_in
from oomkb.memory.job import Job
from oomkb.pricing import price
from oomkb.units import GIB

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.50 GiB. GPU 0 has a total capacity of 23.65 GiB"


def answer(text: str) -> str:
    """The first screen, without its line breaks."""
    return " ".join(str(oomdoc.diagnose(text)).split())


def document(text: str) -> dict[str, Any]:
    return oomdoc.diagnose(text).document()


def first_cause(text: str) -> str:
    return str(document(text)["causes"][0]["cause"])


def test_a_program_that_is_not_known_gets_words_and_an_example() -> None:
    text = answer(
        "My own fine-tuning script for a 7B model dies in the forward pass on a 24 GB card.\n"
        f"{OOM}\nI use batch size 1, so the activations of 4096 tokens must be what fills it, no checkpointing yet."
    )
    assert "Gradient checkpointing (in transformers: gradient_checkpointing" in text


def test_an_evaluation_that_is_no_trainers_gets_no_trainers_keys() -> None:
    text = answer(
        "Scoring a benchmark with my inference script, GPU memory climbs during evaluation until CUDA out of memory: the "
        "predictions of all batches stay on the card until the last one is done."
    )
    assert "per_device_eval_batch_size" not in text
    assert "out.cpu()" in text


def test_lengths_are_cut_in_words_where_no_data_set_of_a_library_is_known() -> None:
    text = answer(
        "RuntimeError: CUDA out of memory. Tried to allocate 9.20 GiB\nour speech trainer ran fine for hours, then one batch "
        "with a far longer utterance than all others came; the lengths differ a lot in this corpus"
    )
    assert "Cut, split or drop over-long inputs" in text
    assert "dataset.filter" not in text


def test_a_command_gets_no_python_against_a_leak() -> None:
    text = answer(
        "llamafactory-cli train sft.yaml\nGPU memory grows with every step, 40 GiB at step 10, 55 at step 200, 78 at step 400, "
        "then CUDA out of memory. Nothing else runs on the card."
    )
    assert "loss.item()" not in text


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "With peft 0.7.0 my LoRA run goes out of memory, the same command works after I downgraded to 0.6.2.",
            "0.6.2",
        ),
        (
            "vllm 0.6.2 serves this model, vllm 0.7.0 with the same flags runs out of GPU memory at start. So it must be "
            "the new release.",
            "vllm==0.6.2",
        ),
        ("升级 deepspeed 之后显存就爆了：deepspeed 0.15.4 正常，deepspeed 0.16.2 同样的配置 OOM", "deepspeed==0.15.4"),
    ],
)
def test_the_release_that_worked_is_named(text: str, line: str) -> None:
    assert line in answer(text)


def test_no_sum_of_sizes_stands_against_an_older_release_that_fits() -> None:
    assert (
        first_cause(
            "Llama-3.1-70B in 16 bits on 2 x A100 80GB with vllm: vllm 0.6.2 starts and serves, vllm 0.7.0 with the same "
            "flags goes CUDA out of memory while loading the weights, so the new release broke it."
        )
        == "version-regression"
    )


def test_what_is_set_is_not_advised_again() -> None:
    text = answer(
        "torchrun --nproc_per_node 8 train.py --model Qwen/Qwen2.5-VL-7B-Instruct --max_pixels 401408 "
        "--gradient_checkpointing false --bf16 true\nThe images make the sequences long and the vision tokens blow up GPU "
        "memory: CUDA out of memory."
    )
    assert "max_pixels=401408" not in text


def test_an_allocator_setting_that_is_there_is_not_set_again() -> None:
    text = answer(
        "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True,max_split_size_mb:64\ntorch.OutOfMemoryError: CUDA out of "
        "memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB of which 1.20 GiB is free. Of the "
        "allocated memory 50.10 GiB is allocated by PyTorch, and 27.20 GiB is reserved by PyTorch but unallocated."
    )
    assert "set before starting" not in text
    assert "combine it with no other one" in text


def test_lengths_that_were_shortened_in_vain_are_not_shortened() -> None:
    text = answer(
        "llamafactory-cli train --model_name_or_path Qwen/Qwen2.5-7B --finetuning_type full --cutoff_len 8192 "
        f"--per_device_train_batch_size 1\n{OOM}\nA shorter cutoff_len changes nothing, it fails with 1024 too."
    )
    assert "cutoff_len" not in text.partition("Do ")[2].partition("How sure")[0]


def test_a_merge_that_fills_a_card_is_done_on_the_host() -> None:
    text = answer(
        "Merging the LoRA weights into my 32B model fails with CUDA out of memory on one 24 GB card; only GPU 0 is used."
    )
    assert "on the processor" in text
    assert "device_map='cpu'" in text


def test_one_array_that_no_machine_holds_is_read_in_pieces() -> None:
    text = answer(
        "numpy.core._exceptions._ArrayMemoryError: Unable to allocate 310. GiB for an array with shape (9000000, 4600) and "
        "data type float64\nwhile reading my corpus, the machine has 128 GB"
    )
    assert "in pieces or memory-mapped" in text
    assert "dataloader_num_workers" not in text


def test_host_memory_beside_rollouts_is_not_that_of_loading() -> None:
    text = answer(
        "GRPO with verl, Qwen2.5-7B on 8 x A100 40GB.\nray.exceptions.OutOfMemoryError: Task was killed due to the node "
        "running low on memory. Memory on the node was 610.20GB / 640.00GB (0.953438), which exceeds the memory usage "
        "threshold of 0.95."
    )
    assert "param_offload=False" in text
    assert "Load in 16 bits" not in text


def test_a_machine_under_windows_gets_its_own_limits() -> None:
    text = answer(
        "root@DESKTOP-7Q2K:/mnt/d/work/train# python finetune.py\nRuntimeError: CUDA error: out of memory. Tried to allocate "
        "120.00 MiB (GPU 0; 23.99 GiB total capacity; 2.10 GiB already allocated; 20.80 GiB free; 2.20 GiB reserved in total "
        "by PyTorch)"
    )
    assert ".wslconfig" in text


def test_a_capacity_that_the_named_card_cannot_have_is_not_its() -> None:
    found = document(
        "The readme says that QLoRA of a 70B takes only 48GB of GPU memory. I have 8 x T4, batch size 1, length 2048, "
        "LLaMA-Factory with ZeRO-3 and 4 bit: CUDA out of memory."
    )
    assert found["job"].get("capacity_gib") in (None, 16, 16.0)


def test_processes_are_looked_for_with_the_tools_of_the_maker() -> None:
    text = answer(
        "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 512.00 MiB. GPU 0 has a total capacity of 63.98 GiB of "
        "which 0 bytes is free. Process 4711 has 60.11 GiB memory in use. Of the allocated memory 3.20 GiB is allocated by "
        "PyTorch, and 40.00 MiB is reserved by PyTorch but unallocated."
    )
    assert "rocm-smi" in text
    assert "HIP_VISIBLE_DEVICES" in text


def test_one_tensor_beyond_any_card_is_of_scores() -> None:
    assert (
        first_cause(
            "RuntimeError: Invalid buffer size: 512.40 GiB\nwhen I generate a 10 second clip with my video pipeline"
        )
        == "attention-scores"
    )


def test_what_neither_pytorch_nor_the_card_has_left_is_held_by_others() -> None:
    assert (
        first_cause(
            "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 400.00 MiB (GPU 0; 39.59 GiB total capacity; "
            "20.10 GiB already allocated; 5.00 MiB free; 20.20 GiB reserved in total by PyTorch)"
        )
        == "other-process"
    )


def test_a_request_for_which_there_is_room_is_of_no_size() -> None:
    causes = {
        c["cause"]: c["probability"]
        for c in document(
            "Loading vicuna-13b in my inference script on an RTX 3090: torch.cuda.OutOfMemoryError: CUDA out of memory. Tried "
            "to allocate 90.00 MiB (GPU 0; 24.00 GiB total capacity; 9.10 GiB already allocated; 13.90 GiB free; 9.10 GiB "
            "reserved in total by PyTorch)"
        )["causes"]
    }
    assert causes.get("weights-load", 0.0) < 0.1


def test_plain_ram_is_the_cards_where_the_card_is_named() -> None:
    found = document(
        "Full finetune goes OOM with 24GB of VRAM\nLoRA is fine but with the full script I run out of RAM in the first step."
    )
    assert found["verdict"] == "device-oom"


def test_more_of_the_same_cards_come_before_another_one() -> None:
    text = answer(
        "composer train.py: pretraining MPT-7B with llm-foundry on one A100 80GB, device_train_microbatch_size 1, max_seq_len "
        "2048, activation_checkpointing true: CUDA out of memory."
    )
    assert "2 × A100 80GB" in text


def test_a_default_that_nobody_wrote_is_no_value_of_theirs() -> None:
    text = answer(
        "SFT of Qwen/Qwen2.5-7B with trl's SFTTrainer and LoRA on one RTX 4090, max_length 4096, gradient checkpointing on. "
        f"{OOM}"
    )
    assert "8 →" not in text


def test_variables_of_the_environment_are_written_as_such() -> None:
    text = answer(
        "MAX_PIXELS=1003520 swift sft --model Qwen/Qwen2.5-VL-7B-Instruct --train_type lora --max_length 8192\n"
        "The pictures are huge, the image tokens fill the GPU: CUDA out of memory."
    )
    assert "--MAX_PIXELS" not in text


def test_settings_are_read_wherever_they_stand() -> None:
    found = assigned_in(
        [
            "train.py --max-pixels 401408 --bf16 --flag=x",
            'deepspeed: {"pin_memory": false}',
            "pipe.enable_model_cpu_offload()",
            "If reserved memory is large try setting max_split_size_mb:128",
            "should I set cutoff_len=1024?",
        ]
    )
    assert {("max_pixels", "401408"), ("bf16", "true"), ("flag", "x"), ("pin_memory", "false")} <= found
    assert ("enable_model_cpu_offload", "()") in found
    assert not any(key in ("max_split_size_mb", "cutoff_len") for key, _ in found)


def test_quotes_end_with_a_word() -> None:
    assert shortened_to("one two three", 9) == "one two…"
    assert shortened_to("short", 9) == "short"
    assert shortened_to("显存不足显存不足", 4) == "显存不足…"


MEGATRON_SWIFT = (
    "NPROC_PER_NODE=8 megatron sft --model Qwen/Qwen3-30B-A3B --tuner_type full --tensor_model_parallel_size 4 "
    "--pipeline_model_parallel_size 2 --expert_model_parallel_size 4 --micro_batch_size 1 --packing true --max_length 8192 "
    "--recompute_granularity full --recompute_method uniform --recompute_num_layers 1 --sequence_parallel true"
)


def test_a_megatron_run_of_swift_is_one_of_megatron() -> None:
    job = oomdoc.diagnose(MEGATRON_SWIFT).diagnosis.job
    assert (job.framework, job.tp, job.pp, job.ep) == ("megatron-swift", 4, 2, 4)
    whole = price(job).estimate.process_bytes
    cut = price(replace(job, extra={**job.extra, "expert_tensor_parallel_size": 4})).estimate.process_bytes
    assert whole > 2 * cut  # experts are whole on their card unless that is said


def test_a_part_of_the_states_may_stay_on_the_card() -> None:
    offloaded = f"{MEGATRON_SWIFT} --optimizer_cpu_offload true --use_precision_aware_optimizer true"
    everything, part, none = (
        price(oomdoc.diagnose(text).diagnosis.job).estimate.process_bytes / GIB
        for text in (offloaded, f"{offloaded} --optimizer_offload_fraction 0.5", MEGATRON_SWIFT)
    )
    assert everything < part < none


def test_all_is_offloaded_where_no_part_is_said() -> None:
    job = Job.from_document({"model": "Qwen/Qwen2.5-7B", "sharding": "distributed-optimizer", "offload": ["optimizer"]})
    stated = replace(job, extra={"optimizer_offload_fraction": 1.0})
    assert price(job).estimate.process_bytes == price(stated).estimate.process_bytes
