"""The client against real servers with a model of random weights: no weights are had, only the protocol is tried.

    pip install gguf 'llama-cpp-python[server]' transformers torch     # the first is built from source: a C++ compiler
    python bench/endpoint_conformity.py                                # both servers; prints a line for each trial

Of a model without sense only the form of an exchange can be checked: one reply, a stream and its end, functions, a JSON
schema, an error's body, a limit of time, a conversation with a function's result.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx

from oomdoc.language_model import Budget, LanguageModel, Reply, Tool, Unavailable
from oomdoc.language_model.failing import breaker_of

TEMPLATE = "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}<assistant>"
HELLO = [{"role": "system", "content": "Say hello."}, {"role": "user", "content": "hi"}]
SCHEMA = {
    "type": "object",
    "properties": {"what": {"type": "string", "enum": ["a", "b"]}},
    "required": ["what"],
    "additionalProperties": False,
}
TOOL = Tool("estimate", "Price a job.", {"type": "object", "properties": {"seq_len": {"type": "integer"}}})
CALL = {"id": "c1", "type": "function", "function": {"name": "estimate", "arguments": '{"seq_len": 1}'}}
RESULT = [
    {"role": "assistant", "content": "", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "name": "estimate", "content": "{}"},
]


def write_checkpoint(folder: Path) -> Path:
    """A Llama of random weights with a vocabulary of bytes, as ``transformers`` reads it."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    words = ["<unk>", "<s>", "</s>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    raw = Tokenizer(models.BPE(vocab={w: i for i, w in enumerate(words)}, merges=[], unk_token="<unk>"))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    special = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "</s>"}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, **special)
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)
    config = LlamaConfig(
        vocab_size=len(words),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=16384,
        bos_token_id=1,
        eos_token_id=2,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


def write_gguf(path: Path, width: int = 64, layers: int = 2, context: int = 8192) -> Path:
    """The same as GGUF."""
    import numpy as np
    from gguf import GGUFWriter, TokenType

    chosen = np.random.default_rng(0)
    words = [
        b"<unk>",
        b"<s>",
        b"</s>",
        *(f"<0x{i:02X}>".encode() for i in range(256)),
        *'▁aeiotnsrl12{}":,'.encode().split(),
    ]
    kinds = [TokenType.UNKNOWN, *[TokenType.CONTROL] * 2, *[TokenType.BYTE] * 256, TokenType.NORMAL]
    out = GGUFWriter(str(path), "llama")
    out.add_context_length(context)
    out.add_embedding_length(width)
    out.add_block_count(layers)
    out.add_feed_forward_length(2 * width)
    out.add_head_count(4)
    out.add_layer_norm_rms_eps(1e-5)
    out.add_rope_dimension_count(width // 4)
    out.add_vocab_size(len(words))
    out.add_tokenizer_model("llama")
    out.add_token_list(words)
    out.add_token_scores([-float(i) for i in range(len(words))])
    out.add_token_types(kinds)
    out.add_bos_token_id(1)
    out.add_eos_token_id(2)
    out.add_chat_template(TEMPLATE)

    def weights(name: str, *shape: int) -> None:
        out.add_tensor(f"{name}.weight", (chosen.standard_normal(shape) * 0.05).astype(np.float32))

    def ones(name: str) -> None:
        out.add_tensor(f"{name}.weight", np.ones(width, dtype=np.float32))

    weights("token_embd", len(words), width)
    weights("output", len(words), width)
    ones("output_norm")
    for block in (f"blk.{i}" for i in range(layers)):
        ones(f"{block}.attn_norm")
        ones(f"{block}.ffn_norm")
        for part in ("attn_q", "attn_k", "attn_v", "attn_output"):
            weights(f"{block}.{part}", width, width)
        weights(f"{block}.ffn_gate", 2 * width, width)
        weights(f"{block}.ffn_up", 2 * width, width)
        weights(f"{block}.ffn_down", width, 2 * width)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()
    return path


@contextmanager
def served(command: list[str], patience_s: float = 600.0) -> Iterator[str]:
    """The base URL of a server that is started with ``{port}`` in its command, and ended afterwards."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    process = subprocess.Popen(
        [part.format(port=port) for part in command],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        end = time.monotonic() + patience_s
        while time.monotonic() < end:
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                break
            if process.poll() is not None:
                raise RuntimeError(f"{command[0]} has ended with {process.returncode}")
            time.sleep(0.5)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.kill()
        process.wait(timeout=120)


def trials(url: str, name: str) -> dict[str, Any]:
    """What each exchange came to: a reply, a JSON object, or the reason of a refusal."""
    model = LanguageModel(url, "key", name, timeout_s=600.0)
    long = [{"role": "user", "content": "x " * 40_000}]
    ample = Budget(seconds=600.0, tokens=10**6)
    runs: dict[str, Callable[[], Any]] = {
        "one reply": lambda: model.ask(HELLO, max_tokens=16),
        "a stream": lambda: list(model.stream(HELLO, max_tokens=16)),
        "functions": lambda: model.ask(HELLO, tools=[TOOL], max_tokens=16),
        "a function's result": lambda: model.ask([*HELLO, *RESULT], tools=[TOOL], max_tokens=8),
        "a JSON schema": lambda: model.document(HELLO, SCHEMA, max_tokens=64),
        "another model": lambda: LanguageModel(url, "", "no/such-model", 600.0).ask(HELLO, max_tokens=8),
        "too long a prompt": lambda: model.ask(long, max_tokens=8, budget=ample),
        "no time": lambda: LanguageModel(url, "", name, 0.01).ask(HELLO, max_tokens=16),
    }
    found: dict[str, Any] = {}
    for what, run in runs.items():
        try:
            found[what] = run()
        except Unavailable as error:
            found[what] = error
        breaker_of(url).record(None)
    return found


def raw(url: str, name: str, **more: Any) -> tuple[int, str]:
    """Status and body of a request as it stands, past the client."""
    body = {"model": name, "messages": HELLO, "max_tokens": 4, **more}
    answer = httpx.post(f"{url}/chat/completions", json=body, timeout=600)
    return answer.status_code, answer.text


def main() -> None:
    """Both servers."""
    with tempfile.TemporaryDirectory() as folder:
        tiny, checkpoint = Path(folder) / "tiny.gguf", Path(folder) / "checkpoint"
        commands = {
            "llama-cpp-python": (
                [sys.executable, "-m", "llama_cpp.server", "--model", str(tiny), "--n_ctx", "8192", "--port", "{port}"],
                str(tiny),
                lambda: write_gguf(tiny),
            ),
            "transformers serve": (
                [
                    shutil.which("transformers") or "transformers",
                    "serve",
                    "--device",
                    "cpu",
                    "--port",
                    "{port}",
                    str(checkpoint),
                ],
                str(checkpoint),
                lambda: write_checkpoint(checkpoint),
            ),
        }
        for server, (command, name, write) in commands.items():
            write()
            with served(command) as url:
                for what, came in trials(url, name).items():
                    shown = came.text if isinstance(came, Reply) else came
                    print(f"{server:20s} {what:20s} {type(came).__name__:12s} {str(shown)[:120]!r}")
                asked = {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA, "strict": True}}
                print(server, "as it stands", json.dumps(raw(url, name, response_format=asked))[:300])


if __name__ == "__main__":
    main()
