"""An evaluation from its settings to its results, in the order in which it happens: policies, match-ups, policy tables
by scores, games, samples and benchmarks, figures.

What an earlier start has done is in the evaluation's folder, and is not done again.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from functools import partial

from tqdm import tqdm

from ...players.player import PlayerFailure
from ...players.records import GameRecord
from ..graders.grading import Grader
from ..graders.question import Question
from ..opponents import API
from ..opponents.api_player import ask_once
from ..opponents.api_settings import ApiSettings
from .benchmarks import Answers, load_questions
from .engines import Engines, Models, Served, VLLMEngine, models_of
from .evaluation_folder import EvaluationFolder, read_games
from .matches import GameId, Seating, games_of, plan, play_games
from .measuring import Measuring
from .policies import Asked
from .policy_entries import parse
from .ratings import rate_all
from .results import write_results
from .settings import ReadBy, Settings
from .tabulation import Tabulation

#: The games that are still to be played, each with the number of its next try.
Games = list[tuple[GameId, int]]
#: Pieces of work, by the models that must be loaded for them.
Work = dict[Models, list[Callable[[], Awaitable[None]]]]


class Evaluation:
    """Everything is checked and prepared when this is made; nothing is played yet, and no engine is started.

    ``show`` shows people a line.

    Raises:
        ValueError: something is wrong with the settings, with a policy, or with benchmarks' data.
    """

    def __init__(self, settings: Settings, show: Callable[[str], None]) -> None:
        self.settings, self.show = settings, show
        kwargs = settings.data.apply_chat_template_kwargs
        asked = Asked(settings.prompt.template, settings.prompt.style, chat_template_kwargs=kwargs)
        self.policies = parse(settings.policies, settings.cache, "policies", asked)
        self.opponents = parse(settings.opponents, settings.cache, "opponents", asked)
        everybody = [*self.policies, *self.opponents]
        self.known = {policy.name: policy for policy in everybody}
        names = [policy.name for policy in everybody]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(
                f"policies, opponents: {', '.join(twice)} is there twice: give each its own name: {{name: ..., ...}}"
            )
        settings.take_lengths([policy.lengths for policy in everybody if policy.model is not None])
        self.match_ups, left_out = plan(self.policies, self.opponents, settings)
        self.games = dict.fromkeys(games_of(self.match_ups, settings.games_per_role))
        self.measuring = Measuring(self.policies, settings, show)
        self.asked = [policy for policy in self.policies if policy.model is not None and settings.benchmarks.names]
        self.questions: list[Question] = load_questions(settings.benchmarks) if self.asked else []
        self.notes = [*(f"not played: {reason}" for reason in left_out), *self._unmeasured()]
        if not (self.games or self.questions or self.measuring.all):
            raise ValueError("; ".join(["policies, games: nothing can be played or measured", *self.notes]))
        self._seating = Seating(self.known, settings, lambda policy: self._engines.generate_as(policy))
        for policy in everybody:
            if policy.model is not None:
                games = {game for *players, game in self.match_ups if policy.name in players}
                games |= {each.game for each in self.measuring.all if each.policy is policy}
                self._seating.check(policy, games)
        self._tabulation = Tabulation()
        self._counted: set[GameId] = set()
        #: Why a game was void, each time.
        self._void: dict[GameId, list[str | None]] = defaultdict(list)
        self._answers: dict[str, Answers] = {}

    def start_engine(self, served: Served, engines: int) -> VLLMEngine:
        return VLLMEngine(served, self.settings.max_model_len, self.settings.engine, engines)

    def _unmeasured(self) -> Iterator[str]:
        """What is not measured of policies without weights."""
        for name in (policy.name for policy in self.policies if policy.model is None):
            for setting, metric in self.settings.exact_metrics.items():
                if metric.games and metric.by is ReadBy.scores:
                    yield f"not measured: {setting} of {name}: it has no weights; {setting}.by=samples measures it, too"
            if self.settings.benchmarks.names:
                yield f"not measured: benchmarks of {name}: only policies with weights are asked"

    def run(self) -> str:
        """Do what is left to be done, write ``results.json``, and return what people are shown.

        Raises:
            PlayerMisconfigured: an endpoint would not answer.
            Refused: the folder is another evaluation's.
            PlayerFailure: each game was void, each time, and nothing else was to be done.
            OSError: there is no room.
            EngineFailure: an engine does not start, or does not answer.
            Exception: whatever else a player raises. What was played by then is stored.
        """
        settings = self.settings
        manifest = {
            "seed": settings.seed,
            "randomness": settings.randomness,
            "policies": {policy.name: policy.identity for policy in self.known.values()},
            "settings": settings.decisive(),
        }
        self._folder = EvaluationFolder(settings.folder, manifest)
        for note in self.notes:
            self.show(note)
        for record in read_games(settings.folder):
            self._count(record)
        self.measuring.read(self._folder.tables)
        for policy in self.asked:
            self._answers[policy.name] = Answers(self._folder.answers, policy, settings)
        missing = [(game, len(self._void.get(game, ()))) for game in self.games if game not in self._counted]
        playing = [self.known[name] for name in sorted({name for game, _ in missing for name in game.players})]
        endpoints = {each.name: ApiSettings.from_mapping(each.settings) for each in playing if each.kind == API}
        ask_once(endpoints, self.show)
        self.measuring.score(self._seating)
        asyncio.run(self._do(self._work(missing)))
        text = self._write_results()
        if self.games and not (self._counted or self.measuring.all or self._answers):
            raise PlayerFailure(f"no game was played: {next(self._given_up())}")
        return text

    def _count(self, record: GameRecord) -> None:
        """Take a game into the figures, if it is one of these, and not of an earlier start with more."""
        if (game := GameId.of(record)) not in self.games:
            return
        self._tabulation.add(game, record)
        if record.discarded is None:
            self._counted.add(game)
        else:
            self._void[game].append(record.reason)

    # -- with engines --------------------------------------------------------------------------------------------------

    def _work(self, missing: Games) -> Work:
        """The games, samples and benchmarks that are missing."""
        work: Work = defaultdict(list)
        games: dict[Models, Games] = defaultdict(list)
        for game, tries in missing:
            games[models_of(self.known[name] for name in game.players)].append((game, tries))
        for models, of_these in games.items():
            work[models].append(partial(self._play, of_these))
        for each in self.measuring.missing(ReadBy.samples):
            work[models_of([each.policy])].append(partial(self.measuring.sample, each, self._seating))
        for answers in self._answers.values():
            if answers.missing(self.questions):
                work[models_of([answers.policy])].append(partial(answers.ask, self.questions, self._seating))
        return work

    async def _do(self, work: Work) -> None:
        """Do all work, in an order in which most models are loaded already."""
        self._engines = Engines(self.start_engine, self.known.values(), work, self.show)
        done, total = len(self._counted), len(self.games)
        try:
            with tqdm(total=total, initial=done, unit="game", desc="games", disable=done == total) as self._bar:
                for models in sorted(work, key=sorted):
                    await self._engines.load(models)
                    for piece in work[models]:
                        await piece()
        finally:
            self._engines.close()

    async def _play(self, missing: Games) -> None:
        def ended(record: GameRecord) -> None:
            self._folder.add(record)
            self._count(record)
            self._bar.update(record.discarded is None)

        await play_games(missing, self._seating, self.settings, ended)

    # -- figures -------------------------------------------------------------------------------------------------------

    def _write_results(self) -> str:
        settings, results = self.settings, self._tabulation.results()
        if too_long := sum(row["prompt_too_long"]["count"] for row in results if row["role"] is None):
            self.notes.append(
                f"{too_long} games ended because a prompt was longer than data.max_prompt_length="
                f"{settings.max_prompt_length}, and were lost for both players; play them with a longer one in another "
                "folder"
            )
        if self._answers:
            self.show("judging the answers to the benchmarks")
        with Grader() as grader:
            judged = {name: answers.judged(self.questions, grader) for name, answers in self._answers.items()}
        anchor = self.opponents[0].name if self.opponents else None
        figures = {
            "manifest": self._folder.manifest,
            "results": results,
            "ratings": rate_all(self._tabulation.outcomes(), anchor),
            **self.measuring.figures(),
            "benchmarks": judged,
            "notes": [*self.notes, *self._given_up()],
        }
        return write_results(settings.folder, [each.name for each in self.policies], figures)

    def _given_up(self) -> Iterator[str]:
        """Whose games were void each time, how many, and why the first was."""
        lost: dict[tuple[str, str], list[str | None]] = defaultdict(list)
        for game, reasons in self._void.items():
            if game not in self._counted:
                lost[game.policy, game.opponent].append(reasons[0])
        for pair, firsts in lost.items():
            yield (
                f"{' against '.join(pair)}: {len(firsts)} games were void {self.settings.void_retries + 1} times and "
                f"are missing, the first: {firsts[0]}; a larger void_retries tries them again"
            )
