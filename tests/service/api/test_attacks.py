"""Requests that stopped the service once, and others of their kinds: each is answered quickly, with a plain refusal."""

from __future__ import annotations

import functools
import gzip
import io
import json
import pickle
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from oomdoc.api.app import create_app
from oomdoc.api.guard import Buckets
from oomdoc.settings import Settings

LOG = "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.64 GiB"
CONFIG = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "vocab_size": 32000,
    "intermediate_size": 11008,
}
# A guard against hanging, not a measurement: bench/hostile_intake.py measures.
HANG_S = 60.0


def client(tmp_path: Path, **settings: object) -> TestClient:
    options = {"database_url": f"sqlite:///{tmp_path}/oomdoc.db", **settings}
    return TestClient(create_app(Settings(**options)), raise_server_exceptions=False)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    with client(tmp_path_factory.mktemp("attacks")) as opened:
        yield opened


def quickly(api: TestClient, path: str, body: Any, status: set[int] = {200, 400, 413, 422}) -> Any:  # noqa: B006
    started = time.monotonic()
    if isinstance(body, str):
        answer = api.post(path, content=body, headers={"content-type": "application/json"})
    else:
        answer = api.post(path, json=body)
    assert answer.status_code in status, answer.text[:300]
    assert time.monotonic() - started < HANG_S
    return answer


def job(**fields: Any) -> dict[str, Any]:
    return {"job": {"model": "Qwen/Qwen2.5-7B", **fields}}


@pytest.mark.parametrize(
    ("stated", "capacity"), [("24 GB", 24.0), ("24GiB", 24.0), (24, 24.0), ("24", 24.0), ("24576 MiB", 24.0)]
)
def test_a_size_may_be_written_with_its_unit(api: TestClient, stated: object, capacity: float) -> None:
    answer = quickly(api, "/v1/diagnose", {"text": "CUDA out of memory", "set": {"capacity_gib": stated}}, {200})
    assert answer.json()["facts"]["capacity_gib"]["value"] == capacity


@pytest.mark.parametrize(
    ("stated", "where"),
    [
        ({"capacity_gib": "a lot"}, "capacity_gib"),
        ({"capacity_gib": [1]}, "capacity_gib"),
        ({"capacity_gib": 1e300}, "capacity_gib"),
        ({"micro_batch": "4k"}, "micro_batch"),
        ({"micro_batch": 10**40}, "micro_batch"),
        ({"gpus": True}, "gpus"),
        ({"seq_len": {"a": 1}}, "seq_len"),
        ({"zero_stage": 9}, "zero_stage"),
        ({"lora": {"rank": 3}}, "lora.rank"),
        ({"lora": {"r": 1 << 27}}, "lora.r"),
        ({"extra_models": [{"role": "reference"}] * 17}, "extra_models"),
        ({"capacity_gib": 1.6e7}, "capacity_gib"),
        ({"offload": [["optimizer"]]}, "offload"),
        ({"env": {"A": {"B": 1}}}, "env.A"),
        ({"seqlen": 1024}, "seqlen"),
    ],
)
def test_stated_fields_are_checked(api: TestClient, stated: dict[str, Any], where: str) -> None:
    answer = quickly(api, "/v1/diagnose", {"text": LOG, "set": stated}, {422})
    assert answer.json()["where"] == where


def test_a_slip_of_a_name_is_told_the_right_one(api: TestClient) -> None:
    answer = quickly(api, "/v1/diagnose", {"text": LOG, "set": {"micro_batc": 1}}, {422})
    assert "micro_batch" in answer.json()["hint"]


def deep(opening: str, closing: str, levels: int) -> str:
    return opening * levels + closing * levels


@pytest.mark.parametrize("levels", [90, 900, 30_000])
def test_depth_is_refused(api: TestClient, levels: int) -> None:
    lists, maps = deep("[", "]", levels), deep('{"a":', "}", levels).replace(":}", ":1}")
    for value in (lists, maps):
        for body in ('{"job": {"model": "x", "more": VALUE}}', '{"job": {"model": VALUE}}'):
            quickly(api, "/v1/estimate", body.replace("VALUE", value), {400, 422})
        quickly(api, "/v1/diagnose", f'{{"text": "x", "set": {{"model": {value}}}}}', {400, 422})
        quickly(api, "/v1/plan", f'{{"job": {{"model": {value}}}}}', {400, 422})


@pytest.mark.parametrize(
    "text",
    [
        "[" * 30_000,
        "a: " + "[" * 30_000,
        "{a: " * 30_000,
        "".join(f"{' ' * n}a:\n" for n in range(900)),
        "? " * 20_000,
        "- " * 20_000,
        "!!binary " * 5000,
        "a: " + ":".join(["1"] * 100_000),
        "a: 0x" + "f" * 200_000,
        "a: " + "9" * 500_000,
        "&a [*a]",
        "a: &a [*a, *a]",
    ],
)
def test_yaml_that_crashed_the_parser_is_survived(api: TestClient, text: str) -> None:
    quickly(api, "/v1/plan", {"text": text, "filename": "x.yaml"})
    quickly(api, "/v1/cases", {"id": "leak/xx-yy", "yaml": text[:60_000]}, {422})


def test_aliases_do_not_multiply(api: TestClient) -> None:
    lines = ["model: Qwen/Qwen2.5-7B", "extra:", "  a: &a [1,2,3,4,5,6,7,8,9]"]
    for n in range(8):
        name, last = chr(98 + n), chr(97 + n)
        lines.append(f"  {name}: &{name} [{','.join([f'*{last}'] * 9)}]")
    answer = quickly(api, "/v1/plan", {"text": "\n".join(lines), "filename": "x.yaml"})
    assert len(answer.content) < 200_000


@pytest.mark.parametrize(
    "pickled",
    [
        b"\x80\x04]r\xff\xff\xff\x0b.",
        b"\x80\x05\x96" + (1 << 40).to_bytes(8, "little") + b"x.",
        b"\x80\x04\x95" + (1 << 50).to_bytes(8, "little") + b".",
        b"\x80\x04\x8b\xff\xff\xff\x7f.",
        b"\x80\x04cos\nsystem\n(S'true'\ntR.",
        pickle.dumps({"segments": [{"total_size": 1 << 80_000}]}, 4),
        pickle.dumps(
            {"segments": [], "x": float("inf"), "device_traces": [[{"action": "oom", "size": float("inf")}]]}, 4
        ),
    ],
)
def test_pickles_of_a_few_bytes_take_no_memory(api: TestClient, pickled: bytes) -> None:
    started = time.monotonic()
    answer = api.post("/v1/diagnose", files={"file": ("snapshot.pickle", pickled)})
    assert answer.status_code == 400, answer.text
    assert time.monotonic() - started < HANG_S


def test_shared_values_do_not_multiply(api: TestClient) -> None:
    segment = {"blocks": [{"state": "active_allocated", "size": 1}] * 30_000}
    started = time.monotonic()
    answer = api.post("/v1/diagnose", files={"file": ("s.pickle", pickle.dumps({"segments": [segment] * 30_000}, 4))})
    assert answer.status_code == 400
    assert time.monotonic() - started < HANG_S


@pytest.mark.parametrize(
    "changes",
    [
        {"num_hidden_layers": 10_000_000},
        {"num_hidden_layers": 1e300},
        {"num_hidden_layers": "many"},
        {"num_attention_heads": 0},
        {"num_key_value_heads": -8},
        {"head_dim": -128},
        {"hidden_size": 10**18},
        {"vocab_size": [1, {}]},
        {"hybrid_override_pattern": "M" * 100_000, "num_hidden_layers": None},
        {"vision_config": {"hidden_size": 10**17, "patch_size": 0}},
        {"rope_parameters": {"partial_rotary_factor": "x"}},
        {"sliding_window": "x", "model_type": "mistral"},
    ],
)
def test_impossible_models_are_refused(api: TestClient, changes: dict[str, Any]) -> None:
    answer = quickly(api, "/v1/estimate", {"job": {"model": CONFIG | changes}}, {200, 422})
    if answer.status_code == 200:
        assert 0 < answer.json()["peak_gib"]["process"] < 1e6


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "1e400", "1" + "0" * 60, '"NaN"', "[]", "true"])
@pytest.mark.parametrize(
    "field", ["seq_len", "micro_batch", "params_b", "capacity_gib", "gpus", "max_pixels", "host_gib", "world"]
)
def test_no_number_is_no_number(api: TestClient, field: str, value: str) -> None:
    body = f'{{"job": {{"model": "Qwen/Qwen2.5-7B", "{field}": {value}}}}}'
    quickly(api, "/v1/estimate", body, {422})
    quickly(api, "/v1/diagnose", f'{{"text": "oom", "set": {{"{field}": {value}}}}}', {422})


def test_no_figure_is_beyond_any_machine(api: TestClient) -> None:
    quickly(api, "/v1/estimate", job(seq_len=1 << 27, micro_batch=1 << 20), {422})


@pytest.mark.parametrize(
    "text",
    [
        "0b model",
        "0B 模型",
        "Tried to allocate 1;0Btotalcapacity2Balreadyallocated5GBreservedintotal",
        "CUDA out of memory. Tried to allocate 99999999999999999999 GiB",
        "GPU 0 has a total capacity of 0.00 GiB of which 0.00 GiB is free. Tried to allocate 0 bytes. CUDA out of memory",
    ],
)
def test_texts_that_gave_500(api: TestClient, text: str) -> None:
    quickly(api, "/v1/diagnose", {"text": text}, {200})


@pytest.mark.parametrize(
    "yaml", ["date: 2001-13-45", "? [a]\n: b", "schema: .inf", "a: !!int x", "a: !!float x", "!!map x", "<<: 1", "\x00"]
)
def test_case_records_of_nonsense(api: TestClient, yaml: str) -> None:
    quickly(api, "/v1/cases", {"id": "leak/xx-yy", "yaml": yaml}, {422})


@pytest.mark.parametrize(
    "options", ["NaN", '{"seq_len": NaN}', "[" * 50_000, '{"a": ' + deep("[", "]", 900) + "}", "[]"]
)
def test_the_fields_of_an_upload(api: TestClient, options: str) -> None:
    answer = api.post("/v1/diagnose", files={"file": ("x.log", LOG.encode())}, data={"set": options})
    assert answer.status_code in (400, 422)


def test_many_files_are_refused_at_once(api: TestClient) -> None:
    quickly(api, "/v1/diagnose", {"text": LOG, "configs": {f"{n}.yaml": "a: 1\n" for n in range(20_000)}}, {422})
    quickly(api, "/v1/diagnose", {"text": LOG, "configs": {f"{n}.yaml": "a: 1\n" for n in range(200)}}, {200})


def test_packed_uploads_have_a_limit(tmp_path: Path) -> None:
    bomb = gzip.compress(b"step 1 loss 2.0\n" * 1_000_000)
    with client(tmp_path, max_unpacked_bytes=1_000_000) as api:
        answer = api.post("/v1/diagnose", files={"file": ("x.log.gz", bomb)})
    assert answer.status_code == 400
    assert "unpacks" in answer.json()["detail"]


def test_what_unpacks_to_much_more_than_logs_do_is_refused(api: TestClient) -> None:
    bomb = gzip.compress(bytes(160 << 20), 1)
    answer = api.post("/v1/diagnose", files={"file": ("x.log.gz", bomb)})
    assert answer.status_code == 400
    assert "unpacks" in answer.json()["detail"]
    assert "/tmp" not in answer.text


def test_gzip_bodies_are_whole(api: TestClient) -> None:
    headers = {"content-type": "text/plain", "content-encoding": "gzip"}
    first, second = gzip.compress(b"hello there\n"), gzip.compress(LOG.encode())
    both = api.post("/v1/diagnose", content=first + second, headers=headers)
    assert (both.status_code, both.json()["verdict"]) == (200, "device-oom")
    assert api.post("/v1/diagnose", content=second[:-5], headers=headers).status_code == 400
    many = gzip.compress(b"") * 200_000
    started = time.monotonic()
    assert api.post("/v1/diagnose", content=many, headers=headers).status_code == 413
    assert time.monotonic() - started < HANG_S


def test_an_upload_needs_its_size_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What lies in the temporary folder while a file arrives, at most."""
    import tempfile

    from oomdoc.api import uploads

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    most = 0
    plain = uploads._Form._more

    def watched(form: Any, data: bytes) -> None:
        nonlocal most
        plain(form, data)
        held = [f.stat().st_size for f in tmp_path.rglob("*") if f.is_file() and "oomdoc.db" not in f.name]
        most = max(most, sum(held))

    monkeypatch.setattr(uploads._Form, "_more", watched)
    (tmp_path / "db").mkdir()
    with client(tmp_path / "db") as api:
        data = LOG.encode() + b"\nstep" * 1_000_000
        answer = api.post("/v1/diagnose", files={"file": ("train.log", io.BytesIO(data))})
    assert answer.status_code == 200
    assert answer.json()["verdict"] == "device-oom"
    assert most <= len(data)


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"--x\r\n", "multipart/form-data; boundary=x"),
        (b"--x\r\nContent-Disposition: form-data; name=file; filename=a\r\n\r\nabc", "multipart/form-data; boundary=x"),
        (b"nonsense", "multipart/form-data; boundary=x"),
        (b"x", "multipart/form-data"),
        (b"x", "multipart/form-data; boundary=" + "b" * 5_000),
        (b"--x\r\n" + b"A: b\r\n" * 20_000, "multipart/form-data; boundary=x"),
    ],
)
def test_broken_forms_are_refused(api: TestClient, content: bytes, kind: str) -> None:
    answer = api.post("/v1/diagnose", content=content, headers={"content-type": kind})
    assert answer.status_code in (400, 413)


def test_small_documents_have_small_limits(api: TestClient) -> None:
    body = json.dumps({"job": {"model": "x", "extra": ["y" * 1000] * 1500}})
    assert api.post("/v1/estimate", content=body, headers={"content-type": "application/json"}).status_code == 413


# Who may call


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8765", "127.0.0.1.nip.io", "evil@127.0.0.1", "127.0.0.1@evil"]
)
def test_a_foreign_host_is_refused(api: TestClient, host: str) -> None:
    assert api.get("/v1/cases", headers={"host": host}).status_code == 421
    assert api.post("/v1/diagnose", json={"text": LOG}, headers={"host": host}).status_code == 421


@pytest.mark.parametrize("host", ["localhost:8765", "127.0.0.1:8765", "[::1]:8765", "10.1.2.3", "oomdoc"])
def test_own_hosts_are_answered(api: TestClient, host: str) -> None:
    assert api.get("/v1/cases", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://localhost:1"},
        {"sec-fetch-site": "cross-site"},
    ],
)
@pytest.mark.parametrize("kind", ["text/plain", "application/json", "multipart/form-data; boundary=x"])
def test_pages_elsewhere_may_not_call(api: TestClient, headers: dict[str, str], kind: str) -> None:
    answer = api.post("/v1/diagnose", content=b"{}", headers={**headers, "content-type": kind})
    assert answer.status_code == 403


def test_the_own_page_and_listed_ones_may_call(tmp_path: Path) -> None:
    page = "https://wiki.example"
    with client(tmp_path, cors_origins=page, allowed_hosts="oomdoc.example") as api:
        for headers in (
            {"origin": "http://testserver"},
            {"origin": page},
            {"host": "oomdoc.example", "origin": "https://oomdoc.example"},
        ):
            assert api.post("/v1/diagnose", json={"text": LOG}, headers=headers).status_code == 200


def test_a_preflight_needs_no_key(tmp_path: Path) -> None:
    page = "https://wiki.example"
    with client(tmp_path, auth="required", api_keys="0123456789abcdef-write:write", cors_origins=page) as api:
        asked = {"origin": page, "access-control-request-method": "POST", "access-control-request-headers": "x-api-key"}
        answer = api.options("/v1/diagnose", headers=asked)
        assert answer.status_code == 200
        assert answer.headers["access-control-allow-origin"] == page
        assert api.post("/v1/diagnose", json={"text": LOG}, headers={"origin": page}).status_code == 401


def test_wrong_keys_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The clock stands still: on a slow machine forty requests take longer than the bucket needs to refill.
    monkeypatch.setattr("oomdoc.api.guard.Buckets", functools.partial(Buckets, clock=lambda: 0.0))
    right = "0123456789abcdef-read"
    with client(tmp_path, auth="required", api_keys=f"{right}:read") as api:
        got = [api.get("/v1/cases", headers={"x-api-key": f"wrong-key-number-{n}"}).status_code for n in range(40)]
        assert got[0] == 401
        assert got[-1] == 429
        assert got.count(401) == 10


def test_one_caller_does_not_take_every_place() -> None:
    from oomdoc.api.guard import Gate

    gate = Gate(10, 4)
    assert [gate.enter("a") for _ in range(6)] == [True] * 4 + [False] * 2
    assert gate.enter("b")
    gate.leave("a")
    assert gate.enter("a")


def test_bodies_that_wait_do_not_fill_the_memory() -> None:
    from oomdoc.api.body import Budget

    budget = Budget(100)
    assert [budget.take("a", 30), budget.take("a", 30), budget.take("b", 40)] == [True, False, True]
    assert not budget.take("c", 40)
    budget.give("b", 40)
    assert budget.take("c", 40)
    assert budget.held_bytes == 70


# Cases have owners


def record(root: Path) -> str:
    return next((root / "cases" / "leak").glob("*.yaml")).read_text(encoding="utf-8")


def test_a_shipped_case_cannot_be_replaced(api: TestClient, root: Path) -> None:
    shipped = next((root / "cases" / "leak").glob("*.yaml"))
    answer = api.post("/v1/cases", json={"id": f"leak/{shipped.stem}", "yaml": record(root)})
    assert answer.status_code == 409
    assert api.delete(f"/v1/cases/leak/{shipped.stem}").status_code == 404


def test_only_its_owner_withdraws_a_case(tmp_path: Path, root: Path) -> None:
    keys = {name: f"0123456789abcdef-{name}" for name in ("one", "two", "chief")}
    scopes = f"{keys['one']}:read+write,{keys['two']}:read+write,{keys['chief']}:admin"
    with client(tmp_path, auth="required", api_keys=scopes) as api:
        for slug in ("mine-one", "mine-two"):
            sent = api.post(
                "/v1/cases", json={"id": f"leak/{slug}", "yaml": record(root)}, headers={"x-api-key": keys["one"]}
            )
            assert sent.status_code == 201, sent.text
        refused = api.delete("/v1/cases/leak/mine-one", headers={"x-api-key": keys["two"]})
        assert refused.status_code == 403
        assert api.delete("/v1/cases/leak/mine-one", headers={"x-api-key": keys["one"]}).status_code == 204
        assert api.delete("/v1/cases/leak/mine-two", headers={"x-api-key": keys["chief"]}).status_code == 204
        assert api.get("/v1/cases/leak/mine-one", headers={"x-api-key": keys["one"]}).status_code == 404


# Readiness


def test_readiness_says_nothing_private(tmp_path: Path) -> None:
    secret = "postgresql://someone:hunter2@127.0.0.1:1/private-name"
    with client(tmp_path, database_url=secret) as api:
        ready = api.get("/readyz")
        assert (ready.status_code, ready.json()["status"]) == (200, "degraded")
        assert "private-name" not in ready.text
        assert "oomdoc_store_up " in api.get("/metrics").text
        assert api.app.state.work.store_up is False  # type: ignore[attr-defined]


def _before(n: int) -> str:
    return "".join(f", *b{earlier}" for earlier in range(max(0, n - 30), n))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("train.yaml", "# a comment as an editor on Windows ends it\r\n" * 400 + "per_device_train_batch_size: 4\r\n"),
        ("run.sh", f"llama-server -m thing{'_q8' * 200}!.gguf -c 4096 -ngl 99\n"),
        ("run.sh", f"llama-server -m thing{'-q8_0' * 200}.gguf! -c 4096 -ngl 99\n"),
        ("run.sh", "python train.py \\\n" + "--lr 1 \\\n" * 12_500),
        ("a.yaml", "a: &a {x: 1}\n" + "".join(f"b{n}: &b{n}\n  <<: [*a{_before(n)}]\n  k{n}: 1\n" for n in range(40))),
    ],
)
def test_many_comments_and_endings_are_read_at_once(api: TestClient, name: str, text: str) -> None:
    """Each took time that doubles with every further line, or grows with the square of their number."""
    started = time.monotonic()
    answer = quickly(api, "/v1/diagnose", {"text": LOG, "configs": {name: text}}, {200})
    assert answer.json()["verdict"] == "device-oom"
    quickly(api, "/v1/plan", {"text": text, "filename": name}, {200, 422})
    assert time.monotonic() - started < 10


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/plan", job(**{"model.x": 1})),
        ("/v1/plan", job(**{"micro_batch.x": 1})),
        ("/v1/plan", job(**{"extra_models.role": "critic"})),
        ("/v1/plan", job(lora=["q_proj"], **{"lora.r": 8})),
        ("/v1/plan", job(env="A=1", **{"env.B": "2"})),
        ("/v1/diagnose", {"text": LOG, "set": {"lora": ["q_proj"], "lora.r": 8}}),
    ],
)
def test_a_part_of_what_has_none_is_refused(api: TestClient, path: str, body: dict[str, Any]) -> None:
    quickly(api, path, body, {400, 422})


def test_more_files_than_can_be_read_in_time_are_refused_at_once(api: TestClient) -> None:
    configs = {f"{n}.yaml": "".join(f"k{m}: {m}\n" for m in range(3_000)) for n in range(256)}
    assert "characters" in quickly(api, "/v1/diagnose", {"text": LOG, "configs": configs}, {422}).json()["detail"]


def test_half_a_character_is_refused(api: TestClient) -> None:
    quickly(api, "/v1/plan", '{"job": {"model": "Qwen/Qwen2.5-7B", "\\ud800key": 1}}', {422})
    for options in ('{"gpu": "\\ud800"}', '{"env": {"\\ud800": "1"}}'):
        answer = api.post("/v1/diagnose", files={"file": ("a.log", LOG.encode())}, data={"set": options})
        assert answer.status_code == 422, answer.text


@pytest.mark.parametrize("version", ["4.²", "²", "4.50.①"])
def test_digits_that_are_no_numbers_are_no_versions(api: TestClient, version: str) -> None:
    quickly(api, "/v1/estimate", job(framework="transformers", versions={"transformers": version}), {200})
    quickly(api, "/v1/diagnose", {"text": f"{LOG}\ntransformers=={version}\nPyTorch {version}"}, {200})
