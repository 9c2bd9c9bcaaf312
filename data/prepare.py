"""The paper's data as question records: seven benchmarks, the training set and the validation set.

    python data/prepare.py                                    everything, from the Hugging Face hub
    python data/prepare.py --raw DIR                          everything, from local files in their original formats
    python data/prepare.py --raw DIR --only gsm8k humaneval   only these

Writes benchmarks/NAME.jsonl, paper/train.jsonl, paper/validation.jsonl, manifest.json (counts and checksums) and
contamination.json (questions that are in two sets) to --out. The same input and seed give the same bytes. Every problem
is reported before anything is written: what is made in one run is made completely or not at all.

DIR holds one folder for each source (`SOURCES` has the names); a file NAME.json in DIR itself, a list of records with
`prompt` and `answer` as MARTI and CoMAS publish them, serves as well. Training and validation questions are compared
with the sets that are made in the same run and with those that are already in --out.
"""

import argparse
import ast
import csv
import gzip
import hashlib
import io
import json
import random
import re
import sys
import tarfile
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from marti_ext.questions import Question, load_questions  # noqa: E402
from marti_ext.rundir import write_atomically  # noqa: E402
from marti_ext.tasks import last_boxed, verify  # noqa: E402

SEED = 2510
# The wording of the CoMAS release, so that drawn questions read like those of its validation set.
TESTS = "\n\nYour code should pass the following unit tests:\n```python\n{}\n```"
UNIT = '\n\nThe unit of the answer should be "{}".'
COMPLETE = "```python\n{}```\n\nWrite the complete function, with the imports and helpers that it needs."
# What is put behind a question; questions are compared without it.
ADDED = re.compile(
    r"\n\n(?:Your code should pass the following unit tests:|The unit of the answer should be|Write the )"
)
MMLU_COLUMNS = ("question", "choice0", "choice1", "choice2", "choice3", "answer")


class Problems(Exception):
    """Everything that keeps the files from being made, one text each."""

    def __init__(self, *texts: str) -> None:
        super().__init__("\n".join(texts))
        self.texts = texts


def problem(what: str, where: object, expected: str, remedy: str) -> Problems:
    return Problems(f"{what}\n    where:    {where}\n    expected: {expected}\n    remedy:   {remedy}")


# Formats: each makes `id`, `prompt` and `answer` of one raw row, or None of a row that is not wanted.


def gsm8k(row: dict, seed: int) -> dict | None:
    return _item(row["_number"], row["question"], row["answer"].rsplit("####", 1)[1].strip().replace(",", ""))


def math500(row: dict, seed: int) -> dict | None:
    return _item(row["unique_id"], row["problem"], row["answer"])


def math(row: dict, seed: int) -> dict | None:
    """Hendrycks' MATH; levels 4 and 5 only, the answer is the solution's last box."""
    wanted = row["level"] in ("Level 4", "Level 5")
    return _item(row["_number"], row["problem"], last_boxed(row["solution"])) if wanted else None


def marti(row: dict, seed: int) -> dict | None:
    """The MARTI / CoMAS record. Of MATH only levels 4 and 5; a record that names its task keeps its id."""
    if re.fullmatch("MATH-Level[1-3]", row.get("source", "")):
        return None
    item = _item(row.get("id", row["_number"]), row["prompt"], row["answer"])
    return item | ({key: row[key] for key in ("task", "id", "source")} if "task" in row else {})


def humaneval(row: dict, seed: int) -> dict | None:
    """The tests may call what the prompt defines beside the function, so these helpers stand before them."""
    name = row["entry_point"]
    helpers = [node for node in ast.parse(row["prompt"]).body if getattr(node, "name", name) != name]
    tests = "\n\n".join([*map(ast.unparse, helpers), row["test"].strip(), f"check({name})\n"])
    return _item(row["task_id"], COMPLETE.format(row["prompt"]), tests)


def mbpp(row: dict, seed: int) -> dict | None:
    """Tasks 11 to 510, which are the test split."""
    setup = [row["test_setup_code"].replace("\r\n", "\n")] if row["test_setup_code"].strip() else []
    tests = "\n".join([*setup, *row["test_list"]])
    return _item(row["task_id"], row["text"] + TESTS.format(tests), tests) if 11 <= int(row["task_id"]) <= 510 else None


def scibench(row: dict, seed: int) -> dict | None:
    answer = row["answer_number"].strip().replace("−", "-").replace(",", "")
    return _item(f"{row['source']}-{row['problemid']}", _with_unit(row["problem_text"], row["unit"]), answer)


def gpqa(row: dict, seed: int) -> dict | None:
    options = [row["Correct Answer"], *(row[f"Incorrect Answer {number}"] for number in (1, 2, 3))]
    order = random.Random(f"{seed}/options/{row['Record ID']}").sample(range(4), 4)
    return _choice(row["Record ID"], row["Question"], [options[place] for place in order], order.index(0))


def mmlu(row: dict, seed: int) -> dict | None:
    """The hub's rows, and the csv files with or without a heading."""
    options = row["choices"] if "choices" in row else [row[column] for column in MMLU_COLUMNS[1:5]]
    answer = str(row["answer"])
    right = "ABCD".index(answer) if answer.isalpha() else int(answer)
    subject = row.get("subject") or row["_file"].removesuffix("_test")
    return _choice(f"{subject}-{row['_number']}", row["question"], options, right)


def kodcode(row: dict, seed: int) -> dict | None:
    """Medium and hard tasks whose tests all run as plain calls: no fixtures, parameters or classes of tests."""
    tests = _without_solution_import(row["test"])
    if row["gpt_difficulty"] not in ("medium", "hard") or tests is None:
        return None
    return _item(row["question_id"], row["question"] + TESTS.format(tests), tests)


def kodcode_demo(row: dict, seed: int) -> dict | None:
    """A row of KodCode's repository; KodCode's own rule makes the difficulty out of the share of passed trials."""
    share = sum(row["pass_sequence"]) / len(row["pass_sequence"])
    meta = row["metadata"]
    named = {"question_id": f"{meta['mode']}-{meta['prompt_id']}", "question": row["instruction"]}
    return kodcode(named | {"test": row["test_code"], "gpt_difficulty": "easy" if share >= 2 / 3 else "medium"}, seed)


def webinstruct(row: dict, seed: int) -> dict | None:
    """Physics, chemistry and biology with an answer that the verifier reads as one number and perhaps a unit."""
    found = _NUMBER_AND_UNIT.match(row["answer"].replace("$", "").replace("−", "-").strip())
    if row["category"] not in ("Physics", "Chemistry", "Biology") or not found:
        return None
    if row["answer_type"].casefold() not in ("float", "integer") or not _is_gold("science", found[0], found["number"]):
        return None
    return _item(row["id"], _with_unit(row["question"], found["unit"]), found["number"])


def leetcode(row: dict, seed: int) -> dict | None:
    """Tasks above Easy ("Meidum" occurs) on plain types: their preamble defines no class of its own."""
    if row["meta"]["difficulty"] == "Easy" or "class " in row["prompt"]:
        return None
    prompt = row["query"].strip() + "\n\nWrite the complete class, with the imports that it needs."
    return _item(row["task_id"], prompt, f"{row['prompt']}\n{row['test']}\ncheck({row['entry_point']})\n")


def theoremqa(row: dict, seed: int) -> dict | None:
    wanted = (
        row["field"] == "Physics" and row["Picture"] in (None, "None") and row["Answer_type"] in ("float", "integer")
    )
    return _item(row["id"], row["Question"], str(row["Answer"])) if wanted else None


def llm_adapters(row: dict, seed: int) -> dict | None:
    """ARC and OpenBookQA as the LLM-Adapters repository words them; questions with four options only."""
    text = row["instruction"].removeprefix("Please choose the correct answer to the question: ").rpartition("\n\n")[0]
    stem, *options = re.split(r"\s+Answer[1-5]: ", text)
    return _choice(row["_number"], stem, options, int(row["answer"][-1]) - 1) if len(options) == 4 else None


def _item(key: object, prompt: str, answer: str) -> dict:
    return {"id": re.sub(r"\s+", "", str(key)), "prompt": prompt.replace("\r\n", "\n").strip(), "answer": answer}


def _choice(key: object, question: str, options: list[str], right: int) -> dict:
    lines = [f"{letter}) {option.strip()}" for letter, option in zip("ABCD", options, strict=True)]
    return _item(key, "\n".join([question.strip() + "\n", *lines]), "ABCD"[right])


# A number as the science verifier reads it, up to the unit: that the rest is one, the verifier decides.
_NUMBER_AND_UNIT = re.compile(
    r"(?P<number>[+-]?(?:\d[\d,]*(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+|\s*(?:\\times|\\cdot|[×x*])\s*10\s*\^\s*(?:\{[^{}]*\}|[+-]?\d+))?)"
    r"\s*(?P<unit>.*)",
    re.DOTALL,
)


def _with_unit(question: str, unit: str | None) -> str:
    return question.strip() + (UNIT.format(unit.strip()) if unit and unit.strip() else "")


def _without_solution_import(tests: str) -> str | None:
    """KodCode's tests without `from solution import ...`: they run behind the code. None if not all of them would."""
    try:
        tree = ast.parse(tests)
    except (SyntaxError, ValueError):
        return None
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test")]
    special = any(node.args.args or node.decorator_list for node in functions)
    classes = any(isinstance(node, ast.ClassDef) and node.name.startswith("Test") for node in tree.body)
    if not functions or special or classes:
        return None
    lines = tests.splitlines()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "solution":
            renamed = [f"{name.asname} = {name.name}" for name in node.names if name.asname] or ["pass"]
            indent = lines[node.lineno - 1][: node.col_offset]
            text = indent + "; ".join(renamed) if indent or renamed != ["pass"] else None
            lines[node.lineno - 1 : node.end_lineno] = [text] + [None] * (node.end_lineno - node.lineno)
    left = "\n".join(line for line in lines if line is not None).strip()
    return None if re.search(r"\bimport\s+solution\b|__file__", left) else left


# Sources and files


@dataclass(frozen=True)
class Format:
    """A raw format: the columns that its rows have, and what makes a question of one."""

    columns: tuple[str, ...]
    convert: Callable[[dict, int], dict | None]


@dataclass(frozen=True)
class Hub:
    path: str
    config: str
    split: str


@dataclass(frozen=True)
class Source:
    """Where questions come from: files below --raw (the first pattern that matches), or a data set of the hub.

    A stand-in takes the place of a source that can't be had, and says so in every record.
    """

    task: str
    formats: tuple[str, ...]
    files: tuple[str, ...]
    hub: Hub | None = None
    stand_in: bool = False


FORMATS = {
    "gsm8k": Format(("question", "answer"), gsm8k),
    "math500": Format(("problem", "answer", "unique_id"), math500),
    "math": Format(("problem", "solution", "level"), math),
    "humaneval": Format(("task_id", "prompt", "entry_point", "test"), humaneval),
    "mbpp": Format(("task_id", "text", "test_list", "test_setup_code"), mbpp),
    "scibench": Format(("problem_text", "answer_number", "unit", "source", "problemid"), scibench),
    "gpqa": Format(
        ("Question", "Correct Answer", "Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3", "Record ID"),
        gpqa,
    ),
    "mmlu csv": Format(MMLU_COLUMNS, mmlu),
    "mmlu": Format(("question", "choices", "answer", "subject"), mmlu),
    "kodcode": Format(("question_id", "question", "test", "gpt_difficulty"), kodcode),
    "kodcode demo": Format(("instruction", "test_code", "pass_sequence", "metadata"), kodcode_demo),
    "webinstruct": Format(("id", "question", "answer", "answer_type", "category"), webinstruct),
    "leetcode": Format(("task_id", "prompt", "query", "test", "entry_point", "meta"), leetcode),
    "theoremqa": Format(("id", "Question", "Answer", "Answer_type", "Picture", "field"), theoremqa),
    "llm-adapters": Format(("instruction", "answer", "output"), llm_adapters),
    "marti": Format(("prompt", "answer"), marti),
}
_ADAPTERS = "webinstruct_standin_mcq/"
SOURCES = {
    "gsm8k": Source("math", ("gsm8k",), ("gsm8k/test.jsonl",), Hub("openai/gsm8k", "main", "test")),
    "math500": Source("math", ("math500",), ("math500/*.jsonl",), Hub("HuggingFaceH4/MATH-500", "default", "test")),
    "humaneval": Source(
        "coding", ("humaneval",), ("humaneval/*.jsonl.gz", "humaneval/*.jsonl"),
        Hub("openai/openai_humaneval", "openai_humaneval", "test"),
    ),
    "mbpp": Source("coding", ("mbpp",), ("mbpp/*.jsonl",), Hub("google-research-datasets/mbpp", "full", "test")),
    "scibench": Source("science", ("scibench",), ("scibench/*.json",), Hub("xw27/scibench", "default", "train")),
    "gpqa": Source("choice", ("gpqa",), ("gpqa/gpqa_main.csv",), Hub("Idavidrein/gpqa", "gpqa_main", "train")),
    "mmlu": Source("choice", ("mmlu csv", "mmlu"), ("mmlu/*.tar.gz", "mmlu/test/*.csv"), Hub("cais/mmlu", "all", "test")),
    "math_train": Source(
        "math", ("math",), ("math_train/*.json", "math_train/*.jsonl"),
        Hub("DigitalLearningGmbH/MATH-lighteval", "default", "train"),
    ),
    "kodcode": Source(
        "coding", ("kodcode", "kodcode demo"), ("kodcode/*.json*", "kodcode_demo/*.json"),
        Hub("KodCode/KodCode-V1", "default", "train"),
    ),
    "webinstruct": Source(
        "science", ("webinstruct",), ("webinstruct/*.json*",), Hub("TIGER-Lab/WebInstruct-verified", "default", "train")
    ),
    "comas_math": Source("math", (), ("comas_validation/math.json",)),
    "comas_coding": Source("coding", (), ("comas_validation/coding.json",)),
    "comas_science": Source("science", (), ("comas_validation/science.json",)),
    "gpqa_diamond": Source("choice", ("gpqa",), ("gpqa/gpqa_diamond.csv",), stand_in=True),
    "leetcode": Source("coding", ("leetcode",), ("leetcode/*.jsonl.gz", "leetcode/*.jsonl"), stand_in=True),
    "theoremqa": Source("science", ("theoremqa",), ("webinstruct_standin_theoremqa/*.json",), stand_in=True),
    "arc": Source("choice", ("llm-adapters",), (f"{_ADAPTERS}arc*.json",), stand_in=True),
    "openbookqa": Source("choice", ("llm-adapters",), (f"{_ADAPTERS}openbookqa*.json",), stand_in=True),
}  # fmt: skip


@dataclass(frozen=True)
class Part:
    """`size` questions of the first source that is there, then of the stand-ins where --stand-ins allows them.

    `may_be_short`: with stand-ins, fewer will do.
    """

    size: int
    sources: tuple[str, ...]
    stand_ins: tuple[str, ...] = ()
    may_be_short: bool = False


SIZES = {"gsm8k": 500, "math500": 500, "humaneval": 164, "mbpp": 500, "scibench": 499, "gpqa": 448, "mmlu": 500}
_CODING, _SCIENCE = ("leetcode",), ("theoremqa", "arc", "openbookqa")
# The order matters: what stands earlier is kept out of the training set.
FILES: dict[str, tuple[Part, ...]] = {
    **{name: (Part(size, (name,)),) for name, size in SIZES.items()},
    "gpqa": (Part(448, ("gpqa",), ("gpqa_diamond",), may_be_short=True),),
    "validation": (
        Part(150, ("comas_math", "math_train")),
        Part(150, ("comas_coding", "kodcode"), _CODING),
        Part(200, ("comas_science", "webinstruct"), _SCIENCE),
    ),
    "train": (
        Part(600, ("math_train",)),
        Part(600, ("kodcode",), _CODING),
        Part(800, ("webinstruct",), _SCIENCE),
    ),
}


def path_of(name: str) -> str:
    return f"benchmarks/{name}.jsonl" if name in SIZES else f"paper/{name}.jsonl"


# Reading


def read_rows(path: Path) -> Iterator[dict]:
    """The rows of a raw file, with the name of the file and their number in it."""
    if path.name.endswith(".tar.gz"):
        with tarfile.open(path) as archive:
            for member in sorted((m for m in archive.getmembers() if m.name.endswith(".csv")), key=lambda m: m.name):
                yield from _numbered(Path(member.name), archive.extractfile(member).read().decode("utf-8-sig"))
    else:
        content = path.read_bytes()
        content = gzip.decompress(content) if path.suffix == ".gz" else content
        yield from _numbered(path.with_suffix("") if path.suffix == ".gz" else path, content.decode("utf-8-sig"))


def _numbered(path: Path, text: str) -> Iterator[dict]:
    parse = {".csv": _csv_rows, ".json": json.loads}.get(path.suffix, _json_lines)
    for number, row in enumerate(parse(text)):
        if not isinstance(row, dict):
            raise ValueError(f"row {number} is no object with named fields but {type(row).__name__}")
        yield row | {"_file": path.stem, "_number": number}


def _json_lines(text: str) -> list:
    return [json.loads(line) for line in text.split("\n") if line.strip()]


def _csv_rows(text: str) -> list[dict]:
    rows = list(csv.reader(io.StringIO(text, newline="")))
    bare = bool(rows) and len(rows[0]) == 6 and rows[0][5] in tuple("ABCD")
    names = MMLU_COLUMNS if bare else rows[0]
    return [dict(zip(names, row, strict=True)) for row in rows[0 if bare else 1 :]]


def hub_rows(source: Source) -> Iterable[dict]:
    """The rows of a data set of the hub, in the columns of its format. Raises Problems with what to do about it."""
    hub = source.hub
    where = f"{hub.path} ({hub.config}, split {hub.split}) on the Hugging Face hub"
    try:
        from datasets import load_dataset
    except ImportError:
        remedy = "pip install datasets, or --raw DIR for local files"
        raise problem("`datasets` is not installed", where, "the package `datasets`", remedy) from None
    try:
        dataset = load_dataset(hub.path, hub.config, split=hub.split)
    except Exception as error:  # the libraries below raise more kinds than they document
        said = f"{type(error).__name__}: {error}".strip().splitlines()[0][:300]
        raise problem(said, where, *_hub_advice(hub, error)) from error
    columns = (FORMATS[name].columns for name in source.formats)
    known = next((names for names in columns if set(names) <= set(dataset.column_names)), None)
    # Of a format that is unknown one row is enough, to name its columns.
    return dataset.select_columns(list(known)) if known else dataset.select(range(min(1, len(dataset))))


def _hub_advice(hub: Hub, error: Exception) -> tuple[str, str]:
    chain = f"{type(error).__name__} {error} {type(error.__cause__).__name__} {error.__cause__}".lower()
    local = "download it elsewhere and use --raw DIR"
    if re.search(r"gated|\b401\b|\b403\b|authenticat|ask for access", chain):
        page = f"https://huggingface.co/datasets/{hub.path}"
        return "access to a gated data set", f"accept its conditions at {page}, then `hf auth login` or set HF_TOKEN"
    if isinstance(error, ValueError | KeyError) and re.search(r"split|config", chain):
        return "this configuration and split", f"the data set changed: {local}, an older revision perhaps"
    return "a hub that can be reached and still has it", f"check the network, proxy and HF_HUB_OFFLINE, or {local}"


class Sources:
    """Questions of the raw sources, each read once. `inputs` has what was read: files or data sets with checksums."""

    def __init__(self, raw: Path | None, seed: int) -> None:
        self.raw, self.seed = raw, seed
        self.inputs: dict[str, list[dict]] = {}
        self._pools: dict[str, list[Question]] = {}

    def files(self, name: str) -> list[Path]:
        patterns = (*SOURCES[name].files, f"{name}.json")
        found = (sorted(self.raw.glob(pattern)) for pattern in patterns)
        return next((files for files in found if files), [])

    def has(self, name: str) -> bool:
        return bool(self.files(name)) if self.raw else SOURCES[name].hub is not None

    def questions(self, name: str) -> list[Question]:
        """All questions of the source, in its order. Raises Problems."""
        if name not in self._pools:
            self._pools[name] = self._convert(name, self._rows(name))
            print(f"{name}: {len(self._pools[name])} questions", file=sys.stderr, flush=True)
        return self._pools[name]

    def _rows(self, name: str) -> list[dict]:
        source = SOURCES[name]
        if self.raw is None:
            rows = [dict(row) | {"_file": "", "_number": number} for number, row in enumerate(hub_rows(source))]
            digest = hashlib.sha256("\n".join(json.dumps(row, default=str, sort_keys=True) for row in rows).encode())
            self.inputs[name] = [asdict(source.hub) | {"rows": len(rows), "sha256": digest.hexdigest()}]
            return rows
        rows, self.inputs[name] = [], []
        for path in self.files(name):
            try:
                rows += read_rows(path)
            except (OSError, ValueError, EOFError, tarfile.TarError) as error:
                raise problem(f"{name}: {error}", path, "a file in its original format", "fetch it again") from error
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            self.inputs[name].append({"path": path.relative_to(self.raw).as_posix(), "sha256": digest})
        return rows

    def _convert(self, name: str, rows: list[dict]) -> list[Question]:
        source, where = SOURCES[name], self._where(name)
        known = [FORMATS[format_name] for format_name in (*source.formats, "marti")]
        has = set(rows[0]) if rows else set()
        chosen = next((kind for kind in known if has.issuperset(kind.columns)), None)
        if chosen is None:
            expected = " or ".join(f"the columns {', '.join(kind.columns)}" for kind in known)
            what = f"{name}: the columns are {', '.join(sorted(has - {'_file', '_number'})) or 'missing: no rows'}"
            raise problem(what, where, expected, "the format changed: use an older revision, or adapt FORMATS")
        questions, places, bad = [], {}, []
        for row in rows:
            try:
                question = _question(name, source, chosen.convert(row, self.seed))
            except (KeyError, ValueError, TypeError, IndexError, AttributeError, SyntaxError) as error:
                bad.append(f"row {row['_number']} {row['_file']}: {type(error).__name__}: {error}"[:200])
                continue
            if question is None or question in places.get(question.id, ()):
                continue
            same_id = places.setdefault(question.id, [])
            same_id.append(question)
            unique = question.id if len(same_id) == 1 else f"{question.id}-{len(same_id)}"
            questions.append(Question(**asdict(question) | {"id": unique}))
        # A benchmark is used whole; of the large pools that training is drawn from, one row in a hundred may be unusable.
        if bad and (name in SIZES or len(bad) > len(rows) / 100):
            shown = "; ".join(bad[:3])
            remedy = "mend or leave out these rows, or use an older revision"
            raise problem(f"{name}: {len(bad)} unusable rows: {shown}", where, "rows in the source's format", remedy)
        for line in bad:
            print(f"{name}: left out: {line}", file=sys.stderr)
        return questions

    def _where(self, name: str) -> str:
        return ", ".join(map(str, self.files(name))) if self.raw else str(SOURCES[name].hub)


def _question(name: str, source: Source, item: dict | None) -> Question | None:
    """The record, or None for none. Raises ValueError for one whose own answer the verifier would not accept."""
    if item is None:
        return None
    key = item["id"] if "task" in item else f"{name}-{item['id']}"
    label = f"stand-in:{name}" if source.stand_in else name.partition("_")[0]
    question = Question(**{"task": source.task, "source": label} | item | {"id": key})
    if not question.prompt.strip() or not isinstance(question.answer, str) or not question.answer.strip():
        raise ValueError("the question or its answer is empty")
    gold = (
        ast.parse(question.answer).body
        if question.task == "coding"
        else _is_gold(question.task, *[question.answer] * 2)
    )
    if not gold:
        raise ValueError(f"the answer {question.answer[:60]!r} is none for the {question.task} verifier")
    return question


def _is_gold(task: str, response: str, answer: str) -> bool:
    return verify(task, f"\\boxed{{{response}}}", answer).correct


# Contamination


def bare_text(question: Question) -> str:
    """The question without what we put behind it; options in the order of their text, whatever letters they have."""
    text = re.sub(r"```(?:python)?", "", ADDED.split(question.prompt)[0])
    stem, *options = re.split(r"\n[A-Da-d]\) ", text)
    return "\n".join([stem.strip(), *sorted(map(str.strip, options))])


def normalised(text: str) -> str:
    """Case, whitespace and punctuation gone; what changes the meaning of a formula stays (+ - * / ^ < > = %, 3.5)."""
    text = unicodedata.normalize("NFKC", text).casefold()
    return re.sub(r"[^\w+\-*/^<>=%.]|_|(?<!\d)\.|\.(?!\d)", "", text)


class Seen:
    """The questions that later ones must not repeat. `found` names those that do."""

    def __init__(self) -> None:
        self.found: list[dict] = []
        self._known: dict[str, tuple[str, Question]] = {}

    def add(self, name: str, question: Question) -> None:
        self._known.setdefault(normalised(bare_text(question)), (name, question))

    def repeats(self, name: str, question: Question, removed: bool) -> bool:
        text = bare_text(question)
        if (known := self._known.get(normalised(text))) is None:
            return False
        where, other = known
        kind = "exact" if text == bare_text(other) else "normalised"
        repeat = {"set": name, "id": question.id, "same_as_set": where, "same_as_id": other.id}
        self.found.append(repeat | {"kind": kind, "removed": removed})
        return True


# Making


def draw(name: str, part: Part, sources: Sources, seen: Seen, options: argparse.Namespace) -> list[Question]:
    """The questions of one part, by source in the source's order. Raises Problems if there are too few."""
    first = [next((source for source in part.sources if sources.has(source)), None)]
    extra = [source for source in part.stand_ins if options.stand_ins and sources.has(source)]
    names = [source for source in [*first, *extra] if source]
    drawn: list[Question] = []
    for source in names:
        drawn += _draw(
            name, sources.questions(source), part.size - len(drawn), f"{options.seed}/{name}/{source}", seen, options
        )
    if len(drawn) < part.size and not (options.stand_ins and part.may_be_short and drawn):
        places = [pattern for source in part.sources for pattern in SOURCES[source].files]
        remedy = "put the file there, or leave out --raw for the hub" if options.raw else "use local files (--raw DIR)"
        stand_ins = "; or allow stand-ins with --stand-ins" if part.stand_ins and not options.stand_ins else ""
        raise problem(
            f"{name}: {len(drawn)} of {part.size} questions of {' or '.join(part.sources)}",
            options.raw or "the Hugging Face hub",
            f"{part.size} questions in {' or '.join(places)}, or MARTI records in {part.sources[-1]}.json",
            f"{remedy}{stand_ins}; --only makes the rest",
        )
    return drawn


def _draw(
    name: str, pool: list[Question], size: int, seed: str, seen: Seen, options: argparse.Namespace
) -> list[Question]:
    order = list(range(len(pool)))
    random.Random(seed).shuffle(order)
    compare = name not in SIZES
    # A validation set that is given, and not drawn from more, stays what it is.
    remove = not options.keep_contaminated and not (name == "validation" and len(pool) <= size)
    chosen: list[int] = []
    for place in order:
        if len(chosen) >= size:
            break
        if compare and seen.repeats(name, pool[place], remove) and remove:
            continue
        chosen.append(place)
        if compare:
            seen.add(name, pool[place])
    return [pool[place] for place in sorted(chosen)]


def make(options: argparse.Namespace) -> tuple[dict[str, list[Question]], Sources, dict]:
    """The questions of every file that was asked for, what they were made of, and the contamination report."""
    sources, seen, made, texts = Sources(options.raw, options.seed), Seen(), {}, []
    wanted = [name for name in FILES if name in (options.only or FILES)]
    compared = []
    for name in FILES:
        on_disk = options.out / path_of(name)
        if name not in wanted and on_disk.exists():
            made_before = load_questions(on_disk)
            compared.append((name, made_before))
            for question in made_before:
                seen.add(name, question)
    for name in wanted:
        questions = []
        for part in FILES[name]:
            try:
                questions += draw(name, part, sources, seen, options)
            except Problems as error:
                texts += [text for text in error.texts if text not in texts]
        made[name] = questions
        compared.append((name, questions))
        for question in questions:
            seen.add(name, question)
    if texts:
        raise Problems(*texts)
    report = {
        "compared": sorted(name for name, _ in compared),
        "not_compared": sorted(set(FILES) - {name for name, _ in compared}),
        "repeats": seen.found,
    }
    return made, sources, report


def write(made: dict[str, list[Question]], sources: Sources, report: dict, options: argparse.Namespace) -> None:
    """All files, each of them whole or not at all. Raises Problems where one is there with other content."""
    texts = {path_of(name): "".join(map(_line, questions)) for name, questions in made.items()}
    differing = [
        path
        for path, text in texts.items()
        if (old := options.out / path).exists() and old.read_bytes() != text.encode()
    ]
    if differing and not options.force:
        raise Problems(
            *(
                f"{options.out / path} exists and differs\n    remedy:   --force to replace it, or another --out"
                for path in differing
            )
        )
    for path, text in texts.items():
        _write(options.out / path, text)
    manifest = _manifest(options.out / "manifest.json")
    for name, questions in made.items():
        manifest["files"][path_of(name)] = {
            "questions": len(questions),
            "wanted": sum(part.size for part in FILES[name]),
            "sha256": hashlib.sha256(texts[path_of(name)].encode()).hexdigest(),
            "by_source": dict(sorted(Counter(question.source for question in questions).items())),
            "seed": options.seed,
        }
    manifest["inputs"].update(sources.inputs)
    _write(options.out / "manifest.json", json.dumps(manifest, indent=2, sort_keys=True) + "\n")
    if {"train", "validation"} & set(made):
        _write(options.out / "contamination.json", json.dumps(report, indent=2) + "\n")


def _line(question: Question) -> str:
    return json.dumps(asdict(question), ensure_ascii=False) + "\n"


def _manifest(path: Path) -> dict:
    """What earlier runs wrote, so that --only adds to it."""
    try:
        manifest = json.loads(path.read_text())
        return {"files": dict(manifest["files"]), "inputs": dict(manifest["inputs"])}
    except (OSError, ValueError, KeyError, TypeError):
        return {"files": {}, "inputs": {}}


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, text)


def say(made: dict[str, list[Question]], report: dict, options: argparse.Namespace) -> None:
    for name, questions in made.items():
        counts = Counter(question.source for question in questions)
        print(f"{options.out / path_of(name)}: {len(questions)} ({', '.join(f'{n} {s}' for s, n in counts.items())})")
    if {"train", "validation"} & set(made):
        removed = sum(repeat["removed"] for repeat in report["repeats"])
        print(f"{options.out / 'contamination.json'}: {len(report['repeats'])} repeated questions, {removed} removed")
        if report["not_compared"]:
            print(f"not compared with, since not made: {', '.join(report['not_compared'])}")


def arguments(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--raw", type=Path, metavar="DIR", help="local files instead of the Hugging Face hub")
    parser.add_argument("--out", type=Path, default=HERE, metavar="DIR", help="where to write (default: %(default)s)")
    parser.add_argument("--only", nargs="+", choices=list(FILES), metavar="NAME", help=f"of {', '.join(FILES)}")
    parser.add_argument("--seed", type=int, default=SEED, help="of the sampling and of GPQA's options (%(default)s)")
    parser.add_argument(
        "--stand-ins",
        action="store_true",
        help="fill up from the stand-ins in --raw DIR: leetcode for KodCode, theoremqa, arc and openbookqa for WebInstruct, "
        "gpqa_diamond (198 questions) for GPQA; their records say `stand-in:...`",
    )
    parser.add_argument("--keep-contaminated", action="store_true", help="report repeated questions, but keep them")
    parser.add_argument("--force", action="store_true", help="replace existing files that differ")
    options = parser.parse_args(words)
    if options.stand_ins and not options.raw:
        parser.error("--stand-ins needs --raw: the stand-ins are local files")
    if options.raw and not options.raw.is_dir():
        parser.error(f"--raw {options.raw}: no such folder")
    return options


def main(words: list[str] | None = None) -> int:
    options = arguments(words)
    try:
        made, sources, report = make(options)
        write(made, sources, report, options)
    except Problems as error:
        print(f"nothing was written; {len(error.texts)} problems:", *error.texts, sep="\n- ", file=sys.stderr)
        return 1
    say(made, report, options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
