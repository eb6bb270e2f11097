"""An evaluation from its settings to its results: policies, match-ups, tables by scores, games, samples and benchmarks,
figures.

What an earlier start has done is in the evaluation's folder, and is not done again.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import asdict
from functools import partial
from itertools import groupby
from typing import Any

from tqdm import tqdm

from ...players.records import GameRecord
from ...rollouts.end_tokens import end_tokens
from ..graders.grading import Grader
from ..graders.question import Question
from ..opponents.api.endpoint_settings import ApiSettings
from ..opponents.api.first_question import ask_once
from ..opponents.more_kinds import API
from . import benchmark_asking as asking
from .benchmark_asking import Answers
from .benchmark_scores import judge
from .engines import Engines, Models, Start, VLLMEngine, at_once, in_order, models_of
from .evaluation_folder import EvaluationFolder, Manifest, read_games
from .exploitability import exploitability_metrics as metrics
from .exploitability.information_sets import game_tree
from .exploitability.policy_table import PolicyTable, read_player, read_scores
from .exploitability.stored_tables import StoredTable, StoredTables
from .game_loop import Seating, play_games
from .matchups import GameId, Plan, plan
from .policies import Asked, Policy
from .policy_entries import check_names, parse
from .ratings import rate_all
from .results import write_results
from .scored import Scorer, load, of_model
from .settings import ExactMetric, ReadBy, Settings
from .tabulation import Tabulation

#: A policy, and a game that it is measured at.
Measured = tuple[Policy, str, ExactMetric]
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
        prompt, kwargs = settings.prompt, settings.data.apply_chat_template_kwargs
        asked = Asked(prompt.template, prompt.style, chat_template_kwargs=kwargs)
        self.policies = parse(settings.policies, settings.cache, "policies", asked)
        self.opponents = parse(settings.opponents, settings.cache, "opponents", asked)
        self.everybody = [*self.policies, *self.opponents]
        self.weighted = [policy for policy in self.policies if policy.model is not None]
        self.settings = settings.with_lengths(policy.lengths for policy in self.everybody if policy.model is not None)
        self._start, self.show = start or self._start_vllm, show
        check_names(self.everybody, "policies and opponents")
        names = [policy.name for policy in self.everybody]
        if settings.anchor is not None and settings.anchor not in names:
            raise ValueError(f"anchor={settings.anchor}: plays no game; there are {', '.join(names)}")
        self.plan: Plan = plan(self.policies, self.opponents, settings)
        self.questions: list[Question] = asking.load_questions(settings.benchmarks) if self.weighted else []
        self.notes = [f"not played: {reason}" for reason in self.plan.left_out]
        self.notes += [f"not measured: {reason}" for reason in self._unmeasured()]
        measured = [each for by in ReadBy for each in self._measured_by(by)]
        if not (len(self.plan) or self.questions or measured):
            raise ValueError("; ".join(["policies, games: nothing can be played or measured", *self.notes]))
        self._seating = Seating(self.everybody, self.settings, lambda policy: self._engines.generate_as(policy))
        for policy in self.everybody:
            if policy.model is not None:
                self._seating.check(policy, self._games(policy))
        self._tables: dict[tuple[str, str], PolicyTable] = {}
        self._answers: dict[str, Answers] = {}
        self._tabulation = Tabulation()
        self._counted: set[GameId] = set()
        #: How often each game was void, and why at first.
        self._void: dict[GameId, tuple[int, str | None]] = {}

    def _unmeasured(self) -> Iterator[str]:
        """What is not measured of policies without weights."""
        for name in (policy.name for policy in self.policies if policy.model is None):
            for setting in ("exploitability", "optimality"):
                metric: ExactMetric = getattr(self.settings, setting)
                if metric.games and metric.by is ReadBy.scores:
                    yield f"{setting} of {name}: it has no weights; {setting}.by=samples measures it, too"
            if self.settings.benchmarks.names:
                yield f"benchmarks of {name}: only policies with weights are asked"

    def _measured_by(self, by: ReadBy) -> list[Measured]:
        """By scores the policies with weights, by samples all that play the game. Raises ValueError: prompts show more
        than one observation."""
        found = [
            (policy, game, metric)
            for policy in (self.policies if by is ReadBy.samples else self.weighted)
            for metric in (self.settings.exploitability, self.settings.optimality)
            for game in (metric.games if metric.by is by else ())
            if policy.unable(game) is None
        ]
        for policy, game, _ in found:
            if policy.model is not None and policy.prompt(game)[1] != "state":
                raise ValueError(
                    f"prompt.style=dialogue ({policy.name}): exploitability and optimality take what a policy answers "
                    "to one observation; set exploitability.games=[] and optimality.games=[], or prompt.style=state"
                )
        return found

    def _games(self, policy: Policy) -> set[str]:
        """In which it is asked."""
        measured = {game for by in ReadBy for asked, game, _ in self._measured_by(by) if asked is policy}
        return measured | {each.game for each in self.plan.match_ups if policy.name in (each.policy, each.opponent)}

    def _start_vllm(self, model: Any, adapters: Any, engines: int, texts: Any) -> VLLMEngine:
        return VLLMEngine(model, adapters, self.settings.max_model_len, self.settings.engine, engines, texts)

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
        identities = {policy.name: policy.identity for policy in self.everybody}
        manifest = Manifest(settings.seed, settings.randomness, identities, settings.decisive())
        with EvaluationFolder(settings.eval_dir, manifest) as self._folder:
            for note in self.notes:
                self.show(note)
            for record in read_games(settings.eval_dir):
                self._count(record)
            self._stored = StoredTables(self._folder.tables)
            work = self._work()
            self._ask_endpoints()
            self._measure_by_scores()
            self._engines = Engines(self._start, self.everybody, at_once(work), self.show)
            asyncio.run(self._with_engines(work))
            text = self._write_results()
        if len(self.plan) and not (self._counted or self._tables or self._answers):
            raise NothingPlayed(f"no game was played: {next(self._given_up())}")
        return text

    # -- games ---------------------------------------------------------------------------------------------------------

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

    def _missing(self) -> list[tuple[GameId, int]]:
        """The games that are still to be played, each with the number of its next try."""
        return [(game, self._void.get(game, (0,))[0]) for game in self.plan if game not in self._counted]

    def _ask_endpoints(self) -> None:
        """Raises Refused: an endpoint would not answer the games that are missing."""
        playing = {name for game, _ in self._missing() for name in game.players}
        endpoints = {
            f"{'policies' if policy in self.policies else 'opponents'}: {policy.name}": ApiSettings.from_mapping(
                policy.settings
            )
            for policy in self.everybody
            if policy.kind == API and policy.name in playing
        }
        try:
            ask_once(endpoints, self.show)
        except (ValueError, ImportError) as error:
            raise Refused(str(error)) from error

    # -- policy tables -------------------------------------------------------------------------------------------------

    def _table(self, policy: Policy, game: str, metric: ExactMetric) -> StoredTable:
        """The place of a policy table, with what it depends on."""
        how = {"by": metric.by, "policy": dict(policy.identity), **self.settings.decisive()}
        if metric.by is ReadBy.samples:
            how |= {"samples": metric.samples, "seed": self.settings.seed}
        return self._stored.of(policy.name, game, how)

    def _missing_tables(self, by: ReadBy) -> list[Measured]:
        """Those that are stored are read."""
        missing = []
        for policy, game, metric in self._measured_by(by):
            if (stored := self._table(policy, game, metric).whole()) is None:
                missing.append((policy, game, metric))
            else:
                self._tables[policy.name, game] = stored
        return missing

    def _measure_by_scores(self) -> None:
        """Before engines take the memory, with one model after the other."""
        for policy, measured in groupby(self._missing_tables(ReadBy.scores), key=lambda table: table[0]):
            import torch

            tables = list(measured)
            self.show(f"log-probabilities of {policy.name}: {', '.join(game for _, game, _ in tables)}")
            self._score(policy, tables)
            gc.collect()
            torch.cuda.empty_cache()

    def _score(self, policy: Policy, tables: list[Measured]) -> None:
        """Raises Refused: the model does not fit on one GPU."""
        import torch

        settings, seating = self.settings, self._seating
        assert policy.model is not None
        try:
            model = load(policy.model, policy.adapter, settings.engine.dtype)
            ends = sorted(end_tokens(policy.texts or policy.model))
            scores = of_model(model, ends, settings.sampling.temperature, settings.max_response_length)
            for _, game, metric in tables:
                score = Scorer(seating.tokenizer(policy), seating.encode(policy, game), scores)
                self._tables[policy.name, game] = table = read_scores(game_tree(game), score)
                stored = self._table(policy, game, metric)
                for row, values in enumerate(table.table.tolist()):
                    stored.add(row, values)
        except torch.OutOfMemoryError as error:
            raise Refused(
                f"by=scores: {policy.name} must fit on one GPU, whatever engine.tensor_parallel_size is ({error}); set "
                "exploitability.by=samples optimality.by=samples, or exploitability.games=[] optimality.games=[]"
            ) from error

    # -- with engines --------------------------------------------------------------------------------------------------

    def _work(self) -> dict[Models, list[Work]]:
        """The games, samples and benchmarks that are missing, by the models that they need."""
        work: dict[Models, list[Work]] = {}
        known = {policy.name: policy for policy in self.everybody}
        games: dict[Models, list[tuple[GameId, int]]] = {}
        for game, tries in self._missing():
            games.setdefault(models_of(known[name] for name in game.players), []).append((game, tries))
        for models, missing in games.items():
            work.setdefault(models, []).append(partial(self._play, missing))
        for policy, game_id, metric in self._missing_tables(ReadBy.samples):
            work.setdefault(models_of([policy]), []).append(partial(self._sample, policy, game_id, metric))
        for policy in self.weighted if self.questions else ():
            self._answers[policy.name] = answers = Answers(self._folder.answers, policy, self.settings)
            if unanswered := answers.missing(self.questions, self.settings.benchmarks.samples):
                work.setdefault(models_of([policy]), []).append(partial(self._ask, policy, unanswered))
        return work

    async def _with_engines(self, work: dict[Models, list[Work]]) -> None:
        """Do all work, ordered by the models that it needs."""
        done, total = len(self._counted), len(self.plan)
        try:
            with tqdm(total=total, initial=done, unit="game", desc="games", disable=done == total) as self._bar:
                for models, pieces in in_order(work):
                    await self._engines.load(models)
                    for piece in pieces:
                        await piece()
        finally:
            self._engines.close()

    async def _play(self, missing: list[tuple[GameId, int]]) -> None:
        def ended(record: GameRecord) -> None:
            self._folder.add(record)
            self._count(record)
            self._bar.update(record.discarded is None)

        await play_games(missing, self.plan, self._seating, self.settings, ended)

    async def _sample(self, policy: Policy, game: str, metric: ExactMetric) -> None:
        self.show(f"{policy.name} in {game}: {metric.samples} samples of each information set")
        settings, player, stored = self.settings, self._seating(policy.name, game), self._table(policy, game, metric)
        how = (metric.samples, settings.seed, settings.match_rules, settings.concurrency, settings.void_retries)
        self._tables[policy.name, game] = await read_player(game_tree(game), player, *how, stored.rows, stored.add)

    async def _ask(self, policy: Policy, missing: list[tuple[Question, int]]) -> None:
        tokenizer, generate = self._seating.tokenizer(policy), self._seating.generate_as(policy)
        await asking.ask(policy, tokenizer, generate, missing, self._answers[policy.name], self.settings)

    # -- figures -------------------------------------------------------------------------------------------------------

    def _write_results(self) -> str:
        settings = self.settings
        anchor = settings.anchor or next((policy.name for policy in self.opponents), None)
        results = self._tabulation.results()
        if too_long := sum(result.prompt_too_long.count for result in results if result.role is None):
            self.notes.append(
                f"{too_long} games ended because a prompt was longer than data.max_prompt_length="
                f"{settings.max_prompt_length}, and were lost for both players; play them with a longer one in another "
                "folder"
            )
        figures = {
            "results": list(map(asdict, results)),
            "ratings": list(map(asdict, rate_all(self._tabulation.outcomes(), anchor))),
            **self._exact_metrics(),
            "benchmarks": self._judged(),
            "notes": [*self.notes, *self._given_up()],
        }
        return write_results(settings.eval_dir, self._folder.manifest, [each.name for each in self.policies], figures)

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

    def _exact_metrics(self) -> dict[str, list[metrics.Row]]:
        settings = self.settings
        runs: dict[str, list[str]] = {}
        for policy in self.weighted:
            if policy.run is not None:
                runs.setdefault(policy.run, []).append(policy.name)

        def of(game: str) -> dict[str, PolicyTable]:
            return {name: table for (name, id_), table in self._tables.items() if id_ == game}

        exploit, optimal = settings.exploitability, settings.optimality
        return {
            "exploitability": [
                row
                for game in exploit.games
                for row in metrics.exploited(game, of(game), runs, exploit.by, settings.match_rules, settings.seed)
            ],
            "optimality": [row for game in optimal.games for row in metrics.optimal(game, of(game), optimal.by)],
        }

    def _judged(self) -> dict[str, list[dict[str, Any]]]:
        """The benchmarks' scores, by policy."""
        if not self._answers:
            return {}
        self.show("judging the answers to the benchmarks")
        samples = self.settings.benchmarks.samples
        with Grader() as grader:
            return {
                name: list(map(asdict, judge(self.questions, answers.of(self.questions, samples), grader)[1]))
                for name, answers in self._answers.items()
            }
