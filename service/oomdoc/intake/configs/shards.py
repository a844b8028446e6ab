"""DeepSpeed configurations by name: what a path says of stage and offload, and the path for another stage."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["name_for", "stage_and_offload"]

_STAGE: Final = re.compile(r"(?:zero|stage|zo|ds_z|ds_zero|z|s)[-_]?([0-3])(?![0-9])", re.I)


def stage_and_offload(path: str, framework: str = "") -> tuple[int | None, tuple[str, ...]]:
    """What the name of a DeepSpeed configuration says: its stage, and what is offloaded.

    ``ds_z3_offload_config.json`` offloads optimizer and parameters, ``zero2_offload`` the optimizer; axolotl's
    ``zero2.json`` offloads the optimizer although its name does not say so (since 2024-01).
    """
    name = path.rsplit("/", 1)[-1].lower()
    match = _STAGE.search(name)
    stage = int(match[1]) if match else None
    offload: tuple[str, ...] = ()
    if "offload" in name and not re.search(r"no[-_]?offload|without", name):
        if "params" in name or "param" in name:
            offload = ("param",)
        elif "opt" in name.split("offload")[-1] and "all" not in name:
            offload = ("optimizer",)
        else:
            offload = ("optimizer", "param") if stage == 3 else ("optimizer",)
        if "all" in name.split("offload")[-1]:
            offload = ("optimizer", "param")
    elif framework == "axolotl" and name == "zero2.json":
        offload = ("optimizer",)
    return stage, offload


_DEFAULT: Final = {
    "llama-factory": "examples/deepspeed/ds_z{stage}_{offload}config.json",
    "ms-swift": "zero{stage}{_offload}",
    "axolotl": "deepspeed_configs/zero{stage}.json",
    "xtuner": "deepspeed_zero{stage}{_offload}",
}


def name_for(old: str | None, stage: int, offload: tuple[str, ...], framework: str) -> str | None:
    """The path for a stage and offload, in the manner of ``old``; ``None`` where no name can be derived."""
    template = _DEFAULT.get(framework)
    if old and not old.lstrip().startswith("{"):
        head, slash, name = old.rpartition("/")
        match = _STAGE.search(name)
        if framework == "axolotl":
            return f"{head}{slash}{_axolotl(stage, offload, bf16='bf16' in name)}"
        if match is None:
            return None
        start, end = match.span(1)
        name = name[:start] + str(stage) + name[end:]
        had = "offload" in name.lower()
        wants = bool(offload) and stage >= 2
        if wants and not had:
            stop = start + 1
            name = f"{name[:stop]}_offload{name[stop:]}"
        elif had and not wants:
            name = re.sub(r"[-_]?(?:cpu)?offload", "", name, count=1, flags=re.I)
        return f"{head}{slash}{name}"
    if template is None:
        return None
    if framework == "axolotl":
        return f"deepspeed_configs/{_axolotl(stage, offload, bf16=True)}"
    word = "offload" if offload and stage >= 2 else ""
    return template.format(stage=stage, offload=word + "_" if word else "", _offload="_" + word if word else "")


def _axolotl(stage: int, offload: tuple[str, ...], *, bf16: bool) -> str:
    if stage < 3:
        return f"zero{stage}.json"
    if "param" in offload and "optimizer" in offload:
        return "zero3_bf16_cpuoffload_all.json"
    if offload:
        return "zero3_bf16_cpuoffload_params.json"
    return "zero3_bf16.json" if bf16 else "zero3.json"
