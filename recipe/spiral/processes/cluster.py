"""Which Ray a run uses: the cluster that it is told of, and otherwise one of its own, which nobody else can reach, and
of which nothing is left when the run has ended.

A Ray of its own, and all that asks it for the node's address (TransferQueue, vLLM's HTTP servers, the ranks'
rendezvous), listens on the loopback address. Ray's session and the secret that it asks for are in a folder that only
the user can enter.
"""

from __future__ import annotations

import os
import secrets
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from omegaconf import DictConfig, open_dict

from .launch import LOCK, is_in_use, only_one, set_environment

#: Settings of ``ray.init`` for a Ray of one's own. For a cluster that is there already Ray refuses them.
_OF_ITS_OWN = ("num_cpus", "num_gpus", "object_store_memory")
#: What makes a run on one machine listen on its loopback address alone, and Ray ask for its secret.
LOOPBACK = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # Ray's only switch for it, on Linux, too; read when it is imported
    "RAY_AUTH_MODE": "token",
    "VLLM_HOST_IP": "127.0.0.1",
    "GLOO_SOCKET_IFNAME": "lo",
    "NCCL_SOCKET_IFNAME": "lo",
}
_PREFIX = "spiral-"
#: A file in such a folder, and in no other: only a folder that has it is ever removed.
_MARK = "made_for_ray"
#: Characters of a temporary folder below which Ray's sockets still have paths that the system takes (107).
_LONGEST = 20
#: Seconds: a younger folder whose lock file is empty may be one whose run is just about to lock it.
_YOUNG = 60.0


def cluster_address(config: DictConfig) -> str | None:
    """The cluster to join, by ``ray_kwargs.ray_init.address`` or RAY_ADDRESS; None: a Ray of the run's own."""
    address = config.ray_kwargs.ray_init.get("address") or os.environ.get("RAY_ADDRESS")
    return str(address) if address and address != "local" else None


def choose_ray(config: DictConfig) -> None:
    """Say in ``ray_kwargs.ray_init`` which Ray it is.

    Unless it is told, Ray joins what the last ``ray start`` noted in the temporary folder, dead or alive.
    """
    address, settings = cluster_address(config), config.ray_kwargs.ray_init
    with open_dict(settings):
        settings.address = address or "local"
        if address is not None:
            for name in _OF_ITS_OWN:
                settings.pop(name, None)


def listen_on_loopback(config: DictConfig) -> None:
    """Set the environment of a run without a cluster. To be called before anything imports Ray."""
    if cluster_address(config) is None:
        set_environment(LOOPBACK)


@contextmanager
def own_ray(config: DictConfig) -> Iterator[None]:
    """Give the run's own Ray a private folder for the block; nothing happens with a cluster."""
    if cluster_address(config) is not None:
        yield
        return
    usual, before = tempfile.gettempdir(), os.environ.get("TMPDIR")
    variables: dict[str, str] = {}
    try:
        with ExitStack() as stack:
            folder = stack.enter_context(_private(_temporary()))
            temporary = folder if len(usual) <= _LONGEST else stack.enter_context(_private(Path(usual)))
            token = folder / "auth_token"
            token.touch(mode=0o600)
            token.write_text(secrets.token_hex(32))
            # vLLM's servers ask for a key that nobody has: verl reaches them through Ray. Their sockets are here, too.
            variables |= {
                "RAY_AUTH_TOKEN_PATH": str(token),
                "VLLM_API_KEY": secrets.token_urlsafe(32),
                "VLLM_RPC_BASE_PATH": str(folder),
                # What the run's processes leave in the temporary folder goes with them (verl: a lock for each
                # checkpoint; W&B: two folders), but for what torch has compiled.
                "TORCHINDUCTOR_CACHE_DIR": str(Path(usual) / f"torchinductor_{os.getuid()}"),
            }
            set_environment(variables)
            os.environ["TMPDIR"] = str(temporary)
            with open_dict(config.ray_kwargs.ray_init):
                config.ray_kwargs.ray_init.setdefault("_temp_dir", str(folder / "ray"))
            yield
    finally:
        os.environ.pop("TMPDIR", None)
        if before is not None:
            os.environ["TMPDIR"] = before
        for name, value in variables.items():
            if os.environ.get(name) == value:
                del os.environ[name]


@contextmanager
def _private(base: Path) -> Iterator[Path]:
    """A folder in a temporary one for the block, which only the user can enter."""
    remove_stale(base)
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=base))  # mode 0700
    try:
        with only_one(folder, "RAY_TMPDIR"):
            (folder / _MARK).touch()
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def remove_stale(base: Path) -> None:
    """Remove the folders that this user's killed runs made here: they have the mark, and nobody holds their locks. A
    run's own folder, which may lie here too, has no mark."""
    for folder in base.glob(f"{_PREFIX}*"):
        with suppress(OSError):
            state, lock = folder.lstat(), (folder / LOCK).lstat()
            ours = stat.S_ISDIR(state.st_mode) and state.st_uid == os.getuid() and (folder / _MARK).is_file()
            was_locked = lock.st_size > 0 or time.time() - state.st_mtime > _YOUNG  # whoever locks it writes its number
            if ours and was_locked and stat.S_ISREG(lock.st_mode) and not is_in_use(folder):
                shutil.rmtree(folder, ignore_errors=True)


def _temporary() -> Path:
    base = Path(os.environ.get("RAY_TMPDIR") or tempfile.gettempdir())
    return base if len(str(base)) <= _LONGEST else Path("/tmp")
