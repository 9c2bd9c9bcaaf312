"""The command `evaluate`: checks what was asked for, measures it, writes the tables."""

import argparse
import asyncio
from pathlib import Path

from marti_ext import benchmarks
from marti_ext.evaluation import Plan, claim, evaluate
from marti_ext.progress import Display
from marti_ext.rollout import Limits, Speaker
from marti_ext.rundir import lock
from marti_ext.subjects import (
    Subject,
    benchmarks_of_run,
    folder_of,
    measure_all,
    most_prompt_tokens,
    of_models,
    of_run,
    settings_of_run,
)
from marti_ext.tasks.sandbox import weakness

NO_LIMIT = 10**9
DEFAULTS = {"temperature": 0.7, "max_response_tokens": 2048, "max_prompt_tokens": 28672}  # Table 2 and Appendix C


def run_evaluation(args: argparse.Namespace, display: Display) -> str:
    """Returns what to show at the end. Raises ValueError, CannotLaunch, ConnectionError."""
    run = _run(args.policies or [])
    subjects = _subjects(args, run)
    if args.benchmarks is None:
        args.benchmarks = (benchmarks_of_run(run) if run else []) or list(benchmarks.PAPER)
    if problems := [problem for name in args.benchmarks if (problem := benchmarks.problem_with(name))]:
        raise ValueError("\n".join(problems))
    plan = _plan(args, run, subjects)
    root = args.out or (run / "benchmarks" if run else Path("runs", f"evaluation-{subjects[-1].name}"))
    settings = plan.settings()
    for subject in subjects:
        settings |= subject.settings()
    claim(root, settings, look_only=True)
    root.mkdir(parents=True, exist_ok=True)
    held = lock(root)
    display.say(f"{sum(len(plan.cells(one.name)) for one in subjects)} cells -> {root}")
    if any(one.task == "coding" for part in plan.benchmarks for one in part.questions) and (weak := weakness()):
        display.say(f"warning: {weak}")
    asyncio.run(_measure(args, subjects, plan, root, settings, display))
    text = _tables(root)
    held.close()
    return text


def _tables(root: Path) -> str:
    from marti_ext.reporting.tables import MEAN, in_full, summary, to_terminal, write_tables

    brief, table = write_tables(root, root, "summary"), summary(root)
    left = table.loc[~table["subject"].astype(str).str.endswith(MEAN), "errors"].sum()
    again = f"{left} questions are missing after errors: the same command asks them again\n" if left else ""
    heading = "\nAccuracy in percent, in brackets the difference to the untrained policy\n"
    return f"{to_terminal(in_full(table))}{heading}{brief}{again}tables: {root / 'summary.md'} (and .csv)"


def _run(policies: list[str]) -> Path | None:
    """The run folder among them, which has to be the only one."""
    runs = [Path(name) for name in policies if (Path(name) / "config.yaml").is_file()]
    if runs and len(policies) > 1:
        raise ValueError(f"--policies: {runs[0]} is a run; give one run, or models")
    return runs[0] if runs else None


def _subjects(args: argparse.Namespace, run: Path | None) -> list[Subject]:
    if args.endpoint and not args.model:
        raise ValueError("--endpoint needs --model, the name of the model to ask for")
    if args.endpoint and not args.endpoint.startswith(("http://", "https://")):
        raise ValueError(f"--endpoint {args.endpoint}: expected an address that begins with http:// or https://")
    for option, wrong, goes in (
        ("model", not args.endpoint, "with --endpoint"),
        ("untrained", run or args.endpoint, "with models after --policies; a run knows its own"),
        ("together", not run, "with a run after --policies"),
    ):
        if wrong and getattr(args, option):
            raise ValueError(f"--{option} goes {goes}; leave it out")
    if args.endpoint:
        name = folder_of(args.model)
        return [Subject(name, (), name)]
    return of_run(run, args.together) if run else of_models(args.policies, args.untrained)


def _plan(args: argparse.Namespace, run: Path | None, subjects: list[Subject]) -> Plan:
    values = DEFAULTS | (settings_of_run(run) if run else {})
    if args.endpoint:  # whose tokens nobody here can count
        values["max_prompt_tokens"] = NO_LIMIT
    values |= {key: value for key in DEFAULTS if (value := getattr(args, key)) is not None}
    if values["temperature"] < 0:
        raise ValueError(f"--temperature: found {values['temperature']}, expected 0 or more")
    values["max_prompt_tokens"] = most_prompt_tokens(
        subjects, values["max_prompt_tokens"], values["max_response_tokens"]
    )
    chosen = tuple(benchmarks.load(name, args.limit) for name in args.benchmarks)
    names = [one.name for one in chosen]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ValueError(f"--benchmarks: {', '.join(sorted(twice))} is there twice")
    limits = Limits(**values, retries=0 if args.endpoint else 2)  # an endpoint's client has retries of its own
    return Plan(chosen, tuple(dict.fromkeys(args.setups)), tuple(dict.fromkeys(args.seeds)), limits)


async def _measure(
    args: argparse.Namespace, subjects: list[Subject], plan: Plan, root: Path, settings: dict, display: Display
) -> None:
    if args.endpoint:
        from marti_ext.engines.endpoint import Characters, Endpoint

        engine, (subject,) = Endpoint(args.endpoint, args.model), subjects
        async with engine.client:
            await engine.check()
            claim(root, settings)
            speaker = Speaker("agent", subject.name, engine, Characters(), asyncio.Semaphore(args.requests))
            await evaluate(root, {subject.name: [speaker]}, plan, display)
    else:
        await measure_all(subjects, plan, root, settings, display, args.engine, args.gpus)
