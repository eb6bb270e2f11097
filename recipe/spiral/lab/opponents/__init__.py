"""Players that never learn, by kind: computed ones, and a model behind an endpoint."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from ...extensions import Kind
from ...games import resolve
from ...opponents import fixed_opponents
from . import alphabeta, perfect
from .alphabeta import AlphaBetaPlayer
from .api_costs import COSTS, Costs
from .api_player import ApiPlayer
from .api_settings import API, ApiSettings
from .perfect import PerfectPlayer


def _asked(run_dir: str | None = None, **settings: Any) -> ApiPlayer:
    return ApiPlayer(ApiSettings.from_mapping(settings), API, Costs(Path(run_dir) / COSTS if run_dir else None))


#: An endpoint's player should serve all games of its process, because its places are its own.
KINDS = {
    **fixed_opponents.OURS,
    "perfect": Kind(PerfectPlayer, perfect.check_game),
    "alphabeta": Kind(AlphaBetaPlayer, alphabeta.check_game),
    API: Kind(_asked, resolve),
}
#: ``fixed_opponents.make_player``, with these kinds.
make_player = partial(fixed_opponents.make_player, known=KINDS)


def check(kind: str, settings: Mapping[str, Any] | None, game_ids: Iterable[str]) -> None:
    """That such a player can be made here, and plays these games; errors as of ``make_player``, or a ValueError."""
    make_player(kind, settings)
    for game_id in game_ids:
        KINDS[kind].check_game(game_id)
