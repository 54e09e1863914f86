"""`contextlab inspect` in the process of the test: the same code as in one of its own, in a twentieth of the time."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from contextlab.cli import main

CONFIG = {
    "model_type": "llama",
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "hidden_size": 512,
    "intermediate_size": 1024,
    "max_position_embeddings": 2048,
    "vocab_size": 32_000,
    "torch_dtype": "bfloat16",
}
"""A small Llama: 1024 bytes a token in f16."""


class Command:
    """The command, called with its words."""

    def __init__(self, patch: pytest.MonkeyPatch, capture: pytest.CaptureFixture[str]) -> None:
        self._patch, self._capture = patch, capture

    def __call__(self, *words: object) -> tuple[int, str, str]:
        """Exit code, standard output, standard error."""
        self._patch.setattr(sys, "argv", ["contextlab", "inspect", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = self._capture.readouterr()
        assert "Traceback" not in out + err
        return int(ended.value.code or 0), out, err

    def document(self, *words: object) -> tuple[int, dict[str, Any]]:
        """Exit code and the one JSON document."""
        code, out, _ = self(*words, "--json")
        document = json.loads(out)
        assert isinstance(document, dict)
        assert document["exit"]["code"] == code
        return code, document


def sets(*assignments: str) -> list[str]:
    """Settings as the command line takes them."""
    return [word for assignment in assignments for word in ("--set", assignment)]


def findings(document: dict[str, Any]) -> list[str]:
    """The names of what was found."""
    return [finding["name"] for finding in document["findings"]]


def limits(document: dict[str, Any]) -> dict[str, Any]:
    """The table: what stands in the column of tokens, by the limit's name."""
    return {limit["name"]: limit["words"] or limit["tokens"] for limit in document["limits"]}
