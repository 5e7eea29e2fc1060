"""The server of the Model Context Protocol: which tools, resources and prompts there are, over standard streams.

The only module that imports ``mcp``. What is asked runs in a thread, for a bounded time; whatever goes wrong becomes an
answer that says what happened and what to try.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, Literal

from mcp.server.mcpserver import Context, MCPServer, ResourceSecurity
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import CallToolResult, InputRequiredResult, TextContent, ToolAnnotations
from pydantic import Field, ValidationError

from tracker_health._version import __version__
from tracker_health.errors import TrackerHealthError, named
from tracker_health.fleet.agents import prompts
from tracker_health.fleet.agents.secrets import Secrets
from tracker_health.stores.remote.deadline import within
from tracker_health.text import clipped

if TYPE_CHECKING:
    from tracker_health.fleet.agents.tools import Tools  # loaded once the server runs: a client waits for its answer

SECONDS = 120.0
"""For one answer: a server that hangs must not keep the agent."""
_ERROR_BYTES = 600

_Run = Annotated[
    str,
    Field(description="A path below a root, an MLflow run id, or wandb:ENTITY/PROJECT/RUN", max_length=1000),
]


class _Answers:
    """Calls the tools, and makes answers of what they give or raise."""

    def __init__(self, tools: Callable[[], Tools], secrets: Secrets) -> None:
        self.tools, self.secrets = tools, secrets

    def __call__(self, ask: Callable[[Tools], dict[str, Any]]) -> CallToolResult:
        try:
            found = within(SECONDS, lambda: ask(self.tools()))
            return self._result({"note": prompts.DATA_NOTE, "data": found})
        except Exception as error:  # noqa: BLE001 - the agent is told, and the server goes on
            return self._result(_described(error), is_error=True)

    def text(self, ask: Callable[[Tools], str]) -> str:
        """A resource: its text, or what went wrong."""
        try:
            return self.secrets.hidden(within(SECONDS, lambda: ask(self.tools())))
        except Exception as error:  # noqa: BLE001 - as above
            return self.secrets.hidden(json.dumps(_described(error)))

    def _result(self, document: dict[str, Any], *, is_error: bool = False) -> CallToolResult:
        content = _text(document)
        return CallToolResult(
            content=[content.model_copy(update={"text": self.secrets.hidden(content.text)})], is_error=is_error
        )


class _Server(MCPServer[Any]):
    """A server that answers wrong arguments as it answers everything else that goes wrong."""

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None = None
    ) -> CallToolResult | InputRequiredResult:
        """As ``MCPServer.call_tool``, with no error but of the protocol."""
        try:
            return await super().call_tool(name, arguments, context)
        except ToolError as error:
            return CallToolResult(content=[_text(_misused(name, error))], is_error=True)


def _misused(name: str, error: ToolError) -> dict[str, Any]:
    cause = error.__cause__
    if not isinstance(cause, ValidationError):
        return {"error": clipped(error, _ERROR_BYTES), "try": "list the tools"}
    said = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in cause.errors(include_input=False)]
    return {
        "error": clipped(f"wrong arguments for {name}: {'; '.join(said)}", _ERROR_BYTES),
        "try": "give the arguments that the list of tools describes",
    }


def _text(document: dict[str, Any]) -> TextContent:
    return TextContent(type="text", text=json.dumps(document, allow_nan=False))


def _described(error: Exception) -> dict[str, Any]:
    if isinstance(error, TrackerHealthError):
        message, hint = error.message, error.hint
    elif isinstance(error, TimeoutError):
        message, hint = f"there was no answer within {SECONDS:g} seconds", "is its server reachable? Ask again later"
    else:
        message, hint = f"unexpected {named(error)}", "tracker-health check -v on the same run shows more"
    return {"error": clipped(message, _ERROR_BYTES), "try": clipped(hint, _ERROR_BYTES)}


def make_server(tools: Callable[[], Tools], secrets: Secrets, *, allow_write: bool = False) -> MCPServer[Any]:
    """The server, which asks nothing of any store before a tool is called.

    Args:
        tools: Gives what answers.
        secrets: Are kept out of all answers.
        allow_write: With the tool that writes a verdict onto a run.

    Returns:
        The server, to be run.
    """
    server = _Server(
        "tracker-health",
        title="tracker-health",
        instructions=prompts.INSTRUCTIONS,
        version=__version__,
        log_level="ERROR",
        subscriptions=False,
    )
    answers = _Answers(tools, secrets)
    _add_tools(server, answers)
    if allow_write:
        _add_writing(server, answers)
    _add_resources(server, answers)
    for prompt in (prompts.why_failed, prompts.morning_triage, prompts.watch_training):
        server.prompt(name=prompt.__name__, description=prompt.__doc__)(prompt)
    return server


def _add_tools(server: MCPServer[Any], answer: _Answers) -> None:
    """The tools that read."""

    def check_run(run: _Run) -> CallToolResult:
        return answer(lambda tools: tools.check_run(run))

    def triage(
        experiment: Annotated[str, Field(description="An MLflow experiment: name or id", max_length=500)] = "",
        project: Annotated[str, Field(description="A W&B project: ENTITY/PROJECT", max_length=500)] = "",
        since: Annotated[str, Field(description="Only runs that ended no longer ago, as 7d", max_length=20)] = "",
    ) -> CallToolResult:
        return answer(lambda tools: tools.triage(experiment, project, since))

    def watch_run(run: _Run) -> CallToolResult:
        return answer(lambda tools: tools.watch_run(run))

    def compare_runs(
        bad: _Run, good: Annotated[list[_Run], Field(description="One or more runs that went well", max_length=8)]
    ) -> CallToolResult:
        return answer(lambda tools: tools.compare_runs(bad, good))

    def repaired(old: _Run, new: _Run) -> CallToolResult:
        return answer(lambda tools: tools.repaired(old, new))

    def explain(
        name: Annotated[str, Field(description="A rule's code or name (LOS004), or a cause", max_length=100)],
    ) -> CallToolResult:
        return answer(lambda tools: tools.explain(name))

    def curve(
        run: _Run,
        metric: Annotated[str, Field(description="Its name, or a role such as train_loss", max_length=500)],
        points: Annotated[int, Field(description="At most", ge=2, le=40)] = 40,
    ) -> CallToolResult:
        return answer(lambda tools: tools.curve(run, metric, points))

    def rules_that_fit(run: _Run) -> CallToolResult:
        return answer(lambda tools: tools.rules_that_fit(run))

    said: dict[Callable[..., CallToolResult], str] = {
        check_run: "Judge a training run: verdict, cause with certainty, findings, the one action (setting from -> "
        "to), the checkpoint to go back to, what was judged and what not.",
        triage: "Many runs of an MLflow experiment or a W&B project: counts by verdict, causes, the worst runs with "
        "links. Reads the verdicts that are on the runs.",
        watch_run: "Should a run that is still running go on? advice: stop, look at it (it hangs), go on, over or "
        "too early, with why.",
        compare_runs: "What differs between a bad run and good ones: settings, curves, the first step where they part.",
        repaired: "Did a change help? repaired, not repaired, cannot tell, or repaired, and something new; with why.",
        explain: "What a rule or cause means, what to do, when it is wrong.",
        curve: "A metric of a run in at most 40 points, every extreme kept, with what was found in it.",
        rules_that_fit: "What to log or save so that more rules can judge a run.",
    }
    hints = ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False)
    for tool, description in said.items():
        server.add_tool(tool, description=description, annotations=hints, structured_output=False)


def _add_writing(server: MCPServer[Any], answer: _Answers) -> None:
    """The one tool that writes."""

    def annotate(run: _Run) -> CallToolResult:
        return answer(lambda tools: tools.annotate(run))

    server.add_tool(
        annotate,
        description="Judge a run and write the verdict onto it (tags, a page, a note), where it is not there yet.",
        annotations=ToolAnnotations(read_only_hint=False, destructive_hint=False, idempotent_hint=True),
        structured_output=False,
    )


def _add_resources(server: MCPServer[Any], answer: _Answers) -> None:
    """What can be read at an address: lists and pages of rules and causes, what was measured, a run's report."""

    def lister(what: Literal["rules", "causes", "accuracy"]) -> Callable[[], str]:
        return lambda: answer.text(lambda tools: tools.listed(what))

    lists = (
        ("rules", lister("rules"), "All rules: code, name, what each finds"),
        ("causes", lister("causes"), "All causes"),
        ("accuracy", lister("accuracy"), "How often each rule is right, as measured"),
    )
    for name, listed, description in lists:
        address = f"tracker-health://{name}"
        server.resource(address, name=name, description=description, mime_type="text/plain")(listed)

    def page(name: str) -> str:
        return answer.text(lambda tools: tools.page(name))

    for kind in ("rules", "causes"):
        address, about = f"tracker-health://{kind}/{{name}}", f"The whole page of one of the {kind}"
        server.resource(address, name=f"{kind} page", description=about, mime_type="text/plain")(page)

    def report(run: str) -> str:
        return answer.text(lambda tools: f"{prompts.DATA_NOTE}\n\n{tools.report(run)}")

    server.resource(
        "tracker-health://report/{+run}",
        name="report",
        description="The whole report on a run, in Markdown",
        mime_type="text/markdown",
        security=ResourceSecurity(exempt_params={"run"}),  # a path, which is looked up among the roots
    )(report)


def serve(server: MCPServer[Any], tools: Callable[[], Tools]) -> None:
    """Answer over standard input and output until that is closed.

    Args:
        server: What ``make_server`` made.
        tools: Is called in the background, so that the first call finds the library loaded.
    """
    threading.Thread(target=_load, args=(tools,), daemon=True, name="tracker-health loading").start()
    server.run("stdio")


def _load(tools: Callable[[], Tools]) -> None:
    with suppress(Exception):  # what is wrong is the answer to the first call
        tools()
