"""An evaluation from its settings to its results: compute policy tables, play, ask benchmarks, and report.

What an earlier start has done is in the evaluation's database, and is not done again.
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

from ...rollouts.end_tokens import end_tokens
from ..graders.grading import Grader
from ..graders.question import Question
from ..opponents.api.endpoint_settings import ApiSettings
from ..opponents.api.first_question import ask_once
from ..opponents.more_kinds import API
from .benchmarks import asking
from .benchmarks.asking import Answers
from .benchmarks.benchmark_metrics import judge, table
from .exploitability import exploitability_metrics as metrics
from .exploitability.information_sets import game_tree
from .exploitability.policy_table import PolicyTable, TableStore, read_player, read_scores
from .matches.loop import Seating, play_games
from .matches.matchups import GameId, PlannedGame
from .matches.planning import Schedule, schedule
from .matches.store import FILE, EvaluationStore, Manifest
from .outputs.evaluation_trackers import log_results
from .outputs.results import write_report
from .outputs.sheets import Row, action_rows, benchmark_sheet, write_sheets
from .policies.evaluated_policy import Policy, Prompts
from .policies.evaluation_engine import Engines, Models, Start, VLLMEngine, at_once, check_length, in_order, models_of
from .policies.policy_entries import check_names, parse
from .policies.scored import Scorer, load, of_model
from .ratings.games_summary import summarise
from .settings import NOTHING, ExactMetric, NothingPlayed, Refused, Settings

Show = Callable[[str], None]
#: A piece of work, done when its models are loaded; the bar counts games.
Work = Callable[[Seating, tqdm], Awaitable[None]]


class Evaluation:
    """Everything is checked and prepared when this is made; nothing is played yet, and no engine is started.

    ``start`` starts an engine; None: vLLM's.

    Raises:
        ValueError: something is wrong with the settings, with a policy, or with benchmarks' data.
    """

    #: While ``run`` runs.
    _store: EvaluationStore
    _engines: Engines

    def __init__(self, settings: Settings, start: Start | None = None, show: Show = print) -> None:
        kwargs = settings.data.apply_chat_template_kwargs
        prompts = Prompts(settings.prompt.template, settings.prompt.style, kwargs)
        self.policies = parse(settings.policies, settings.cache, "policies", prompts)
        self.opponents = parse(settings.opponents, settings.cache, "opponents", prompts)
        self.everybody = [*self.policies, *self.opponents]
        self.weighted = [policy for policy in self.policies if policy.model is not None]
        self.settings = settings.with_lengths(policy.lengths for policy in self.everybody if policy.model is not None)
        self._start, self.show = start or self._start_vllm, show
        self._check()
        self.schedule: Schedule = schedule(self.policies, self.opponents, settings)
        self.questions: list[Question] = asking.load_questions(settings.benchmarks) if self.weighted else []
        unplayed = [f"not played: {reason}" for reason in self.schedule.left_out]
        self.left_out = [*unplayed, *(f"not measured: {reason}" for reason in self._unmeasured())]
        if not (
            len(self.schedule.plan) or self.questions or any(map(any, map(self._tables_by, ("scores", "samples"))))
        ):
            raise ValueError("; ".join([NOTHING, *self.left_out]))
        self._tables: dict[tuple[str, str], PolicyTable] = {}
        self._answers: dict[str, Answers] = {}
        self._given_up: list[PlannedGame] = []
        self._seating = Seating(self.everybody, self.settings, lambda policy: self._engines.generate_as(policy))
        for policy in self.everybody:
            if policy.model is not None:
                self._seating.check_templates(policy, self._templates(policy))
                self._seating.check_lengths(policy, self._games(policy))

    def _games(self, policy: Policy) -> set[str]:
        """In which it is asked with the engine."""
        plan = self.schedule.plan.match_ups
        sampled = {game for asked, game, _ in self._tables_by("samples") if asked is policy}
        return sampled | {each.game for each in plan if policy.name in (each.policy, each.opponent)}

    def _templates(self, policy: Policy) -> set[str]:
        settings, asked = self.settings, self.questions and policy in self.weighted
        games = (*settings.games, *settings.exploitability.games, *settings.optimality.games)
        of_questions = {asking.template_of(policy, settings.benchmarks).name} if asked else set()
        return {policy.prompt(game)[0] for game in games} | of_questions

    def _start_vllm(self, model: Any, adapters: Any, engines: int, texts: Any) -> VLLMEngine:
        chosen, folder = self.settings.engine, self.settings.eval_dir
        return VLLMEngine(model, adapters, self.settings.max_model_len, chosen, folder, engines, texts=texts)

    def _check(self) -> None:
        settings = self.settings
        check_names(self.everybody, "policies and opponents")
        if not self.policies:
            raise ValueError("policies=[]: name at least one: policies=[tiny]")
        names = [policy.name for policy in self.everybody]
        if settings.anchor is not None and settings.anchor not in names:
            raise ValueError(f"anchor={settings.anchor}: plays no game; there are {', '.join(names)}")
        tabulated = (*settings.exploitability.games, *settings.optimality.games)
        for policy in self.weighted:
            if any(policy.prompt(game)[1] != "state" for game in tabulated):
                raise ValueError(
                    f"prompt.style=dialogue ({policy.name}): exploitability and optimality take what a policy answers "
                    "to one observation; set exploitability.games=[] and optimality.games=[], or prompt.style=state"
                )
        for model in sorted(models_of(self.everybody)):
            check_length(model, settings.max_model_len)

    def run(self) -> str:
        """Do what is left to be done, write the results, and return their text.

        Raises:
            Refused: an endpoint would not answer.
            NothingPlayed: each game was void, and nothing else was to be done.
            InUse, OtherEvaluation, DamagedDatabase: see ``EvaluationStore``.
            EngineFailure: an engine does not start, or does not answer.
            Exception: whatever else a player raises. What was played by then is stored.
        """
        settings, plan = self.settings, self.schedule.plan
        identities = {policy.name: policy.identity for policy in self.everybody}
        manifest = Manifest(settings.seed, settings.randomness, identities, settings.for_manifest())
        with EvaluationStore(settings.eval_dir, manifest) as self._store:
            for line in self.left_out:
                self.show(line)
            work = self._work()
            self._ask_endpoints()
            self._engines = Engines(self._start, self.everybody, at_once(work), self.show)
            self._tables_by_scores()
            asyncio.run(self._with_engines(self._engines, work, self._seating))
            text = self._report()
            if len(plan) and not (self._store.finished(plan) or self._tables or self._answers):
                raise NothingPlayed(f"no game was played: {next(self._missing())}")
        log_results(settings.eval_dir, self.weighted, settings.logger, self.show, settings.whole)
        return text

    def _ask_endpoints(self) -> None:
        """Raises Refused: an endpoint would not answer the games that are missing."""
        playing = {name for planned in self._store.missing(self.schedule.plan) for name in planned.players}
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

    def _unmeasured(self) -> Iterator[str]:
        """What is not measured of policies without weights."""
        for name in (policy.name for policy in self.policies if policy.model is None):
            for setting in ("exploitability", "optimality"):
                metric: ExactMetric = getattr(self.settings, setting)
                if metric.games and metric.by == "scores":
                    yield f"{setting} of {name}: it has no weights; {setting}.by=samples measures it, too"
            if self.settings.benchmarks.names:
                yield f"benchmarks of {name}: only policies with weights are asked"

    def _stored(self, policy: Policy, game: str, metric: ExactMetric) -> TableStore:
        """The place of a policy table, with what it depends on."""
        settings = self.settings.for_manifest()
        if metric.by == "samples":
            settings |= {"samples": metric.samples, "seed": self.settings.seed}
        how = {"by": metric.by, "policy": dict(policy.identity), **settings}
        return TableStore(self._store, policy.name, game, how)

    def _tables_by(self, by: str) -> Iterator[tuple[Policy, str, ExactMetric]]:
        """By scores of policies with weights, by samples of all that play the game."""
        for policy in self.policies if by == "samples" else self.weighted:
            for metric in (self.settings.exploitability, self.settings.optimality):
                for game in metric.games if metric.by == by else ():
                    if policy.unable(game) is None:
                        yield policy, game, metric

    def _missing_tables(self, by: str) -> list[tuple[Policy, str, ExactMetric]]:
        """Those that are stored are read."""
        missing: list[tuple[Policy, str, ExactMetric]] = []
        for policy, game, metric in self._tables_by(by):
            if (stored := self._stored(policy, game, metric).find()) is None:
                missing.append((policy, game, metric))
            else:
                self._tables[policy.name, game] = stored
        return missing

    def _tables_by_scores(self) -> None:
        """Before engines take the memory, with one model after the other."""
        for policy, wanted in groupby(self._missing_tables("scores"), key=lambda table: table[0]):
            import torch

            tables = [(game, metric) for _, game, metric in wanted]
            self.show(f"log-probabilities of {policy.name}: {', '.join(game for game, _ in tables)}")
            self._score(policy, tables)
            gc.collect()
            torch.cuda.empty_cache()

    def _score(self, policy: Policy, tables: list[tuple[str, ExactMetric]]) -> None:
        """Raises Refused: the model does not fit on one GPU."""
        import torch

        settings, seating = self.settings, self._seating
        assert policy.model is not None
        try:
            model = load(policy.model, policy.adapter, settings.engine.dtype)
            ends = sorted(end_tokens(policy.texts or policy.model))
            scores = of_model(model, ends, settings.sampling.temperature, settings.max_response_length)
            for game, metric in tables:
                score = Scorer(seating.tokenizer(policy), seating.encode(policy, game), scores)
                self._tables[policy.name, game] = table = read_scores(game_tree(game), score)
                self._stored(policy, game, metric).put(table)
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
        games: dict[Models, list[PlannedGame]] = {}
        for planned in self._store.missing(self.schedule.plan):
            games.setdefault(models_of(known[name] for name in planned.players), []).append(planned)
        for models, planned_games in games.items():
            work.setdefault(models, []).append(partial(self._play, planned_games))
        for policy, game, metric in self._missing_tables("samples"):
            work.setdefault(models_of([policy]), []).append(partial(self._sample, policy, game, metric))
        for policy in self.weighted if self.questions else ():
            self._answers[policy.name] = Answers(self._store, policy, self.settings)
            if missing := self._answers[policy.name].missing(self.questions, self.settings.benchmarks.samples):
                work.setdefault(models_of([policy]), []).append(partial(self._ask, policy, missing))
        return work

    async def _with_engines(self, engines: Engines, work: dict[Models, list[Work]], seating: Seating) -> None:
        """Do all work, ordered by the models that it needs."""
        plan = self.schedule.plan
        done = len(self._store.finished(plan))
        try:
            with tqdm(total=len(plan), initial=done, unit="game", desc="games", disable=done == len(plan)) as bar:
                for models, pieces in in_order(work):
                    await engines.load(models)
                    for piece in pieces:
                        await piece(seating, bar)
        finally:
            engines.close()

    async def _play(self, games: list[PlannedGame], seating: Seating, bar: tqdm) -> None:
        self._given_up += await play_games(self._store, games, seating, self.settings, bar)

    async def _sample(self, policy: Policy, game: str, metric: ExactMetric, seating: Seating, bar: tqdm) -> None:
        self.show(f"{policy.name} in {game}: {metric.samples} samples of each information set")
        settings, player = self.settings, seating(policy.name, game)
        how = (metric.samples, settings.seed, settings.rules, settings.concurrency, settings.void_retries)
        kept = self._stored(policy, game, metric)
        table = await read_player(game_tree(game), player, *how, kept.rows(), kept.keep_row)
        kept.put(table)
        self._tables[policy.name, game] = table

    async def _ask(self, policy: Policy, missing: list[tuple[Question, int]], seating: Seating, bar: tqdm) -> None:
        tokenizer, generate = seating.tokenizer(policy), seating.generate_as(policy)
        await asking.ask(policy, tokenizer, generate, missing, self._answers[policy.name], self.settings)

    # -- results -------------------------------------------------------------------------------------------------------

    def _report(self) -> str:
        settings, plan = self.settings, self.schedule.plan
        anchor = settings.anchor or next((policy.name for policy in self.opponents), None)
        summary = summarise(self._store.records(plan), anchor, settings.lag, self.schedule.steps)
        exact = self._exact_metrics()
        sheets = metrics.sheets(**exact)
        if self._answers:
            self.show("judging the answers to the benchmarks")
        wanted = settings.benchmarks.samples
        answered = {name: answers.of(self.questions, wanted) for name, answers in self._answers.items()}
        with Grader() as grader:
            scores = {name: judge(self.questions, samples, grader)[1] for name, samples in answered.items()}
        notes = [*self.left_out]
        notes += self._missing()
        if too_long := sum(result.prompt_too_long.count for result in summary.results if result.role is None):
            notes.append(
                f"{too_long} games ended because a prompt was longer than data.max_prompt_length="
                f"{settings.max_prompt_length}, and were lost for both players; play them with a longer one in another "
                "folder"
            )
        sections = [
            *metrics.tables(sheets),
            *(f"Benchmarks: {name}\n\n{table(rows, settings.benchmarks.paper_model)}" for name, rows in scores.items()),
            *notes,
            f"Every game is in {FILE}: sqlite3 -readonly {self._store.file} 'SELECT value FROM games'",
        ]
        more = {
            **exact,
            "benchmarks": {name: [asdict(score) for score in rows] for name, rows in scores.items()},
            "notes": notes,
        }
        actions = [*action_rows(self._tables, settings.exploitability.games, settings.exploitability.by)]
        write_sheets(settings.eval_dir, {**sheets, "benchmarks": benchmark_sheet(scores), "actions": actions})
        return write_report(settings.eval_dir, summary, self._store.manifest, sections, more)

    def _missing(self) -> Iterator[str]:
        """Whose games were given up, how many, and why the first was void."""
        lost, first = {game.id for game in self._given_up}, dict[tuple[str, str], str | None]()
        for game in self._store.records(self.schedule.plan) if lost else ():
            if (game_id := GameId.of(game)) in lost:
                first.setdefault((game_id.policy, game_id.opponent), game.reason)
        for pair, reason in first.items():
            count = sum((game_id.policy, game_id.opponent) == pair for game_id in lost)
            yield (
                f"{' against '.join(pair)}: {count} games were void {self.settings.void_retries + 1} times and are "
                f"missing, the first: {reason}; a larger void_retries tries them again"
            )

    def _exact_metrics(self) -> dict[str, list[Row]]:
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
                for row in metrics.exploited(game, of(game), runs, exploit.by, settings.rules, settings.seed)
            ],
            "optimality": [row for game in optimal.games for row in metrics.optimal(game, of(game), optimal.by)],
        }
