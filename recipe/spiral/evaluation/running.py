"""An evaluation from its settings to its results: read, play, ask, sum up; or go on with what a kill left to do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tqdm import tqdm

from ..serving.end_tokens import end_tokens
from .benchmarks import asking
from .benchmarks.metrics import Score
from .benchmarks.questions import Question
from .benchmarks.run import Sample
from .exploitability import metrics
from .exploitability.information_sets import game_tree
from .exploitability.metrics import Metrics
from .exploitability.policy_table import PolicyTable, read_player, read_scores
from .exploitability.table_store import TableStore
from .play.manifest import Manifest
from .play.matchups import PlannedGame
from .play.planning import Schedule, schedule
from .play.play_all import play_all
from .play.seating import Seating
from .play.store import GameStore
from .policies.engine import Served, VLLMEngine, check_length
from .policies.engines import Engine, Engines, Models, Start, at_once, in_order, models_of
from .policies.policies import Policy, Prompts, check_names, parse
from .policies.scoring import Scorer, free, load
from .ratings.summary import summarise
from .report.report import write_report
from .report.sheets import write_actions, write_sheets
from .settings import Settings, Yardstick

Show = Callable[[str], None]


@dataclass
class Found:
    """What an evaluation has come to besides its games."""

    readings: dict[tuple[str, str], PolicyTable] = field(default_factory=dict)
    samples: dict[str, list[Sample]] = field(default_factory=dict)
    given_up: list[PlannedGame] = field(default_factory=list)


class Evaluation:
    """Everything is checked and prepared when this is made; nothing is played yet, and no engine is there.

    Args:
        settings: the config's.
        start: makes an engine; None: vLLM's.
        show: tells people what is going on.

    Raises:
        ValueError: something is wrong with the settings, with a policy, or with benchmarks' data.
    """

    def __init__(self, settings: Settings, start: Start | None = None, show: Show = print) -> None:
        prompts = Prompts(settings.template, settings.style)
        self.policies = parse(settings.policies, settings.cache, "policies", prompts)
        self.opponents = parse(settings.opponents, settings.cache, "opponents", prompts)
        self.everybody = [*self.policies, *self.opponents]
        check_names(self.everybody, "policies and opponents")
        if not self.policies:
            raise ValueError("policies=[]: name at least one: policies=[tiny]")
        weighted = [policy.lengths for policy in self.everybody if policy.model is not None]
        self.settings = settings = settings.with_lengths(weighted)
        self.show = show
        self.learned = [policy for policy in self.policies if policy.model is not None]
        if settings.anchor is not None and settings.anchor not in {policy.name for policy in self.everybody}:
            names = ", ".join(policy.name for policy in self.everybody)
            raise ValueError(f"anchor={settings.anchor}: plays no game; there are {names}")
        read = (*settings.exploitability.games, *settings.optimality.games)
        talking = [policy.name for policy in self.learned if any(policy.prompt(game)[1] != "state" for game in read)]
        if talking:
            raise ValueError(
                f"prompt.style=dialogue ({talking[0]}): exploitability and optimality read a policy by what it answers "
                "to one observation; set exploitability.games=[] and optimality.games=[], or prompt.style=state"
            )
        for model in sorted(models_of(self.everybody)):
            check_length(model, settings.max_model_len)
        self.schedule: Schedule = schedule(
            self.policies,
            self.opponents,
            settings.games,
            settings.match_ups,
            settings.games_per_role,
            settings.seed,
            settings.chance,
            settings.lag,
        )
        self.asked: list[Question] = asking.questions(settings.benchmarks) if self.learned else []
        unplayed = [f"not played: {reason}" for reason in self.schedule.left_out]
        self.left_out = [*unplayed, *(f"not measured: {reason}" for reason in self._unread())]
        self._start = start or self._vllm
        self._found, self._kept = Found(), TableStore(settings.folder, show)

    def _vllm(self, model: Any, adapters: Any, engines: int) -> Engine:
        served = Served(model, adapters, self.settings.max_model_len, engines)
        return VLLMEngine(served, self.settings.engine)

    @property
    def manifest(self) -> Manifest:
        identities = {policy.name: policy.identity for policy in self.everybody}
        return Manifest(self.settings.seed, self.settings.chance, identities, self.settings.for_manifest())

    def run(self) -> str:
        """Do what is left to be done, write the results, and return their text.

        Raises:
            InUse, OtherEvaluation, CorruptGames: see ``GameStore``.
            EngineFailure: an engine does not start, or does not answer.
            Exception: whatever else a player raises. What was played by then is kept.
        """
        settings = self.settings
        with GameStore(settings.folder, self.manifest, settings.set_aside) as store:
            if store.set_aside:
                self.show(f"{store.set_aside} lines were set aside: their games are played again")
            for line in self.left_out:
                self.show(line)
            self._score()
            asyncio.run(self._with_engines(store))
            return self._sum_up(store)

    # -- reading by log-probabilities ----------------------------------------------------------------------------------

    def _readings(self, by: str) -> Iterable[tuple[Policy, str, Yardstick]]:
        """Whom to read in which game: by scores those with weights, by samples all that play it."""
        for policy in self.policies if by == "samples" else self.learned:
            for yardstick in (self.settings.exploitability, self.settings.optimality):
                if yardstick.by == by:
                    for game in yardstick.games:
                        if policy.unable(game) is None:
                            yield policy, game, yardstick

    def _unread(self) -> Iterable[str]:
        """What is not measured of policies without weights, and would not be missed in the tables."""
        for name in (policy.name for policy in self.policies if policy.model is None):
            for setting in ("exploitability", "optimality"):
                yardstick: Yardstick = getattr(self.settings, setting)
                if yardstick.games and yardstick.by == "scores":
                    yield f"{setting} of {name}: it has no weights; {setting}.by=samples reads it, too"
            if self.settings.benchmarks.names:
                yield f"benchmarks of {name}: only policies with weights are asked"

    def _how(self, policy: Policy, yardstick: Yardstick) -> dict[str, Any]:
        settings = self.settings.for_manifest()
        if yardstick.by == "samples":
            settings |= {"samples": yardstick.samples, "seed": self.settings.seed}
        return {"by": yardstick.by, "policy": dict(policy.identity), **settings}

    def _known(self, policy: Policy, game: str, yardstick: Yardstick) -> bool:
        kept = self._kept.find(policy.name, game, self._how(policy, yardstick))
        if kept is not None:
            self._found.readings[policy.name, game] = kept
        return kept is not None

    def _keep(self, policy: Policy, game: str, yardstick: Yardstick, reading: PolicyTable) -> None:
        self._kept.keep(policy.name, game, self._how(policy, yardstick), reading)
        self._found.readings[policy.name, game] = reading

    def _score(self) -> None:
        """Before engines take the memory: one model after the other."""
        settings = self.settings
        missing: dict[str, list[tuple[Policy, str, Yardstick]]] = {}
        for policy, game, yardstick in self._readings("scores"):
            if not self._known(policy, game, yardstick):
                missing.setdefault(policy.name, []).append((policy, game, yardstick))
        seating = Seating(self.everybody, settings, _no_engine)
        for name, wanted in missing.items():
            policy = wanted[0][0]
            assert policy.model is not None
            self.show(f"reading {name} by log-probabilities: {', '.join(game for _, game, _ in wanted)}")
            model = load(policy.model, policy.adapter, settings.engine.dtype)
            for _, game, yardstick in wanted:
                score = Scorer(
                    model,
                    seating.tokenizer(policy),
                    seating.encode(policy, game),
                    end_tokens(policy.model),
                    float(settings.sampling["temperature"]),
                    settings.max_response_length,
                )
                self._keep(policy, game, yardstick, read_scores(game_tree(game), score))
                del score
            del model
            free()

    # -- with engines --------------------------------------------------------------------------------------------------

    async def _with_engines(self, store: GameStore) -> None:
        """Games, samples and benchmarks, ordered by the models that they need."""
        work = self._work(store)
        engines = Engines(self._start, self.everybody, at_once(work), self.show)
        seating = Seating(self.everybody, self.settings, engines.generate_as)
        todo = len(self.schedule.plan)
        done = len(store.done(self.schedule.plan))
        try:
            # a bar's speed is that of this start
            with tqdm(total=todo, initial=done, unit="game", desc="games", disable=done == todo) as bar:
                for models, pieces in in_order(work):
                    await engines.hold(models)
                    for piece in pieces:
                        await piece(seating, bar)
        finally:
            engines.close()

    def _work(self, store: GameStore) -> dict[Models, list[Callable[[Seating, tqdm], Any]]]:
        work: dict[Models, list[Callable[[Seating, tqdm], Any]]] = {}
        known = {policy.name: policy for policy in self.everybody}
        games: dict[Models, list[PlannedGame]] = {}
        for planned in store.missing(self.schedule.plan):
            games.setdefault(models_of(known[name] for name in planned.players), []).append(planned)
        for models, those in games.items():
            work.setdefault(models, []).append(partial(self._play, store, those))
        for policy, game, yardstick in self._readings("samples"):
            if not self._known(policy, game, yardstick):
                work.setdefault(models_of([policy]), []).append(partial(self._sample, policy, game, yardstick))
        for policy in self.learned if self.asked else ():
            missing = asking.missing(policy, self.asked, self.settings.benchmarks, self.settings.folder)
            work.setdefault(models_of([policy] if missing else []), []).append(partial(self._ask, policy, missing))
        return work

    async def _play(self, store: GameStore, games: list[PlannedGame], seating: Seating, bar: tqdm) -> None:
        settings = self.settings
        self._found.given_up += await play_all(
            store, games, seating, settings.rules, settings.concurrency, settings.void_retries, bar
        )

    async def _sample(self, policy: Policy, game: str, yardstick: Yardstick, seating: Seating, bar: tqdm) -> None:
        self.show(f"reading {policy.name} in {game}: {yardstick.samples} samples of each information set")
        settings = self.settings
        reading = await read_player(
            game_tree(game),
            seating(policy.name, game),
            yardstick.samples,
            settings.seed,
            settings.rules,
            settings.concurrency,
        )
        self._keep(policy, game, yardstick, reading)

    async def _ask(self, policy: Policy, missing: int, seating: Seating, bar: tqdm) -> None:
        settings = self.settings
        self._found.samples[policy.name] = await asking.ask(
            policy,
            seating.tokenizer(policy),
            seating.generate(policy) if missing else None,
            self.asked,
            settings.benchmarks,
            settings.folder,
            settings.seed,
            settings.concurrency,
            settings.engine.seconds,
            settings.chat_template_kwargs,
        )

    # -- results -------------------------------------------------------------------------------------------------------

    def _sum_up(self, store: GameStore) -> str:
        settings, plan = self.settings, self.schedule.plan
        anchor = settings.anchor or next((policy.name for policy in self.opponents), None)
        summary = summarise(store.records(plan), anchor, settings.lag, self.schedule.steps)
        found = self._yardsticks(store)
        scores: Mapping[str, list[Score]] = {}
        if self._found.samples:
            self.show("judging the answers to the benchmarks")
            scores = asking.judged(self.asked, self._found.samples)
        notes = [*self.left_out]
        if self._found.given_up:
            notes.append(
                f"{len(self._found.given_up)} games were void {settings.void_retries + 1} times and are missing; a "
                "larger void_retries tries them again"
            )
        sections = [*metrics.tables(found), *asking.tables(scores, settings.benchmarks.paper_model)]
        more = {
            **found.to_dict(),
            "benchmarks": {name: [score.to_dict() for score in those] for name, those in scores.items()},
            "notes": notes,
        }
        write_sheets(settings.folder, found, scores)
        write_actions(settings.folder, self._found.readings, settings.exploitability.games, settings.exploitability.by)
        return write_report(settings.folder, summary, store.manifest, [*sections, *notes], more)

    def _yardsticks(self, store: GameStore) -> Metrics:
        settings = self.settings
        runs: dict[str, list[str]] = {}
        for policy in self.learned:
            if policy.run is not None:
                runs.setdefault(policy.run, []).append(policy.name)

        def of(game: str) -> dict[str, PolicyTable]:
            return {name: reading for (name, id_), reading in self._found.readings.items() if id_ == game}

        perfect = [policy.name for policy in self.everybody if policy.kind == "perfect"]
        exploit, optimal = settings.exploitability, settings.optimality
        return Metrics(
            [
                row
                for game in exploit.games
                for row in metrics.exploited(game, of(game), runs, exploit.by, settings.rules, settings.seed)
            ],
            [row for game in optimal.games for row in metrics.optimal(game, of(game), optimal.by)],
            metrics.unbeaten(store.records(self.schedule.plan), perfect, ("TicTacToe", "Nim")),
        )


def _no_engine(policy: Policy) -> Any:
    raise AssertionError(f"{policy.name} answers before there is an engine")
