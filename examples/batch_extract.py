"""Rows through run_batch: python examples/batch_extract.py

Reads an order out of each line of text, as an instance of a pydantic model. The server decodes --parallel
rows at once, and drafts each from the schema and from the rows before. Without --lines a sample is read.
Starts a server of the default model, or asks the one at --url.
"""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import sglang as sgl
from pydantic import BaseModel, Field
from rich.console import Console
from rich.table import Table

from sglang_toolspec import gen, tool_calls
from sglang_toolspec.errors import UserError
from sglang_toolspec.server_process import serving

SAMPLE = (
    "Ada Lovelace wants 3 boxes of green tea, please send them by express.",
    "Linus Pauling: 12 lamps, standard delivery is fine.",
    "Could Grace Hopper get 2 mugs? She will pick them up herself.",
    "Please send Alan Turing one chess board with standard delivery.",
    "Emmy Noether ordered 5 notebooks, express, it is urgent.",
    "Niels Bohr asks for 4 pencils and will pick them up.",
    "Marie Curie needs 7 glass bottles. Express!",
    "Standard delivery for Max Planck: 6 black candles.",
)


class Order(BaseModel):
    """Note an order."""

    customer: str = Field(description="First and last name")
    product: str
    quantity: int
    delivery: Literal["standard", "express", "pickup"]


@sgl.function
def extract(s: Any, text: str) -> None:
    s += sgl.system("Note the order that the text tells of, with the tool.")
    s += sgl.user(text)
    s += sgl.assistant(gen("order", max_tokens=100, tools=[Order], tool_choice="required"))


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--url", help="a running server; without it one is started")
    parser.add_argument("--lines", type=Path, help="a text file with a row in each line")
    parser.add_argument("--parallel", type=int, default=4, help="rows that are decoded at once")
    args = parser.parse_args(argv)
    texts = args.lines.read_text().splitlines() if args.lines else SAMPLE
    rows = [{"text": text} for text in texts if text.strip()]
    with serving(args.url) as url:
        began = time.perf_counter()
        states = extract.run_batch(
            rows,
            backend=sgl.RuntimeEndpoint(url),
            temperature=0,
            num_threads=args.parallel,
            progress_bar=True,
        )
        show(rows, states, time.perf_counter() - began)


def show(rows: Sequence[dict[str, str]], states: Sequence[Any], seconds: float) -> None:
    console = Console(highlight=False, markup=False)
    table = Table("text", *Order.model_fields)
    tokens = steps = 0
    for row, state in zip(rows, states, strict=True):
        orders, fault = read(state)
        for order in orders:
            table.add_row(row["text"], *(str(value) for value in order.model_dump().values()))
        if fault:
            table.add_row(row["text"], fault, style="red")
        meta = state.get_meta_info("order")
        tokens += meta["completion_tokens"]
        steps += meta.get("spec_verify_ct") or meta["completion_tokens"]
    console.print(table)
    console.print(
        f"{len(rows)} rows in {seconds:.1f} s: {tokens} tokens in {steps} steps, "
        f"accept length {tokens / steps:.2f}"
    )


def read(state: Any) -> tuple[list[Order], str]:
    """The orders of a reply, and what is wrong with it."""
    try:
        orders = [call.run() for call in tool_calls(state, "order")]
    except UserError as error:
        return [], str(error)
    return orders, "" if orders else "the reply holds no order"


if __name__ == "__main__":
    main()
