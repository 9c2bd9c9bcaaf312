"""Question files: what is accepted, and how everything else is named; questions are dealt fairly."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marti_ext.questions import KEYS, TASKS, BadData, Question, QuestionSource, load_questions

ROW = {"id": "1", "task": "math", "source": "s", "prompt": "1 + 1?", "answer": "2"}


def rows(*changes: dict) -> list[dict]:
    return [ROW | {"id": str(number)} | change for number, change in enumerate(changes, 1)]


def write(path: Path, records: list) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def refused(path: Path) -> list[str]:
    with pytest.raises(BadData) as error:
        load_questions(path)
    return str(error.value).splitlines()


def test_lines_lists_byte_order_marks_and_windows_line_ends_are_read(tmp_path):
    expected = [Question(**row) for row in rows({}, {"prompt": "ümlaut\u2028"})]
    lines = [json.dumps(row | {"level": 3}, ensure_ascii=False) for row in rows({}, {"prompt": "ümlaut\u2028"})]
    for name, text in {
        "plain.jsonl": "\n".join(lines),
        "blank.jsonl": "\n\n".join(lines) + "\n\n",
        "windows.jsonl": "\ufeff" + "\r\n".join(lines),
        "list.json": "\ufeff[" + ",\r\n".join(lines) + "]",
    }.items():
        (tmp_path / name).write_bytes(text.encode())
        assert load_questions(tmp_path / name) == expected


def test_every_bad_row_is_named_by_file_and_line_at_once(tmp_path):
    good, *bad = rows({}, {"prompt": " "}, {"answer": 7}, {"task": "poetry"}, {"id": "1"}, {"prompt": "\ud800"})
    red = ROW | {"id": "red", "task": "choice", "answer": "red"}
    missing = {key: ROW[key] for key in KEYS if key not in ("answer", "source")}
    lines = [*map(json.dumps, [good, *bad, missing, "text", ["list"], None]), "{broken"]
    path = tmp_path / "bad.jsonl"
    path.write_bytes(
        "\n".join(lines).encode() + b'\n{"id": "\xff"}\n' + json.dumps(red).encode() + b"\n" + b"[" * 100_000
    )
    expected = [
        "line 2: `prompt` is empty",
        "line 3: `answer` must be a string, found int",
        "line 4: unknown task 'poetry'; expected one of math, coding, science, choice",
        "line 5: id '1' is that of line 1 too",
        "line 6: `prompt` holds half a character (a lone surrogate)",
        "line 7: `source` is missing; `answer` is missing",
        "line 8: expected a JSON object, found str",
        "line 9: expected a JSON object, found list",
        "line 10: expected a JSON object, found NoneType",
        "line 11: not JSON (Expecting property name enclosed in double quotes: column 2)",
        "line 12: not UTF-8 (byte 9)",
        "line 13: the answer to a choice must be a letter A-D, found 'red'",
    ]
    found = refused(path)
    assert found[:-1] == [f"{path}, {line}" for line in expected]
    assert found[-1].startswith(f"{path}, line 14: not JSON")


def test_a_list_names_records_and_a_broken_one_its_line(tmp_path):
    path = tmp_path / "list.json"
    path.write_text(json.dumps(rows({}, {"prompt": ""})))
    assert refused(path) == [f"{path}, record 2: `prompt` is empty"]
    path.write_text("[\n{},\n{]\n]")
    assert "not JSON" in refused(path)[0] and "line 3" in refused(path)[0]
    path.write_text("{}")
    assert refused(path) == [f"{path}: expected a list of question records, found dict"]


def test_files_without_questions_and_folders_are_refused(tmp_path):
    (tmp_path / "empty.jsonl").write_text("\n")
    (tmp_path / "empty.json").write_text("[]")
    for name, expected in {"empty.jsonl": "no questions", "empty.json": "no questions", ".": "cannot be read"}.items():
        assert expected in refused(tmp_path / name)[0]


def test_a_hundred_bad_rows_are_counted_not_listed(tmp_path):
    found = refused(write(tmp_path / "bad.jsonl", [{}] * 100))
    assert len(found) == 21 and found[-1] == "... and 80 more bad rows"


@given(st.binary(max_size=60), st.sampled_from(["x.json", "x.jsonl"]))
def test_no_bytes_raise_anything_else(tmp_path_factory, content, name):
    path = tmp_path_factory.getbasetemp() / name
    path.write_bytes(content)
    with pytest.raises(BadData, match=name):
        load_questions(path)


TEXT = st.text(st.characters(codec="utf-8"), min_size=1).filter(str.strip)


QUESTION = st.sampled_from(TASKS).flatmap(
    lambda task: st.builds(
        Question, TEXT, st.just(task), TEXT, TEXT, st.sampled_from("ABCD") if task == "choice" else TEXT
    )
)


@given(st.lists(QUESTION, min_size=1, unique_by=lambda question: question.id))
def test_what_is_written_is_read(tmp_path_factory, questions):
    path = write(tmp_path_factory.getbasetemp() / "round.jsonl", [vars(question) for question in questions])
    assert load_questions(path) == questions


# ── Dealing ──


def source(count: int, seed: int = 0) -> QuestionSource:
    return QuestionSource([Question(str(number), "math", "s", "?", "!") for number in range(count)], seed)


@given(st.integers(1, 12), st.lists(st.integers(1, 9), max_size=8), st.integers(0, 3))
def test_every_epoch_deals_every_question_once(count, sizes, seed):
    dealer = source(count, seed)
    dealt = [question.id for size in sizes for question in dealer.next_batch(size)]
    assert len(dealt) == sum(sizes)
    for epoch in range(len(dealt) // count):
        assert len(set(dealt[epoch * count : (epoch + 1) * count])) == count


@given(st.integers(1, 12), st.integers(0, 30), st.integers(1, 9))
def test_a_restored_source_goes_on_where_it_stopped(count, before, size):
    one, other = source(count), source(count)
    one.next_batch(before)
    other.restore(json.loads(json.dumps(one.state())))
    assert one.next_batch(size) == other.next_batch(size)


def test_epochs_and_seeds_differ_in_order():
    one = source(50)
    assert one.next_batch(50) != one.next_batch(50)
    assert source(50, seed=1).next_batch(50) != source(50).next_batch(50)
