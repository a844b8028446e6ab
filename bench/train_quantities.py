"""Fit the reader of quantities (``oomdoc.intake.quantities``).

usage: python bench/train_quantities.py [--write] [--hold-out NAME[,NAME]] [--test MARKED.txt ...]

Trained on ``bench/data/quantities/*.txt``: texts written for this project in which every number is marked with its role
(``⟦8k|length⟧``; a sign behind the role says that it is supposed, denied or of another run). Each file is of one
writer; ``--hold-out`` fits without some and prints how many of their numbers get their role. ``--test`` prints the same
for the shipped weights on marked texts of one's own.
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
from scipy import sparse
from scipy.optimize import minimize

from oomdoc.intake.linear import Linear, Softmax
from oomdoc.intake.quantities import reader
from oomdoc.intake.quantities.features import features_of, meanings_of, numbers_of
from oomdoc.intake.quantities.tokens import tokens_of
from oomkb.frameworks import FRAMEWORKS
from oomkb.tables import read_toml

DATA = Path(__file__).parent / "data" / "quantities"
SETTINGS = Path(reader.__file__).parents[1] / "prose" / "settings.toml"
MARK = re.compile(r"⟦([^|⟧]+)\|([a-z_]+?)([?x~]?)⟧")
SAME = {
    **dict.fromkeys(("heads", "hidden", "vocab", "experts"), "arch"),
    **dict.fromkeys(("frames", "count"), "count"),
}
"""Marked roles that are one role of the reader."""
MIN_SUPPORT = 3
"""Numbers that a feature must be seen with."""
PENALTY = 2e-6
STEPS = 100
SURE = 0.8


class Text(NamedTuple):
    """One marked text."""

    name: str
    text: str
    marks: tuple[tuple[int, int, str, str], ...]
    """Start, end, role and aspect."""
    header: tuple[str, ...]


def read_marked(path: Path) -> Iterator[Text]:
    """The texts of a file."""
    for block in re.split(r"(?m)^### ", path.read_text(encoding="utf-8"))[1:]:
        head, _, body = block.partition("\n")
        text, marks, last, body = "", list[tuple[int, int, str, str]](), 0, body.strip("\n")
        for found in MARK.finditer(body):
            text += body[last : found.start()]
            marks.append((len(text), len(text) + len(found[1]), found[2], found[3]))
            text, last = text + found[1], found.end()
        header = tuple(part.strip() for part in head.split("|"))
        yield Text(header[0], text + body[last:], tuple(marks), header)


ROLE_OF = {
    **dict.fromkeys(("seq_len", "max_model_len", "serving.max_model_len"), "length"),
    **dict.fromkeys(("micro_batch", "eval_micro_batch"), "micro_batch"),
    **dict.fromkeys(("micro_tokens", "serving.max_num_batched_tokens"), "batched_tokens"),
    **dict.fromkeys(("gpu_memory_utilization", "rollout.gpu_memory_utilization"), "utilization"),
    **dict.fromkeys(("serving.gpu_memory_utilization",), "utilization"),
    **dict.fromkeys(("_prompt_len", "prompt_len"), "prompt_tokens"),
    **dict.fromkeys(("_completion_len", "completion_len"), "output_tokens"),
    **dict.fromkeys(("cp", "sp"), "cp"),
    "_global_batch": "global_batch",
    "grad_accum": "grad_accum",
    "zero_stage": "zero_stage",
    "tp": "tp",
    "pp": "pp",
    "ep": "ep",
    "nodes": "nodes",
    "world": "gpu_count",
    "gpus": "gpus_per_node",
    "lora.r": "lora_r",
    "lora.alpha": "lora_alpha",
    "generations": "generations",
    "serving.max_num_seqs": "users",
}
"""What the value of a setting is of, by its job field or fact."""
VALUES = {
    **dict.fromkeys(
        ("length", "prompt_tokens", "output_tokens", "batched_tokens"), ("512", "2048", "4096", "8k", "32768")
    ),
    "utilization": ("0.9", "0.85", "0.5", ".92", "85%"),
    "zero_stage": ("1", "2", "3"),
}
"""Usual values, by role; of other roles small counts."""
COUNTS = ("1", "2", "4", "8", "16", "32", "64")
FORMS = (
    "{n}={v}",
    "{n} {v}",
    "--{n} {v}",
    "{n}: {v}",
    "set {n} to {v}",
    "{n} 设成 {v}",
    "{n}改成{v}",
    "{n} of {v}",
    "with {n} {v}, please",
)


def named_settings() -> Iterator[Text]:
    """Each name of a setting in some forms with a usual value: what keys and terms mean, which no text need show."""
    names: dict[str, str] = {}
    for framework in FRAMEWORKS:
        for row in framework.keys:
            for key in row.keys if row.field in ROLE_OF else ():
                names.setdefault(key.rpartition(":")[2].rpartition(".")[2], ROLE_OF[row.field])
    for fact, _, _, _, *spelt in read_toml(SETTINGS)["setting"]:
        role = ROLE_OF.get(fact.replace("rollout.tensor_parallel", "tp"))  # a split is one, whose ever it is
        for name in " ".join(spelt).split() if role is not None else ():
            names[name] = names[name.replace("_", " ")] = role
    for name, role in sorted(names.items()):
        seed = crc32(name.encode())
        for n in range(3):
            values = VALUES.get(role, COUNTS)
            value, form = values[(seed + n) % len(values)], FORMS[(seed // 7 + 2 * n) % len(FORMS)]
            text = form.format(n=name, v=value)
            at = text.rindex(value)
            yield Text(f"{name} {n}", text, ((at, at + len(value), role, ""),), ())


class Row(NamedTuple):
    """One number of a text."""

    features: set[int]
    role: str
    text: str
    start: int
    end: int
    name: str


def rows_of(texts: Iterable[Text]) -> Iterator[Row]:
    """The numbers that the reader finds, with the roles that they are marked with."""
    known = reader.roles()
    for text in texts:
        tokens = tokens_of(text.text)
        meanings = meanings_of(tokens)
        for at in numbers_of(tokens):
            token = tokens[at]
            marked = next((m[2] for m in text.marks if m[0] < token.end and token.start < m[1]), "none")
            if marked == "card" and token.unit == "G":
                marked = "card_memory"
            role = SAME.get(marked, marked)
            role = role if role in known else "other"
            yield Row(features_of(tokens, at, meanings), role, text.text, token.start, token.end, text.name)


def matrix(rows: Sequence[Any], columns: dict[int, int]) -> Any:
    """(numbers, features); each row has the length one."""
    indices, ends, data = list[int](), [0], list[float]()
    for row in rows:
        known = sorted(columns[f] for f in row.features if f in columns)
        indices += known
        data += [1 / np.sqrt(max(1, len(known)))] * len(known)
        ends.append(len(indices))
    parts = np.array(data, np.float32), np.array(indices, np.int32), np.array(ends)
    return sparse.csr_matrix(parts, (len(rows), len(columns)))


def fit(
    x: Any, y: np.ndarray[Any, Any], classes: int, steps: int = STEPS
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Weights (features, roles) and bias of a softmax."""
    n, d = x.shape
    transposed, target = x.T.tocsr(), np.eye(classes, dtype=np.float32)[y]

    def loss(flat: np.ndarray[Any, Any]) -> tuple[float, np.ndarray[Any, Any]]:
        w, b = flat[: d * classes].reshape(d, classes).astype(np.float32), flat[d * classes :].astype(np.float32)
        scores = x @ w + b
        scores -= scores.max(axis=1, keepdims=True)
        odds = np.exp(scores)
        total = odds.sum(axis=1, keepdims=True)
        g = (odds / total - target) / n
        value = float(-(scores[np.arange(n), y] - np.log(total[:, 0])).mean() + PENALTY / 2 * (w * w).sum())
        return value, np.concatenate([(transposed @ g + PENALTY * w).ravel(), g.sum(axis=0)]).astype(np.float64)

    options = {"maxiter": steps, "maxcor": 6}
    found = minimize(loss, np.zeros(d * classes + classes), jac=True, method="L-BFGS-B", options=options)
    return found.x[: d * classes].reshape(d, classes).astype(np.float32), found.x[d * classes :].astype(np.float32)


def softmax_of(
    rows: Sequence[Any], names: tuple[str, ...], key: str, min_support: int = MIN_SUPPORT, steps: int = STEPS
) -> Softmax:
    """The model of these rows, each with ``features`` and its ``role``, one of the names.

    :param min_support: rows that a feature must be seen with; ``steps``: the most that the fit takes.
    """
    seen = Counter(f for row in rows for f in row.features)
    columns = {f: n for n, f in enumerate(sorted(f for f, times in seen.items() if times >= min_support))}
    w, b = fit(matrix(rows, columns), np.array([names.index(row.role) for row in rows]), len(names), steps)
    return Softmax(key, names, columns, w, b)


def fitted(rows: Sequence[Row]) -> Softmax:
    """The reader's model of these numbers."""
    return softmax_of(rows, tuple(reader.roles()), key())


def show(title: str, found: Softmax, rows: Sequence[Row], wrong: int = 0) -> None:
    """How many numbers get their role, and how many of those that are said surely."""
    probable = found.probabilities([row.features for row in rows])
    best = probable.argmax(axis=1)
    right = np.array([found.names[k] == row.role for k, row in zip(best, rows, strict=True)])
    sure = probable.max(axis=1) >= SURE
    told = np.array([row.role not in ("other", "none", "count") for row in rows])
    print(
        f"{title}: {right.mean():.1%} of {len(rows)}; of memory {right[told].mean():.1%} of {told.sum()}; "
        f"sure {sure.mean():.1%}, right {right[sure].mean():.1%}",
        flush=True,
    )
    missed = Counter((row.role, found.names[k]) for row, k, ok in zip(rows, best, right, strict=True) if not ok)
    for (role, read), times in missed.most_common(wrong):
        print(f"  {times:4} {role} read as {read}")


def key() -> str:
    """The hash of the marked texts and the tables that the weights were fitted on."""
    tables = (SETTINGS, Path(reader.__file__).with_name("tokens.tsv"), Path(reader.__file__).with_name("roles.toml"))
    whole = sha256()
    for path in (*sorted(DATA.glob("*.txt")), *tables):
        whole.update(path.read_bytes())
    return whole.hexdigest()[:16]


def write_to(path: Path, found: Linear) -> None:
    """The weights in eight bits, a scale for each class; the smallest are left out."""
    scales = np.abs(found.weights).max(axis=0) / 127
    scales[scales == 0] = 1.0
    features = np.array(list(found.rows), dtype=np.uint32)
    small = np.round(found.weights / scales).astype(np.int8)
    small[np.abs(small) <= 1] = 0
    np.savez_compressed(
        path,
        key=found.key,
        names=np.array(found.names),
        features=features,
        weights=small,
        scales=scales,
        bias=found.bias,
    )


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--hold-out", default="")
    parser.add_argument("--test", nargs="*", type=Path, default=[])
    given = parser.parse_args()
    if given.test:
        for path in given.test:
            show(path.stem, reader.model(), list(rows_of(read_marked(path))), wrong=20)
        return
    named = list(rows_of(named_settings()))
    files = {path.stem: list(rows_of(read_marked(path))) for path in sorted(DATA.glob("*.txt"))}
    held = set(filter(None, given.hold_out.split(",")))
    found = fitted([*named, *(row for name, rows in files.items() if name not in held for row in rows)])
    for name in sorted(held):
        show(f"{name}, left out", found, files[name], wrong=12)
    if given.write:
        write_to(Path(reader.__file__).with_name(reader.WEIGHTS), found)


if __name__ == "__main__":
    main()
