"""SGLang programs with gen(tools=…): what they ask the server, and what they get."""

import asyncio
import json
import warnings
from types import SimpleNamespace

import pytest
import sglang as sgl

import sglang_toolspec
from sglang_toolspec import frontend
from sglang_toolspec.errors import UserError
from sglang_toolspec.frontend import gen, tool_calls, tool_result
from tests.frontend_server import TOKENS, FakeServer, fake_backend


def get_weather(city: str, days: int = 1) -> dict:
    """The weather of a city."""
    return {"city": city, "days": days}


def get_time() -> str:
    return "noon"


TOOLS = [get_weather, get_time]
ROME = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome", "days": 2}}\n</tool_call>'
TIME = '<tool_call>\n{"name": "get_time", "arguments": {}}\n</tool_call>'


def run(program, server, monkeypatch, *args, **options):
    """The program's state when all of it is done."""
    state = program.run(*args, backend=fake_backend(monkeypatch, server), **options)
    state.sync()
    return state


@sgl.function
def ask(s, question, **options):
    s += sgl.user(question)
    s += sgl.assistant(gen("call", max_tokens=50, tools=TOOLS, **options))


def test_a_program_gets_calls_with_values_to_work_with(monkeypatch):
    server = FakeServer(f"Let me see.\n{ROME}\n{TIME}", drafts={"accepted": {"schema": 9}})

    state = run(ask, server, monkeypatch, "How is Rome?", temperature=0)

    assert state["call"] == server.replies[0]
    weather, time = tool_calls(state, "call")
    assert (weather.name, weather.arguments) == ("get_weather", {"city": "Rome", "days": 2})
    assert (weather.run(), time.run()) == ({"city": "Rome", "days": 2}, "noon")
    meta = state.get_meta_info("call")
    assert meta["spec_accept_length"] == 4.0
    assert meta["toolspec"]["accepted"] == {"schema": 9}


def test_the_server_is_asked_for_the_prompt_and_for_the_reply(monkeypatch):
    server = FakeServer(ROME)

    run(ask, server, monkeypatch, "Hi", temperature=0.5, top_p=0.9, stop=["END"])

    (chat,) = server.bodies("/v1/tokenize")
    assert chat["messages"] == [{"role": "user", "content": "Hi"}]  # without SGLang's own system message
    assert [tool["function"]["name"] for tool in chat["tools"]] == ["get_weather", "get_time"]
    assert (chat["tool_choice"], chat["continue_final_message"]) == ("auto", False)
    (body,) = server.bodies("/generate")
    params = body["sampling_params"]
    assert body["input_ids"] == TOKENS
    assert (params["temperature"], params["top_p"], params["max_new_tokens"]) == (0.5, 0.9, 50)
    assert "END" in params["stop"]
    assert not params["skip_special_tokens"]
    assert "structural_tag" not in params
    wire = json.loads(params["custom_params"]["toolspec"])
    assert [tool["name"] for tool in wire["tools"]] == ["get_weather", "get_time"]


@pytest.mark.parametrize(("choice", "in_tag"), [("required", 2), ("get_time", 2), (["get_time"], 1)])
def test_a_forced_choice_is_forced_by_the_servers_own_mask(monkeypatch, choice, in_tag):
    server = FakeServer(TIME)

    run(ask, server, monkeypatch, "Hi", tool_choice=choice)

    tag = json.loads(server.bodies("/generate")[0]["sampling_params"]["structural_tag"])
    assert len(tag["structures"]) == in_tag
    assert tag["at_least_one"]
    wire = json.loads(server.bodies("/generate")[0]["sampling_params"]["custom_params"]["toolspec"])
    assert wire["tool_choice"] == ("required" if choice == "required" else "get_time")


def test_no_call_is_asked_for_as_a_client_does(monkeypatch):
    server = FakeServer("It is noon.")

    state = run(ask, server, monkeypatch, "Hi", tool_choice="none")

    assert server.bodies("/v1/tokenize")[0]["tool_choice"] == "none"
    assert server.bodies("/generate")[0]["sampling_params"]["skip_special_tokens"]
    assert tool_calls(state, "call") == []


@pytest.mark.parametrize("parser", ["glm45", None])
def test_an_array_is_forced_where_the_parser_has_no_tag(monkeypatch, parser):
    weather = '{"name": "get_weather", "parameters": {"city": "Rome"}}'
    server = FakeServer(f'[{weather}, {{"name": "get_time", "parameters": {{}}}}]', parser=parser)

    state = run(ask, server, monkeypatch, "Hi", tool_choice="required")

    assert "json_schema" in server.bodies("/generate")[0]["sampling_params"]
    assert [call.run() for call in tool_calls(state, "call")] == [{"city": "Rome", "days": 1}, "noon"]


def test_results_go_back_as_messages_of_the_role_tool(monkeypatch):
    @sgl.function
    def loop(s, question):
        s += sgl.system("Be brief.")
        s += sgl.user(question)
        s += sgl.assistant(gen("call", tools=TOOLS))
        for call in tool_calls(s, "call"):
            s += tool_result(call.run())
        s += sgl.assistant("So: " + gen("answer", tools=TOOLS, tool_choice="none"))

    server = FakeServer(f"Wait.\n{ROME}\n{TIME}", "fine.")

    state = run(loop, server, monkeypatch, "How is Rome?")

    assert state["answer"] == "fine."
    weather = {"name": "get_weather", "arguments": '{"city": "Rome", "days": 2}'}
    assert server.bodies("/v1/tokenize")[1] == {
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "How is Rome?"},
            {
                "role": "assistant",
                "content": "Wait.",
                "tool_calls": [
                    {"id": "call_0", "type": "function", "function": weather},
                    {"id": "call_1", "type": "function", "function": {"name": "get_time", "arguments": "{}"}},
                ],
            },
            {"role": "tool", "content": '{"city": "Rome", "days": 2}', "tool_call_id": "call_0"},
            {"role": "tool", "content": "noon", "tool_call_id": "call_1"},
            {"role": "assistant", "content": "So: "},
        ],
        "tools": server.bodies("/v1/tokenize")[0]["tools"],
        "tool_choice": "none",
        "continue_final_message": True,
    }


@pytest.mark.parametrize("arguments", ["7", '"x"', "[]"])
def test_a_call_whose_arguments_no_template_can_write_goes_back_as_text(monkeypatch, arguments):
    @sgl.function
    def again(s):
        s += sgl.user("Hi")
        s += sgl.assistant(gen("call", tools=TOOLS))
        s += sgl.user("Again")
        s += sgl.assistant(gen("second", tools=TOOLS))

    server = FakeServer(f'<tool_call>\n{{"name": "get_time", "arguments": {arguments}}}\n</tool_call>')

    state = run(again, server, monkeypatch)

    assert server.bodies("/v1/tokenize")[1]["messages"][1] == {"role": "assistant", "content": state["call"]}
    with pytest.raises(UserError, match="must be an object"):
        tool_calls(state, "call")[0].run()


def test_a_streamed_reply_is_the_same_text_with_the_same_calls(monkeypatch):
    backend = fake_backend(monkeypatch, FakeServer(ROME))

    state = ask.run("Hi", backend=backend, stream=True)

    assert ROME in "".join(state.text_iter())
    assert state["call"] == ROME
    assert [call.arguments for call in tool_calls(state, "call")] == [{"city": "Rome", "days": 2}]


def test_forks_gather_their_calls(monkeypatch):
    @sgl.function
    def both(s):
        s += sgl.user("Rome and the time?")
        forks = s.fork(2)
        forks += sgl.assistant(gen("call", tools=TOOLS))
        forks.join()

    state = both.run(backend=fake_backend(monkeypatch, FakeServer(ROME)))

    assert [[call.name for call in calls] for calls in tool_calls(state, "call")] == [["get_weather"]] * 2


def test_programs_that_read_calls_run_in_batches(monkeypatch):
    @sgl.function
    def answer(s, city):
        s += sgl.user("Please tell me what the weather will be in the days to come, thank you: " + city)
        s += sgl.assistant(gen("call", tools=TOOLS))
        s.set_var("found", [call.run() for call in tool_calls(s, "call")])

    backend = fake_backend(monkeypatch, FakeServer(ROME))

    states = answer.run_batch([{"city": city} for city in ("Rome", "Oslo", "Lima")], backend=backend)

    assert [state["found"] for state in states] == [[{"city": "Rome", "days": 2}]] * 3


def test_a_program_without_turns_writes_its_own_prompt(monkeypatch):
    @sgl.function
    def raw(s):
        s += "Tools: … Call one: " + gen("call", tools=TOOLS)

    server = FakeServer(ROME)

    state = run(raw, server, monkeypatch)

    assert server.bodies("/v1/tokenize") == []
    assert server.bodies("/generate")[0]["text"] == "Tools: … Call one: "
    assert len(tool_calls(state, "call")) == 1


def test_several_replies_have_their_calls_and_their_sources(monkeypatch):
    @sgl.function
    def several(s):
        s += sgl.user("Hi")
        s += sgl.assistant(gen("call", tools=TOOLS, n=2))

    server = FakeServer([ROME, TIME], drafts={"accepted": {"schema": 9}})

    state = run(several, server, monkeypatch)

    names = [[call.name for call in calls] for calls in tool_calls(state, "call")]
    assert names == [["get_weather"], ["get_time"]]
    assert [meta["toolspec"]["accepted"] for meta in state.get_meta_info("call")] == [{"schema": 9}] * 2


def test_a_runtime_is_the_server_that_it_has_started(monkeypatch):
    """``sgl.Runtime`` is no backend itself; SGLang asks its ``endpoint``."""
    runtime = SimpleNamespace(endpoint=fake_backend(monkeypatch, FakeServer(TIME)))

    assert [call.run() for call in tool_calls(ask.run("Hi", backend=runtime), "call")] == ["noon"]


def test_gen_without_tools_is_sglangs(monkeypatch):
    server = FakeServer("Hello.")

    @sgl.function
    def plain(s):
        s += sgl.user("Hi")
        s += sgl.assistant(gen("text", max_tokens=5))

    state = run(plain, server, monkeypatch)

    assert state["text"] == "Hello."
    assert "custom_params" not in server.bodies("/generate")[0]["sampling_params"]
    with pytest.raises(UserError, match="'text' was not written by gen"):
        tool_calls(state, "text")


def test_after_enable_sglangs_own_gen_takes_tools(monkeypatch):
    monkeypatch.setattr(sgl, "gen", sgl.gen)
    monkeypatch.setattr(sgl.lang.api, "gen", sgl.lang.api.gen)
    sglang_toolspec.enable()
    sglang_toolspec.enable()

    @sgl.function
    def program(s):
        s += sgl.user("Hi")
        s += sgl.assistant(sgl.gen("call", tools=TOOLS))

    state = program.run(backend=fake_backend(monkeypatch, FakeServer(TIME)))

    assert [call.run() for call in tool_calls(state, "call")] == ["noon"]


def test_what_the_package_offers_to_programs():
    assert sglang_toolspec.gen is frontend.gen
    with pytest.raises(AttributeError, match="no attribute 'nope'"):
        sglang_toolspec.nope  # noqa: B018


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"choices": ["a", "b"]}, "choices and tools exclude each other"),
        ({"regex": "a+", "tool_choice": "required"}, "regex and a forced tool_choice exclude each other"),
        ({"tool_choice": "nope"}, "tool_choice must be one of"),
    ],
)
def test_what_cannot_be_asked_for_is_refused_where_it_stands(options, says):
    with pytest.raises(UserError, match=says):
        gen("call", tools=TOOLS, **options)


def test_a_choice_without_tools_is_refused():
    with pytest.raises(UserError, match="tool_choice needs tools"):
        gen("call", tool_choice="required")


def run_and_read(program, backend, name="call", **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # SGLang warns with a traceback
        return tool_calls(program.run(backend=backend, **options), name)


@pytest.mark.parametrize(
    ("role", "says"), [(sgl.user, "must stand in an assistant's turn"), (sgl.system, "must stand in")]
)
def test_calls_are_written_in_an_assistants_turn(monkeypatch, role, says):
    @sgl.function
    def wrong(s):
        s += role(gen("call", tools=TOOLS))

    with pytest.raises(UserError, match=says):
        run_and_read(wrong, fake_backend(monkeypatch, FakeServer(TIME)))


def test_what_the_server_refuses_is_told_where_calls_are_read(monkeypatch):
    @sgl.function
    def program(s):
        s += sgl.user("Hi")
        s += sgl.assistant(gen("call", tools=TOOLS))

    with pytest.raises(UserError, match=r"^the server refuses: too long$"):
        run_and_read(program, fake_backend(monkeypatch, FakeServer(ValueError("too long"))))


def test_a_server_without_a_parser_says_so(monkeypatch):
    backend = fake_backend(monkeypatch, FakeServer(TIME, parser=None))

    with pytest.raises(UserError, match="start it with --tool-call-parser"):
        tool_calls(ask.run("Hi", backend=backend), "call")


class FakeEngine:
    """An engine that says one thing, or refuses, and tells of its drafts."""

    def __init__(self, reply):
        self.loop = asyncio.new_event_loop()
        self.server_args = SimpleNamespace(model_path="a/Qwen-Instruct")
        self.tokenizer_manager = SimpleNamespace(
            config_value={"tool_call_parser": "qwen25"}.get,
            auto_create_handle_loop=lambda: None,
            get_internal_state_communicator=self._states,
        )
        self._reply = reply

    async def async_generate(self, stream=False, **given):
        if isinstance(self._reply, Exception):
            raise self._reply
        whole = {"text": self._reply, "meta_info": {"id": "request-1"}}
        return self._grown(whole) if stream else whole

    async def _grown(self, whole):
        for end in (5, len(self._reply)):
            yield {**whole, "text": self._reply[:end]}

    async def _states(self, question):
        assert question.rid.endswith("request-1")
        states = [{}, {"toolspec": None}, {"toolspec": {"accepted": {"schema": 9}}}]
        return [SimpleNamespace(internal_state=state) for state in states]


@sgl.function
def without_turns(s):
    s += "Call: " + gen("call", tools=TOOLS)


@pytest.mark.parametrize("stream", [False, True])
def test_an_engine_in_this_process_gives_calls_and_their_sources(stream):
    backend = frontend.EngineBackend(FakeEngine(TIME))
    try:
        state = without_turns.run(backend=backend, stream=stream)
        for _ in state.text_iter():  # a program that streams runs beside this
            pass

        assert [call.run() for call in tool_calls(state, "call")] == ["noon"]
        assert state.get_meta_info("call")["toolspec"]["accepted"] == {"schema": 9}
    finally:
        backend.close()


@pytest.mark.parametrize("stream", [False, True])
def test_what_an_engine_refuses_is_one_sentence(stream):
    backend = frontend.EngineBackend(FakeEngine(ValueError("The input is too long.\nTraceback")))
    try:
        with pytest.raises(UserError, match=r"^the engine refuses: The input is too long\.$"):
            run_and_read(without_turns, backend, stream=stream)
    finally:
        backend.close()


def test_other_backends_are_refused_by_name(monkeypatch):
    @sgl.function
    def program(s):
        s += sgl.user("Hi")
        s += sgl.assistant(gen("call", tools=TOOLS))

    from sglang.lang.backend.base_backend import BaseBackend

    with pytest.raises(UserError, match="not BaseBackend"):
        run_and_read(program, BaseBackend())


def test_a_name_that_the_program_does_not_have():
    @sgl.function
    def program(s):
        s += "Hi"

    from sglang.lang.backend.base_backend import BaseBackend

    with pytest.raises(UserError, match="the program has no 'call'"):
        run_and_read(program, BaseBackend())
