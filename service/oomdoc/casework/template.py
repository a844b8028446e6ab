"""The template that a new case starts from; ``cases/README.md`` shows the same."""

from __future__ import annotations

from typing import Final

__all__ = ["TEMPLATE"]

TEMPLATE: Final = """\
schema: 2
title:
  en: "FILL IN: what happened and why, in one line"
  zh: "FILL IN：一行说明发生了什么、为什么"
summary:
  en: "FILL IN: who ran what on which hardware, and what came of it"
  zh: "FILL IN：谁在什么硬件上跑什么，结果如何"
date: 2025-01-31
languages: [en]
frameworks: [transformers]
hardware: {gpu: RTX 4090, count: 1, capacity_gib: 24}
phase: train
method: lora
objective: sft
symptoms:
  - "FILL IN: what somebody would paste: the log line, the settings"
  - "FILL IN: how somebody would ask it"
signatures: []
#  - text: a literal piece of a line that only this failure prints
#    source: file.py, program 1.2
#    means: {en: what it says, zh: 含义}
before: {model: Qwen/Qwen2.5-7B, method: lora, micro_batch: 8, seq_len: 2048, grad_ckpt: true, gpu: RTX 4090}
after: {model: Qwen/Qwen2.5-7B, method: lora, micro_batch: 1, seq_len: 2048, grad_ckpt: true, gpu: RTX 4090}
outcome:
  before: {fits: false}
  after: {fits: true, peak_gib: 19.5}
  witness: [{by: reporter-tried, result: worked, ref: "https://github.com/OWNER/NAME/issues/NUMBER"}]
cause: {witness: [{by: maintainer-said, ref: "https://github.com/OWNER/NAME/issues/NUMBER"}]}
also: []
why:
  en: "FILL IN: the mechanism, with its arithmetic"
  zh: "FILL IN：机理与算式"
  witness: [{by: arithmetic, sum: "8 * 2048 * 152064 * 4 / 2**30 = 9.28"}]
fixes:  # [] where none is known
  - text: {en: "FILL IN: what to change, micro_batch 1 say", zh: "FILL IN：改什么，例如 micro_batch 1"}
    safety: same-numbers
    changes: {micro_batch: 1}
    witness:
    - {by: reporter-tried, result: worked, ref: "https://github.com/OWNER/NAME/issues/NUMBER"}
#    - {by: merged-code, pull: OWNER/NAME#NUMBER, release: 0.16.8, ref: "https://github.com/OWNER/NAME/pull/NUMBER"}
affected: []
#  - package: deepspeed
#    ranges: [{type: ECOSYSTEM, events: [{introduced: 0.16.0}, {fixed: 0.16.8}]}]
#    seen: [0.16.4]
#    needs: zero3
#    witness: [{by: merged-code, pull: OWNER/NAME#NUMBER, ref: "https://github.com/OWNER/NAME/pull/NUMBER"}]
references:
  - {role: report, url: "https://github.com/OWNER/NAME/issues/NUMBER"}
"""
