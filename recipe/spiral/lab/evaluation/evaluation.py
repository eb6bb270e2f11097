"""An evaluation from its settings to its results, in the order in which it happens: policies, match-ups, policy tables
by scores, games, samples and benchmarks, figures.

What an earlier start has done is in the evaluation's folder, and is not done again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from functools import partial

from tqdm import tqdm

from ...players.records import GameRecord
from ..graders.grading import Grader
from ..graders.question import Question
from ..opponents import API
from ..opponents.api_player import ask_once
from ..opponents.api_settings import ApiSettings
from . import benchmarks
from .benchmarks import Answers
from .engines import Engines, Models, Served, Start, VLLMEngine, models_of
from .evaluation_folder import EvaluationFolder, Manifest, read_games
from .matches import GameId, Seating, plan, play_games
from .measuring import Measuring
from .policies import Asked, Policy
from .policy_entries import check_names, parse
from .ratings import Row, rate_all
from .results import write_results
from .settings import ReadBy, Settings
from .tabulation import Tabulation

#: The games that are still to be played, each with the number of its next try.
Games = list[tuple[GameId, int]]
#: A piece of work, done when its models are loaded.
Work = Callable[[], Awaitable[None]]


class Refused(ValueError):
    """An evaluation cannot be done as its config says; the message says why."""


class NothingPlayed(RuntimeError):
    """An evaluation has come to nothing: each game was void, each time; the message says why."""


class Evaluation:
    """Everything is checked and prepared when this is made; nothing is played yet, and no engine is started.

    ``start`` starts an engine; None: vLLM's. ``show`` shows people a line.

    Raises:
        ValueError: something is wrong with the settings, with a policy, or with benchmarks' data.
    """

    def __init__(self, settings: Settings, start: Start | None = None, show: Callable[[str], None] = print) -> None:
        self.show, self._start = show, start or self._start_vllm
        kwargs = settings.data.apply_chat_template_kwargs
        asked = Asked(settings.prompt.template, settings.prompt.style, chat_template_kwargs=kwargs)
        self.policies = parse(settings.policies, settings.cache, "policies", asked)
        self.opponents = parse(settings.opponents, settings.cache, "opponents", asked)
        everybody = [*self.policies, *self.opponents]
        check_names(everybody, "policies and opponents")
        self.known = {policy.name: policy for policy in everybody}
        if settings.anchor is not None and settings.anchor not in self.known:
            raise ValueError(f"anchor={settings.anchor}: plays no game; there are {', '.join(self.known)}")
        self.settings = settings.with_lengths(policy.lengths for policy in everybody if policy.model is not None)
        self.plan = plan(self.policies, self.opponents, settings)
        self.measuring = Measuring(self.policies, self.settings, show)
        self.asked = [policy for policy in self.policies if policy.model is not None and settings.benchmarks.names]
        self.questions: list[Question] = benchmarks.load_questions(settings.benchmarks) if self.asked else []
        self.notes = [f"not played: {reason}" for reason in self.plan.left_out]
        self.notes += [f"not measured: {reason}" for reason in self._unmeasured()]
        if not (len(self.plan) or self.questions or self.measuring.all):
            raise ValueError("; ".join(["policies, games: nothing can be played or measured", *self.notes]))
        self._seating = Seating(everybody, self.settings, lambda policy: self._engines.generate_as(policy))
        for policy in everybody:
            if policy.model is not None:
                games = {game for *players, game in self.plan.match_ups if policy.name in players}
                games |= {each.game for each in self.measuring.all if each.policy is policy}
                self._seating.check(policy, games)
        self._tabulation = Tabulation()
        self._counted: set[GameId] = set()
        #: How often each game was void, and why at first.
        self._void: dict[GameId, tuple[int, str | None]] = {}
        self._answers: dict[str, Answers] = {}

    def _start_vllm(self, served: Served, engines: int) -> VLLMEngine:
        return VLLMEngine(served, self.settings.max_model_len, self.settings.engine, engines)

    def _unmeasured(self) -> Iterator[str]:
        """What is not measured of policies without weights."""
        for name in (policy.name for policy in self.policies if policy.model is None):
            for setting, metric in self.settings.exact_metrics.items():
                if metric.games and metric.by is ReadBy.scores:
                    yield f"{setting} of {name}: it has no weights; {setting}.by=samples measures it, too"
            if self.settings.benchmarks.names:
                yield f"benchmarks of {name}: only policies with weights are asked"

    def run(self) -> str:
        """Do what is left to be done, write ``results.json``, and return what people are shown.

        Raises:
            Refused: an endpoint would not answer.
            NothingPlayed: each game was void, and nothing else was to be done.
            OtherEvaluation, OSError: see ``EvaluationFolder``.
            EngineFailure: an engine does not start, or does not answer.
            Exception: whatever else a player raises. What was played by then is stored.
        """
        settings = self.settings
        identities = {policy.name: policy.identity for policy in self.known.values()}
        manifest = Manifest(settings.seed, settings.randomness, identities, settings.decisive())
        with EvaluationFolder(settings.folder, manifest) as self._folder:
            for note in self.notes:
                self.show(note)
            for record in read_games(settings.folder):
                self._count(record)
            self.measuring.read(self._folder.tables)
            for policy in self.asked:
                self._answers[policy.name] = Answers(self._folder.answers, policy, settings)
            missing = [(game, self._void.get(game, (0,))[0]) for game in self.plan if game not in self._counted]
            self._ask_endpoints({name for game, _ in missing for name in game.players})
            self.measuring.score(self._seating)
            asyncio.run(self._do(self._work(missing)))
            text = self._write_results()
        if len(self.plan) and not (self._counted or self.measuring.all or self._answers):
            raise NothingPlayed(f"no game was played: {next(self._given_up())}")
        return text

    def _count(self, record: GameRecord) -> None:
        """Take a game into the figures, if it is of the plan, and not of an earlier start's larger one."""
        if (game := GameId.of(record)) not in self.plan:
            return
        self._tabulation.add(game, record)
        if record.discarded is None:
            self._counted.add(game)
        else:
            times, reason = self._void.get(game, (0, record.reason))
            self._void[game] = max(times, record.key.retry + 1), reason

    def _ask_endpoints(self, playing: set[str]) -> None:
        """Raises Refused: an endpoint would not answer the games of those who play."""
        players = [self.known[name] for name in sorted(playing)]
        endpoints = {each.name: ApiSettings.from_mapping(each.settings) for each in players if each.kind == API}
        try:
            ask_once(endpoints, self.show)
        except (ValueError, ImportError) as error:
            raise Refused(str(error)) from error

    # -- with engines --------------------------------------------------------------------------------------------------

    def _work(self, missing: Games) -> dict[Models, list[Work]]:
        """The games, samples and benchmarks that are missing, by the models that they need."""
        work: dict[Models, list[Work]] = {}
        games: dict[Models, Games] = {}
        for game, tries in missing:
            games.setdefault(models_of(self.known[name] for name in game.players), []).append((game, tries))
        for models, of_these in games.items():
            work.setdefault(models, []).append(partial(self._play, of_these))
        for each in self.measuring.missing(ReadBy.samples):
            sample = partial(self.measuring.sample, each, self._seating)
            work.setdefault(models_of([each.policy]), []).append(sample)
        samples = [(question, k) for question in self.questions for k in range(self.settings.benchmarks.samples)]
        for policy in self.asked:
            if unanswered := [sample for sample in samples if self._answers[policy.name].of(*sample) is None]:
                work.setdefault(models_of([policy]), []).append(partial(self._ask, policy, unanswered))
        return work

    async def _do(self, work: dict[Models, list[Work]]) -> None:
        """Do all work, in an order in which most models are loaded already."""
        self._engines = Engines(self._start, self.known.values(), work, self.show)
        done, total = len(self._counted), len(self.plan)
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

        await play_games(missing, self.plan, self._seating, self.settings, ended)

    async def _ask(self, policy: Policy, missing: list[tuple[Question, int]]) -> None:
        tokenizer, generate = self._seating.tokenizer(policy), self._seating.generate_as(policy)
        await benchmarks.ask(policy, tokenizer, generate, missing, self._answers[policy.name], self.settings)

    # -- figures -------------------------------------------------------------------------------------------------------

    def _write_results(self) -> str:
        settings = self.settings
        anchor = settings.anchor or next((policy.name for policy in self.opponents), None)
        results = self._tabulation.results()
        if too_long := sum(row["prompt_too_long"]["count"] for row in results if row["role"] is None):
            self.notes.append(
                f"{too_long} games ended because a prompt was longer than data.max_prompt_length="
                f"{settings.max_prompt_length}, and were lost for both players; play them with a longer one in another "
                "folder"
            )
        figures = {
            "results": results,
            "ratings": rate_all(self._tabulation.outcomes(), anchor),
            **self.measuring.figures(),
            "benchmarks": self._judged(),
            "notes": [*self.notes, *self._given_up()],
        }
        return write_results(settings.folder, self._folder.manifest, [each.name for each in self.policies], figures)

    def _judged(self) -> dict[str, list[Row]]:
        """The benchmarks' figures, by policy."""
        if not self._answers:
            return {}
        self.show("judging the answers to the benchmarks")
        samples = self.settings.benchmarks.samples
        with Grader() as grader:
            judge = partial(benchmarks.judge, self.questions, samples=samples, grader=grader)
            return {name: judge(answers) for name, answers in self._answers.items()}

    def _given_up(self) -> Iterator[str]:
        """Whose games were void each time, how many, and why the first was."""
        lost: dict[tuple[str, str], list[str | None]] = {}
        for game, (_, reason) in self._void.items():
            if game not in self._counted:
                lost.setdefault((game.policy, game.opponent), []).append(reason)
        for pair, reasons in lost.items():
            yield (
                f"{' against '.join(pair)}: {len(reasons)} games were void {self.settings.void_retries + 1} times and "
                f"are missing, the first: {reasons[0]}; a larger void_retries tries them again"
            )
