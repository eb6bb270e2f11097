"""Play one game between two players.

The match is the referee: it shows each player its observation, reads the action out of the response, and decides what a
response that is no legal action costs. The rule is the same for every game and for every way of being illegal, and
nobody gets a second chance.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from .games import Game, IllegalAction
from .players.player import Player, Position, PromptTooLong, Response
from .players.prompts import extract_answer
from .players.records import GameRecord, Turn, Verdict
from .players.seeds import GameKey

#: After a prompt that was too long. What both players said and did made it long, so both get the reward of a lost game:
#: a player that is losing gains nothing by it, and there is a reason to be brief.
TOO_LONG_REWARDS = (-1.0, -1.0)


@dataclass(frozen=True)
class Rules:
    """The rules that hold in every game.

    Attributes:
        illegal_rewards: (offender, other). The worst outcome for the offender; for the other player it is below a win,
            so that provoking errors is no strategy.
        truncated: a response that the length limit ended is "illegal"; or it is, and its turn is not trained ("mask");
            or it is "read" as far as it goes.
        turn_cap: the number of turns, both players' together, after which a game is a draw; None: the game's own
            bound, which no game reaches undecided.
    """

    illegal_rewards: tuple[float, float] = (-1.5, 0.5)
    truncated: Literal["illegal", "mask", "read"] = "illegal"
    turn_cap: int | None = None

    @classmethod
    def from_config(cls, config: Any) -> Rules:
        """From the config's ``rules``. Raises ValueError: ``illegal_rewards`` are no such pair."""
        return cls(tuple(config.illegal_rewards), config.truncated, config.turn_cap)

    def __post_init__(self) -> None:
        pair = self.illegal_rewards
        if len(pair) != 2 or not (-1e9 < pair[0] <= -1 and -1e9 < pair[1] <= 1):
            wanted = "two finite numbers, the offender's <= -1 and the other's <= 1"
            raise ValueError(f"rules.illegal_rewards={[*pair]}: must be {wanted}")


async def play(
    key: GameKey,
    game_id: str,
    game: Game,
    players: Sequence[Player],
    trainable: tuple[int, ...],
    rules: Rules,
    on_turn: Callable[[Turn], None] | None = None,
    past: Sequence[str] = (),
) -> GameRecord:
    """Play a fresh ``game`` to its end, which is also where a player cannot be asked because its prompt is too long.

    Args:
        trainable: the players whose turns will be trained.
        on_turn: is shown each turn when it has been judged, for those who watch.
        past: actions that are taken before anybody is asked: the game goes on from the state that they lead to. All
            chance (cards, dice) is that of the game's seed.

    Raises:
        PlayerFailure: a player has no answer; the game is void.
        GameFailure: the game itself failed; it is void as well.
        PromptTooLong: the game's first prompt is too long already.
        Exception: whatever else a player raises.
    """
    record = GameRecord(key, game_id, (players[0].name, players[1].name), trainable, past=list(past))
    turn_cap = min(game.max_turns, rules.turn_cap or game.max_turns)
    seen: tuple[list[tuple[str, str]], list[tuple[str, str]]] = ([], [])  # by each player, and what it did then
    for move in past:
        player = int(game.current_player)
        seen[player].append((game.observation(player), move))
        game.step(move)
    while not game.is_terminal:
        if len(seen[0]) + len(seen[1]) >= turn_cap:
            record.termination = "turn_cap"
            return record
        player = int(game.current_player)  # a game's may be a bool or NumPy's, which no record takes
        number, observation = len(seen[player]), game.observation(player)
        position = Position(key, game, player, number, observation, tuple(seen[player]))
        try:
            response = await players[player].respond(position)
        except PromptTooLong as error:
            if not any(seen):
                raise
            record.termination, record.reason = "prompt_too_long", str(error)
            record.rewards = TOO_LONG_REWARDS
            return record
        verdict, action = _judge(game, response, rules)
        turn = Turn(player, number, observation, response.text, verdict, action, response.tokens)
        turn.truncated, turn.usage = response.truncated, response.usage
        record.turns.append(turn)
        if on_turn is not None:
            on_turn(turn)
        if verdict != "legal" or action is None:
            offender, other = rules.illegal_rewards
            record.termination = "illegal"
            record.rewards = (offender, other) if player == 0 else (other, offender)
            return record
        seen[player].append((observation, action))
    first, second = game.rewards()
    record.rewards = float(first), float(second)
    return record


def random_opening(key: GameKey, game: Game, longest: int) -> list[str]:
    """The moves that a game begins with, drawn uniformly by the key of its start: 0 to ``longest``, each number equally
    likely, but none that ends it: self-play soon opens alike, and learns nothing of the positions that it no longer
    meets. The fresh ``game`` stays as it is."""
    if not longest:
        return []
    draw, moves = random.Random(key.start().seed("opening")), list[str]()
    for _ in range(draw.randint(0, longest)):
        game, move = game.copy(), game.random_action(draw)
        game.step(move)
        if game.is_terminal:
            break
        moves.append(move)
    return moves


def _judge(game: Game, response: Response, rules: Rules) -> tuple[Verdict, str | None]:
    """The verdict on a response, and its action; a legal action is played."""
    if response.truncated and rules.truncated != "read":
        return "truncated", None
    answer = extract_answer(response.text)
    if answer is None:
        return "no_answer", None
    action = game.parse(answer)
    if action is None:
        return "unreadable", None
    try:
        game.step(action)
    except IllegalAction:
        return "illegal", action
    return "legal", action
