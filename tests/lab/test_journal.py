"""The record: what goes in comes out, whatever dies meanwhile, and a full disk has words for itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from contextlab.lab.journal import RECORD, Journal, find_run, plain, read_run, revive
from contextlab.model import (
    SCHEMA,
    Api,
    Event,
    Failure,
    Finding,
    Gauges,
    Health,
    Kind,
    Knowledge,
    Layer,
    Limit,
    Limits,
    Message,
    NothingMeasured,
    Outcome,
    Policy,
    Probe,
    ProcessEnd,
    Record,
    Request,
    Setting,
    Skip,
    Stretch,
    TargetSpec,
    UnableError,
    Usage,
    Verdict,
)

T = TypeVar("T")

unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""Other work on the machine must not fail a property."""

# ── any of our nouns ─────────────────────────────────────────────────────────────────────────────

words = st.text(max_size=12)
names = st.text(st.sampled_from('abz-_:0 é"\\\n\u2028🙂'), min_size=1, max_size=8)
counts = st.integers(0, 2**63 - 1)
numbers = st.integers(-(2**63), 2**63) | st.floats(allow_nan=False, allow_infinity=False)
seconds = st.floats(0, 1e9)
about = st.dictionaries(names, numbers | words, max_size=3)
evidence = st.dictionaries(names, numbers | words | st.booleans() | st.none(), max_size=4)
outcomes = st.sampled_from(Outcome)
some_outcomes = st.frozensets(outcomes, max_size=4)


def maybe(strategy: st.SearchStrategy[T]) -> st.SearchStrategy[T | None]:
    return st.none() | strategy


messages = st.builds(
    Message,
    role=st.sampled_from(["user", "system", "prompt"]),
    parts=st.lists(words | st.builds(Stretch, weight=st.floats(0.1, 9)), max_size=4).map(tuple),
)
requests = st.builds(
    Request,
    name=names,
    messages=st.lists(messages, max_size=3).map(tuple),
    api=st.sampled_from(Api),
    size_tokens=maybe(counts),
    reply_tokens=maybe(counts),
    stream=st.booleans(),
    ignore_eos=st.booleans(),
    expects=words,
    secret=words,
    hang_up_after_tokens=maybe(counts),
    words_seed=counts,
)
probes = st.builds(
    Probe,
    name=names,
    requests=st.lists(requests, max_size=2).map(tuple),
    allowed=some_outcomes,
    parallel=st.booleans(),
    neighbour=st.booleans(),
    watch=st.booleans(),
    timeout_s=maybe(seconds),
    memory_limit_bytes=maybe(counts),
    task=words,
    about=about,
)
usages = st.builds(
    Usage,
    prompt_tokens=maybe(counts),
    completion_tokens=maybe(counts),
    cached_tokens=maybe(counts),
    evaluated_tokens=maybe(counts),
    truncated=maybe(st.booleans()),
)
failures = st.builds(
    Failure, where=words, message=words, status=maybe(st.integers(100, 599)), error_type=words, fields=about
)
events = st.builds(
    Event,
    kind=st.sampled_from(Kind),
    text=words,
    prompt_tokens=maybe(counts),
    exact=st.booleans(),
    status=maybe(st.integers(100, 599)),
    finish_reason=maybe(words),
    usage=maybe(usages),
    failure=maybe(failures),
    num_bytes=counts,
)
limits = st.builds(
    Limits,
    context_tokens=maybe(counts),
    pool_tokens=maybe(counts),
    num_slots=maybe(counts),
    declared=st.lists(
        st.builds(Limit, layer=st.sampled_from(Layer), name=words, tokens=maybe(counts), source=words), max_size=2
    ).map(tuple),
)
gauges = st.builds(
    Gauges,
    busy_slots=maybe(counts),
    waiting_requests=maybe(counts),
    preemptions=maybe(counts),
    kv_usage_ratio=maybe(st.floats(0, 1)),
    memory_bytes=maybe(counts),
)
knowledges = st.builds(
    Knowledge,
    flavour=words,
    model=words,
    limits=limits,
    powers=st.frozensets(words, max_size=3),
    tokens_per_word=st.floats(0.1, 9),
    neighbour_text=words,
    neighbour_stable=st.booleans(),
    neighbour_note=words,
    prefill_tokens_per_s=maybe(seconds),
    decode_tokens_per_s=maybe(seconds),
    gauges=maybe(gauges),
    version=words,
)
findings = st.builds(
    Finding,
    scenario=names,
    probe=names,
    outcome=outcomes,
    verdict=st.sampled_from(Verdict),
    layer=st.sampled_from(Layer),
    why=words,
    evidence=evidence,
    remedy=words,
)
nouns = st.one_of(
    probes,
    findings,
    knowledges,
    events,
    requests,
    gauges,
    st.builds(Skip, scenario=names, reason=words, probe=words),
    st.builds(Policy, allow=some_outcomes, fail_on=some_outcomes),
    st.builds(Health, at_s=seconds, healthy=maybe(st.booleans()), detail=words),
    st.builds(
        ProcessEnd,
        exit_code=maybe(st.integers(0, 255)),
        signal=maybe(words),
        timed_out=st.booleans(),
        out_of_memory=maybe(st.booleans()),
        peak_memory_bytes=maybe(counts),
        last_event=words,
        stderr_tail=st.lists(words, max_size=3).map(tuple),
    ),
    st.builds(TargetSpec, name=names, scheme=names, address=words, settings=evidence, url=maybe(words)),
    st.builds(Setting, name=names, kind=words, default=numbers | words | st.none(), help=words, low=maybe(seconds)),
)


def through_json(value: object) -> Any:
    return msgspec.json.decode(msgspec.json.encode(plain(value)))


@unhurried
@given(nouns)
def test_every_noun_comes_back_as_it_went(noun: object) -> None:
    again = revive(through_json(noun), type(noun))
    assert again == noun
    assert plain(again) == plain(noun)


@unhurried
@given(nouns)
def test_plain_values_are_what_any_json_reader_takes(noun: object) -> None:
    assert json.loads(json.dumps(plain(noun), allow_nan=False)) == through_json(noun)


def test_defaults_are_left_out_and_enums_stand_by_name() -> None:
    request = Request(name="a", messages=(Message(role="user", parts=("b", Stretch())),))
    assert plain(request) == {"name": "a", "messages": [{"role": "user", "parts": ["b", {}]}]}
    probe = Probe(name="p", allowed=frozenset({Outcome.REJECTED, Outcome.CAPPED}))
    assert plain(probe) == {"name": "p", "allowed": ["CAPPED", "REJECTED"]}
    assert plain(Verdict.FAIL) == "FAIL"
    assert plain(Layer.KV_CACHE) == "KV cache"
    assert plain({Outcome.OK: {Kind.TOKEN: 1}}) == {"OK": {"token": 1}}


def test_a_value_of_another_type_than_the_default_is_kept() -> None:
    assert plain(Knowledge(flavour="f", model="m", limits=Limits(), tokens_per_word=1)) == {
        "flavour": "f",
        "model": "m",
        "limits": {},
        "tokens_per_word": 1,
    }
    assert plain(Event(kind=Kind.TOKEN, exact=0))["exact"] == 0  # type: ignore[arg-type]


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_numbers_that_are_none_become_null(number: float) -> None:
    finding = Finding(
        scenario="s",
        probe="p",
        outcome=Outcome.OK,
        verdict=Verdict.PASS,
        layer=Layer.ENGINE,
        why="",
        evidence={"x": number, "y": 1.5},
    )
    assert plain(finding)["evidence"] == {"x": None, "y": 1.5}
    assert revive(through_json(finding), Finding).evidence == {"x": None, "y": 1.5}
    assert plain([{"deep": (number,)}]) == [{"deep": [None]}]


@pytest.mark.parametrize("text", ["\ud83d", "caf\udce9", "ok \ud83d\ude00 \udc00"])
def test_half_a_surrogate_pair_is_written_out(text: str) -> None:
    """Servers that cut an emoji in two send them in JSON; a command line that is not UTF-8 holds them as well."""
    for value in (text, [text], {"a": text}, {text: 1}, Event(kind=Kind.TOKEN, text=text)):
        assert "\\ud" in json.dumps(through_json(value))
    assert plain("🙂 é \ufffd") == "🙂 é \ufffd"


def test_every_enum_of_the_record_is_found_again() -> None:
    kinds: tuple[type[Enum], ...] = (Outcome, Verdict, Layer, Api, Kind)
    for kind in kinds:
        assert [revive(plain(member), kind) for member in kind] == list(kind)
    with pytest.raises(msgspec.ValidationError):
        revive("NO_SUCH_OUTCOME", Outcome)


# ── a record ─────────────────────────────────────────────────────────────────────────────────────


class Clock:
    """A second for each look."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        self.now_s += 1
        return self.now_s


REQUEST = Request(name="ask", messages=(Message(role="prompt", parts=("Größe 🙂", Stretch())),), size_tokens=64)


def recorded(folder: Path) -> Path:
    """A small run with a line of each kind, in letters of one to four bytes."""
    with Journal(folder, Clock()) as journal:
        journal.append("header", schema=SCHEMA, run=folder.name, command="overflow", seed=1, target={"name": "fake:é"})
        journal.append("server", pid=1, url="http://127.0.0.1:1", log="server.log", start=1)
        journal.append("knowledge", knowledge=Knowledge(flavour="f", model="m", limits=Limits(context_tokens=64)))
        journal.append("scenario", scenario="s", name="s", summary="…")
        journal.append("probe", scenario="s", probe=Probe(name="p", requests=(REQUEST,)))
        place = {"scenario": "s", "probe": "p", "exchange": "ask"}
        journal.append("event", **place, event=Event(kind=Kind.SENT, prompt_tokens=9, exact=True), request=REQUEST)
        for text in ("Größe", " 🙂"):
            journal.append("event", **place, event=Event(kind=Kind.TOKEN, text=text, num_bytes=9))
        journal.append("event", **place, event=Event(kind=Kind.DONE))
        journal.append("observed", scenario="s", probe="p", client=ProcessEnd(exit_code=0), server=None)
        finding = Finding(
            scenario="s",
            probe="p",
            outcome=Outcome.TRUNCATED_HEAD,
            verdict=Verdict.FAIL,
            layer=Layer.GATEWAY,
            why="weil",
            evidence={"x": 1},
        )
        journal.append("finding", **plain(finding))
        journal.append("skip", **plain(Skip(scenario="t", reason="Grund")))
        journal.append("note", text="ein Wort")
        journal.append("end", verdict=Verdict.FAIL, exit={"code": 1, "reason": "r", "all": [[1, "r"]]})
    return folder / RECORD


def test_a_whole_record(tmp_path: Path) -> None:
    run = read_run(recorded(tmp_path / "run"))
    assert run.path == str(tmp_path / "run")
    assert run.header["seed"] == 1
    assert run.knowledge is not None
    assert run.knowledge.limits.context_tokens == 64
    assert run.probes["s", "p"].requests == (REQUEST,)
    [exchange] = run.exchanges["s", "p"]
    assert (exchange.request, exchange.text, exchange.token_s) == (REQUEST, "Größe 🙂", (7.0, 8.0))
    assert (exchange.prompt_tokens, exchange.sent_s, exchange.done, exchange.num_bytes) == (9, 6.0, True, 18)
    assert [finding.outcome for finding in run.findings] == [Outcome.TRUNCATED_HEAD]
    assert run.skips == (Skip(scenario="t", reason="Grund"),)
    assert run.end is not None
    assert run.end["exit"]["code"] == 1
    assert [record["at_s"] for record in run.records] == [float(number) for number in range(1, 15)]


def test_a_listener_hears_each_line_after_it_is_safe(tmp_path: Path) -> None:
    heard: list[Record] = []

    def listener(record: Record) -> None:
        lines = (tmp_path / "run" / RECORD).read_bytes().splitlines()
        heard.append(record)
        assert [json.loads(line) for line in lines] == heard

    with Journal(tmp_path / "run", Clock(), listener) as journal:
        journal.append("header", schema=SCHEMA)
        journal.append("note", text="é")
    assert [record["kind"] for record in heard] == ["header", "note"]


def test_cut_at_every_byte_it_is_still_read_up_to_there(tmp_path: Path) -> None:
    """Whatever kills the tool, at whatever byte: a run with the lines before, or words, never another error."""
    path = recorded(tmp_path / "run")
    data = path.read_bytes()
    ends = [number for number, byte in enumerate(data) if byte == ord("\n")]
    assert len(ends) == 14
    for cut in range(len(data) + 1):
        path.write_bytes(data[:cut])
        whole_lines = sum(end <= cut for end in ends)
        if whole_lines == 0:
            with pytest.raises(NothingMeasured, match="does not begin with a header"):
                read_run(path)
        else:
            run = read_run(path)
            assert len(run.records) == whole_lines
            assert (run.end is not None) is (whole_lines == 14)


@pytest.fixture(scope="module")
def bytes_of_a_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes]:
    path = recorded(tmp_path_factory.mktemp("damaged") / "run")
    return path, path.read_bytes()


@unhurried
@given(data=st.data())
def test_damaged_anywhere_it_is_a_run_or_words(bytes_of_a_run: tuple[Path, bytes], data: st.DataObject) -> None:
    path, whole = bytes_of_a_run
    first = data.draw(st.integers(0, len(whole) - 1))
    last = data.draw(st.integers(first, min(len(whole), first + 40)))
    path.write_bytes(whole[:first] + data.draw(st.binary(max_size=20)) + whole[last:])
    assert_run_or_words(path)


def assert_run_or_words(path: Path) -> None:
    """Reading gives a run, or NothingMeasured with the path and a next step; any other error fails the test."""
    try:
        run = read_run(path)
    except NothingMeasured as error:
        told = error.message.startswith(f"{path}: ") and error.next_step != ""
    else:
        told = run.path == str(path.parent)
    assert told


values = st.recursive(
    st.none() | st.booleans() | numbers | words,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(names, inner, max_size=2),
    max_leaves=4,
)
fields = st.sampled_from(["scenario", "probe", "exchange", "event", "request", "at_s", "knowledge", "exit", "outcome"])


@unhurried
@given(
    st.sampled_from(["header", "server", "knowledge", "probe", "event", "finding", "skip", "end", "observed", "else"])
    | values,
    st.dictionaries(fields, values, max_size=4),
)
@example("event", {"exchange": ["not", "a", "name"], "event": {"kind": "token"}, "at_s": 1})
@example("event", {"exchange": "ask", "event": {"kind": "token"}})
@example(["not", "a", "kind"], {})
def test_lines_of_any_shape(bytes_of_a_run: tuple[Path, bytes], kind: object, line: dict[str, object]) -> None:
    path, whole = bytes_of_a_run
    path.write_bytes(whole + msgspec.json.encode({"kind": kind, **line}) + b"\n")
    assert_run_or_words(path)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n\n",
        b"[]\n",
        b"not json at all\n",
        b"\xff\xfe\x00\x01",
        b"\x00" * 4096,
        b"[" * 100_000,
        b'{"kind":"note"}\n',
        b'{"no":"kind"}\n',
    ],
    ids=["empty", "lines", "list", "text", "binary", "zeros", "deep", "no-header", "no-kind"],
)
def test_what_is_no_record(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / RECORD
    path.write_bytes(content)
    with pytest.raises(NothingMeasured, match="not a run record") as caught:
        read_run(path)
    assert str(path) in caught.value.message
    assert caught.value.exit_code == 5


@pytest.mark.parametrize("schema", ["contextlab.run/2", "contextlab.run/10", "contextlab.run", "other/1", "", None, 1])
def test_another_schema_is_refused_by_name(tmp_path: Path, schema: object) -> None:
    path = tmp_path / RECORD
    path.write_bytes(msgspec.json.encode({"kind": "header", "schema": schema, "at_s": 0}) + b"\n")
    with pytest.raises(NothingMeasured) as caught:
        read_run(path)
    assert f"schema {schema!r} is not {SCHEMA!r}" in caught.value.message
    assert "the version of contextlab that wrote it" in caught.value.next_step


def test_a_record_that_is_gone(tmp_path: Path) -> None:
    with pytest.raises(NothingMeasured, match="cannot be read: No such file"):
        read_run(tmp_path / RECORD)
    with pytest.raises(NothingMeasured, match="cannot be read: Is a directory"):
        read_run(tmp_path)


# ── which run is meant ───────────────────────────────────────────────────────────────────────────


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three runs, and a folder that is none; the newest name was not written last."""
    monkeypatch.chdir(tmp_path)
    for name in ("20260102-000000-overflow-b", "20260103-000000-overflow-c", "20260101-000000-overflow-a"):
        recorded(tmp_path / "runs" / name)
    (tmp_path / "runs" / "20270101-000000-overflow-empty").mkdir()
    return tmp_path / "runs"


def test_find_run(runs: Path) -> None:
    name = "20260102-000000-overflow-b"
    path = runs / name / RECORD
    assert find_run("latest", runs) == runs / "20260103-000000-overflow-c" / RECORD
    assert find_run(name, runs) == path
    assert find_run(str(runs / name), runs) == path
    assert find_run(str(path), Path("elsewhere")) == path
    assert find_run(f"runs/{name}", runs) == Path("runs") / name / RECORD
    assert find_run(f"runs/{name}/", runs) == Path("runs") / name / RECORD


def test_a_folder_of_that_name_goes_before_the_latest(runs: Path) -> None:
    recorded(Path("latest"))
    assert find_run("latest", runs) == Path("latest") / RECORD


@pytest.mark.parametrize("name", ["nothing", "20270101-000000-overflow-empty", "x" * 300, "a\0b", "runs", ""])
def test_no_such_run(runs: Path, name: str) -> None:
    with pytest.raises(NothingMeasured) as caught:
        find_run(name, runs)
    assert f"run={name!r}: there is no such run record" == caught.value.message
    assert str(runs) in caught.value.next_step


def test_latest_of_nothing(tmp_path: Path) -> None:
    with pytest.raises(NothingMeasured, match="latest"):
        find_run("latest", tmp_path / "no-such-folder")


# ── a disk that is full, a folder that cannot be written ─────────────────────────────────────────


def test_a_folder_that_exists_is_not_written_over(tmp_path: Path) -> None:
    path = recorded(tmp_path / "run")
    before = path.read_bytes()
    with pytest.raises(UnableError, match=f"the folder {path.parent} exists already") as caught:
        Journal(path.parent, Clock())
    assert "--output" in caught.value.next_step
    assert path.read_bytes() == before


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    """For root as well: nobody makes folders in /proc, and a file is no folder."""
    (tmp_path / "file").touch()
    for folder in (Path("/proc/contextlab/run"), tmp_path / "file" / "run", tmp_path / ("x" * 300)):
        with pytest.raises(UnableError, match="cannot write a run record to") as caught:
            Journal(folder, Clock())
        assert str(folder) in caught.value.message
        assert "--output DIR" in caught.value.next_step


def test_a_folder_that_is_read_only(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with as_nobody(), pytest.raises(UnableError, match="Permission denied"):
        Journal(tmp_path / "run", Clock())


@contextmanager
def as_nobody() -> Iterator[None]:
    """Root may write everywhere; for this it must be somebody else."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
def test_a_full_disk_has_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def mkdir(folder: Path, **options: bool) -> None:
        os.mkdir(folder)
        (folder / RECORD).symlink_to("/dev/full")

    monkeypatch.setattr(Path, "mkdir", mkdir)
    heard: list[Record] = []
    with (
        Journal(tmp_path / "run", Clock(), heard.append) as journal,
        pytest.raises(UnableError, match="No space left on device") as caught,
    ):
        journal.append("header", schema=SCHEMA)
    assert str(tmp_path / "run" / RECORD) in caught.value.message
    assert "still readable: contextlab report" in caught.value.next_step
    assert heard == []


FILLS = """
import resource, sys
from pathlib import Path
from contextlab.lab.journal import Journal
from contextlab.model import SCHEMA, UnableError
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
with Journal(Path(sys.argv[1]), lambda: 0.0) as journal:
    journal.append("header", schema=SCHEMA)
    for number in range(1000):
        try:
            journal.append("note", text=f"{number:099}")
        except UnableError as error:
            print(number, error.message)
            break
"""


@pytest.mark.process
def test_what_was_recorded_before_the_disk_was_full_stays_readable(tmp_path: Path) -> None:
    """A limit on the size of a file ends in the middle of a line, as a full disk does."""
    done = subprocess.run(
        [sys.executable, "-c", FILLS, str(tmp_path / "run")], capture_output=True, text=True, check=True, timeout=60
    )
    number, _, message = done.stdout.partition(" ")
    assert f"cannot write the run record {tmp_path / 'run' / RECORD}" in message
    assert (tmp_path / "run" / RECORD).stat().st_size == 10_000
    run = read_run(tmp_path / "run" / RECORD)
    assert len(run.records) == 1 + int(number)
    assert run.end is None
