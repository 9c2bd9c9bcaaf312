"""python -m marti_ext COMMAND: what a person types. Each command imports what it needs, so that help is instant."""

import argparse
import sys
from pathlib import Path

DESCRIPTION = "CoMAS: LLM agents that solve, criticise and score each other's answers, and learn from it."


def main(arguments: list[str] | None = None) -> None:
    args = parser().parse_args(arguments)
    try:
        args.run(args)
    except KeyboardInterrupt:
        sys.exit("\ninterrupted")
    except BrokenPipeError:
        sys.stderr.close()  # the reader of a pipe, such as head, has left


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

    _command(commands, "doctor", _doctor, "what is installed and what works on this machine")
    return top


def _command(commands, name: str, run, help_text: str) -> argparse.ArgumentParser:
    command = commands.add_parser(name, help=help_text, description=help_text[0].upper() + help_text[1:] + ".")
    command.set_defaults(run=run)
    return command


def _train(args: argparse.Namespace) -> None:
    from marti_ext.config import ConfigError, load_config
    from marti_ext.dryrun import describe, missing
    from marti_ext.progress import Display
    from marti_ext.rundir import RunDir

    display = Display()
    try:
        config = load_config(args.config, args.set)
    except ConfigError as error:
        _fail(f"{args.config}: {len(error.problems)} problem(s)\n{error}")
    if args.dry_run:
        print(describe(config))
        return
    run = RunDir(config)
    if problem := run.problem(args.resume):
        _fail(problem)
    if lacking := missing(config, running=True):
        _fail("this machine cannot run the experiment\n" + "\n".join(f"- {item}" for item in lacking))
    display.say(f"run {config.name}: {args.config} -> {run.path}")
    from marti_ext.trainer import NoGradient, train  # the heavy imports, last

    try:
        train(config, run, display)
    except NoGradient as error:
        _fail(str(error))
    from marti_ext.reporting import report

    print(report(run.path))


def _report(args: argparse.Namespace) -> None:
    from marti_ext.config import ConfigError
    from marti_ext.reporting import report
    from marti_ext.rundir import check_run

    try:
        runs = [check_run(run) for run in args.runs]
    except ConfigError as error:
        _fail(str(error))
    for run in runs:
        print(report(run))


def _view(args: argparse.Namespace) -> None:
    from marti_ext.config import ConfigError
    from marti_ext.rundir import check_run
    from marti_ext.view import view

    try:
        view(check_run(args.run_dir), args.question, args.step)
    except (ConfigError, LookupError) as error:
        _fail(str(error.args[0]))


def _rescore(args: argparse.Namespace) -> None:
    import yaml
    from pydantic import ValidationError

    from marti_ext.methods import METHODS
    from marti_ext.trajectory import read_trajectories

    if args.method not in METHODS:
        _fail(f"--method: found {args.method!r}, expected one of {', '.join(METHODS)}")
    if not args.file.is_file():
        _fail(f"{args.file}: no such file")
    method = METHODS[args.method]
    try:
        options = {key: yaml.safe_load(value) for key, _, value in (text.partition("=") for text in args.set)}
        rules = method(method.Options(**options), num_agents=1)
        for trajectory in read_trajectories(args.file):
            for turn in trajectory.turns:
                turn.score = turn.reward = None
            rules.reward(trajectory)
            print(trajectory.to_json())
    except (ValidationError, ValueError) as error:
        _fail(str(error))


def _doctor(args: argparse.Namespace) -> None:
    from marti_ext.doctor import doctor

    sys.exit(doctor())


def _fail(message: str) -> None:
    sys.exit(f"error: {message}")
