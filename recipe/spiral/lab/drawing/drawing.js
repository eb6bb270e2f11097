// What all pages draw with: elements, text that nobody can dress up as HTML, and the table of a game, from what drawn() in
// __init__.py says of it. Cards are drawn; of a game's own drawing grids of cells become boards, and all else stays text.
"use strict";

// An element. Children are nodes or plain text, never HTML.
function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(9).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

// Characters that would be invisible, or change what is around them: controls, terminals' escapes, marks of direction,
// half letters, tags, fillers. (Not those that choose between a sign and its picture.) Python's: processes/terminal.py.
const HIDDEN = /(?![\t\n\ufe00-\ufe0f])[\p{Cc}\p{Cs}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}\ufff9-\ufffb]/gu;
const MARKS_AT_MOST = 500;

const nameOf = (character) => `U+${character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`;

// Piles of marks on a letter would cover the lines around it: four of them stay.
const PILES = /(\p{M}{4})\p{M}+/gu;

// Text of a model, or of a game, as it is: every hidden character by its name.
function plain(text) {
  return String(text ?? "").replace(PILES, "$1").replace(HIDDEN, nameOf);
}

// The same as nodes, the names set apart from the text.
function visible(text) {
  const nodes = [];
  let from = 0, marks = 0;
  for (const found of text.matchAll(HIDDEN)) {
    if (++marks > MARKS_AT_MOST) break;
    nodes.push(plain(text.slice(from, found.index)));
    nodes.push(h("span", { class: "char" }, nameOf(found[0])));
    from = found.index + found[0].length;
  }
  nodes.push(plain(text.slice(from)));
  return nodes;
}

// -- the table of a game -----------------------------------------------------------------------------------------------

const MARK = { X: "p0", W: "p0", O: "p1", B: "p1" };

// A drawing's lines as rows of cells, if they are a grid: "X0 | 1 | 2", or single characters with blanks between.
function gridOf(lines) {
  const bars = lines.map((line) => line.split("|").map((cell) => cell.trim()));
  if (lines.length > 1 && bars[0].length > 1 && bars.every((row) => row.length === bars[0].length)) return bars;
  const blanks = lines.map((line) => line.trim().split(/\s+/));
  const widest = Math.max(...blanks.map((row) => row.length));
  if (lines.length < 3 || widest < 4 || !blanks.flat().every((cell) => cell.length <= 2)) return null;
  const shorter = blanks.filter((row) => row.length < widest);
  return shorter.length > 1 || shorter.some((row) => row.length !== widest - 1) ? null : blanks.map((row) => row.length < widest ? ["", ...row] : row);
}

// A cell's text, its owner's colour, and whether it is the edge's writing.
function cellOf(text) {
  const owned = text.match(/^([XOWB])(\d*)$/);
  if (owned) return { text: owned[1], kind: MARK[owned[1]] };
  return { text: text === "." ? "" : text, kind: !text || text !== "." && text.length < 2 && /^[a-z0-9]?$/.test(text) ? "edge" : "" };
}

// Which actions are chosen by which cells: "y,x" -> [[action, the cell that completes it, or null]]. A cell is named by what
// stands in it (a free square's number), by its column's number, or by letters and digits at the board's edge ("[a2b3]").
function actionsOn(rows, legal) {
  const found = new Map(), squares = new Map(), columns = rows[0].length > 3 && rows[0].every((text) => /^\d+$/.test(text));
  const add = (cell, action, then = null) => found.set(cell, [...(found.get(cell) ?? []), [action, then]]);
  rows.forEach((row, y) => row.forEach((text, x) => {
    squares.set(`${rows.at(-1)[x]}${row[0]}`, `${y},${x}`);
    const action = `[${columns ? rows[0][x] : text}]`;
    if (legal.includes(action)) add(`${y},${x}`, action);
  }));
  for (const action of legal) {
    const [, from, to] = action.match(/^\[([a-z]\d+)([a-z]\d+)\]$/) ?? [];
    if (squares.has(from) && squares.has(to)) add(squares.get(from), action, squares.get(to));
  }
  return found;
}

// Whether all that may be played can be chosen on the table itself.
function playedOn(table, legal) {
  if (typeof table !== "string" || !legal.length) return false;
  const grids = parts(table).map(gridOf).filter(Boolean), said = new Set(grids.flatMap((rows) => [...actionsOn(rows, legal).values()].flat().map(([action]) => action)));
  return legal.every((action) => said.has(action));
}

// `legal` are the actions of whoever moves, and `play` is called with the one that is clicked.
function board(rows, before, legal, play) {
  const numbered = rows.length === 3 && rows[0].length === 3, actions = play ? actionsOn(rows, legal) : new Map();
  const place = h("table", { class: `board ${numbered ? "big" : ""}` });
  const draw = (from) => place.replaceChildren(h("tbody", {}, rows.map((row, y) => h("tr", {}, row.map((text, x) => {
    const { text: shown, kind } = cellOf(text), changed = before && before[y]?.[x] !== text && kind !== "edge", cell = `${y},${x}`;
    const whole = from === null ? actions.get(cell)?.find(([, then]) => then === null) : actions.get(from)?.find(([, then]) => then === cell);
    const begins = actions.get(cell)?.some(([, then]) => then !== null);
    const click = whole ? () => play(whole[0]) : begins ? () => draw(from === cell ? null : cell) : null;
    const label = whole ? whole[0] : `${rows.at(-1)[x]}${row[0]}`;
    return h("td", { class: `${numbered && kind === "edge" ? "" : kind} ${changed ? "new" : ""} ${from === cell ? "from" : ""}` },
      click ? h("button", { type: "button", "aria-label": label, onclick: click }, plain(shown)) : plain(shown));
  })))));
  draw(null);
  return place;
}

// Parts of a drawing: its lines, cut where a line is empty.
const parts = (drawing) => drawing.replace(/\s+$/, "").split(/\n\s*\n/).map((part) => part.split("\n"));

// Whether there is more to see than text.
const isPicture = (table) => Boolean(table) && (typeof table !== "string" || parts(table).some(gridOf));

const cardFace = (rank) => rank === null ? h("span", { class: "card-face back", role: "img", "aria-label": "a hidden card" })
  : h("span", { class: "card-face", role: "img", "aria-label": `card ${plain(rank)}` }, plain(rank));

const potChips = (count) => h("span", { class: "chips" }, "●".repeat(Math.min(count, 9)), ` ${count} chip${count === 1 ? "" : "s"}`);

// Kuhn poker: the present round, or the last one at the end, and the rounds before in a line each.
function kuhn({ rounds, won, played, now }, names) {
  const round = now ?? played.at(-1), earlier = now ? played : played.slice(0, -1), number = earlier.length;
  const next = now ? (number + round.moves.length) % 2 : null;
  const seat = (player) => h("div", { class: `seat p${player} ${player === next ? "next" : ""}` }, h("b", {}, plain(names[player])), cardFace(round.cards[player]),
    h("span", { class: "said" }, round.moves.map(([mover, action], at) => mover === player ? h("span", { class: at === round.moves.length - 1 ? "new" : "" }, plain(action)) : null)));
  const gained = (player) => `${plain(names[player])} ${(won > 0) === (player === 0) || !won ? "" : "−"}${Math.abs(won)}`;
  const ended = (one) => `${plain(names[one.winner])} won ${one.chips} chip${one.chips === 1 ? "" : "s"}`;
  const pot = 2 + round.moves.filter(([, action]) => action === "bet" || action === "call").length;
  return h("div", { class: "kuhn" }, rounds > 1 ? h("p", {}, `Round ${number + 1} of ${rounds}. Chips won: ${gained(0)}, ${gained(1)}`) : null,
    h("div", { class: "felt" }, seat(0), h("div", { class: "pot" }, now ? ["pot", potChips(pot)] : ended(round)), seat(1)),
    earlier.length ? h("ol", { class: "rounds" }, earlier.map((one) => h("li", {}, `${one.cards.map((rank) => rank ?? "?").join(" – ")}: ${one.moves.map(([, action]) => action).join(", ")}; ${ended(one)}`))) : null);
}

// The table after a turn; `before` is the one before it, of which a board's difference stands out. `names` are the players';
// with `play` a board takes the `legal` actions by clicks.
function drawTable(table, before = null, names = ["player 0", "player 1"], legal = [], play = null) {
  if (typeof table !== "string") return h("div", { class: "drawing" }, kuhn(table, names));
  const earlier = typeof before === "string" ? parts(before) : [];
  return h("div", { class: "drawing" }, parts(table).map((lines, place) => {
    const rows = gridOf(lines);
    return rows ? board(rows, earlier[place] ? gridOf(earlier[place]) : null, legal, play) : h("pre", { class: "table", dir: "auto" }, visible(lines.join("\n")));
  }));
}
