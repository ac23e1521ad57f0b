"""Every reward that has a short name: name -> "module:callable". Add yours here, in one line."""

REGISTRY = {
    "xml_format": "rewards.format:XmlFormat",
    "gsm8k_correctness": "rewards.gsm8k:Gsm8kCorrectness",
    "number_count": "rewards.number_count:NumberCount",
    "reasoning_gym": "rewards.reasoning_gym_tasks:ReasoningGym",
}
