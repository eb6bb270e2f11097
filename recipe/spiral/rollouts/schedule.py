"""Which games a run plays, with which keys, and in validation against whom: a function of the run's seed and a game's
index alone. Who plays a training game is decided when it is launched (``opponents.league``).
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from ..games import resolve
from ..opponents.fixed_opponents import MODEL, find_opponent, kinds, make_player
from ..players.prompts import check_style, get_template
from ..players.seats import Opponent, Seat
from ..players.seeds import GameKey, derive_seed

AGENT = "spiral_game"


@dataclass(frozen=True)
class GameShare:
    """A game and its share of all games, relative to the others'; None: the template or style of all games.

    Games that are trained begin with up to ``random_opening`` random moves.
    """

    id: str
    weight: float = 1.0
    template: str | None = None
    style: str | None = None
    random_opening: int = 0

    @classmethod
    def parse(
        cls, entry: str | Mapping[str, Any], setting: str = "games", find: Callable[[str], str] = resolve
    ) -> GameShare:
        """From a config entry: an id, or ``{id, weight, ...}``. ``find`` gives our id of a game.

        Raises:
            UnknownGame: no such game.
            ValueError: another key, a number out of its range, or no such template or style.
        """
        try:
            share = cls(entry) if isinstance(entry, str) else cls(**dict(entry))
        except (TypeError, ValueError) as error:
            raise ValueError(f"{setting}: {entry}: give an id, or {{id: ..., weight: ...}} ({error})") from error
        share, moves = replace(share, id=find(str(share.id))), share.random_opening
        if share.template is not None:
            get_template(share.template, f"{setting}: {share.id}: template")
        if share.style is not None:
            check_style(share.style, f"{setting}: {share.id}: style")
        if not isinstance(share.weight, int | float) or not 0 < share.weight < math.inf:
            raise ValueError(f"{setting}: {share.id} has weight={share.weight}: must be above 0; or leave the game out")
        if type(moves) is not int or moves < 0 or (moves and setting != "games"):
            raise ValueError(f"{setting}: {share.id} has random_opening={moves}: must be >= 0, and 0 in validation")
        return share


def plays_games(config: Any) -> bool:
    """Whether the rows of a run's data set are games; an extension may have others."""
    return bool(config.data.custom_cls.name == "GameDataset")


def parse_games(
    entries: Sequence[str | Mapping[str, Any]], setting: str = "games", find: Callable[[str], str] = resolve
) -> list[GameShare]:
    """A config's list of games. ``find`` is ``id_of`` for a config that a folder keeps, whose classes are not imported.

    Raises:
        ValueError: it is empty, names a game twice, or holds a bad entry.
    """
    shares = [GameShare.parse(entry, setting, find) for entry in entries]
    if not shares:
        raise ValueError(f"{setting}=[]: name at least one game")
    ids = [share.id for share in shares]
    if len(set(ids)) != len(ids):
        raise ValueError(f"{setting}: a game is named twice: {', '.join(ids)}; use weight instead")
    return shares


def validated_games(config: Any) -> list[GameShare]:
    """``validation.games``, or those of the training. Errors as of ``parse_games``."""
    own = config.validation.games
    return parse_games(config.games) if own is None else parse_games(own, "validation.games")


def training_row(
    shares: Sequence[GameShare], run_seed: int, starts_per_step: int | None, index: int, games_per_start: int = 1
) -> dict[str, Any]:
    """The ``index``-th start of a run: self-play of a game drawn by weight. Its games' keys are counted on from the
    row's, which is the first one's.

    Args:
        starts_per_step: how many starts a step has; None: not known, and the key has the step 0.
        index: counted through the whole run.
        games_per_start: so many games are played from it.
    """
    draw = random.Random(derive_seed(run_seed, "which game", index * games_per_start))
    share = draw.choices(shares, [share.weight for share in shares])[0]
    step, place = (-1, index) if starts_per_step is None else divmod(index, starts_per_step)
    first = place * games_per_start
    key = GameKey("train", run_seed, step + 1, first, group=first if games_per_start > 1 else None)
    return {**_row(share, key, index, Seat()), "__rollout_n__": 2 * games_per_start}


def matches(
    names: Any, opponents: Any, shares: Sequence[GameShare], required: bool = True
) -> list[tuple[str, list[GameShare]]]:
    """Each of validation's opponents, in their order, with the games that it plays.

    Args:
        names: ``validation.opponents``: kinds, or names of entries of ``opponents``.
        opponents: the config's ``opponents``.
        required: whether there must be games for each. Not where there is no validation.

    Raises:
        ValueError: one is there twice or unknown, its settings are wrong, or it plays none of the games.
        ImportError: one needs a package that is not installed; the message names the extra.
    """
    matched: dict[str, list[GameShare]] = {}
    for name in map(str, names):
        opponent, setting = find_opponent(name, opponents), f"validation.opponents: {name!r}"
        if name in matched or opponent.kind == MODEL:
            raise ValueError(f"{setting}: a model plays in training only, and another opponent is named once")
        try:
            make_player(opponent.kind, opponent.settings)
        except ValueError as error:
            raise ValueError(f"{setting}: {error}") from error
        matched[name] = [share for share in shares if opponent.plays(share.id) and _can(opponent.kind, share.id)]
        if required and not matched[name]:
            games = ", ".join(share.id for share in shares)
            raise ValueError(f"{setting}: plays none of the games of validation ({games}); leave it out")
    if required and not matched:
        raise ValueError("validation.opponents=[]: name one; trainer.test_freq=-1 leaves validation out")
    return [(name, played) for name, played in matched.items() if played]


def validation_rows(
    matches: Sequence[tuple[str, Sequence[GameShare]]], run_seed: int, games_per_role: int
) -> list[dict[str, Any]]:
    """Games against opponents, each with the games that it plays, in both roles.

    Every validation plays the same games, so that they compare. Another opponent at the end changes no other's games.
    """
    rows: list[dict[str, Any]] = []
    for opponent, shares in matches:
        for share, role, _ in product(shares, (0, 1), range(games_per_role)):
            key = GameKey("val", run_seed, 0, len(rows))
            rows.append(_row(share, key, len(rows), Seat(Opponent(opponent, opponent), (role,))))
    return rows


def _row(share: GameShare, key: GameKey, index: int, seat: Seat) -> dict[str, Any]:
    return {
        "raw_prompt": "",  # verl wants the column; a game makes its own prompts
        "index": index,
        "agent_name": AGENT,
        "data_source": share.id,
        "prompt": {"template": share.template or "", "style": share.style or ""},
        "key": key.to_dict(),
        **seat.columns(),
    }


def _can(kind: str, game: str) -> bool:
    try:
        kinds()[kind].check_game(game)
    except ValueError:
        return False
    return True
