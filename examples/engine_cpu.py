"""TOOLSPEC in an in-process SGLang engine, on a CPU: python examples/engine_cpu.py"""

import json
import os

os.environ["SGLANG_USE_CPU_ENGINE"] = "1"
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
import sglang_toolspec  # noqa: F401, I001 - before sglang: makes its CPU engine importable
import sglang as sgl

from sglang_toolspec.model import fetch
from sglang_toolspec.serve import cpu_dtype

TOOLS = [
    {
        "name": "get_weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "unit": {"enum": ["celsius", "fahrenheit"]}},
            "required": ["city", "unit"],
        },
    }
]


def main() -> None:
    engine = sgl.Engine(
        model_path=str(fetch()),
        speculative_algorithm="TOOLSPEC",
        device="cpu",
        attention_backend="torch_native",
        disable_cuda_graph=True,
        dtype=cpu_dtype(),
        max_total_tokens=8192,
        log_level="error",
    )
    messages = [{"role": "user", "content": "What is the weather in Quito, in celsius?"}]
    openai_tools = [{"type": "function", "function": tool} for tool in TOOLS]
    prompt = engine.tokenizer_manager.tokenizer.apply_chat_template(
        messages, tools=openai_tools, tokenize=False, add_generation_prompt=True
    )
    params = {"temperature": 0, "max_new_tokens": 80, "custom_params": {"toolspec": {"tools": TOOLS}}}
    reply = engine.generate(prompt, params)
    print(reply["text"])
    meta = reply["meta_info"]
    print(json.dumps({k: meta[k] for k in ("completion_tokens", "spec_verify_ct", "spec_accept_length")}))
    engine.shutdown()


if __name__ == "__main__":
    main()
