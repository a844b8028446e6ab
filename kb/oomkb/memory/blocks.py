"""Decoder layers of every family, written on the tape as transformers 5.23 writes them in PyTorch.

Local names are kept as long as the originals keep them: what a Python frame still names is memory.
Units are products of dimensions: ``T`` tokens, ``B`` sequences, ``S`` tokens of a sequence, ``h`` hidden, ``q``, ``k``
widths of all query and key heads, ``n`` heads, ``f`` feed-forward width, ``r`` adapter rank, ``V`` vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from oomkb.memory.mode import Mode
from oomkb.memory.moe import activate, dora, gated, routed_experts
from oomkb.memory.ops import Ops, each
from oomkb.memory.quantized import quantized
from oomkb.memory.tape import Tape, Tensor, parameter
from oomkb.memory.token_mixers import mix

_READ: Final = {"pre": ("norm1", "norm2"), "sandwich": ("norm1", "norm3"), "parallel": ("norm1",)}
"""Norms whose output only matrix products read: the casts that each makes for itself are one when compiled."""
_NORMS: Final = {
    "pre": (("norm1", "", ""), ("norm2", "", "")),
    "sandwich": (("norm1", "norm2", ""), ("norm3", "norm4", "")),
    "post": (("", "norm1", ""), ("", "norm2", "")),
    "after": (("", "", "norm1"), ("", "", "norm2")),  # OPT-350m
}
"""By order: the norms around attention and around the feed-forward part (:meth:`Layer._block`)."""


class Layer:
    """Plays one decoder layer."""

    def __init__(self, tape: Tape, mode: Mode, kind: str = "dense") -> None:
        """A layer of one of the kinds of :attr:`oomkb.memory.shape.ModelShape.kinds`."""
        self.tape, self.mode = tape, mode
        *mixer, self.feeds = kind.split()
        self.mixes = mixer[0] if mixer else "attention"
        self.ops = Ops(tape, autocast=mode.autocast, cuda=mode.cuda, caching=not mode.turned)
        self.weights: dict[str, Tensor] = {}

    # -- weights -------------------------------------------------------------------------------------------------

    def weight(self, name: str, unit: str, *, adapter: bool = False) -> Tensor:
        """A parameter of the base model, or of an adapter."""
        found = self.weights.get(name)
        if found is None:
            size, trained = (self.mode.adapter, True) if adapter else (self.mode.param, self.mode.trained)
            found = self.weights[name] = parameter(unit, size, trained=trained)
        return found

    def project(self, x: Tensor, name: str, inner: str, outer: str, *, rows: str = "T") -> Tensor:
        """A linear module, with its adapter where it has one (peft 0.21 ``lora.Linear.forward``)."""
        ops, given = self.ops, x  # the caller of a module holds its argument until it returns
        if self.mode.quant:
            result = quantized(ops, x, f"{inner}*{outer}", f"{rows}*{outer}", self.mode)
        else:
            result = ops.linear(x, self.weight(name, f"{inner}*{outer}"), f"{rows}*{outer}")
        if name not in self.mode.adapters:
            return result
        kept = result.size
        x = x if self.mode.fused == "adapters" else ops.cast(x, self.mode.adapter)
        down = self.weight(name + ".A", f"{inner}*r", adapter=True)
        up = self.weight(name + ".B", f"r*{outer}", adapter=True)
        if self.mode.dora:
            scale = self.weight(name + ".magnitude", outer, adapter=True)
            more = dora(ops, x, result, (down, up, scale), (rows, inner, outer), self.mode)
        else:
            low = ops.linear(ops.dropout(x, self.mode.lora_dropout), down, f"{rows}*r")
            more = ops.scale(ops.linear(low, up, f"{rows}*{outer}"))
            del low
        result = ops.add(result, more)
        del more, given
        return ops.cast(result, kept)

    # -- norms ---------------------------------------------------------------------------------------------------

    def norm(self, x: Tensor, name: str, width: str = "h", *, kind: str = "", stat: str = "T") -> Tensor:
        """A normalisation of the last dimension."""
        ops, kind = self.ops, kind or self.mode.norm
        if kind.startswith("ln"):
            return self._layer_norm(x, name, width, kind, stat)
        if self.mode.fused:
            x = ops.layer_norm(x, self.weight(name, width), stat)
            return ops.lower(x) if self.mode.fused == "compile" and name in _READ.get(self.mode.order, ()) else x
        size = x.size
        x = ops.cast(x, 4.0)
        variance = ops.mean(ops.power(x), stat)
        x = ops.mul(x, ops.unary(ops.shift(variance), keeps="output"))
        if kind == "rms-gemma":
            x = ops.mul(x, ops.shift(ops.cast(self.weight(name, width), 4.0)))
            return ops.cast(x, size)
        if kind == "rms-wide":
            return ops.cast(ops.mul(x, self.weight(name, width)), size)
        return ops.mul(ops.cast(x, size), self.weight(name, width))

    def _layer_norm(self, x: Tensor, name: str, width: str, kind: str, stat: str) -> Tensor:
        ops = self.ops
        if kind == "ln-fp32":  # Cohere writes it out
            size = x.size
            x = ops.cast(x, 4.0)
            mean = ops.mean(x, stat)
            variance = ops.mean(ops.power(ops.add(x, mean, unit=x.unit)), stat)
            x = ops.mul(ops.add(x, mean, unit=x.unit), ops.unary(ops.shift(variance), keeps="output"))
            x = ops.mul(x, ops.cast(self.weight(name, width), 4.0))
            return ops.cast(x, size)
        if kind == "ln-plain":  # OLMo: in fp32, back to the input's dtype
            size = x.size
            return ops.cast(ops.layer_norm(ops.cast(x, 4.0), None, stat), size)
        if self.mode.cuda and self.mode.autocast:
            x = ops.cast(x, 4.0)  # CUDA's autocast runs layer_norm in fp32
        return ops.layer_norm(x, self.weight(name, width), stat)

    # -- feed-forward --------------------------------------------------------------------------------------------

    def activation(self, x: Tensor) -> Tensor:
        """The activation function; compiled it is one kernel that keeps its input."""
        if self.mode.fused == "compile":
            return self.ops.unary(x)
        return activate(self.ops, self.mode.act, x, self.weight("alpha", "1") if self.mode.act == "xielu" else None)

    def mlp(self, x: Tensor, width: str = "f", *, prefix: str = "") -> Tensor:
        """The dense feed-forward block."""
        ops = self.ops
        if not self.mode.gated:
            x = self.project(x, prefix + "up", "h", width)
            x = self.activation(x)
            return self.project(x, prefix + "down", width, "h")
        whole = self.mode.gate_up == "fused"
        if whole and not self.mode.fused:
            both = self.project(x, prefix + "gate", "h", "2*" + width)
            gate, up = ops.split(both, (f"T*{width}", f"T*{width}"))
            product = ops.mul(up, self.activation(gate))
            return self.project(product, prefix + "down", width, "h")
        if self.mode.fused:
            if whole:
                sides = ops.split(self.project(x, prefix + "gate", "h", "2*" + width), (f"T*{width}", f"T*{width}"))
            else:
                sides = [self.project(x, prefix + name, "h", width) for name in ("gate", "up")]
            own, again = self.mode.fused in ("liger", "adapters"), self.mode.fused == "adapters"
            product = gated(ops, sides.pop(0), sides.pop(), inplace=own, cheap=again)
            return self.project(product, prefix + "down", width, "h")
        return self.project(
            ops.mul(
                self.activation(self.project(x, prefix + "gate", "h", width)),
                self.project(x, prefix + "up", "h", width),
            ),
            prefix + "down",
            width,
            "h",
        )

    def expert(self, name: str, inner: str, outer: str, rank: str) -> Tensor:
        """The fused weights of all experts, with their adapters added in where they have some."""
        unit = f"X*{inner}*{outer}"
        if not self.mode.merged_experts:
            return self.weight(name, unit)
        # peft 0.21 folds both factors, in the weights' dtype, into one ``baddbmm`` (``_LoraFactorsProxy``).
        ops, tape, size = self.ops, self.tape, self.mode.param
        down = ops.cast(self.weight(name + ".A", f"{rank}X*r*{inner}", adapter=True), size)
        up = ops.cast(self.weight(name + ".B", f"{rank}X*r*{outer}", adapter=True), size)
        made = each((down.unit, down.size), (up.unit, up.size))
        node = tape.record((down, up), (down.detached(), up.detached()), made)
        return tape.new("w:" + unit, size, node)

    def feed(self, x: Tensor) -> Tensor:
        """Whatever follows attention."""
        return routed_experts(self, x) if self.feeds == "moe" else self.mlp(x)

    # -- attention -----------------------------------------------------------------------------------------------

    def rotary(self, x: Tensor) -> Tensor:
        """Rotary embedding of one tensor; tables come in the hidden states' dtype."""
        ops, kind = self.ops, self.mode.rotary
        if kind == "none":
            return x
        table, size = self.table, x.size
        if self.mode.fused:
            return ops.scale(x)  # one kernel
        if kind == "full":
            return ops.cast(ops.rotate(x, table), size)
        turned, rest = ops.part(x, f"p*{x.unit}"), ops.part(x, f"u*{x.unit}")
        return ops.cat(ops.rotate(turned, table), rest, x.unit)

    def repeated(self, t: Tensor, unit: str) -> Tensor:
        """``repeat_kv``: key or value heads expanded over the query heads."""
        return self.ops.part(t, unit) if self.mode.single else self.ops.copy(t, unit=unit)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, *, value: str = "q") -> Tensor:
        """Scores, softmax and weighted sum, eager or in one kernel."""
        ops, m = self.ops, self.mode
        if m.attention == "eager":
            if m.softmax == "scores":
                q, k = ops.cast(q, 4.0), ops.cast(k, 4.0)
            if m.grouped:
                k, v = self.repeated(k, "T*q"), self.repeated(v, f"T*{value}")
            weights = ops.scale(ops.matmul(q, k, "B*n*S*S", clone=(True, m.single or not m.grouped)))
            if m.softcap:
                weights = ops.scale(weights)
                weights = ops.unary(weights, keeps="output")
                weights = ops.scale(weights)
            # What is kept, the compiler keeps in 16 bits, before and after the softmax (torch 2.13's partitioner).
            lean = m.fused == "compile" and (m.autocast or v.size) < 4.0
            if m.mask and not lean:
                weights = ops.promote(weights, m.param if not m.quant else 2.0)
            if m.softmax == "sinks":
                weights = ops.shift(ops.shift(weights))  # with the sink's column, then less the row's maximum
            wide = 4.0 if m.softmax in ("fp32", "scores") else weights.size
            weights = ops.unary(weights) if lean else ops.softmax(weights, wide)
            weights = ops.cast(weights, m.autocast or v.size)
            if m.softmax == "sinks":
                weights = ops.part(weights, weights.unit)
            weights = ops.dropout(weights, m.attention_dropout)
            out = ops.matmul(weights, v, f"T*{value}", clone=(False, m.single or not m.grouped))
            return ops.copy(out)
        if m.math and m.attention == "sdpa":
            return self._math(q, k, v, value)
        if m.attention == "sdpa" and m.grouped and m.mask:
            k, v = self.repeated(k, "T*q"), self.repeated(v, f"T*{value}")
        mask = "B*S*S" if m.mask and m.attention == "sdpa" and not m.slopes else None
        out = ops.sdpa(q, k, v, f"T*{value}", mask)
        # The kernel's output lies in memory as the queries do; token by token is what the projection reads.
        return ops.copy(out) if m.by_heads else out

    def _math(self, q: Tensor, k: Tensor, v: Tensor, value: str) -> Tensor:
        """``_scaled_dot_product_attention_math``: everything in fp32, scores written out."""
        m, size = self.mode, self.ops.lower(q).size
        bias = self.tape.new("B*S*S", size) if m.mask else None
        ops = Ops(self.tape, cuda=m.cuda)
        q, k, v = (ops.cast(self.ops.lower(t), 4.0) for t in (q, k, v))
        scores = ops.matmul(ops.scale(q), ops.widened(ops.scale(k), "T*q"), "B*n*S*S", clone=(True, True))
        scores = ops.promote(scores, 0.0) if m.mask else scores
        weights = ops.softmax(scores, 4.0)
        del scores
        weights = ops.dropout(weights, m.attention_dropout)
        low = self.tape.new("B*n*S*S", size) if size != 4.0 else None
        out = ops.cast(ops.matmul(weights, ops.widened(v, f"T*{value}"), f"T*{value}", clone=(False, True)), size)
        del low, bias, weights
        return ops.copy(out)

    def attention(self, x: Tensor) -> Tensor:
        """What mixes tokens, with its projections."""
        if self.mixes != "attention" and self.mode.mixer is not None:
            mixed = mix(self, x, self.mode.mixer)
            return mixed if self.mixes == "mixer" else self.ops.add(mixed, self.self_attention(x))
        return self.self_attention(x)

    def self_attention(self, x: Tensor) -> Tensor:
        """Attention with its projections."""
        if self.mode.latent:
            return self.latent_attention(x)
        ops, m = self.ops, self.mode
        if m.qkv == "fused":
            fused = self.project(x, "qkv", "h", "qkv")
            q, k, v = ops.split(fused, ("T*q", "T*k", "T*k"))
            del fused
            q, k, v = ops.heads(q), ops.heads(k), ops.heads(v)
        elif m.qk_norm == "full":
            q = self.norm(self.project(x, "q", "h", "q"), "q_norm", "q")
            k = self.norm(self.project(x, "k", "h", "k"), "k_norm", "k")
            v = ops.heads(self.project(x, "v", "h", "k"))
            q, k = ops.heads(q), ops.heads(k)
        else:
            q = ops.heads(self._head_norm(self.project(x, "q", "h", "q"), "q_norm", "T*n"))
            k = ops.heads(self._head_norm(self.project(x, "k", "h", "k"), "k_norm", "T*m"))
            v = ops.heads(self.project(x, "v", "h", "k"))
        q, k = self.rotary(q), self.rotary(k)
        out = self.attend(q, k, v)
        return self.project(out, "o", "q", "h")

    def _head_norm(self, x: Tensor, name: str, stat: str) -> Tensor:
        if self.mode.qk_norm != "head":
            return x
        return self.norm(x, name, "d", kind="rms" if self.mode.norm == "ln-plain" else self.mode.norm, stat=stat)

    def latent_attention(self, x: Tensor) -> Tensor:
        """Multi-head latent attention of DeepSeek-V2 and V3."""
        ops, m = self.ops, self.mode
        if m.latent == "q-kv":
            q = self.project(
                self.norm(self.project(x, "q_a", "h", "lq"), "q_a_norm", "lq", kind="rms"), "q_b", "lq", "q"
            )
        else:
            q = self.project(x, "q", "h", "q")
        q_pass, q_rot = ops.split(q, ("pn*T*q", "pr*T*q"))
        latent = self.project(x, "kv_a", "h", "lk")
        k_pass, k_rot = ops.split(latent, ("T*lkv", "T*dr"))
        wide = self.project(self.norm(k_pass, "kv_a_norm", "lkv", kind="rms"), "kv_b", "lkv", "kvb")
        k_nope, v = ops.split(wide, ("pn*T*q", "T*vh"))
        q_rot, k_rot = ops.rotate(q_rot, self.table), ops.rotate(k_rot, self.table)
        query = ops.cat(q_pass, q_rot, "T*q")
        key = ops.cat(k_nope, ops.part(k_rot, "pr*T*q"), "T*q")
        out = self.attend(query, key, v, value="vh")
        return self.project(out, "o", "vh", "h")

    # -- layers --------------------------------------------------------------------------------------------------

    def __call__(self, x: Tensor) -> Tensor:
        """One layer from hidden states to hidden states."""
        self.table = 4.0 if self.mode.wide_rotary else x.size
        order = self.mode.order if self.mixes == "attention" else "pre"
        if order in ("parallel", "neox"):
            return self._side_by_side(x, order)
        first, second = _NORMS[order]
        out = self._block(x, self.attention, first) if self.mixes != "none" else x
        return self._block(out, self.feed, second) if self.feeds != "none" else out

    def _block(self, x: Tensor, play: Callable[[Tensor], Tensor], norms: tuple[str, str, str]) -> Tensor:
        """Attention or feed-forward with its residual sum, and the norms before it, after it and after the sum."""
        before, after, last = norms
        residual = x
        x = self.norm(x, before) if before else x
        x = play(x)
        x = self._drop(self.norm(x, after) if after else x)
        x = self.ops.add(residual, x)
        return self.norm(x, last) if last else x

    def _drop(self, x: Tensor) -> Tensor:
        x = self.ops.scale(x) if self.mode.multiplier else x
        return self.ops.dropout(x, self.mode.dropout)

    def _side_by_side(self, x: Tensor, order: str) -> Tensor:
        """Attention and feed-forward read the same hidden states, through one norm or each through its own."""
        ops, residual = self.ops, x
        if order == "neox":
            attended = self._drop(self.attention(self.norm(x, "norm1")))
            fed = self._drop(self.feed(self.norm(x, "norm2")))
            return ops.add(ops.add(fed, attended), residual)
        x = self.norm(x, "norm1")
        attended = self._drop(self.attention(x))
        fed = self._drop(self.feed(x))
        return ops.add(ops.add(attended, fed), residual)
