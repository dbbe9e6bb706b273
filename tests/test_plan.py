"""Run ``tokcache plan`` on the two trace formats and on conversations."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from tokcache import CachedTokenizer
from tokcache.chat import chat_format, turns
from tokcache.cli import main
from tokcache.cli.plan import take_turns
from tokcache.cli.traces import read_trace
from tokcache.cli.workload import UNBOUNDED, of_trace, run

from .data import DATA, REPOSITORY

if TYPE_CHECKING:
    from pathlib import Path

    from _pytest.capture import CaptureFixture

    from tokcache.cli.traces import Trace

EXAMPLE = REPOSITORY / "examples" / "data" / "tau_airline.jsonl.gz"

# A prompt of three blocks, its first two and another third, all of it again with a
# fourth, something else, and a prompt shorter than a block.
MOONCAKE: list[dict[str, Any]] = [
    {"timestamp": 0, "input_length": 1200, "hash_ids": [0, 1, 2]},
    {"timestamp": 5, "input_length": 1536, "hash_ids": [0, 1, 3]},
    {"timestamp": 3, "input_length": 1200, "hash_ids": [0, 1, 2]},
    {"timestamp": 9, "input_length": 2000, "hash_ids": [0, 1, 3, 4]},
    {"timestamp": 9, "input_length": 700, "hash_ids": [7, 8]},
    {"timestamp": 10, "input_length": 100, "hash_ids": []},
]


def weka_session(first: int = 1, tools: int = 1000) -> dict[str, Any]:
    """Return a session of three requests, one of them a sub-agent's."""
    return {
        "block_size": 64,
        "tool_tokens": tools,
        "system_tokens": 100,
        "requests": [
            {"t": 0.0, "type": "n", "in": 64 * 20 + 5, "hash_ranges": [[first, 20]]},
            {
                "type": "subagent",
                "t": 1.0,
                "tool_tokens": 0,
                "system_tokens": 0,
                "requests": [
                    {"t": 0.5, "type": "s", "in": 600, "hash_ranges": [[900, 9]]}
                ],
            },
            {
                "t": 9.0,
                "type": "n",
                "in": 64 * 40,
                "hash_ranges": [[first, 20], [first + 30, 20]],
            },
        ],
    }


def write(path: Path, entries: list[dict[str, Any]]) -> Path:
    """Write a file of JSON lines."""
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries), "utf-8")
    return path


def in_process(capsys: CaptureFixture[str], *arguments: object) -> dict[str, Any]:
    """Run ``plan`` with ``--json``; return its object."""
    code = main(["plan", *map(str, arguments), "--json"])
    captured = capsys.readouterr()
    assert (code, captured.err) == (0, "")
    found: dict[str, Any] = json.loads(captured.out)
    return found


def brute_force(trace: Trace) -> tuple[int, int]:
    """Count the tokens of prefixes that an earlier request had, and all tokens."""
    seen: set[int] = set()
    cached = 0
    for request in trace.requests:
        cached += sum(trace.lengths[number] for number in seen & {*request.path})
        seen.update(request.path)
    return cached, sum(request.n_tokens(trace.lengths) for request in trace.requests)


def test_mooncake(tmp_path: Path, capsys: CaptureFixture[str]) -> None:
    file = write(tmp_path / "trace.jsonl", MOONCAKE)
    found = in_process(capsys, file)
    n_tokens = 1200 + 1536 + 1200 + 2000 + 700 + 100
    n_distinct = 1200 + 512 + (2000 - 1536) + 700
    n_cached = 1200 + 1024 + 1536  # in the order of their times
    assert found["source"] == "Mooncake trace"
    assert (found["requests"], found["tokens"]) == (6, n_tokens)
    assert found["unique_payload_bytes"] == 4 * n_distinct
    assert found["attainable_token_hit_ratio"] == n_cached / n_tokens
    assert brute_force(read_trace([str(file)], "Mooncake", hours=0)) == (
        n_cached,
        n_tokens,
    )
    budgets = [row["max_memory_bytes"] for row in found["budgets"]]
    shares = (0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1)
    assert budgets == [round(share * 4 * n_distinct) for share in shares]
    last = found["budgets"][-1]
    assert last["token_hit_ratio"] == n_cached / n_tokens
    assert last["share_of_attainable"] == last["share_of_unique"] == 1.0
    assert last["memory_bytes"] == 4 * n_distinct
    assert all(
        row["memory_bytes"] <= row["max_memory_bytes"] for row in found["budgets"]
    )
    assert found["budgets"][0]["cached_tokens"] == 0


def test_ids_of_two_mooncake_files_are_not_shared(
    tmp_path: Path, capsys: CaptureFixture[str]
) -> None:
    files = [write(tmp_path / f"{name}.jsonl", MOONCAKE) for name in "ab"]
    one = in_process(capsys, files[0])
    two = in_process(capsys, *files)
    assert two["tokens"] == 2 * one["tokens"]
    assert two["unique_payload_bytes"] == 2 * one["unique_payload_bytes"]
    assert two["attainable_token_hit_ratio"] == one["attainable_token_hit_ratio"]


def test_weka(tmp_path: Path, capsys: CaptureFixture[str]) -> None:
    # The first two sessions have their first 17 blocks in common, two groups of eight;
    # the third has other tools.
    sessions = [weka_session(), weka_session(100), weka_session(tools=1001)]
    packed = tmp_path / "trace.jsonl.gz"
    lines = "".join(json.dumps(session) + "\n" for session in sessions)
    packed.write_bytes(gzip.compress(lines.encode()))
    found = in_process(capsys, packed, "--hours", 2)
    n_tokens = 3 * (1285 + 600 + 2560)
    # 16 blocks in groups of eight, 4 blocks and 5 tokens; 9 blocks and 24 tokens; the
    # same 16 blocks and three more groups.
    n_distinct = 3 * (4 * 64 + 9 * 64 + 3 * 512) + 2 * 1024
    assert found["source"] == "WEKA trace"
    assert (found["requests"], found["tokens"]) == (9, n_tokens)
    assert found["unique_payload_bytes"] == 4 * n_distinct
    cached, total = brute_force(read_trace([str(packed)], "WEKA", hours=2))
    assert cached == n_tokens - n_distinct - 3 * (5 + 24)
    assert total == n_tokens
    assert found["attainable_token_hit_ratio"] == cached / total


def test_sessions_begin_within_the_hours(tmp_path: Path) -> None:
    sessions = [weka_session(number * 1000) for number in range(1, 20)]
    file = write(tmp_path / "trace.jsonl", sessions)
    spread = read_trace([str(file)], "WEKA", hours=1000)
    at_once = read_trace([str(file)], "WEKA", hours=0)
    lengths = [
        [len(request.path) for request in trace.requests] for trace in (spread, at_once)
    ]
    assert lengths[0] == [3, 2, 5] * 19  # one session after the other
    assert lengths[1] == [3] * 19 + [2] * 19 + [5] * 19


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("mooncake_conversation_trace.jsonl.gz", "Mooncake"),
        ("weka_agentic_coding_dev.jsonl.gz", "WEKA"),
    ],
)
def test_real_traces_without_a_budget(name: str, kind: Any) -> None:
    file = DATA / "traces" / name
    if not file.is_file():
        pytest.skip("the shared data folder is absent")
    trace = read_trace([str(file)], kind, hours=6, limit=60)
    found = run(of_trace(trace), UNBOUNDED)
    cached, total = brute_force(trace)
    assert found.cached_tokens == cached > 0
    assert found.cached_tokens + found.uncached_tokens == total
    assert found.memory_bytes == 4 * sum(trace.lengths)
    assert (found.entries, found.evictions) == (len(trace.lengths), 0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a folder with a tokenizer of bytes that knows a chat format's tokens."""
    folder = tmp_path_factory.mktemp("plan")
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(
        models.BPE(vocab=dict(zip(alphabet, range(256), strict=True)), merges=[])
    )
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(
        [
            AddedToken(token, special=True, normalized=False)
            for token in ("<|im_start|>", "<|im_end|>")
        ]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def test_conversations_are_those_of_the_cached_tokenizer(
    folder: Path, capsys: CaptureFixture[str]
) -> None:
    """What ``plan`` says of a budget is what ``CachedTokenizer`` does with it."""
    options = ("--tokenizer", folder, "--format", "qwen3", "--limit", 4)
    found = in_process(
        capsys, EXAMPLE, *options, "--budget", "120kB", "--budget", "1MiB"
    )
    with gzip.open(EXAMPLE, "rt", encoding="utf-8") as lines:
        talks = [json.loads(line) for line, _ in zip(lines, range(4), strict=False)]
    renderer = chat_format("qwen3")
    texts = [
        [
            renderer.render(
                turn.messages,
                tools=talk["tools"],
                add_generation_prompt=turn.add_generation_prompt,
            )
            for turn in turns(talk["messages"])
        ]
        for talk in talks
    ]
    order = list(take_turns([iter(each) for each in texts], 8))
    for row, budget in zip(found["budgets"], (120_000, 2**20), strict=True):
        inner = Tokenizer.from_file(str(folder / "tokenizer.json"))
        cached = CachedTokenizer(inner, max_memory_bytes=budget)
        for text in order:
            cached.encode(text, add_special_tokens=False)
        stats = cached.cache_stats()
        assert row["max_memory_bytes"] == budget
        assert row["cached_tokens"] == stats.cached_tokens
        assert row["token_hit_ratio"] == stats.token_hit_rate
        assert (row["hits"], row["misses"]) == (stats.hits, stats.misses)
        assert row["memory_bytes"] == stats.memory_bytes
        assert row["resident_bytes"] == stats.resident_bytes
        assert row["evictions"] == stats.evictions
    assert found["requests"] == len(order)
    first, last = found["budgets"]
    assert first["evictions"] > 0
    assert last["token_hit_ratio"] == found["attainable_token_hit_ratio"] > 0.5


def test_the_table_and_the_plot(
    folder: Path, tmp_path: Path, capsys: CaptureFixture[str]
) -> None:
    plot = tmp_path / "new folder" / "budgets.png"
    options = ["--tokenizer", str(folder), "--format", "qwen3", "--limit", "2"]
    assert main(["plan", str(EXAMPLE), *options, "--plot", str(plot)]) == 0
    captured = capsys.readouterr()
    assert captured.err == f"made the folder {plot.parent}\n"
    rows = [
        [cell.strip() for cell in line.split("│")[1:-1]]
        for line in captured.out.splitlines()
        if line.startswith("│")
    ]
    assert [row[1] for row in rows] == [
        "1.0%",
        "2.0%",
        "5.0%",
        "10.0%",
        "25.0%",
        "50.0%",
        "100.0%",
    ]
    assert rows[-1][3:5] == ["100.0%", "0"]
    assert "2 conversations, 8 at a time, qwen3; prompts: " in captured.out
    assert "times a prompt alone was over a budget and not stored" in captured.out
    assert captured.out.splitlines()[-1] == f"plot: {plot}"
    assert plot.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")


def test_a_trace_says_that_it_has_no_text(
    tmp_path: Path, capsys: CaptureFixture[str]
) -> None:
    file = write(tmp_path / "trace.jsonl", MOONCAKE)
    plot = tmp_path / "zero.png"
    budgets = ["--budget", "0", "--budget", "1MiB"]
    assert main(["plan", str(file), *budgets, "--plot", str(plot)]) == 0
    out = capsys.readouterr().out
    assert "A trace has no text: only the budget of ids" in out
    assert "resident" not in out.splitlines()[2]
    assert plot.stat().st_size > 10_000


BAD_LINES = {
    '{"hash_ids": [1], "input_length": 5}': ':1: "timestamp" is not a number',
    '{"hash_ids": [1], "timestamp": true}': ':1: "timestamp" is not a number',
    '{"hash_ids": [1], "timestamp": 0}': ':1: "input_length" is not a count',
    '{"hash_ids": 1, "timestamp": 0, "input_length": 5}': (
        ':1: "hash_ids" is not a list of integers'
    ),
    '\n{"hash_ids": [1, 2], "timestamp": 0, "input_length": 512}': (
        ':2: "input_length" is too small for 2 "hash_ids"'
    ),
    '{"hash_ids": [], "timestamp": 0, "input_length": 5}\n[1]': (
        ':2: not a JSON object with "timestamp", "input_length" and "hash_ids"'
    ),
    '{"hash_ids": [], "timestamp": 0, "input_length": 5}\n{"requests": []}': (
        ':2: "timestamp" is not a number'
    ),
    '{"requests": [], "block_size": 0}': ':1: "block_size" is not a positive integer',
    '{"requests": {}, "block_size": 64}': ':1: "requests" is not a list',
    '{"requests": [], "block_size": 64}': ':1: "tool_tokens" is not a count',
    '{"requests": [], "block_size": 64, "tool_tokens": 0, "system_tokens": 0}': (
        "no requests in "
    ),
    '{"block_size": 64, "tool_tokens": 0, "system_tokens": 0, "requests": [3]}': (
        ":1: request 1 is not an object"
    ),
    '{"block_size": 64, "tool_tokens": 0, "system_tokens": 0, "requests": [{}]}': (
        ':1: request 1: "t" is not a number'
    ),
    '{"block_size": 64, "tool_tokens": 0, "system_tokens": 0, "requests":'
    ' [{"t": 0, "hash_ranges": [1]}]}': (
        ':1: request 1: "hash_ranges" is not a list of [first, count]'
    ),
    '{"block_size": 64, "tool_tokens": 0, "system_tokens": 0, "requests":'
    ' [{"t": 0, "hash_ranges": [[1, 3]], "in": 128}]}': (
        ':1: request 1: "in" is too small for 3 blocks of 64'
    ),
    '{"hash_ids": [': ":1: not JSON: Expecting value",
    '{"text": "x"}': "conversations need a tokenizer: name one with --tokenizer",
    "": "conversations need a tokenizer",
}


def complain(code: int, capsys: CaptureFixture[str], *parts: str) -> None:
    """Check that one line on stderr says it, and nothing was printed."""
    captured = capsys.readouterr()
    assert (code, captured.out) == (2, "")
    assert captured.err.startswith("tokcache: ")
    assert captured.err.count("\n") == 1
    for part in parts:
        assert part in captured.err


@pytest.mark.parametrize("lines", BAD_LINES)
def test_a_bad_line_is_named(
    lines: str, tmp_path: Path, capsys: CaptureFixture[str]
) -> None:
    file = tmp_path / "bad.jsonl"
    file.write_text(lines, "utf-8")
    complaint = BAD_LINES[lines]
    where = [str(file)] if complaint.startswith(":") else []
    complain(main(["plan", str(file)]), capsys, complaint, *where)


def test_what_cannot_be_planned(
    folder: Path, tmp_path: Path, capsys: CaptureFixture[str]
) -> None:
    trace = write(tmp_path / "trace.jsonl", MOONCAKE)
    weka = write(tmp_path / "weka.jsonl", [weka_session()])
    complain(main(["plan", str(tmp_path / "none")]), capsys, "No such file")
    complain(
        main(["plan", str(trace), str(weka)]), capsys, "one kind of input at a time"
    )
    complain(main(["plan", str(trace), "--budget", "x"]), capsys, "bad size 'x'")
    complain(
        main(["plan", str(trace), "--plot", str(tmp_path)]), capsys, "is a directory"
    )
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(5)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    options = ["--tokenizer", str(tmp_path), "--format", "qwen3", "--limit", "1"]
    code = main(["plan", str(EXAMPLE), *options])
    complain(code, capsys, "prompts would go past the cache", "truncation")


def test_conversations_take_turns() -> None:
    talks = ["abc", "12", "x", "", "yz"]
    for concurrent, expected in {
        1: "abc12xyz",
        2: "a1b2cxyz",
        9: "a1xyb2zc",
    }.items():
        taken = take_turns([iter(talk) for talk in talks], concurrent)
        assert "".join(taken) == expected
