"""The phase in which it failed."""

from __future__ import annotations

import pytest

from oomdoc.intake import read_text

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB of which 1.25 GiB is free."


def trace(*frames):
    body = "\n".join(f'  File "{file}", line 10, in {function}\n    {code}' for file, function, code in frames)
    return f"Traceback (most recent call last):\n{body}\n{OOM}"


@pytest.mark.parametrize(
    ("frames", "phase"),
    [
        ([("trl/trainer/sft_trainer.py", "training_step", "loss = self.compute_loss(model, inputs)"), ("transformers/models/llama/modeling_llama.py", "forward", "x = self.mlp(x)")], "forward"),
        ([("trainer.py", "compute_loss", "outputs = model(**inputs)"), ("torch/nn/functional.py", "cross_entropy", "return torch._C._nn.cross_entropy_loss(input)")], "loss"),
        ([("accelerate/accelerator.py", "backward", "loss.backward(**kwargs)"), ("torch/autograd/graph.py", "_engine_run_backward", "return Variable._execution_engine.run_backward(")], "backward"),
        ([("accelerate/optimizer.py", "step", "self.optimizer.step(closure)"), ("torch/optim/adamw.py", "_init_group", "state['exp_avg'] = torch.zeros_like(p)")], "optimizer-step"),
        ([("train.py", "train", "engine = deepspeed.initialize(args)"), ("deepspeed/runtime/zero/stage_1_and_2.py", "__init__", "self.initialize_optimizer_states()")], "optimizer-init"),
        ([("train.py", "main", "model = AutoModelForCausalLM.from_pretrained(path)"), ("transformers/modeling_utils.py", "_load_state_dict_into_meta_model", "param = param.to(device)")], "load"),
        ([("transformers/trainer.py", "_save_checkpoint", "self.save_model(output_dir)"), ("fsdp/_state_dict_utils.py", "_full_pre_state_dict_hook", "x")], "save"),
        ([("transformers/trainer.py", "evaluation_loop", "logits = self.prediction_step(model)"), ("modeling_llama.py", "forward", "logits = logits.float()")], "eval"),
        ([("vllm/v1/worker/gpu_worker.py", "determine_available_memory", "self.model_runner.profile_run()"), ("modeling.py", "forward", "x")], "engine-init"),
        ([("rollout.py", "generate_sequences", "out = self.engine.generate(prompts)"), ("modeling.py", "forward", "x")], "generate"),
    ],
)  # fmt: skip
def test_by_frames(frames, phase):
    evidence = read_text(trace(*frames))
    assert evidence.facts["phase"].value == phase
    assert evidence.root.phase == phase
    assert len(evidence.root.frames) >= len(frames)


@pytest.mark.parametrize(
    ("text", "phase"),
    [
        ("OOM whenever the model is saved; training itself is fine.", "save"),
        ("训练正常，但是评估时爆显存", "eval"),
        ("训练到保存 checkpoint 时会爆显存", "save"),
        ("It runs out of memory in the first forward pass.", "forward"),
        ("CUDA OOM while loading the model.", "load"),
        ("On loss.mean().backward() I run into cuda out of memory.", "backward"),
        ("Llama-2-13b build engine OOM", "engine-init"),
        ("Why are all weights loaded to cuda:0 first? It goes OOM.", "load"),
        ("Finetuning OOMs. Please help.", "unknown"),
        (
            "Loading checkpoint shards:  67%|██████▋   | 2/3 [00:36<00:18, 18.42s/it]\nexits with return code = -9",
            "load",
        ),
    ],
)
def test_by_words_and_log(text, phase):
    assert read_text(text).facts["phase"].value == phase
