"""python -m marti_ext grade: records in, the same records with their verdicts out."""

import gzip
import json
import subprocess
import sys

import pytest
from test_cli import ROOT, fails, python

from marti_ext import grade
from marti_ext.cli import main

ADD = "```python\ndef add(a, b):\n    return a + b\n```"
RECORDS = [
    {"id": 7, "task": "math", "response": r"It is \boxed{0.5}", "answer": r"\frac12", "model": {"size": [1, 2.5]}},
    {"task": "math", "response": r"It is \boxed{é}", "answer": "7", "verdict": "an older one"},
    {"task": "science", "response": "no box", "answer": "7", "note": "\ud800"},
    {"task": "choice", "response": r"\boxed{(B)}", "answer": "B"},
    {"task": "coding", "response": ADD, "answer": "assert add(1, 2) == 3"},
]
VERDICTS = ["correct", "wrong", "invalid", "correct", "correct"]
EXTRACTED = ["0.5", "é", None, "B", "def add(a, b):\n    return a + b"]


def stored(path, records=RECORDS):
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "wt") as file:
        file.write("\n".join(json.dumps(record) for record in records) + "\n\n")
    return path


def check_graded(lines):
    records = [json.loads(line) for line in lines]
    assert [record.pop("verdict") for record in records] == VERDICTS
    assert [record.pop("extracted") for record in records] == EXTRACTED
    assert all(record.pop("reason") for record in records)
    assert records == [{key: record[key] for key in record if key != "verdict"} for record in RECORDS]


@pytest.mark.parametrize("name", ["in.jsonl", "in.jsonl.gz"])
def test_every_record_keeps_its_place_and_its_keys(name, tmp_path, capsys):
    main(["grade", str(stored(tmp_path / name)), "--workers", "3"])
    out, err = capsys.readouterr()
    check_graded(out.splitlines())
    assert "é" in out
    assert "5 graded in " in err and " a second): 3 correct, 1 wrong, 1 invalid\n" in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize("name", ["out.jsonl", "out.jsonl.gz"])
def test_the_result_is_a_file_once_it_is_whole(name, tmp_path, capsys):
    source, out = stored(tmp_path / "in.jsonl"), tmp_path / name
    main(["grade", str(source), "--out", str(out)])
    check_graded((gzip.decompress(out.read_bytes()) if out.suffix == ".gz" else out.read_bytes()).splitlines())
    assert not capsys.readouterr().out
    assert sorted(tmp_path.iterdir()) == sorted([source, out])
    content = out.read_bytes()
    assert "is not overwritten: remove it, or choose another name" in fails(capsys, "grade", source, "--out", out)
    assert out.read_bytes() == content


def test_an_interrupted_grading_leaves_no_file(tmp_path, monkeypatch):
    def interrupted(path, workers):
        yield {"verdict": "correct"}
        raise KeyboardInterrupt

    monkeypatch.setattr(grade, "graded", interrupted)
    source = stored(tmp_path / "in.jsonl")
    with pytest.raises(SystemExit, match="130"):
        main(["grade", str(source), "--out", str(tmp_path / "out.jsonl")])
    assert list(tmp_path.iterdir()) == [source]


def test_bad_lines_are_all_named_before_anything_is_graded(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(grade, "verify_many", lambda *_: pytest.fail("graded"))
    good = json.dumps(RECORDS[0])
    bad = [
        ("{", "not JSON"),
        ("[1]", "not a JSON object but list"),
        ('{"task": "math", "answer": "1"}', "`response` is missing"),
        ('{"task": "math", "response": null, "answer": "1"}', "`response` must be a string, found NoneType"),
        ('{"task": "poetry", "response": "", "answer": "1"}', "unknown task 'poetry'"),
        ("[" * 100_000, "not JSON"),
        ('{"n": ' + "9" * 10_000 + "}", "not JSON"),
    ]
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text("\n".join([good, *(line for line, _ in bad)]))
    error = fails(capsys, "grade", source, "--out", out)
    for number, (_, problem) in enumerate(bad, 2):
        assert f"{source}, line {number}: {problem}" in error
    assert "expected a JSON object with the strings task, response, answer" in error
    source.write_text("{\n" * 1000)
    assert "... and 980 more bad lines" in fails(capsys, "grade", source)
    assert not out.exists()


def test_files_that_cannot_be_graded(tmp_path, capsys):
    source = stored(tmp_path / "in.jsonl")
    assert "none.jsonl: no such file" in fails(capsys, "grade", tmp_path / "none.jsonl")
    assert "not a file" in fails(capsys, "grade", tmp_path)
    assert "cannot be written (No such file or directory)" in fails(
        capsys, "grade", source, "--out", tmp_path / "no/out"
    )
    assert "no records" in fails(capsys, "grade", stored(tmp_path / "empty.jsonl", []))
    (tmp_path / "cut.jsonl.gz").write_bytes(gzip.compress(b"x" * 1000)[:-9])
    assert "cannot be read" in fails(capsys, "grade", tmp_path / "cut.jsonl.gz")
    with pytest.raises(SystemExit):
        main(["grade", str(source), "--workers", "0"])
    assert "expected a whole number from 1, found '0'" in capsys.readouterr().err


def test_a_reader_may_leave(tmp_path):
    source = stored(tmp_path / "in.jsonl", [RECORDS[3]] * 20_000)
    command = f"{sys.executable} -m marti_ext grade {source} | head -1"
    done = subprocess.run(command, shell=True, cwd=ROOT, capture_output=True, text=True)
    assert json.loads(done.stdout)["verdict"] == "correct"
    assert "Traceback" not in done.stderr


def test_grading_loads_nothing_heavy(tmp_path):
    code = (
        "import sys; from marti_ext.cli import main; main(sys.argv[1:]);"
        "assert not {'torch', 'transformers', 'ray', 'sympy', 'math_verify'} & set(sys.modules)"
    )
    done = python(code, "grade", str(stored(tmp_path / "in.jsonl")))
    assert done.returncode == 0, done.stderr
