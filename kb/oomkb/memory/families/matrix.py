"""One matrix, and one kind of layer made of matrices: the units in which a model's shape is written."""

from __future__ import annotations

from oomkb.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Linear:
    """One matrix; ``count`` of them in a layer (experts). ``module`` is false for bare parameters, which LoRA skips."""

    name: str
    inputs: int
    outputs: int
    bias: bool = False
    count: int = 1
    module: bool = True
    part: str = "mlp"

    @property
    def params(self) -> int:
        """Weight and bias of all ``count``."""
        return self.count * (self.inputs * self.outputs + (self.outputs if self.bias else 0))


@dataclass(frozen=True, slots=True)
class LayerShape:
    """One kind of decoder layer, of which the model has ``count``."""

    count: int
    linears: tuple[Linear, ...]
    norm_params: int
    other_params: int = 0
    window: int | None = None
    moe: bool = False
    kv_elements: int = 0
    """What it keeps of every token: nothing in a recurrent mixer, nor in a layer that borrows keys and values."""
    kv_heads: int = 1

    @property
    def caches(self) -> bool:
        """Whether it keeps keys and values."""
        return self.kv_elements > 0

    @property
    def params(self) -> int:
        """Parameters of one such layer."""
        return sum(m.params for m in self.linears) + self.norm_params + self.other_params

    @property
    def expert_params(self) -> int:
        """Parameters of one layer's routed experts (what expert parallelism shards)."""
        return sum(m.params for m in self.linears if m.part == "expert")
