"""The table of a game as pages draw it, in replays and where people play: cards as data, all else as the game's own
drawing. ``drawing.js`` draws both."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...games import Game
from ...games.kuhn_poker import KuhnPoker

#: What a page needs in order to draw.
PAGE_FILES = tuple(Path(__file__).with_name(f"drawing.{kind}") for kind in ("js", "css"))
#: The largest number of characters of a drawing.
_LONGEST = 20_000
#: A game's own drawing, or a table of Kuhn poker: its ``rounds``, the chips that player 0 has ``won``, the rounds
#: ``played``, and the one that is played ``now``, None at the end. A round has both ``cards``, None where the viewer
#: may not see one, and ``moves`` as [player, action]; one that is over also its ``winner`` and ``chips``.
Drawn = str | dict[str, Any]


def drawn(game: Game, viewer: int | None = None) -> Drawn | None:
    """The table as a player may see it, or the whole one without a viewer; None: only the game's texts say what a
    player may see. What the game raises, if it draws itself."""
    if isinstance(game, KuhnPoker):
        return _kuhn(game, viewer)
    return game.render()[:_LONGEST] if viewer is None or game.perfect_information else None


def _kuhn(game: KuhnPoker, viewer: int | None) -> Drawn:
    def round_(number: int, cards: tuple[str, str], history: tuple[str, ...], shown: bool) -> dict[str, Any]:
        return {
            "cards": [card if shown or viewer in (None, player) else None for player, card in enumerate(cards)],
            "moves": [[(number + place) % 2, action.strip("[]")] for place, action in enumerate(history)],
        }

    played = [
        {**round_(number, result.cards, result.history, result.shown), "winner": result.winner, "chips": result.chips}
        for number, result in enumerate(game.results)
    ]
    now = None if game.is_terminal else round_(game.round, game.cards, game.history, shown=False)
    return {"rounds": game.rounds, "won": game.won, "played": played, "now": now}
