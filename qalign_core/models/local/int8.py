"""Linear layers in whole numbers: weights in 8 bits, activations in 14, sums in 32.

Each output row of a weight has one scale, and so has each row of activations. Sums of whole numbers
do not depend on their order, so a row's product has the same bits alone, in any batch, and on every
processor.

    >>> weight, x = torch.eye(2), torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    >>> multiply = Int8Product(*round_weight(weight))
    >>> multiply(x).round()  # x [m, in] -> [m, out]
    tensor([[1., 2.],
            [3., 4.],
            [5., 6.]])

`quantize(model)` does this to a model of transformers, in place.

Activations of 8 bits are too coarse: with SmolLM2-135M the mean KL divergence from float32 is then
0.05 nats per token, of which the weights' 8 bits cause 0.005. An activation is therefore written
with two digits of 7 bits, whose products with the weight are taken in one call. Digits of 7 bits
rather than 8, because processors without VNNI add pairs of products in 16 bits: 2 * 128 * 127 fits,
2 * 255 * 127 would be cut off.
"""

import timeit
import warnings
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn

MIDDLE = 64  # what a digit of 0 is stored as: a high digit is -64..64, a low one -64..63
# A float32 of this size has no fraction: adding it rounds to a whole number, in the lowest bits.
_ROUND = torch.tensor(1.5 * 2**23 + MIDDLE * 128 + MIDDLE)
_LEAST = torch.tensor(1e-30)  # a row of zeros has a scale too
_MIDDLE = torch.tensor(float(MIDDLE))
_SHIFTS = torch.tensor([7, 0], dtype=torch.int32).view(2, 1, 1)
_MASKS = torch.tensor([255, 127], dtype=torch.uint8).view(2, 1, 1)


def round_weight(weight: Tensor) -> tuple[Tensor, Tensor]:
    """A weight [out, in] as whole numbers -127..127 and the scale of each row [out]."""
    scale = weight.abs().amax(1).clamp_min(1e-30) / 127
    return (weight / scale[:, None]).round_().to(torch.int8), scale


def split(x: Tensor) -> tuple[Tensor, Tensor]:
    """Rows [m, n] as the high and the low digits [2m, n] of whole numbers, and scales [m, 1].

    The largest number of a row becomes 2**13 or -2**13. Products with powers of two are exact.
    """
    m, n = x.shape
    scale = torch.add(_LEAST, x.abs().amax(1, keepdim=True), alpha=2.0**-13)
    whole = x.div(scale).add_(_ROUND).view(torch.int32)
    digits = (whole >> _SHIFTS).to(torch.uint8).bitwise_and_(_MASKS)
    return digits.view(2 * m, n), scale


Multiply = Callable[[Tensor], Tensor]
"""Digits [m, in] to their products with a weight [m, out] in float32, times the rows' scales."""

Pack = Callable[[Tensor, Tensor], Multiply]
"""A weight [out, in] and the scales of its rows [out] to what multiplies with them."""


class Int8Product:
    """`factor * (x * gain) @ (weight * scale).T + added`, of rows x rounded to whole numbers.

    Args:
        weight: whole numbers -127..127 [out, in], int8.
        scale: of each row of the weight [out].
        gain: what each column of x is multiplied with first [in].
        pack: how the weight is laid out to be multiplied with; by default the fastest way here.
    """

    def __init__(
        self,
        weight: Tensor,
        scale: Tensor,
        gain: Tensor | None = None,
        *,
        pack: Pack | None = None,
    ) -> None:
        self._gain = gain
        self._multiply = (pack or packed_product() or plain_product)(weight, scale.contiguous())

    def __call__(
        self, x: Tensor, added: Tensor | None = None, factor: Tensor | None = None
    ) -> Tensor:
        """Rows [m, out]; `added` is a bias [out] or rows, `factor` a number per row [m, 1]."""
        digits, scale = split(x if self._gain is None else x * self._gain)
        if factor is not None:
            scale.mul_(factor)
        high, low = self._multiply(digits).chunk(2)
        y = low.add_(high, alpha=128.0).mul_(scale)
        return y if added is None else y.add_(added)


def _exact_parts(weight: Tensor) -> tuple[Tensor, ...]:
    """A weight [out, in] cut so that all sums are whole numbers of float32; mostly one part."""
    cuts = (weight.chunk(n, 1) for n in range(1, weight.shape[1] + 1))
    return next(parts for parts in cuts if all(map(_is_exact, parts)))


def _is_exact(weight: Tensor) -> bool:
    """True if every product of digits with a row is a whole number that float32 has."""
    most = 2**24 // (2 * MIDDLE)  # of the sum of a row's absolute values
    is_short = 127 * weight.shape[1] < most
    return is_short or int(weight.abs().sum(1, dtype=torch.int32).max()) < most


def _in_parts(pack: Pack) -> Pack:
    """The same way of packing, for weights whose sums are exact in parts only."""

    def pack_parts(weight: Tensor, scale: Tensor) -> Multiply:
        parts = _exact_parts(weight)
        if len(parts) == 1:
            return pack(weight.contiguous(), scale)
        widths = [part.shape[1] for part in parts]
        multipliers = [pack(part.contiguous(), torch.ones_like(scale)) for part in parts]

        def multiply(digits: Tensor) -> Tensor:
            pairs = zip(multipliers, torch.split(digits, widths, 1), strict=True)
            sums = [multiply_part(piece.contiguous()) for multiply_part, piece in pairs]
            return torch.stack(sums).double().sum(0).float().mul_(scale)

        return multiply

    return pack_parts


@_in_parts
def plain_product(weight: Tensor, scale: Tensor) -> Multiply:
    """Multiply matrices of float32, which holds these whole numbers exactly."""
    return lambda digits: torch.mm(digits.float() - MIDDLE, weight.float().T).mul_(scale)


@_in_parts
def onednn_product(weight: Tensor, scale: Tensor) -> Multiply:
    """Multiply by oneDNN, with the operators that torch 2.13 compiles for itself."""
    linear = torch.ops.onednn.qlinear_pointwise.default
    packed = torch.ops.onednn.qlinear_prepack(weight, None)
    zeros = torch.zeros(len(weight), dtype=torch.int32)
    rest: tuple[Any, ...] = (None, 1.0, 0, torch.float32, "none", [], "")
    return lambda digits: linear(digits, 1.0, MIDDLE, packed, scale, zeros, *rest)


@_in_parts
def fbgemm_product(weight: Tensor, scale: Tensor) -> Multiply:
    """Multiply by FBGEMM, with the operators of torch 2.13 for models quantized in advance.

    Digits are passed as float32 and become the same bytes again.

    Raises:
        RuntimeError: this processor, real or imitated, has no AVX2.
    """
    if not torch.backends.cpu.get_cpu_capability().startswith("AVX"):
        raise RuntimeError("FBGEMM needs AVX2")
    linear = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32.default
    none = torch.zeros(len(weight), dtype=torch.int64)
    with warnings.catch_warnings():  # these tensors go when torch changes, which is pinned
        warnings.simplefilter("ignore", UserWarning)
        rows = torch.quantize_per_channel(weight * scale[:, None], scale, none, 0, torch.qint8)
        packed = torch.ops.quantized.linear_prepack(rows, None)
    return lambda digits: linear(torch.sub(digits, _MIDDLE), 1.0, MIDDLE, packed)


@cache
def packed_product() -> Pack | None:
    """The fastest way here to pack a weight of 8 bits; None if none of them is there and exact.

    The operators have private names. Each is tried once with the largest numbers there are, and
    timed at 1, 4 and 8 rows of a weight too large for the fastest cache. FBGEMM is 3 times faster
    on processors with AVX2 only; with VNNI, oneDNN is faster on some and FBGEMM on others. Which
    one it is changes no bit. Without them the product is as slow as float32's.
    """
    turn = torch.arange(8192 * 600, dtype=torch.int32).view(8192, 600)
    weight = ((turn * 37) % 255 - 127).to(torch.int8)
    weight[0], weight[1] = 127, -127
    digits = ((turn[:16] * 53) % 128).to(torch.uint8)
    digits[0], digits[1] = 128, 0
    scale = torch.linspace(0.001, 3, len(weight))
    expected = plain_product(weight, scale)(digits)
    seconds: dict[Pack, float] = {}
    for pack in (fbgemm_product, onednn_product):
        try:
            multiply = pack(weight, scale)
            if torch.equal(multiply(digits), expected):
                calls = [partial(multiply, digits[: 2 * n]) for n in (1, 4, 8)]
                seconds[pack] = sum(min(timeit.repeat(call, number=3, repeat=7)) for call in calls)
        except (AttributeError, RuntimeError, TypeError):
            continue
    return min(seconds, key=seconds.__getitem__, default=None)


class Int8Linear(nn.Module):  # type: ignore[misc]
    """A linear layer with a weight of 8 bits, which multiplies as `nn.Linear` does until packed."""

    weight: Tensor
    scale: Tensor
    bias: Tensor | None

    def __init__(self, weight: Tensor, scale: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.out_features, self.in_features = weight.shape
        for name, value in (("weight", weight), ("scale", scale), ("bias", bias)):
            self.register_buffer(name, value)
        self._product: Int8Product | None = None

    def pack(self) -> None:
        """Multiply by the packed weight from now on, and keep no other."""
        if "weight" in self._buffers:
            self._product = Int8Product(self.weight, self.scale)
            del self.weight

    def forward(self, x: Tensor) -> Tensor:
        """As `nn.Linear`, of activations rounded to 14 bits."""
        if self._product is None:
            self._product = Int8Product(self.weight, self.scale, pack=plain_product)
        y = self._product(x.reshape(-1, self.in_features).contiguous(), self.bias)
        return y.view(*x.shape[:-1], self.out_features)


class Int8Embedding(nn.Module):  # type: ignore[misc]
    """The vectors of tokens in 8 bits, multiplied by a factor (1 in most models)."""

    weight: Tensor
    scale: Tensor

    def __init__(self, weight: Tensor, scale: Tensor, factor: float) -> None:
        super().__init__()
        self.register_buffer("weight", weight)
        self.register_buffer("scale", scale * factor)

    def forward(self, ids: Tensor) -> Tensor:
        """As `nn.Embedding`."""
        return self.weight[ids].float().mul_(self.scale[ids].unsqueeze(-1))


def quantize(model: Any) -> None:
    """Round the linear layers and the token vectors of a model of transformers, in place.

    The rest, and the head of a reward model, becomes float32.
    """
    rounded: dict[int, tuple[Tensor, Tensor]] = {}  # a shared weight is rounded once

    def round_once(weight: Tensor) -> tuple[Tensor, Tensor]:
        if id(weight) not in rounded:
            rounded[id(weight)] = round_weight(weight.detach().float())
        return rounded[id(weight)]

    table = model.get_input_embeddings()
    factor = float(getattr(table, "embed_scale", 1.0))
    model.set_input_embeddings(Int8Embedding(*round_once(table.weight), factor))
    for module in list(model.modules()):
        for name, layer in list(module.named_children()):
            if isinstance(layer, nn.Linear) and layer.out_features > 1:
                bias = None if layer.bias is None else layer.bias.detach().float()
                setattr(module, name, Int8Linear(*round_once(layer.weight), bias))
    for other in model.parameters():
        other.data = other.data.float().clone()  # a view would keep the whole file in memory


def is_rounded(model: Any) -> bool:
    """Whether a model has layers of 8 bits."""
    return any(isinstance(module, Int8Linear) for module in model.modules())


def pack(model: Any) -> Any:
    """Let the rounded layers of a model multiply by packed weights, and give the model back."""
    for module in model.modules():
        if isinstance(module, Int8Linear):
            module.pack()
    return model
