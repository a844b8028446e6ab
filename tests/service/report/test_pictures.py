"""Charts as files, and the display of a notebook."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

import pytest
from typer.testing import CliRunner

import oomdoc
from oomdoc.report.terminal import diagnosis_html, estimate_html

JOB = {"model": "Qwen/Qwen2.5-7B", "method": "lora", "micro_batch": 2, "seq_len": 2048, "gpu": "RTX 4090"}
SETS = [word for name, value in JOB.items() for word in ("--set", f"{name}={value}")]


class Balance(HTMLParser):
    """Every tag closed in order; which tags and attributes there are."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen |= {tag, *(name for name, _ in attrs)}
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def parsed(html: str) -> Balance:
    page = Balance()
    page.feed(html)
    assert page.open == []
    return page


@pytest.mark.parametrize("ending", ["svg", "png"])
@pytest.mark.parametrize("command", ["estimate", "plan", "diagnose"])
def test_charts_are_written(command: str, ending: str, tmp_path: Path, root: Path) -> None:
    pytest.importorskip("matplotlib")
    from oomdoc.cli.main import app

    path = tmp_path / f"memory.{ending}"
    example = root / "examples" / "dpo-v100"
    words = {
        "estimate": ["estimate", *SETS],
        "plan": ["plan", *SETS],
        "diagnose": ["diagnose", str(example / "train.log"), "--config", str(example / "train.yaml"), "--no-plans"],
    }[command]
    done = CliRunner().invoke(app, [*words, "--chart", str(path)])
    assert done.exit_code in (0, 3), done.output
    data = path.read_bytes()
    assert len(data) > 5000
    assert data.startswith(b"\x89PNG" if ending == "png" else b"<?xml")
    if ending == "svg":
        # One rectangle per phase and term, far more than axes alone have.
        assert data.count(b"<path") > 20


def test_a_chart_of_nothing_is_an_error(tmp_path: Path) -> None:
    from oomdoc.cli.main import app

    log = tmp_path / "log.txt"
    log.write_text("CUDA out of memory. Tried to allocate 2.00 GiB")
    done = CliRunner().invoke(app, ["diagnose", str(log), "--no-plans", "--chart", str(tmp_path / "x.svg")])
    assert "nothing to draw" in str(done.exception)
    assert not (tmp_path / "x.svg").exists()


def test_an_estimate_in_a_notebook() -> None:
    report = oomdoc.estimate(JOB)
    html = report._repr_html_()
    page = parsed(html)
    assert not page.seen & {"script", "link", "img", "iframe", "src", "href", "onclick"}
    assert f"{report.document()['peak_gib']['process']:.2f}" in html
    assert html.count("█") >= len(report.estimate.phases)
    assert "color: #" in html


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_diagnosis_in_a_notebook(language: str, root: Path) -> None:
    text = (root / "examples" / "dpo-v100" / "train.log").read_text()
    config = (root / "examples" / "dpo-v100" / "train.yaml").read_text()
    report = oomdoc.diagnose(text, configs={"train.yaml": config}, language=language)
    page = parsed(report._repr_html_())
    assert not page.seen & {"script", "link", "img", "iframe", "src", "href", "onclick"}
    assert "logits" in report._repr_html_()
    assert ("原因" if language == "zh" else "Causes") in report._repr_html_()


def test_what_was_pasted_cannot_become_markup() -> None:
    evil = '<script>alert("x")</script>'
    document = oomdoc.diagnose("CUDA out of memory. Tried to allocate 2.00 GiB", plans=False).document()
    document |= {"summary": evil, "warnings": [evil], "questions": [{"fact": evil, "why": evil}]}
    document["causes"] = [{"cause": evil, "probability": 0.5, "why": [evil], "evidence": []}]
    change = {"key": evil, "from": 1, "to": evil, "instruction": None, "saves_gib": 0.0}
    document["plans"] = [{"name": evil, "changes": [change], "peak_gib": 1, "fits_probability": 0.5, "patch": evil}]
    document["plans"][0] |= {"safety": "same-numbers", "relative_speed": 1.0, "notes": [evil]}
    html = diagnosis_html(document, "en")
    parsed(html)
    assert "<script" not in html
    estimate = oomdoc.estimate(JOB).document()
    estimate["phases"] = {"backward": {"total_gib": 1.0, "terms": {'"><script>': 1.0}}}
    assert "<script" not in estimate_html(estimate, "en")
