"""torch and transformers, imported when first needed, offline, and with as many threads as were asked for.

Nothing is ever downloaded: the hub is switched off before the library can look at the setting.
"""

from __future__ import annotations

import importlib
import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from contextlab.model import UnableError

INSTALL = "install the extra: pip install 'contextlab[hf]'"
MAX_WORDS = 400
"""Characters of an exception's message that are kept."""


def library(name: str) -> Any:
    """The package of that name. Raises UnableError where it is not installed, or cannot be loaded."""
    os.environ["HF_HUB_OFFLINE"] = os.environ["TRANSFORMERS_OFFLINE"] = "1"
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("TQDM_DISABLE", "1")  # its bars would be taken for last words
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UnableError(f"an hf target needs {name}, which cannot be imported: {error}", INSTALL) from error


def start_torch(threads: int) -> Any:
    """torch, with this many threads: more than there are idle cores makes it many times slower."""
    os.environ["OMP_NUM_THREADS"] = str(threads)
    torch = library("torch")
    torch.set_num_threads(threads)
    return torch


def words_of(error: BaseException) -> dict[str, str]:
    """An exception of the library as evidence."""
    return {"error_type": type(error).__name__, "error": " ".join(str(error).split())[:MAX_WORDS]}


class _Ear(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.words: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.words.append(" ".join(record.getMessage().split()))


@contextmanager
def listening() -> Iterator[list[str]]:
    """Everything that the library warns of meanwhile, through its logger or Python's warnings, in the list given."""
    logger, ear = logging.getLogger("transformers"), _Ear()
    logger.addHandler(ear)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield ear.words
            ear.words += [" ".join(str(one.message).split()) for one in caught]
    finally:
        logger.removeHandler(ear)
