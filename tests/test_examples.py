"""The examples are short, say how to run them, and do without a server what they can."""

from __future__ import annotations

import runpy
import sqlite3
import sys
from pathlib import Path
from typing import Any

import pytest

from examples import batch_extract, sqlite_agent
from sglang_toolspec.errors import UserError
from sglang_toolspec.frontend.offer import make_offer
from sglang_toolspec.frontend.reading import Parsers
from sglang_toolspec.frontend.written import WrittenText

FOLDER = Path(__file__).resolve().parents[1] / "examples"


# Training a head takes two modules and is a tool rather than an example of use.
EXAMPLES = sorted(file for file in FOLDER.glob("*.py") if "eagle_head" not in file.name)


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.name)
def test_an_example_is_short_and_says_how_to_run_it(file: Path) -> None:
    text = file.read_text()

    assert len(text.splitlines()) < 120
    assert f"python examples/{file.name}" in text.split('"""')[1]


def test_an_mcp_agent_without_its_client_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)

    with pytest.raises(SystemExit, match=r"^this example needs .*; install it with: pip install mcp"):
        runpy.run_path(str(FOLDER / "mcp_agent.py"))


@pytest.fixture
def shop(tmp_path: Path) -> sqlite_agent.Shop:
    return sqlite_agent.Shop(tmp_path / "shop.db")


def test_the_agents_tools_query_its_database(shop: sqlite_agent.Shop) -> None:
    assert shop.count_orders("Ada", "open") == {"customer": "Ada", "status": "open", "orders": 2}
    assert list(shop.total_quantity("product").items()) == [("tea", 10), ("mug", 6), ("lamp", 4)]
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        shop._rows.execute("DELETE FROM orders")


class Call:
    def __init__(self, result: Any):
        self._result = result

    def run(self) -> Any:
        if isinstance(self._result, Exception):
            raise self._result
        return self._result


@pytest.mark.parametrize(
    ("result", "told"),
    [(7, 7), (UserError("x is missing"), {"error": "x is missing"}), (sqlite3.Error("no"), {"error": "no"})],
)
def test_the_agent_tells_the_model_what_does_not_fit(result: Any, told: Any) -> None:
    assert sqlite_agent.outcome(Call(result)) == told


class Told:
    """A conversation in which every reply took so many seconds."""

    def __init__(self, seconds: float):
        text = '<tool_call>\n{"name": "count_orders", "arguments": {"customer": "Ada"}}\n</tool_call>'
        offer = make_offer([{"name": "count_orders"}], "required")
        self._reply = WrittenText.of(text, offer, Parsers("qwen25"))
        self._meta = {"completion_tokens": 20, "spec_verify_ct": 4, "e2e_latency": seconds}

    def __getitem__(self, name: str) -> str:
        return self._reply

    def get_meta_info(self, name: str) -> dict[str, Any]:
        return self._meta


@pytest.mark.parametrize("compared", [True, False])
def test_the_agent_shows_what_each_turn_took_and_its_speed_up(
    compared: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_agent.console, "width", 120)

    sqlite_agent.show(Told(0.5), Told(1.5) if compared else None)

    told = capsys.readouterr().out
    assert told.count("5.00") == len(sqlite_agent.QUESTIONS)  # tokens by step
    assert told.count("3.0x") == (len(sqlite_agent.QUESTIONS) if compared else 0)


ORDER = '<tool_call>\n{{"name": "Order", "arguments": {}}}\n</tool_call>'
ADA = '{"customer": "Ada Lovelace", "product": "tea", "quantity": 3, "delivery": "express"}'


@pytest.mark.parametrize(
    ("text", "customers", "says"),
    [
        (ORDER.format(ADA), ["Ada Lovelace"], ""),
        (ORDER.format('{"customer": "Ada"}'), [], "do not fit"),
        ("Fine.", [], "no order"),
    ],
)
def test_an_extracted_row_is_an_order_or_says_what_is_wrong(
    text: str, customers: list[str], says: str
) -> None:
    offer = make_offer(batch_extract.Order, "required")

    orders, fault = batch_extract.read({"order": WrittenText.of(text, offer, Parsers("qwen25"))})

    assert [order.customer for order in orders] == customers
    assert says in fault
    assert bool(fault) == (not orders)
