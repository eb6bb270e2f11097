"""What can be said of a recorded game by itself: its replay from its key and its responses, and its tokens."""

from __future__ import annotations

from collections.abc import Container, Iterator

from ...match import Rules, play, random_opening
from ...players.player import Position, PromptTooLong, Response
from ...players.records import GameRecord, Turn
from ..record_folder import make_named
from ..watching.game_metrics import oldest_version, staleness, versions
from .recompute import Settings


class _Replayer:
    """Plays both players with the recorded responses in their order.

    If the game goes on after the last of them, its prompt is too long if the record says so. Otherwise the answer is an
    empty text, which ends the game as well.
    """

    name = "record"

    def __init__(self, record: GameRecord) -> None:
        self._turns = iter(record.turns)
        self._too_long = record.termination == "prompt_too_long"

    async def respond(self, position: Position) -> Response:
        turn = next(self._turns, None)
        if turn is None and self._too_long:
            raise PromptTooLong
        return Response("") if turn is None else Response(turn.response, turn.tokens, turn.truncated, turn.usage)


def replay(record: GameRecord, rules: Rules, named: Container[str] = (), opening: int | None = None) -> GameRecord:
    """The record that the match makes of the same responses. Its players' names differ.

    Args:
        named: of ``make_named``.
        opening: the most random moves that the game may begin with, which are drawn again; None: it has its past.

    Raises:
        UnknownGame: there is no such game.
        ImportError: the game needs a package that is not installed, or the user has not named its class.
    """
    game = make_named(record.game, record.key.game_seed(), named)
    player = _Replayer(record)
    past = record.past if opening is None else random_opening(record.key, game, opening)
    playing = play(record.key, record.game, game, (player, player), record.trainable, rules, past=past)
    try:
        playing.send(None)  # nobody in it waits for anything: an event loop for each game would take half of the time
    except StopIteration as ended:
        again: GameRecord = ended.value
        return again
    raise RuntimeError(f"the replay of game {record.key} waits for something")


def differences(record: GameRecord, replayed: GameRecord) -> list[str]:
    """The differences between a record and its replay: the start, the first turn that differs, the length, the
    termination."""
    if record.past != replayed.past:
        return [f"its start {_short(record.past)} is {_short(replayed.past)} in the replay"]
    texts = []
    for turn, again in zip(record.turns, replayed.turns, strict=False):
        if changed := [
            f"{name} {_short(getattr(turn, name))} is {_short(getattr(again, name))} in the replay"
            for name in ("player", "turn", "observation", "verdict", "action")
            if getattr(turn, name) != getattr(again, name)
        ]:
            texts.append(f"{name_turn(turn)}: {', '.join(changed)}")
            break  # later turns differ as a consequence
    if len(record.turns) != len(replayed.turns):
        longer = "goes on after" if len(replayed.turns) > len(record.turns) else "is over before"
        texts.append(f"the replay {longer} the last of {len(record.turns)} recorded turns")
    elif record.termination != replayed.termination:
        texts.append(f"termination {_short(record.termination)} is {_short(replayed.termination)} in the replay")
    return texts


def wrong_tokens(record: GameRecord, step: int, settings: Settings) -> Iterator[str]:
    """What is wrong with a game's tokens, in the file of a step: who wrote them, when, and with which probabilities."""
    if not settings.synchronous and (problem := _wrong_age(record, step, settings)):
        yield problem
    own = (record.key.step - 1, record.key.step - 1)
    for turn in record.turns:
        trainable, tokens, wrong = turn.player in record.trainable, turn.tokens, []
        if tokens is None:
            if trainable:
                yield f"{name_turn(turn)}: no tokens"
            continue
        expected = None if trainable else record.players[turn.player]
        if tokens.answered_by != expected:
            wrong.append(f"answered by {tokens.answered_by}, should be {expected}")
        if trainable and settings.synchronous and tokens.weight_versions != own:
            wrong.append(f"weights {tokens.weight_versions} should be {own}")
        log_probs = tokens.log_probs or ()
        if tokens.log_probs is not None and len(log_probs) != len(tokens.response_ids):
            wrong.append(f"{len(log_probs)} log-probabilities of {len(tokens.response_ids)} response tokens")
        if log_probs and not max(log_probs) <= 0:
            wrong.append("a log-probability is above 0")
        yield from (f"{name_turn(turn)}: {what}" for what in wrong)


def _wrong_age(record: GameRecord, step: int, settings: Settings) -> str:
    """What is wrong with the age of a game that a step trained or dropped; "" if nothing is."""
    written, age, most = versions(record), staleness(record, step), settings.max_staleness
    if any(not first <= last <= step - 1 for first, last in written):
        return f"weights {written} of a game that step {step} trains: the last version is {step - 1}"
    fresh = oldest_version(record) is None or most is None or age <= most
    # games that start from one state are dropped together
    if record.discarded == "stale" and fresh and settings.games_per_start == 1:
        return f"was dropped as stale, and has staleness {age} of {most}"
    return f"was trained with staleness {age}, more than {most}" if record.discarded is None and not fresh else ""


def name_turn(turn: Turn) -> str:
    return f"turn {turn.turn} of player {turn.player}"


def _short(value: object, length: int = 60) -> str:
    text = repr(value)
    return text if len(text) <= length else f"{text[: length - 4]} ..."
