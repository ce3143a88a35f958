"""A multi-turn agent over a SQLite database: python examples/sqlite_agent.py

Asks one question after the other in one conversation; each is answered by a call of a query tool. The
table shows what each call took: its accept length grows while the server learns how tools are called here.
Starts a server of the default model, or asks the one at --url; --compare asks plain decoding as well.
"""

import argparse
import sqlite3
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import sglang as sgl
from rich.console import Console
from rich.table import Table

from sglang_toolspec import gen, tool_calls, tool_result
from sglang_toolspec.errors import UserError
from sglang_toolspec.server_process import serving

ORDERS = (("Ada", "tea", 3, "open"), ("Ada", "mug", 2, "shipped"), ("Linus", "tea", 5, "open"),
          ("Linus", "lamp", 1, "returned"), ("Grace", "mug", 4, "shipped"), ("Grace", "tea", 2, "open"),
          ("Ada", "lamp", 1, "open"), ("Grace", "lamp", 2, "shipped"))  # fmt: skip
QUESTIONS = (
    "How many open orders does Ada have?",
    "Which product was ordered most?",
    "How many shipped orders does Grace have?",
    "Which customer ordered most?",
    "How many returned orders does Linus have?",
    "How many open orders does Grace have?",
)
console = Console(highlight=False, markup=False)


class Shop:
    """A database and the tools that query it."""

    def __init__(self, file: Path):
        self._rows = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
        self._rows.execute("CREATE TABLE orders (customer TEXT, product TEXT, quantity INTEGER, status TEXT)")
        self._rows.executemany("INSERT INTO orders VALUES (?, ?, ?, ?)", ORDERS)
        self._rows.execute("PRAGMA query_only = ON")

    def count_orders(self, customer: str, status: Literal["open", "shipped", "returned"]) -> dict[str, Any]:
        """How many orders of a customer have a status."""
        query = "SELECT COUNT(*) FROM orders WHERE customer = ? AND status = ?"
        (count,) = self._rows.execute(query, (customer, status)).fetchone()
        return {"customer": customer, "status": status, "orders": count}

    def total_quantity(self, by: Literal["customer", "product", "status"]) -> dict[str, int]:
        """Ordered quantities, summed by customer, product or status, the largest first."""
        query = f"SELECT {by}, SUM(quantity) FROM orders GROUP BY {by} ORDER BY 2 DESC"
        return dict(self._rows.execute(query).fetchall())


@sgl.function
def agent(s: Any, shop: Shop) -> None:
    tools = [shop.count_orders, shop.total_quantity]
    s += sgl.system("You answer questions about the orders of a shop with the help of tools. Be brief.")
    for turn, question in enumerate(QUESTIONS):
        s += sgl.user(question)
        s += sgl.assistant(gen(f"call{turn}", max_tokens=80, tools=tools, tool_choice="required"))
        for call in tool_calls(s, f"call{turn}"):
            s += tool_result(outcome(call))
        s += sgl.assistant(gen(f"answer{turn}", max_tokens=40, tools=tools, tool_choice="none"))


def outcome(call: Any) -> Any:
    try:
        return call.run()
    except (UserError, sqlite3.Error) as error:  # the model is told what does not fit
        return {"error": str(error)}


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--url", help="a running server; without it one is started")
    parser.add_argument("--compare", action="store_true", help="with plain decoding too, for the speed-up")
    args = parser.parse_args(argv)
    plain = None
    with tempfile.TemporaryDirectory() as folder:
        shop = Shop(Path(folder) / "shop.db")
        if args.compare:
            with serving(flags=["--speculative-algorithm", "none"]) as url:
                plain = converse(url, shop)
        with serving(args.url) as url:
            show(converse(url, shop), plain)


def converse(url: str, shop: Shop) -> Any:
    state = agent.run(shop, backend=sgl.RuntimeEndpoint(url), temperature=0)
    state.sync()
    return state


def show(state: Any, plain: Any) -> None:
    headers = ["turn", "tokens", "steps", "accept length", "seconds", "accepted from"]
    table = Table(*headers, *(["speed-up"] if plain else []), title="Calls")
    for turn, question in enumerate(QUESTIONS):
        console.print(f"\n{question}", style="bold")
        for call in tool_calls(state, f"call{turn}"):
            console.print(f"  {call}", style="cyan", soft_wrap=True)
        console.print(f"  {state[f'answer{turn}'].strip()}")
        meta = state.get_meta_info(f"call{turn}")
        tokens, seconds = meta["completion_tokens"], meta["e2e_latency"]
        steps = meta.get("spec_verify_ct") or tokens
        accepted = meta.get("toolspec", {}).get("accepted", {})
        sources = ", ".join(f"{source} {count}" for source, count in accepted.items()) or "no drafts"
        row = [str(turn + 1), str(tokens), str(steps), f"{tokens / steps:.2f}", f"{seconds:.2f}", sources]
        if plain:
            row.append(f"{plain.get_meta_info(f'call{turn}')['e2e_latency'] / seconds:.1f}x")
        table.add_row(*row)
    console.print(table)


if __name__ == "__main__":
    main()
