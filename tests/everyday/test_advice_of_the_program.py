"""What to do is said in the terms of the program that runs, and not what is there, was tried, or belongs elsewhere."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import oomdoc
from oomdoc.diagnosis.throughput import throughput
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
            "Upgrading transformers from 4.40.1 to 4.41.0 gives CUDA out of memory in the first step, nothing else was "
            "changed, the old version runs fine.",
            "transformers==4.40.1",
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


def test_a_foreach_step_of_an_unnamed_model_is_fused_first_and_states_go_to_the_host() -> None:
    text = answer(
        "full fine-tuning with trl on 4xA100 40G, fsdp FULL_SHARD, no offload, mixed precision bf16, max_length 1024\n"
        '  File "torch/optim/adamw.py", line 699, in _multi_tensor_adamw\n'
        "    exp_avg_sq_sqrt = torch._foreach_sqrt(device_exp_avg_sqs)\n"
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 210.00 MiB. GPU 0 has a total capacity of 39.39 GiB "
        "of which 146.94 MiB is free. Of the allocated memory 36.03 GiB is allocated by PyTorch, and 1.61 GiB is reserved "
        "by PyTorch but unallocated."
    )
    steps = [text.index(word) for word in ("adamw_torch_fused", "fsdp_offload_params", "LoRA")]
    assert steps == sorted(steps)


def test_a_share_raised_in_vain_goes_back_with_a_second_card() -> None:
    text = answer(
        "$ vllm serve Qwen/Qwen2.5-32B-Instruct --max-model-len 8192 --gpu-memory-utilization 0.98   # one MI210, 64 GB\n"
        "INFO 04-02 13:21:17 [gpu_model_runner.py:1273] Model loading took 61.0375 GiB and 45.482919 seconds\n"
        "INFO 04-02 13:21:52 [gpu_worker.py:227] Available KV cache memory: -0.61 GiB\n"
        "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing "
        "the engine."
    )
    assert "--tensor-parallel-size 2" in text
    assert "0.98 → 0.9" in text
    assert "Set max_model_len" not in text


def test_what_deepspeed_prints_as_used_is_the_machines_memory() -> None:
    text = (
        "deepspeed stage 3, offload_optimizer cpu with pin_memory true, 4x RTX A6000, Qwen2.5-32B full finetune, bf16\n"
        "[INFO] [utils.py:789:see_memory_usage] CPU Virtual Memory:  used = 31.94 GB, percent = 12.7%\n"
        "[INFO] [utils.py:789:see_memory_usage] CPU Virtual Memory:  used = 154.11 GB, percent = 61.2%\n"
        "[ERROR] [launch.py:325:sigkill_handler] ['python3', 'finetune.py', '--deepspeed', 'z3.json'] exits with return code "
        "= -9"
    )
    assert document(text)["job"]["host_gib"] == 252
    assert "252.00 GiB are there" in answer(text)
    assert "nvme" in answer(text)
    assert '"pin_memory": false' not in answer(text)


def test_a_number_that_no_run_has_is_no_setting_of_one() -> None:
    assert answer("what's the beefiest vision model for a 3060 12GB to caption 80k photos (2048px) overnight")
    asked = document("gpt-oss-120b with vLLM on one H100 80GB at 131k context, will it fit?")
    assert asked["job"]["serving"]["max_model_len"] == 131_072


ONE_UNIT = """Qwen2.5-14B full ft, 8x A100 80G, per_device batch 1, seq 4096
distributed_type: FSDP
fsdp_config:
  fsdp_activation_checkpointing: true
  fsdp_auto_wrap_policy: {policy}
  fsdp_sharding_strategy: FULL_SHARD
mixed_precision: bf16
num_processes: 8
[rank3]:     return Variable._execution_engine.run_backward(
[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 27.51 GiB. GPU 3 has a total capacity of 79.14 GiB
of which 14.92 GiB is free. Of the allocated memory 62.10 GiB is allocated by PyTorch, and 1.22 GiB is reserved by PyTorch
but unallocated.
"""


def test_a_model_that_is_one_fsdp_unit_is_wrapped_by_layers() -> None:
    text = ONE_UNIT.format(policy="NO_WRAP")
    assert first_cause(text) == "zero3-gather"
    assert "fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP" in answer(text)
    assert "grad_ckpt" not in answer(text)
    assert first_cause(ONE_UNIT.format(policy="TRANSFORMER_BASED_WRAP")) != "zero3-gather"


def test_numbered_questions_stand_on_the_described_run() -> None:
    text = answer(
        "8x A800 80G, full SFT of Qwen2.5-14B with DeepSpeed ZeRO-3, bf16, AdamW, seq 8192, batch 1 per GPU, gradient "
        "checkpointing and flash-attention. 1) how much per GPU, is it enough? 2) do I need to offload to the CPU? 3) would "
        "ZeRO-2 do?"
    )
    assert "Not needed: as it is it takes 5" in text
    assert "69." in text.partition("ZeRO-2 do?")[2]  # and not with the offload of the question before


def test_a_rank_that_was_lowered_is_no_measured_size() -> None:
    text = answer(
        "自己写的 LoRA 训练循环，Qwen2.5-7B，A800 80G，bs=1。seq 4096 占 46G，8192 直接 OOM。换了 8bit 优化器、r 从 64 降到 8 "
        "都没用，哪里不对？\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 296.00 MiB. GPU 0 has a total "
        "capacity of 79.32 GiB of which 190.38 MiB is free."
    )
    assert "64 token" not in text


def test_states_that_return_for_each_update_cost_their_way_alone() -> None:
    run = {
        "model": "Qwen/Qwen2.5-32B-Instruct",
        "objective": "grpo",
        "method": "full",
        "gpu": "H100",
        "gpus": 8,
        "sharding": "fsdp",
        "micro_batch": 1,
        "prompt_len": 1024,
        "completion_len": 2048,
    }
    shape = price(Job.from_document({**run, "framework": "verl"})).shape
    speeds = {}
    for framework in ("verl", "trl"):
        kept = throughput(Job.from_document({**run, "framework": framework}), shape, None)
        moved = throughput(Job.from_document({**run, "framework": framework, "offload": ["optimizer"]}), shape, None)
        speeds[framework] = kept.step_s / moved.step_s
    assert speeds["trl"] < speeds["verl"]
    assert speeds["verl"] > 0.5


def test_the_context_in_need_is_planned_for() -> None:
    text = answer(
        "vllm serve meta-llama/Llama-3.1-8B-Instruct on my 4090. i need 64k context (65536) for one user at a time. what do "
        "i set\nValueError: To serve at least one request with the models's max seq len (131072), (16.00 GiB KV cache is "
        "needed, which is larger than the available KV cache memory (4.94 GiB). Based on the available memory, the estimated "
        "maximum model length is 40464."
    )
    steps = text.partition("Do ")[2]
    assert "--max-model-len 65536" in steps
    assert "--kv-cache-dtype fp8" in steps
    assert "--quantization" not in steps


def test_the_line_that_keeps_tensors_is_named() -> None:
    text = answer(
        "memory climbs every step till it dies, plain pytorch loop, llama 3.1 8b lora on A6000 48G\nhistory = []\n"
        "for step, batch in enumerate(dl):\n    out = model(**batch)\n    out.loss.backward()\n    optim.step()\n"
        "    history.append(out)  # for the plots\n    print(step, out.loss.item())\n"
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1002.00 MiB. GPU 0 has a total capacity of 47.54 GiB"
    )
    assert "This line keeps tensors from step to step: history.append(out)." in text


def test_a_leak_of_host_memory_is_looked_for_on_the_host() -> None:
    text = answer("Memory leak. After trying the training script, I noticed that the system memory keeps increasing.")
    assert text.startswith("More host memory in use than expected")
    assert "ps -eo pid,rss" in text
    assert "torch.cuda" not in text


def test_a_mixture_is_sized_by_its_experts() -> None:
    merged = document("I merged a Wizard 8x22B base model, convert.py says Killed")["facts"]
    assert merged["params_b"]["value"] == pytest.approx(142.6, abs=0.1)
    assert "params_b" not in document("Mixtral 8x7B on two 3090, out of memory")["facts"]


def test_checkpointing_that_is_on_is_not_advised() -> None:
    text = answer(
        "GRPO training on 8 GPUs dies in the first step\n`use_cache=True` is incompatible with gradient checkpointing. Setting "
        '`use_cache=False`...\n[rank7]:   File "/x/grpo.py", line 172, in main\n[rank7]:     trainer.train()\n'
        "[rank7]: torch.OutOfMemoryError: CUDA out of memory."
    )
    assert "Turn on gradient checkpointing" not in text


EVAL_MODE = (
    "I turned on gradient checkpointing, yet memory and speed are exactly the same as without it. Qwen2.5-7B LoRA, A800 80G\n"
    "model.gradient_checkpointing_enable()\nmodel.config.use_cache = False\nmodel.{mode}()  # no dropout please\n"
    "for batch in loader:\n    out = model(**batch)\n    out.loss.backward()\n    opt.step()\n"
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 296.00 MiB. GPU 0 has a total capacity of 79.32 GiB"
)


def test_a_model_in_evaluation_mode_recomputes_nothing() -> None:
    assert "call model.train()" in answer(EVAL_MODE.format(mode="eval"))
    assert "call model.train()" not in answer(EVAL_MODE.format(mode="train"))


def test_the_last_pipeline_stage_is_told_apart_from_a_fault() -> None:
    text = answer(
        "Megatron-LM, 2 nodes x 8 H100, TP=2 PP=4 DP=2, 40 layers, h=5120, seq 8192, mbs 8. only ranks 12..15 blow up, is that "
        'a placement bug?\n[rank12]:   File "/opt/megatron-lm/megatron/core/tensor_parallel/cross_entropy.py", line 149, in '
        "forward\n[rank12]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 18.56 GiB. GPU 4 has a total "
        "capacity of 79.11 GiB of which 7.62 GiB is free."
    )
    assert "Ranks 12 to 15 are the last of 4 pipeline stages" in text


def test_stages_without_a_number_of_ranks_are_no_error() -> None:
    assert "out" in answer(
        "memory ran out in the loss with pipeline parallel 4, vocab_parallel_cross_entropy\ntorch.OutOfMemoryError: CUDA out of "
        "memory. Tried to allocate 2.00 GiB"
    )


def test_a_request_of_squares_of_the_length_is_of_attention() -> None:
    text = answer(
        "CrossEncoder('BAAI/bge-reranker-v2-m3', max_length=8192).predict(pairs)\ntorch.cuda.OutOfMemoryError: CUDA out of "
        "memory. Tried to allocate 64.00 GiB. GPU 0 has a total capacity of 23.64 GiB"
    )
    assert "512 × 8,192² × 2 bytes" in text
    assert "Use FlashAttention-2" in text
    assert "Run on" not in text


def test_a_volume_in_memory_counts_against_the_limit() -> None:
    text = answer(
        "pod gets OOMKilled while downloading\n  initContainers:\n  - name: fetch\n    resources: {limits: {memory: 24Gi}}\n"
        "    volumeMounts: [{name: dshm, mountPath: /dev/shm}]\n  volumes:\n  - name: dshm\n    emptyDir: {medium: Memory}\n"
        "    Reason: OOMKilled\n    Exit Code: 137\n"
    )
    assert "Files in a volume with medium: Memory count against the memory limit" in text


def test_a_checkpoint_is_resumed_from_host_memory() -> None:
    text = answer(
        "torchrun 8 procs, plain DDP, own training loop, fresh runs are even but when I resume from a checkpoint it runs out of "
        "memory on GPU 0\nstate = torch.load(args.resume)\nmodel.load_state_dict(state['model'])\n"
        "torch.OutOfMemoryError: CUDA out of memory. GPU 0 has a total capacity of 79.25 GiB"
    )
    assert "torch.load(path, map_location='cpu')" in text


def test_rows_that_workers_copy_are_a_matter_of_training() -> None:
    text = answer(
        "lightning, host RAM climbs all epoch, gpu flat at 40/80. 31GB at start, ~95 after an hour, machine has 188, killed "
        "around 70% of the epoch\nclass DS(Dataset):\n    def __init__(s, path):\n"
        "        s.rows = [json.loads(l) for l in open(path)]\nDataLoader(ds, num_workers=16, shuffle=True)"
    )
    assert "Keep the samples in Arrow" in text
    assert "quantized model" not in text


def test_memory_that_slurm_gives_by_the_processor_is_the_jobs_limit() -> None:
    text = (
        "#SBATCH --nodes=1\n#SBATCH --ntasks-per-node=4\n#SBATCH --cpus-per-task=8\n#SBATCH --mem-per-cpu=4G\n"
        "#SBATCH --gres=gpu:a100:4\nsrun python train.py --model llama2-13b\n"
        "slurmstepd: error: Detected 1 oom_kill event in StepId=889120.0. Some of the step tasks have been OOM Killed.\n"
        "node has 1TB of RAM and free -g on it says 870 free"
    )
    assert document(text)["facts"]["host_gib"]["value"] == 128
