"""What an hf target can carry out besides answering requests, by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from contextlab.model import Evidence
from contextlab.targets.inside import batches
from contextlab.targets.inside.caches import cache_consistency, cache_overflow
from contextlab.targets.inside.dtypes import dtype_mismatch
from contextlab.targets.inside.generate import generate_limits
from contextlab.targets.inside.load import Loaded
from contextlab.targets.inside.positions import measure_positions
from contextlab.targets.inside.tables import resized_table
from contextlab.targets.inside.tokens import tokenizer_truncation

Task = Callable[[Loaded, Mapping[str, int | float | str]], Iterator[Evidence]]

TASKS: Mapping[str, Task] = {
    "positions": measure_positions,
    "resized-table": resized_table,
    "cache-consistency": cache_consistency,
    "cache-overflow": cache_overflow,
    "tokenizer-truncation": tokenizer_truncation,
    "dtype-mismatch": dtype_mismatch,
    "generate-limits": generate_limits,
    batches.TASK: batches.batch_speed,
}
"""Each takes the model and the probe's `about`, and yields what it measures as it comes; the library's errors too."""
