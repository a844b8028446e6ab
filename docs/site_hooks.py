"""MkDocs hooks: the pages that are generated from the program itself, so that they cannot fall behind it.

Commands come from their own ``--help``, the job document and the HTTP API from their schemas, causes and cases from
the knowledge base, the fields of a case from its field guide.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    for path, text in generated():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: MkDocsConfig, files: Files) -> str:
    """Links that hold in the repository hold on the site: those that leave ``docs/`` become plain names."""
    return re.sub(r"\[([^\]]+)\]\((?:\.\./)+(?!zh/|causes/|cases/)[^)]*\)", r"`\1`", markdown)


def generated() -> Iterator[tuple[str, str]]:
    """Path and Markdown of each generated page."""
    yield "commands.md", commands()
    yield "job.md", job()
    yield "http.md", http()
    yield "writing-a-case.md", _repository_text("cases/README.md")
    yield "peers.md", peers()
    yield "measured.md", measured()
    yield "zh/causes.md", causes_overview("zh")
    yield "causes/index.md", causes_overview("en")
    yield "topics.md", topics_page("en")
    yield "zh/topics.md", topics_page("zh")
    yield from cause_pages()
    yield from case_pages()


def _repository_text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def commands() -> str:
    """Every command's help, as the terminal shows it."""
    import typer
    from typer.testing import CliRunner

    from oomdoc.cli.main import app

    out = ["# Commands", "", "What `oomdoc COMMAND --help` prints, generated from the program."]
    plain = {"NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "90", "TERMINAL_WIDTH": "90"}

    def describe(command: Any, names: tuple[str, ...]) -> None:
        if getattr(command, "hidden", False):
            return
        text = CliRunner().invoke(app, [*names, "--help"], env=plain, prog_name="oomdoc").output
        out.extend(["", f"## oomdoc {' '.join(names)}", "", "```text", text.strip("\n"), "```"])
        for name, part in getattr(command, "commands", {}).items():
            describe(part, (*names, name))

    for name, command in sorted(typer.main.get_command(app).commands.items()):  # type: ignore[attr-defined]
        describe(command, (name,))
    return "\n".join(out)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def job() -> str:
    """The job document: its fields from the one schema that every interface checks."""
    from oomdoc.stated import job_schema

    schema = job_schema()
    out = [
        "# The job document",
        "",
        "One run, as `oomdoc estimate`, `plan`, `POST /v1/estimate` and the MCP tools take it (YAML or JSON). What is",
        "not given is assumed and marked as assumed in the answer. Sizes are GiB. A name that no job has is refused by",
        "`--set`, the library's keyword arguments and the MCP tools, with the nearest one; in a job document it is",
        "kept and, where it is spelt almost like a field, named under `warnings`.",
        "",
        *_schema_table(schema),
        "",
        "```json",
        json.dumps(schema.get("examples", [{}])[0], indent=2, ensure_ascii=False),
        "```",
    ]
    for name, part in schema.get("$defs", {}).items():
        out.extend(["", f"## {name}", "", part.get("description", ""), "", *_schema_table(part)])
    return "\n".join(out)


def _schema_table(schema: dict[str, Any]) -> list[str]:
    rows = ["| field | type | meaning |", "| --- | --- | --- |"]
    for name, field in schema.get("properties", {}).items():
        rows.append(f"| `{name}` | {_type_of(field)} | {_cell(field.get('description', ''))} |")
    return rows


def _type_of(field: dict[str, Any]) -> str:
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"])
    if "const" in field:
        return f"`{field['const']}`"
    if "$ref" in field:
        return str(field["$ref"]).rpartition("/")[2]
    for key in ("anyOf", "oneOf"):
        if key in field:
            return " or ".join(dict.fromkeys(_type_of(part) for part in field[key]))
    kind = field.get("type", "any")
    if isinstance(kind, list):
        return " or ".join(kind)
    return f"list of {_type_of(field['items'])}" if kind == "array" and "items" in field else str(kind)


def http() -> str:
    """The HTTP API from its OpenAPI document."""
    from oomdoc.api.app import create_app

    document = create_app().openapi()
    out = [
        "# HTTP API",
        "",
        "`oomdoc serve` answers these. `GET /openapi.json` is this page for programs; `GET /docs` shows it in a",
        "browser.",
        "Errors are `application/problem+json` with `where` and `hint`. Where keys are required, send",
        "`Authorization: Bearer KEY`.",
        "",
    ]
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            text = operation.get("description") or operation.get("summary", "")
            out.extend([f"## {method.upper()} {path}", "", text, ""])
            parameters = operation.get("parameters", [])
            if parameters:
                out.extend(["| parameter | in | meaning |", "| --- | --- | --- |"])
                out.extend(f"| `{p['name']}` | {p['in']} | {_cell(p.get('description', ''))} |" for p in parameters)
                out.append("")
            body = operation.get("requestBody", {}).get("content", {})
            for kind, content in body.items():
                name = str(content.get("schema", {}).get("$ref", "")).rpartition("/")[2]
                part = document.get("components", {}).get("schemas", {}).get(name)
                out.extend([f"Body: `{kind}`", ""])
                if part:
                    out.extend([*_schema_table(part), ""])
    return "\n".join(out)


def measured() -> str:
    """Every stated figure, unseen and training apart, from ``bench/results/figures.toml``."""
    out = [
        "# Measured",
        "",
        "Figures on texts, traces or published runs that a rule, example, weight or formula was made from are",
        "*training* figures. *Unseen* ones stand first: input that nothing was made from, run once.",
    ]
    for section in tomllib.loads((ROOT / "bench/results/figures.toml").read_text(encoding="utf-8"))["section"]:
        out.extend(["", f"## {section['title']}", "", section["note"].strip(), ""])
        if "figure" in section:
            out.extend(["| what | unseen | training | command |", "| --- | --- | --- | --- |"])
        for row in section.get("figure", ()):
            commands = "<br>".join(f"`{part.strip()}`" for part in row["command"].split(";"))
            out.append(f"| {row['what']} | {row.get('unseen', '')} | {row.get('training', '')} | {commands} |")
    return "\n".join(out)


def peers() -> str:
    """The table of ``bench/peers.py``."""
    result = json.loads((ROOT / "bench/results/peers.json").read_text(encoding="utf-8"))
    out = [
        "# Beside other estimators",
        "",
        f"The peak of allocated tensors of {result['jobs']} exactly traced training steps on one GPU (full and LoRA,",
        "33 architectures), as each public estimator prices it. What a tool adds for the CUDA context or as margin is",
        "taken off, the exact number of parameters is given to all, and a refused job is not charged to a tool.",
        "The traces were used to check oomdoc's formulas: its row is a training figure (kept-back steps: 0.01-0.08 %).",
        "The tools aim at other targets than this one, some at a whole process on one card or at model states alone.",
        "",
        "| tool | priced | mean error | median | worst | more than 10 % too low |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for row in result["tools"]:
        errors = [f"{row[f'{kind}_error_percent']} %" for kind in ("mean", "median", "worst")]
        out.append(
            f"| {row['package'].replace('==', ' ')} | {row['priced']} of {row['of']} | {' | '.join(errors)} "
            f"| {row['too_low_by_10_percent']} |"
        )
    out.extend(["", "What was refused:", ""])
    out.extend(f"- {row['tool']}: {text.replace('<', '&lt;')}" for row in result["tools"] for text in row["refusals"])
    return "\n".join([*out, "", "`python bench/peers.py` makes the environment and prints this table."])


def causes_overview(language: str) -> str:
    """The causes with one line each."""
    from oomdoc.report.words import word
    from oomkb.records.loader import load_cases
    from oomkb.records.taxonomy import CAUSES

    counts: dict[str, int] = {}
    for case in load_cases(None):
        counts[case.cause] = counts.get(case.cause, 0) + 1
    at = 0 if language == "en" else 1
    head = {
        "en": ("# Causes and cases", "| cause | in words | when it is the root cause | cases |"),
        "zh": ("# 原因", "| 原因 | 含义 | 何时是根本原因 | 案例 |"),
    }[language]
    folder = "" if language == "en" else "../causes/"
    rows = [
        f"| [`{name}`]({folder}{name}.md) | {_cell(word(f'cause.{name}.title', language))} "
        f"| {_cell(text[at])} | {counts.get(name, 0)} |"
        for name, text in CAUSES.items()
    ]
    return "\n".join([head[0], "", head[1], "| --- | --- | --- | --- |", *rows])


def cause_pages() -> Iterator[tuple[str, str]]:
    """One page per cause: its text in both languages and its cases."""
    from oomdoc.diagnosis.pages import page
    from oomkb.records.loader import load_cases
    from oomkb.records.taxonomy import CAUSES

    cases = load_cases(None)
    for name in CAUSES:
        own = [case for case in cases if case.cause == name]
        listed = [f"- [{case.title['en']}](../cases/{case.id}.md)" for case in own]
        parts = [f"# {name}", "", *_as_markdown(page(name, "en")), "", "## 中文", "", *_as_markdown(page(name, "zh"))]
        yield f"causes/{name}.md", "\n".join([*parts, "", "## Cases", "", *listed])


def _as_markdown(text: str) -> list[str]:
    out = []
    for line in text.split("\n"):
        is_heading = bool(line) and not line.startswith(" ") and len(line) < 20
        out.extend(["", f"**{line}**", ""] if is_heading else [line.strip().replace("<", "&lt;")])
    return out


def topics_page(language: str) -> str:
    """Every topic with its answer, what the memory model computes for it, and its sources."""
    from oomdoc.diagnosis.explaining import figure_of
    from oomdoc.report.words import render
    from oomkb.memory.job import Job
    from oomkb.topics import topics

    head = {
        "en": ("# Topics", "What there is to know about one concept of memory."),
        "zh": ("# 主题", "关于显存与内存的各个概念。"),
    }
    out = [*head[language]]
    for topic in topics().values():
        figure = figure_of(topic, Job())
        out += ["", f"## {topic.title[language]} {{#{topic.id}}}", "", _cell(topic.answer[language]), ""]
        out += [render(figure, language), ""] if figure is not None else []
        out += [f"- {f'<{source}>' if source.startswith('https') else source}" for source in topic.sources]
    return "\n".join(out)


def case_pages() -> Iterator[tuple[str, str]]:
    """One page per case."""
    from oomkb.records.loader import load_cases

    for case in load_cases(None):
        out = [f"# {case.title['en']}", "", f"*{case.title['zh']}*", ""]
        out.extend([f"Cause: [`{case.cause}`](../../causes/{case.cause}.md)", "", case.summary["en"], ""])
        out.extend([case.summary["zh"], "", "## Why", "", case.why["en"], "", case.why["zh"], ""])
        out.extend(["## Symptoms", "", *(f"```\n{text}\n```" for text in case.symptoms), ""])
        if case.fixes:
            out.extend(["## Fixes", ""])
            out.extend(f"- {fix.text['en']} — {fix.text['zh']} (*{fix.status}*)" for fix in case.fixes)
        out.extend(["", "## References", "", *(f"- {r.role}: <{r.url}>" for r in case.references)])
        yield f"cases/{case.cause}/{case.slug}.md", "\n".join(out)
