// Elements, and text that nobody can dress up as HTML.
"use strict";

// An element. Children are nodes or plain text, never HTML.
function h(tag, attributes = {}, ...children) {
  const svg = ["svg", "path", "circle", "g", "text", "rect", "line", "title"].includes(tag) && attributes.svg !== false;
  const element = svg && (tag !== "title") ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
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
