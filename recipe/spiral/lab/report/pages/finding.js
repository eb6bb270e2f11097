// The games that fit filters, in the order of their list: the newest step first, and in a step as they were played.
"use strict";

const FIELDS = ["split", "policy", "game", "opponent", "roles", "outcome", "invalid", "from", "to"];

// The filters of an address's part, "#game=Nim" or "?game=Nim"; and such a part of filters, "" without any.
const filtersOf = (part) => Object.fromEntries(FIELDS.map((field) => [field, new URLSearchParams(part.slice(1)).get(field) ?? ""]));
const asPart = (wanted) => String(new URLSearchParams(Object.entries(wanted).filter(([, value]) => value)));

// A line of the index as an object.
function entry(line, names, split, step) {
  const [index, retry, policy, game, opponent, roles, outcome, invalid, by, turns, tokens, part, place] = line;
  return { split, step, index, retry, policy: names[policy], game: names[game], opponent: names[opponent], roles, outcome, invalid, by, turns, tokens, part, place };
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
    .flatMap((step) => steps[step].map((line) => entry(line, names, split, step)).filter((game) => fits(game, wanted)));
}
