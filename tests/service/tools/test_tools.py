"""The functions for agents: what they take and give has a schema, and the schema agrees with what checks a job."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from oomdoc.stated import example_job, job_fields, job_schema
from oomdoc.tools import TOOLS, tool_named
from oomdoc.tools.functions import job_of
from oomkb.errors import InputError, JobError, OomdocError
from oomkb.memory.job import Job
from oomkb.memory.job_reading import read_dotted

JOB = {"model": "Qwen/Qwen2.5-7B", "method": "lora", "gpu": "RTX 4090"}


def test_every_example_is_taken_by_the_reader_and_by_the_schema() -> None:
    schema = job_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    for name, field in job_fields().items():
        if field.example is None:
            continue
        read_dotted(name, field.example)
        head, _, tail = name.partition(".")
        jsonschema.validate({head: {tail: field.example} if tail else field.example}, schema)
    jsonschema.validate(example_job(), schema)


@pytest.mark.parametrize(
    "job",
    [
        {"micro_batch": 0},
        {"micro_batch": 1.5},
        {"seq_len": "long"},
        {"method": "magic"},
        {"serving": {"gpu_memory_utilization": 1.3}},
        {"lora": {"r": 0}},
        {"lora": {"rank": 8}},
        {"batch": 4},
        {"gpus": -1},
        {"packing": "maybe"},
        {"extra_models": [{"model": "a/b"}]},
    ],
)
def test_what_the_schema_refuses_the_functions_refuse(job: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(job, job_schema())
    with pytest.raises(JobError):
        tool_named("estimate").call({"job": JOB | job})


def test_every_word_of_the_schema_is_one_of_the_job() -> None:
    for name, schema in job_schema()["properties"].items():
        for word in schema.get("enum", ()):
            job = Job.from_document({name: word})
            jsonschema.validate(job.document(), job_schema())


def test_the_short_schema_has_the_fields_and_words_of_the_long_one() -> None:
    def names(schema: dict[str, Any]) -> dict[str, Any]:
        return {n: (s.get("enum"), names(s)) for n, s in schema.get("properties", {}).items()}

    short = job_schema(short=True)
    assert names(short) == names(job_schema())
    assert {"rollout", "images", "cp", "sp", "packing"} <= short["properties"].keys()
    assert len(json.dumps(short)) < 5_000


@pytest.mark.parametrize(
    ("tool", "arguments", "hint"),
    [
        ("estimate", {"job": JOB, "langg": "en"}, "perhaps lang"),
        ("fix", {"text": "a: 1", "fields": {}, "file_name": "a.yaml"}, "perhaps filename"),
        ("estimate", {"job": JOB, "micro_batch": 1}, '{"job": {"micro_batch": ...}}'),
        ("compare", {"jobs": [JOB], "seq_len": 1}, '{"base": {"seq_len": ...}}'),
        ("search", {"text": "oom", "zzz": 1}, "one of text, top, lang"),
    ],
)
def test_an_unknown_argument_is_refused_with_the_nearest(tool: str, arguments: dict[str, Any], hint: str) -> None:
    with pytest.raises(InputError) as refused:
        tool_named(tool).call(arguments)
    assert "no such argument" in refused.value.message
    assert hint in refused.value.hint


@pytest.mark.parametrize("tool", TOOLS, ids=[tool.name for tool in TOOLS])
def test_every_function_says_what_it_takes_and_gives(tool: Any) -> None:
    jsonschema.Draft202012Validator.check_schema(tool.input_schema)
    jsonschema.Draft202012Validator.check_schema(tool.output_schema)
    assert len(tool.description) > 40
    assert tool.input_schema["additionalProperties"] is False
    assert "progress" not in tool.input_schema["properties"]
    with pytest.raises(InputError, match=r"nonsense|required"):
        tool.call({"nonsense": 1})


def test_every_plan_is_what_estimate_says_of_its_fields() -> None:
    planned = tool_named("plan").call({"job": {"model": "Qwen/Qwen2.5-14B", "method": "lora", "gpu": "RTX 4090"}})
    assert planned["plans"]
    for plan in planned["plans"]:
        if plan["peak_gib"] is None:
            continue
        priced = tool_named("estimate").call({"job": planned["job"] | plan["fields"]})
        assert priced["peak_gib"]["process"] == pytest.approx(plan["peak_gib"], abs=0.01)
        assert priced["needed_gib"] == pytest.approx(plan["needed_gib"], abs=0.01)
        assert priced["fits"] is True
    assert all(knob["needed_gib"] <= knob["peak_gib"] for knob in planned["knobs"])


def test_answers_are_small() -> None:
    planned = tool_named("plan").call({"job": {"model": "Qwen/Qwen2.5-14B", "method": "lora", "gpu": "RTX 4090"}})
    full = tool_named("plan").call(
        {"job": {"model": "Qwen/Qwen2.5-14B", "method": "lora", "gpu": "RTX 4090"}, "detail": "full"}
    )
    assert len(json.dumps(planned)) < 8_000
    assert len(json.dumps(full)) > 2 * len(json.dumps(planned))
    assert full["estimate"]["phases"]


def test_a_comparison_goes_on_after_a_job_without_a_price() -> None:
    compared = tool_named("compare").call(
        {"base": JOB, "jobs": [{"method": "full"}, {"model": "no/such-thing-at-all"}, {"method": "qlora"}]}
    )
    assert [row.get("fits") for row in compared["rows"]] == [False, None, True]
    assert compared["rows"][1]["problem"]
    assert compared["best"] == "method=qlora"


def test_the_first_wrong_job_of_a_comparison_is_named() -> None:
    with pytest.raises(JobError) as refused:
        tool_named("compare").call({"base": JOB, "jobs": [{"method": "full"}, {"micro_batch": 0}]})
    assert refused.value.where == "jobs[1].micro_batch"


def test_progress_is_told() -> None:
    heard: list[tuple[float, str]] = []
    tool_named("diagnose").call({"text": "CUDA out of memory"}, lambda part, said: heard.append((part, said)))
    assert heard == sorted(heard)
    assert heard


def test_an_unknown_tool_is_refused_with_the_names() -> None:
    with pytest.raises(InputError, match="diagnose"):
        tool_named("rm")


def test_a_fix_says_what_it_could_not_place() -> None:
    text = "model_name_or_path: a/b-7b\nstage: sft\ncutoff_len: 4096\n"
    fixed = tool_named("fix").call({"text": text, "filename": "a.yaml", "fields": {"seq_len": 1024, "gpu": "A100"}})
    assert "+cutoff_len: 1024" in fixed["diff"]
    assert list(fixed["unplaced"]) == ["gpu"]
    with pytest.raises(OomdocError):
        tool_named("fix").call({"text": text, "fields": {"seq_len": -1}})


def test_host_memory_decides_too() -> None:
    from oomdoc.tools import tool_named

    job = {"model": "Qwen/Qwen2.5-7B", "gpu": "RTX 4090", "gpus": 1, "seq_len": 1024, "micro_batch": 1}
    job |= {"sharding": "zero3", "offload": ["optimizer", "params"], "host_gib": 64}
    for name in ("estimate", "plan"):
        assert tool_named(name).call({"job": job})["fits"] is False
    assert "host memory" in tool_named("estimate").call({"job": job})["warnings"][-1]
    small, large = tool_named("compare").call({"jobs": [job, {**job, "host_gib": 512}]})["rows"]
    assert (small["fits"], large["fits"]) == (False, True)


def test_what_follows_from_a_changed_field_is_worked_out_anew() -> None:
    from oomdoc.tools.functions import job_of

    base = job_of({"model": "Qwen/Qwen2.5-7B", "params_b": 7, "tp": 4, "sp": 4, "gpus": 8})
    assert job_of({"model": "Qwen/Qwen2.5-14B"}, base).params_b is None
    assert job_of({"tp": 2}, base).sp == 2
    assert job_of({"tp": 2, "sp": 4}, base).sp == 4


def test_measured_sizes_give_others_by_a_straight_line() -> None:
    """2 → 17.4 and 4 → 24.6: 3.6 each beside 10.2."""
    points = [{"size": 2, "gib": 17.4}, {"size": 4, "gib": 24.6}]
    found = tool_named("extrapolate").call({"points": points, "at": [8, 9], "room_gib": 39.4})
    assert (found["fixed_gib"], found["each_gib"], found["largest"]) == (10.2, 3.6, 8)
    assert [(row["needed_gib"], row["fits"]) for row in found["rows"]] == [(39.0, True), (42.6, False)]


def test_one_size_is_no_line() -> None:
    with pytest.raises(InputError, match="one size"):
        tool_named("extrapolate").call({"points": [{"size": 2, "gib": 17.4}, {"size": 2, "gib": 18.0}]})


def test_an_estimate_says_what_the_card_computes_in_and_what_the_drives_hold() -> None:
    """Adam's two moments and masters in fp32 with weights in 16 bits: 14 bytes of 8.03B parameters."""
    job = {
        "model": "meta-llama/Llama-3.1-8B",
        "method": "full",
        "framework": "deepspeed",
        "sharding": "zero3",
        "gpus": 2,
    }
    moved = {"gpu": "A100", "offload": ["optimizer", "param"], "nvme_offload": True, "autocast": "bf16"}
    found = tool_named("estimate").call({"job": {**job, **moved}})
    assert found["nvme_gib"] == pytest.approx(14 * 8.03e9 / 2**30, rel=0.01)
    assert found["card"]["cannot_compute_in"] == ["fp8", "fp4"]
    assert found["card"]["shared_memory_per_block_kib"] == 163


def test_image_tokens_are_counted_apart() -> None:
    """1,003,520 pixels are 1,280 pieces of 28 x 28."""
    job = {
        "model": "Qwen/Qwen2.5-VL-7B-Instruct",
        "method": "lora",
        "images": 4,
        "max_pixels": 1003520,
        "seq_len": 2048,
    }
    assert tool_named("estimate").call({"job": job})["image_tokens"] == 4 * 1280


def test_null_clears_a_field_of_the_base() -> None:
    """Another card has its own size; a cache without a format of its own is the model's."""
    base = Job.from_document({"params_b": 8, "gpu": "H200", "capacity_gib": 192, "serving": {"kv_dtype": "fp8"}})
    assert job_of({"gpu": "A100", "capacity_gib": None}, base).capacity_gib is None
    assert job_of({"serving": {"kv_dtype": None, "max_model_len": 8192}}, base).get("serving.kv_dtype") is None
