// The overview: how a run stands, and its curves.
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
  if (!Object.keys(run.settings).length && !run.last_lines.length) return [];
  const said = (value) => typeof value === "object" ? JSON.stringify(value) : String(value);
  const before = (key) => run.changes.filter(([, name]) => name === key).map(([step, , was, now]) => `${said(was)} until step ${step}, then ${said(now)}`);
  const rows = Object.entries(run.settings).map(([key, value]) => [key, before(key).join("; ") || said(value)]);
  return [h("h2", {}, "Settings"), h("div", { class: "card" }, table([["key", ([key]) => h("code", {}, key), "wrap"], ["value", ([, value]) => plain(value), "wrap"]], rows)),
    run.last_lines.length ? h("details", {}, h("summary", {}, "The last lines of train.log"), h("div", { class: "card" }, textBox(run.last_lines.join("\n")))) : null];
}

SPIRAL.start(async () => {
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
    all.names.length ? h("form", { class: "filters card", style: "margin-top:1rem", onsubmit: (event) => event.preventDefault() }, viewControls()) : "",
    ...counts(run),
    ...games.flatMap((game) => section(plain(game), gameCharts(all, game, run.asks_questions))),
    ...section("Answers", [...answerCharts(all, run.asks_questions), ...guardCharts(all)]),
    ...section("Games in flight", flightCharts(all)),
    ...section("Pairs", pairCharts(all)),
    ...section("Update", updateCharts(all)),
    ...section("Time", timeCharts(all)),
    ...settings(run).filter(Boolean));
  scrollTo(0, top);
});
