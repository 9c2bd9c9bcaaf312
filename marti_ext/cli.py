"""python -m marti_ext COMMAND: what a person types. Each command imports what it needs, so that help is instant."""

import argparse
import functools
import os
import signal
import sys
from pathlib import Path

DESCRIPTION = "CoMAS: LLM agents that solve, criticise and score each other's answers, and learn from it."


def main(arguments: list[str] | None = None) -> None:
    args = parser().parse_args(arguments)
    sys.stdout.reconfigure(errors="backslashreplace")  # a terminal may lack a letter that a model wrote
    before = signal.signal(signal.SIGINT, functools.partial(_interrupted, args.resumes))
    try:
        args.run(args)
        sys.stdout.flush()
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # the reader of a pipe, such as head, has left
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    finally:
        signal.signal(signal.SIGINT, before)


def _interrupted(resumes: str, *_) -> None:
    """Says so at once: engines and actors under way take up to half a minute to stop. The second time, waits for nothing."""
    signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    print(f"\ninterrupted: stopping (again: at once){resumes}", file=sys.stderr, flush=True)
    raise KeyboardInterrupt


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser("python -m marti_ext", description=DESCRIPTION)
    commands = top.add_subparsers(title="commands", required=True, metavar="COMMAND")

    train = _command(commands, "train", _train, "train the agents of an experiment file")
    train.add_argument("config", type=Path, help="experiment file; those that ship are in experiments/configs/")
    train.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="override a setting, as in train.steps=3"
    )
    train.add_argument("--dry-run", action="store_true", help="check and print everything, load nothing")
    train.add_argument(
        "--resume",
        choices=["auto", "must", "never"],
        default="never",
        help="auto: continue the run of this name if there is one; must: fail if there is none; never (default): fail if there is one",
    )

    train.set_defaults(resumes="; with --resume auto, as in ./run_all.sh, it goes on after the last complete step")

    report = _command(commands, "report", _report, "draw the curves and tables of a run into its folder")
    report.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="run folder, as in runs/toy-comas")

    view = _command(commands, "view", _view, "read the discussions of a run")
    view.add_argument("run_dir", type=Path, metavar="RUN", help="run folder, as in runs/toy-comas")
    view.add_argument("--question", metavar="ID", help="id of a question; without it, the questions are listed")
    view.add_argument("--step", type=int, help="only this step (default: all)")

    rescore = _command(
        commands, "rescore", _rescore, "apply a method's reward rules to stored trajectories; writes to stdout"
    )
    rescore.add_argument("file", type=Path, metavar="FILE.jsonl", help="trajectories, .jsonl or .jsonl.gz")
    rescore.add_argument("--method", required=True, help="name of the method, as in comas")
    rescore.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="option of the method, as in unreadable=drop"
    )

    evaluate = _command(commands, "evaluate", _evaluate, "measure policies on benchmarks under inference setups")
    _evaluate_arguments(evaluate)
    evaluate.set_defaults(resumes="; the same command goes on where this one stopped")

    grade = _command(commands, "grade", _grade, "verify stored responses against their gold answers")
    grade.add_argument(
        "file", type=Path, metavar="FILE.jsonl", help="records with task, response and answer, .jsonl or .jsonl.gz"
    )
    grade.add_argument(
        "--out", type=Path, metavar="FILE", help="new file for the records with their verdicts (default: stdout)"
    )
    grade.add_argument(
        "--workers", type=_count, metavar="N", help="how many are verified at a time (default: one a core)"
    )

    compare = _command(commands, "compare", _compare, "tables and figures of the paper, measured beside published")
    compare.add_argument("names", nargs="+", metavar="NAME", help="table1, table3 to table9, figure3 to figure5")
    compare.add_argument("--profile", default="toy", help="of the runs: runs/PROFILE-VARIANT-seedN (default: toy)")
    compare.add_argument("--runs", type=Path, default=Path("runs"), metavar="DIR", help="default: runs")
    compare.add_argument(
        "--results", type=Path, metavar="DIR", help="instead of runs, tables that --save wrote, as in analysis/toy"
    )
    compare.add_argument("--save", type=Path, metavar="DIR", help="also write what was measured, in small tables")
    compare.add_argument("--out", type=Path, metavar="DIR", help="default: RUNS/comparison-PROFILE")

    _command(
        commands, "plan", _plan, "what runs would take: reads lines `EXPERIMENT.yaml --set KEY=VALUE ...` from stdin"
    )

    _command(commands, "doctor", _doctor, "what is installed and what works on this machine")
    return top


def _command(commands, name: str, run, help_text: str) -> argparse.ArgumentParser:
    command = commands.add_parser(name, help=help_text, description=help_text[0].upper() + help_text[1:] + ".")
    command.set_defaults(run=run, resumes="")
    return command


def _evaluate_arguments(command: argparse.ArgumentParser) -> None:
    from marti_ext.benchmarks import PAPER, TOY
    from marti_ext.setups import PAPER as SETUPS_OF_THE_PAPER
    from marti_ext.setups import SETUPS

    who = command.add_mutually_exclusive_group(required=True)
    who.add_argument(
        "--policies",
        nargs="+",
        metavar="RUN|MODEL",
        help="a finished run (its trained and untrained policies), or models: folders or names on the Hugging Face hub",
    )
    who.add_argument(
        "--endpoint", metavar="URL", help="a chat server that speaks OpenAI's protocol; its key: OPENAI_API_KEY"
    )
    command.add_argument("--model", metavar="NAME", help="the model that the endpoint is asked for")
    command.add_argument("--untrained", metavar="MODEL", help="with models: the one that the others are compared with")
    command.add_argument(
        "--together", action="store_true", help="with a run: its policies take turns as participants of a setup"
    )
    command.add_argument(
        "--benchmarks",
        nargs="+",
        metavar="NAME|FILE",
        help=f"of {', '.join((*PAPER, *TOY))}, or files of question records (default: those of the run, else the first {len(PAPER)})",
    )
    command.add_argument(
        "--setups",
        nargs="+",
        choices=list(SETUPS),
        default=list(SETUPS_OF_THE_PAPER),
        help=f"default: {' '.join(SETUPS_OF_THE_PAPER)}",
    )
    command.add_argument("--limit", type=_count, metavar="N", help="only the first N questions of each benchmark")
    command.add_argument("--seeds", nargs="+", type=int, default=[1], metavar="SEED", help="default: 1")
    command.add_argument(
        "--out", type=Path, metavar="DIR", help="default: RUN/benchmarks, or runs/evaluation-NAME of the first model"
    )
    command.add_argument("--temperature", type=float, help="default: that of the run, else 0.7")
    command.add_argument("--max-response-tokens", type=_count, metavar="N", help="default: that of the run, else 2048")
    command.add_argument(
        "--max-prompt-tokens",
        type=_count,
        metavar="N",
        help="default: that of the run, else 28672; of an endpoint, characters, without a limit",
    )
    command.add_argument("--engine", choices=["auto", "vllm", "transformers"], default="auto")
    command.add_argument("--gpus", type=_count, default=1, metavar="N", help="of one vLLM engine (tensor parallelism)")
    command.add_argument(
        "--requests", type=_count, default=64, metavar="N", help="in flight at an endpoint (default: 64)"
    )


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number from 1, found {text!r}")
    return int(text)


def _train(args: argparse.Namespace) -> None:
    from marti_ext.config import ConfigError, is_local_model, load_config, problem_on_hub
    from marti_ext.dryrun import describe, missing_gpus
    from marti_ext.progress import Display
    from marti_ext.rundir import RunDir, RunInUse

    display = Display()
    try:
        config = load_config(args.config, args.set, must_exist=not args.dry_run)
    except ConfigError as error:
        _fail(f"{args.config}: {len(error.problems)} problem(s)\n{error}")
    if args.dry_run:
        print(describe(config))
        return
    run = RunDir(config)
    on_hub = sorted({model for model in config.policies().values() if not is_local_model(model)})
    checks = (run.problem(args.resume), *missing_gpus(config), *map(problem_on_hub, on_hub))
    if problems := [problem for problem in checks if problem]:
        _fail("\n".join(problems))
    display.say(f"run {config.name}: {args.config} -> {run.path}")
    from marti_ext.cluster import CannotLaunch
    from marti_ext.evaluation import OtherSettings
    from marti_ext.questions import BadData
    from marti_ext.trainer import NoGradient, train

    try:
        train(config, run, display)
    except (CannotLaunch, NoGradient, RunInUse, OtherSettings, BadData) as error:
        _fail(str(error))
    from marti_ext.reporting import report

    print(report(run.path))


def _report(args: argparse.Namespace) -> None:
    from marti_ext.rundir import check_run

    try:
        runs = [check_run(run) for run in args.runs]
    except LookupError as error:
        _fail(str(error))
    from marti_ext.reporting import report

    for run in runs:
        print(report(run))


def _view(args: argparse.Namespace) -> None:
    from marti_ext.rundir import check_run
    from marti_ext.view import view

    try:
        view(check_run(args.run_dir), args.question, args.step)
    except (ValueError, LookupError) as error:
        _fail(str(error))


def _rescore(args: argparse.Namespace) -> None:
    import json

    from marti_ext.config import ConfigError, load_method
    from marti_ext.questions import TASKS
    from marti_ext.trajectory import read_trajectories

    sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")  # what it writes is JSON, on any terminal
    try:
        method = load_method(args.method, args.set)
        for place, record, trajectory in read_trajectories(args.file):
            question = trajectory.question
            if method.sees_answers and (question.answer is None or question.task not in TASKS):
                raise ValueError(f"{place}: method {args.method} needs question.answer and a known question.task")
            for turn in trajectory.turns:
                turn.score = turn.reward = None
            method.reward(trajectory)
            for stored, turn in zip(record["turns"], trajectory.turns, strict=True):
                stored |= {"score": turn.score, "reward": turn.reward}
            print(json.dumps(record | {"method": args.method}, ensure_ascii=False))
    except ConfigError as error:
        _fail("\n".join(error.problems))
    except ValueError as error:
        _fail(str(error))


def _evaluate(args: argparse.Namespace) -> None:
    from marti_ext.cluster import CannotLaunch
    from marti_ext.evaluate import run_evaluation
    from marti_ext.progress import Display
    from marti_ext.rundir import RunInUse

    try:
        print(run_evaluation(args, Display()))
    except (CannotLaunch, ConnectionError, RunInUse, ValueError) as error:
        _fail(str(error))


def _grade(args: argparse.Namespace) -> None:
    from marti_ext.grade import grade_file

    try:
        grade_file(args.file, args.out, args.workers)
    except (ValueError, RuntimeError) as error:  # the latter: no process with math-verify, or none for a program
        _fail(str(error))


def _compare(args: argparse.Namespace) -> None:
    from marti_ext.reporting.compare import NAMES, compare
    from marti_ext.reporting.results import collect, read_results

    if unknown := [name for name in args.names if name not in NAMES]:
        _fail(f"{', '.join(unknown)}: no such table or figure; known: {', '.join(NAMES)}")
    try:
        results = read_results(args.results) if args.results else collect(args.runs, args.profile)
    except (LookupError, OSError) as error:
        _fail(str(error))
    if args.save:
        results.write(args.save)
    print(compare(args.names, results, args.out or args.runs / f"comparison-{args.profile}"))


def _plan(args: argparse.Namespace) -> None:
    from marti_ext.config import ConfigError
    from marti_ext.plan import plan

    try:
        plan(sys.stdin.read().splitlines())
    except ConfigError as error:
        _fail("\n".join(error.problems))


def _doctor(args: argparse.Namespace) -> None:
    from marti_ext.doctor import doctor

    sys.exit(doctor())


def _fail(message: str) -> None:
    sys.exit(f"error: {message}")
