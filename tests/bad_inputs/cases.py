"""Inputs that no run may start with, and the words that its refusal must have: name -> (input,
*words).

An input is a mapping of settings, a list of words of the command line, or the text of the YAML.
"""

AT_LEAST_1 = "it must be at least 1"
TYPES = {  # what the message says: settings of another type, or that name what is not there
    "it must be a whole number": {"max_steps": ["many", [5], 1.5, None], "seed": [True]},
    "it must be a number": {
        "learning_rate": ["fast", {"a": 1}], "beta": [None],
        "temperature": [True],  # its default is 1.0, which equals true
    },
    "it must be true or false": {"bf16": [2], "use_cpu": ["maybe"]},
    "it must be a list": {"reward_funcs": [{"xml_format": 1.0}]},
    "it must be a list of text": {"reward_funcs": [[1, 2], 5], "preset": [5]},
    "must be a list": {"reward_weights": [["a"], {"xml_format": 1}]},
    "it must be a mapping": {
        "reward_kwargs": [["per_tag"]], "reward_tasks": [5], "env": [["A=1"]],
        "generation_kwargs": ["fast"],
    },
    "do not have it; their columns: ": {"reward_columns": [{"solution": "gold"}]},
    "the rows have another of the name 'answer'": {"reward_columns": [{"answer": "task"}]},
    "it must be text": {
        "model_name_or_path": [135], "output_dir": [["runs"]],
        "trackio_static_space_id": [True],  # false is allowed
    },
    "unknown preset 'gpro'": {"preset": ["gpro"]},
    "give a question and its completion": {"example": [["question"]]},
}  # fmt: skip
NAN, INF = float("nan"), float("inf")
RANGES = {  # what the message says: settings out of range, two of each limit
    "it must be a finite number": {"temperature": [NAN, INF], "reward_timeout_s": [INF]},
    "it must be more than 0": {
        "temperature": [0.0, -1.0],
        "logging_steps": [0.0],
        "eval_steps": [-3],
    },
    "it must be at most 1": {"top_p": [1.5], "max_reward_error_rate": [1.5]},
    "it must be at least 0": {"top_k": [-5], "beta": [-0.1], "max_bad_rows": [-1]},
    "it must be less than 1": {"epsilon": [1.0], "lora_dropout": [1.0]},
    AT_LEAST_1: {"max_completion_length": [0, -5], "generation_batch_size": [0]},
    "at least 1, or -1 for num_train_epochs": {"max_steps": [0]},
    "it must be at least -1": {"max_steps": [-7]},
    "at least 2": {"num_generations": [0, 1]},
    "it must be less than 4294967296": {"seed": [2**32]},
}
# fmt: off
SETTINGS = {
    **{
        f"{name} as {value!r}": ({name: value}, name, words)
        for words, settings in TYPES.items()
        for name, values in settings.items()
        for value in values
    },
    "a reward model that is not there": (
        {"reward_funcs": ["./scorer"]}, "the reward model './scorer': it is not a folder",
    ),
    "a file for a reward": (
        {"reward_funcs": ["data/mine.py"]}, "unknown reward 'data/mine.py'", "TRL's: trl.rewards.",
    ),
    **{
        f"{name} {value}": ({name: value}, f"{name} is {value}", words)
        for words, settings in RANGES.items()
        for name, values in settings.items()
        for value in values
    },
    **{
        f"{name} {value}": ({name: value}, f"{name} is '{value}'", words)
        for name, value, words in (
            ("loss_type", "gpro", "'grpo', 'dr_grpo', 'dapo'"),
            ("scale_rewards", "all", "'group', 'batch' or 'none'"),
            ("lr_scheduler_type", "cosin", "'linear', 'cosine'"),
            ("optim", "adam", "'adamw_torch'"),
            ("dtype", "float8", "'auto', 'fastest', 'bfloat16'"),
            ("report_to", "wandbb", "allowed: none, all, clearml"),
            ("log_level", "loud", "'detail', 'debug'"),
            ("train_sampling_strategy", "best", "'random', 'sequential'"),
        )
    },
    "optim_args that are not pairs": ({"optim_args": "fast"}, "optim_args 'fast'", "ValueError"),
    "optim_args out of range": (
        {"optim": "sgd", "optim_args": "momentum=-1"}, "optim 'sgd'", "Invalid momentum",
    ),
    "an optimizer that is not installed": (
        {"optim": "adamw_bnb_8bit"}, "optim 'adamw_bnb_8bit'", "bitsandbytes",
    ),
    "a schedule without what it needs": (
        {"lr_scheduler_type": "warmup_stable_decay"}, "'warmup_stable_decay'",
    ),
    "a schedule with what it does not know": (
        {"lr_scheduler_kwargs": {"speed": 1}}, "unexpected keyword", "'speed'",
    ),
    "LoRA's task": (
        {"use_peft": True, "lora_task_type": "CHAT"}, "the model and LoRA settings", "CHAT",
    ),
    "LoRA for another task": (
        {"use_peft": True, "lora_task_type": "SEQ_CLS"}, "lora_task_type is SEQ_CLS", "CAUSAL_LM",
    ),
    "a module to save that is misspelt": (
        {"use_peft": True, "lora_modules_to_save": ["lm_haed"]}, "the name lm_haed",
    ),
    "the worst checkpoint": (
        {
            "load_best_model_at_end": True, "metric_for_best_model": "validation/strict",
            "greater_is_better": False, "eval_strategy": "steps", "num_validation_rows": 1,
            "eval_steps": 2, "save_steps": 2,
        },
        "greater_is_better is false",
    ),
    "an output_dir that holds the rows": (
        {"output_dir": "data"}, "output_dir is 'data', the folder of the data",
    ),
    "a project that W&B refuses": (
        {"report_to": "wandb", "project": "a/b"}, "project is 'a/b'; W&B allows none of",
    ),
    "one column for question and answer": (
        {"question_column": "answer"}, "question_column and answer_column are both 'answer'",
    ),
    "generation_kwargs with an unknown name": (
        {"generation_kwargs": {"topp": 1}}, "generation_kwargs has topp",
    ),
    "generation_kwargs with beams": (
        {"generation_kwargs": {"num_beams": 4}}, "generation_kwargs sets num_beams",
    ),
    "generation_kwargs with an end": (
        {"generation_kwargs": {"eos_token_id": [2]}}, "sets eos_token_id",
    ),
    "generation_kwargs with a value that transformers refuses": (
        {"generation_kwargs": {"cache_implementation": "disk"}}, "generation_kwargs: ValueError",
        "cache_implementation",
    ),
    "generation_kwargs with texts to stop at": (
        {"generation_kwargs": {"stop_strings": ["."]}}, "generation_kwargs has stop_strings",
    ),
    "LoRA's only target misspelt": (
        {"use_peft": True, "lora_target_modules": ["q_prj"]}, "lora_target_modules is ['q_prj']",
        "q_proj",
    ),
    "one of LoRA's targets misspelt": (
        {"use_peft": True, "lora_target_modules": ["q_proj", "v_prj"]},
        "lora_target_modules: nothing has the name v_prj: the model has", "v_proj",
    ),
    "attention of a name that is none": (
        {"attn_implementation": "flash"}, "attn_implementation 'flash': ",
    ),
    "attention of a package that is not installed": (
        {"attn_implementation": "flash_attention_2"}, "attn_implementation 'flash_attention_2'",
    ),
    "model_init_kwargs with an unknown name": (
        {"model_init_kwargs": {"speed": 1}}, "model_init_kwargs has speed, which neither",
    ),
    "model_init_kwargs that say what dtype and the trainer say": (
        {"model_init_kwargs": {"dtype": "float16", "device_map": "auto"}},
        "model_init_kwargs sets device_map, dtype: the setting dtype says the type",
    ),
    "FSDP without its launch file": (
        {"fsdp": "full_shard auto_wrap"}, "fsdp is 'full_shard auto_wrap', but this launch is",
    ),
    "tools that are never answered": (
        {"max_tool_calling_iterations": 0, "tools": ["tests/test_tools.py:multiply"]},
        "max_tool_calling_iterations is 0",
    ),
    "a folder in which nobody can write": (
        {"output_dir": "/proc/out"}, "output_dir is '/proc/out', but /proc cannot be written",
    ),
    "LoRA's parameters of another model": (
        {"use_peft": True, "lora_target_parameters": ["mlp.experts.gate_up_proj"]},
        "lora_target_parameters: nothing has the name mlp.experts.gate_up_proj",
    ),
    "model_init_kwargs that are a list": (
        {"model_init_kwargs": ["dtype"]}, "model_init_kwargs is ['dtype']; it must be a mapping",
    ),
    "8 bits and 4 bits": (
        {"load_in_8bit": True, "load_in_4bit": True},
        "the model and LoRA settings: ValueError: You can't use 8 bit and 4 bit",
    ),
    "generation_kwargs out of range": (
        {"generation_kwargs": {"top_p": 7.0}}, "top_p is 7.0; it must be",
    ),
    "an output_dir that is a file": (
        {"output_dir": "run.yaml"}, "run.yaml is a file: give another folder",
    ),
    "the best checkpoint by nothing": (
        {"load_best_model_at_end": True}, "metric_for_best_model is None",
    ),
    "a batch size that shrinks": (
        {"auto_find_batch_size": True}, "lower per_device_train_batch_size",
    ),
    "both batch settings": (
        {"generation_batch_size": 4, "steps_per_generation": 1}, "can not be both configured",
    ),
    "bf16 and fp16": ({"bf16": True, "fp16": True}, "set one or the other"),
    "a weight that is not a number": (
        {"reward_weights": [1.0, float("nan")]}, "it must be a list of finite number",
    ),
    "weights that are all 0": ({"reward_weights": [0.0, 0.0]}, "one must not be 0"),
    "a misspelt tool": (
        {"tools": ["recipes.calculator.calculator:valu_of"]}, "Did you mean 'value_of'?",
    ),
    "a misspelt environment": (
        {"environment_factory": "recipes.calculator.calculator:Calculater"},
        "environment_factory 'recipes.calculator.calculator:Calculater'",
        "Did you mean 'Calculator'?",
    ),
    "an environment of a class that is none": (
        {"environment_factory": "recipes.calculator.calculator:Fraction"},
        "environment 'Fraction' has no method `reset`",
    ),
    "a template without tools": (
        {"environment_factory": "recipes.calculator.calculator:Calculator"}, "writes no tool calls",
        "chat_template_path",
    ),
    "a template that is not there": ({"chat_template_path": "a.jinja"}, "there is no file a.jinja"),
    "a word for true or false": (
        {"reward_kwargs": {"gsm8k_correctness": {"lenient": "no"}}},
        "lenient is 'no'; it must be true or false",
    ),
    "text for a number of a reward": (
        {"reward_kwargs": {"xml_format": {"per_tag": "much"}}},
        "per_tag is 'much'; it must be a number",
    ),
    "rewards that lose their columns": (
        {"remove_unused_columns": True}, "remove_unused_columns is true", "leave it out",
    ),
    "a variable that is not set": (
        {"output_dir": "$NO_SUCH_FOLDER/run"}, "output_dir is '$NO_SUCH_FOLDER/run'",
        "NO_SUCH_FOLDER is not set",
    ),
    "no rewards": ({"reward_funcs": []}, "reward_funcs is empty"),
    "an unknown key": (
        {"num_generation": 4}, "unknown argument 'num_generation'",
        "did you mean 'num_generations'?",
    ),
    "a key that is a number": ({5: 4}, "unknown argument 5"),
    "a data set twice": (
        {"dataset_name": "openai/gsm8k"}, "dataset_name and dataset_path are both given",
    ),
}
# fmt: on
# The starts of those that other problems follow; the rest is refused by one problem.
FOLLOWED = (
    "num_generations",
    "reward_funcs as",
    "model_name_or_path as",
    "an environment of",
    "a template without",
    "tools that are never answered",
    "a project that",
    "8 bits and 4 bits",
)
# fmt: off
TEXTS = {
    "a key twice": ("beta: 0.1\nmax_steps: 5\nbeta: 0.2\n", "beta is given twice (line 1"),
    "an inner key twice": ("reward_kwargs:\n  a: {b: 1, b: 2}\n", "b is given twice (line 2"),
    "no mapping": ("- a\n- b\n", "must hold a YAML mapping"),
    "an empty file": ("", "must hold a YAML mapping"),
    "broken YAML": ("a: [", "cannot read run.yaml"),
    "a tab": ("a:\n\t- b\n", "cannot read run.yaml", "'\\t'"),
    "no UTF-8": (b"a: \xff\xfe\xfa\n", "cannot read run.yaml"),
    "Python's own tags": ("a: !!python/object/apply:os.getcwd []\n", "cannot read run.yaml"),
}
# fmt: on
# fmt: off
WORDS = {
    "a second --config": (["--config", "other.yaml"], "--config is given twice", "other.yaml"),
    "an option without its value": (["--max_steps"], "max_steps: expected one argument"),
    "an unknown option": (["--max_step", "5"], "did you mean 'max_steps'?"),
    "a stray word": (["run.yaml"], "unknown argument 'run.yaml' in the command line"),
    "broken JSON": (["--reward_kwargs", "{'a': 1}"], "reward_kwargs is not a JSON mapping"),
    "text for a mapping": (["--reward_gates", "xml_format"], "it must be a mapping by name"),
}
# fmt: on

ROW = '{"question": "1 + 2 =", "answer": "so #### 3"}\n'
WANTED = "wanted: question, answer"
# The content of train.jsonl, bytes or text.
# fmt: off
TRAIN_FILES = {
    "no file": (None, "data has no split 'train' (it has: test): set dataset_train_split"),
    "an empty file": ("", "data holds no rows; it needs one question and one answer a row"),
    "a line cut short": (ROW + '{"question": "2 +', "train.jsonl, line 2:", "Unterminated string"),
    "a list": ("[1, 2]\n", "train.jsonl, item 1", "must be a JSON object with question, answer"),
    "CSV": ("question,answer\n1+1,2\n", "train.jsonl, line 1:", "Expecting value"),
    "wrong columns": (
        '{"prompt": "a", "gold": "b"}\n', "line 1: question, answer missing", "prompt, gold",
        WANTED,
    ),
    "a null": (
        ROW + '{"question": null, "answer": "#### 3"}\n',
        "line 2: question is null; it must be text",
    ),
    "a key twice": (
        '{"question": "a", "question": "b", "answer": "#### 2"}\n',
        "line 1: the key 'question' stands twice in one object",
    ),
    "a number for text": (
        '{"question": 1, "answer": 2}\n', "line 1: question is 1; it must be text",
    ),
    "true for an answer": (
        '{"question": "1+1", "answer": true}\n', "answer is true; it must be text or a number",
    ),
    "an empty gold": (
        '{"question": "1+1", "answer": "#### "}\n',
        "line 1: answer has no final answer behind ####",
    ),
    "bad lines of many kinds": (
        "".join(f'{{"question": "q", "answer": "{word}"}}\n' for word in "abcdefghi"),
        "train.jsonl, line 5: 'e' is not a number", "... and 4 other problems",
    ),
    "Latin-1": (
        '{"question": "caf\xe9", "answer": "#### 3"}\n'.encode("latin-1"),
        "line 1: it is not UTF-8",
    ),
    "two golds": (
        "".join(
            f'{{"question": "{q}", "answer": "#### {gold}"}}\n'
            for gold, q in enumerate("abac", start=1)
        ),
        "training rows: 1 give another answer to the question of an earlier row",
        "rows 0 and 2: '1' and '3'",
    ),
    "fewer rows than prompts": (ROW, "the training rows are fewer than the 2 prompts"),
}
# fmt: on
# fmt: off
TEST_FILES = {
    "no held-out file": (None, "data has 4 rows, and none of them is held out"),
    "a held-out question twice": (
        '{"question": "90 + 2 =", "answer": "#### 92"}\n' * 2,
        "evaluation rows: 1 of 2 stand there twice (the first: row 1 is row 0)",
    ),
    "a training question, written otherwise": (
        '{"question": " 0+  1= ", "answer": "#### 1"}\n',
        "1 of 1 evaluation rows are also training rows",
    ),
}
# fmt: on

ROWS = [f'{{"question": "{n} + 1 =", "answer": {n + 1}}}\n' for n in range(40)]
TAGS = {"reference": "<reasoning>\n</reasoning>\n<answer>\n{answer}\n</answer>"}
LIST = '[{"role": "user", "content": "1 + 1 ="}]'
# fmt: off
QUESTION_SETTINGS = {
    "one other column": {"question_column": "problem", "answer_column": "gold"},
    "no such file": {"dataset_path": "data/mien.jsonl"},
    "no data at all": {"dataset_path": None},
    "a folder with files of other names": {"dataset_path": "data"},
    "a word for a number": TAGS,
    "a reference without the answer": {"reference": "\\boxed{}"},
    "a reference that nobody reads": {"reference": "It is {answer}."},
    "a reward for tags on boxes": {"reward_funcs": ["gsm8k_correctness"]},
}
# fmt: on
# The file of recipes/math: its name, its content, and the words.
# fmt: off
QUESTION_FILES = {
    "other columns": (
        "mine.jsonl", '{"problem": "1 + 1 =", "solution": "2"}\n' * 20,
        "mine.jsonl, line 1 (and 19 more): question, answer missing",
        "(its keys: problem, solution; wanted: question, answer)",
        "name the key that holds it by --question_column and --answer_column",
    ),
    "one other column": (
        "mine.jsonl",
        '{"problem": "1 + 1 =", "answer": "2"}\n',
        "line 1: gold missing (its keys: problem, answer; wanted: problem, gold): name the key "
        "that holds it by --answer_column",
    ),
    "CSV in Latin-1": (
        "mine.csv", "question,answer\ncaf\xe9 + 1 =,2\n".encode("latin-1"),
        "mine.csv cannot be read",
    ),
    "an empty cell": (
        "mine.csv", "question,answer\n1 + 1 =,2\n2 + 2 =,\n",
        'mine.csv, row 2: answer is ""; it must be text or a number that is not empty',
    ),
    "a damaged Parquet file": (
        "mine.parquet", "PAR1 and no more", "mine.parquet cannot be read as parquet",
    ),
    "JSON that ends early": (
        "mine.json", '[{"question": "1 + 1 =", "ans', "mine.json, line 1: it is not JSON",
    ),
    "an unknown kind of file": (
        "mine.txt", "1 + 1 = 2\n",
        "mine.txt is not a .jsonl, .json, .csv, .parquet file, nor a folder",
    ),
    "no such file": (None, "", "dataset_path: there is no file or folder data/mien.jsonl"),
    "no data at all": (None, "", "dataset_path (a file or a folder) or dataset_name (a Hub id)"),
    "a folder with files of other names": (
        "a.jsonl", "".join(ROWS),
        "data has no split 'train' (it has: a, b): set dataset_train_split",
    ),
    "messages for a question": (
        "mine.jsonl", f'{{"question": {LIST}, "answer": "2"}}\n',
        'line 1: question is [{"role": "user"', "it must be text that is not empty",
    ),
    "a word for a number": (
        "mine.jsonl", "".join(ROWS) + '{"question": "The capital of France?", "answer": "Paris"}\n',
        "mine.jsonl, line 41: 'Paris' is not a number; ask for it in a box", "use boxed_math",
    ),
    "a sentence for an answer": (
        "mine.jsonl",
        '{"question": "Why?", '
        '"answer": "The sum of two odd numbers can never be an odd number again"}',
        "line 1: 'The sum of two odd numbers can never be an odd number again' cannot be compared "
        "with an answer",
    ),
    **{
        f"{gold!r} for an answer": (
            "mine.jsonl", "".join(ROWS) + f'{{"question": "1 + 1 =", "answer": "{gold}"}}\n',
            f"mine.jsonl, line 41: the answer is {gold!r}, which stands for none",
        )
        for gold in ("N/A", "-", "TODO", "null")
    },
    "too few rows to hold one out": (
        "mine.jsonl", ROWS[0], "has 1 rows, and none of them is held out",
    ),
    "a reference without the answer": ("mine.jsonl", "".join(ROWS), "reference is '\\\\boxed{}'"),
    "a reference that nobody reads": ("mine.jsonl", "".join(ROWS), "reference is 'It is"),
    "a reward for tags on boxes": (
        "mine.jsonl", "".join(ROWS),
        "reward 'gsm8k_correctness' scores 0.0 instead of 2.0 for the reference answer",
    ),
}
# fmt: on

SIGNATURE = "def mine(completions, **kwargs):\n    "
# The code of a reward, and settings that go with it.
# fmt: off
REWARDS = {
    **{
        f"a reward that returns {name}": (
            SIGNATURE + f"return {code}",
            "reward 'mine' fails",
            words,
        )
        for name, code, words in (
            ("NaN", "[float('nan')] * len(completions)", "nan, which is not finite"),
            ("infinity", "[float('inf')] * len(completions)", "inf, which is not finite"),
            (
                "more than float32 holds",
                "[1e39] * len(completions)",
                "1e+39, which is not finite in float32",
            ),
            ("text", "['1.0'] * len(completions)", "'1.0', which is str, not a number"),
            ("one score too few", "[0.0] * (len(completions) - 1)", "rewards for"),
            ("nothing", "None", "TypeError"),
        )
    },
    "a reward that scores no row": (
        SIGNATURE + "return [None] * len(completions)", "'mine' scores none of the rows",
    ),
    "a constant reward": (
        SIGNATURE + "return [0.5] * len(completions)",
        "reward 'mine' gives 0.5 to each of the", "completion[0][\"content\"]",
    ),
    "a reward that counts messages": (
        SIGNATURE + "return [float(len(completion)) for completion in completions]",
        "reward 'mine' gives 1 to each of the", "chat messages",
    ),
    "a reward that raises": (
        SIGNATURE + "raise KeyError('gold')", "reward 'mine' fails", "KeyError: 'gold'",
    ),
    "a reward that calls sys.exit": (
        SIGNATURE + "raise SystemExit(3)", "reward 'mine' fails", "SystemExit: 3",
    ),
    "a file that calls sys.exit": ("import sys\nsys.exit()", "fails to import: SystemExit"),
    "a file with a syntax error": (
        "def mine(completions, **kwargs:\n", "fails to import: SyntaxError",
    ),
    "a file that imports what is not there": (
        "import nowhere", "fails to import: ModuleNotFoundError",
    ),
    "a file without the function": (
        "def other(completions, **kwargs): ...", "has no function or class 'mine'",
    ),
    "a reward that is not callable": ("mine = 5", "has no function or class 'mine'"),
    "a class whose instances are not callable": ("class mine: ...", "which cannot be called"),
    "a reward that returns no reward": (
        "def mine(limit=5):\n    return limit", "makes 5, which cannot be called",
    ),
    "a reward without **kwargs": ("def mine(completions):\n    return [0.0]", "TRL needs"),
    "an unknown kind": (
        SIGNATURE + "return []\n\n\nmine.kind = 'verifyer'",
        "has kind 'verifyer'; allowed: verifier",
    ),
}
# fmt: on
