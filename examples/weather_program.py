"""Tools in an SGLang program: python examples/weather_program.py

Starts a server of the default model, or asks the one at --url. Shows what each model call took.
"""

import argparse
from collections.abc import Sequence
from typing import Any, Literal

import sglang as sgl

from sglang_toolspec import gen, tool_calls, tool_result
from sglang_toolspec.errors import UserError
from sglang_toolspec.server_process import serving

FORECASTS = {"quito": (14, "cloudy"), "oslo": (-2, "snow"), "lima": (22, "sunny")}
QUESTIONS = (
    "What is the weather in Quito, in celsius?",
    "Will I need an umbrella in Oslo today?",
    "Is it warmer in Lima or in Quito, in fahrenheit?",
)


def get_weather(city: str, unit: Literal["celsius", "fahrenheit"] = "celsius") -> dict[str, Any]:
    """The weather in a city now.

    Args:
        city: The city's name.
        unit: The unit of the temperature.
    """
    if city.lower() not in FORECASTS:
        raise UserError(f"nothing is known about {city}; try one of {', '.join(FORECASTS)}")
    celsius, sky = FORECASTS[city.lower()]
    degrees = celsius if unit == "celsius" else celsius * 9 / 5 + 32
    return {"city": city, "degrees": degrees, "unit": unit, "sky": sky}


TOOLS = [get_weather]


@sgl.function
def assistant(s: Any, question: str) -> None:
    s += sgl.system("You answer with the help of tools. Be brief.")
    s += sgl.user(question)
    s += sgl.assistant(gen("call", max_tokens=120, tools=TOOLS, tool_choice="required"))
    for call in tool_calls(s, "call"):
        try:
            s += tool_result(call.run())
        except UserError as error:  # arguments that do not fit, or a city that is not known
            s += tool_result({"error": str(error)})
    s += sgl.assistant(gen("answer", max_tokens=60, tools=TOOLS, tool_choice="none"))


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--url", help="a running server; without it one is started")
    args = parser.parse_args(argv)
    with serving(args.url) as url:
        sgl.set_default_backend(sgl.RuntimeEndpoint(url))
        rows = [{"question": question} for question in QUESTIONS]
        for row, state in zip(rows, assistant.run_batch(rows, temperature=0), strict=True):
            show(row["question"], state)


def show(question: str, state: Any) -> None:
    print(f"\n{question}")
    for call in tool_calls(state, "call"):
        print(f"  {call}")
    print(f"  {state['answer'].strip()}")
    for name in ("call", "answer"):
        meta = state.get_meta_info(name)
        accepted = meta.get("toolspec", {}).get("accepted", {})
        sources = ", ".join(f"{source} {count}" for source, count in accepted.items()) or "no drafts"
        steps = meta.get("spec_verify_ct", meta["completion_tokens"])
        print(f"  [{name}: {meta['completion_tokens']} tokens in {steps} steps; {sources}]")


if __name__ == "__main__":
    main()
