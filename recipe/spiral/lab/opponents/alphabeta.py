"""Connect Four by alpha-beta search to a fixed depth: strong, but not perfect, which its name says with its depth.

The board is two integers, as in Pascal Pons' solver (https://blog.gamesolver.org): seven bits a column from the bottom
up, the seventh always 0, so that shifting by 1, 6, 7 or 8 follows a line and never leaves the board unnoticed. One
integer holds the discs of the player who is to move, the other all discs.
"""

from __future__ import annotations

import asyncio
import random

from ...games import Game, resolve
from ...games.connect_four import COLUMNS, ROWS, ConnectFour
from ...players.player import Position, Response
from ...players.prompts import boxed

_HEIGHT = ROWS + 1
_COLUMN = [((1 << ROWS) - 1) << (column * _HEIGHT) for column in range(COLUMNS)]
_BOTTOM = sum(1 << (column * _HEIGHT) for column in range(COLUMNS))
_BOARD = sum(_COLUMN)
#: Upwards, and the three directions to the right.
_SHIFTS = (1, _HEIGHT - 1, _HEIGHT, _HEIGHT + 1)
#: From the middle outwards: the middle is in most lines, and a good move first makes the search short.
_ORDER = sorted(range(COLUMNS), key=lambda column: abs(column - COLUMNS // 2))
#: For each direction, where a line of four on the board may begin.
_STARTS = [
    sum(1 << i for i in range(COLUMNS * _HEIGHT) if all(_BOARD >> (i + k * shift) & 1 for k in range(4)))
    for shift in _SHIFTS
]
#: A win is worth this minus one for each disc on the board: sooner is better, and any win beats a promising position.
_WIN = 10_000
#: What a line of four is worth that holds two, or three, discs of one player and none of the other.
_TWO, _THREE = 1, 5
#: What a search has met: position -> (value, lowest, highest). Whether a value is exact or a bound follows from the
#: window. A position is always met with the same number of discs, hence with the same depth left.
Seen = dict[int, tuple[int, int, int]]


def check_game(game_id: str) -> None:
    """A ``ValueError`` if the game is not Connect Four."""
    if resolve(game_id) != "ConnectFour":
        raise ValueError(f"{game_id}: the alpha-beta player knows ConnectFour only")


class AlphaBetaPlayer:
    """Looks ``depth`` moves ahead, and one more for wins; draws uniformly among equally good moves, by the key's seed.

    A win or a loss that can be forced within that many moves is seen. A search runs in a thread of its own, so that
    other games go on meanwhile.
    """

    def __init__(self, depth: int = 6) -> None:
        """``depth`` is in moves of both players together. Each one more takes two to three times as long."""
        if depth not in range(1, 13):
            raise ValueError(f"depth={depth}: must be a whole number from 1 to 12")
        self.depth = depth
        self.name = f"alphabeta-{depth}"

    async def respond(self, position: Position) -> Response:
        rng = random.Random(position.key.seed("alpha-beta player", position.player, position.turn))
        actions = await asyncio.to_thread(best_actions, position.game, self.depth)
        return Response(boxed(rng.choice(actions)))


def best_actions(game: Game, depth: int) -> tuple[str, ...]:
    """The moves that are equally good when one looks so far ahead in Connect Four."""
    assert isinstance(game, ConnectFour)  # by ``check_game``
    mine = occupied = 0
    for column, discs in enumerate(game.columns):
        for row, owner in enumerate(discs):
            occupied |= 1 << (column * _HEIGHT + row)
            mine |= (owner == game.current_player) << (column * _HEIGHT + row)
    return tuple(f"[{column}]" for column in sorted(_best_columns(mine, occupied, depth)))


def _best_columns(mine: int, occupied: int, depth: int) -> list[int]:
    wins = _completing(mine, occupied) & (occupied + _BOTTOM)
    if wins:
        return [column for column in _ORDER if wins & _COLUMN[column]]
    values: dict[int, int] = {}
    seen: Seen = {}  # empty, so that the result depends on the position alone
    for column in _ORDER:
        move = (occupied + _BOTTOM) & _COLUMN[column]
        if move:
            # A window that begins just below the best value so far, so that equal ones differ from lower ones.
            high = 1 - max(values.values(), default=-_WIN)
            values[column] = -_value(mine ^ occupied, occupied | move, depth - 1, -_WIN, high, seen)
    return [column for column, value in values.items() if value == max(values.values())]


def _value(mine: int, occupied: int, depth: int, low: int, high: int, seen: Seen) -> int:
    """The value for the player who is to move, exact within ``low < value < high``, else a bound on that side."""
    playable = (occupied + _BOTTOM) & _BOARD
    if not playable:
        return 0
    if _completing(mine, occupied) & playable:
        return _WIN - occupied.bit_count()
    if depth == 0:
        return _promise(mine, occupied)
    key = mine + occupied + _BOTTOM  # one number for each position (Pons)
    if key in seen:
        value, lowest, highest = seen[key]
        if lowest < value < highest or (value >= high and value >= highest) or (value <= low and value <= lowest):
            return value
    lowest = low
    # If the other player threatens to win, all other moves lose at once.
    forced = _completing(mine ^ occupied, occupied) & playable
    moves = forced or playable
    best = -_WIN
    for column in _ORDER:
        move = moves & _COLUMN[column]
        if move:
            value = -_value(mine ^ occupied, occupied | move, depth - 1, -high, -low, seen)
            best = max(best, value)
            low = max(low, value)
            if low >= high:
                break
    seen[key] = best, lowest, high
    return best


def _completing(mine: int, occupied: int) -> int:
    """The free squares on which a disc of mine would complete four, those in the air included."""
    squares = (mine << 1) & (mine << 2) & (mine << 3)
    for shift in _SHIFTS[1:]:
        right = (mine << shift) & (mine << 2 * shift)
        squares |= right & (mine << 3 * shift)
        squares |= right & (mine >> shift)
        left = (mine >> shift) & (mine >> 2 * shift)
        squares |= left & (mine >> 3 * shift)
        squares |= left & (mine << shift)
    return squares & _BOARD & ~occupied


def _promise(mine: int, occupied: int) -> int:
    """What a position is worth without looking further: my lines that are still open minus the other's."""
    other = mine ^ occupied
    directions = zip(_SHIFTS, _STARTS, strict=True)
    return sum(_lines(mine, other, *each) - _lines(other, mine, *each) for each in directions)


def _lines(mine: int, other: int, shift: int, starts: int) -> int:
    """What my lines of four in one direction without a disc of the other's are worth; a bit is where one begins."""
    blocked = other | other >> shift
    open_ = starts & ~(blocked | blocked >> 2 * shift)
    a, b, c, d = mine, mine >> shift, mine >> 2 * shift, mine >> 3 * shift
    one_ab, one_cd, two_ab, two_cd = a ^ b, c ^ d, a & b, c & d
    threes = (two_ab & one_cd | two_cd & one_ab) & open_
    twos = (one_ab & one_cd | two_ab & ~(c | d) | two_cd & ~(a | b)) & open_
    return _THREE * threes.bit_count() + _TWO * twos.bit_count()
