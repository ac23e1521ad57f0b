"""Questions of one's own: every kind of file gives the same rows; none is on both sides."""

import json
from decimal import Decimal
from pathlib import Path

import numpy
import pandas as pd
import pytest
from datasets import ClassLabel, Dataset, Features, Value
from support.launching import ROOT

from recipes.common.data import files
from recipes.common.data.questions import QuestionArguments, gold_of, load_questions
from recipes.common.data.recipe import import_recipe
from recipes.common.settings import parse_arguments

ITEMS = [{"question": f"What is {n} + 1?", "answer": str(n + 1)} for n in range(40)]


def load(path: Path, seed: int = 0, **settings) -> tuple[list[dict], list[dict]]:
    args = QuestionArguments(dataset_path=str(path), **{"num_eval_rows": 100, **settings})
    return tuple(rows.to_list() for rows in load_questions(args, seed, lambda gold: None))


def write(path: Path, items: list[dict]) -> Path:
    path.parent.mkdir(exist_ok=True)
    table, kind = pd.DataFrame(items), path.suffix.lower()
    if kind == ".parquet":
        table.to_parquet(path)
    elif kind in (".jsonl", ".json"):
        table.to_json(path, orient="records", lines=kind == ".jsonl")
    else:
        table.to_csv(path, index=False, sep="," if kind == ".csv" else "\t")
    return path


@pytest.mark.parametrize("kind", [".jsonl", ".json", ".CSV", ".tsv", ".parquet"])
@pytest.mark.parametrize("answers", [["7", "007", "NA"], [0.5, 1.5]])
def test_every_kind_of_file_gives_the_same_rows(tmp_path, kind, answers):
    items = [{"question": f"What,\n{n}?", "answer": answer} for n, answer in enumerate(answers)]
    train, held_out = load(write(tmp_path / f"mine{kind}", items), num_eval_rows=0)
    assert train == [{**item, "answer": str(item["answer"])} for item in items]
    assert held_out == []


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        ("3 * 4 = <<3*4=12>>12\n#### 12", "12"),
        (r"So \boxed{1}, no, \boxed{\frac{1}{2}}.", r"\frac{1}{2}"),
        # Sentences
        ("The answer is 42 because it is even.", "42"),
        ("It takes 5 hours to fill 3 pools.", "5"),
        ("#### Step 2\nSo x = \\boxed{5}.", "5"),  # a heading
        (r"$x=\boxed{-2}$ or $x=\boxed{1}$", "-2 or 1"),
        ("So 3 * 4 = 12 pens are left.", "12"),
        ("She pays $18.50 in all.", "18.5"),
        (r"The answer is $\sqrt{2}$.", r"\sqrt{2}"),
        ("The solutions are x=1 and x=2", "x=1 and x=2"),
        ("The answer is Paris.", "Paris"),
        ("3 * 6 = 18\n#### 18\nThe answer is: 18", "18"),  # of MetaMathQA
        # Answers of a few words
        ("5 feet 3 inches", "5 feet 3 inches"),
        ("New York City", "New York City"),
    ],
)
def test_the_gold_of_a_solution(answer, gold):
    assert gold_of(answer) == gold


@pytest.mark.parametrize(
    "answer",
    [
        "He has 42 apples and 3 pears.",
        "Yes, 5 is a prime number.",
        "Probably 12 or 13.",
        r"Here $\angle AMB = 90^\circ$. So $AB = AC$, which we wanted to prove.",
    ],
)
def test_a_sentence_that_states_no_single_answer_is_no_gold(answer):
    with pytest.raises(ValueError, match="states no single answer: end it in #### and the answer"):
        gold_of(answer)


PAIR = ("What is 1 + 1?", "2")
ROW = dict(zip(("question", "answer"), PAIR, strict=True))
CHAT = [{"role": "user", "content": PAIR[0]}, {"role": "assistant", "content": PAIR[1]}]
SYSTEM = {"role": "system", "content": "Be brief."}
NESTED = {"question_column": "data.question", "answer_column": "data.answers.0.text"}
READ = [  # the name of a file, its text, settings
    ("excel.csv", "\ufeffquestion;answer\r\n{};{}\r\n".format(*PAIR), {}),
    ("spaces.csv", 'question, answer\n"{}", {}\n'.format(*PAIR), {}),
    ("chat.jsonl", json.dumps({"messages": [SYSTEM, *CHAT]}), {}),
    ("nested.jsonl", json.dumps({"data": {"question": PAIR[0], "answers": [{"text": 2}]}}), NESTED),
    ("asked.jsonl", json.dumps({"question": [SYSTEM, CHAT[0]], "answer": "2"}), {}),
    ("twice.jsonl", f"{json.dumps(ROW)}\n" * 3, {}),  # each row is kept once
    ("wrapped.json", json.dumps({"version": 1, "data": [ROW]}, indent=1), {}),
]


@pytest.mark.parametrize(("name", "text", "settings"), READ, ids=[name for name, *_ in READ])
def test_a_layout_that_data_sets_have_is_read(tmp_path, name, text, settings):
    (tmp_path / name).write_text(text)
    train, _ = load(tmp_path / name, num_eval_rows=0, **settings)
    assert train == [ROW]


TRAIN, TEST = ITEMS[:30], ITEMS[30:]
HUB = [  # the rows of each file of a folder, settings
    ({"data/train-00000-of-00002.parquet": ITEMS[:9], "data/test-00000-of-00001.parquet": TEST,
      "data/train-00001-of-00002.parquet": ITEMS[9:30]}, {}),
    ({"main/train.parquet": TRAIN, "main/test.parquet": TEST, "socratic/train.parquet": TEST},
     {"dataset_config": "main"}),
    ({"main/train/0000.parquet": TRAIN, "main/test/0000.parquet": TEST}, {}),
    ({"train/a.csv": TRAIN, "test/a.csv": TEST}, {}),
    ({"[1] of ?/train.csv": TRAIN, "[1] of ?/test.csv": TEST}, {"dataset_config": "[1] of ?"}),
]  # fmt: skip


@pytest.mark.parametrize(("files", "settings"), HUB)
def test_a_folder_in_the_layout_of_the_hub_is_read(tmp_path, files, settings):
    for name, items in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        write(tmp_path / name, items)
    (tmp_path / "README.md").write_text("Not rows.")
    (tmp_path / "dataset_infos.json").write_text("{}")
    train, held_out = load(tmp_path, **settings)
    assert train == TRAIN and sorted(map(str, held_out)) == sorted(map(str, TEST))


def test_several_configurations_are_named(tmp_path):
    for name in ("main", "socratic"):
        write(tmp_path / name / "train.parquet", ITEMS)
    with pytest.raises(ValueError, match="holds rows in main, socratic: choose one by dataset_con"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("answer", "written"),
    [
        (numpy.float32(35.1), "35.1"),
        (float(numpy.float32(35.1)), "35.099998474121094"),  # 64 bits that 32 hold exactly
        (Decimal("35.1"), "35.1"),
    ],
)
def test_a_number_is_read_as_it_was_written(tmp_path, answer, written):
    table = pd.DataFrame([{**ITEMS[0], "answer": answer}])
    table.to_parquet(tmp_path / "a.parquet")
    Dataset.from_pandas(table).save_to_disk(str(tmp_path / "saved"))
    for path in (tmp_path / "a.parquet", tmp_path / "saved"):
        assert load(path, num_eval_rows=0)[0] == [{**ITEMS[0], "answer": written}]


def test_a_label_is_its_name(tmp_path):
    kinds = Features({"question": Value("string"), "answer": ClassLabel(names=["A", "B"])})
    rows = Dataset.from_list([{"question": "Which?", "answer": 1}], features=kinds)
    rows.to_parquet(tmp_path / "a.parquet")
    rows.save_to_disk(str(tmp_path / "saved"))
    for path in (tmp_path / "a.parquet", tmp_path / "saved"):
        (item,) = load(path, num_eval_rows=0)[0]
        assert item["answer"] == "B"


SPLIT_IN_NAMES = [("Train.jsonl", "Test.jsonl"), ("mathtrain.jsonl", "mathdev.jsonl")]


@pytest.mark.parametrize("names", SPLIT_IN_NAMES)
def test_test_files_that_would_be_training_rows_are_refused(tmp_path, names):
    for name in names:
        write(tmp_path / name, ITEMS)
    with pytest.raises(ValueError, match=r"rain.jsonl and .* would both be training rows"):
        load(tmp_path)


def test_a_packed_file_is_named(tmp_path):
    (tmp_path / "train.jsonl.gz").write_bytes(b"\x1f\x8b")
    with pytest.raises(ValueError, match="gz is packed: unpack it"):
        load(tmp_path)


def test_a_question_is_held_out_by_its_words_whatever_the_seed_and_the_other_rows(tmp_path):
    file = write(tmp_path / "mine.jsonl", ITEMS)
    sides = [load(file, seed=seed) for seed in (0, 1)]
    first, second = ({row["question"] for row in held_out} for _, held_out in sides)
    assert first == second and 0 < len(first) < 20
    shouted = [{**item, "question": item["question"].upper().replace(" ", "  ")} for item in ITEMS]
    train, held_out = load(write(tmp_path / "twice.jsonl", [*shouted, *ITEMS]))
    again = {" ".join(row["question"].lower().split()) for row in held_out}
    assert again == {text.lower() for text in first} and len(train) + len(held_out) == 80


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"dataset_config": "socratic"}, ("openai/gsm8k", "socratic")),
        ({"dataset_name": "me/mine"}, ("me/mine", None)),  # main is a configuration of GSM8K
    ],
)
def test_any_data_set_and_configuration_of_the_hub(monkeypatch, settings, expected):
    data = {"train": Dataset.from_list(ITEMS[:30]), "test": Dataset.from_list(ITEMS[30:])}
    asked, args = [], QuestionArguments(**settings)
    monkeypatch.setattr(files, "load_dataset", lambda *words: asked.append(words) or data)
    train, held_out = load_questions(args, 0, lambda gold: None, hub=("openai/gsm8k", "main"))
    assert (asked, len(train), len(held_out)) == ([expected], 30, 10)


def test_some_bad_rows_are_left_out_and_named_where_that_is_asked_for(tmp_path, capsys):
    file = write(tmp_path / "mine.jsonl", [*ITEMS, {"question": "Why?", "answer": ""}])
    with pytest.raises(ValueError, match='line 41: answer is ""'):
        load(file)
    assert sum(map(len, load(file, max_bad_rows=1))) == 40
    printed = capsys.readouterr().out
    assert f'Rows left out (max_bad_rows): 1\n{file}, line 41: answer is ""' in printed


@pytest.mark.parametrize(
    ("text", "words", "read"),
    [
        ("dataset_path: mine.jsonl", ["--dataset_name", "a/b"], ("a/b", None, None)),
        # The configuration of a data set of the Hub is none of a folder.
        ("dataset_name: a/b\ndataset_config: main", ["--dataset_path", "d"], (None, "d", None)),
        ("dataset_name: a/b", ["--dataset_config", "main"], ("a/b", None, "main")),
    ],
)
def test_rows_of_the_command_line_replace_those_of_the_yaml(text, words, read, tmp_path):
    (tmp_path / "run.yaml").write_text(text)
    words = ["--config", str(tmp_path / "run.yaml"), *words]
    recipe = parse_arguments(QuestionArguments, words).recipe
    assert (recipe.dataset_name, recipe.dataset_path, recipe.dataset_config) == read


# recipes/math

TAGS = "<reasoning>\n</reasoning>\n<answer>\n{answer}\n</answer>"


@pytest.mark.parametrize(
    ("settings", "reference", "system"),
    [
        ({}, r"\boxed{12}", "in \\boxed{}."),
        ({"reference": TAGS, "system_prompt": "Use tags."}, TAGS.format(answer=12), "Use tags."),
    ],
)
def test_a_row_has_the_prompt_and_the_reference_of_the_yaml(settings, reference, system):
    recipe = import_recipe(ROOT / "recipes/math/local_file.yaml")
    args = recipe.RecipeArguments(example=["1 + 1 =", "2", "2 + 2 =", "4"], **settings)
    row = recipe.to_row({"question": "3 * 4 =", "answer": "3 * 4 = 12 #### 12"}, args)
    roles = [message["role"] for message in row["prompt"]]
    assert roles == ["system", "user", "assistant", "user", "assistant", "user"]
    assert row["prompt"][0]["content"].endswith(system)
    assert (row["answer"], recipe.reference_completion(row)) == ("12", reference)
    assert recipe.metric(row, reference) == {"strict": True, "lenient": True, "format": True}
