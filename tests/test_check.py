"""``sglang-toolspec check``: what it reports, and how it ends."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from sglang_toolspec import check
from sglang_toolspec.check import Finding, report
from sglang_toolspec.cli import app
from sglang_toolspec.runtime.engine import hooks


def test_everything_is_reported_and_each_failure_has_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = replace(hooks.HOOKS[0], target="sglang.srt.no_such_module.f", needed=lambda: True)
    monkeypatch.setattr(hooks, "HOOKS", (gone, *hooks.HOOKS[1:]))

    found = report()

    names = [finding["name"] for finding in found["findings"]]
    assert names[:6] == ["toolspec", "sglang", "device", "kernels", "entry point", "algorithm"]
    assert len(names) == 6 + len(hooks.HOOKS)
    assert found["ok"] is False
    failed = [finding for finding in found["findings"] if not finding["ok"]]
    assert any("sglang.srt.no_such_module.f is gone" in finding["detail"] for finding in failed)
    assert all(finding["remedy"] for finding in failed)


def test_another_sglang_is_named_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "version", lambda name: "0.6.0")
    found = report()
    last = found["findings"][-1]
    assert (last["name"], last["ok"], last["remedy"]) == ("sglang", False, "pip install sglang==0.5.23")
    assert "needs SGLang 0.5.23 and found 0.6.0" in last["detail"]


@pytest.mark.parametrize(("ok", "code"), [(True, 0), (False, 1)])
@pytest.mark.parametrize("options", [[], ["--json"]])
def test_the_exit_code_says_whether_all_is_well(
    monkeypatch: pytest.MonkeyPatch, ok: bool, code: int, options: list[str]
) -> None:
    found = [Finding("sglang", True, "0.5.23"), Finding("kernels", ok, "none", "" if ok else "reinstall")]
    monkeypatch.setattr(check, "findings", lambda: found)
    done = CliRunner().invoke(app, ["check", *options])
    assert done.exit_code == code
    if options:
        told = json.loads(done.stdout)
        assert told["ok"] is ok
        assert told["findings"][1]["remedy"] == ("" if ok else "reinstall")
    else:
        assert ("→ reinstall" in done.stdout) is not ok
