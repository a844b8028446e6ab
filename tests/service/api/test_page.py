"""The page in a real Chromium: paste → answer → patch → what-if, both languages, nothing from elsewhere."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
QUIET = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    yield from served(tmp_path_factory.mktemp("page"), {})


def served(folder: Path, settings: dict[str, str]) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {**os.environ, "OOMDOC_DATABASE_URL": f"sqlite:///{folder}/oomdoc.db", **settings}
    command = [sys.executable, "-m", "oomdoc", "serve", "--port", str(port)]
    server = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    for _ in range(600):
        try:
            urllib.request.urlopen(f"{url}/healthz", timeout=1).read()
            break
        except OSError:
            time.sleep(0.1)
    yield url
    server.terminate()
    server.wait(timeout=30)


@pytest.fixture
def page(address: str) -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        opened = browser.new_page()
        opened.problems = []
        opened.elsewhere = []
        opened.on("console", lambda message: opened.problems.append(message.text) if message.type == "error" else None)
        opened.on("pageerror", lambda error: opened.problems.append(str(error)))
        opened.on(
            "request",
            lambda r: None if r.url.startswith((address, "blob:", "data:")) else opened.elsewhere.append(r.url),
        )
        opened.goto(address)
        opened.wait_for_selector("body[data-ready]")
        yield opened
        assert opened.problems == []
        assert opened.elsewhere == []
        browser.close()


def ask(page: Any, text: str) -> None:
    page.fill("#text", text)
    page.click("#go")
    page.wait_for_selector("#answer:not([hidden])", timeout=60_000)


def test_paste_answer_patch_what_if(page: Any, root: Path) -> None:
    folder = root / "examples" / "dpo-v100"
    ask(page, (folder / "train.yaml").read_text() + "\n" + (folder / "train.log").read_text())
    assert "logits" in page.inner_text("#headline")
    assert page.locator("#memory .phase").count() >= 4
    assert page.locator("#causes .evidence").count() >= 1
    assert "cutoff_len" in page.inner_text("#plans pre")
    with page.expect_download() as download:
        page.click("#plans a[download]")
    assert download.value.suggested_filename.endswith(".patch")

    before = page.inner_text("#memory")
    page.focus("#slider-seq_len")
    page.keyboard.press("ArrowLeft")
    page.wait_for_function(
        "before => document.getElementById('memory').innerText !== before", arg=before, timeout=30_000
    )

    page.fill("#turn", "cutoff 2048")
    page.keyboard.press("Enter")
    page.locator("#turns .me", has_text="GiB").wait_for(timeout=60_000)
    assert page.locator("#history li").count() == 1


def test_chinese_dark_and_hostile_text(page: Any) -> None:
    page.click("#language")
    page.get_by_role("button", name="诊断").wait_for()
    page.click("#theme")
    assert page.get_attribute("html", "data-theme") in ("light", "dark")
    ask(page, "<img src=x onerror=alert(1)> CUDA out of memory. Tried to allocate 2.00 GiB <script>alert(2)</script>")
    assert page.locator("#answer img").count() == 0
    assert any("一" <= c <= "鿿" for c in page.inner_text("#headline"))


def test_files_can_be_chosen(page: Any, root: Path) -> None:
    page.set_input_files(
        "#files",
        [str(root / "examples" / "lora-4090" / "train.log"), str(root / "examples" / "lora-4090" / "train.yaml")],
    )
    assert page.locator("#chosen li").count() == 2
    page.click("#go")
    page.wait_for_selector("#answer:not([hidden])", timeout=60_000)
    assert page.locator("#facts tr").count() >= 3


def test_an_empty_box_says_what_to_do(page: Any) -> None:
    page.click("#go")
    assert "paste a log" in page.inner_text("#status")


def test_the_api_reference_is_shown_from_the_servers_own_files(page: Any, address: str) -> None:
    page.goto(f"{address}/docs")
    page.get_by_text("/v1/diagnose").first.wait_for(timeout=30_000)


def test_a_required_key_is_asked_for_and_kept_for_the_tab_only(tmp_path: Path) -> None:
    playwright = pytest.importorskip("playwright.sync_api")
    key = "0123456789abcdef0123"
    for url in served(tmp_path, {"OOMDOC_AUTH": "required", "OOMDOC_API_KEYS": f"{key}:read+write"}):
        with playwright.sync_playwright() as driver:
            browser = driver.chromium.launch(executable_path=CHROMIUM, args=QUIET)
            page = browser.new_page()
            page.goto(url)
            page.wait_for_selector("body[data-ready]")
            page.fill("#text", "CUDA out of memory. Tried to allocate 2.00 GiB")
            page.click("#go")
            page.wait_for_selector("#key-form:not([hidden])")
            for attempt in ("a-wrong-key-of-some-length", key):
                page.fill("#key", attempt)
                with page.expect_response("**/v1/diagnose", timeout=60_000):
                    page.keyboard.press("Enter")
            page.wait_for_selector("#answer:not([hidden])", timeout=60_000)
            assert page.evaluate("sessionStorage.getItem('oomdoc.key')") == key
            assert key not in str(page.evaluate("JSON.stringify(localStorage)"))
            browser.close()
