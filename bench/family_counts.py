"""Count the parameters of every architecture of transformers on the meta device, for the shape tests.

``python bench/family_counts.py OUT.jsonl [WORD ...]`` builds the default configuration of every decoder,
encoder-decoder and vision-language model type (or of those named) and appends a line of ``model_type``, ``config`` and
``params``; types that cannot be built say why. Types already in the file are skipped. ``--keep FILE.json`` writes the
configurations without the fields that no shape depends on, as ``tests/kb/memory/data/family_counts.json`` has them,
and says how many types :class:`oomkb.memory.shape.ModelShape` counts within 0.1 %.
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SECONDS_PER_TYPE = 120
TOLERANCE = 0.001
NOT_KEPT = {
    "gemma3n_text": "its checkpoints hold key and value projections that this version leaves out",
    "longcat_flash": "the module has weights for experts that are identities; the checkpoint of 560B has none",
}
_NO_SHAPE = re.compile(
    r"token_ids?$|dtype|initializer|^output_|^return_dict|id2label|label2id|problem_type|^use_cache|transformers_version|"
    r"architectures|_attn_impl|_eps$|epsilon$|_name_or_path|init_std|router_aux|^rope_|task_specific|chunk_size_feed"
)


def types() -> Iterator[tuple[str, Any]]:
    """Model types with the automatic class that builds them."""
    import transformers as hf

    seen = set()
    for kind in ("bert", "roberta", "xlm-roberta", "camembert", "ernie", "megatron-bert"):
        seen.add(kind)
        yield kind, hf.AutoModel
    for auto in (
        hf.AutoModelForImageTextToText,
        hf.AutoModelForSpeechSeq2Seq,
        hf.AutoModelForSeq2SeqLM,
        hf.AutoModelForCausalLM,
    ):
        for kind in auto._model_mapping._model_mapping:
            if kind not in seen:
                seen.add(kind)
                yield kind, auto


def count(kind: str, auto: Any) -> tuple[dict[str, Any], int]:
    """The default configuration of ``kind`` and the parameters of what ``auto`` builds from it."""
    import torch
    from transformers import AutoConfig

    settings = AutoConfig.for_model(kind)
    with torch.device("meta"):
        model = auto.from_config(settings)
    return settings.to_dict(), sum(p.numel() for p in model.parameters())


def kept(config: Any) -> Any:
    """``config`` without the fields that say nothing about sizes."""
    if not isinstance(config, dict):
        return config
    return {k: kept(v) for k, v in config.items() if v is not None and not _NO_SHAPE.search(k)}


def recorded(rows: list[dict[str, Any]]) -> str:
    """The tests' data file: types whose count the shape gives, and types that it only estimates."""
    from oomkb.memory.shape import ModelShape

    parts: dict[str, list[str]] = {"exact": [], "estimated": []}
    for row in rows:
        if row["model_type"] in NOT_KEPT:
            continue
        gap = abs(ModelShape.from_config(row["config"]).params / row["params"] - 1)
        line = {k: row[k] for k in ("model_type", "params", "config")}
        text = json.dumps(line, separators=(",", ":"), default=str)
        parts["exact" if gap <= TOLERANCE else "estimated"].append(text)
    bodies = (f'"{name}": [\n' + ",\n".join(texts) + "\n]" for name, texts in parts.items())
    return "{" + ",\n".join(bodies) + "}\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--keep", type=Path)
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    lines = [json.loads(line) for line in chosen.out.read_text().splitlines()] if chosen.out.exists() else []
    done = {line["model_type"] for line in lines}
    signal.signal(signal.SIGALRM, lambda *_: (_ for _ in ()).throw(TimeoutError()))
    with chosen.out.open("a") as out:
        for kind, auto in types():
            if kind in done or (chosen.words and kind not in chosen.words):
                continue
            signal.alarm(SECONDS_PER_TYPE)
            try:
                config, params = count(kind, auto)
                line = {"model_type": kind, "auto": auto.__name__, "params": params, "config": kept(config)}
            except BaseException as error:
                if isinstance(error, KeyboardInterrupt):
                    raise
                line = {"model_type": kind, "error": f"{type(error).__name__}: {str(error)[:200]}"}
            signal.alarm(0)
            lines.append(line)
            print(json.dumps(line, default=str), file=out, flush=True)
    if chosen.keep:
        chosen.keep.write_text(recorded([line for line in lines if "params" in line]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
