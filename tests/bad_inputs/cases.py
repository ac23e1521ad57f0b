"""Inputs that no run may start with, and words of the refusal: ours, or those of the library that
refuses.

A case is (what is changed of a sound run, its value, *words). `settings` are of the YAML, `yaml` is
its whole text, `words` stand on the command line, `env` is the environment; `train` and `test` are
the files of rows, `file` is the one file of recipes/math, `reward` is the code of data/mine.py, and
`model` changes the folder of the model (see change_model in test_bad_inputs.py).
"""

INF = float("inf")
# fmt: off
# Settings of another type, or out of range: what pydantic says -> setting -> values.
VALUES = {
    "valid integer": {"max_steps": ["many"], "seed": [True]},
    "valid number": {"reward_weights": [["a"]], "temperature": [True]},  # its default equals true
    "valid boolean": {"bf16": [2]},
    "valid list": {"reward_funcs": [{"xml_format": 1.0}]},
    "valid string": {"reward_funcs": [[1, 2]]},
    "valid dictionary": {"generation_kwargs": ["fast"]},
    "finite number": {"reward_weights": [[1.0, INF]]},
    "greater than 0": {"temperature": [0.0]},
    "greater than 1": {"delta": [0.2]},
    "less than 1": {"epsilon": [1.0]},
    "less than or equal to 10": {"learning_rate": [1e30]},
    "at least 1, or -1 for num_train_epochs": {"max_steps": [0]},
    "'grpo', 'dr_grpo', 'dapo'": {"loss_type": ["gpro"]},
    "'group', 'batch' or 'none'": {"scale_rewards": ["all"]},
    "'no', 'steps' or 'epoch'": {"eval_strategy": [True, "step"]},
    "unknown preset 'gpro'": {"preset": ["gpro"]},
    "give a question and its completion": {"example": [["a", "b", "c"]]},
    "the rows do not have it, or": {"reward_columns": [{"solution": "gold"}, {"answer": "task"}]},
}
CALCULATOR = "recipes.calculator.calculator"
CURVE = {"eval_strategy": "steps", "num_validation_rows": 1, "eval_steps": 2, "save_steps": 2}
SETTINGS = [
    # Keys and paths
    ({"num_generation": 4}, "unknown argument 'num_generation'", "did you mean 'num_generations'?"),
    ({5: 4}, "unknown argument 5"),
    ({"max_prompt_length": 5}, "TRL has it no more: it trains on prompts of any length"),
    ({"output_dir": "$NO_SUCH_FOLDER/run"}, "NO_SUCH_FOLDER is not set"),
    ({"output_dir": ""}, "output_dir: '' is the working folder, or holds it"),
    ({"output_dir": "../", "fresh": True}, "output_dir: '../' is the working folder, or holds it"),
    ({"output_dir": "run.yaml/run"}, "run.yaml is not a folder"),
    ({"output_dir": "data", "fresh": True}, "--fresh would move", "data (dataset_path) with all"),
    ({"push_to_hub": True, "hub_model_id": "me/my model"}, "hub_model_id, or ", "'me/my model'"),
    ({"push_to_hub": True, "output_dir": "my runs"}, "hub_model_id, or ", "'my runs'"),
    ({"run_name": "of hf_abcdefghijklmnop"}, "run_name holds a token", "take the secret out"),
    ({"dataset_config": "mian"}, "dataset_config is 'mian', and there is no folder data/mian"),
    ({"question_column": "answer"}, "question_column and answer_column are both 'answer'"),
    ({"chat_template_path": "a.jinja"}, "No such file or directory", "a.jinja"),
    ({"env": {"HF_HOME": None}}, "env: HF_HOME is None; give a text or a number."),
    ({"env": {"A=B": 1}}, "env: 'A=B' is no name of a variable"),
    ({"env": {"HF_DATASETS_CACHE": "/big"}}, "env: HF_DATASETS_CACHE is read before this file"),
    # Rewards
    ({"reward_funcs": ["data/mine.py"]}, "unknown reward 'data/mine.py'", "TRL's: trl.rewards."),
    ({"reward_funcs": ["gsm8k_correctness", "./scorer"]}, "model './scorer'", "not a folder"),
    ({"reward_weights": [1.0]}, "reward_weights has 1 values for 2 rewards"),
    ({"reward_weights": [1.0, -1.0]}, "reward_weights gives gsm8k_correctness (verifier) -1"),
    ({"reward_funcs": ["xml_format"], "reward_weights": [-1.0]}, "train away from what it pays"),
    ({"reward_kwargs": {"gsm8k_correctness": {"lenient": "no"}}},
     "lenient is 'no'; it must be true or false"),
    ({"remove_unused_columns": True}, "remove_unused_columns is true", "leave it out"),
    ({"reward_gates": {"xml_format": "gsm8k_correctness"},
      "multi_objective_aggregation": "normalize_then_sum"}, "reward_gates do not go with"),
    # What a library says of its own settings
    ({"bf16": True, "fp16": True}, "At most one of fp16 and bf16 can be True"),
    ({"report_to": "wandb"}, "report_to: UsageError: ", "wandb login"),
    ({"use_vllm": True}, "use_vllm: ModuleNotFoundError: No module named 'vllm'"),
    ({"load_in_4bit": True, "dtype": "fastest"}, "what the settings need: ImportError", "bitsandb"),
    # What transformers would do in silence
    ({"generation_kwargs": {"topp": 1}}, "generation_kwargs: ", "has no topp"),
    ({"generation_kwargs": {"temperature": "hot"}}, "strictly positive float"),
    ({"generation_kwargs": {"typical_p": 7}}, "typical_p is 7; it must be from 0 to 1"),
    ({"generation_kwargs": {"max_time": -1}}, "max_time cannot be set here"),
    ({"generation_kwargs": {"return_dict_in_generate": True}}, "GenerateDecoderOnlyOutput: no tok"),
    ({"generation_kwargs": {"eos_token_id": [2]}}, "eos_token_id cannot be set here"),
    ({"model_init_kwargs": {"dtype": "float16", "device_map": "auto"}}, "model_init_kwargs is {"),
    ({"chat_template_kwargs": {"add_generation_prompt": False}}, "TRL sets add_generation_prompt"),
    ({"chat_template_kwargs": {"tools": []}}, "TRL sets add_generation_prompt, tools"),
    ({"max_completion_length": None}, "max_completion_length is null", "would write 20 tokens"),
    ({"tools": [CALCULATOR], "max_tool_calling_iterations": -1}, "iterations is -1: no tool would"),
    ({"dtype": "fastest", "bf16": None, "use_cpu": True}, "dtype is fastest, but with bf16"),
    ({**CURVE, "eval_strategy": "epoch", "early_stopping_patience": 1}, "save_strategy: epoch"),
    ({"eval_on_start": True}, "a run evaluates before its first step by itself"),
    ({"generation_kwargs": {"max_new_tokens": None}}, "max_new_tokens cannot be set here"),
    ({"drop_finished": True}, "drop_finished needs share_prompts: true"),
    ({"dataloader_persistent_workers": True}, "dataloader_num_workers is 0: give at least 1"),
    # LoRA
    ({"use_peft": True, "lora_modules_to_save": ["lm_haed"]}, "the name lm_haed"),
    ({"use_peft": True, "lora_target_modules": ["q_prj"]}, "q_prj", "'.*q_proj' say"),
    ({"use_peft": True, "lora_target_modules": ["q_proj", "v_prj"]}, "the name v_prj", "v_proj"),
    # A reference that moves, and checkpoints from which no run could go on
    ({"resume_from_checkpoint": "a/checkpoint-5"}, "resume_from_checkpoint is 'a/checkpoint-5'"),
    ({"ignore_data_skip": True}, "ignore_data_skip and save_only_model must be false"),
    ({"gradient_accumulation_steps": 3, "steps_per_generation": 2, "save_steps": 2},
     "gradient_accumulation_steps (3) and steps_per_generation x num_iterations (2 x 1) do not"),
    ({"save_steps": 0}, "save_steps is 0: set it to at least 1"),
    ({"save_steps": 3, "steps_per_generation": 2}, "save_steps=3", "set it to a multiple of 2."),
    # The curve
    ({**CURVE, "num_validation_rows": 0}, "num_validation_rows is 0: there would be nothing to"),
    ({**CURVE, "load_best_model_at_end": True, "metric_for_best_model": "validation/strict",
      "greater_is_better": False}, "greater_is_better is false"),
    ({**CURVE, "load_best_model_at_end": True}, "metric_for_best_model is None"),
    ({**CURVE, "load_best_model_at_end": True, "metric_for_best_model": "validation/strict",
      "save_steps": 4}, "load_best_model_at_end: with save_steps 4 and eval_steps 2"),
    ({**CURVE, "load_best_model_at_end": True, "metric_for_best_model": "validation/strict",
      "eval_steps": None, "logging_steps": 1}, "eval_steps None (None: as logging_steps, 1)"),
    ({**CURVE, "metric_for_best_model": "strict"}, "metric_for_best_model is 'strict'"),
    ({**CURVE, "metric_for_best_model": "validation/strict", "save_total_limit": 1},
     "save_total_limit is 1"),
    ({"early_stopping_patience": 2, "metric_for_best_model": "validation/strict"},
     "early_stopping_patience needs evaluations"),
    ({"save_strategy": "best", "metric_for_best_model": "validation/strict"},
     "save_strategy is best"),
    ({"use_vllm": True, "load_in_8bit": True}, "use_vllm takes no weights in 4 or 8 bits"),
    ({"sync_ref_model": True}, "sync_ref_model moves a reference model"),
    ({"sync_ref_model": True, "use_peft": False, "beta": 0.1, "max_steps": 9},
     "ref_model_sync_steps is 512, max_steps 9"),
    ({"scale_rewards": "none", "multi_objective_aggregation": "normalize_then_sum"},
     "scale_rewards has no effect"),
    # Tools
    ({"tools": [f"{CALCULATOR}:valu_of"]}, "Did you mean 'value_of'?"),
    ({"environment_factory": f"{CALCULATOR}:Calculater"}, "Did you mean 'Calculator'?"),
    ({"environment_factory": f"{CALCULATOR}:Calculator"}, "writes no tool calls"),
]
# Engine and settings with which tools would wait for ever on two processes.
TOOLS_ON_TWO = [
    ("ZeRO-3", {}),
    ("FSDP2", {}),
    ("DDP", {"use_vllm": True, "vllm_tensor_parallel_size": 2}),
]
YAML = [
    ("reward_kwargs:\n  a: {b: 1, b: 2}\n", "b is given twice (line 2"),
    ("- a\n- b\n", "must hold a YAML mapping"),
    ("a: [", "cannot read run.yaml"),
    ("a:\n\tb: 1\n", "cannot read run.yaml", "(that line: '\\tb: 1')"),
    ("a: !!python/object/apply:os.getcwd []\n", "cannot read run.yaml"),
    ("reward_kwargs: &a {b: *a}\n", "cannot read run.yaml: it has the alias *a; write"),
    ("a: " + "[" * 2000, "cannot read run.yaml: it is nested deeper than 50 levels"),
    ("max_steps: 0100\n", "cannot read run.yaml: 0100 (line 1) is not a decimal", "reads it as 64"),
    ("max_steps: 1:30\n", "1:30 (line 1) is not a decimal number: YAML reads it as 90"),
    ("a: " + "x" * 2_000_000, "cannot read run.yaml: it has 2,000,003 bytes"),
]
WORDS = [
    (["--config", "other.yaml"], "--config is given twice", "other.yaml"),
    (["--reward-funcs", "a", "--reward_funcs", "b"], "--reward_funcs is given twice"),
    (["--max_steps"], "max_steps: expected one argument"),
    (["--max_step", "5"], "did you mean 'max_steps'?"),  # no abbreviation is guessed
    (["--zzz=1"], "unknown argument '--zzz=1' in the command line"),
    (["--reward_kwargs", "{'a': 1}"], "reward_kwargs is not a JSON mapping"),
    (["--num_train_rows", "9" * 5000], "num_train_rows is '999"),  # Python reads 4,300 digits
    (["--per_device_train_batch_size", "9" * 20], "less than or equal to 1000000"),
]
ENV = [
    ({"WORLD_SIZE": "two"}, "WORLD_SIZE is 'two' in the environment, and no number"),
    ({"LOCAL_WORLD_SIZE": "two"}, "LOCAL_WORLD_SIZE is 'two' in the environment, and no number"),
    ({"WANDB_NOTES": "sent Bearer abcdefgh"}, "WANDB_NOTES holds a token"),
    ({"WORLD_SIZE": "2"}, "WORLD_SIZE is 2 in the environment", "no launcher set RANK, LOC"),
    ({"ACCELERATE_USE_DEEPSPEED": "true"}, "ACCELERATE_USE_DEEPSPEED is true in the environment"),
    ({"ACCELERATE_MIXED_PRECISION": "fp32"}, "mixed_precision is 'fp32'", "fp16"),
    ({"LOCAL_RANK": "3"}, "LOCAL_RANK is 3 in the environment", "no launcher set WORLD_SIZE"),
]
ROW = '{"question": "1 + 2 =", "answer": "so #### 3"}\n'
TRAIN = [
    (None, "data has no split 'train' (it has: test): set dataset_train_split"),
    ("", "data holds no rows; it needs one question and one answer a row"),
    (ROW + '{"question": "2 +', "train.jsonl, line 2:", "Unterminated string"),
    ("[1, 2]\n", "train.jsonl, item 1", "must be a JSON object with question, answer"),
    ('{"question": 1, "answer": 2}\n', "line 1: question is 1; it must be text"),
    ('{"question": "1+1", "answer": "#### "}\n', "answer has no final answer behind ####"),
    ("".join(f'{{"question": "q", "answer": "{word}"}}\n' for word in "abcdefghi"),
     "train.jsonl, line 5: 'e' is not a number", "... and 4 other problems"),
    ("".join(f'{{"question": "{q}", "answer": "#### {i}"}}\n' for i, q in enumerate("abac", 1)),
     "training rows: 1 give another answer to the question of an earlier row",
     "(the first: 'a': '1' and '3')"),
    ('{"question": "1 + 1?", "answer": "#### 2"}\n{"question": "1  + 1 ?", "answer": "#### 3"}\n'
     '{"question": "1 + 1 ? ", "answer": "#### 2.0"}\n',  # with other white space
     "training rows: 1 give another answer to the question of an earlier row"),
    ('{"question": "1 + \\ud800 =", "answer": "2"}', "question holds half of a character"),
    (ROW, "the training rows are fewer than the 2 prompts"),
]
TEST = [
    (None, "data has 4 rows, and none of them is held out"),
    ('{"question": "90 + 2 =", "answer": "#### 92"}\n{"question": "90 + 2 =", "answer": "92"}\n',
     "evaluation rows: 1 of 2 stand there twice (the first: '90 + 2 =')"),
    ('{"question": " 1+  1= ", "answer": "#### 2"}\n',  # a training question, written otherwise
     "1 of 1 evaluation rows are also training rows"),
]
ROWS = [f'{{"question": "{n} + 1 =", "answer": {n + 1}}}\n' for n in range(40)]
ALL = "".join(ROWS)
# The file of recipes/math: (its name, its content, more settings), words.
FILES = [
    (("a.jsonl", '{"problem": "1 + 1 =", "solution": "2"}\n' * 20, {}),
     "line 1 (and 19 more): question, answer missing",
     "name the key that holds it, or the path to it", "by --question_column and"),
    (("a.jsonl", '{"problem": "1 + 1 =", "answer": "2"}\n',
      {"question_column": "problem", "answer_column": "gold"}), "line 1: gold missing"),
    (("a.csv", "question,answer\n1 + 1 =,2\n2 + 2 =,\n", {}), 'a.csv, row 2: answer is ""'),
    (("a.json", '{"train": [\n{"question": "1 + 1 =", "answer": "2"}\n]}', {}),
     "line 1: question, answer missing (its keys: train; wanted: question, answer)"),
    (("a.csv", "question, answer ,answer\n1 + 1 =,2,3\n", {}),
     "the first line names answer twice: keep one of each"),
    (("a.jsonl", '{"messages": [{"role": ["user"], "content": "1 + 1 ="}]}\n' * 9, {}),
     "a.jsonl, line 1 (and 8 more): it cannot be read (TypeError: "),
    (("a.json", '[{"messages": [{"role": "user", "content": "1 + 1 ="}, '
      '{"role": "user", "content": "2 + 2 ="}]}]', {}), "hold 2 of a user and 0 of an assistant"),
    (("a.tsv", "question\tanswer\n1\t2\t3\n", {}), "line 2 has more than the 2 values of the fi"),
    (("a.csv", b"question,answer\nZo\xeb,3\n", {}), "is not UTF-8: save it as CSV UTF-8"),
    (("a.csv", "question;answer\nWhat does it cost?;1.100\n", {}), "a.csv, row 1: line 2",
     "three digits behind a point, which may mark thousands"),
    (("a.csv", "question;answer\nWhat does it cost?;12,50 €\n", {}), "row 1: line 2 has a number"),
    (("a.jsonl", ALL, {"dataset_test_split": "train"}), "_test_split are both 'train': name two"),
    (("a.csv", "question,answer\n1 + 1 =,2\n\"2 + 2 =,4\n3 + 3 =,6\n", {}),
     "a.csv, row 2: unexpected end of data", "never closed?"),
    (("a.csv", "question,answer\n" + "What is it?,4\n" * 9, {}), "ask the same question"),
    (("a.jsonl", ALL, {"dataset_path": "https://huggingface.co/datasets/openai/gsm8k"}),
     "is an address: give a data set of the Hub by dataset_name"),
    (("a.txt", "1 + 1 = 2\n", {}), "a.txt is not a .jsonl, .json, .csv, .tsv, .parquet file"),
    (("a.jsonl", ALL, {"dataset_path": "data/mien.jsonl"}), "there is no file or folder data/mien"),
    (("a.jsonl", ALL, {"dataset_path": None}), "dataset_path (a file or a folder) or dataset_name"),
    (("a.jsonl", ALL + '{"question": "The capital of France?", "answer": "Paris"}\n',
      {"reference": "<reasoning>\n</reasoning>\n<answer>\n{answer}\n</answer>"}),
     "line 41: 'Paris' is not a number; ask for it in a box (reference: '\\boxed{{answer}}') and"),
    (("a.jsonl", '{"question": "Why?", "answer": '
      '"The sum of two odd numbers can never be an odd number again"}', {}),
     "cannot be compared with an answer"),
    (("a.csv", "question,answer\n1 + 1 =,—\n", {}), "row 1: the answer is '—', which stands for"),
    (("a.csv", "question,answer\nShow it.,notfound\n", {}), "'notfound', which stands for none"),
    (("a.jsonl", '{"messages": []}', {"question_column": "a", "answer_column": "b"}),
     "a, b missing"),
    (("a.jsonl", ALL + '{"question": "1 + 1 =", "answer": "2<|im_end|>3"}\n', {}),
     "line 41: '2<|im_end|>3' is not right in its own reference completion"),
    (("a.jsonl", ALL, {"reference": "\\boxed{}"}), "reference is '\\\\boxed{}'"),
    (("a.jsonl", ALL, {"reference": "\\boxed{answer}"}), "in a box or in tags: \\boxed{{answer}}"),
    (("a.jsonl", ALL, {"reward_funcs": ["gsm8k_correctness"]}),
     "reward 'gsm8k_correctness': scores 0.0 instead of 2.0 for the reference answer"),
]
MINE = "def mine(completions, **kwargs):\n    "
REWARDS = [
    (MINE + "return [None] * len(completions)", "'mine' scores no row"),
    (MINE + "return [0.5] * len(completions)", "reward 'mine' gives 0.5 to "),
    ("def mine(completions, answer, **kwargs):\n"  # it takes a list of messages for a text
     "    return [float(gold in each) for each, gold in zip(completions, answer)]",
     "reward 'mine' gives 0 to ", "A completion of chat messages is a list"),
    (MINE + "return [1 / len(each[0]['content']) for each in completions]",
     "reward 'mine': fails on an empty completion, which a model may write: ZeroDivisionError"),
    (MINE + "try:\n        while True: pass\n    except Exception: pass",
     "reward 'mine': fails on the reference answers: TimeoutError: no answer after 1 s"),
    ("raise SystemExit", "cannot import", "SystemExit"),
    ("class mine:\n    def __init__(self): raise GeneratorExit", "mine': GeneratorExit"),
    (MINE + "return []\n\n\ndef ready(*args):\n    raise SystemExit\n\n\n"
     "mine.prepare = ready", "reward 'mine': ForeignExit: SystemExit"),
    (MINE + "return []\n\n\nmine.max_error_rate = '5%'", "max_error_rate '5%'; allowed: a share"),
    ("mine = 5", "is 5, which cannot be called"),
    ("def mine(limit=5):\n    return limit", "makes 5, which cannot be called"),
    ("def mine(completions):\n    return [0.0]", "TRL needs"),
]
FIND = 'def find(text{}) -> str:\n    """Find it.\n\n    Args:\n        text: what\n    """\n\n\n'
RESET = "class Game:\n    def reset(self, **row):\n        "
# The code of data/mine.py, with the tool `find` or the environment `Game`.
TOOLS = [
    (FIND.format(""), "tool 'find': Argument text is missing a type hint", "A tool needs type"),
    ("def find(text: str) -> str:\n    return text\n", "tool 'find': ", "it has no docstring!"),
    (FIND.format(": str") + RESET + "pass\n\n    find = find\n",
     "tool 'find': 2 have this name: rename all but one"),
    ("class Game:\n    pass\n", "reset(**row) fails on the first row: AttributeError: 'Game' obj"),
    ("class Game:\n    def reset(self, answer): pass\n",
     "reset(**row) fails on the first row: TypeError", "It gets all columns: prompt, "),
    (RESET + "raise KeyError('level')\n", "KeyError: 'level' (mine.py, line 3)"),
    (RESET + "return {}\n", "TypeError: it returns dict; allowed: text, messages, None"),
    (RESET + "raise SystemExit\n", "reset(**row) fails on the first row: SystemExit"),
]
NO_SYSTEM = (
    "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
)
MODELS = [
    # Its files
    ("no config.json", "model_type"),
    ({"config": {"model_type": "lama"}}, "does not recognize this architecture"),
    ({"config": {"architectures": None}}, "names no architectures"),
    ("no model.safetensors", "no file named model.safetensors, or pytorch_model.bin"),
    # Weights that would start at random
    ("without a layer", "its weights lack model.layers.1.", "9 would start at random"),
    ("names of a wrapper", "its weights lack lm_head.weight", "module.", "would start at random"),
    ({"config": {"intermediate_size": 48}}, "mlp.", "has the shape"),
    # What it would read
    ("no chat_template.jinja", "chat_template is not set"),
    ({"chat_template.jinja": "{% for m in messages %}<|{{ m['role'] }}|>{% endfor %}"},
     "its chat template leaves out the question of row 0", "'1 + 1 ='"),
    ({"chat_template.jinja": NO_SYSTEM}, "no system role", 'leave that out by system_prompt: ""'),
    ({"tokenizer_config": {"eos_token": None}}, "its tokenizer has no eos_token"),
    ({"tokenizer_config": {"eos_token": "<end>"}}, "writes the token 261, '<end>'", "has 261"),
    ({"config": {"max_position_embeddings": 300}}, "its context has 300 tokens",
     "max_completion_length is 256: set it to at most"),
    ({"config": {"max_position_embeddings": 9}}, " + 1 =", "is 256: shorten the prompt, or take"),
]
# The name of a model that is not on this disk, while the Hub is offline.
NAMES = [
    ("data/modle", "it is not a folder: correct the path"),
    ("org/model", "the Hub is offline (HF_HUB_OFFLINE=1)"),
    (None, "model_name_or_path is missing"),
]
