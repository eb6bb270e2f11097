// The games: found by what they are, newest first, a block of the index at a time until a page is full.
"use strict";

const PAGE = 50;
let shown = PAGE, search = 0;
const FIELDS = ["split", "game", "opponent", "roles", "outcome", "invalid", "from", "to"];

// A line of the index as an object.
function entry(line, names, split, step) {
  const [index, retry, game, opponent, roles, outcome, invalid, by, turns, tokens, part, place] = line;
  return { split, step, index, retry, game: names[game], opponent: names[opponent], roles, outcome, invalid, by, turns, tokens, part, place };
}

// Whether a game is what is looked for. Players' results are 0 and 1, draw 2, both lost 3; "won" and "lost" are the policy's.
function fits(game, wanted) {
  if (wanted.game && game.game !== wanted.game) return false;
  if (wanted.opponent && game.opponent !== wanted.opponent) return false;
  if (wanted.roles && game.roles !== Number(wanted.roles)) return false;
  if (wanted.invalid === "any" ? !game.invalid : wanted.invalid === "none" ? game.invalid : wanted.invalid && game.invalid !== Number(wanted.invalid)) return false;
  if (wanted.from && game.step < Number(wanted.from) || wanted.to && game.step > Number(wanted.to)) return false;
  if (wanted.outcome === "won") return game.roles !== 2 && game.outcome === game.roles;
  if (wanted.outcome === "lost") return game.roles !== 2 && (game.outcome === 1 - game.roles || game.outcome === 3);
  return !wanted.outcome || game.outcome === Number(wanted.outcome);
}

const address = (game) => `game.html#${game.split}/${game.step}/${game.part}/${game.place}`;
const RESULT_CLASS = ["p0", "p1", "draw", "loss", "draw"];

function select(name, title, choices, value) {
  return h("label", {}, title, h("select", { name }, choices.map(([key, text]) => h("option", { value: key, selected: String(key) === value }, plain(text)))));
}

function filters(catalogue, wanted) {
  const { games, opponents, outcomes, invalid } = catalogue;
  const words = { no_answer: "no answer", unreadable: "unreadable", illegal: "against the rules", truncated: "truncated" };
  return h("form", { class: "filters card", "aria-label": "Filters" },
    select("split", "played in", [["", "all"], ["train", "training"], ["val", "validation"], ["human", "games with people"]], wanted.split),
    h("label", {}, "from step", h("input", { name: "from", type: "number", min: 0, value: wanted.from, inputmode: "numeric" })),
    h("label", {}, "to step", h("input", { name: "to", type: "number", min: 0, value: wanted.to, inputmode: "numeric" })),
    select("game", "game", [["", "all"], ...games.map((name) => [name, name])], wanted.game),
    select("opponent", "opponent", [["", "all"], ...opponents.map((name) => [name, name === "self" ? "itself" : name])], wanted.opponent),
    select("roles", "the policy was", [["", "any"], ["0", "player 0 only"], ["1", "player 1 only"]], wanted.roles),
    select("outcome", "outcome", [["", "all"], ...outcomes.map((text, place) => [place, text]), ["won", "the policy beat its opponent"], ["lost", "the policy lost to its opponent"]], wanted.outcome),
    select("invalid", "answer not legal", [["", "all"], ["none", "none"], ["any", "any"], ...invalid.slice(1).map((kind, place) => [place + 1, words[kind]])], wanted.invalid));
}

function resultOf(game, outcomes) {
  return [dot(RESULT_CLASS[game.outcome]), outcomes[game.outcome]];
}

SPIRAL.start(async ({ again }) => {
  const run = await SPIRAL.load("run"), catalogue = await SPIRAL.load("games");
  pageHead(run, "games.html");
  const main = document.querySelector("main");
  const asked = new URLSearchParams(location.hash.slice(1));
  const wanted = Object.fromEntries(FIELDS.map((field) => [field, asked.get(field) ?? ""]));
  // The form stays where it is: whoever types in it is not disturbed.
  if (!again) main.replaceChildren(h("h1", {}, "Games"), filters(catalogue, wanted), h("div", {}));
  const form = document.querySelector("form.filters");
  const list = h("div", { class: "card" }), status = h("p", { class: "note", role: "status" });
  const more = h("button", { type: "button", id: "older" }, "older games");
  const kinds = ["", "no answer", "unreadable", "against the rules", "truncated"];
  const columns = [
    ["step", (game) => [game.split === "train" ? null : h("span", { class: "soft" }, `${game.split === "val" ? "validation" : "with people"} `), h("a", { href: address(game) }, number(game.step))], "n"],
    ["game", (game) => plain(game.game)],
    ["against", (game) => game.opponent === "self" ? h("span", { class: "soft" }, "itself") : plain(game.opponent)],
    ["as", (game) => game.roles === 2 ? h("span", { class: "soft" }, "both") : [dot(`p${game.roles}`), `player ${game.roles}`]],
    ["outcome", (game) => resultOf(game, catalogue.outcomes)],
    ["not legal", (game) => game.invalid ? [dot("loss"), kinds[game.invalid], h("span", { class: "range" }, ` player ${game.by}`)] : ""],
    ["turns", (game) => game.turns, "n"], ["tokens", (game) => number(game.tokens), "n"]];
  let found = [], waiting = [];

  // Reads blocks of the index until there are so many games that fit, and shows them.
  const show = async (count) => {
    const mine = ++search;
    while (waiting.length && found.length < count) {
      const [split, block] = waiting[0], { names, steps } = await SPIRAL.load(`index/${split}_${block}`);
      if (mine !== search) return;  // the newer search reads this block itself
      waiting.shift();
      for (const step of Object.keys(steps).map(Number).sort((a, b) => b - a))
        found.push(...steps[step].map((line) => entry(line, names, split, step)).filter((game) => fits(game, wanted)));
    }
    shown = count;
    const some = found.slice(0, count), all = !waiting.length && found.length <= count;
    const open = (game, event) => { if (event.target.tagName !== "A") location.href = address(game); };
    put(list, some.length ? table(columns, some, open) : h("p", { class: "soft" }, "No game fits."));
    status.textContent = all ? `${number(found.length)} games` : `the newest ${number(some.length)} of ${waiting.length ? "at least " : ""}${number(found.length)} games`;
    more.hidden = all;
    if (!list.isConnected) put(form.nextElementSibling, status, list, h("div", { class: "more" }, more));
  };
  const begin = () => {
    const wantedSplit = ([split, , first, last]) => (!wanted.split || split === wanted.split) && !(wanted.from && last < Number(wanted.from)) && !(wanted.to && first > Number(wanted.to));
    found = [];
    waiting = catalogue.blocks.filter(wantedSplit).sort((a, b) => b[3] - a[3] || (a[0] < b[0] ? -1 : 1));
    return show(shown);
  };
  more.onclick = () => show(shown + PAGE);
  form.onsubmit = (event) => event.preventDefault();
  form.onchange = () => {
    for (const [field, value] of new FormData(form)) wanted[field] = value;
    history.replaceState(null, "", `#${new URLSearchParams(Object.entries(wanted).filter(([, value]) => value))}`);
    shown = PAGE;
    begin();
  };
  await begin();
});
