"""Data preparation: every raw format, the fixed draw, the manifest, repeated questions, and each error with its remedy."""

import csv
import gzip
import io
import json
import sys
import tarfile
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from marti_ext.questions import load_questions
from marti_ext.tasks import verify

ROOT = Path(__file__).parent.parent
REAL = ROOT.parent / "shared" / "datasets"
sys.path.insert(0, str(ROOT / "data"))

import prepare  # noqa: E402


def many(count: int, row: dict, **templates: str) -> list[dict]:
    """`count` rows that differ where a template has {n}."""
    return [row | {key: text.format(n=n) for key, text in templates.items()} for n in range(count)]


DOUBLE = "def double(x):\n    return 2 * x\n"
KODCODE = {
    "gpt_difficulty": "hard",
    "test": "from solution import double\n\ndef test_it():\n    assert double(2) == 4\n",
}
CHOICES = {
    "Correct Answer": "red", "Incorrect Answer 1": "blue", "Incorrect Answer 2": "green", "Incorrect Answer 3": "grey",
}  # fmt: skip
RAW = {
    "gsm8k/test.jsonl": many(8, {}, question="Ann buys {n} pens and 9 cups.", answer="Add.\n<<1+1=2>>\n#### 1,00{n}"),
    "math500/test.jsonl": many(5, {"answer": "\\frac{1}{2}"}, problem="Halve {n}/{n}.", unique_id="test/a/{n}.json"),
    "humaneval/HumanEval.jsonl.gz": many(
        3,
        {
            "prompt": 'def half(x):\n    return x / 2\n\n\ndef double(x):\n    """Twice x."""\n',
            "entry_point": "double",
            "test": "\n\ndef check(candidate):\n    assert half(candidate(3)) == 3\n",
        },
        task_id="HumanEval/{n}",
    ),
    "mbpp/mbpp.jsonl": [
        {"task_id": n, "text": f"Task {n}.", "test_list": ["assert double(two) == 4"], "test_setup_code": "two = 2\r\n"}
        for n in (10, 11, 12, 510, 511)
    ],
    "scibench/optics.json": many(
        5,
        {"answer_number": "−1,200", "unit": " $\\mathrm{kPa}$\r\n", "source": "optics"},
        problem_text="P{n}?",
        problemid=" 1.1",
    ),
    "gpqa/gpqa_main.csv": many(6, CHOICES, Question="Colour {n}?", **{"Record ID": "rec{n}"}),
    "gpqa/gpqa_diamond.csv": many(2, CHOICES, Question="Colour {n}?", **{"Record ID": "rec{n}"}),
    "mmlu/test.tar.gz": {
        "test/with_heading_test.csv": [
            list(prepare.MMLU_COLUMNS),
            *[[f"Which, {n}?", "a", "b", "c,\nd", "e", "2"] for n in range(4)],
        ],
        "test/bare_test.csv": [["Who?", "a", "b", "c", "d", "B"]],
    },
    "math_train/level.json": many(
        9, {"source": "MATH-Level5", "answer": "7"}, prompt="Add {n} to x.", id="train/{n}.json"
    )
    + [{"source": "MATH-Level3", "answer": "7", "prompt": "Too easy.", "id": "easy"}],
    "kodcode/rows.jsonl": many(9, KODCODE, question="Double it {n} times.", question_id="Leet_{n}_I"),
    "webinstruct/rows.jsonl": many(
        9,
        {"answer": "$3.0 \\times 10^{8} \\text{ m/s}$", "answer_type": "Float", "category": "Physics"},
        question="How fast is wave {n}?",
        id="{n}",
    ),
    "comas_validation/math.json": many(2, {"task": "math", "source": "math", "answer": "4"}, prompt="V{n}", id="m-{n}"),
    "comas_validation/coding.json": many(
        2,
        {"task": "coding", "source": "kodcode", "answer": "assert f()"},
        prompt="C{n}" + prepare.TESTS.format("..."),
        id="c-{n}",
    ),
    "comas_validation/science.json": many(
        2, {"task": "science", "source": "webinstruct", "answer": "2.5"}, prompt="S{n}", id="s-{n}"
    ),
    "leetcode/train.jsonl.gz": many(
        5,
        {
            "prompt": "from typing import *\n",
            "test": "def check(candidate):\n    assert candidate(2) == 4\n",
            "entry_point": "Solution().double",
            "meta": {"difficulty": "Medium"},
        },
        query="Double, way {n}.",
        task_id="double-{n}",
    ),
    "webinstruct_standin_theoremqa/rows.json": many(
        2,
        {"Answer": 4e-5, "Answer_type": "float", "Picture": None, "field": "Physics"},
        Question="How small is {n}?",
        id="me/{n}.json",
    ),
    "webinstruct_standin_mcq/arc_train.json": many(
        4,
        {"output": "the correct answer is answer3", "answer": "answer3"},
        instruction="Please choose the correct answer to the question: Which of {n}?\n\n"
        "Answer1: w Answer2: x Answer3: y Answer4: z\n\nAnswer format: answer1/answer2/answer3/answer4",
    ),
}
SIZES = {"gsm8k": 5, "math500": 4, "humaneval": 3, "mbpp": 3, "scibench": 4, "gpqa": 5, "mmlu": 4}


def csv_text(rows: list[list[str]]) -> str:
    text = io.StringIO(newline="")
    csv.writer(text).writerows(rows)
    return text.getvalue()


def encode(path: Path, rows) -> bytes:
    if path.name.endswith(".tar.gz"):
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w:gz") as tar:
            for name, table in rows.items():
                content = csv_text(table).encode()
                info = tarfile.TarInfo(name)
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
        return archive.getvalue()
    if path.suffix == ".csv":
        return csv_text([list(rows[0]), *(list(row.values()) for row in rows)]).encode()
    text = json.dumps(rows) if path.suffix == ".json" else "".join(json.dumps(row) + "\n" for row in rows)
    return gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode()


def write_raw(folder: Path, **changes) -> Path:
    """The raw files in `folder`; a change names a file by its folder and gives its rows, None for no such file."""
    for name, rows in RAW.items():
        rows = changes.get(name.split("/")[0], rows)
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        if rows is not None:
            path.write_bytes(encode(path, rows))
    return folder


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """The same files, fewer questions."""
    files = {name: tuple(replace(part, size=SIZES[name]) for part in prepare.FILES[name]) for name in SIZES}
    files["validation"] = tuple(replace(part, size=2) for part in prepare.FILES["validation"])
    files["train"] = tuple(replace(part, size=6) for part in prepare.FILES["train"])
    monkeypatch.setattr(prepare, "FILES", files)


@pytest.fixture
def raw(tmp_path) -> Path:
    return write_raw(tmp_path / "raw")


def run(out: Path, *words: object) -> int:
    return prepare.main(["--out", str(out), *map(str, words)])


def files_of(out: Path) -> dict[str, bytes]:
    return {path.relative_to(out).as_posix(): path.read_bytes() for path in sorted(out.rglob("*")) if path.is_file()}


def questions(out: Path, name: str) -> list:
    return load_questions(out / prepare.path_of(name))


def test_every_format_gives_records_of_the_fixed_number_that_the_verifiers_accept(raw, tmp_path):
    out = tmp_path / "out"
    assert run(out, "--raw", raw) == 0
    for name, size in {**SIZES, "validation": 6, "train": 18}.items():
        found = questions(out, name)
        assert len(found) == size
        for question in found:
            answer = f"```python\n{DOUBLE}```" if question.task == "coding" else f"\\boxed{{{question.answer}}}"
            if "f()" not in question.answer:
                assert verify(question.task, answer, question.answer).correct, question
    assert {question.source for question in questions(out, "train")} == {"math", "kodcode", "webinstruct"}
    assert Counter(question.task for question in questions(out, "validation")) == dict(math=2, coding=2, science=2)


def test_what_the_prompts_and_answers_hold(raw, tmp_path):
    assert run(tmp_path / "out", "--raw", raw) == 0
    first = {name: questions(tmp_path / "out", name)[0] for name in prepare.FILES}
    assert first["gsm8k"].answer.startswith("100")
    assert "def double(x)" in first["humaneval"].prompt
    assert first["humaneval"].answer.startswith("def half(x)") and "check(double)" in first["humaneval"].answer
    assert first["mbpp"].answer == "two = 2\n\nassert double(two) == 4" and first["mbpp"].answer in first["mbpp"].prompt
    assert [question.id for question in questions(tmp_path / "out", "mbpp")] == ["mbpp-11", "mbpp-12", "mbpp-510"]
    assert first["scibench"].answer == "-1200"
    assert first["scibench"].prompt.endswith('The unit of the answer should be "$\\mathrm{kPa}$".')
    for question in questions(tmp_path / "out", "gpqa"):
        assert f"\n{question.answer}) red" in question.prompt
    assert len({question.answer for question in questions(tmp_path / "out", "gpqa")}) > 1
    assert {question.answer for question in questions(tmp_path / "out", "mmlu")} <= {"B", "C"}
    training = {question.source: question for question in questions(tmp_path / "out", "train")}
    assert "from solution" not in training["kodcode"].answer and "double(2) == 4" in training["kodcode"].prompt
    assert training["webinstruct"].answer == "3.0 \\times 10^{8}"
    assert training["webinstruct"].prompt.endswith('The unit of the answer should be "\\text{ m/s}".')


def test_ids_that_occur_twice_are_told_apart(raw, tmp_path):
    assert run(tmp_path / "out", "--raw", raw, "--only", "scibench") == 0
    ids = [question.id for question in questions(tmp_path / "out", "scibench")]
    assert len(set(ids)) == 4 and all(name.startswith("scibench-optics-1.1") for name in ids)


@pytest.mark.parametrize(
    "tests, left",
    [
        ("from solution import a, b\n\ndef test_x():\n    a()", "def test_x():\n    a()"),
        ("from solution import (\n    a,\n    b as c,\n)\ndef test_x():\n    c()", "c = b\ndef test_x():\n    c()"),
        ("def test_x():\n    from solution import a\n    a()", "def test_x():\n    pass\n    a()"),
        ("import pytest\n@pytest.mark.parametrize('n', [1])\ndef test_x(n):\n    a(n)", None),
        ("def test_x(tmp_path):\n    a()", None),
        ("class TestA:\n    def test_x(self):\n        a()\ndef test_y():\n    a()", None),
        ("import solution\ndef test_x():\n    solution.a()", None),
        ("a() ==", None),
    ],
)
def test_kodcode_tests_lose_their_import_or_are_left_out_if_the_verifier_would_not_run_them(tests, left):
    assert prepare._without_solution_import(tests) == left


@pytest.mark.parametrize(
    "answer, number",
    [
        ("12 mol", "12"), ("-0.5", "-0.5"), ("1.5e-3 J", "1.5e-3"), ("$1,200$ kg", "1,200"),
        ("3/4", None), ("3 or 4 m", None), ("5\\sqrt{2}", None), ("x + 1", None), ("2\\pi", None),
    ],
)  # fmt: skip
def test_only_single_numbers_are_numeric_answers(answer, number):
    row = {"id": 1, "question": "?", "answer": answer, "answer_type": "Float", "category": "Chemistry"}
    item = prepare.webinstruct(row, 0)
    assert (item and item["answer"]) == number


def test_rows_that_are_not_wanted():
    assert prepare.kodcode({"question_id": "1", "question": "?", **KODCODE, "gpt_difficulty": "easy"}, 0) is None
    demo = {"instruction": "?", "test_code": KODCODE["test"], "metadata": {"mode": "algorithm", "prompt_id": "1"}}
    assert prepare.kodcode_demo(demo | {"pass_sequence": [1, 1, 0]}, 0) is None
    assert prepare.kodcode_demo(demo | {"pass_sequence": [1, 0, 0]}, 0)["id"] == "algorithm-1"
    level = {"_number": 0, "problem": "?", "solution": "so \\boxed{3}."}
    assert prepare.math(level | {"level": "Level 3"}, 0) is None
    assert prepare.math(level | {"level": "Level 4"}, 0)["answer"] == "3"
    five = RAW["webinstruct_standin_mcq/arc_train.json"][0]
    five = five | {"instruction": five["instruction"].replace("Answer4: z", "Answer4: z Answer5: q"), "_number": 0}
    assert prepare.llm_adapters(five, 0) is None


def test_the_same_input_gives_the_same_bytes_and_another_seed_gives_others(raw, tmp_path):
    assert [run(tmp_path / name, "--raw", raw) for name in ("one", "two")] == [0, 0]
    assert files_of(tmp_path / "one") == files_of(tmp_path / "two")
    assert run(tmp_path / "three", "--raw", raw, "--seed", 1) == 0
    assert questions(tmp_path / "one", "gsm8k") != questions(tmp_path / "three", "gsm8k")
    assert run(tmp_path / "four", "--raw", raw, "--only", "gpqa", "gsm8k") == 0
    for path, content in files_of(tmp_path / "four").items():
        assert path == "manifest.json" or files_of(tmp_path / "one")[path] == content


def test_the_manifest_counts_and_names_every_file_and_only_adds_to_it(raw, tmp_path):
    out = tmp_path / "out"
    assert run(out, "--raw", raw, "--only", "gsm8k", "train") == 0
    assert run(out, "--raw", raw, "--only", "mbpp") == 0
    manifest = json.loads((out / "manifest.json").read_text())
    assert set(manifest["files"]) == {"benchmarks/gsm8k.jsonl", "benchmarks/mbpp.jsonl", "paper/train.jsonl"}
    for path, entry in manifest["files"].items():
        assert prepare.hashlib.sha256((out / path).read_bytes()).hexdigest() == entry["sha256"]
        assert entry["questions"] == entry["wanted"] == len(load_questions(out / path))
    assert manifest["files"]["paper/train.jsonl"]["by_source"] == {"kodcode": 6, "math": 6, "webinstruct": 6}
    source = manifest["inputs"]["gsm8k"][0]
    assert source["path"] == "gsm8k/test.jsonl"
    assert source["sha256"] == prepare.hashlib.sha256((raw / "gsm8k/test.jsonl").read_bytes()).hexdigest()


def repeated(folder: Path) -> Path:
    """Raw files in which MATH repeats a benchmark question word for word, another in other letters, and one of validation."""
    rows = many(9, {"source": "MATH-Level5", "answer": "7"}, prompt="Add {n} to x.", id="{n}")
    for row, prompt in zip(rows, ["Halve 1/1.", "  halve 2/2", "V0"], strict=False):
        row["prompt"] = prompt
    return write_raw(folder, math_train=rows, math500=RAW["math500/test.jsonl"][:4])


def test_repeated_questions_are_named_and_replaced_by_others(tmp_path):
    raw, out = repeated(tmp_path / "raw"), tmp_path / "out"
    assert run(out, "--raw", raw) == 0
    ids = {question.id for question in questions(out, "train") if question.source == "math" or "math" in question.id}
    report = json.loads((out / "contamination.json").read_text())
    assert len(ids) == 6 and not ids & {"math_train-0", "math_train-1", "math_train-2"}
    assert report["not_compared"] == []
    # With 9 questions for 6 places and 3 of them repeated, the draw meets at least the places it had to refill.
    for repeat in report["repeats"]:
        assert repeat["removed"] and repeat["set"] == "train"
        expected = {
            "math_train-0": ("math500", "math500-test/a/1.json", "exact"),
            "math_train-1": ("math500", "math500-test/a/2.json", "normalised"),
            "math_train-2": ("validation", "m-0", "exact"),
        }
        assert (repeat["same_as_set"], repeat["same_as_id"], repeat["kind"]) == expected[repeat["id"]]


def test_repeated_questions_stay_on_request_and_are_reported(tmp_path, monkeypatch):
    monkeypatch.setitem(prepare.FILES, "train", (prepare.Part(9, ("math_train",)),))
    raw, out = repeated(tmp_path / "raw"), tmp_path / "out"
    assert run(out, "--raw", raw) == 1, "9 questions cannot be drawn when 3 are taken away"
    assert run(out, "--raw", raw, "--keep-contaminated") == 0
    report = json.loads((out / "contamination.json").read_text())
    assert len(questions(out, "train")) == 9
    assert {(repeat["id"], repeat["removed"]) for repeat in report["repeats"]} == {
        (f"math_train-{n}", False) for n in (0, 1, 2)
    }


def test_sets_of_earlier_runs_count_and_missing_ones_are_named(tmp_path, capsys):
    raw, out = repeated(tmp_path / "raw"), tmp_path / "out"
    assert run(out, "--raw", raw, "--only", "math500", "validation") == 0
    assert run(out, "--raw", raw, "--only", "train") == 0
    report = json.loads((out / "contamination.json").read_text())
    assert report["compared"] == ["math500", "train", "validation"]
    assert "gpqa" in report["not_compared"] and "not compared with" in capsys.readouterr().out
    assert not {"math_train-0", "math_train-1", "math_train-2"} & {question.id for question in questions(out, "train")}


def test_without_a_given_validation_set_one_is_drawn_that_training_does_not_share(tmp_path):
    raw, out = write_raw(tmp_path / "raw", comas_validation=None), tmp_path / "out"
    assert run(out, "--raw", raw) == 0
    validation = {question.prompt for question in questions(out, "validation")}
    assert len(validation) == 6 and not validation & {question.prompt for question in questions(out, "train")}


@pytest.mark.parametrize(
    "one, other, same",
    [
        ("What is 2 + 2?", "what is  2+2", True),
        ("Find x^2 + 1.", "Find x^2 - 1.", False),
        ("It weighs 3.5 kg.", "It weighs 35 kg.", False),
        ("Move 1,000 m.", "Move 1000 m", True),
        ("Which?\n\nA) one\nB) two", "Which?\n\nA) two\nB) one", True),
        ("Sort it." + prepare.TESTS, "Sort it." + prepare.UNIT, True),
    ],
)
def test_what_counts_as_the_same_question(one, other, same):
    texts = [
        prepare.normalised(prepare.bare_text(prepare.Question("1", "math", "s", text, "1"))) for text in (one, other)
    ]
    assert (texts[0] == texts[1]) is same


def test_stand_ins_fill_up_only_on_request_and_say_so(tmp_path, capsys):
    changes = {"webinstruct": None, "kodcode": RAW["kodcode/rows.jsonl"][:2]}
    raw, out = write_raw(tmp_path / "raw", **changes), tmp_path / "out"
    (raw / "gpqa" / "gpqa_main.csv").unlink()
    assert run(out, "--raw", raw) == 1
    said = capsys.readouterr().err
    assert "3 problems" in said and said.count("--stand-ins") == 3 and not out.exists()
    assert run(out, "--raw", raw, "--stand-ins") == 0
    assert Counter(question.source for question in questions(out, "train")) == {
        "math": 6, "kodcode": 2, "stand-in:leetcode": 4, "stand-in:theoremqa": 2, "stand-in:arc": 4,
    }  # fmt: skip
    assert {question.source for question in questions(out, "gpqa")} == {"stand-in:gpqa_diamond"}
    entry = json.loads((out / "manifest.json").read_text())["files"]["benchmarks/gpqa.jsonl"]
    assert (entry["questions"], entry["wanted"]) == (2, 5)


def test_every_problem_is_told_at_once_and_nothing_is_written(tmp_path, capsys):
    renamed = [{"query": row["question"], "answer": row["answer"]} for row in RAW["gsm8k/test.jsonl"]]
    worded = [row | {"answer_number": "about two"} for row in RAW["scibench/optics.json"]]
    raw = write_raw(tmp_path / "raw", gsm8k=renamed, scibench=worded, math500=None, mbpp=RAW["mbpp/mbpp.jsonl"][:2])
    (raw / "humaneval/HumanEval.jsonl.gz").write_bytes(b"no archive")
    assert run(tmp_path / "out", "--raw", raw) == 1
    said = capsys.readouterr().err
    assert "5 problems" in said and not (tmp_path / "out").exists()
    for text in (
        "gsm8k: the columns are answer, query",
        "expected: the columns question, answer or the columns prompt, answer",
        "scibench: 5 unusable rows: row 0 optics: ValueError: the answer 'about two' is none for the science verifier",
        "math500: 0 of 4 questions of math500",
        "expected: 4 questions in math500/*.jsonl, or MARTI records in math500.json",
        "mbpp: 1 of 3 questions of mbpp",
        "humaneval: Not a gzipped file",
    ):
        assert text in said
    assert said.count("remedy:") == said.count("where:") == 5
    assert run(tmp_path / "out", "--raw", raw, "--only", "gpqa", "mmlu") == 0


def test_a_few_unusable_rows_of_a_large_pool_are_left_out_and_said(tmp_path, capsys):
    rows = many(200, {"source": "MATH-Level5", "answer": "7"}, prompt="Add {n} to x.", id="{n}")
    raw = write_raw(tmp_path / "raw", math_train=[rows[0] | {"answer": " "}, *rows[1:]])
    assert run(tmp_path / "out", "--raw", raw, "--only", "train") == 0
    assert (
        "math_train: left out: row 0 level: ValueError: the question or its answer is empty" in capsys.readouterr().err
    )


def test_marti_records_serve_for_any_source(raw, tmp_path):
    (raw / "kodcode/rows.jsonl").unlink()
    rows = many(6, {"task": "coding", "source": "kodcode", "answer": "assert f()"}, prompt="M{n}", id="coding-{n}")
    (raw / "kodcode.json").write_text(json.dumps(rows))
    assert run(tmp_path / "out", "--raw", raw, "--only", "train") == 0
    assert {row["id"] for row in rows} <= {question.id for question in questions(tmp_path / "out", "train")}


def test_a_file_that_differs_is_replaced_only_by_force(raw, tmp_path, capsys):
    out = tmp_path / "out"
    words = ("--raw", raw, "--only", "gsm8k", "mbpp")
    assert run(out, *words) == 0
    assert run(out, *words) == 0, "the same bytes are no conflict"
    before = files_of(out)
    assert run(out, *words, "--seed", 1) == 1
    assert "gsm8k.jsonl exists and differs" in capsys.readouterr().err and files_of(out) == before
    assert run(out, *words, "--seed", 1, "--force") == 0
    assert files_of(out) != before and not list(out.rglob("*.part"))


@pytest.mark.parametrize("words", [["--stand-ins"], ["--raw", "/no/such/folder"], ["--only", "poetry"]])
def test_arguments_that_make_no_sense(words, tmp_path):
    with pytest.raises(SystemExit):
        run(tmp_path, *words)


class Rows(list):
    """As much of a `datasets.Dataset` as is used."""

    column_names = property(lambda self: list(self[0]))

    def select_columns(self, names: list[str]) -> "Rows":
        return Rows({name: row[name] for name in names} for row in self)

    def select(self, places: range) -> "Rows":
        return Rows(self[place] for place in places)


def hub(monkeypatch, answer) -> list[tuple]:
    """Replaces the hub: `answer` is the rows, or the error. Returns the list of what is asked for."""
    asked = []

    def load_dataset(path, config, split):
        asked.append((path, config, split))
        if isinstance(answer, Exception):
            raise answer
        return Rows(answer)

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    return asked


def test_the_hub_gives_the_same_records_as_files(monkeypatch, raw, tmp_path):
    rows = [row | {"more": 1} for row in RAW["gsm8k/test.jsonl"]]
    asked = hub(monkeypatch, rows)
    assert run(tmp_path / "hub", "--only", "gsm8k") == run(tmp_path / "raw out", "--raw", raw, "--only", "gsm8k") == 0
    assert asked == [("openai/gsm8k", "main", "test")]
    assert questions(tmp_path / "hub", "gsm8k") == questions(tmp_path / "raw out", "gsm8k")
    entry = json.loads((tmp_path / "hub" / "manifest.json").read_text())["inputs"]["gsm8k"][0]
    assert entry["rows"] == 8 and entry["path"] == "openai/gsm8k" and len(entry["sha256"]) == 64


@pytest.mark.parametrize(
    "answer, remedy",
    [
        (
            ConnectionError("Couldn't reach the Hub"),
            "check the network, proxy and HF_HUB_OFFLINE, or download it elsewhere",
        ),
        (
            PermissionError("gpqa is a gated dataset on the Hub"),
            "accept its conditions at https://huggingface.co/datasets/Idav",
        ),
        (ValueError("BuilderConfig 'gpqa_main' not found"), "the data set changed"),
        ([{"q": "?"}], "the format changed: use an older revision, or adapt FORMATS"),
    ],
)
def test_what_the_hub_refuses_comes_with_a_remedy(monkeypatch, tmp_path, capsys, answer, remedy):
    hub(monkeypatch, answer)
    assert run(tmp_path / "out", "--only", "gpqa") == 1
    said = capsys.readouterr().err
    assert remedy in said and "Idavidrein/gpqa" in said and not (tmp_path / "out").exists()


def test_without_datasets_the_remedy_is_to_install_it(monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(sys.modules, "datasets", None)
    assert run(tmp_path / "out", "--only", "gsm8k", "mbpp") == 1
    assert capsys.readouterr().err.count("pip install datasets, or --raw DIR for local files") == 2


@pytest.mark.real
@pytest.mark.skipif(not REAL.is_dir(), reason=f"the real files are not here: {REAL}")
def test_the_real_files_give_every_file_in_its_fixed_size(monkeypatch, tmp_path):
    monkeypatch.undo()
    assert run(tmp_path, "--raw", REAL, "--stand-ins") == 0
    counts = {name: len(questions(tmp_path, name)) for name in prepare.FILES}
    # GPQA's main set is gated: only the 198 questions of its diamond set are here.
    assert counts == prepare.SIZES | {"gpqa": 198, "validation": 500, "train": 2000}
    tasks = Counter(question.task for question in questions(tmp_path, "validation"))
    assert tasks == {"math": 150, "coding": 150, "science": 200}
    for question in questions(tmp_path, "scibench") + questions(tmp_path, "math500") + questions(tmp_path, "gpqa"):
        assert verify(question.task, f"\\boxed{{{question.answer}}}", question.answer).correct
