// The pages with figures: the overview, how a run stands and its curves; and the evaluation, validation of the run and what
// main_eval measured of it.
"use strict";

// A game's charts: results of self-play, validation by role, baselines, advantages, invalid answers, distance from equilibrium.
function gameCharts({ curve, names, withLimits }, game, asks) {
  const roles = asks ? [0] : [0, 1], of = (role) => asks ? "" : ` ${role}`, kuhn = game === "KuhnPoker";
  const exact = (metric, shade) => [curve(`val-core/${game}/${metric}`, { name: "", colour: shade })];
  const opponents = [...new Set(names.map((name) => name.match(/^val-core\/(.+)\/([^/]+)\/p[01]\/win$/)).filter((found) => found && found[2] === game).map((found) => found[1]))];
  const won = (opponent) => roles.map((role) => withLimits(`val-core/${opponent}/${game}/p${role}/win`, `val-aux/${opponent}/${game}/p${role}/win`, { name: asks ? "" : roleName(role), colour: `p${role}` }));
  const rewards = roles.flatMap((role) => [curve(`games/${game}/p${role}/reward`, { name: `outcome${of(role)}`, colour: `p${role}`, thin: true, quiet: true }),
    curve(`games/${game}/p${role}/baseline`, { name: `baseline${of(role)}`, colour: `p${role}` })]);
  const advantages = roles.map((role) => {
    const mean = curve(`games/${game}/p${role}/advantage_mean`), spread = curve(`games/${game}/p${role}/advantage_std`);
    return mean && spread ? { ...mean, name: asks ? "" : roleName(role), colour: `p${role}`, low: mean.y.map((y, at) => y === null ? null : y - spread.y[at]), high: mean.y.map((y, at) => y === null ? null : y + spread.y[at]) } : null;
  });
  const invalid = roles.map((role) => curve(`games/${game}/p${role}/invalid`, { name: asks ? "" : roleName(role), colour: `p${role}` }));
  return [
    lineChart("NashConv", `What both players could gain by best answers${kuhn ? ", in chips" : ""}. An equilibrium has 0.`, exact("nash_conv", "accent"), { zero: true }),
    lineChart("Value for player 0", `Of the policy against itself, exact${kuhn ? ", in chips; −1/18 in an equilibrium" : ""}`, exact("value", "p0")),
    lineChart("Optimal moves", "Share of the decisions that can be reached", exact("optimal", "win"), { share: true }),
    lineChart("Illegal answers in the policy's table", "Mean over the information sets", exact("illegal", "loss"), { share: true }),
    ...opponents.map((opponent) => lineChart(asks ? "Right answers in validation" : `Won against ${plain(opponent)}`, asks ? "With 95% intervals" : "Validation, with 95% intervals", won(opponent), { share: true, range: [0, 1.02] })),
    ...resultCharts(curve, game, asks),
    lineChart(asks ? "Outcome and baseline" : "Outcome and baseline by role", "Thin: the step's mean outcome R. Bold: the baseline b that it is compared with.", rewards),
    lineChart(asks ? "Advantages" : "Advantages by role", "Mean, and one standard deviation to both sides", advantages),
    lineChart(asks ? "Answers that cannot be read" : "Ended by an answer that is not legal", `Share of the ${asks ? "responses" : "games"} in training`, invalid, { share: true }),
  ];
}

// The results of a game's training, by role; where both players are the policy, player 1's are player 0's the other way round.
function resultCharts(curve, game, asks) {
  const of = (role) => ["win", "draw", "loss"].map((result) => curve(`games/${game}/p${role}/${result}`));
  const [first, second] = [of(0), of(1)];
  const mirrored = first.every((line, at) => { const other = second[2 - at]; return line && other && line.y.every((y, step) => y === null || Math.abs(y - (other.y[step] ?? NaN)) < 1e-6); });
  return [first, second].flatMap((results, role) => {
    if (results.includes(null) || role && mirrored) return [];
    const said = asks ? ["right", "half right", "wrong"] : [`player ${role} won`, "draw", `player ${role} lost`], shades = asks ? ["win", "draw", "loss"] : [`p${role}`, "draw", `p${1 - role}`];
    return [stackChart(asks ? "Answers in training" : "Results in training", asks ? "Shares of the responses" : mirrored ? "Shares of the games of the policy with itself" : `Shares of the games in which the policy was player ${role}`,
      results.map((line, at) => ({ ...line, name: said[at], colour: shades[at] })), { share: true, full: true })];
  });
}

function answerCharts({ curve, names }, asks) {
  const games = gamesOf(names, /^games\/(.+)\/p[01]\/win$/);
  const byGame = (metric) => games.flatMap((game, place) => [0, 1].map((role) =>
    curve(`games/${game}/p${role}/${metric}`, { name: asks ? game : `${game} ${role}`, colour: PALETTE[place * 2 % PALETTE.length], dash: role ? "dot" : "solid", quiet: games.length > 3 })));
  const orAll = (metric) => { const own = byGame(metric); return own.some(Boolean) ? own : [curve(`turns/${metric}`, { name: "all", colour: "ink" })]; };
  const by = asks ? "by data set" : "by game and player", short = byGame("short_reasoning");
  const kinds = [["no_answer", "third"], ["unreadable", "p1"], ["illegal", "loss"], ["truncated", "fourth"]].map(([kind, shade]) => curve(`turns/${kind}`, { name: kind.replace("_", " "), colour: shade }));
  return [
    lineChart("Entropy", `Of the sampled tokens, in nats per token; ${by}`, orAll("entropy"), { zero: true }),
    lineChart("Length of a response", `Tokens, mean per ${asks ? "response" : "turn"}; ${by}`, orAll("response_tokens"), { zero: true }),
    stackChart(asks ? "Answers that cannot be read, by kind" : "Answers that are not legal actions, by kind", `Share of the ${asks ? "responses" : "turns"}`, kinds, { share: true }),
    short.some((line) => line?.y.some((y) => y > 0 && y < 1)) ? lineChart("Short reasoning", "Share of the turns with next to no words before the answer", short, { share: true }) : null,
  ];
}

function updateCharts({ curve }) {
  const one = (metric, title, note, options = {}) => {
    const line = curve(metric, { name: "", colour: "accent" });
    return line?.y.some((y) => y !== null) ? lineChart(title, note, [line], options) : null;
  };
  return [
    one("actor/grad_norm", "Gradient norm", "Before clipping", { zero: true }),
    one("actor/lr", "Learning rate", ""),
    one("actor/ppo_kl", "KL to the policy that played", "Nats per token"),
    one("actor/kl_loss", "KL to the reference policy", "Nats per token", { zero: true }),
    one("actor/pg_clipfrac", "Clipped tokens", "Share whose ratio PPO clips", { share: true }),
  ];
}

// With DPO's loss: pairs by game or data set, and whether the policy prefers the chosen response more than the reference does.
function pairCharts({ curve, names }) {
  const games = gamesOf(names, /^pairs\/(.+)\/count$/);
  const of = (game, ...lines) => lines.map(([metric, name, shade]) => curve(`pairs/${game}/${metric}`, { name, colour: shade }));
  const byGame = (metric) => [...games.map((game, place) => curve(`pairs/${game}/${metric}`, { name: game, colour: PALETTE[place % PALETTE.length] })),
    curve(`actor/dpo_${metric}`, { name: "in the update", colour: "ink", thin: true })];
  return [
    ...games.flatMap((game) => [
      stackChart(`Prompts that gave pairs, ${plain(game)}`, "A tie has no best response; one response alone can be compared with nothing", of(game, ["count", "pairs", "win"], ["ties", "ties", "draw"], ["alone", "one response", "fourth"])),
      lineChart(`Rewards of responses, ${plain(game)}`, "beta times the log-probability, minus the reference's; before the update", of(game, ["chosen_reward", "chosen", "win"], ["rejected_reward", "rejected", "loss"]), { zero: true }),
    ]),
    lineChart("Pairs the right way round", "Share whose chosen response the policy prefers more than the reference does", byGame("accuracy"), { share: true, range: [0, 1.02] }),
    lineChart("Margin", "Chosen minus rejected reward", byGame("margin"), { zero: true }),
  ];
}

// In the asynchronous modes: how old the trained games are, and what is lost by it.
function flightCharts({ curve, names }) {
  const of = (metric, name, shade) => curve(`async/${metric}`, { name, colour: shade });
  const ages = names.map((name) => name.match(/^async\/off_policy\/kl\/(\d+)$/)?.[1]).filter(Boolean).sort((a, b) => a - b);
  return [
    lineChart("Staleness of the trained games", "Updates between the weights that played and those that are trained", [of("staleness/mean", "mean", "p0"), of("staleness/max", "largest", "draw")], { zero: true }),
    lineChart("Games in flight", "Launched, and neither trained nor dropped", [of("in_flight", "", "accent")], { zero: true }),
    lineChart("Games that were too old", "Dropped since the step before", [of("dropped", "", "loss")], { zero: true }),
    lineChart("KL of the weights that played from those that learn", "Nats per token, by staleness", ages.slice(0, PALETTE.length).map((age, place) => of(`off_policy/kl/${age}`, age, PALETTE[place]))),
  ];
}

// The guard's symptoms, of those that there were.
function guardCharts({ curve, names }) {
  const found = names.filter((name) => name.startsWith("guard/")).map((name) => curve(name, { name: name.slice(6).replaceAll("_", " ") })).filter((line) => line.y.some((y) => y > 0));
  return [lineChart("Symptoms that the guard has seen", "1 while a game shows one; docs/metrics.md of the project", found, { range: [0, 1.05] })];
}

const PHASES = [["gen", "playing", "p0"], ["old_log_prob", "log-probs", "fourth"], ["ref", "reference", "third"], ["update_actor", "update", "p1"], ["update_weights", "sync", "win"],
  ["save_checkpoint", "saving", "draw"], ["testing", "validation", "loss"]];

function timeCharts({ curve }) {
  const phases = PHASES.map(([metric, name, shade]) => curve(`timing_s/${metric}`, { name, colour: shade })).filter(Boolean);
  const axis = [...new Set(phases.flatMap((line) => line.x))].sort((a, b) => a - b);
  const aligned = phases.map((line) => ({ ...line, x: axis, y: axis.map((step) => { const at = line.x.indexOf(step); return at < 0 ? 0 : line.y[at]; }) }));
  return [stackChart("Seconds by phase", "Of each step", aligned), lineChart("Games per second", "Of the whole step", [curve("perf/games_per_second", { name: "", colour: "accent" })], { zero: true })];
}

function tile(title, value, small, extra = null) {
  return h("div", { class: "card tile" }, h("dt", {}, title), h("dd", {}, value, h("small", {}, small), extra));
}

function tiles(run, all) {
  const { curve, names } = all, found = [], { val, human } = run.games;
  if (run.kind === "people") return h("dl", { class: "tiles" }, tile("Games with people", number(human), "as they were saved"));
  if (run.kind === "evaluation") return h("dl", { class: "tiles" }, tile("Games", number(run.games.eval), run.running ? "so far" : "in the evaluation"));
  const share = run.total ? Math.min(1, run.step / run.total) : null;
  const bar = share === null ? null : h("div", { class: "bar" }, h("i", { style: `width:${100 * share}%` }));
  const time = run.started && run.latest > run.started ? duration(run.latest - run.started) : "";
  found.push(tile("Step", number(run.step), [run.total ? `of ${number(run.total)}` : "", time].filter(Boolean).join(", "), bar));
  found.push(tile(run.asks_questions ? "Responses trained" : "Games trained", number(run.trained), `${number(val)} in validation`));
  for (const name of names.filter((name) => /^val-core\/[^/]+\/nash_conv$/.test(name))) {
    const line = curve(name);
    found.push(tile(`NashConv, ${name.split("/")[1]}`, number(LAST(line), 2), `${number(FIRST(line), 2)} at first, best 0`));
  }
  for (const name of names.filter((name) => /^val-core\/(?!.*\/.*\/.*\/)[^/]+\/p[01]\/win$/.test(name)).slice(0, 6)) {
    const line = curve(name), [, game, role] = name.split("/");
    found.push(tile(run.asks_questions ? `${game}: right` : `${game}, player ${role[1]}: won`, percent(LAST(line)), line.y.length > 1 ? `${percent(FIRST(line))} at first` : "one validation"));
  }
  const invalid = curve("turns/invalid");
  if (invalid) found.push(tile(run.asks_questions ? "Cannot be read" : "Not legal", percent(LAST(invalid), 1), `of the ${run.asks_questions ? "responses" : "turns"}; ${percent(FIRST(invalid), 1)} at first`));
  return h("dl", { class: "tiles" }, found);
}

function section(title, charts) {
  return charts.some(Boolean) ? [h("h2", {}, title), h("div", { class: "grid" }, charts)] : [];
}

// Games that people played, from their side; or an evaluation's, which the lines lead to.
function counts(run) {
  if (!run.results.length) return [];
  const people = run.kind === "people", played = (row) => row[4] + row[5] + row[6], share = (at) => (row) => [row[at], h("span", { class: "range" }, ` ${percent(row[at] / played(row))}`)];
  const columns = [...people ? [] : [["policy", ([policy]) => plain(policy)]], ["game", ([, game]) => plain(game)], ["against", ([, , opponent]) => plain(opponent)], [people ? "you were" : "role", ([, , , role]) => [dot(`p${role}`), `player ${role}`]],
    ...["won", "drawn", "lost"].map((title, at) => [title, people ? (row) => row[4 + at] : share(4 + at), "n"]), ...people ? [] : [["not legal", share(7), "n"]],
    ["", ([policy, game, opponent, roles]) => h("a", { href: `games.html#${new URLSearchParams({ ...people ? {} : { policy }, game, opponent, roles })}` }, "games")]];
  return [h("h2", {}, "Results"), h("div", { class: "card" }, table(columns, run.results))];
}

function settings(run) {
  if (!Object.keys(run.settings).length) return [];
  const said = (value) => typeof value === "object" ? JSON.stringify(value) : String(value);
  const before = (key) => run.changes.filter(([, name]) => name === key).map(([step, , was, now]) => `${said(was)} until step ${step}, then ${said(now)}`);
  const rows = Object.entries(run.settings).map(([key, value]) => [key, before(key).join("; ") || said(value)]);
  return [h("h2", {}, "Settings"), h("div", { class: "card" }, table([["key", ([key]) => h("code", {}, key), "wrap"], ["value", ([, value]) => plain(value), "wrap"]], rows))];
}

async function overview() {
  const run = await SPIRAL.load("run"), all = reader(await SPIRAL.load("curves"));
  pageHead(run, "index.html");
  forgetCharts();
  const games = [...new Set([...gamesOf(all.names, /^games\/(.+)\/p[01]\/win$/), ...gamesOf(all.names, /^val-core\/[^/]+\/([^/]+)\/p[01]\/win$/)])].sort();
  const top = scrollY;
  put(document.querySelector("main"),
    h("h1", {}, plain(run.name)),
    h("p", { class: "soft" }, games.length ? `${run.asks_questions ? "Questions of" : "Self-play on"} ${games.map(plain).join(" and ")}. ` : "", run.broken ? `${number(run.broken)} records could not be read and are left out. ` : "", ...run.notes.map((line) => `${plain(line)}. `),
      h("a", { href: "games.html" }, run.asks_questions ? "Look at the responses" : "Look at the games")),
    tiles(run, all),
    ...counts(run),
    ...games.flatMap((game) => section(plain(game), gameCharts(all, game, run.asks_questions))),
    ...section("Answers", [...answerCharts(all, run.asks_questions), ...guardCharts(all)]),
    ...section("Games in flight", flightCharts(all)),
    ...section("Pairs", pairCharts(all)),
    ...section("Update", updateCharts(all)),
    ...section("Time", timeCharts(all)),
    ...settings(run));
  scrollTo(0, top);
}

// -- evaluation ----------------------------------------------------------------------------------------------------------

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

function benchmarks(one) {
  const rows = Object.entries(one.benchmarks ?? {}).flatMap(([policy, scores]) => scores.map((score) => ({ policy, ...score })));
  if (!rows.length) return [];
  return [h("h3", {}, "Benchmarks"), h("div", { class: "card" }, table([["policy", (row) => plain(row.policy)], ["benchmark", (row) => plain(row.benchmark)], ["questions", (row) => row.questions, "n"], ["answers each", (row) => row.samples, "n"],
    ["right", (row) => [percent(row.avg.value, 1), interval(row.avg.low, row.avg.high)], "n"], ["majority", (row) => percent(row.maj.value, 1), "n"], ["truncated", (row) => percent(row.truncated?.value ?? null, 1), "n"]], rows)), paper(one)];
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

async function evaluation() {
  const run = await SPIRAL.load("run"), data = await SPIRAL.load("evaluation"), all = reader(await SPIRAL.load("curves"));
  pageHead(run, "evaluation.html");
  const top = scrollY;
  forgetCharts();
  const exact = gamesOf(all.names, /^val-core\/([^/]+)\/nash_conv$/).map((game) => all.curve(`val-core/${game}/nash_conv`, { name: plain(game) }));
  const curves = lineChart("NashConv in validation", "An equilibrium has 0", exact, { zero: true });
  const charts = ratings(data), notes = (data.notes ?? []).map((note) => h("p", { class: "note" }, plain(typeof note === "string" ? note : JSON.stringify(note))));
  const none = run.kind !== "evaluation" ? "An evaluation of this run has a report of its own, which is made of the evaluation's folder." : data.results ? null : "There are no results yet: the evaluation is not over.";
  put(document.querySelector("main"), ...[h("h1", {}, "Evaluation"), ...validation(all, run.asks_questions), h("div", { class: "grid", style: "margin-top:.9rem" }, curves),
    ...notes, ...results(data), ...exploited(data), ...benchmarks(data), charts.length ? h("div", { class: "grid", style: "margin-top:.9rem" }, charts) : null, none ? h("p", { class: "note" }, none) : null].flat(3).filter(Boolean));
  scrollTo(0, top);
}
