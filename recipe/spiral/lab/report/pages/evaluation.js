// Evaluation: validation of the run, and what main_eval measured of it.
"use strict";

const interval = (low, high, digits = 0) => low === null || low === undefined ? null : h("span", { class: "range" }, ` ${percent(low, digits)}–${percent(high, digits)}`);
const rate = (share) => share && share.of ? [percent(share.value, 1), interval(share.low, share.high)] : "–";

// The first and the last validation by opponent, game and role.
function validations(all) {
  const rows = [];
  for (const name of all.names) {
    const found = name.match(/^val-core\/([^/]+)\/([^/]+)\/p([01])\/win$/);
    if (!found) continue;
    const [, opponent, game, role] = found, base = `${opponent}/${game}/p${role}`, of = (metric) => all.curve(`val-core/${base}/${metric}`), limits = (metric, end) => LAST(all.curve(`val-aux/${base}/${metric}_${end}`) ?? { y: [null] });
    const win = of("win");
    rows.push({ opponent, game, role, steps: [win.x[0], win.x.at(-1)], first: FIRST(win), games: LAST(of("games") ?? { y: [null] }),
      ...Object.fromEntries(["win", "draw", "loss", "invalid"].map((metric) => [metric, [LAST(of(metric) ?? { y: [null] }), limits(metric, "low"), limits(metric, "high")]])) });
  }
  return rows.sort((a, b) => a.game < b.game ? -1 : a.game > b.game ? 1 : a.opponent < b.opponent ? -1 : a.opponent > b.opponent ? 1 : a.role - b.role);
}

function validation(all, asks) {
  const rows = validations(all);
  if (!rows.length) return [];
  const shown = (metric) => (row) => [percent(row[metric][0], 1), interval(row[metric][1], row[metric][2])];
  const first = (row) => row.steps[0] < row.steps[1] ? percent(row.first, 1) : "–", count = (row) => number(row.games);
  const columns = asks ? [["data set", (row) => plain(row.game)], ["right at first", first, "n"], ["right", shown("win"), "n"], ["cannot be read", shown("invalid"), "n"], ["responses", count, "n"]]
    : [["game", (row) => plain(row.game)], ["against", (row) => plain(row.opponent)], ["role", (row) => [dot(`p${row.role}`), `player ${row.role}`]], ["won at first", first, "n"],
      ["won", shown("win"), "n"], ["drawn", shown("draw"), "n"], ["lost", shown("loss"), "n"], ["not legal", shown("invalid"), "n"], ["games", count, "n"]];
  return [h("h2", {}, "Validation"), h("p", { class: "note" }, `At step ${number(Math.max(...rows.map((row) => row.steps[1])))}, with 95% intervals; ${asks ? "answers" : "games"} of the policy during the training.`),
    h("div", { class: "card" }, table(columns, rows))];
}

function paper(data) {
  const rows = Object.entries(data.paper_averages).flatMap(([model, figures]) => Object.entries(figures).map(([training, value]) => [model, training, value]));
  return h("details", {}, h("summary", {}, `The paper's numbers (${data.paper}): means over its eight benchmarks`), h("div", { class: "card" },
    table([["model", ([model]) => model], ["training", ([, training]) => training], ["right answers", ([, , value]) => `${value.toFixed(1)}%`, "n"]], rows)));
}

function benchmarks(one, data) {
  const rows = Object.entries(one.benchmarks ?? {}).flatMap(([policy, scores]) => scores.map((score) => ({ policy, ...score })));
  if (!rows.length) return [];
  return [h("h3", {}, "Benchmarks"), h("div", { class: "card" }, table([["policy", (row) => plain(row.policy)], ["benchmark", (row) => plain(row.benchmark)], ["questions", (row) => row.questions, "n"], ["answers each", (row) => row.samples, "n"],
    ["right", (row) => [percent(row.avg.value, 1), interval(row.avg.low, row.avg.high)], "n"], ["majority", (row) => percent(row.maj.value, 1), "n"], ["truncated", (row) => percent(row.truncated?.value ?? null, 1), "n"]], rows)), paper(data)];
}

function ratings(one) {
  return (one.ratings ?? []).flatMap((rated) => {
    const scope = rated.scope === "all games" ? "all games" : plain(rated.scope), found = [];
    if (rated.players.length) found.push(dotChart(`Ratings, ${scope}`, `Elo with 95% intervals${rated.anchor ? `; ${plain(rated.anchor)} has 0` : ""}. ${plain(rated.note)}`,
      rated.players.map((player) => ({ name: plain(player.name), value: player.elo, low: player.low, high: player.high, hover: `${Math.round(player.elo)} [${Math.round(player.low)}, ${Math.round(player.high)}], ${player.games} games` })), { x: "Elo" }));
    const names = [...new Set(rated.head_to_head.map((pair) => pair.name))];
    if (names.length > 2) {
      const cell = new Map(rated.head_to_head.map((pair) => [`${pair.name}\n${pair.other}`, pair]));
      const grid = (of) => names.map((name) => names.map((other) => { const pair = cell.get(`${name}\n${other}`); return pair ? of(pair) : null; }));
      found.push(heatMap(`Head to head, ${scope}`, "The row's share of the points against the column; a draw is half a point", { x: names.map(plain), y: names.map(plain), z: grid((pair) => pair.score), text: grid((pair) => percent(pair.score)),
        hover: grid((pair) => `${label(pair.name)} against ${label(pair.other)}<br>${pair.wins} won, ${pair.draws} drawn, ${pair.losses} lost`) }));
    }
    return found;
  });
}

function exploited(one) {
  const rows = one.exploitability ?? [], optimal = one.optimality ?? [];
  return [
    rows.length ? [h("h3", {}, "Exploitability"), h("p", { class: "note" }, "NashConv is what both players could gain together by best answers; an equilibrium has 0."), h("div", { class: "card" }, table([["policy", (row) => plain(row.policy)], ["game", (row) => plain(row.game)],
      ["NashConv", (row) => [row.nash_conv.toFixed(3), row.interval ? h("span", { class: "range" }, ` ${row.interval[0].toFixed(3)}–${row.interval[1].toFixed(3)}`) : null], "n"], ["value for player 0", (row) => signed(row.value, 3), "n"], ["illegal, mean", (row) => percent(row.illegal[0], 1), "n"], ["illegal, largest", (row) => percent(row.illegal[1], 1), "n"]], rows))] : [],
    optimal.length ? [h("h3", {}, "Optimal moves"), h("div", { class: "card" }, table([["policy", (row) => plain(row.policy)], ["game", (row) => plain(row.game)], ["all decisions", (row) => [percent(row.optimal.share, 1), row.optimal.interval ? interval(...row.optimal.interval) : null], "n"],
      ["lost to perfect play, as player 0 and 1", (row) => row.lost_to_perfect.map((lost) => percent(lost, 1)).join(", "), "n"]], optimal))] : [],
  ].flat();
}

function results(one) {
  const rows = (one.results ?? []).filter((row) => row.role !== null);
  return rows.length ? [h("h3", {}, "Games"), h("div", { class: "card" }, table([["policy", (row) => plain(row.policy)], ["against", (row) => plain(row.opponent)], ["game", (row) => plain(row.game)], ["role", (row) => [dot(`p${row.role}`), `player ${row.role}`]],
    ["won", (row) => rate(row.win), "n"], ["drawn", (row) => rate(row.draw), "n"], ["lost", (row) => rate(row.loss), "n"], ["not legal", (row) => rate(row.invalid), "n"], ["games", (row) => number(row.games), "n"]], rows))] : [];
}

SPIRAL.start(async () => {
  const run = await SPIRAL.load("run"), data = await SPIRAL.load("evaluation"), all = reader(await SPIRAL.load("curves"));
  pageHead(run, "evaluation.html");
  const top = scrollY;
  forgetCharts();
  const exact = gamesOf(all.names, /^val-core\/([^/]+)\/nash_conv$/).map((game) => all.curve(`val-core/${game}/nash_conv`, { name: plain(game) }));
  const curves = lineChart("NashConv in validation", "An equilibrium has 0", exact, { zero: true });
  const parts = data.evaluations.flatMap((one) => {
    const inside = [...results(one), ...exploited(one), ...benchmarks(one, data)], charts = ratings(one);
    return [h("h2", {}, `Evaluation: ${plain(one.name)}`), (one.notes ?? []).map((note) => h("p", { class: "note" }, plain(typeof note === "string" ? note : JSON.stringify(note)))), ...inside, charts.length ? h("div", { class: "grid", style: "margin-top:.9rem" }, charts) : null];
  });
  put(document.querySelector("main"), ...[h("h1", {}, "Evaluation"), data.unreadable.map((line) => h("p", { class: "note" }, `cannot be read: ${plain(line)}`)), ...validation(all, run.asks_questions), h("div", { class: "grid", style: "margin-top:.9rem" }, curves),
    ...parts, data.evaluations.length ? null : h("p", { class: "note" }, run.kind === "evaluation" ? "There are no results yet: the evaluation is not over." : "No evaluation of this run was found. One in its folder is shown here, and any evaluation has a report of its own.")].flat(3).filter(Boolean));
  scrollTo(0, top);
});
