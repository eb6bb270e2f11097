// The games: found by what they are, newest first, a block of the index at a time until a page is full.
"use strict";

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

SPIRAL.start(async ({ again }) => {
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
});
