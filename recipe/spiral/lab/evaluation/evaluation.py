"""An evaluation from its settings to its results, in the order in which it happens: policies, match-ups, policy tables
by scores, games, samples and benchmarks, figures.

What an earlier start has done is in the evaluation's folder, and is not done again.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from tqdm import tqdm

from ...players.records import GameRecord
from ...rollouts.end_tokens import end_tokens
from ..graders.grading import Grader
from ..graders.question import Question
from ..opponents import API
from ..opponents.api_player import ask_once
from ..opponents.api_settings import ApiSettings
from . import benchmarks
from .benchmarks import Answers
from .engines import Engines, Models, Start, VLLMEngine, at_once, in_order, models_of
from .evaluation_folder import EvaluationFolder, Manifest, read_games
from .exploitability import exploitability_metrics as metrics
from .exploitability.information_sets import game_tree
from .exploitability.policy_table import PolicyTable, StoredTable, StoredTables, read_player, read_scores
from .matches import GameId, Seating, plan, play_games
from .policies import Asked, Policy
from .policy_entries import check_names, parse
from .ratings import Row, rate_all
from .results import write_results
from .scored import Scorer, load, of_model
from .settings import ExactMetric, ReadBy, Settings
from .tabulation import Tabulation

#: A piece of work, done when its models are loaded.
Work = Callable[[], Awaitable[None]]


class Refused(ValueError):
    """An evaluation cannot be done as its config says; the message says why."""


class NothingPlayed(RuntimeError):
    """An evaluation has come to nothing: each game was void, each time; the message says why."""


class Measured(NamedTuple):
    """A policy, and a game that it is measured at exactly."""

    policy: Policy
    game: str
    metric: ExactMetric

    @property
    def place(self) -> tuple[str, str]:
        return self.policy.name, self.game


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
        self.everybody = [*self.policies, *self.opponents]
        check_names(self.everybody, "policies and opponents")
        self.known = {policy.name: policy for policy in self.everybody}
        if settings.anchor is not None and settings.anchor not in self.known:
            raise ValueError(f"anchor={settings.anchor}: plays no game; there are {', '.join(self.known)}")
        self.weighted = [policy for policy in self.policies if policy.model is not None]
        self.settings = settings.with_lengths(policy.lengths for policy in self.everybody if policy.model is not None)
        self.plan = plan(self.policies, self.opponents, settings)
        self.measured = list(self._measured())
        self.questions: list[Question] = benchmarks.load_questions(settings.benchmarks) if self.weighted else []
        self.notes = [f"not played: {reason}" for reason in self.plan.left_out]
        self.notes += [f"not measured: {reason}" for reason in self._unmeasured()]
        if not (len(self.plan) or self.questions or self.measured):
            raise ValueError("; ".join(["policies, games: nothing can be played or measured", *self.notes]))
        self._seating = Seating(self.everybody, self.settings, lambda policy: self._engines.generate_as(policy))
        for policy in self.everybody:
            if policy.model is not None:
                played = {each.game for each in self.plan.match_ups if policy.name in (each.policy, each.opponent)}
                self._seating.check(policy, played | {each.game for each in self.measured if each.policy is policy})
        self._tabulation = Tabulation()
        self._counted: set[GameId] = set()
        #: How often each game was void, and why at first.
        self._void: dict[GameId, tuple[int, str | None]] = {}
        self._tables: dict[tuple[str, str], PolicyTable] = {}
        self._answers: dict[str, Answers] = {}

    def _start_vllm(self, served: Any, engines: int) -> VLLMEngine:
        return VLLMEngine(served, self.settings.max_model_len, self.settings.engine, engines)

    def _measured(self) -> Iterator[Measured]:
        """By scores the policies with weights, by samples all that play the game. Raises ValueError: prompts show more
        than one observation."""
        for policy in self.policies:
            for metric in (self.settings.exploitability, self.settings.optimality):
                for game in metric.games:
                    if policy.unable(game) or (policy.model is None and metric.by is ReadBy.scores):
                        continue
                    if policy.model is not None and policy.prompt(game)[1] != "state":
                        raise ValueError(
                            f"prompt.style=dialogue ({policy.name}): exploitability and optimality take what a policy "
                            "answers to one observation; set exploitability.games=[] and optimality.games=[], or "
                            "prompt.style=state"
                        )
                    yield Measured(policy, game, metric)

    def _unmeasured(self) -> Iterator[str]:
        """What is not measured of policies without weights."""
        for name in (policy.name for policy in self.policies if policy.model is None):
            for setting in ("exploitability", "optimality"):
                metric: ExactMetric = getattr(self.settings, setting)
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
        identities = {policy.name: policy.identity for policy in self.everybody}
        manifest = Manifest(settings.seed, settings.randomness, identities, settings.decisive())
        with EvaluationFolder(settings.eval_dir, manifest) as self._folder:
            for note in self.notes:
                self.show(note)
            for record in read_games(settings.eval_dir):
                self._count(record)
            self._read_tables()
            work = self._work()
            self._ask_endpoints()
            self._measure_by_scores()
            self._engines = Engines(self._start, self.everybody, at_once(work), self.show)
            asyncio.run(self._with_engines(work))
            text = self._write_results()
        if len(self.plan) and not (self._counted or self._tables or self._answers):
            raise NothingPlayed(f"no game was played: {next(self._given_up())}")
        return text

    # -- what is there, and what is missing ----------------------------------------------------------------------------

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

    def _missing_games(self) -> Iterator[tuple[GameId, int]]:
        """The games that are still to be played, each with the number of its next try."""
        return ((game, self._void.get(game, (0,))[0]) for game in self.plan if game not in self._counted)

    def _read_tables(self) -> None:
        """Take the policy tables that are whole. One that was made otherwise is another one."""
        tables = StoredTables(self._folder.tables)
        self._stored: dict[tuple[str, str], StoredTable] = {}
        for each in self.measured:
            how = {"by": each.metric.by, "policy": dict(each.policy.identity), **self.settings.decisive()}
            if each.metric.by is ReadBy.samples:
                how |= {"samples": each.metric.samples, "seed": self.settings.seed}
            self._stored[each.place] = stored = tables.of(*each.place, how)
            if (table := stored.whole()) is not None:
                self._tables[each.place] = table

    def _missing_tables(self, by: ReadBy) -> list[Measured]:
        return [each for each in self.measured if each.metric.by is by and each.place not in self._tables]

    def _work(self) -> dict[Models, list[Work]]:
        """The games, samples and benchmarks that are missing, by the models that they need."""
        work: dict[Models, list[Work]] = {}
        games: dict[Models, list[tuple[GameId, int]]] = {}
        for game, tries in self._missing_games():
            games.setdefault(models_of(self.known[name] for name in game.players), []).append((game, tries))
        for models, missing in games.items():
            work.setdefault(models, []).append(partial(self._play, missing))
        for each in self._missing_tables(ReadBy.samples):
            work.setdefault(models_of([each.policy]), []).append(partial(self._sample, each))
        for policy in self.weighted if self.questions else ():
            self._answers[policy.name] = answers = Answers(self._folder.answers, policy, self.settings)
            samples = [(question, k) for question in self.questions for k in range(self.settings.benchmarks.samples)]
            if unanswered := [sample for sample in samples if answers.of(*sample) is None]:
                work.setdefault(models_of([policy]), []).append(partial(self._ask, policy, unanswered))
        return work

    # -- before engines take the memory --------------------------------------------------------------------------------

    def _ask_endpoints(self) -> None:
        """Raises Refused: an endpoint would not answer the games that are missing."""
        playing = {name for game, _ in self._missing_games() for name in game.players}
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

    def _measure_by_scores(self) -> None:
        """With one model after the other."""
        for policy in self.weighted:
            games = [each.game for each in self._missing_tables(ReadBy.scores) if each.policy is policy]
            if games:
                import torch

                self.show(f"log-probabilities of {policy.name}: {', '.join(games)}")
                self._score(policy, games)
                gc.collect()
                torch.cuda.empty_cache()

    def _score(self, policy: Policy, games: Sequence[str]) -> None:
        assert policy.model is not None
        settings, seating = self.settings, self._seating
        model = load(policy.model, policy.adapter, settings.engine.dtype)
        ends = sorted(end_tokens(policy.texts or policy.model))
        scores = of_model(model, ends, settings.sampling.temperature, settings.max_response_length)
        for game in games:
            score = Scorer(seating.tokenizer(policy), seating.encode(policy, game), scores)
            self._tables[policy.name, game] = table = read_scores(game_tree(game), score)
            for row, values in enumerate(table.table.tolist()):
                self._stored[policy.name, game].add(row, values)

    # -- with engines --------------------------------------------------------------------------------------------------

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

    async def _sample(self, each: Measured) -> None:
        self.show(f"{each.policy.name} in {each.game}: {each.metric.samples} samples of each information set")
        settings, stored = self.settings, self._stored[each.place]
        how = (each.metric.samples, settings.seed, settings.match_rules, settings.concurrency, settings.void_retries)
        player = self._seating(*each.place)
        self._tables[each.place] = await read_player(game_tree(each.game), player, *how, stored.rows, stored.add)

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

    def _exact_metrics(self) -> dict[str, list[Row]]:
        settings, exploit, optimal = self.settings, self.settings.exploitability, self.settings.optimality
        runs: dict[str, list[str]] = {}
        tables: dict[str, dict[str, PolicyTable]] = {game: {} for game in (*exploit.games, *optimal.games)}
        for policy in self.weighted:
            if policy.run is not None:
                runs.setdefault(policy.run, []).append(policy.name)
        for each in self.measured:
            tables[each.game][each.policy.name] = self._tables[each.place]
        return {
            "exploitability": [
                row
                for game in exploit.games
                for row in metrics.exploited(game, tables[game], runs, exploit.by, settings.match_rules, settings.seed)
            ],
            "optimality": [row for game in optimal.games for row in metrics.optimal(game, tables[game], optimal.by)],
        }

    def _judged(self) -> dict[str, list[Row]]:
        """The benchmarks' figures, by policy."""
        if not self._answers:
            return {}
        self.show("judging the answers to the benchmarks")
        samples = self.settings.benchmarks.samples
        with Grader() as grader:
            judge = partial(benchmarks.judge, self.questions, samples=samples, grader=grader)
            return {name: judge(answers) for name, answers in self._answers.items()}
