"""DeepSpeed configurations by name: what a path says of stage and offload, and the path for another stage."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

_STAGE: Final = re.compile(r"(?:zero|stage|zo|ds_z|ds_zero|z|s)[-_]?([0-3])(?![0-9])", re.I)


def stage_and_offload(path: str, offloading: Collection[str] = ()) -> tuple[int | None, tuple[str, ...]]:
    """What the name of a DeepSpeed configuration says: its stage, and what is offloaded.

    ``ds_z3_offload_config.json`` offloads optimizer and parameters, ``zero2_offload`` the optimizer.

    :param offloading: files that offload the optimizer although their names do not say so.
    """
    name = path.rsplit("/", 1)[-1].lower()
    match = _STAGE.search(name)
    stage = int(match[1]) if match else None
    offload: tuple[str, ...] = ()
    if _offloads(name):
        after = name.split("offload")[-1]
        if "all" in after:
            offload = ("optimizer", "param")
        elif "param" in name:
            offload = ("param",)
        elif "opt" in after or stage != 3:
            offload = ("optimizer",)
        else:
            offload = ("optimizer", "param")
    elif name in offloading:
        offload = ("optimizer",)
    return stage, offload


def _offloads(name: str) -> bool:
    return "offload" in name and re.search(r"no[-_]?(?:cpu[-_]?)?offload|without", name) is None


def name_for(old: str | None, stage: int, offload: tuple[str, ...], template: str) -> str | None:
    """The path for a stage and offload, in the manner of ``old``; ``None`` where no name can be derived.

    :param template: how the framework's own files are named: ``{stage}``, ``{offload}`` or ``{_offload}`` (the word
        with its dash), ``{_cpuoffload}`` (``_bf16_cpuoffload_all`` of stage 3); empty where it brings none.
    """
    own = template.rpartition("/")[2]
    if old and not old.lstrip().startswith("{"):
        head, slash, name = old.rpartition("/")
        if "{_cpuoffload}" in own:
            return f"{head}{slash}{_filled(own, stage, offload, bf16='bf16' in name)}"
        match = _STAGE.search(name)
        if match is None:
            return None
        start, end = match.span(1)
        name = name[:start] + str(stage) + name[end:]
        had = _offloads(name.lower())
        wants = bool(offload) and stage >= 2
        if wants and not had and ("offload" not in template or "offload" in name.lower()):
            return None  # whether there is such a file, nobody knows
        if wants and not had:
            stop = start + 1
            name = f"{name[:stop]}_offload{name[stop:]}"
        elif had and not wants:
            name = re.sub(r"[-_]?(?:cpu)?offload", "", name, count=1, flags=re.I)
        return f"{head}{slash}{name}"
    return _filled(template, stage, offload, bf16=True) if template else None


def _filled(template: str, stage: int, offload: tuple[str, ...], *, bf16: bool) -> str:
    word = "offload" if offload and stage >= 2 else ""
    cpu = "_bf16" if bf16 or offload else ""
    if offload:
        cpu += "_cpuoffload_all" if "optimizer" in offload and "param" in offload else "_cpuoffload_params"
    return template.format(
        stage=stage,
        offload=word + "_" if word else "",
        _offload="_" + word if word else "",
        _cpuoffload=cpu if stage == 3 else "",
    )
