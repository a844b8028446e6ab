"""What a script sets up before its loop: optimizer, dtype, wrappers, adapters' preparation, batches."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from oomdoc.intake.configs.scripts.found import Found, agreed
from oomdoc.intake.configs.scripts.knowledge import calls
from oomdoc.intake.configs.scripts.program import Program, chain
from oomdoc.intake.configs.scripts.roles import Roles, loads

_MAX_INTEGER: Final = 1 << 20
_GENERATIVE: Final = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration", "AutoModelForSeq2SeqLM")
_TRAINS: Final = 0.9
"""How sure a backward pass beside a language model is training it on text."""
_DEFAULT: Final = 0.6
"""Of what is the default of an option that a command may set."""


def setup_facts(program: Program, roles: Roles) -> Iterator[Found]:
    """Facts of the setup; of a field that two calls set differently, none."""
    for read in (
        _model,
        _optimizer,
        _dtype,
        _autocast,
        _checkpointing,
        _kbit,
        _sharding,
        _compiled,
        _batches,
        _synthetic,
        _lengths,
        _lightning,
    ):
        yield from agreed(read(program, roles))


def _whole(program: Program, node: ast.expr | None) -> int | None:
    value = program.value(node)
    return value if type(value) is int and 0 < value < _MAX_INTEGER else None


def _sure(program: Program, node: ast.expr | None) -> float:
    return _DEFAULT if program.is_option(node) else 1.0


def _first(call: ast.Call, program: Program, *names: str) -> ast.expr | None:
    return call.args[0] if call.args else program.keyword(call, *names)


def _model(program: Program, roles: Roles) -> Iterator[Found]:
    for call in program.calls:
        if not loads(program, call) or not program.happens(call):
            continue
        named = _first(call, program, "pretrained_model_name_or_path", "config")
        for made in program.bindings.get(chain(named), [])[:1]:
            if isinstance(made, ast.Call) and chain(made.func).endswith("Config.from_pretrained"):
                named = _first(made, program, "pretrained_model_name_or_path")
        value = program.value(named)
        if chain(call.func).rpartition(".")[0].endswith(_GENERATIVE) and any(map(_steps, program.modules)):
            yield Found("objective", "sft", program.offset(call), _TRAINS)
        if isinstance(value, str) and 2 < len(value) < 200:
            yield Found("model", value, program.offset(call), _sure(program, named))


def _optimizer(program: Program, roles: Roles) -> Iterator[Found]:
    for call in roles.optimizer_calls:
        at = program.offset(call)
        kind, how = roles.optimizer(call)
        if program.value(program.keyword(call, "optim_bits")) == 8:
            kind = calls().eight_bit.get(kind, kind)
        momentum = program.keyword(call, "momentum")
        if kind == "sgd" and momentum is not None and program.value(momentum) != 0:
            kind = "sgd_momentum"
        yield Found("optimizer", kind, at)
        if roles.flag(program.keyword(call, "fused")):
            how = "fused"
        elif (foreach := roles.flag(program.keyword(call, "foreach"))) is not None:
            how = "foreach" if foreach else "single"
        if how:
            yield Found("optimizer_impl", how, at)


def _dtype(program: Program, roles: Roles) -> Iterator[Found]:
    """The last cast of the whole model, as a statement of its own or behind its loading."""
    last: tuple[int, str] | None = None
    for call in program.calls:
        if not isinstance(call.func, ast.Attribute) or not program.happens(call):
            continue
        cast = _cast(call, roles, program)
        if cast is not None and _is_model(call.func.value, roles, program):
            last = (program.offset(call), cast)
    if last is not None:
        yield Found("param_dtype", last[1], last[0])


def loads_in_default_dtype(program: Program) -> bool:
    """Whether every model is loaded without a dtype, so that a variable called ``dtype`` is another thing's."""
    loading = [c for c in program.calls if loads(program, c)]
    free = [all(k.arg not in (None, "torch_dtype", "dtype", "config") for k in c.keywords) for c in loading]
    return bool(loading) and all(free)


def _cast(call: ast.Call, roles: Roles, program: Program) -> str | None:
    method = call.func.attr  # type: ignore[attr-defined]
    if method in calls().casts and not call.args:
        return calls().casts[method]
    if method != "to":
        return None
    return next((d for a in (*call.args, program.keyword(call, "dtype")) if (d := roles.dtype(a)) is not None), None)


def _is_model(node: ast.expr, roles: Roles, program: Program) -> bool:
    for _ in range(6):
        if isinstance(node, ast.Call) and loads(program, node):
            return True
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            node = node.func.value
            continue
        return chain(node) in roles.models
    return False


def _autocast(program: Program, roles: Roles) -> Iterator[Found]:
    for node in program.nodes:
        if isinstance(node, ast.With) and program.happens(node) and not roles.without_grad(node):
            for item in node.items:
                call = roles.autocast_call(item.context_expr)
                if call is not None and any(roles.is_forward(inner) for inner in ast.walk(node)):
                    yield from _computes_in(program, roles, call)
    for call in program.calls:
        last = program.path(call.func).rpartition(".")[2]
        given = {
            "Accelerator": "mixed_precision",
            "MixedPrecision": "param_dtype",
            "MixedPrecisionPolicy": "param_dtype",
        }
        if last in given and (dtype := roles.dtype(program.keyword(call, given[last]))) is not None:
            yield Found("autocast", dtype, program.offset(call))


def _computes_in(program: Program, roles: Roles, call: ast.Call) -> Iterator[Found]:
    given = program.keyword(call, "dtype")
    if given is None:
        dtypes = [a for a in call.args[:2] if roles.dtype(a) is not None]
        given = dtypes[0] if dtypes else None
    device = program.value(call.args[0] if call.args else program.keyword(call, "device_type"))
    dtype = roles.dtype(given) if given is not None else None if device == "cpu" else "fp16"
    if dtype is not None:
        yield Found("autocast", dtype, program.offset(call))


def _checkpointing(program: Program, roles: Roles) -> Iterator[Found]:
    for call in program.calls:
        last = chain(call.func).rpartition(".")[2]
        if last in ("gradient_checkpointing_enable", "apply_activation_checkpointing") and program.happens(call):
            yield Found("grad_ckpt", True, program.offset(call))


def _kbit(program: Program, roles: Roles) -> Iterator[Found]:
    """It switches checkpointing on as well, unless told not to (``peft/utils/other.py``, 0.21)."""
    for call in program.calls:
        if program.path(call.func) not in calls().prepares or not program.happens(call):
            continue
        yield Found("loop.kbit_prepared", True, program.offset(call))
        given = program.keyword(call, "use_gradient_checkpointing") or (call.args[1] if len(call.args) > 1 else None)
        if given is None or roles.flag(given):
            yield Found("grad_ckpt", True, program.offset(call))


def _sharding(program: Program, roles: Roles) -> Iterator[Found]:
    for call in program.calls:
        word = calls().wrappers.get(program.path(call.func))
        if word is None or not program.happens(call):
            continue
        at = program.offset(call)
        strategy = chain(program.keyword(call, "sharding_strategy")).rpartition(".")[2]
        if word == "fsdp" and program.keyword(call, "sharding_strategy") is not None:
            word = calls().strategies.get(strategy, "")
        if word:
            yield Found("sharding", word, at)
        kept = roles.flag(program.keyword(call, "reshard_after_forward"))
        if kept is not None:
            yield Found("reshard_after_forward", kept, at)
        for offload in (program.keyword(call, "cpu_offload"), program.keyword(call, "offload_policy")):
            if isinstance(offload, ast.Call) and _offloads(program, roles, offload):
                yield Found("offload", ("optimizer", "param"), at)


def _offloads(program: Program, roles: Roles, call: ast.Call) -> bool:
    last = program.path(call.func).rpartition(".")[2]
    given = program.keyword(call, "offload_params") or (call.args[0] if call.args else None)
    return last == "CPUOffloadPolicy" or (last == "CPUOffload" and roles.flag(given) is True)


def _compiled(program: Program, roles: Roles) -> Iterator[Found]:
    for call in program.calls:
        whole = program.path(call.func) == "torch.compile" and bool(call.args) and chain(call.args[0]) in roles.models
        itself = (
            isinstance(call.func, ast.Attribute)
            and call.func.attr == "compile"
            and chain(call.func.value) in roles.models
        )
        if (whole or (itself and not call.args)) and program.happens(call):
            yield Found("compile", True, program.offset(call))


def _lengths(program: Program, roles: Roles) -> Iterator[Found]:
    """What a tokenizer cuts at, where it is given by a name or an option."""
    for call in program.calls:
        limit = program.keyword(call, "max_length")
        if limit is None or program.keyword(call, "truncation") is None or not _tokenizes(program, call):
            continue
        if (length := _whole(program, limit)) is not None and length > 1:
            yield Found("seq_len", length, program.offset(call), _sure(program, limit))


def _tokenizes(program: Program, call: ast.Call) -> bool:
    """Whether what is called is a tokenizer, by its name or by what it was made of."""
    name = chain(call.func)
    made = (chain(one.func) for one in program.bindings.get(name, []) if isinstance(one, ast.Call))
    return "token" in name.lower() or any("Tokenizer" in maker for maker in made)


def _lightning(program: Program, roles: Roles) -> Iterator[Found]:
    """Of Lightning's trainer, which has the loop (``lightning/pytorch/trainer/trainer.py``, 2.5)."""
    for call in program.calls:
        path = program.path(call.func)
        if not path.endswith(".Trainer") or "lightning" not in path or not program.happens(call):
            continue
        at, known = program.offset(call), calls().lightning
        for name, field in (("accumulate_grad_batches", "grad_accum"), ("devices", "gpus"), ("num_nodes", "nodes")):
            given = program.keyword(call, name)
            if (count := _whole(program, given)) is not None:
                yield Found(field, count, at, _sure(program, given))
        precision = program.value(program.keyword(call, "precision"))
        for field, value in known.get(f"precision.{precision}", {}).items():
            yield Found(field, value, at)
        strategy = program.keyword(call, "strategy")
        name = program.value(strategy)
        if isinstance(strategy, ast.Call):
            name = program.path(strategy.func).rpartition(".")[2]
            stage = program.value(program.keyword(strategy, "stage"))
            name = f"{name}.{stage}" if isinstance(stage, int) else name
        for field, value in known.get(f"strategy.{name}", {}).items():
            yield Found(field, tuple(value) if isinstance(value, list) else value, at)


def _synthetic(program: Program, roles: Roles) -> Iterator[Found]:
    """Token ids that a script draws itself: ``torch.randint(0, vocabulary, (batch, length))``."""
    if not any(map(_steps, program.modules)):
        return
    for call in program.calls:
        if program.path(call.func) != "torch.randint" or not program.happens(call):
            continue
        shape = program.keyword(call, "size") or next((a for a in call.args if isinstance(a, ast.Tuple)), None)
        if not isinstance(shape, ast.Tuple) or len(shape.elts) != 2:
            continue
        batch, length = (_whole(program, _without_next(side)) for side in shape.elts)
        if batch is not None and length is not None and length > batch:
            yield Found("micro_batch", batch, program.offset(call), _sure(program, shape.elts[0]))
            yield Found("seq_len", length, program.offset(call), _sure(program, _without_next(shape.elts[1])))


def _without_next(node: ast.expr) -> ast.expr:
    """``length + 1`` draws the labels with the inputs."""
    one = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add) and getattr(node.right, "value", None) == 1
    return node.left if one and isinstance(node, ast.BinOp) else node


def _batches(program: Program, roles: Roles) -> Iterator[Found]:
    loaders = [
        c for c in program.calls if program.path(c.func).rpartition(".")[2] == "DataLoader" and program.happens(c)
    ]
    trained, evaluated = _iterated(program, roles)
    for call in loaders:
        names = set(_names_of(program, call))
        given = program.keyword(call, "batch_size") or (call.args[1] if len(call.args) > 1 else None)
        size = _whole(program, given)
        mine = bool(names & trained) or (len(loaders) == 1 and bool(trained))
        at, sure = program.offset(call), _sure(program, given)
        if mine and not names & evaluated:
            if size is not None:
                yield Found("micro_batch", size, at, sure)
            workers = _whole(program, program.keyword(call, "num_workers"))
            if workers is not None:
                yield Found("extra.dataloader_num_workers", workers, at)
        elif names & evaluated and not names & trained and size is not None:
            yield Found("eval_micro_batch", size, at, sure)


def _names_of(program: Program, call: ast.Call) -> Iterator[str]:
    """The names a loader goes by: what it is assigned to, and parameters it is handed in as."""
    parent = program.parents.get(call)
    own: set[str] = set()
    if isinstance(parent, ast.Assign):
        own = {chain(t) for t in parent.targets}
        yield from own
    for other in program.calls:
        for i, argument in enumerate(other.args):
            if argument is call or (chain(argument) and chain(argument) in own):
                for function in program.functions.get(chain(other.func).rpartition(".")[2], ())[:2]:
                    named = [a.arg for a in function.args.args if a.arg != "self"]
                    yield from named[i : i + 1]


def _iterated(program: Program, roles: Roles) -> tuple[set[str], set[str]]:
    """Names that loops with a backward pass go over, and those with none but a pass of the model."""
    trained: set[str] = set()
    evaluated: set[str] = set()
    for node in program.nodes:
        if not isinstance(node, ast.For):
            continue
        over = {name for inner in ast.walk(node.iter) if (name := chain(inner))}
        calls_in = [inner for inner in ast.walk(node) if isinstance(inner, ast.Call)]
        if any(isinstance(c.func, ast.Attribute) and c.func.attr == "backward" for c in calls_in):
            trained |= over
        elif any(roles.is_forward(c) for c in calls_in):
            evaluated |= over
    for call in program.calls:  # Lightning's loop
        if isinstance(call.func, ast.Attribute) and call.func.attr == "fit" and len(call.args) > 1:
            trained |= {chain(call.args[1])} - {""}
            evaluated |= {chain(one) for one in call.args[2:3]} - {""}
        elif isinstance(call.func, ast.Attribute) and call.func.attr == "fit":
            trained |= {chain(program.keyword(call, "train_dataloaders"))} - {""}
            evaluated |= {chain(program.keyword(call, "val_dataloaders"))} - {""}
    steps = {n.name for found in program.functions.values() for n in found if _steps(n)}
    for node in program.nodes:  # a loop whose step is a function of its own
        if isinstance(node, ast.For) and steps & {
            chain(c.func).rpartition(".")[2] for c in ast.walk(node) if isinstance(c, ast.Call)
        }:
            trained |= {name for inner in ast.walk(node.iter) if (name := chain(inner))}
    return trained, evaluated - trained


def _steps(function: ast.AST) -> bool:
    return any(isinstance(n, ast.Attribute) and n.attr == "backward" for n in ast.walk(function))
