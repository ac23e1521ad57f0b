"""Every reward that has a short name: name -> "module.callable". Add yours here, in one line."""

REGISTRY = {
    "xml_format": "rewards.format.XmlFormat",
    "think_answer_format": "rewards.format.ThinkAnswerFormat",
    "gsm8k_correctness": "rewards.gsm8k.Gsm8kCorrectness",
    "gsm8k_harness": "rewards.gsm8k.Gsm8kHarness",
    "boxed_math": "rewards.boxed_math.BoxedMath",
    "reasoning_gym": "rewards.reasoning_gym.ReasoningGym",
    "code_tests": "rewards.code_tests.CodeTests",
    "code_format": "rewards.format.CodeFormat",
    "number_count": "rewards.number_count.NumberCount",
    "prose": "rewards.small.Prose",
    "length": "rewards.small.Length",
    "soft_overlong": "rewards.small.SoftOverlong",
    "equation_steps": "rewards.process.EquationSteps",
    "random": "rewards.small.Random",
    "constant": "rewards.small.Constant",
    "majority": "rewards.small.Majority",
}
