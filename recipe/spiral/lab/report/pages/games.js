// The games: found by what they are, newest first, a block of the index at a time; and the replay of one, turn by turn, by
// buttons and keys, the table beside what was seen and answered.
"use strict";

// The games that fit filters are in the order of their list: the newest step first, and in a step as they were played.
const FIELDS = ["split", "policy", "game", "opponent", "roles", "outcome", "invalid", "from", "to"];

// The filters of an address's part, "#game=Nim" or "?game=Nim"; and such a part of filters, "" without any.
const filtersOf = (part) => Object.fromEntries(FIELDS.map((field) => [field, new URLSearchParams(part.slice(1)).get(field) ?? ""]));
const asPart = (wanted) => String(new URLSearchParams(Object.entries(wanted).filter(([, value]) => value)));

// A line of the index as an object.
function entry(line, names, split, step) {
  const [index, policy, game, opponent, roles, outcome, invalid, by, turns, tokens, part, place] = line;
  return { split, step, index, policy: names[policy], game: names[game], opponent: names[opponent], roles, outcome, invalid, by, turns, tokens, part, place };
}

// Whether a game is what is looked for. Players' results are 0 and 1, draw 2, both lost 3; "won" and "lost" are the policy's.
function fits(game, wanted) {
  if (["policy", "game", "opponent"].some((field) => wanted[field] && game[field] !== wanted[field])) return false;
  if (wanted.roles && game.roles !== Number(wanted.roles)) return false;
  if (wanted.invalid === "any" ? !game.invalid : wanted.invalid === "none" ? game.invalid : wanted.invalid && game.invalid !== Number(wanted.invalid)) return false;
  if (wanted.from && game.step < Number(wanted.from) || wanted.to && game.step > Number(wanted.to)) return false;
  if (wanted.outcome === "won") return game.roles !== 2 && game.outcome === game.roles;
  if (wanted.outcome === "lost") return game.roles !== 2 && (game.outcome === 1 - game.roles || game.outcome === 3);
  return !wanted.outcome || game.outcome === Number(wanted.outcome);
}

// A game's place in the report, and its page, which keeps the filters.
const placeOf = (game) => `#${[game.split, game.step, game.part, game.place].join("/")}`;
const pageOf = (game, wanted) => `game.html${asPart(wanted) && `?${asPart(wanted)}`}${placeOf(game)}`;

// The blocks of the index that may have such games, in order; and those that a block has.
function blocksOf(catalogue, wanted) {
  const may = ([split, , first, last]) => (!wanted.split || split === wanted.split) && !(wanted.from && last < Number(wanted.from)) && !(wanted.to && first > Number(wanted.to));
  return catalogue.blocks.filter(may).sort((a, b) => b[3] - a[3] || (a[0] < b[0] ? -1 : 1));
}

async function gamesIn([split, block], wanted) {
  const { names, steps } = await SPIRAL.load(`index/${split}_${block}`);
  return Object.keys(steps).map(Number).sort((a, b) => b - a)
    .flatMap((step) => steps[step].lines.map((line) => entry(line, names, split, step)).filter((game) => fits(game, wanted)));
}

// -- the list ---------------------------------------------------------------------------------------------------------

const PAGE = 50;
let shown = PAGE, search = 0;

const RESULT_CLASS = ["p0", "p1", "draw", "loss", "draw"];

function select(name, title, choices, value) {
  return h("label", {}, title, h("select", { name }, choices.map(([key, text]) => h("option", { value: key, selected: String(key) === value }, plain(text)))));
}

// What a game's results are called; of a question there are two, and of a person's game the person's side is told.
const outcomesOf = (run, catalogue) => run.asks_questions ? ["right", "wrong", "half right", ...catalogue.outcomes.slice(3)] : catalogue.outcomes;

function filters(run, catalogue, wanted) {
  const { policies, games, opponents, invalid } = catalogue, people = run.kind === "people", measured = run.kind === "evaluation", asks = run.asks_questions;
  const steps = people ? "number" : measured ? null : "step";
  const words = { no_answer: "no answer", unreadable: "unreadable", illegal: "against the rules", truncated: "truncated" };
  return h("form", { class: "filters card", "aria-label": "Filters" },
    people || measured ? null : select("split", asks ? "answered in" : "played in", [["", "all"], ["train", "training"], ["val", "validation"], ...run.games.human ? [["human", "games with people"]] : []], wanted.split),
    measured ? select("policy", "policy", [["", "all"], ...policies.map((name) => [name, name])], wanted.policy) : null,
    select("game", asks ? "data set" : "game", [["", "all"], ...games.map((name) => [name, name])], wanted.game),
    steps && ["from", "to"].map((end) => h("label", {}, `${end} ${steps}`, h("input", { name: end, type: "number", min: 0, value: wanted[end], inputmode: "numeric" }))),
    asks ? null : select("opponent", "opponent", [["", "all"], ...opponents.map((name) => [name, name === "self" ? "itself" : name])], wanted.opponent),
    asks ? null : select("roles", people ? "you were" : "the policy was", [["", "any"], ["0", people ? "player 0" : "player 0 only"], ["1", people ? "player 1" : "player 1 only"]], wanted.roles),
    select("outcome", "outcome", [["", "all"], ...outcomesOf(run, catalogue).map((text, place) => [place, text]).filter(([place]) => !asks || place !== 3), ...asks ? [] : people ? [["won", "you won"], ["lost", "you lost"]]
      : [["won", "the policy beat its opponent"], ["lost", "the policy lost to its opponent"]]], wanted.outcome),
    select("invalid", asks ? "cannot be read" : "answer not legal", [["", "all"], ["none", "none"], ["any", "any"], ...invalid.slice(1).map((kind, place) => [place + 1, words[kind]])], wanted.invalid));
}

function resultOf(game, outcomes, asks) {
  return [dot((asks ? ["win", "loss"] : RESULT_CLASS)[game.outcome] ?? RESULT_CLASS[game.outcome]), outcomes[game.outcome]];
}

async function list({ again }) {
  const run = await SPIRAL.load("run"), catalogue = await SPIRAL.load("games");
  pageHead(run, "games.html");
  const main = document.querySelector("main");
  const wanted = filtersOf(location.hash);
  // The form stays where it is: whoever types in it is not disturbed.
  if (!again) main.replaceChildren(h("h1", {}, run.asks_questions ? "Responses" : "Games"), filters(run, catalogue, wanted), h("div", {}));
  const form = document.querySelector("form.filters");
  const list = h("div", { class: "card" }), status = h("p", { class: "note", role: "status" });
  const more = h("button", { type: "button", id: "older" }, run.asks_questions ? "older responses" : "older games");
  const people = run.kind === "people", measured = run.kind === "evaluation", asks = run.asks_questions, outcomes = outcomesOf(run, catalogue);
  const kinds = ["", "no answer", "unreadable", "against the rules", "truncated"];
  const columns = [
    measured ? ["number", (game) => h("a", { href: pageOf(game, wanted) }, number(game.index + 1)), "n"]
      : [people ? "number" : "step", (game) => [game.split === "train" || people || measured ? null : h("span", { class: "soft" }, `${game.split === "val" ? "validation" : "with people"} `), h("a", { href: pageOf(game, wanted) }, number(game.step))], "n"],
    ...measured ? [["policy", (game) => plain(game.policy)]] : [],
    [asks ? "data set" : "game", (game) => plain(game.game)],
    ["outcome", (game) => resultOf(game, outcomes, asks)],
    ...asks ? [] : [["against", (game) => game.opponent === "self" ? h("span", { class: "soft" }, "itself") : plain(game.opponent)],
      [people ? "you were" : "as", (game) => game.roles === 2 ? h("span", { class: "soft" }, "both") : [dot(`p${game.roles}`), `player ${game.roles}`]]],
    [asks ? "cannot be read" : "not legal", (game) => game.invalid ? [dot("loss"), kinds[game.invalid], asks ? null : h("span", { class: "range" }, ` player ${game.by}`)] : ""],
    ["turns", (game) => game.turns, "n"], ["tokens", (game) => number(game.tokens), "n"]];
  let found = [], waiting = [], what = asks ? "response" : "game";

  // Reads blocks of the index until there are so many games that fit, and shows them.
  const show = async (count) => {
    const mine = ++search;
    while (waiting.length && found.length < count) {
      const fitting = await gamesIn(waiting[0], wanted);
      if (mine !== search) return;  // the newer search reads this block itself
      waiting.shift();
      found.push(...fitting);
    }
    shown = count;
    const some = found.slice(0, count), all = !waiting.length && found.length <= count;
    const open = (game, event) => { if (event.target.tagName !== "A") location.href = pageOf(game, wanted); };
    put(list, some.length ? table(columns, some, open) : h("p", { class: "soft" }, "No game fits."));
    status.textContent = all ? counted(found.length, what) : `the newest ${number(some.length)} of ${waiting.length ? "at least " : ""}${counted(found.length, what)}`;
    more.hidden = all;
    if (!list.isConnected) put(form.nextElementSibling, status, list, h("div", { class: "more" }, more));
  };
  const begin = () => {
    found = [];
    waiting = blocksOf(catalogue, wanted);
    return show(shown);
  };
  more.onclick = () => show(shown + PAGE);
  form.onsubmit = (event) => event.preventDefault();
  form.onchange = () => {
    for (const [field, value] of new FormData(form)) wanted[field] = value;
    history.replaceState(null, "", `#${asPart(wanted)}`);
    shown = PAGE;
    begin();
  };
  await begin();
}

// -- the replay -------------------------------------------------------------------------------------------------------

const VERDICTS = { legal: "legal", no_answer: "no answer in \\boxed{}", unreadable: "unreadable: names no action", illegal: "against the rules", truncated: "truncated by the length limit" };
const TERMINATIONS = { rules: "by the game's rules", illegal: "by an answer that was no legal action", turn_cap: "by the turn cap", prompt_too_long: "because the next prompt was too long" };

// Where the last complete \boxed{...} of a response is: [from, to]; null if there is none.
function lastBox(text) {
  const opened = [];
  let last = null;
  for (const found of text.matchAll(/\\boxed\s*\{|\{|\}/g)) {
    if (found[0] !== "}") { opened.push([found.index, found[0].length > 1]); continue; }
    const [from, box] = opened.pop() ?? [0, false];
    if (box && (!last || from > last[0])) last = [from, found.index + 1];
  }
  return last;
}

const playerOf = (game, player) => h("span", {}, dot(`p${player}`), `player ${player}`, h("span", { class: "soft" }, ` ${plain(game.players[player])}`));

function result(game) {
  const [first, second] = game.rewards;
  if (game.discarded) return `not counted (${brief(game.discarded)})`;
  if (game.opponent === "grader") return first > second ? "right" : first < second ? "wrong" : "half right";
  if (first < 0 && second < 0) return "both players lost";
  return first === second ? "a draw" : `player ${first > second ? 0 : 1} won`;
}

function facts(rows) {
  return h("dl", { class: "facts" }, rows.filter(([, value]) => value !== null && value !== undefined && value !== "")
    .map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

function turnFacts(game, turn) {
  const versions = turn.weights && (turn.weights[0] === turn.weights[1] ? `version ${turn.weights[0]}` : `versions ${turn.weights[0]} to ${turn.weights[1]}`);
  const trained = turn.advantage === null ? (turn.left_out ? `left out: ${turn.left_out}` : null) : signed(turn.advantage, 3);
  return facts([["action", turn.action === null ? "none" : h("b", {}, brief(turn.action))], ["verdict", [dot(turn.verdict === "legal" ? "win" : "loss"), game.opponent === "grader" && turn.verdict === "legal" ? "can be read" : VERDICTS[turn.verdict] ?? turn.verdict]],
    ["advantage", trained], ["log-probability", turn.log_prob === null || turn.log_prob === undefined ? null : `${signed(turn.log_prob, 3)} (${Math.exp(turn.log_prob) >= .001 ? percent(Math.exp(turn.log_prob), 1) : "below 0.1%"})`],
    ["tokens", turn.tokens ?? turn.used], ["prompt", turn.prompt_tokens === undefined ? null : `${turn.prompt_tokens} tokens`], ["weights", versions], ["answered by", turn.answered_by && plain(turn.answered_by)]]);
}

function answer(game, turn) {
  const box = lastBox(turn.response);
  return h("div", { class: `card who p${turn.player}`, style: `--p: var(--p${turn.player})` }, h("h3", {}, playerOf(game, turn.player)), turnFacts(game, turn),
    h("h3", { style: "margin-top:.8rem" }, "Response"), turn.response ? textBox(turn.response, box) : h("p", { class: "soft" }, "(an empty text)"),
    h("details", { open: game.tables[0] === null }, h("summary", { "data-do": "seen" }, "What this player saw"), textBox(turn.observation)));
}

// The drawing after so many turns, or the last that there is.
function tableAt(game, at) {
  for (let place = at; place >= 0; place--) if (game.tables[place] !== null) return [game.tables[place], place ? game.tables[place - 1] : null, place === at];
  return [null, null, false];
}

const state = { game: null, at: 0, neighbours: [null, null] };

function go(at) {
  state.at = Math.max(0, Math.min(state.game.turns.length, at));
  history.replaceState(null, "", `#${location.hash.slice(1).split("/").slice(0, 4).join("/")}/${state.at}`);
  draw();
}

// What stays while the turns change, so that the focus does, and a screen reader hears of the next turn.
function left(game) {
  const button = (text, title, to) => h("button", { type: "button", title, "aria-label": title, onclick: to, "data-do": title }, text);
  const turns = game.turns.map((one, place) => h("li", {}, h("button", { type: "button", onclick: () => go(place + 1) },
    dot(one.verdict === "legal" ? `p${one.player}` : "loss"), h("span", {}, place + 1),
    h("span", { class: "what" }, one.action === null ? VERDICTS[one.verdict] : brief(one.action, 60)), one.advantage === null ? null : h("span", { class: "soft" }, signed(one.advantage)))));
  return h("div", { class: "left" }, h("div", { class: "card drawn" }), h("div", { class: "card" },
    h("div", { class: "controls" }, button("|◀", "first", () => go(0)), button("◀", "back", () => go(state.at - 1)), h("output", { "aria-live": "polite" }),
      button("▶", "forward", () => go(state.at + 1)), button("▶|", "last", () => go(game.turns.length))),
    h("ol", { class: "turns", "aria-label": "Turns" }, turns)));
}

// Where a game begins that does not begin at its start: the actions that there were until then.
function before(game) {
  const past = game.past ?? [];
  if (!past.length) return null;
  return h("div", { class: "card", style: "margin-top:.8rem" }, h("h3", {}, "The moves before it"),
    h("p", { class: "soft" }, past.length ? `It goes on from the state to which ${past.length === 1 ? "this action" : `these ${past.length} actions`} of both players had led:` : "It goes on from the game's first state."),
    past.length ? textBox(past.join("\n")) : null);
}

function draw() {
  const { game, at } = state, turn = at ? game.turns[at - 1] : null;
  const [drawing, before, exact] = tableAt(game, at);
  const right = document.querySelector(".right"), turns = document.querySelector("ol.turns"), last = game.turns.length;
  document.querySelector(".drawn").replaceChildren(...(drawing === null ? [h("p", { class: "soft" }, "This game cannot be drawn again here; the texts beside are what the players saw.")]
    : [exact ? "" : h("p", { class: "note" }, "The table as it was before this turn."), drawTable(drawing, exact ? before : null)]));
  document.querySelector(".controls output").textContent = at ? `turn ${at} of ${last}` : `start, ${last} turns`;
  for (const button of document.querySelectorAll(".controls button")) button.setAttribute("aria-disabled", at === (["first", "back"].includes(button.dataset.do) ? 0 : last));
  for (const [place, button] of turns.querySelectorAll("button").entries()) if (at === place + 1) button.setAttribute("aria-current", "step"); else button.removeAttribute("aria-current");
  put(right, turn ? answer(game, turn) : h("div", { class: "card" }, h("h3", {}, "Before the first turn"),
    facts([["player 0", plain(game.players[0])], ["player 1", plain(game.players[1])], ["trained", game.opponent === "human" ? null : game.trainable.map((player) => `player ${player}`).join(" and ") || "nobody"]]), h("p", { class: "soft", style: "margin-top:.8rem" }, [h("kbd", {}, "→"), " next turn, ", h("kbd", {}, "←"), " back, ", h("kbd", {}, "n"), " and ", h("kbd", {}, "p"), " next and previous game"])));
  if (at === last && last) right.append(h("div", { class: "card", style: "margin-top:1rem" }, h("h3", {}, `The end: ${result(game)}`), facts([["ended", TERMINATIONS[game.termination] ?? plain(game.termination)], ["reason", brief(game.reason)],
    ...(game.opponent === "grader" ? [0] : [0, 1]).flatMap((player) => [[`outcome ${player}`, signed(game.rewards[player])], [`baseline ${player}`, game.baselines[player] === null ? null : signed(game.baselines[player], 3)]])])));
  const current = turns.querySelector("[aria-current]");
  if (current) turns.scrollTop = current.offsetTop - turns.offsetTop - turns.clientHeight / 2;
}

// The games before and after this one in the list of those that fit the filters of this page's address; null: none.
async function neighbours(at, wanted) {
  const blocks = blocksOf(await SPIRAL.load("games"), wanted), [split, step] = at.slice(1).split("/");
  const own = blocks.findIndex(([name, , first, last]) => name === split && first <= Number(step) && Number(step) <= last);
  const games = own < 0 ? [] : await gamesIn(blocks[own], wanted), here = games.findIndex((game) => placeOf(game) === at);
  const beyond = async (by) => {
    for (let place = own + by; blocks[place]; place += by) {
      const found = await gamesIn(blocks[place], wanted);
      if (found.length) return found.at(by < 0 ? -1 : 0);
    }
    return null;
  };
  return here < 0 ? [null, null] : Promise.all([games[here - 1] ?? beyond(-1), games[here + 1] ?? beyond(1)]);
}

function jump(by) {
  const to = state.neighbours[by < 0 ? 0 : 1];
  if (to) location.hash = placeOf(to);
}

async function open() {
  const [split, step, part, place, turn = "1"] = location.hash.slice(1).split("/");
  if (!place) return location.replace("games.html");
  const main = document.querySelector("main"), wanted = filtersOf(location.search), run = await SPIRAL.load("run");
  const game = (await SPIRAL.loadPacked(`games/${split}_${Number(step)}_${Number(part)}`))[Number(place)];
  if (!game) throw new Error(`there is no game ${plain(location.hash)}`);
  state.neighbours = await neighbours(`#${[split, step, part, place].join("/")}`, wanted);
  Object.assign(state, { game, at: Math.min(Number(turn), game.turns.length) });
  const way = (by, text) => h("button", { type: "button", "aria-disabled": String(!state.neighbours[by < 0 ? 0 : 1]), onclick: () => jump(by), "data-do": text }, text);
  const when = { train: "Step ", val: "Validation at step ", human: "Game with a person, number ", eval: "" }[split] ?? "";
  put(main, h("div", { class: "more", style: "margin:0 0 .6rem" }, h("a", { href: `games.html#${asPart(wanted)}` }, asPart(wanted) ? "Games that fit the filters" : "All games"), h("span", { style: "margin-left:auto" }), way(-1, "previous game"), way(1, "next game")),
    h("h1", {}, plain(game.game)),
    h("p", { class: "soft" }, when ? `${when}${number(Number(step))}: ` : "", `${result(game)}. Key ${plain(game.key)}`),
    before(game) ?? "", h("div", { class: "replay" }, left(game), h("div", { class: "right" })));
  draw();
}

const KEYS = { ArrowRight: () => go(state.at + 1), ArrowLeft: () => go(state.at - 1), Home: () => go(0), End: () => go(state.game.turns.length), n: () => jump(1), p: () => jump(-1) };

function byKey(event) {
  const act = KEYS[event.key];
  if (!act || !state.game || event.ctrlKey || event.metaKey || event.altKey || event.target.closest?.("input, select, textarea, pre")) return;
  event.preventDefault();
  act();
}

async function replay() {
  pageHead(await SPIRAL.load("run"), "game.html");
  document.addEventListener("keydown", byKey);
  addEventListener("hashchange", () => open());
  await open();
}
