"""Which Ray a run uses: the cluster that it is told of, and otherwise one of its own, which nobody else can reach.

A Ray of its own, and all that asks it for the node's address (TransferQueue, vLLM's HTTP servers, the ranks'
rendezvous), listens on the loopback address. Ray's session and the secret that it asks for are in a folder that only
the user can enter. Its name is made of the run's, so that the next start removes what a killed one left.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from omegaconf import DictConfig, open_dict

from .launch import set_environment

#: Settings of ``ray.init`` for a Ray of one's own. For a cluster that is there already Ray refuses them.
_OF_ITS_OWN = ("num_cpus", "num_gpus", "object_store_memory")
#: What makes a run on one machine listen on its loopback address alone, and Ray ask for its secret.
LOOPBACK = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # Ray's only switch for it, on Linux, too; read when it is imported
    "RAY_AUTH_MODE": "token",
    "VLLM_HOST_IP": "127.0.0.1",
    "GLOO_SOCKET_IFNAME": "lo",
    "NCCL_SOCKET_IFNAME": "lo",
    "RAY_gcs_rpc_server_reconnect_timeout_s": "15",  # a killed run's last processes wait so long, instead of a minute
}
#: A file in such a folder, and in no other: only a folder that has it is ever removed.
MARK = "made_for_ray"
#: Characters of a temporary folder below which Ray's sockets still have paths that the system takes (107).
_LONGEST = 20


def cluster_address(config: DictConfig) -> str | None:
    """The cluster to join, by ``ray_kwargs.ray_init.address`` or RAY_ADDRESS; None: a Ray of the run's own."""
    address = config.ray_kwargs.ray_init.get("address") or os.environ.get("RAY_ADDRESS")
    return str(address) if address and address != "local" else None


def listen_on_loopback(config: DictConfig) -> None:
    """Set the environment of a run without a cluster. To be called before anything imports Ray."""
    if cluster_address(config) is None:
        set_environment(LOOPBACK)


@contextmanager
def chosen_ray(config: DictConfig) -> Iterator[Path | None]:
    """Say in ``ray_kwargs.ray_init`` which Ray it is, and give one of the run's own a private folder for the block.

    Unless it is told, Ray joins what the last ``ray start`` noted in the temporary folder, dead or alive. The block has
    the folder of Ray's sessions; None: it is a cluster's.
    """
    address, settings = cluster_address(config), config.ray_kwargs.ray_init
    with open_dict(settings):
        settings.address = address or "local"
        for name in _OF_ITS_OWN if address else ():
            settings.pop(name, None)
    if address is not None:
        yield None
        return
    usual = tempfile.gettempdir()
    base = next(place for place in (os.environ.get("RAY_TMPDIR"), usual, "/tmp") if place and len(place) <= _LONGEST)
    folder = _private(Path(base), str(config.run_dir))
    token = folder / "auth_token"
    token.touch(mode=0o600)
    token.write_text(secrets.token_hex(32))
    os.environ |= {
        "RAY_AUTH_TOKEN_PATH": str(token),
        "VLLM_RPC_BASE_PATH": str(folder),  # vLLM's sockets
        # What the run's processes leave in the temporary folder goes with them (verl: a lock for each checkpoint; W&B:
        # two folders), but for what torch has compiled.
        "TORCHINDUCTOR_CACHE_DIR": os.environ.get("TORCHINDUCTOR_CACHE_DIR")
        or str(Path(usual, f"torchinductor_{os.getuid()}")),
        "TMPDIR": str(folder) if len(usual) <= _LONGEST else usual,
    }
    with open_dict(settings):
        settings.setdefault("_temp_dir", str(folder / "ray"))
    try:
        yield Path(settings._temp_dir)
    finally:
        _remove(folder)


def _private(base: Path, of: str) -> Path:
    """Make a run's own folder in a temporary one, which only the user can enter, in place of what a killed start left.
    Raises FileExistsError: somebody else has it."""
    name = hashlib.sha256(f"{os.getuid()} {Path(of).resolve()}".encode()).hexdigest()[:8]
    folder = base / f"spiral-{name}"
    if (folder / MARK).is_file() and folder.lstat().st_uid == os.getuid():
        _remove(folder)
    folder.mkdir(mode=0o700)
    (folder / MARK).touch()
    return folder


def _remove(folder: Path) -> None:
    """Remove such a folder, its mark last, so that what a kill leaves of it is removed by the next start."""
    for path in folder.glob("*"):  # of one that is gone already, none
        if path.name != MARK:
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)
