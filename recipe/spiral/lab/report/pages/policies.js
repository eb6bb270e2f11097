// A policy of Kuhn poker as a tree: for each card, how likely each action is at each point of a round.
"use strict";

const CARDS = ["J", "Q", "K"];
// A round's decisions: who moves, after what, where in the drawing; and where each action leads.
const DECISIONS = [
  { player: 0, history: "", x: 0, y: 1.5, actions: { "[check]": 1, "[bet]": 2 } },
  { player: 1, history: "[check]", x: 1, y: .4, actions: { "[check]": "showdown", "[bet]": 3 } },
  { player: 1, history: "[bet]", x: 1, y: 2.5, actions: { "[call]": "showdown", "[fold]": "end" } },
  { player: 0, history: "[check] [bet]", x: 2, y: 1.15, actions: { "[call]": "showdown", "[fold]": "end" } },
];

// Rows of actions.csv -> "player card history" -> action -> {p, low, high}.
function kuhnTable(rows) {
  const found = new Map();
  for (const row of rows) {
    const key = `${row.player} ${row.private} ${row.history}`;
    if (!found.has(key)) found.set(key, {});
    found.get(key)[row.action] = { p: Number(row.probability), low: Number(row.low), high: Number(row.high) };
  }
  return found;
}

function kuhnTree(found, title) {
  const wide = 755, tall = 300, dx = 235, dy = 82, left = 50, top = 46;
  const at = (node) => [left + node.x * dx, top + node.y * dy];
  const svg = h("svg", { class: "tree", viewBox: `0 0 ${wide} ${tall}`, role: "img", "aria-label": `${title}. ${spoken(found)}` });
  for (const node of DECISIONS) {
    const [x, y] = at(node);
    for (const [place, [action, to]] of Object.entries(node.actions).entries()) {
      const next = typeof to === "number" ? DECISIONS[to] : null;
      const [tx, ty] = next ? at(next) : [x + dx * .62, y + (place ? 30 : -30)];
      const mean = CARDS.reduce((sum, card) => sum + (found.get(`${node.player} ${card} ${node.history}`)?.[action]?.p ?? 0), 0) / CARDS.length;
      svg.append(h("path", { d: `M${x},${y} C${x + 70},${y} ${tx - 80},${ty} ${tx - (next ? 38 : 0)},${ty}`, fill: "none", stroke: `var(--p${node.player})`, "stroke-opacity": .25 + .75 * mean, "stroke-width": 1 + 9 * mean, "stroke-linecap": "round" }));
      const mx = (x + tx) / 2 + (next ? 0 : 12), my = (y + ty) / 2 + (place ? 19 : -11);
      svg.append(h("text", { x: mx, y: my, "text-anchor": "middle", style: "paint-order:stroke;stroke:var(--card);stroke-width:4px" }, action.replace(/[[\]]/g, "")));
      if (!next) svg.append(h("text", { x: tx + 6, y: ty + 4, class: "soft" }, to));
    }
  }
  for (const node of DECISIONS) {
    const [x, y] = at(node), height = 46;
    svg.append(h("rect", { x: x - 40, y: y - height / 2 - 12, width: 80, height: height + 24, rx: 9, fill: "var(--card)", stroke: `var(--p${node.player})` }));
    for (const [place, card] of CARDS.entries()) {
      const cell = found.get(`${node.player} ${card} ${node.history}`) ?? {}, bx = x - 29 + place * 21, names = Object.keys(node.actions);
      const size = (height - 8) * (cell[names.find((name) => name === "[bet]" || name === "[call]")]?.p ?? 0), top = y - height / 2;
      const bar = h("g", {}, h("rect", { x: bx, y: top, width: 16, height: height - 8, fill: "var(--tint)", stroke: "var(--line)" }),
        h("rect", { x: bx, y: top + height - 8 - size, width: 16, height: size, fill: `var(--p${node.player})` }));
      bar.append(svgTitle(`${card}: ${names.map((name) => `${name.replace(/[[\]]/g, "")} ${percent(cell[name]?.p ?? null, 1)}`).join(", ")}`));
      svg.append(bar, h("text", { x: bx + 8, y: y + height / 2 + 7, "text-anchor": "middle", class: "soft" }, card));
    }
  }
  return svg;
}

function svgTitle(text) {
  const title = document.createElementNS("http://www.w3.org/2000/svg", "title");
  title.textContent = text;
  return title;
}

function spoken(found) {
  return [...found].map(([place, actions]) => `${place}: ${Object.entries(actions).map(([action, { p }]) => `${action} ${percent(p)}`).join(", ")}`).join("; ");
}

// The tree and the table of a policy.
function kuhnPolicy(rows, title) {
  const found = kuhnTable(rows), cells = [...found].map(([place, actions]) => ({ place: place.split(" "), actions }));
  const share = (cell, action) => {
    const one = cell.actions[action];
    if (!one) return "";
    return [percent(one.p, 1), one.high - one.low > .001 ? h("span", { class: "range" }, ` ${percent(one.low)}–${percent(one.high)}`) : null];
  };
  const columns = [["player", (cell) => [dot(`p${cell.place[0]}`), cell.place[0]]], ["card", (cell) => cell.place[1]], ["so far", (cell) => cell.place.slice(2).join(" ").replace(/[[\]]/g, "") || "nothing"],
    ...["[check]", "[bet]", "[call]", "[fold]"].map((action) => [action.replace(/[[\]]/g, ""), (cell) => share(cell, action), "n"]), ["not legal", (cell) => share(cell, "(none that is legal)"), "n"]];
  return [h("div", { class: "card" }, h("h3", {}, title), h("p", { class: "note" }, "Bars are a card's probability of betting or calling; the wider a line, the likelier the action over all cards."), h("div", { class: "scroll" }, kuhnTree(found, title))),
    h("details", {}, h("summary", {}, "As a table"), h("div", { class: "card" }, table(columns, cells)))];
}

// The tables of all validations, from metrics "val-aux/KuhnPoker/policy/p1_K_bet/call": [step, rows] of each.
function validatedPolicies(all) {
  const steps = new Map();
  for (const name of all.names) {
    const found = name.match(/^val-aux\/KuhnPoker\/policy\/p([01])_([JQK])((?:_\w+)?)\/(\w+)$/);
    if (!found) continue;
    const [, player, card, history, action] = found, line = all.curve(name), sofar = history.split("_").filter(Boolean).map((one) => `[${one}]`).join(" ");
    for (const [at, step] of line.x.entries()) {
      if (!steps.has(step)) steps.set(step, []);
      const p = line.y[at];
      steps.get(step).push({ player, private: card, history: sofar, action: `[${action}]`, probability: p, low: p, high: p });
    }
  }
  return [...steps].sort(([a], [b]) => a - b);
}

// A tree for each validation, chosen by a slider.
function policyOverSteps(all, at) {
  const tables = validatedPolicies(all);
  if (!tables.length) return [];
  const place = h("div", {}), step = h("output", {}), slider = h("input", { type: "range", id: "policy-step", min: 0, max: tables.length - 1, value: at ?? tables.length - 1 });
  const show = () => {
    const [when, rows] = tables[slider.value];
    step.textContent = `step ${number(when)}`;
    place.replaceChildren(...kuhnPolicy(rows, `The policy at step ${number(when)}`));
  };
  slider.addEventListener("input", show);
  show();
  return [h("h2", {}, "The policy of Kuhn poker over the run"), h("label", { for: "policy-step", style: "max-width:30rem;margin-bottom:.8rem" }, h("span", {}, "Validation at ", step), slider), place];
}
