"""What the YAML files next to this one cannot express: where rows come from, and the prompt."""

from pathlib import Path
from typing import Any

from datasets import Dataset, DatasetDict, load_dataset
from lm_eval.api.task import ConfigurableTask

from recipes.common.data.recipe import import_recipe

recipe = import_recipe(Path(__file__).parents[1] / "train.py")


def load_rows(data: str | None = None, **metadata: Any) -> dict[str, Dataset] | DatasetDict:
    """The test split of openai/gsm8k from the Hub, or from test.jsonl in the folder `data`."""
    if data is None:
        return load_dataset("openai/gsm8k", "main")
    file = str(Path(data, "test.jsonl"))
    return {"test": load_dataset("json", data_files=file, split="train")}


class RecipePrompt(ConfigurableTask):
    """A task whose request is the recipe's prompt through the chat template, as training shows it.

    The worked example is `example` of the metadata (question, completion), none by default;
    `system_prompt` of the metadata is the run's, where it is not the recipe's own.
    """

    def __init__(self, config: dict[str, Any]):
        super().__init__(config={key: value for key, value in config.items() if key != "class"})

    def fewshot_context(
        self,
        doc: dict[str, str],
        num_fewshot: int,
        system_instruction=None,
        apply_chat_template=False,
        fewshot_as_multiturn=True,
        chat_template=None,
        gen_prefix=None,
    ) -> str:
        """The text of the request; `ValueError` for options that would change it.

        Also for a chat template without a system role: lm-eval would warn and leave the prompt out.
        """
        templated = apply_chat_template and chat_template
        if num_fewshot or system_instruction or gen_prefix or not templated:
            raise ValueError(
                "gsm8k_recipe uses the prompt of training: it needs --apply_chat_template, and "
                "takes neither --num_fewshot nor --system_instruction; the worked example is of "
                "the metadata."
            )
        settings = self.config.metadata or {}
        example, system_prompt = settings.get("example") or [], settings.get("system_prompt")
        prompt = recipe.to_row(doc, example, system_prompt)["prompt"]
        text = chat_template(prompt)
        if prompt[0]["content"] not in text:
            raise ValueError(
                "this model's chat template leaves the system prompt out: training cannot show it."
            )
        return text
