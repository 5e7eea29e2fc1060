"""The command that says whether a registered model may go on."""

from __future__ import annotations

import json
import signal
import sys
from typing import TYPE_CHECKING, Any

import click

from tracker_health.cli.choices import settings_of
from tracker_health.cli.group import cli
from tracker_health.cli.options import (
    ALL_RULES,
    BRIEF,
    FORMAT,
    SHADOW,
    all_of,
    choice_options,
    note_verbose,
    settle_json,
)
from tracker_health.errors import ConfigError, RunError
from tracker_health.terminal import (
    EXIT_DONE,
    EXIT_RUN,
    EXIT_UNFINISHED,
    EXIT_VERDICT,
    Output,
    add_to_job_summary,
    say_error,
    say_failure,
    stopping,
    told,
)
from tracker_health.text import printable

if TYPE_CHECKING:
    from tracker_health.fleet.gate import GateOptions
    from tracker_health.judge.gate_decision import Gated

# By the words of gate.Answer, which --help does without.
_CODES = {
    "go on": EXIT_DONE,
    "bad model": EXIT_VERDICT,
    "could not be judged": EXIT_RUN,
    "unfinished run": EXIT_UNFINISHED,
}
_WORST_FIRST = (EXIT_VERDICT, EXIT_RUN, EXIT_UNFINISHED, EXIT_DONE)


@cli.command()
@click.argument("models", metavar="MODEL...", nargs=-1)
@all_of(SHADOW, *choice_options(fail_on="fail"))
@click.option(
    "--on-error",
    type=click.Choice(("block", "pass")),
    default="block",
    show_default=True,
    help="What becomes of a model that could not be judged: exit code 3, or 0.",
)
@click.option(
    "--require-files",
    is_flag=True,
    help="A model may only go on where all of its own files were read and judged; else exit code 3.",
)
@click.option(
    "--promote",
    default="",
    metavar="ALIAS",
    help="Give the version this alias in MLflow's registry if it may go on, and never otherwise. For one MODEL.",
)
@click.option("--allow-unfinished", is_flag=True, help="A model may go on while its run does.")
@click.option(
    "--accept-ack",
    is_flag=True,
    help="What someone has acknowledged on the run (ack) may pass; the tag health.accepted records it.",
)
@click.option("--timeout", default="10m", show_default=True, metavar="TIME", help="For each model.")
@click.option("--no-tags", is_flag=True, help="Write nothing onto the model's version.")
@click.option(
    "--watch",
    type=click.IntRange(1, 86_400),
    metavar="SECONDS",
    help="Look for new versions in MLflow's registry so often, and answer for each, until stopped.",
)
@click.option("--model", "names", multiple=True, metavar="NAME", help="With --watch: only this model; repeatable.")
@click.option(
    "--since", default="7d", show_default=True, metavar="TIME", help="With --watch: versions no older than this."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document per model, on standard output.")
@BRIEF
@ALL_RULES
@FORMAT
@click.option("-q", "--quiet", is_flag=True, help="Print nothing but errors.")
@click.option("-v", "--verbose", is_flag=True, callback=note_verbose, help="Tracebacks.")
def gate(models: tuple[str, ...], watch: int | None, names: tuple[str, ...], since: str, **choices: Any) -> None:
    """Say whether registered models may go on: judge the run that made each, and the registered files.

    MODEL is models:/NAME/VERSION, models:/NAME@ALIAS, the address of a model version's page in MLflow, models:/m-...
    (a model that a run logged), or wandb:ENTITY/PROJECT/ARTIFACT:v3. The files are judged where they can be read; a
    pickle never is. The verdict and its cause become tags of the version (health.verdict, health.cause); without the
    permission for that it says so, and answers all the same. No alias is moved but that of --promote.

    Exit codes: 0 it may go on; 1 a bad model; 2 wrong usage or configuration; 3 it could not be judged, or not be given
    the alias of --promote; 4 its run is still running. Of several models the worst, in the order 1, 3, 4, 0.
    """
    settle_json(choices)
    _require_sense(models, watch, choices)
    options = _gate_options(choices)
    if watch:
        if models:
            raise ConfigError("--watch finds the models itself", "name them with --model NAME, or leave out --watch")
        _watch(options, watch, names, since, choices)
    if not models:
        raise ConfigError("no model was given", "name one: models:/NAME/VERSION")
    sys.exit(_answer_all(models, options, choices))


def _require_sense(models: tuple[str, ...], watch: int | None, choices: dict[str, Any]) -> None:
    """Raises where options contradict each other."""
    if choices["promote"] and (watch or len(models) > 1):
        raise ConfigError("--promote gives one alias, and there may be several models", "name one MODEL at a time")
    if choices["require_files"] and choices["on_error"] == "pass":
        raise ConfigError("--require-files and --on-error pass contradict each other", "leave out one of them")


def _gate_options(choices: dict[str, Any]) -> GateOptions:
    from tracker_health.config import parse_duration
    from tracker_health.fleet.gate import GateOptions
    from tracker_health.judge.gate_decision import Rule

    timeout = parse_duration(choices["timeout"])
    settings = settings_of(choices, fail_on="fail", writes=not choices["no_tags"])
    rule = Rule(
        fail_on=choices["fail_on"], allow_unfinished=choices["allow_unfinished"], require_files=choices["require_files"]
    )
    return GateOptions(
        config=settings.config,
        tracking_uri=settings.tracking_uri,
        rule=rule,
        timeout=timeout,
        tags=not choices["no_tags"],
        accept_ack=choices["accept_ack"],
        promote=choices["promote"],
    )


def _answer_all(models: tuple[str, ...], options: GateOptions, choices: dict[str, Any]) -> int:
    from tracker_health.fleet.gate import gate_one
    from tracker_health.render.ci import JUnit

    output, report = Output(), JUnit()
    codes = {_print_answer(gate_one(model, options), choices, output, report) for model in models}
    if choices["form"] == "junit":
        output.print(report.document())
    return next(code for code in _WORST_FIRST if code in codes) or output.exit_code


def _watch(options: GateOptions, seconds: int, names: tuple[str, ...], since: str, choices: dict[str, Any]) -> None:
    """Answer for new versions until stopped; a service continues when the registry is back."""
    from tracker_health.config import parse_duration
    from tracker_health.fleet.gate import Watch
    from tracker_health.render.ci import JUnit

    if choices["form"] == "junit":
        raise ConfigError("a watch has no end, and a test report needs one", "give another --format")
    output, watch = Output(), Watch(options=options, names=names, since=parse_duration(since))
    with stopping(also=[signal.SIGTERM]) as stop:
        while True:
            try:
                for gated in stop.until(watch.answer_new()):
                    _print_answer(gated, choices, output, JUnit())
            except RunError as error:
                told(error, verbose=choices["verbose"])
            if stop.wait(seconds):
                sys.exit(EXIT_DONE)


def _print_answer(gated: Gated, choices: dict[str, Any], output: Output, report: Any) -> int:
    """Print one answer; the exit code that it deserves."""
    from tracker_health.render.ci import check_of_model, github_line
    from tracker_health.render.model_card import model_card, model_lines

    code = _CODES[str(gated.gate.answer)]
    if code == EXIT_RUN and choices["on_error"] == "pass":
        code = EXIT_DONE
    code = EXIT_RUN if gated.lacks_promotion else code
    code = EXIT_DONE if gated.shadow else code
    check = check_of_model(gated, blocks=bool(code))
    report.add(check)
    if choices["as_json"]:
        document = gated.brief() if choices["in_brief"] else gated.to_json(skipped=choices["all_rules"])
        output.print(json.dumps(document, allow_nan=False))
    elif choices["form"] == "github":
        add_to_job_summary([*model_card(gated), ""])
        output.print(github_line(check))
    elif choices["form"] == "markdown":
        output.print("\n".join(model_card(gated)))
    elif choices["form"] == "text" and not choices["quiet"]:
        lines = model_lines(gated)
        if gated.error is not None:  # which is said below
            lines[0] = f"{gated.model}: {gated.gate.answer}"
        output.print("\n".join(lines))
    if gated.lacks_promotion and (choices["form"] == "markdown" or choices["quiet"]):
        say_error(f"{gated.model}: {gated.promotion}")
    if gated.error is not None:
        say_failure(gated.error, about=f"{printable(gated.model)}: ", verbose=choices["verbose"])
    return code
