"""Models are found as people write them; unknown ones are noticed; a person's own are added."""

from __future__ import annotations

import json

import pytest

from oomkb.catalog import models
from oomkb.catalog.models import ModelEntry
from oomkb.errors import CatalogError

NAMES = {
    "Qwen2.5-7B": "Qwen/Qwen2.5-7B",
    "qwen2.5 7b": "Qwen/Qwen2.5-7B",
    "Qwen/Qwen2.5-Coder-3B-Instruct": "Qwen/Qwen2.5-3B",
    "qwen2_5_vl_7B": "Qwen/Qwen2.5-VL-7B-Instruct",
    "Qwen25VL_7B_Instruct": "Qwen/Qwen2.5-VL-7B-Instruct",
    "./Qwen3-1_7B": "Qwen/Qwen3-1.7B",
    "Qwen/Qwen-1_8B-Chat": "Qwen/Qwen-1_8B",
    "Qwen2.5-7B-Instruct-AWQ": "Qwen/Qwen2.5-7B-Instruct",
    "Qwen/Qwen2.5-Math-7B-Instruct": "Qwen/Qwen2.5-Math-7B",
    "Qwen/Qwen2.5-7B-Instruct-1M": "Qwen/Qwen2.5-7B-Instruct-1M",
    "Qwen3-30B-A3B": "Qwen/Qwen3-30B-A3B",
    "Qwen3-30B-A3B-Instruct-2507": "Qwen/Qwen3-30B-A3B-Instruct-2507",
    "Qwen3-Coder-30B-A3B-Instruct": "Qwen/Qwen3-Coder-30B-A3B-Instruct",
    "qwen3.5-35ba3b": "Qwen/Qwen3.5-35B-A3B",
    "Qwen/Qwen3-VL-32B-Instruct": "Qwen/Qwen3-VL-32B-Instruct",
    "llama3 8b": "meta-llama/Meta-Llama-3-8B",
    "Llama-3-70B": "meta-llama/Meta-Llama-3-70B",
    "/mnt/llama3_70b": "meta-llama/Meta-Llama-3-70B",
    "Meta-Llama-3-8B-Instruct": "meta-llama/Meta-Llama-3-8B",
    "Llama3-Chinese-8B-Instruct": "meta-llama/Meta-Llama-3-8B",
    "Llama-3-8B-Instruct-Gradient-1048k": "meta-llama/Meta-Llama-3-8B",
    "meta-llama/Llama-3.1-8B-Instruct": "meta-llama/Llama-3.1-8B",
    "llama-2-7b-chat-hf": "meta-llama/Llama-2-7b-hf",
    "LLaMa-7B": "huggyllama/llama-7b",
    "vicuna-7b-v1.5": "meta-llama/Llama-2-7b-hf",
    "codellama2 34B": "codellama/CodeLlama-34b-hf",
    "internlm2-chat-7b": "internlm/internlm2-7b",
    "internvl2-4B": "OpenGVLab/InternVL2-4B",
    "OpenGVLab/InternVL2_5-8B-MPO": "OpenGVLab/InternVL2-8B",
    "DeepSeek-R1-Distill-Qwen-7B": "deepseek-ai/DeepSeek-R1-Distill-Qwen-7B",
    "Deepseek V2 236b": "deepseek-ai/DeepSeek-V2",
    "deepseek-coder-v2-lite-instruct": "deepseek-ai/DeepSeek-V2-Lite",
    "mistralai/Mistral-7B-Instruct-v0.3": "mistralai/Mistral-7B-v0.3",
    "mistralai/Mixtral-8x7B-Instruct-v0.1": "mistralai/Mixtral-8x7B-v0.1",
    "gemma7b": "google/gemma-7b",
    "gemma-2-2b-it": "google/gemma-2-2b",
    "google/gemma-3-27b-it": "google/gemma-3-27b-it",
    "phi-2": "microsoft/phi-2",
    "microsoft/phi-1_5": "microsoft/phi-1_5",
    "unsloth/Phi-4": "microsoft/phi-4",
    "gpt2-large": "openai-community/gpt2-large",
    "OPT 30B": "facebook/opt-30b",
    "bigscience/bloomz-7b1": "bigscience/bloom-7b1",
    "chatglm2-6b": "zai-org/chatglm2-6b",
    "THUDM/GLM-4-9B-0414": "zai-org/GLM-4-9B-0414",
    "THUDM/glm-4-9b-chat": "zai-org/glm-4-9b",
    "GLM-4.5-Air": "zai-org/GLM-4.5-Air",
    "bigscience/mt0-xxl": "google/mt5-xxl",
    "openai/gpt-oss-20b": "openai/gpt-oss-20b",
    "moonshotai/Kimi-K2-Instruct": "moonshotai/Kimi-K2-Instruct",
    "c4ai-command-r-plus": "CohereLabs/c4ai-command-r-plus",
    "Baichuan2-13B-Chat": "baichuan-inc/Baichuan2-13B-Base",
}


@pytest.mark.parametrize(("name", "expected"), NAMES.items())
def test_find(name, expected):
    entry = models.find(name)
    assert entry is not None
    assert entry.name == expected


@pytest.mark.parametrize(
    "name", ["", "foo-13B", "GPT-2 10B", "gpt-4", "Qwen", "llama", "Qwen2-VL", "model", "7b", "qwen2.5-9b"]
)
def test_find_nothing(name):
    assert models.find(name) is None


@pytest.mark.parametrize(
    "name",
    [
        "Qwen/Qwen2.5-Omni-3B",
        "XiaomiMiMo/MiMo-V2-Pro",
        "upstage/solar-pro-preview-instruct",
        "arcee-ai/Trinity-Mini",
    ],
)
def test_another_model_of_the_family_is_not_the_one_with_a_size(name):
    assert models.find(name) is None


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ibm-granite/granite-4.0-h-micro", "ibm-granite/granite-4.0-h-micro"),
        ("ibm-granite/granite-4.0-micro", "ibm-granite/granite-4.0-micro"),
        ("nvidia/NVIDIA-Nemotron-Nano-9B-v2", "nvidia/NVIDIA-Nemotron-Nano-9B-v2"),
        ("nvidia/Llama-3.1-Nemotron-Nano-8B-v1", "meta-llama/Llama-3.1-8B"),
        ("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-FP8", "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"),
        ("zai-org/GLM-4.6V", "zai-org/GLM-4.6V"),
        ("zai-org/GLM-4.6", "zai-org/GLM-4.6"),
        ("google/medgemma-4b-it", "google/gemma-3-4b-it"),
        ("NousResearch/Hermes-4-14B", "Qwen/Qwen3-14B"),
        ("/models/Qwen2.5-7B-Instruct/final", "Qwen/Qwen2.5-7B-Instruct"),
    ],
)
def test_releases_of_2025_and_later(name, expected):
    assert models.find(name).name == expected


def test_a_vision_model_is_never_taken_for_its_language_model():
    assert models.find("Qwen2.5-VL-14B") is None
    assert models.find("Qwen2-VL-7B").config["vision_config"]


def test_a_name_without_version_gives_a_likely_entry_and_says_so():
    entry = models.find("/mnt/data/model/qwen_32B")
    assert entry.name.endswith("32B")
    assert not entry.exact
    assert models.find("Qwen3-32B").exact


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("meta-llama/Llama-3.1-70B-Instruct-AWQ", "awq-int4"),
        ("TheBloke/Llama-2-70B-GPTQ", "gptq-int4"),
        ("Qwen/Qwen-72B-Chat-Int4", "gptq-int4"),
        ("unsloth/llama-3-8b-bnb-4bit", "nf4"),
        ("Qwen/Qwen3-14B-FP8", "fp8"),
        ("nvidia/Llama-3.3-70B-Instruct-FP4", "nvfp4"),
        ("RedHatAI/Qwen3-32B-NVFP4", "nvfp4"),
        ("Qwen/Qwen2.5-7B-Instruct", None),
    ],
)
def test_quantization_in_the_name(name, hint):
    assert models.find(name).quant_hint == hint


@pytest.mark.parametrize("entry", models.all_models(), ids=lambda e: e.name)
def test_every_model_is_found_by_its_own_name(entry):
    assert models.find(entry.name).name == entry.name
    assert models.find("/data/models/" + entry.name.rpartition("/")[2]).name == entry.name


PROSE = {
    "axolotl mistral 7b lora, A6000. 2k context ok": [("mistral 7b", "mistralai/Mistral-7B-v0.1")],
    "trying yi-34b full ft, seq 512": [("yi-34b", "01-ai/Yi-34B")],
    "baichuan2-13b，4张3090，还没开始训": [("baichuan2-13b", "baichuan-inc/Baichuan2-13B-Base")],
    "cache blocks' llama 3.1 8b on an L4": [("llama 3.1 8b", "meta-llama/Llama-3.1-8B")],
    "用 swift 全参训 Qwen/Qwen3-8B，zero3": [("Qwen/Qwen3-8B", "Qwen/Qwen3-8B")],
    "model_name_or_path: Qwen/Qwen2.5-14B-Instruct\nstage: dpo": [
        ("Qwen/Qwen2.5-14B-Instruct", "Qwen/Qwen2.5-14B-Instruct")
    ],
    "vllm serve /data/Qwen2-7B-Instruct/ --tp 2": [("/data/Qwen2-7B-Instruct", "Qwen/Qwen2-7B-Instruct")],
    "my 1.5B lora wants 12 gigs": [("1.5B", None)],
    "qlora of a 14b went from 21G": [("14b", None)],
    "fine-tuning foo-13B here": [("foo-13B", None)],
    "swapping llama-2 for llama-3 blows up": [("llama-2", None), ("llama-3", None)],
}


@pytest.mark.parametrize(("text", "expected"), PROSE.items())
def test_find_all(text, expected):
    found = models.find_all(text)
    assert [(m.text, m.entry.name if m.entry else None) for m in found] == expected
    assert all(text[m.start : m.end] == m.text for m in found)


def test_unknown_names_keep_their_size():
    assert [(m.params_b, m.named) for m in models.find_all("foo-13B and a 7B model")] == [(13.0, True), (7.0, False)]


@pytest.mark.parametrize(
    "text",
    [
        '  File "/usr/lib/python3/site-packages/transformers/models/llama/modeling_llama.py", line 3',
        "LlamaForCausalLM and Qwen2ForCausalLM",
        "LLaMA-Factory, llama.cpp and llama-recipes",
        "a falcon flew; we opt for granite in bloom",
        "requested 4 GB, used 32b alignment",
    ],
)
def test_find_all_has_no_chance_hits(text):
    assert [m for m in models.find_all(text) if m.entry or m.params_b] == []


def test_the_catalogue_is_as_wide_as_promised():
    entries = models.all_models()
    assert len(entries) >= 250
    assert all(e.source and e.params and e.config["model_type"] for e in entries)
    kinds = {e.config["model_type"] for e in entries}
    assert len(kinds) >= 60


def test_from_config_refuses_what_is_no_model():
    with pytest.raises(CatalogError, match="hidden_size"):
        ModelEntry.from_config({"model_type": "x"}, "x")


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("OOMDOC_HOME", str(tmp_path / "home"))
    models.reload()
    yield tmp_path / "home"
    monkeypatch.undo()
    models.reload()


def test_add_model(home, tmp_path):
    folder = tmp_path / "MyLM-9B"
    folder.mkdir()
    config = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "vocab_size": 100}
    (folder / "config.json").write_text(json.dumps(config))
    assert models.find("MyLM-9B") is None
    added = models.add_model(folder)
    assert added.name == "MyLM-9B"
    assert (home / "models" / "MyLM-9B.json").exists()
    found = models.find("/somewhere/MyLM-9B")
    assert found is not None
    assert found.config["hidden_size"] == 64
    assert models.all_models()[0].name == "MyLM-9B"


def test_add_model_says_what_is_wrong(home, tmp_path):
    broken = tmp_path / "broken.json"
    broken.write_text("{")
    with pytest.raises(CatalogError, match=r"broken\.json"):
        models.add_model(broken)
    broken.write_text("[]")
    with pytest.raises(CatalogError, match="no JSON object"):
        models.add_model(broken)
    with pytest.raises(CatalogError):
        models.add_model(tmp_path / "absent.json")


def test_a_long_adversarial_text_ends_soon():
    assert len(models.find_all("qwen " * 4000)) == 4000
    assert len(models.find_all("qwen-" * 4000)) < 4000
    assert models.find_all("a-" * 10000) == []
    assert models.find_all("1" * 20000) == []


@pytest.mark.parametrize(
    "name",
    [
        "t5gemma-2b-2b-ul2",
        "Phi-4-mini-flash-reasoning",
        "GLM-4.6V-Flash",
        "yi-vl-34b",
        "granite-vision-3.2-2b",
        "qwen-vl-max",
        "codestral mamba 7b",
        "Falcon-E-3B",
        "Jamba-tiny",
        "Qwen3-ASR-1.7B",
        "GLM-4-Voice-9B",
        "InternVL3-9B",
    ],
)
def test_a_longer_name_is_another_model(name):
    assert models.find(name) is None


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("我用通义千问2.5-7B做微调", "Qwen/Qwen2.5-7B"),
        ("千问14B 爆了", "Qwen/Qwen-14B"),
        ("跑百川2-13B chat 推理", "baichuan-inc/Baichuan2-13B-Base"),
        ("书生浦语2-7B", "internlm/internlm2-7b"),
        ("混元7B", "tencent/Hunyuan-7B-Instruct"),
    ],
)
def test_chinese_names_stand_within_running_text(text, name):
    assert [m.entry.name for m in models.find_all(text)] == [name]


@pytest.mark.parametrize("text", ["通义万相2.1 生成视频", "文心一言用不了", "学习书生意气"])
def test_chinese_words_that_name_no_model(text):
    assert models.find_all(text) == []


@pytest.mark.parametrize(
    ("name", "kind", "billions"),
    [
        ("HuggingFaceH4/zephyr-7b-gemma-v0.1", "gemma", 8.5),
        ("HuggingFaceH4/zephyr-7b-beta", "mistral", 7.2),
        ("org/tulu-3-8b-llama3.1", "llama", 8.0),
        ("allenai/Llama-3.1-Tulu-3-8B", "llama", 8.0),
        ("google/gemma-2b", "gemma", 2.5),
        ("gemma-1.1-2b-it", "gemma", 2.5),
        ("tiny-llama-1.1b", "llama", 1.1),
        ("internvl2_5_1b_dynamic_res_2nd_finetune_full", "internvl_chat", 0.94),
        ("teknium/OpenHermes-2.5-Mistral-7B", "mistral", 7.2),
    ],
)
def test_a_fine_tunes_name_resolves_by_its_parts(name, kind, billions):
    found = models.find(name)
    assert found.config["model_type"] == kind
    assert found.params / 1e9 == pytest.approx(billions, rel=0.06)


@pytest.mark.parametrize("name", ["openchat/openchat-3.5-0106-gemma", "org/zephyr-qwen-alignment"])
def test_a_fine_tune_is_never_taken_for_another_family(name):
    found = models.find(name)
    assert found is None or found.config["model_type"] != "mistral"


@pytest.mark.parametrize(
    ("config", "length"),
    [
        ({"max_position_embeddings": 32768}, 32768),
        ({"text_config": {"max_position_embeddings": 8192}}, 8192),
        ({"max_position_embeddings": 131072, "rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, 131072),
        ({"max_position_embeddings": 4096, "rope_scaling": {"type": "linear", "factor": 4.0}}, 16384),
        (
            {
                "max_position_embeddings": 163840,
                "rope_scaling": {"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096},
            },
            163840,
        ),
        ({"hidden_size": 4096}, None),
    ],
)
def test_context_length_is_the_one_an_engine_derives(config: dict[str, object], length: int | None) -> None:
    assert models.context_length(config) == length


GROUPED_FLOATS = {"num_bits": 4, "type": "float", "group_size": 16}


@pytest.mark.parametrize(
    ("stored", "quant"),
    [
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "nvfp4"),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, "fp8"),
        ({"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": GROUPED_FLOATS}}}, "nvfp4"),
        (
            {"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": {"num_bits": 4}}}},
            "gptq-int4",
        ),
    ],
)
def test_quantization_in_the_configuration(stored, quant):
    assert models.stored_quant({"quantization_config": stored}) == quant
