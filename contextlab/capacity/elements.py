"""Element types of weights and caches: how many bytes a row of numbers takes.

Block-quantised types store whole blocks, so a row that is no multiple of the block is rounded up.
Block and byte counts are ggml's (`ggml-common.h`, `GGML_QUANT_SIZES` in gguf-py); fp8 is one byte without its scale.
"""

from __future__ import annotations

from dataclasses import dataclass

from contextlab.model import UsageError

QK_K = 256
"""Elements in a super-block of ggml's K-quants and I-quants."""


@dataclass(frozen=True, slots=True)
class ElementType:
    """`block_elements` numbers are stored in `block_bytes` bytes."""

    name: str
    block_elements: int
    block_bytes: int

    def num_bytes(self, num_elements: int) -> int:
        """Bytes of one row of `num_elements` numbers, in whole blocks."""
        return -(-num_elements // self.block_elements) * self.block_bytes

    @property
    def quantised(self) -> bool:
        """Whether numbers share a block and its scale."""
        return self.block_elements > 1


_GGML_TYPES: dict[int, ElementType] = {
    number: ElementType(name, block_elements, block_bytes)
    for number, name, block_elements, block_bytes in (
        (0, "f32", 1, 4),
        (1, "f16", 1, 2),
        (2, "q4_0", 32, 18),
        (3, "q4_1", 32, 20),
        (6, "q5_0", 32, 22),
        (7, "q5_1", 32, 24),
        (8, "q8_0", 32, 34),
        (9, "q8_1", 32, 40),
        (10, "q2_k", QK_K, 84),
        (11, "q3_k", QK_K, 110),
        (12, "q4_k", QK_K, 144),
        (13, "q5_k", QK_K, 176),
        (14, "q6_k", QK_K, 210),
        (15, "q8_k", QK_K, 292),
        (16, "iq2_xxs", QK_K, 66),
        (17, "iq2_xs", QK_K, 74),
        (18, "iq3_xxs", QK_K, 98),
        (19, "iq1_s", QK_K, 50),
        (20, "iq4_nl", 32, 18),
        (21, "iq3_s", QK_K, 110),
        (22, "iq2_s", QK_K, 82),
        (23, "iq4_xs", QK_K, 136),
        (24, "i8", 1, 1),
        (25, "i16", 1, 2),
        (26, "i32", 1, 4),
        (27, "i64", 1, 8),
        (28, "f64", 1, 8),
        (29, "iq1_m", QK_K, 56),
        (30, "bf16", 1, 2),
        (34, "tq1_0", QK_K, 54),
        (35, "tq2_0", QK_K, 66),
        (39, "mxfp4", 32, 17),
        (40, "nvfp4", 64, 36),
        (41, "q1_0", 128, 18),
    )
}

_NAMED_TYPES: dict[str, ElementType] = {kind.name: kind for kind in _GGML_TYPES.values()}
_NAMED_TYPES["fp8"] = ElementType("fp8", 1, 1)

_OTHER_NAMES = {
    "float32": "f32",
    "float": "f32",
    "float16": "f16",
    "half": "f16",
    "bfloat16": "bf16",
    "float64": "f64",
    "double": "f64",
    "int8": "i8",
    "fp8_e4m3": "fp8",
    "fp8_e5m2": "fp8",
    "float8_e4m3fn": "fp8",
    "float8_e5m2": "fp8",
}


def element_type(name: str) -> ElementType:
    """The type called `name`, in llama.cpp's, torch's or vLLM's word; raises UsageError for any other."""
    key = name.lower().removeprefix("torch.")
    found = _NAMED_TYPES.get(_OTHER_NAMES.get(key, key))
    if found is None:
        raise UsageError(
            f"type={name!r} is no element type that contextlab knows", f"Use one of: {', '.join(sorted(_NAMED_TYPES))}."
        )
    return found


def ggml_type(number: int) -> ElementType | None:
    """The type with that number in a GGUF file; None where this version does not know it."""
    return _GGML_TYPES.get(number)
