"""Check the catalogue's parameter counts: build each model on the meta device and count.

``python bench/count_params.py [WORD ...]`` prints one line per model whose count differs from ``params`` by more
than 0.1 %, or that could not be built, and a summary; with words only the models whose names contain one.
``--all`` prints every line, ``--json FILE`` writes the counts.

Architectures that transformers builds only from code in the model's own repository (Qwen 1, ChatGLM, InternLM 1
and 2, Baichuan, MiniCPM, EXAONE, MiMo, DeepSeek-MoE, InternVL) are counted from their published modules by the
formulas below. A few can be neither built nor counted here; ``UNCHECKED`` says why.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from oomkb.catalog.models import ModelEntry, all_models

TOLERANCE = 0.001
Config = Mapping[str, Any]

UNCHECKED: Mapping[str, str] = {
    "gemma3n": "its vision tower needs the timm package",
    "phi3_v": "vision tower and projector only in the model's own code",
    "phi4mm": "vision and speech towers and their adapters only in the model's own code",
    "kimi_k3": "only in the model's own code: transformers' kimi_linear has neither its latent experts nor its gates",
    "minicpmv": "resampler only in the model's own code",
    "qwen-vl": "vision tower only in the model's own code",
}
_HEADLESS = frozenset({"bert", "roberta", "xlm-roberta"})
_SEQ2SEQ = frozenset({"t5", "mt5", "bart", "whisper"})


def built(config: Config) -> int:
    """Parameters of the module that transformers builds for ``config``."""
    import torch
    import transformers as hf

    kind = config["model_type"]
    fields = {key: value for key, value in config.items() if key not in ("model_type", "quantization_config")}
    settings = hf.AutoConfig.for_model(kind, **fields)
    multimodal = any(key in config for key in ("vision_config", "audio_config"))
    order = [hf.AutoModelForCausalLM]
    if kind in _HEADLESS:
        order = [hf.AutoModel]
    elif kind in _SEQ2SEQ:
        order = [hf.AutoModelForSpeechSeq2Seq, hf.AutoModelForSeq2SeqLM]
    elif multimodal:
        order = [hf.AutoModelForImageTextToText, hf.AutoModelForMultimodalLM, hf.AutoModelForSeq2SeqLM, *order]
    for auto in order:
        if type(settings) in auto._model_mapping:
            with torch.device("meta"):
                model = auto.from_config(settings)
            head = 0
            if kind in ("t5", "mt5") and not config.get("tie_word_embeddings", True):
                # transformers 5 ties T5's head whatever the config says; the checkpoints hold it apart.
                head = config["vocab_size"] * config["d_model"]
            return sum(p.numel() for p in model.parameters()) + head
    raise ValueError(f"transformers has no model for {kind}")


def dense(c: Config, *, qkv_bias: bool = False, out_bias: bool = False) -> int:
    """A Llama-shaped decoder."""
    h, f, heads = c["hidden_size"], c["intermediate_size"], c["num_attention_heads"]
    kv = c.get("num_key_value_heads", heads)
    hd = c.get("head_dim") or h // heads
    layer = h * hd * (heads + 2 * kv) + heads * hd * h + 3 * h * f + 2 * h
    layer += qkv_bias * hd * (heads + 2 * kv) + out_bias * h
    embeddings = 1 if c.get("tie_word_embeddings") else 2
    return embeddings * c["vocab_size"] * h + c["num_hidden_layers"] * layer + h


def qwen1(c: Config) -> int:
    h, half = c["hidden_size"], c["intermediate_size"] // 2
    inner = c.get("kv_channels", 128) * c["num_attention_heads"]
    layer = h * 3 * inner + 3 * inner + inner * h + 3 * h * half + 2 * h
    return 2 * c["vocab_size"] * h + c["num_hidden_layers"] * layer + h


def chatglm(c: Config) -> int:
    h = c["hidden_size"]
    if "inner_hidden_size" in c:  # the first generation: LayerNorm, plain attention, one matrix for both embeddings
        f = c["inner_hidden_size"]
        layer = 4 * h * h + 4 * h + 2 * h * f + f + h + 4 * h
        return c["vocab_size"] * h + c["num_layers"] * layer + 2 * h
    f, hd = c["ffn_hidden_size"], c["kv_channels"]
    qkv = hd * (c["num_attention_heads"] + 2 * c["multi_query_group_num"])
    layer = h * qkv + qkv + hd * c["num_attention_heads"] * h + 3 * h * f + 2 * h
    return 2 * c["padded_vocab_size"] * h + c["num_layers"] * layer + h


def mimo(c: Config) -> int:
    """Qwen2's layer, and one multi-token-prediction layer: two norms, a projection of both inputs, a layer, a norm."""
    h = c["hidden_size"]
    one = {**c, "num_hidden_layers": 1, "vocab_size": 0}
    predictor = dense(one, qkv_bias=True) + 2 * h * h + 2 * h
    return dense(c, qkv_bias=True) + c.get("num_nextn_predict_layers", 0) * predictor


def deepseek_moe(c: Config) -> int:
    h, moe, first = c["hidden_size"], c["moe_intermediate_size"], c["first_k_dense_replace"]
    attention = 4 * h * h + 2 * h
    sparse = (c["n_routed_experts"] + c["n_shared_experts"]) * 3 * h * moe + c["n_routed_experts"] * h
    layers = c["num_hidden_layers"] * attention + first * 3 * h * c["intermediate_size"]
    return 2 * c["vocab_size"] * h + layers + (c["num_hidden_layers"] - first) * sparse + h


def internvl(c: Config) -> int:
    """The language model, InternViT and the two-layer projector on four merged patches."""
    v, text = c["vision_config"], c["llm_config"]
    h, f = v["hidden_size"], v["intermediate_size"]
    norm = h if v["qk_normalization"] else 2 * h  # RMSNorm in the 6B tower, LayerNorm in the small one
    patches = (v["image_size"] // v["patch_size"]) ** 2
    layer = 4 * h * h + h + 3 * h * v["qkv_bias"] + 2 * h * f + f + h + 2 * norm + 2 * h
    layer += 2 * h if v["qk_normalization"] else 0
    tower = h * 3 * v["patch_size"] ** 2 + h + h + (patches + 1) * h + v["num_hidden_layers"] * layer
    wide = 4 * h
    out = text["hidden_size"]
    return count_config(text) + tower + 2 * wide + wide * out + out + out * out + out


REMOTE: Mapping[str, Callable[[Config], int]] = {
    "qwen": qwen1,
    "chatglm": chatglm,
    "internlm": lambda c: dense(c, qkv_bias=c["bias"], out_bias=c["bias"]),
    "internlm2": dense,
    "baichuan": dense,
    "minicpm": dense,
    "exaone": dense,
    "mimo": mimo,
    "deepseek": deepseek_moe,
    "internvl_chat": internvl,
}


def count_config(config: Config) -> int:
    """Parameters by a config."""
    kind = config.get("model_type", "")
    return REMOTE[kind](config) if kind in REMOTE else built(config)


def unchecked(entry: ModelEntry) -> str | None:
    """Why the count of ``entry`` cannot be checked here, or ``None``."""
    kind = "qwen-vl" if "visual" in entry.config else entry.config.get("model_type", "")
    return UNCHECKED.get(kind)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    right, wrong, skipped = 0, 0, 0
    counts: dict[str, int] = {}
    for entry in all_models():
        if chosen.words and not any(word.lower() in entry.name.lower() for word in chosen.words):
            continue
        if why := unchecked(entry):
            skipped += 1
            if chosen.all:
                print(f"{entry.name}: not checked, {why}")
            continue
        try:
            counted = counts[entry.name] = count_config(entry.config)
        except Exception as error:
            print(f"FAILED {entry.name}: {type(error).__name__}: {str(error)[:160]}")
            wrong += 1
            continue
        gap = (counted - entry.params) / entry.params if entry.params else None
        fine = gap is not None and abs(gap) <= TOLERANCE
        right, wrong = right + fine, wrong + (not fine)
        if chosen.all or not fine:
            print(f"{entry.name}: {counted} published {entry.params} {'' if gap is None else f'{gap:+.3%}'}")
    print(f"{right} within {TOLERANCE:.1%}, {wrong} not, {skipped} not checked")
    if chosen.json:
        chosen.json.write_text(json.dumps(counts, indent=1))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
