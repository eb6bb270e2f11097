// The table of a game as its own renderer draws it. Drawings that are grids of cells become boards; all else stays text.
"use strict";

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
  return { text: text === "." ? "" : text, kind: text && text !== "." && text.length < 2 && /^[a-z0-9]$/.test(text) ? "edge" : "" };
}

function board(rows, before) {
  const numbered = rows.length === 3 && rows[0].length === 3;
  const cells = rows.map((row, y) => row.map((text, x) => {
    const { text: shown, kind } = cellOf(text), changed = before && before[y]?.[x] !== text && kind !== "edge";
    return h("td", { class: `${numbered && kind === "edge" ? "" : kind} ${changed ? "new" : ""}` }, plain(shown));
  }));
  return h("table", { class: `board ${numbered ? "big" : ""}` }, h("tbody", {}, cells.map((row) => h("tr", {}, row))));
}

// Parts of a drawing: its lines, cut where a line is empty.
const parts = (drawing) => drawing.replace(/\s+$/, "").split(/\n\s*\n/).map((part) => part.split("\n"));

// The table after a turn; `before` is the drawing before it, of which the difference stands out.
function drawTable(drawing, before = null) {
  const earlier = before === null ? [] : parts(before);
  return h("div", { class: "drawing" }, parts(drawing).map((lines, place) => {
    const rows = gridOf(lines);
    return rows ? board(rows, earlier[place] ? gridOf(earlier[place]) : null) : h("pre", { class: "table", dir: "auto" }, visible(lines.join("\n")));
  }));
}
