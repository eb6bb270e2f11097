"""An evaluation from its settings to its results: compute policy tables, play, ask benchmarks, and report.

What an earlier start has done is in the evaluation's database, and is not done again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tqdm import tqdm

from ..questions.question import Question
from ..serving.end_tokens import end_tokens
from .benchmarks import asking
from .benchmarks.answers import Answers, Sample
from .exploitability import metrics
from .exploitability.information_sets import game_tree
from .exploitability.metrics import Metrics
from .exploitability.policy_table import PolicyTable, TableStore, read_player, read_scores
from .play.loop import play_games
from .play.manifest import Manifest
from .play.matchups import PlannedGame
from .play.planning import Schedule, schedule
from .play.seating import Seating
from .play.store import FILE, EvaluationStore
from .policies.engine import Served, VLLMEngine, check_length
from .policies.engines import Engine, Engines, Models, Start, at_once, in_order, models_of
from .policies.entries import check_names, parse
from .policies.policy import Policy, Prompts
from .policies.scoring import Responses, Scorer, free_memory, load, of_model
from .ratings.summary import summarise
from .report.results import write_report
from .report.sheets import action_rows, metric_sheets, write_sheets
from .report.trackers import log_results
from .settings import ExactMetric, Settings

Show = Callable[[str], None]
#: A piece of work, done when its models are loaded; the bar counts games.
Work = Callable[[Seating, tqdm], Awaitable[None]]


@dataclass
class _State:
    """What an evaluation has besides its games.

    Attributes:
        store: its folder.
        tables: policy tables, by policy and game.
        samples: answers to benchmarks, by policy.
        given_up: games that were void too often.
    """

    store: EvaluationStore
    tables: dict[tuple[str, str], PolicyTable] = field(default_factory=dict)
    samples: dict[str, list[Sample]] = field(default_factory=dict)
    given_up: list[PlannedGame] = field(default_factory=list)


class Evaluation:
    """Everything is checked and prepared when this is made; nothing is played yet, and no engine is started.

    Args:
        settings: the config's.
        start: starts an engine; None: vLLM's.
        show: prints what is going on.

    Raises:
        ValueError: something is wrong with the settings, with a policy, or with benchmarks' data.
    """

    def __init__(self, settings: Settings, start: Start | None = None, show: Show = print) -> None:
        prompts = Prompts(settings.prompt.template, settings.prompt.style)
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

    def _start_vllm(self, model: Any, adapters: Any, engines: int) -> Engine:
        return VLLMEngine(Served(model, adapters, self.settings.max_model_len, engines), self.settings.engine)

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

    @property
    def manifest(self) -> Manifest:
        identities = {policy.name: policy.identity for policy in self.everybody}
        return Manifest(self.settings.seed, self.settings.randomness, identities, self.settings.for_manifest())

    def run(self) -> str:
        """Do what is left to be done, write the results, and return their text.

        Raises:
            InUse, OtherEvaluation, DamagedDatabase: see ``EvaluationStore``.
            EngineFailure: an engine does not start, or does not answer.
            Exception: whatever else a player raises. What was played by then is stored.
        """
        with EvaluationStore(self.settings.folder, self.manifest) as store:
            for line in self.left_out:
                self.show(line)
            state = _State(store)
            self._tables_by_scores(state)
            asyncio.run(self._with_engines(state))
            text = self._report(state)
        loggers = self.settings.logger
        log_results(self.settings.folder, self.weighted, None if loggers is None else list(loggers), self.show)
        return text

    # -- policy tables -------------------------------------------------------------------------------------------------

    def _wanted_tables(self, by: str) -> Iterator[tuple[Policy, str, ExactMetric]]:
        """By scores of policies with weights, by samples of all that play the game."""
        for policy in self.policies if by == "samples" else self.weighted:
            for metric in (self.settings.exploitability, self.settings.optimality):
                for game in metric.games if metric.by == by else ():
                    if policy.unable(game) is None:
                        yield policy, game, metric

    def _unmeasured(self) -> Iterator[str]:
        """What is not measured of policies without weights."""
        for name in (policy.name for policy in self.policies if policy.model is None):
            for setting in ("exploitability", "optimality"):
                metric: ExactMetric = getattr(self.settings, setting)
                if metric.games and metric.by == "scores":
                    yield f"{setting} of {name}: it has no weights; {setting}.by=samples measures it, too"
            if self.settings.benchmarks.names:
                yield f"benchmarks of {name}: only policies with weights are asked"

    def _how(self, policy: Policy, metric: ExactMetric) -> dict[str, Any]:
        """What a policy table depends on."""
        settings = self.settings.for_manifest()
        if metric.by == "samples":
            settings |= {"samples": metric.samples, "seed": self.settings.seed}
        return {"by": metric.by, "policy": dict(policy.identity), **settings}

    def _missing_tables(self, by: str, state: _State) -> list[tuple[Policy, str, ExactMetric]]:
        missing = []
        for policy, game, metric in self._wanted_tables(by):
            stored = TableStore(state.store.database).find(policy.name, game, self._how(policy, metric))
            if stored is None:
                missing.append((policy, game, metric))
            else:
                state.tables[policy.name, game] = stored
        return missing

    def _add_table(self, policy: Policy, game: str, metric: ExactMetric, table: PolicyTable, state: _State) -> None:
        TableStore(state.store.database).put(policy.name, game, self._how(policy, metric), table)
        state.tables[policy.name, game] = table

    def _tables_by_scores(self, state: _State) -> None:
        """Before engines take the memory, with one model after the other."""
        settings = self.settings
        missing = self._missing_tables("scores", state)
        seating = Seating(self.everybody, settings, _no_engine)
        for policy in dict.fromkeys(policy.name for policy, _, _ in missing):
            wanted = [entry for entry in missing if entry[0].name == policy]
            self.show(f"log-probabilities of {policy}: {', '.join(game for _, game, _ in wanted)}")
            self._score(wanted, seating, state)
            free_memory()

    def _score(self, wanted: list[tuple[Policy, str, ExactMetric]], seating: Seating, state: _State) -> None:
        """The tables of one policy."""
        policy, settings = wanted[0][0], self.settings
        assert policy.model is not None
        model = load(policy.model, policy.adapter, settings.engine.dtype)
        responses = Responses(
            tuple(sorted(end_tokens(policy.model))), settings.sampling.temperature, settings.max_response_length
        )
        for _, game, metric in wanted:
            score = Scorer(seating.tokenizer(policy), seating.encode(policy, game), of_model(model, responses))
            self._add_table(policy, game, metric, read_scores(game_tree(game), score), state)

    # -- with engines --------------------------------------------------------------------------------------------------

    async def _with_engines(self, state: _State) -> None:
        """Games, samples and benchmarks, ordered by the models that they need."""
        work, plan = self._work(state), self.schedule.plan
        engines = Engines(self._start, self.everybody, at_once(work), self.show)
        seating = Seating(self.everybody, self.settings, engines.generate_as)
        done = len(state.store.finished(plan))
        try:
            with tqdm(total=len(plan), initial=done, unit="game", desc="games", disable=done == len(plan)) as bar:
                for models, pieces in in_order(work):
                    await engines.load(models)
                    for piece in pieces:
                        await piece(seating, bar)
        finally:
            engines.close()
        for policy in self.weighted if self.questions else ():
            answers = asking.stored_answers(state.store.database, policy, self.settings)
            state.samples[policy.name] = answers.of(self.questions, self.settings.benchmarks.samples)

    def _work(self, state: _State) -> dict[Models, list[Work]]:
        """What is missing, by the models that it needs."""
        work: dict[Models, list[Work]] = {}
        known = {policy.name: policy for policy in self.everybody}
        games: dict[Models, list[PlannedGame]] = {}
        for planned in state.store.missing(self.schedule.plan):
            games.setdefault(models_of(known[name] for name in planned.players), []).append(planned)
        for models, planned_games in games.items():
            work.setdefault(models, []).append(partial(self._play, planned_games, state))
        for policy, game, metric in self._missing_tables("samples", state):
            work.setdefault(models_of([policy]), []).append(partial(self._sample, policy, game, metric, state))
        for policy in self.weighted if self.questions else ():
            answers = asking.stored_answers(state.store.database, policy, self.settings)
            if missing := answers.missing(self.questions, self.settings.benchmarks.samples):
                work.setdefault(models_of([policy]), []).append(partial(self._ask, policy, missing, answers))
        return work

    async def _play(self, games: list[PlannedGame], state: _State, seating: Seating, bar: tqdm) -> None:
        settings = self.settings
        state.given_up += await play_games(
            state.store, games, seating, settings.rules, settings.concurrency, settings.void_retries, bar
        )

    async def _sample(
        self, policy: Policy, game: str, metric: ExactMetric, state: _State, seating: Seating, bar: tqdm
    ) -> None:
        self.show(f"{policy.name} in {game}: {metric.samples} samples of each information set")
        settings, player = self.settings, seating(policy.name, game)
        table = await read_player(
            game_tree(game), player, metric.samples, settings.seed, settings.rules, settings.concurrency
        )
        self._add_table(policy, game, metric, table, state)

    async def _ask(
        self, policy: Policy, missing: list[tuple[Question, int]], answers: Answers, seating: Seating, bar: tqdm
    ) -> None:
        generate = seating.generate_as(policy)
        await asking.ask(policy, seating.tokenizer(policy), generate, missing, answers, self.settings)

    # -- results -------------------------------------------------------------------------------------------------------

    def _report(self, state: _State) -> str:
        settings, store = self.settings, state.store
        anchor = settings.anchor or next((policy.name for policy in self.opponents), None)
        summary = summarise(store.records(self.schedule.plan), anchor, settings.lag, self.schedule.steps)
        exact = self._exact_metrics(state)
        if state.samples:
            self.show("judging the answers to the benchmarks")
        scores = asking.scores_of(self.questions, state.samples) if state.samples else {}
        notes = [*self.left_out]
        if state.given_up:
            notes.append(
                f"{len(state.given_up)} games were void {settings.void_retries + 1} times and are missing; a larger "
                "void_retries tries them again"
            )
        if too_long := sum(result.prompt_too_long.count for result in summary.results if result.role is None):
            notes.append(
                f"{too_long} games ended because a prompt was longer than data.max_prompt_length="
                f"{settings.max_prompt_length}, and were lost for both players; play them with a longer one in another "
                "folder"
            )
        sections = [
            *metrics.tables(exact),
            *asking.tables(scores, settings.benchmarks.paper_model),
            *notes,
            f"Every game is in {FILE}: sqlite3 -readonly {store.database.file} 'SELECT value FROM games'",
        ]
        more = {
            **exact.to_dict(),
            "benchmarks": {name: [score.to_dict() for score in rows] for name, rows in scores.items()},
            "notes": notes,
        }
        actions = [*action_rows(state.tables, settings.exploitability.games, settings.exploitability.by)]
        write_sheets(settings.folder, {**metric_sheets(exact, scores), "actions": actions})
        return write_report(settings.folder, summary, store.manifest, sections, more)

    def _exact_metrics(self, state: _State) -> Metrics:
        settings = self.settings
        runs: dict[str, list[str]] = {}
        for policy in self.weighted:
            if policy.run is not None:
                runs.setdefault(policy.run, []).append(policy.name)

        def of(game: str) -> dict[str, PolicyTable]:
            return {name: table for (name, id_), table in state.tables.items() if id_ == game}

        perfect = [policy.name for policy in self.everybody if policy.kind == "perfect"]
        exploit, optimal = settings.exploitability, settings.optimality
        return Metrics(
            [
                row
                for game in exploit.games
                for row in metrics.exploited(game, of(game), runs, exploit.by, settings.rules, settings.seed)
            ],
            [row for game in optimal.games for row in metrics.optimal(game, of(game), optimal.by)],
            metrics.not_lost(state.store.records(self.schedule.plan), perfect),
        )


def _no_engine(policy: Policy) -> Any:
    raise AssertionError(f"{policy.name} answers before there is an engine")
