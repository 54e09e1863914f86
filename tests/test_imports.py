"""The one direction in which imports run, read off the source.

    cli → lab → registry → scenarios → targets | faults | reports → engine → buffers → capacity, analysis
    → experiment → deeds → model

The rules, precisely:

1. A module imports only from its own package or from lower rungs. `|` and `,` join packages of one rung; those are
   strangers to each other. This holds for imports inside functions too.
2. A scenario never imports a target or a report, although they stand lower: it gets what it needs as values.
3. `model.py`, and a module that is started as a bare script (`lab/keeper.py`), import the standard library only.
4. A heavy package is imported inside the functions that need it. At the top of a module it may stand only under
   `if TYPE_CHECKING:`, or in a process entry: a module with a `__main__` guard that no other module imports.

`scenarios/` and `reports/` at the top of the repository count as `contextlab.scenarios` and `contextlab.reports`.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
RUNGS = (
    {"__main__", "pytest_plugin"},
    {"cli"},
    {"lab"},
    {"registry"},
    {"scenarios"},
    {"targets", "faults", "reports"},
    {"engine"},
    {"buffers"},
    {"capacity", "analysis"},
    {"experiment"},
    {"deeds"},
    {"model"},
)
RUNG_OF = {package: rung for rung, packages in enumerate(RUNGS) for package in packages}
HEAVY = frozenset(
    {"aiohttp", "httptools", "jinja2", "numpy", "pynvml", "ray", "torch", "transformers", "uvloop", "xllamacpp"}
)
STANDALONE = frozenset(
    {"contextlab.model", "contextlab.lab.keeper", "contextlab.lab.host.hogs", "contextlab.lab.undo.steps"}
)
NEVER = {("scenarios", "targets"), ("scenarios", "reports")}
EXCEPTIONS: dict[tuple[str, str], str] = {}
"""(importing module, imported module) → why it must be so; none today."""


@dataclass(frozen=True, slots=True)
class Import:
    """One imported module, and where: `lazy` inside a function, `typing` under `if TYPE_CHECKING:`."""

    module: str
    line: int
    lazy: bool = False
    typing: bool = False


@cache
def sources() -> dict[str, Path]:
    """Every module of the product by its dotted name."""
    found = {}
    for top, prefix in (
        ("contextlab", "contextlab"),
        ("scenarios", "contextlab.scenarios"),
        ("reports", "contextlab.reports"),
    ):
        for path in sorted((ROOT / top).rglob("*.py")):
            parts = [prefix, *path.relative_to(ROOT / top).with_suffix("").parts]
            found[".".join(parts).removesuffix(".__init__")] = path
    return found


@cache
def imports(module: str) -> tuple[Import, ...]:
    """All imports of one module of the product."""
    path = sources()[module]
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    return tuple(found_in(ast.parse(path.read_text(encoding="utf-8")), package, frozenset(sources())))


def found_in(tree: ast.AST, package: str, modules: frozenset[str]) -> Iterator[Import]:
    """The imports below a node; `package` is where relative ones begin, `modules` tells modules from names."""

    def walk(node: ast.AST, lazy: bool, typing: bool) -> Iterator[Import]:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, node.lineno, lazy, typing)
        elif isinstance(node, ast.ImportFrom):
            origin = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*origin, *([node.module] if node.module else [])])
            for alias in node.names:
                deeper = f"{base}.{alias.name}"
                yield Import(deeper if deeper in modules else base, node.lineno, lazy, typing)
        lazy = lazy or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for child in ast.iter_child_nodes(node):
            guarded = isinstance(node, ast.If) and child in node.body and "TYPE_CHECKING" in ast.unparse(node.test)
            yield from walk(child, lazy, typing or guarded)

    return walk(tree, False, False)


def package_of(module: str) -> str:
    """The part of the house that a module belongs to; "" for the root package itself."""
    _, _, rest = module.partition(".")
    return rest.partition(".")[0]


def has_main_guard(module: str) -> bool:
    """Whether the module can be started as a process."""
    tree = ast.parse(sources()[module].read_text(encoding="utf-8"))
    return any(isinstance(node, ast.If) and "__name__" in ast.unparse(node.test) for node in tree.body)


def wrong_way(module: str) -> list[str]:
    """The imports of a module that rules 1 and 2 forbid, in words."""
    own, found = package_of(module), []
    for one in imports(module):
        theirs = package_of(one.module)
        if not one.module.startswith("contextlab.") or theirs == own or (module, one.module) in EXCEPTIONS:
            continue
        if RUNG_OF[theirs] <= RUNG_OF[own] or (own, theirs) in NEVER:
            found.append(f"{module}:{one.line} imports {one.module}")
    return found


def test_there_is_something_to_look_at() -> None:
    assert {"contextlab.model", "contextlab.lab.run", "contextlab.reports.terminal"} <= sources().keys()
    assert any(name.startswith("contextlab.scenarios.overflow.") for name in sources())
    assert Import("contextlab.model", 1) not in imports("contextlab.model")
    assert any(one.module == "contextlab.registry" and not one.lazy for one in imports("contextlab.lab.run"))
    assert any(one.module == "aiohttp" and one.typing for one in imports("contextlab.targets.openai.wire"))
    assert any(one.module == "xllamacpp" and one.lazy for one in imports("contextlab.targets.servers.llama_server"))


def test_every_module_has_its_rung() -> None:
    unplaced = {name for name in sources() if name != "contextlab" and package_of(name) not in RUNG_OF}
    assert not unplaced, "draw them into the house (docs) and into RUNGS"


def test_the_root_package_imports_nothing_of_ours() -> None:
    assert [one for one in imports("contextlab") if one.module.startswith("contextlab")] == []


@pytest.mark.parametrize("module", sorted(name for name in sources() if name != "contextlab"))
def test_imports_run_one_way(module: str) -> None:
    assert wrong_way(module) == []


def test_no_exception_is_stale() -> None:
    for (module, imported), reason in EXCEPTIONS.items():
        assert reason
        assert any(one.module == imported for one in imports(module)), f"{module} no longer imports {imported}"


@pytest.mark.parametrize("module", sorted(STANDALONE))
def test_standard_library_only(module: str) -> None:
    tops = {one.module.partition(".")[0] for one in imports(module)}
    assert tops <= sys.stdlib_module_names


@pytest.mark.parametrize("module", sorted(sources()))
def test_heavy_packages_are_imported_where_they_are_needed(module: str) -> None:
    heavy = [
        one for one in imports(module) if one.module.partition(".")[0] in HEAVY and not one.lazy and not one.typing
    ]
    if heavy:
        assert has_main_guard(module), f"line {heavy[0].line}: import it inside the function that needs it"
        importers = [other for other in sources() if any(one.module == module for one in imports(other))]
        assert importers == [], f"{module} loads {heavy[0].module}, so only a process of its own may import it"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import torch", [Import("torch", 1)]),
        ("import torch.nn as nn, os", [Import("torch.nn", 1), Import("os", 1)]),
        ("def f():\n    import torch", [Import("torch", 2, lazy=True)]),
        ("class A:\n    import torch", [Import("torch", 2)]),
        ("class A:\n    def f(self):\n        import torch", [Import("torch", 3, lazy=True)]),
        ("try:\n    import torch\nexcept ImportError:\n    pass", [Import("torch", 2)]),
        (
            "if TYPE_CHECKING:\n    import torch\nelse:\n    import ray",
            [Import("torch", 2, typing=True), Import("ray", 4)],
        ),
        ("from contextlab import registry", [Import("contextlab.registry", 1)]),
        ("from contextlab.model import Run", [Import("contextlab.model", 1)]),
        ("from . import sibling", [Import("contextlab.lab.sibling", 1)]),
        ("from .. import registry", [Import("contextlab.registry", 1)]),
        ("from ..model import Run", [Import("contextlab.model", 1)]),
    ],
)
def test_the_reader_of_imports(source: str, expected: list[Import]) -> None:
    modules = frozenset({"contextlab.registry", "contextlab.model", "contextlab.lab.sibling"})
    assert list(found_in(ast.parse(source), "contextlab.lab", modules)) == expected


@pytest.mark.parametrize(
    ("module", "imported", "allowed"),
    [
        ("contextlab.cli.overflow", "contextlab.reports.json", True),
        ("contextlab.lab.run", "contextlab.targets.http", True),
        ("contextlab.targets.http", "contextlab.targets.openai.wire", True),
        ("contextlab.targets.gguf", "contextlab.capacity.gguf", True),
        ("contextlab.reports.json", "contextlab.targets.http", False),
        ("contextlab.targets.http", "contextlab.reports.json", False),
        ("contextlab.analysis.ends", "contextlab.capacity.kv", False),
        ("contextlab.registry", "contextlab.lab.run", False),
        ("contextlab.model", "contextlab.analysis.ends", False),
        ("contextlab.scenarios.overflow.find_limit", "contextlab.analysis.ends", True),
        ("contextlab.scenarios.overflow.find_limit", "contextlab.faults.latency", True),
        ("contextlab.scenarios.overflow.find_limit", "contextlab.targets.http", False),
        ("contextlab.scenarios.overflow.find_limit", "contextlab.reports.json", False),
    ],
)
def test_the_rules_say_what_they_mean(
    module: str, imported: str, allowed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "imports", lambda name: (Import(imported, 1, lazy=True),))
    assert (wrong_way(module) == []) is allowed
