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
        ("Finetuning OOMs. Please help.", "unknown"),
        ("训练到第2000步突然爆显存，没有评估，长度是分桶的", "unknown"),
        ("it OOMs without any eval running", "unknown"),
        (
            "Loading checkpoint shards:  67%|██████▋   | 2/3 [00:36<00:18, 18.42s/it]\nexits with return code = -9",
            "load",
        ),
    ],
)
def test_by_words_and_log(text, phase):
    assert read_text(text).facts["phase"].value == phase


@pytest.mark.parametrize(
    ("text", "phase"),
    [
        ("OOM when saving checkpoint with FSDP full state dict", "save"),
        ("It crashes with OOM right after the first epoch when it writes the checkpoint", "save"),
        ("Training runs fine for 500 steps, then OOM at save_steps=500", "save"),
        ("保存权重的时候 OOM", "save"),
        ("模型合并 lora 权重时内存溢出", "save"),
        ("merging the LoRA adapter into the base model runs out of memory", "save"),
        ("每到 save_steps 就爆显存", "save"),
        ("OOM occurs at the end of training in trainer.save_model()", "save"),
        ("gathering the full state dict on rank 0 runs out of CPU RAM", "save"),
        ("The job gets killed while writing the consolidated weights", "save"),
        ("OOM during evaluation", "eval"),
        ("evaluation crashes with CUDA OOM but training is fine", "eval"),
        ("训练没问题，eval 的时候显存爆了", "eval"),
        ("每次跑到验证集就 OOM", "eval"),
        ("compute_metrics collects all logits and RAM is exhausted", "eval"),
        ("when eval starts it goes OOM", "eval"),
        ("trainer.predict() runs out of memory", "eval"),
        ("OOM on loading the checkpoint shards", "load"),
        ("Loading the model with from_pretrained kills the process (RAM)", "load"),
        ("模型加载阶段就爆内存", "load"),
        ("加载 70B 模型时显存不足", "load"),
        ("OOM while quantizing the weights at load time", "load"),
        ("resuming from checkpoint OOMs but a fresh start trains", "load"),
        ("从 checkpoint 恢复训练时 OOM，从头训练没事", "load"),
        ("every rank loads the full model into CPU RAM and the node is killed", "load"),
        ("process killed while tokenizing the dataset", "load"),
        ("Fails in the middle of loading safetensors", "load"),
        ("vLLM fails at startup: No available memory for the cache blocks", "engine-init"),
        ("CUDA graph capture runs out of memory in sglang", "engine-init"),
        ("vllm serve 启动时报 OOM", "engine-init"),
        ("server starts but after 200 requests vllm OOMs", "generate"),
        ("vllm crashes under high concurrency with OOM", "generate"),
        ("sglang 压测时显存不够", "generate"),
        ("model.generate with 4k new tokens OOMs", "generate"),
        ("inference OOM with long input in transformers", "generate"),
        ("OOM in the generation phase of GRPO", "generate"),
        ("rollout 阶段 OOM", "generate"),
        ("generate_sequences OOM in verl", "generate"),
        ("OOM after the weight sync when vLLM wakes up", "weight-sync"),
        ("OOM when updating weights of the inference engine (refit)", "weight-sync"),
        ("同步权重到 vllm 时 OOM", "weight-sync"),
        ("vllm wake_up OOM after training step", "weight-sync"),
        ("OOM in loss.backward()", "backward"),
        ("反向传播时显存爆炸", "backward"),
        ("backward pass goes OOM at step 1", "backward"),
        ("the first backward OOMs", "backward"),
        ("forward is fine but backward runs out of memory", "backward"),
        ("OOM in optimizer.step()", "optimizer-step"),
        ("first optimizer step OOMs, forward and backward are fine", "optimizer-step"),
        ("前向和反向都正常，第一次更新参数（optimizer.step）时 OOM", "optimizer-step"),
        ("优化器初始化时 OOM", "optimizer-init"),
        ("deepspeed.initialize runs out of GPU memory", "optimizer-init"),
        ("OOM when initializing optimizer states", "optimizer-init"),
        ("DeepSpeed engine initialization OOM: initialize_optimizer_states", "optimizer-init"),
        ("OOM in cross_entropy loss", "loss"),
        ("logits.float() goes OOM", "loss"),
        ("computing the loss OOMs with a vocabulary of 150k", "loss"),
        ("计算 loss 的时候爆显存", "loss"),
        ("OOM in the forward pass of the MLP", "forward"),
        ("前向传播时爆显存", "forward"),
        ("attention softmax in forward OOM", "forward"),
        ("Finetuning OOMs after 3 hours", "unknown"),
        ("CUDA OOM when resuming the training; a fresh run is fine", "load"),
        ("模型加载到 87% 被 kill", "load"),
        ("export 合并 LoRA adapter 时报错空间不足", "save"),
        ("trying to allocate 6.54 GiB in F.cross_entropy", "loss"),
        ("训练的时候生成没问题，一到反向就 OOM", "backward"),
        ("vllm: RAM keeps growing with every request until it is killed", "generate"),
        ("vLLM OOMs before the model weights are loaded", "engine-init"),
        ("训练到 1000 步后 OOM", "unknown"),
        ("CUDA out of memory when training 7B", "unknown"),
    ],
)
def test_as_people_tell_it(text, phase):
    assert read_text(text).facts["phase"].value == phase


def test_a_script_that_saves_is_no_failure_of_saving():
    text = "Training goes OOM.\n\n```python\ntrainer.train()\ntrainer.save_model('out')\nloss.backward()\n```"
    assert read_text(text).facts["phase"].value == "unknown"


@pytest.mark.parametrize(
    "frame",
    [
        "File ~/env/lib/python3.10/site-packages/accelerate/accelerator.py:2134, in Accelerator.backward(self, loss)",
        "/usr/local/lib/python3.10/dist-packages/accelerate/accelerator.py in backward(self, loss, **kwargs)",
    ],
)
def test_notebook_tracebacks(frame):
    text = f"{frame}\n   2132     return\n-> 2134     loss.backward(**kwargs)\n{OOM}"
    evidence = read_text(text)
    assert evidence.facts["phase"].value == "backward"
    assert evidence.root.frames[0].code == "loss.backward(**kwargs)"


def test_the_log_below_the_message_tells_too():
    text = "failed (exitcode: -9) local_rank: 0\n[2025-01-01 10:00:00,000] [INFO] [utils.py:7:see_memory_usage] Before creating fp16 partitions\n"
    assert read_text(text).facts["phase"].value == "optimizer-init"


def test_what_begins_in_the_log_is_what_fails():
    text = "[INFO] [utils.py:831:see_memory_usage] Before initializing optimizer states\nexits with return code = -9\n"
    phase = read_text(text).facts["phase"]
    assert (phase.value, phase.stated) == ("optimizer-init", True)


@pytest.mark.parametrize(("caller", "phase"), [("save", "save"), ("summon_full_params", "forward")])
def test_whole_parameters_are_made_for_a_checkpoint(caller, phase):
    frames = [
        ("train.py", caller, "with context:"),
        ("torch/distributed/fsdp/_unshard_param_utils.py", "_unshard_fsdp_state_params", "handle.unshard()"),
        ("torch/distributed/distributed_c10d.py", "all_gather_into_tensor", "work = group._allgather_base(out, x)"),
    ]
    assert read_text(trace(*frames)).facts["phase"].value == phase


def test_a_rank_s_part_of_the_fp32_parameters():
    """Llama-2-7B has 6,738,415,616 parameters (its weights' index); four ranks hold 6.28 GiB of them in fp32 each."""
    said = "Full fine-tuning of meta-llama/Llama-2-7b-hf on 4 A100 with DeepSpeed.\nCUDA out of memory. Tried to allocate {} GiB"
    assert read_text(said.format("6.28")).facts["phase"].value == "optimizer-init"
    assert read_text(said.format("6.00")).facts["phase"].value == "unknown"
    lora = said.replace("Full", "LoRA").format("6.28")
    assert read_text(lora).facts["phase"].value == "unknown"


def test_evaluation_that_is_told_beats_a_plain_forward_pass():
    frames = trace(("transformers/models/llama/modeling_llama.py", "forward", "x = softmax(x)"))
    assert read_text("模型评估超出内存限制\n" + frames).facts["phase"].value == "eval"


def test_a_model_that_is_being_built_is_loading():
    frames = trace(
        ("llama/generation.py", "build", "model = Transformer(model_args)"),
        ("llama/model.py", "__init__", "self.feed_forward = FeedForward("),
    )
    assert read_text(frames).facts["phase"].value == "load"


def test_collectives_leave_the_pass_to_the_words():
    frames = trace(("fsdp/_fully_shard/_fsdp_collectives.py", "allocate", "all_gather_output = comm.allocate(...)"))
    assert read_text("OOM on every rank during the first backward:\n" + frames).facts["phase"].value == "backward"


def test_a_training_run_that_fails_at_once_is_no_engine():
    text = "zero stage 1 微调，初始化就 cuda out of memory\n[INFO] Creating fp16 ZeRO stage 1 optimizer\n"
    assert read_text(text).facts["phase"].value == "optimizer-init"


@pytest.mark.parametrize(
    ("text", "phase"),
    [
        ("oom comes from `model.save_pretrained(args.out)`: it results in CUDA out-of-memory", "save"),
        ("把 LoRA 和底座合并报 cuda out of memory", "save"),
        ("Out of memory when validating, training itself takes 5 GB", "eval"),
        ("The test phase of the network runs out of memory", "eval"),
        ("做完一轮训练，开始验证显存就不够了", "eval"),
        ("lmdeploy：并发度上去以后 OOM", "generate"),
        ("Works for a while, then after a few messages CUDA is out of memory", "generate"),
        ("还没有到训练阶段就 OOM 了", "load"),
        ("不是训练时出的错，是在读取预训练模型时显存不够", "load"),
        (
            "The line `m = AutoModelForCausalLM.from_pretrained('some/quite-long-name-of-a-405B', device_map='auto')` throws CUDA OOM",
            "load",
        ),
        ("It dies before training even starts: CUDA out of memory", "load"),
        ("python convert.py llama-7b gets killed on 16 GB", "load"),
        ("转换模型到 ggml 时进程被杀", "load"),
        ("It loads the whole 65B to one GPU and returns CUDA OOM", "load"),
        ("Memory doubles when preparing the model with accelerate, then OOM", "load"),
        ("在计算并保存每个 batch 的梯度后显存很高，后面更新模型参数直接爆显存", "optimizer-step"),
        ("After the checkpoint is loaded there is an out of memory error on the first forward pass", "forward"),
        ("FAILED tests/test_trainer.py::test_train - torch.OutOfMemoryError: CUDA out of memory.", "unknown"),
        ("Validation DataLoader 0:   3%|▎ | 2/60 [00:01<00:40]\nCUDA out of memory", "eval"),
        ("Wrapping the model: FSDP wrap of the 7B runs out of memory", "load"),
        ("The data was loaded, and then CUDA is out of memory", "unknown"),
        ("8 张 4090 微调 Qwen-7B-Chat 报 OOM", "unknown"),
    ],
)
def test_what_is_told_less_surely(text, phase):
    assert read_text(text).facts["phase"].value == phase


def test_a_module_that_is_moved_is_being_loaded():
    moved = ("torch/nn/modules/module.py", "convert", "return t.to(device, dtype)")
    assert read_text(trace(("train.py", "main", "trainer = T(model)"), moved)).facts["phase"].value == "load"


def test_a_program_that_only_loads_a_model():
    head = "OOM on a 24 GB card:\n\n```python\nmodel = AutoModel.from_pretrained(name)\n{}```\n"
    assert read_text(head.format("model = model.eval()\n")).facts["phase"].value == "load"
    assert read_text(head.format("out = model.encode(texts)\n")).facts["phase"].value == "unknown"
