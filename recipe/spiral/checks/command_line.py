"""From a command line to the configs that it asks for: Hydra composes, and every refusal is one line.

Presets and sweeps lie in ``recipe/spiral/config``. A user's own folder comes before them: the one of ``--config-dir``,
or the folder ``config`` of the current directory, if it has a folder of one of the config groups.
"""

from __future__ import annotations

import itertools
import logging
import os
import re
import sys
import textwrap
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir

import hydra
from dotenv import load_dotenv
from hydra._internal.core_plugins.basic_launcher import BasicLauncher
from hydra._internal.utils import get_args_parser
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.hydra_config import HydraConfig
from hydra.core.plugins import Plugins
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from hydra.plugins.search_path_plugin import SearchPathPlugin
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from ..processes import masking
from ..processes.terminal import note
from .errors import ConfigError, refusals, require
from .names import CONFIG, GROUPS, Names, of_presets, walk
from .settle import idle, settle

#: A config, and Hydra's own node that belongs to it.
Job = tuple[DictConfig, DictConfig]

#: Settings of folders that a start writes.
_WRITTEN = ("run_dir", "eval_dir", "trainer.default_local_dir", "hydra.sweep.dir")
#: Without Hydra's own notes and folders, which a dry run does not make.
_NOTHING_WRITTEN = ("hydra.output_subdir=null", "hydra.run.dir=.", "hydra.sweep.subdir=.", "hydra/job_logging=disabled")
#: As Hydra's grammar has it: any case, and blanks around the value.
_DRY_RUN = re.compile(r"\+{0,2}dry_run=\s*true\s*", re.IGNORECASE)
_OVERRIDE = re.compile(r"~.+|\+{0,2}[\w.$/@:-]+=\s*\S.*", re.DOTALL)
_QUOTES = (
    "put the argument in single quotes, and a text with other signs in double ones within: 'games=[Nim, Pig]', "
    "'run_dir=\"a (b)\"'"
)


def _check_whole(setting: str, folder: object) -> None:
    """Hydra, verl and Ray would make a folder of the name ~."""
    why = "~ is not expanded; write the whole path, or ${oc.env:HOME} in its place"
    require(not str(folder).startswith("~"), f"{setting}={folder}: {why}")


def compose(program: str) -> list[Job]:
    """What ``sys.argv`` asks for: one job, or with ``-m`` a sweep's jobs in order; none where Hydra printed something
    instead (``--help``, ``--cfg``).

    Args:
        program: the name of the main config, ``spiral_trainer`` or ``eval``.

    Raises:
        ConfigError: the command line cannot be composed, or has a key that nobody reads, or ``.env`` is no text.
    """
    try:
        load_dotenv(Path.cwd() / ".env", encoding="utf-8-sig")  # what is set already wins
        gettempdir()
    except FileNotFoundError as error:
        why = f"{error.strerror}; go to another folder, or make room"
        raise ConfigError(f"the current folder, or one for temporary files (TMPDIR): {why}") from error
    except (OSError, ValueError) as error:
        raise ConfigError(f".env: cannot be read ({error}); save it as UTF-8 text, or move it away") from error
    parser = get_args_parser()
    parser.allow_abbrev = False  # --experiment is not short for a flag of Hydra's
    # settings may stand on both sides of a flag; argparse would have all of them together
    flags, others = parser.parse_known_intermixed_args()
    given = [argument for argument in sys.argv[1:] if argument not in flags.overrides] + flags.overrides
    sys.argv[1:] = given
    if {"-h", "--help"} & {*given}:
        print(_usage(program), end="")
        return []
    jobs: list[Job] = []

    def collect(config: DictConfig) -> None:
        if not HydraConfig.get().launcher._target_.endswith(".BasicLauncher"):  # it composes in another process
            raise ConfigError("hydra/launcher: must be basic; several jobs at once: jobs_at_once=2")
        for key, value in walk(OmegaConf.to_container(config, resolve=False)):
            if isinstance(value, str) and "${hydra:" in value:  # of which nothing is known outside of this function
                OmegaConf.update(config, key, OmegaConf.select(config, key))
        jobs.append((config, HydraConfig.get()))
        if len(jobs) % 10 == 0:
            note(f"{len(jobs)} jobs of the sweep are composed")

    with refusals():
        names = Names(program)
    hardware = os.environ.get("SPIRAL_HARDWARE") or "cpu"
    require(hardware in ("cpu", "gpu"), f"SPIRAL_HARDWARE={hardware}: must be cpu or gpu")
    for option in others:
        raise ConfigError(_no_such_flag(option, names))
    for override in itertools.filterfalse(_OVERRIDE.fullmatch, flags.overrides):
        raise ConfigError(f"{override}: must be name=value (null: nothing); where it has blanks, {_QUOTES}")
    Plugins.instance().register(UserFolder)
    logging.getLogger(BasicLauncher.__module__).setLevel(logging.WARNING)  # it prints overrides, keys included
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra raises its errors, and does not print them and end the process
    with TemporaryDirectory() as aside:
        if any(_DRY_RUN.fullmatch(argument) for argument in given):  # a sweep's notes cannot be switched off
            sys.argv += [*_NOTHING_WRITTEN, f"hydra.sweep.dir={aside}"]
        try:
            for name, _, folder in (argument.lstrip("+").partition("=") for argument in given):
                if name in _WRITTEN:
                    _check_whole(name, folder.strip("'\""))
            hydra.main(config_path=str(CONFIG), config_name=program, version_base=None)(collect)()
        except (HydraException, OmegaConfBaseException, YAMLError, RecursionError, ValueError) as error:
            raise ConfigError(_in_a_line(error, names)) from error
        except BrokenPipeError:  # nobody reads what Hydra prints
            raise
        except OSError as error:  # of the run's folder, where Hydra's notes go, too
            place = f"{'eval_dir' if program == 'eval' else 'run_dir'}: {error.filename or 'its disk'}"
            raise ConfigError(f"{place}: cannot be used ({error.strerror}); give another") from error
        finally:
            for config, _ in jobs:
                masking.learn(config)
            noted = [node for _, node in jobs if node.output_subdir is not None]
            for folder in {folder for node in noted for folder in (node.runtime.output_dir, node.sweep.dir)}:
                masking.hide_hydras(Path(folder))
            sys.argv[1:] = masking.without_secrets(sys.argv[1:])  # which trackers note
    require(bool(jobs) or not flags.multirun, "-m: there is no job, as a list is empty")
    without_effect: dict[str, None] = {}
    for config, hydra_config in jobs:
        alone = hydra_config.mode != RunMode.MULTIRUN and "hydra.mode=RUN" not in given  # which a sweep's jobs have
        if alone and hydra_config.sweeper.get("params"):
            swept = next((argument for argument in given if argument.lstrip("+").startswith("sweep=")), "it")
            raise ConfigError(f"{swept}: a sweep, of which one run would be left; start it with -m: -m {swept}")
        overrides = [str(override) for override in OmegaConf.to_container(hydra_config.overrides.task, resolve=False)]
        names.refuse_unknown(config, [*given, *overrides], hydra_config)
        with refusals():
            for setting in _WRITTEN:
                _check_whole(setting, OmegaConf.select(config, setting))
        if program == "spiral_trainer":
            named = [override.lstrip("+").split("=")[0] for override in overrides]
            without_effect |= dict.fromkeys(idle(config, named))
            try:
                settle(config, {*named, *of_presets(hydra_config)})
            except (ValueError, ImportError, OmegaConfBaseException) as error:
                raise ConfigError(_in_a_line(error, names)) from error
    for line in without_effect:
        note(line)
    return jobs


def _usage(program: str) -> str:
    """The page of ``--help``: the settings that a first run needs, the presets, and where the rest stands."""
    page, folders = Path(__file__).with_name(f"help_{program}.txt"), [CONFIG, *filter(None, [_user_folder()])]
    presets = {}
    for group in ("experiment", "sweep"):
        names = ", ".join(sorted({file.stem for folder in folders for file in (folder / group).glob("*.yaml")}))
        presets[group] = textwrap.fill(names, 112, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)
    return page.read_text(encoding="utf-8").format(**presets)


def is_sweep(jobs: Sequence[Job]) -> bool:
    return jobs[0][1].mode == RunMode.MULTIRUN


class UserFolder(SearchPathPlugin):
    """Puts the user's own config folder before the packaged one."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        if (folder := _user_folder()) is not None:
            search_path.prepend("user", f"file://{folder.absolute()}")


def _user_folder() -> Path | None:
    if (given := get_args_parser().parse_known_args()[0].config_dir) is not None:
        return Path(given)
    usual = Path("config")
    return usual if any((usual / group).is_dir() for groups in GROUPS.values() for group in groups) else None


def _in_a_line(error: Exception, names: Names) -> str:
    """Hydra's message for people: the override as it was written, and the nearest name that exists."""
    if isinstance(error, MissingConfigException) and (error.options or "model=" in " ".join(sys.argv)):
        return _no_such_option(error)
    if isinstance(error, OverrideParseException):
        return _unreadable(error)
    if isinstance(error, RecursionError):
        error = ValueError("leads back to itself, as a preset by its defaults, or has too many brackets")
    text = " ".join(f"{error} {error.__cause__ or ''}".split()).partition(" Config search path: ")[0]
    if match := re.match("Cannot find primary config '(.*?)'", text):
        return f"--config-name {match[1]}: there is no such config; a preset is named by +experiment={match[1]}"
    if match := re.match(r"Ambiguous value for argument '(.*?)' 1\. ", text):
        return f"{match[1]}: a list must be in brackets, and a sweep starts with -m; for a text {_QUOTES}"
    if text.startswith("Config group override must be a string"):  # which names none
        return f"{next((o for o in sys.argv[1:] if o.endswith('=null')), 'null')}: must be a mapping, or name a file"
    if match := re.match(r"Error merging override (.*?) Cannot merge .*object_type=(list|dict)", text):
        return f"{match[1]}: must be a {'list' if match[2] == 'list' else 'mapping'}"
    if match := re.match(r"(?:In '.*?': )?Could not (override|delete from config\.) '(?P<key>[^'@]+)", text):
        key = match["key"]
        override = next((argument for argument in sys.argv[1:] if argument.lstrip("~").split("=")[0] == key), key)
        if not names.knows(key):
            return names.unknown(override)
        if match[1] == "override":
            return f"{override}: must be written with a plus: +{override}"
    reader = type(error) in (ValueError, UnicodeDecodeError)  # Hydra's, which names no file
    return ": ".join([*(argument for argument in sys.argv[1:] if reader and argument.startswith("+")), text])


def _unreadable(error: OverrideParseException) -> str:
    """Most often a shell took quotes away, or cut at a blank."""
    if error.__cause__ is not None:  # of one of Hydra's functions
        return " ".join(f"{error.override}: {error.__cause__}".split())
    said = re.sub("LexerNo.*", "cannot be read", error.message.splitlines()[0].partition(" expecting ")[0])
    return f"{error.override}: {said}; close each bracket and quote, and {_QUOTES}"


def _no_such_flag(option: str, names: Names) -> str:
    """Somebody wrote a setting as other programs want it, ``--dry-run`` or ``--seed=3``, or mistyped a flag."""
    name, _, value = option.lstrip("-").partition("=")
    key = name.replace("-", "_")
    near = key if names.knows(key) else names.nearest(key)
    near = names.meant(key, value) or (near and f"{'+' * (near in ('experiment', 'sweep'))}{near}={value or '...'}")
    mend = f"did you mean `{near}`?" if near else "--help prints all flags"
    return f"{option}: there is no such flag; {mend}"


def _no_such_option(error: MissingConfigException) -> str:
    missing = str(error.missing_cfg_file)
    group, _, option = missing.rpartition("/")
    folders = [folder / group.split("/")[0] for folder in filter(None, (CONFIG, _user_folder()))]
    ours = {file.stem for folder in folders for file in folder.glob("*.yaml")}  # verl has a group model, too
    known = sorted(ours & {*(error.options or ours)}) or error.options or []
    words = (word for word in sys.argv[1:] if word.lstrip("+").replace("=", "/", 1) == missing)
    override = next(words, f"{group}={option}")
    near = get_close_matches(option, known, n=1)
    mend = f"did you mean `{override.removesuffix(option)}{near[0]}`? " if near else ""
    if override.startswith("model="):
        path = override.removeprefix("model=")
        mend += f"for a model's folder or hub id write `model=hf actor_rollout_ref.model.path={path}`; "
    return f"{override}: unknown; {mend}" + (f"known: {', '.join(known)}" if known else "")
