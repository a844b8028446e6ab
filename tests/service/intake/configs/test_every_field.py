"""Every field that a record says can be written, written into the examples: it reads back, nothing else changes, and a
second time changes nothing. The same settings in other forms say the same.
"""

from __future__ import annotations

import importlib.util
import itertools
import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from oomdoc.evidence import Source
from oomdoc.intake.configs import patch, read_documents
from oomdoc.intake.configs.declared import table


def loaded(name: str):
    spec = importlib.util.spec_from_file_location(name, Path(__file__).parent / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_tasks = loaded("patch_tasks")
FILES = [
    *((name, filename, text) for name, filename, text, *_ in loaded("record_examples").EXAMPLES),
    *((name, filename, text) for name, filename, text, *_ in (*_tasks.TASKS, *_tasks.MORE)),
]
IDS = [f"{name}-{filename}" for name, filename, _ in FILES]
VALUES: dict[str, tuple[Any, ...]] = {
    "micro_batch": (1, 3),
    "seq_len": (2000,),
    "grad_accum": (5,),
    "grad_ckpt": (True, False),
    "lora.r": (4,),
    "lora.alpha": (24,),
    "lora.dropout": (0.2,),
    "optimizer": ("adamw", "adafactor", "sgd"),
    "attention": ("flash2", "sdpa", "eager"),
    "sharding": ("zero1", "zero3", "fsdp"),
    "tp": (1, 2),
    "pp": (1, 2),
    "cp": (2,),
    "sp": (2,),
    "ep": (2,),
    "gpus": (2,),
    "nodes": (2,),
    "prompt_len": (96,),
    "completion_len": (112,),
    "generations": (2,),
    "packing": (True, False),
    "compile": (True, False),
    "eval_micro_batch": (2,),
    "max_pixels": (50176,),
    "rollout.gpu_memory_utilization": (0.35,),
    "rollout.tensor_parallel": (2,),
    "rollout.sleep": (True, False),
    "serving.gpu_memory_utilization": (0.77,),
    "serving.max_model_len": (1280,),
    "serving.max_num_seqs": (7,),
    "serving.max_num_batched_tokens": (3072,),
    "trained_layers": (0, 6),
    "log_prob_batch": (2,),
    "micro_tokens": (2048,),
}
TOGETHER = (
    {"world", "gpus", "nodes", "gpu_count"},
    {"tp", "sp"},
    {"optimizer", "optimizer_impl"},
    {"lora.r", "method"},
    {"micro_batch", "grad_accum"},
    {"seq_len", "prompt_len", "completion_len"},
    {"sharding", "offload", "zero_stage", "fsdp"},
    {"serving.gpu_memory_utilization", "rollout.gpu_memory_utilization", "gpu_memory_utilization"},
    {"serving.max_model_len", "max_model_len"},
)
"""Fields that are said together, or under two names."""
OFF = (False, 1, None)


def said(filename: str, text: str) -> dict[str, Any]:
    facts = read_documents(Source(filename, text)).facts
    return {f.name: f.value for f in facts if f.confidence >= 0.5 and not f.name.startswith(("env.", "extra."))}


def leaves(value: Any, path: str = "") -> dict[str, Any]:
    """A document's values by path."""
    if isinstance(value, dict):
        return {k: v for key, inner in value.items() for k, v in leaves(inner, f"{path}.{key}").items()}
    if isinstance(value, list):
        return {k: v for at, inner in enumerate(value) for k, v in leaves(inner, f"{path}[{at}]").items()}
    return {path: value}


def parsed(filename: str, text: str) -> dict[str, Any] | None:
    if filename.endswith((".yaml", ".yml")):
        return leaves(list(yaml.safe_load_all(text)))
    if filename.endswith(".json"):
        return leaves(json.loads(text))
    return leaves(tomllib.loads(text)) if filename.endswith(".toml") else None


def changes_of(name: str):
    owner = table(name)
    fields = {row.field for row in owner.all_keys()} | {f for row in owner.all_groups() for f in row.fields}
    return [(field, value) for field in sorted(fields & VALUES.keys()) for value in VALUES[field]]


@pytest.mark.parametrize(("name", "filename", "text"), FILES, ids=IDS)
def test_what_is_written_is_read_and_nothing_else_changes(name, filename, text):
    before, written = said(filename, text), 0
    for field, value in changes_of(name):
        done = patch(text, filename=filename, changes={field: value})
        if done.text == text:
            continue
        written += 1
        after = said(filename, done.text)
        free = {field}.union(*(group for group in TOGETHER if field in group))
        assert after.get(field) == value or (after.get(field) is None and value in OFF) or field == "gpus", field
        changed = {n for n in before.keys() | after.keys() if str(before.get(n)) != str(after.get(n))}
        assert changed <= free, (field, value, changed - free)
        assert patch(done.text, filename=filename, changes={field: value}).text == done.text, (field, value)
        old, new = parsed(filename, text), parsed(filename, done.text)
        if old is not None and new is not None:
            assert sum(old.get(k) != new.get(k) for k in old.keys() | new.keys()) <= 4, (field, value)
    assert written, "nothing can be written"


def crlf(_: str, text: str) -> str:
    return text.replace("\r\n", "\n").replace("\n", "\r\n")


def without_last_line_break(_: str, text: str) -> str:
    return text.rstrip("\n")


def quoted(filename: str, text: str) -> str:
    if not filename.endswith(".sh"):
        return text
    return re.sub(r"(?<=\s)(--[a-z][\w-]+ )([A-Za-z0-9][\w./-]*)(?=[ \n])", r'\1"\2"', text)


def with_signs(filename: str, text: str) -> str:
    """``--key=value``, where what follows is no second value."""
    if not filename.endswith(".sh") or "--module" in text:
        return text
    return re.sub(r"(?<=\s)(--[\w-]+) ([A-Za-z0-9$\"'][^\s]*)(?=\s)(?! [^-\\\s])", r"\1=\2", text)


def commented(filename: str, text: str) -> str:
    if not filename.endswith((".yaml", ".yml", ".toml")) or any(c in text for c in "|>"):
        return text
    return re.sub(r"^(\s*[\w.-]+\s*[:=] ?[^\n#{}\[\]&*\\]+?)[ ]*$", r"\1  # not 99", text, flags=re.M)


def through_a_variable(filename: str, text: str) -> str:
    found = re.search(
        r"(--(?:per_device_train_batch_size|micro-batch-size|max-model-len|seq-length|lora_rank)[ =])(\d+)", text
    )
    if found is None or not filename.endswith(".sh"):
        return text
    return f'VALUE="{found[2]}"\n' + text.replace(found[0], found[1] + "${VALUE}", 1)


def test_the_same_settings_in_other_forms_say_the_same():
    forms = (crlf, without_last_line_break, quoted, with_signs, commented, through_a_variable)
    tried = 0
    for (_, filename, text), form in itertools.product(FILES, forms):
        other = form(filename, text)
        if other == text:
            continue
        tried += 1
        assert said(filename, other) == said(filename, text), (filename, form.__name__)
    assert tried > 3 * len(FILES)


def test_a_flag_before_a_quoted_variable_is_a_flag():
    text = 'MODEL="org/thing-7b"\ntorchrun run.py --model_name_or_path=$MODEL --per_device_train_batch_size=4 --bf16=True --output_dir=o\n'
    assert said("run.sh", text)["model"] == "org/thing-7b"


@pytest.mark.parametrize(
    ("filename", "text", "changes", "why"),
    [
        (
            "m.sh",
            "torchrun pretrain_gpt.py --tensor-model-parallel-size 2 --micro-batch-size 1 --seq-length 2048 --max-position-embeddings 2048\n",
            {"seq_len": 4096},
            "needs seq_length <= max_position_embeddings",
        ),
        (
            "a.yaml",
            "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\nmixed_precision: bf16\nnum_machines: 1\nnum_processes: 8\n",
            {"offload": ["optimizer"]},
            "needs distributed_type=deepspeed",
        ),
        (
            "a.yaml",
            "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\nmixed_precision: bf16\nnum_machines: 1\nnum_processes: 8\n",
            {"pp": 2},
            "needs distributed_type=megatron_lm",
        ),
        (
            "ds.json",
            '{"train_batch_size": 32, "train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}}',
            {"micro_batch": 3},
            "needs train_batch_size=*",
        ),
        (
            "ds.json",
            '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 3}}',
            {"tp": 2},
            "needs zero_optimization.stage=null",
        ),
    ],
)
def test_what_the_framework_refuses_is_not_written(filename, text, changes, why):
    done = patch(text, filename=filename, changes=changes)
    assert done.text == text
    assert dict(done.unplaced) == dict.fromkeys(changes, why)


def test_a_file_that_a_script_writes_is_changed_in_the_script_s_variable():
    text = (
        "STAGE=1\nMB=4\ncat <<EOT > ds.json\n{\n"
        '  "train_micro_batch_size_per_gpu": $MB,\n  "zero_optimization": {"stage": $STAGE}\n}\nEOT\n'
        "deepspeed run.py --deepspeed_config=ds.json --zero-stage=$STAGE\n"
    )
    assert patch(text, filename="run.sh", changes={"sharding": "zero2"}).text == text.replace("STAGE=1", "STAGE=2")


def test_a_wrapper_s_own_key_is_not_said_a_second_time():
    text = (
        "args:\n  tp: 1\n  cli_args:\n    - '--max-num-batched-tokens'\n    - '16384'\n    - '--max-model-len=8192'\n"
    )
    assert patch(text, filename="b.yaml", changes={"tp": 2}).text == text
    done = patch(text, filename="b.yaml", changes={"serving.max_num_batched_tokens": 8192})
    assert done.text == text.replace("16384", "8192")


def test_a_script_of_a_common_name_is_no_framework_s():
    text = (
        "deepspeed finetune.py --model_name_or_path a/b-7b --bf16 True --per_device_train_batch_size 4 --output_dir o\n"
    )
    assert read_documents(Source("run.sh", text)).framework == "transformers"
    more = text.replace("--output_dir", "--model_max_length 512 --lazy_preprocess True --use_lora --output_dir")
    assert read_documents(Source("run.sh", more)).framework == "qwen-finetune"


def test_a_name_of_a_deepspeed_file_keeps_its_other_words():
    text = "deepspeed run.py --deepspeed configs/zero2_no_offload.json --model_name_or_path a/b-7b --bf16 --output_dir o --per_device_train_batch_size 4\n"
    done = patch(text, filename="run.sh", changes={"sharding": "zero3"})
    assert done.text == text.replace("zero2_no_offload", "zero3_no_offload")


def test_sums_in_brackets_are_worked_out_and_replaced_whole():
    text = "G=128\nL=4\nA=$[$G/(8*$L)]\ntorchrun run.py --model_name_or_path a/b-7b --bf16 True --output_dir o --per_device_train_batch_size $L --gradient_accumulation_steps $A\n"
    assert said("run.sh", text)["grad_accum"] == 4
    done = patch(text, filename="run.sh", changes={"grad_accum": 8})
    assert done.text == text.replace("A=$[$G/(8*$L)]", "A=8")


def test_a_batch_beside_another_batch_is_not_one_step_s():
    text = "seed: 1\nlr: 1e-5\nnum_epochs: 2\nbatch_size: 32\nmini_batch_size: 2\ngradient_accumulation_steps: 2\nseq_length: 512\n"
    assert "micro_batch" not in said("run.yaml", text)
    assert patch(text, filename="run.yaml", changes={"micro_batch": 1}).text == text


def test_keys_of_a_launcher_s_file_are_no_options_of_its_program():
    text = "deepspeed --include localhost:0,1 tune_it.py \\\n    # the model\n    --width 3\n"
    assert patch(text, filename="run.sh", changes={"micro_batch": 7}).text == text


def test_a_call_that_is_handed_a_dictionary_gets_no_further_argument():
    text = "from transformers import TrainingArguments\nargs = TrainingArguments(**given)\n"
    assert patch(text, filename="t.py", changes={"grad_ckpt": True}).text == text
