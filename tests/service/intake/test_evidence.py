"""How several sources become one: what wins, what is told as a conflict, what is searched by."""

from __future__ import annotations

from oomdoc.evidence import Fact, Source, Span
from oomdoc.intake import read, read_text
from oomdoc.intake.agreement import merge

PLACE = Span("x", 1)


def test_surest_and_most_specific_wins_and_the_rest_is_a_conflict():
    prose = Fact("micro_batch", 4, PLACE, "prose", 0.8)
    config = Fact("micro_batch", 1, PLACE, "config", 1.0)
    option = Fact("micro_batch", 2, PLACE, "option", 1.0)
    kept, conflicts = merge([prose, config])
    assert kept["micro_batch"] is config
    assert [(c.kept.value, c.dropped.value) for c in conflicts] == [(1, 4)]
    assert merge([prose, config, option])[0]["micro_batch"] is option


def test_the_size_on_the_box_and_in_the_log_agree():
    kept, conflicts = merge(
        [Fact("capacity_gib", 80.0, PLACE, "prose", 0.8), Fact("capacity_gib", 79.15, PLACE, "log", 1.0)]
    )
    assert kept["capacity_gib"].value == 79.15
    assert conflicts == ()


def test_options_are_stated_outright():
    evidence = read([Source("log", "OOM with batch size 4")], {"micro_batch": 1, "gpus": 8})
    assert evidence.value("micro_batch") == 1
    assert evidence.value("gpus") == 8


def test_several_sources_keep_their_names():
    evidence = read(
        [Source("a.log", "CUDA out of memory. Tried to allocate 1.00 GiB."), Source("b.txt", "4 张 A100 80G")]
    )
    assert evidence.root.signal.span.source == "a.log"
    assert evidence.facts["gpu_count"].span.source == "b.txt"


def test_digest_is_short_and_has_no_paths_or_addresses():
    text = (
        'I fine-tune Qwen2.5-7B and it OOMs.\n  File "/home/jdoe/very/long/path/trainer.py", line 3, in training_step\n    loss.backward()\n'
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB. at 0x55c059d1e7c3\n"
        + "more words "
        * 3000
    )
    digest = read_text(text).digest
    assert len(digest.encode()) <= 4096
    assert "very/long" not in digest
    assert "0x55" not in digest
    assert "CUDA out of memory" in digest
    assert "Qwen2.5-7B" in digest
    assert "loss.backward()" in digest


def test_prose_is_what_was_written_in_own_words():
    text = "Why does this OOM?\n\n```\n[2025-01-01 12:00:00] [INFO] step 1\n```\nPlease help me."
    prose = read_text(text).prose
    assert "Why does this OOM?" in prose
    assert "Please help me." in prose
    assert "[INFO]" not in prose


def test_framework():
    assert read_text("llamafactory-cli train x.yaml\nOOM").framework == "llama-factory"
    assert read_text("(VllmWorker rank=1 pid=2978) ERROR OOM in vllm/v1/worker/gpu_worker.py").framework == "vllm"
    assert read_text("something unknown").framework is None


def test_other_spellings_and_guesses_are_no_conflict():
    pairs = [
        ("dtype", "bfloat16", "bf16"),
        ("offload", ["optimizer"], ("optimizer",)),
        ("gpu", "A100-SXM4-80GB", "A100 80G"),
        ("model", "meta-llama/Llama-3.1-8B-Instruct", "saves/llama-3.1-8b"),
    ]
    for name, a, b in pairs:
        assert merge([Fact(name, a, PLACE, "config", 1.0), Fact(name, b, PLACE, "log", 0.9)])[1] == (), name
    sure, guess = Fact("model", "a/b-7b", PLACE, "config", 1.0), Fact("model", "other-13b", PLACE, "prose", 0.45)
    assert merge([sure, guess])[1] == ()
    assert len(merge([Fact("dtype", "bf16", PLACE, "config"), Fact("dtype", "fp16", PLACE, "log", 0.9)])[1]) == 1


def test_the_engine_of_the_rollout_is_not_the_trainer():
    from oomdoc.intake.configs import to_job

    text = (
        "ray job submit -- python3 -m openrlhf.cli.train_ppo_ray --vllm_num_engines 2 \\\n"
        "   --vllm_tensor_parallel_size 8 \\\n   --pretrain meta-llama/Meta-Llama-3-70B-Instruct --zero_stage 3\n"
    )
    evidence = read_text(text)
    job = to_job(evidence.facts, evidence.framework)
    assert evidence.value("tp") == 8
    assert (job.tp, job.get("rollout.tensor_parallel")) == (None, 8)


def test_environment_reports_count_the_gpus():
    for line in ("- GPU number: 8", "Number of GPUs: 8", "world_size = 8", "- GPU 数量：8"):
        assert read_text(f"- GPU type: Tesla V100-PCIE-16GB\n{line}\n").value("gpu_count") == 8, line


def test_a_command_that_lost_its_line_breaks():
    facts = read_text("vllm serve <model> \\ --kv-cache-dtype nvfp4 \\ --max-model-len 32768").facts
    assert facts["serving.kv_dtype"].value == "nvfp4"
    assert facts["max_model_len"].value == 32768
    assert "model" not in facts


def test_an_exception_that_no_reader_knows_is_kept_in_the_digest() -> None:
    unknown = "It stops.\nRuntimeError: the stream could not be written, quota reached"
    assert "quota reached" in read_text(unknown).digest
    known = unknown + "\nRuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB"
    assert "quota reached" not in read_text(known).digest
