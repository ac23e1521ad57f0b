"""What the YAML files beside this one cannot say: where the rows come from, and the recipe's own prompt."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from datasets import Dataset, DatasetDict, load_dataset
from lm_eval.api.task import ConfigurableTask

from recipes.common.before.recipe import import_recipe

recipe = import_recipe(Path(__file__).parents[1] / "train.py")


def load_rows(data: str | None = None, **metadata: Any) -> dict[str, Dataset] | DatasetDict:
    """The test split of openai/gsm8k from the Hub, or from test.jsonl in the folder `data`.

    lm-eval calls this with the task's metadata, to which `--metadata '{"data": "FOLDER"}'` adds.

    Raises:
        ValueError: no such file, or the Hub cannot be reached.
    """
    try:
        if data is None:
            return load_dataset("openai/gsm8k", "main")
        return {"test": load_dataset("json", data_files=str(Path(data, "test.jsonl")), split="train")}
    except OSError as error:
        source = "openai/gsm8k on the Hub" if data is None else f"test.jsonl in the folder {data!r}"
        raise ValueError(f"{source} cannot be loaded: {error} Give a folder with test.jsonl: --data FOLDER") from error


class RecipePrompt(ConfigurableTask):
    """A task whose request is the recipe's prompt through the model's chat template: what training shows, exactly.

    The worked example is `example` of the metadata (question, completion), none by default.
    """

    def __init__(self, config: dict[str, Any]):
        super().__init__(config={key: value for key, value in config.items() if key != "class"})

    def fewshot_context(
        self,
        doc: dict[str, str],
        num_fewshot: int,
        system_instruction: str | None = None,
        apply_chat_template: bool = False,
        fewshot_as_multiturn: bool = True,
        chat_template: Callable[..., str] | None = None,
        gen_prefix: str | None = None,
    ) -> str:
        """The text of the request.

        Raises:
            ValueError: asked for without chat template, or with few-shot examples or a system prompt of one's own;
                or the template has no system role (lm-eval would leave the prompt out with a warning).
        """
        if num_fewshot or system_instruction or gen_prefix or not (apply_chat_template and chat_template):
            raise ValueError(
                "gsm8k_recipe asks as training does: it needs --apply_chat_template, and takes neither --num_fewshot "
                "nor --system_instruction; the worked example comes from the metadata."
            )
        messages = recipe.to_row(doc, (self.config.metadata or {}).get("example") or [])["prompt"]
        text = chat_template(messages)
        if recipe.SYSTEM_PROMPT not in text:
            raise ValueError("this model's chat template leaves the system prompt out, so training cannot show it.")
        return text
