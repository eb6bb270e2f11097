// The replay of a game: turn by turn, by buttons and keys, the table beside what was seen and answered.
"use strict";

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
document.addEventListener("keydown", (event) => {
  const act = KEYS[event.key];
  if (!act || !state.game || event.ctrlKey || event.metaKey || event.altKey || event.target.closest?.("input, select, textarea, pre")) return;
  event.preventDefault();
  act();
});
addEventListener("hashchange", () => open());
SPIRAL.start(async () => {
  pageHead(await SPIRAL.load("run"), "game.html");
  await open();
}, { renew: false });
