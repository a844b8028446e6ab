"""What a wheel brings ready made: the encoder in eight bits, the index of the shipped cases, and the cases parsed.

``python -m oomkb.retrieval.prebuild FOLDER`` fills a folder of the layout of :mod:`oomkb.state` (``.ci/hatch_build.py``
puts it into the wheel as ``oomkb/_baked``), so that an installed oomdoc needs neither the exact weights nor ``onnx``,
and its first answer builds nothing. Everything in it is checked by its hash when it is opened.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Final

from oomkb.records import compiled
from oomkb.records.files import listed
from oomkb.records.loader import cases_dir, load
from oomkb.retrieval.index import build_index
from oomkb.retrieval.model_files import DEFAULT_NAME, find_model
from oomkb.retrieval.onnx_model import EIGHT_BIT_FILES, exported

_TOKENIZER_FILES: Final = ("tokenizer.json", "config.json", "sentence_bert_config.json", "1_Pooling/config.json")


def prebuild(target: Path) -> None:
    """Fill ``target`` with ``models/``, ``index/shipped/`` and ``cases.json``.

    :raises OomdocError: where the weights of the default model are missing or are not the known ones.
    """
    target.mkdir(parents=True, exist_ok=True)
    loaded = load((cases_dir(),))
    if loaded.problems:
        raise loaded.problems[0]
    with tempfile.TemporaryDirectory() as state:
        os.environ |= {"OOMDOC_STATE": state, "OOMDOC_EMBEDDING_MODEL": ""}
        files = find_model()
        place = target / "models" / DEFAULT_NAME
        export = exported(files)
        for folder, names in ((files.folder, _TOKENIZER_FILES), (export, EIGHT_BIT_FILES)):
            for name in names:
                (place / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(folder / name, place / name)
        build_index(loaded.cases)
        [scope] = (Path(state) / "index").iterdir()
        shutil.copytree(scope, target / "index" / "shipped", ignore=shutil.ignore_patterns(".*"))
    compiled.store_with_package(target, cases_dir(), listed(cases_dir()), loaded.cases)


if __name__ == "__main__":
    prebuild(Path(sys.argv[1]))
