"""What a new file begins as: complete, passing its tests, and saying what to fill in."""

from __future__ import annotations

from typing import Final

PARSER: Final = """# {title}: say here which program prints these lines, and since which version.
triggers = ['{name} ran out of memory']

[[rules]]
signal = '{name}-oom'
pattern = '{name} ran out of memory'
kind = "device"
"""

PARSER_TEST: Final = '''"""Lines that {name} must and must not read."""

from __future__ import annotations

import pytest

from oomdoc.intake import read_text


@pytest.mark.parametrize("line", ["{name} ran out of memory"])
def test_must_match(line: str) -> None:
    assert any(signal.name == "{name}-oom" for signal in read_text(line).signals)


@pytest.mark.parametrize("line", ["{name} started", "all is well"])
def test_must_not_match(line: str) -> None:
    assert not any(signal.name == "{name}-oom" for signal in read_text(line).signals)
'''

READER: Final = """# {title}: the fields are described in oomkb/frameworks/declared.py.
title = "{title}"
kind = "training"
package = "{name}"
source = "name here the file and the version in which these keys were read"
programs = ['\\b{name}\\b']
marks = "{name}_micro_batch {name}_sequence_length"
known = "seed output_dir"
adds = "{name}_micro_batch"
# What plans may propose here; words as in the other records. Without it: all that transformers can be set to.
features = "micro_batch seq_len"

[keys]
"{name}_micro_batch" = "micro_batch int"
"{name}_sequence_length" = "seq_len int"
"""

READER_TEST: Final = '''"""{title}: read, patch, read again."""

from __future__ import annotations

from oomdoc.evidence import Source
from oomdoc.intake.configs import patch, read_documents

TEXT = "{name}_micro_batch: 4\\n{name}_sequence_length: 4096  # long\\n"


def test_reads_its_keys() -> None:
    facts = {{fact.name: fact.value for fact in read_documents(Source("{name}.yaml", TEXT)).facts}}
    assert (facts["micro_batch"], facts["seq_len"]) == (4, 4096)


def test_writes_them_back() -> None:
    patched = patch(TEXT, filename="{name}.yaml", framework="{name}", changes={{"seq_len": 2048}})
    assert patched.text == TEXT.replace("4096", "2048")
'''

FIX: Final = """
# {title}: what it changes, and why that lowers the peak (formula and source). What it costs, and when it must not be
# offered.
[{name}]
safety = "changed-training"
kinds = ["training"]
reduces = ["activations", "logits"]
needs = ["micro_batch"]
offers = [{{ lower = "micro_batch", values = [1], effort = 0.5, more = 0.0 }}]
"""

FIX_TEST: Final = '''"""{name} offers nothing where it is on already."""

from __future__ import annotations

from oomdoc.diagnosis.fixes import REMEDIES, Context
from oomkb.memory.job import Job


def offered(**fields: object) -> list[object]:
    remedy = next(r for r in REMEDIES if r.name == "{name}")
    return list(remedy.variants(Job.from_document(fields), Context()))


def test_offered_where_it_helps() -> None:
    assert offered(micro_batch=4)


def test_not_offered_where_it_is_on() -> None:
    assert not offered(micro_batch=1)
'''

GPU: Final = """{{
 "vendor": "nvidia",
 "generation": "hopper",
 "sources": {{"specs": "https://example.org/the-page-with-these-figures"}},
 "defaults": {{"lacks": [], "host_gb_s": 64}},
 "gpus": [
  {{"name": "{title}", "match": ["{words}"], "gb": 80, "gb_s": 3350, "tflops": {{"fp32": 67, "fp16": 989, "bf16": 989}}, "cc": [9, 0], "source": {{"specs": "specs"}}}}
 ]
}}
"""

MODEL: Final = """{{
 "source": "hub",
 "sources": {{"hub": "https://example.org/the-page-with-this-config"}},
 "models": [
  {{"name": "{title}", "match": ["{words}"], "config": {{"model_type": "llama", "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32, "tie_word_embeddings": false, "max_position_embeddings": 4096}}}}
 ]
}}
"""

TOPIC: Final = """# The fields are described in oomkb/topics/records.py.
[{id}]
title.en = "{title}"
title.zh = "{title}"
questions.en = ["what is {words}?", "does {words} save memory?", "how much memory does {words} take?", "why {words}?"]
questions.zh = ["{words} 是什么？", "{words} 能省显存吗？", "{words} 占多少显存？", "为什么要用 {words}？"]
answer.en = "What it is. What to do, and when it does not help."
answer.zh = "它是什么。该怎么做，什么时候没有作用。"
sources = ["https://example.org/the-page-that-says-so"]
"""
