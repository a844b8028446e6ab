"""Finding the pieces of configuration in a text: whole files by name, fences, and runs of lines in prose and logs."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

from oomdoc.intake.configs.declared import all_names
from oomdoc.intake.configs.entry import FormError
from oomdoc.intake.configs.forms.syntax import syntax_tree
from oomdoc.intake.configs.table import norm
from oomdoc.intake.configs.wordlist import meanings
from oomdoc.intake.sieve import Expression
from oomkb.dataclass import dataclass
from oomkb.kept import compiled

_NAME: Final = compiled(r"[A-Za-z_][\w.-]{0,100}")
_FENCE: Final = compiled(r"^[ \t>]{0,12}(`{3,10}|~{3,10})[ \t]{0,8}([\w+-]{0,20})[^\n]{0,200}\n", re.M)
_EXTENSIONS: Final = meanings("file")
_LANGUAGES: Final = meanings("fence")
_PROGRAM: Final = (
    r"(?:\S{0,80}/)?(?:python[0-9.]{0,5}|torchrun|accelerate|deepspeed|swift|megatron|llamafactory-cli|lmf|trl|axolotl"
    r"|tune|xtuner|vllm|sglang|lmdeploy|docker|podman|bash|srun|sbatch|salloc|ray|mpirun|mpiexec|horovodrun|text-generation-launcher|nemo|uv|poetry"
    r"|litgpt|mlx_lm(?:\.lora|[ \t]+lora)|lm[_-]eval|composer|trtllm-(?:serve|bench)|llama-(?:server|cli))"
)
_WORDS_OF_COMMAND: Final = 5
"""Words without any option, value, path or file that a command has at most."""
_ARGUMENT: Final = compiled(r"\s-|=|/|\\\s*$|\.(?:py|ya?ml|json|sh|toml|gguf|bin)\b")
_COMMAND: Final = Expression(
    r"[ \t]{0,20}(?:[$!%>#][ \t]{0,3})?(?:export[ \t]+)?(?:[A-Za-z_]\w{0,60}=[^\s;]{0,300}[ \t\\]+){0,20}"
    r"(?:nohup[ \t]+|sudo[ \t]+|exec[ \t]+|time[ \t]+|uv run[ \t]+)?" + _PROGRAM + r"[ \t]+\S"
)
_INLINE: Final = Expression(
    r"(?<![\w./-])(?:torchrun|deepspeed|accelerate launch|llamafactory-cli|swift (?:sft|pt|rlhf|infer|deploy|rollout)|"
    r"megatron (?:sft|pt|rlhf)|"
    r"vllm serve|tune run|xtuner train|trl (?:sft|dpo|grpo|kto|vllm-serve)|axolotl train|lmdeploy serve|"
    r"text-generation-launcher|sglang serve|trtllm-serve|llama-server|mlx_lm\.lora|"
    r"python[0-9.]{0,5} (?:-m |-u )?[\w./-]{1,100})(?=[ \t])"
)
_ENV: Final = compiled(
    r"[ \t]{0,20}(?:export[ \t]+)?[A-Z][A-Z0-9_]{2,60}="
    r"(?![^\s\"']{1,200}[,.;:]? (?:to|for|or|and|if|is|was|in|on|as|can|may|with|when|before)\b)[^\s=]"
)
"""An assignment that does not stand in a sentence ("X=1 to avoid this")."""
_OUTPUT: Final = compiled(
    r"^[ \t]{0,8}(?:\[\w{1,12}\]: ?)?(?:Traceback \(most recent call last\)|File \"|[\w.]{1,80}(?:Error|Exception): |"
    r"\[?\d{4}-\d\d-\d\d[T ])",
    re.M,
)
"""Lines that programs print and nobody runs."""
_FLAGS: Final = compiled(r"[ \t]{0,20}--?[A-Za-z][\w.-]{1,80}(?:[ =\t]|\\?$)")
_OVERRIDE: Final = compiled(r"[ \t]{0,20}\+{0,2}[A-Za-z_]\w{0,60}(?:\.[\w/@-]{1,60}){1,8}=")
_PAIR: Final = compiled(
    r"[ \t]{0,40}(?:-[ \t]{1,4})?[A-Za-z_\"'][\w.\-\"']{0,80}[ \t]{0,6}:(?:[ \t]{1,20}\S|[ \t]{0,20}$)"
)
_LIST: Final = compiled(r"[ \t]{0,40}-[ \t]{1,4}[\w\"'./-]")
_CALL: Final = Expression(
    r"[ \t]{0,40}(?:[\w.\[\]\"', ]{1,80}=[ \t]{0,4})?[\w.]{0,80}"
    r"(?:Config|Arguments|Args|from_pretrained|get_peft_model|LLM|"
    r"Trainer|dict|Accelerator|Plugin|pipeline|recipe)\((?!\))"
)
_IMPORT: Final = compiled(r"^[ \t]{0,8}(?:import [A-Za-z_]|from [\w.]{1,80} import )", re.M)
_ASSIGNED: Final = compiled(r"[ \t]{0,8}[A-Za-z_][\w.\-]{0,80}[ \t]{0,12}=[ \t]{0,12}[^=\s]")
_SECTION: Final = compiled(r"[ \t]{0,4}\[{1,2}[A-Za-z_][\w.\- \"]{0,80}\]{1,2}[ \t]*$")
_ANY_DIGIT: Final = bytes.maketrans(b"123456789", b"000000000")
_REQUEST: Final = compiled(r"^[ \t]{0,8}#(?:SBATCH|PBS)[ \t]", re.M)
_HEAD_CHARS: Final = 4000
"""How far before its first command a batch job's requests may begin."""
_MAX_RUN: Final = 3000
_MAX_LINES: Final = 30_000
_LOOKAHEAD: Final = 60_000
"""Lines looked at ahead of their turn, in all: unbalanced brackets must not cost the square."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of the text and the form it seems to have; ``loose`` where nothing but scattered keys can be in it."""

    form: str
    start: int
    end: int
    whole_file: bool = False
    fenced: bool = False


def form_of(name: str) -> str | None:
    """The form that a file's name promises."""
    base = name.rsplit("/", 1)[-1].lower()
    if base.startswith("modelfile") or base.endswith(".modelfile"):
        return "modelfile"
    dot = base.rfind(".")
    return _EXTENSIONS.get(base[dot:]) if dot >= 0 else None


def segments(name: str, text: str) -> Iterator[Segment]:
    """The pieces of configuration in a text, in order; what is between them is ``loose``."""
    form = form_of(name)
    if form is not None:
        yield Segment(form, 0, len(text), whole_file=True)
        return
    at = 0
    for start, end, language in _fences(text):
        yield from _runs(text, at, start)
        inner = _LANGUAGES.get(language.lower())
        if inner is None or (inner == "shell" and _OUTPUT.search(text, start, end) is not None):
            inner = "python" if _IMPORT.search(text, start, end) is not None else None
        if inner is None:
            yield from (replace(run, fenced=True) for run in _runs(text, start, end))
        else:
            yield Segment(inner, start, end, fenced=True)
        at = end
    yield from _runs(text, at, len(text))


def _fences(text: str) -> Iterator[tuple[int, int, str]]:
    opened: re.Match[str] | None = None
    for match in _FENCE.finditer(text):
        if opened is None:
            opened = match
        elif match[1][:3] == opened[1][:3] and not match[2]:
            yield opened.end(), match.start(), opened[2]
            opened = None
    if opened is not None:
        tail = text.find(opened[1], opened.end())
        yield opened.end(), tail if tail > 0 else len(text), opened[2]


class _Lines:
    """The lines of a stretch of text by offset."""

    def __init__(self, text: str, start: int, end: int) -> None:
        self.text, self.end = text, end
        self.looked = 0
        low = text[start:end].lower()
        self.words = {e: [lit for lit in e.literals if lit in low] for e in (_COMMAND, _INLINE, _CALL)}
        """Of what each of the dearer expressions needs, what there is at all."""
        self.starts: list[int] = []
        self.lines = text[start:end].split("\n", _MAX_LINES)[:_MAX_LINES]
        if self.lines[-1] == "" and len(self.lines) < _MAX_LINES:
            self.lines.pop()
        plain = "\n".join(self.lines).encode("utf-8", "surrogatepass").translate(_ANY_DIGIT)
        self.shapes = plain.decode("utf-8", "surrogatepass").split("\n")
        """The lines with every digit made a zero: which digits they are is all the same to every expression here."""
        self.nothing: set[str] = set()
        """Shapes of lines in which no run begins."""
        at = start
        for line in self.lines:
            self.starts.append(at)
            at += len(line) + 1

    def span(self, index: int) -> tuple[int, int]:
        start = self.starts[index]
        if index + 1 < len(self.starts):
            return start, self.starts[index + 1]
        stop = self.text.find("\n", start, self.end)
        return start, self.end if stop < 0 else stop + 1

    def line(self, index: int) -> str:
        return self.lines[index][:4000].rstrip("\r\n")

    def may_match(self, expression: Expression, lowered: str) -> bool:
        """Whether it is worth while to try the expression on a line, given in lower case."""
        return any(word in lowered for word in self.words[expression])

    def __len__(self) -> int:
        return len(self.starts)


def _runs(text: str, start: int, end: int) -> Iterator[Segment]:
    if end <= start or text[start:end].isspace():
        if end > start:
            yield Segment("loose", start, end)
        return
    lines = _Lines(text, start, end)
    loose_from = start
    index = 0
    while index < len(lines):
        found = _run_at(lines, index)
        if found is None:
            index += 1
            continue
        form, _first, last, begin = found
        asked = _REQUEST.search(text, loose_from, begin) if form == "shell" else None
        if asked is not None and begin - asked.start() < _HEAD_CHARS:
            begin = asked.start()
        if begin > loose_from:
            yield Segment("loose", loose_from, begin)
        stop = lines.span(last)[1]
        yield Segment(form, begin, stop)
        loose_from = stop
        index = last + 1
    if end > loose_from:
        yield Segment("loose", loose_from, end)


def _run_at(lines: _Lines, index: int) -> tuple[str, int, int, int] | None:
    """A run that begins in this line: form, first and last line, offset."""
    if lines.shapes[index] in lines.nothing:
        return None
    line = lines.line(index)
    stripped = line.lstrip()
    if not stripped:
        return None
    start, low = lines.span(index)[0], line.lower()
    command = lines.may_match(_COMMAND, low) and _COMMAND.match(line) and not _is_sentence(line)
    if command or ("=" in line and _ENV.match(line)):
        return "shell", index, _shell_end(lines, index), start
    if stripped[0] == "-" and _FLAGS.match(line) and not stripped.startswith("---"):
        return "shell", index, _shell_end(lines, index), start
    if low.startswith(("import ", "from ")) and _IMPORT.match(line) and (last := _script_end(lines, index)) > index:
        return "python", index, last, start
    if lines.may_match(_CALL, low) and _CALL.match(line):
        return "python", index, _balanced_end(lines, index, "(", ")"), start
    if stripped[:1] == "{" and (stripped.rstrip() == "{" or '"' in stripped or "'" in stripped):
        last = _balanced_end(lines, index, "{", "}")
        if last == index and not _settings_in(line):
            # What a trainer prints at every step: there are thousands of them.
            lines.nothing.add(lines.shapes[index])
            return None
        return "json", index, last, start
    if stripped[0] == "[" and _SECTION.match(line) and (last := _sections_end(lines, index)) > index + 1:
        return "toml", index, last, start
    if ":" in line and _PAIR.match(line) and _pair_count(lines, index) >= 2:
        return "yaml", index, _pair_end(lines, index), start
    inline = _INLINE.search(line) if lines.may_match(_INLINE, low) else None
    if inline and (" --" in line[inline.start() :] or "=" in line[inline.start() :]):
        return "shell", index, _shell_end(lines, index), start + inline.start()
    if "=" in line and _OVERRIDE.match(line):
        return "shell", index, _shell_end(lines, index), start
    if ":" not in line or not _PAIR.match(line):
        lines.nothing.add(lines.shapes[index])
    return None


def _is_sentence(line: str) -> bool:
    """Whether a line that begins with a program's name speaks of it: many words, no option, value, path or file."""
    return len(line.split()) > _WORDS_OF_COMMAND and _ARGUMENT.search(line) is None


def _settings_in(line: str) -> bool:
    """Whether a line of JSON has a key that any framework reads."""
    return not all_names().isdisjoint(norm(name) for name in _NAME.findall(line))


def _sections_end(lines: _Lines, index: int) -> int:
    """The last line of a TOML (or INI) text whose first section begins there: sections, assignments, comments."""
    return _run_end(lines, index, lambda line: bool(_SECTION.match(line) or _ASSIGNED.match(line)), lambda line: False)


def _run_end(lines: _Lines, index: int, is_part: Callable[[str], bool], may_pass: Callable[[str], bool]) -> int:
    """The last part of a run that begins there; blank lines, comments and what may pass stand between."""
    last = probe = index
    while probe + 1 < len(lines) and probe - index < _MAX_RUN:
        probe += 1
        line = lines.line(probe)
        if is_part(line):
            last = probe
        elif line.strip() and not line.lstrip().startswith("#") and not may_pass(line):
            break
    return last


def _shell_end(lines: _Lines, index: int) -> int:
    last = index
    while last + 1 < len(lines) and last - index < _MAX_RUN:
        current, following = lines.line(last).rstrip(), lines.line(last + 1)
        override = _OVERRIDE.match(following) and (following[:1] in " \t" or _OVERRIDE.match(current))
        continues = current.endswith("\\") or _FLAGS.match(following) or override
        flag_put_aside = current.lstrip().startswith("#") and following.lstrip("# \t").startswith("-")
        comment = following.lstrip().startswith("#") and (current.endswith("\\") or flag_put_aside)
        after_comment = current.lstrip().startswith("#") and following.lstrip().startswith("-")
        more = _ENV.match(following) or (_COMMAND.match(following) and not following.lstrip().startswith(("#", ">")))
        if not (continues or comment or after_comment or more):
            break
        last += 1
    return last


def _balanced_end(lines: _Lines, index: int, opening: str, closing: str) -> int:
    depth = 0
    for last in range(index, min(len(lines), index + 400)):
        lines.looked += 1
        if lines.looked > _LOOKAHEAD:
            break
        line = lines.line(last)
        depth += line.count(opening) - line.count(closing)
        if depth <= 0:
            return last
    return index


def _script_end(lines: _Lines, index: int) -> int:
    """The last line of a script that an import begins: as far as Python reads it; ``index`` where that is nowhere."""
    end = min(len(lines), index + _MAX_SCRIPT)
    lines.looked += end - index
    for _ in range(_ATTEMPTS if lines.looked <= _LOOKAHEAD else 0):
        code = "\n".join(lines.line(n) for n in range(index, end))
        try:
            tree = syntax_tree(code)
        except FormError as error:
            wrong = error.__cause__
            end = index + (wrong.lineno or 1) - 1 if isinstance(wrong, SyntaxError) else index
            while end > index and not lines.line(end - 1).strip():
                end -= 1
            if end - index < _LEAST_OF_SCRIPT:
                break
            continue
        if not any(isinstance(node, ast.Call) for node in ast.walk(tree)):
            return index
        return index + max(node.end_lineno or 1 for node in tree.body) - 1  # what is noted behind it is no part of it
    return index


_MAX_SCRIPT: Final = 600
"""Lines of a script that stands in a text without a fence."""
_ATTEMPTS: Final = 4
_LEAST_OF_SCRIPT: Final = 3
"""Lines from which what follows an import is a script."""


def _pair_count(lines: _Lines, index: int) -> int:
    count = 0
    for probe in range(index, min(index + 8, len(lines))):
        line = lines.line(probe)
        if _PAIR.match(line):
            count += 1
        elif line.strip() and not line.lstrip().startswith("#") and not _LIST.match(line):
            break
    return count


def _pair_end(lines: _Lines, index: int) -> int:
    return _run_end(
        lines, index, lambda line: bool(_PAIR.match(line) or _LIST.match(line)), lambda line: line[:1] in " \t"
    )
