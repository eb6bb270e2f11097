"""What endpoints may cost: a budget of the whole run for each of them, kept by the trainer.

The trainer is the only one that counts. At each step and batch of a validation it gives every rollout process an equal
quota of what is left of the budget, by the rows of its games. A process (``EndpointPlayer``) reports what it has spent
whenever a game is over, trained or not. So no process needs to know of the others, and a run oversteps a budget by no
more than the requests under way when quotas run out, and reports under way when they are given.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec

from ... import extensions
from ...opponents.fixed_opponents import FixedOpponent
from ...players.player import PlayerMisconfigured
from ...players.records import Usage
from ...storage.disk import write_whole
from .api.endpoint_player import ApiPlayer
from .api.endpoint_settings import ApiSettings, Limit

#: The kind of an endpoint, which may be paid for.
API = "api"
#: What was spent, in the run's folder.
COSTS = "spent.json"
#: Failures in a row after which an endpoint is left alone.
PATIENCE = 4
_Costs = dict[str, Usage]


@dataclass(frozen=True)
class Quota(Limit):
    """What one process may spend on one opponent in a step or a batch of a validation.

    ``number`` is higher for each step and batch of a validation after the run's last start.
    """

    number: int = 0


@dataclass(frozen=True)
class Spent:
    """What a process has spent on a player since it last said so."""

    player: str
    usage: Usage


class Budgets(extensions.Budgets):
    """What the run's endpoints have cost so far, also those that play in validation only, and what is left.

    Args:
        opponents: all fixed opponents.
        processes: how many rollout processes share the budgets.
        file: where the costs are written whenever reports were fetched. So a kill loses those of the step under way.

    Attributes:
        spent: by opponent.
    """

    def __init__(self, opponents: Iterable[FixedOpponent], processes: int, file: Path) -> None:
        super().__init__()
        endpoints = [opponent for opponent in opponents if opponent.kind == API]
        self._limits = {each.name: ApiSettings.from_mapping(each.settings).limit for each in endpoints}
        self._processes = processes
        self._file = file
        self._quotas = 0
        #: Whose budget was said to be spent.
        self._said: set[str] = set()
        self.spent = dict.fromkeys(self._limits, Usage())
        #: Of endpoints that play in another start of the run.
        self._absent: dict[str, Usage] = {}

    def reached(self, name: str) -> bool:
        """Whether an opponent's budget is spent; one that is no endpoint has none. Says so once."""
        if name not in self._limits or not self._limits[name].reached(self.spent[name]):
            return False
        if name not in self._said:
            self._said.add(name)
            tokens = self.spent[name].tokens
            self.say(f"opponents: {name}: the budget is spent: {tokens} tokens; its games are self-play now")
        return True

    def quotas(self) -> dict[str, str]:
        """Each opponent's ``Quota`` in the step or batch of a validation that begins, as JSON for its rows.

        Tokens are rounded up, so that every process may spend something until the budget is reached.
        """
        self.fetch()
        self._quotas += 1
        quotas = {}
        for name, limit in self._limits.items():
            spent = self.spent[name]
            tokens = None if limit.tokens is None else math.ceil(max(limit.tokens - spent.tokens, 0) / self._processes)
            usd = None if limit.usd is None else max(limit.usd - (spent.cost or 0.0), 0.0) / self._processes
            quotas[name] = json.dumps(asdict(Quota(tokens, usd, self._quotas)))
        return quotas

    def fetch(self) -> None:
        """Count what the processes have reported."""
        if self.spent:  # else there is nobody to report
            self.count(msgspec.json.decode(report, type=Spent) for report in self.reports())

    def count(self, reports: Iterable[Spent]) -> None:
        """Add what the processes have spent; it is on the disk from here on, unless that is full."""
        for report in reports:
            if report.player in self.spent:
                self.spent[report.player] += report.usage
        costs = json.dumps(self.state_dict())
        self.write("what the endpoints have cost", self._file.parent, lambda: write_whole(self._file, costs))

    def metrics(self) -> dict[str, float]:
        """Tokens and US dollars of each opponent in the whole run."""
        tokens = {f"opponents/{name}/tokens": float(usage.tokens) for name, usage in self.spent.items()}
        return tokens | {f"opponents/{name}/usd": usage.cost or 0.0 for name, usage in self.spent.items()}

    def state_dict(self) -> dict[str, Any]:
        return {name: asdict(usage) for name, usage in (self._absent | self.spent).items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint, or from the file if that knows of more: a killed run had gone on by then.

        Raises: as ``read_costs``.
        """
        for costs in (msgspec.convert(state, _Costs), read_costs(self._file) if self.spent else {}):
            for name, cost in costs.items():
                known = self.spent if name in self.spent else self._absent
                usages = (known.get(name, Usage()), cost)
                known[name] = max(usages, key=lambda usage: (usage.tokens, usage.cost or 0.0))


def read_costs(file: Path) -> dict[str, Usage]:
    """What a run's endpoints have cost, by name.

    Raises:
        PlayerMisconfigured: the file is damaged. To count that as nothing would spend the budget again.
    """
    try:
        return msgspec.json.decode(file.read_bytes(), type=_Costs) if file.is_file() else {}
    except (ValueError, RecursionError) as error:
        raise PlayerMisconfigured(
            f"{file}: is damaged, and what the endpoints have cost is not known ({error}); mend it, or remove it, and "
            "their budgets begin anew"
        ) from error


def keep_costs(player: ApiPlayer, file: Path) -> None:
    """Let a player of an evaluation go on from what the file says it has spent, and the file know of each request.

    Raises: as ``read_costs``.
    """

    def keep(spent: Usage) -> None:
        write_whole(file, msgspec.json.encode({**read_costs(file), player.name: spent}).decode())

    player.spent, player.keep = read_costs(file).get(player.name, Usage()), keep


class EndpointPlayer(ApiPlayer):
    """An ``ApiPlayer`` of one rollout process: held to its quota, and left alone for the rest of a step.

    It starts with what its settings allow, until there is a quota. A step begins with the first game that brings its
    quota; games of earlier steps, which may still be played, go on with that quota. An endpoint that is left alone is
    asked again in the next step, and then the first failure leaves it alone again, so few games try it.
    """

    def __init__(self, settings: ApiSettings, name: str) -> None:
        super().__init__(settings, name)
        self._quota = 0  # its number
        self._unreported = Usage()
        self.patience = PATIENCE

    def take(self, quota: str) -> None:
        """Spend this quota from here on, and ask again if the endpoint was left alone; an older one changes nothing.

        What was not reported yet counts for the new quota, because the trainer did not know of it. ``quota`` is a
        ``Quota`` as JSON; "" changes nothing, either.
        """
        if not quota or (new := Quota(**json.loads(quota))).number <= self._quota:
            return
        self._quota, self.limit, self.spent = new.number, new, self._unreported
        self.failures = min(self.failures, PATIENCE - 1)

    def count(self, usage: Usage) -> None:
        super().count(usage)
        self._unreported += usage

    def report(self) -> str:
        """What was spent since the last report, a ``Spent`` as JSON."""
        usage, self._unreported = self._unreported, Usage()
        return msgspec.json.encode(Spent(self.name, usage)).decode()
