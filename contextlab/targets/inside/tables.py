"""The task about a table of positions that was made longer by hand, which silences the error and nothing else."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

from contextlab.model import Evidence
from contextlab.targets.inside.caches import compared, random_ids
from contextlab.targets.inside.library import words_of
from contextlab.targets.inside.load import Loaded

About = Mapping[str, int | float | str]


def resized_table(loaded: Loaded, about: About) -> Iterator[Evidence]:
    """The table of learned positions doubled in two ways, with rows repeated and with fresh ones, and both compared.

    Inside the old table the two models are the same; past it they differ in nothing but rows that nobody trained.
    """
    inside, past = int(about["inside_tokens"]), int(about["past_tokens"])
    name = table_name(loaded.model, inside)
    if name is None:
        yield {"table": None}
        return
    yield {"table": name}
    ids = random_ids(loaded, past, int(about.get("seed", 0)))
    logits = []
    for fresh in (False, True):
        model = copy.deepcopy(loaded.model)
        lengthen(loaded.torch, model, name, fresh=fresh)
        try:
            with loaded.torch.inference_mode():
                logits.append(model(input_ids=loaded.tensor(ids), use_cache=False).logits[0].float())
        except Exception as error:
            yield words_of(error)
            return
    wrapped, renewed = logits
    yield {f"inside_{key}": value for key, value in compared(wrapped[:inside], renewed[:inside]).items()}
    yield {f"past_{key}": value for key, value in compared(wrapped[inside:], renewed[inside:]).items()}


def table_name(model: Any, inside: int) -> str | None:
    """The name of the embedding that has a row for each position (or a few more, as OPT has); None without one."""
    tokens = model.get_input_embeddings()
    for name, module in model.named_modules():
        rows = getattr(module, "num_embeddings", 0)
        if (
            module is not tokens
            and inside <= rows <= inside + 8
            and "position" in f"{name}{type(module).__name__}".lower()
        ):
            return str(name)
        if module is not tokens and name.endswith("wpe") and rows:
            return str(name)
    return None


def lengthen(torch: Any, model: Any, name: str, *, fresh: bool) -> None:
    """Give the table twice its rows: the old ones again, or new ones drawn as the old ones are spread."""
    table = model.get_submodule(name)
    old = table.weight.data  # (P, D)
    more = old
    if fresh:
        more = torch.randn(old.shape, generator=torch.Generator().manual_seed(1)).to(old) * old.std() + old.mean()
    table.weight = torch.nn.Parameter(torch.cat([old, more]), requires_grad=False)
    table.num_embeddings = int(table.weight.shape[0])
