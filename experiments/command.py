"""How an experiment's command starts and ends: Hydra composes its settings, and its result becomes a file and pages."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from experiments import pages
from experiments.result import BadResult, Result
from recipe.spiral.processes.terminal import fail
from recipe.spiral.storage.disk import unwritable

CONFIGS = Path(__file__).with_name("config")


class Failed(RuntimeError):
    """A run or an evaluation failed; the message says which, and where its own message is."""


def run_experiment(config: str, run: Callable[[dict[str, Any], list[str]], Result]) -> NoReturn:
    """End the process with status 0; or with a line and 1: it failed, 2: the command line or a setting is wrong, 130:
    it was interrupted.

    Args:
        config: the name of its config, which has all settings.
        run: makes the result, of the settings and the overrides.
    """
    sys.exit(_status(config, run))


def _status(config: str, run: Callable[[dict[str, Any], list[str]], Result]) -> int:
    known = OmegaConf.load(CONFIGS / f"{config}.yaml").keys() - {"defaults", "hydra"}
    jobs: list[tuple[Any, list[str]]] = []

    def collect(composed: DictConfig) -> None:
        settings = OmegaConf.to_container(composed, resolve=True, throw_on_missing=True)
        jobs.append((settings, list(HydraConfig.get().overrides.task)))

    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra raises its errors, and does not print them and end the process
    try:
        hydra.main(config_path=str(CONFIGS), config_name=config, version_base=None)(collect)()
        for settings, overrides in jobs:
            for key in settings.keys() - known:
                raise ValueError(_unknown(key, known))
            if why := unwritable(folder := pages.folder_of(settings, overrides)):
                raise ValueError(f"output={folder}: {why}; name another folder")
            for file in pages.publish(run(settings, overrides), settings, overrides):
                print(file)
    except (BadResult, Failed, ImportError) as error:  # a BadResult is a ValueError, but no bad setting
        return fail(error, 1)
    except (HydraException, OmegaConfBaseException, ValueError) as error:
        text = re.split(" full_key: | Config search path: ", " ".join(str(error).split()))[0]
        if match := re.match("Could not override '(.*?)'", text):
            text = _unknown(match[1], known)
        elif re.search("Missing mandatory value|Cannot find primary config", text):
            names = sorted(file.stem for file in CONFIGS.glob("*.yaml") if f"- {config}\n" in file.read_text())
            text = f"{text.rpartition('interpolation: ')[2]}; an experiment is named by -cn: {', '.join(names)}"
        return fail(text, 2)
    except (FileExistsError, NotADirectoryError, PermissionError) as error:
        return fail(f"{error.filename}: cannot be used ({error.strerror}); name another folder", 2)
    except KeyboardInterrupt:
        return fail("interrupted; the same command goes on where it was", 130)
    return 0


def _unknown(key: str, known: set[Any]) -> str:
    return f"{key}: there is no such setting; there are {', '.join(sorted(map(str, known)))}"
