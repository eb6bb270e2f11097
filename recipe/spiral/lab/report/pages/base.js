// What all pages share: data from script tags, texts and figures, and the head of the page.
"use strict";

const SPIRAL = (() => {
  const waiting = new Map();
  let version = 0;

  // Data scripts call this with their one value.
  const take = (name, value) => waiting.get(name)?.(value);

  const script = (address) => new Promise((done, failed) => {
    const element = document.createElement("script");
    element.src = address;
    element.onload = () => { element.remove(); done(); };
    element.onerror = () => { element.remove(); failed(new Error(`${address} cannot be read`)); };
    document.head.append(element);
  });

  // A value of the report. The version in the address lets a server's or a browser's cache know that a file is new.
  const read = async (name) => {
    let value;
    waiting.set(name, (given) => { value = given; });
    await script(`data/${name}.js?${name === "version" ? Date.now() : version}`);
    return value;
  };

  // Whoever wants what is being read already waits for the same: a script's call has one receiver.
  const reading = new Map();
  const load = (name) => {
    if (!reading.has(name)) reading.set(name, read(name).finally(() => reading.delete(name)));
    return reading.get(name);
  };

  const loadPacked = async (name) => {
    const bytes = Uint8Array.from(atob(await load(name)), (character) => character.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return JSON.parse(await new Response(stream).text());
  };

  // Draws the page, and again whenever the report of a running run was renewed.
  const start = async (draw, { renew = true } = {}) => {
    try {
      let state = await load("version");
      version = state.version;
      await draw({ again: false });
      while (renew && state.running) {
        await new Promise((done) => setTimeout(done, 3000));
        state = await load("version").catch(() => state);
        if (state.version !== version) {
          version = state.version;
          await draw({ again: true });
        }
      }
    } catch (error) {
      document.querySelector("main").append(h("p", { class: "card" }, `This page cannot be shown: ${error.message}`));
      throw error;
    }
  };

  return { take, load, loadPacked, script, start };
})();

// The beginning of what has no box of its own.
function brief(text, most = 400) {
  const whole = String(text ?? "");
  return whole.length <= most ? plain(whole) : `${plain(whole.slice(0, most))} … (${whole.length.toLocaleString("en")} characters)`;
}

// Shows other children in a place. Whoever has the focus there keeps it, and the caret, in the new element of the same
// id, name, purpose or address.
function put(place, ...children) {
  const had = document.activeElement, key = place.contains(had) && ["id", "name", "data-do", "href"].find((one) => had.hasAttribute(one));
  const value = key && had.getAttribute(key), caret = key && had.selectionStart, end = key && had.selectionEnd;
  place.replaceChildren(...children);
  const again = key && [...place.querySelectorAll(`[${key}]`)].find((one) => one.getAttribute(key) === value);
  if (!again) return;
  again.focus({ preventScroll: true });
  if (typeof caret === "number") again.setSelectionRange(caret, end);
}

const SHOWN_AT_FIRST = 20000;

// A long text in a box; `marked` is [from, to] of what is to stand out. The rest of a very long one comes when asked for.
function textBox(text, marked = null) {
  // A line of a million characters without a blank is broken in a third of the time if it may be broken anywhere.
  const box = h("pre", { class: "text", dir: "auto", tabindex: 0, style: text.length > SHOWN_AT_FIRST ? "word-break:break-all" : null });
  const fill = (end) => {
    const [from, to] = marked && marked[1] <= end ? marked : [end, end];
    box.replaceChildren(...visible(text.slice(0, from)));
    if (to > from) box.append(h("mark", {}, visible(text.slice(from, to))), ...visible(text.slice(to, end)));
  };
  fill(Math.min(text.length, SHOWN_AT_FIRST));
  if (text.length <= SHOWN_AT_FIRST) return box;
  const more = h("button", { type: "button", onclick: () => { fill(text.length); more.remove(); } },
    `show all ${text.length.toLocaleString("en")} characters`);
  return h("div", {}, box, more);
}

const percent = (value, digits = 0) => value === null || value === undefined ? "–" : `${(100 * value).toFixed(digits)}%`;
const number = (value, digits = 3) => value === null || value === undefined ? "–"
  : Number.isInteger(value) || Math.abs(value) >= 10 ** digits ? Math.round(value).toLocaleString("en") : Math.abs(value) < .001 ? String(Number(value.toPrecision(digits))) : value.toPrecision(digits);
const signed = (value, digits = 2) => value === null || value === undefined ? "–" : `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(digits)}`;

const counted = (many, what) => `${number(many)} ${what}${many === 1 ? "" : "s"}`;

function duration(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min`;
  return `${Math.floor(whole / 3600)} h ${Math.floor(whole % 3600 / 60)} min`;
}

// A table; a column is [title, cell from row, "n" for numbers or "wrap"]. `open` makes rows lead somewhere.
function table(columns, rows, open = null) {
  const head = h("thead", {}, h("tr", {}, columns.map(([title, , kind]) => h("th", { class: kind, scope: "col" }, title))));
  const body = h("tbody", {}, rows.map((row) => h("tr", open ? { class: "go", onclick: (event) => open(row, event) } : {},
    columns.map(([, cell, kind]) => h("td", { class: kind }, cell(row) ?? "")))));
  return h("div", { class: "scroll" }, h("table", {}, head, body));
}

const dot = (kind) => h("span", { class: `dot ${kind}`, "aria-hidden": "true" });

const PAGES = [["index.html", "Overview"], ["games.html", "Games"], ["evaluation.html", "Evaluation"]];

// The head of a run's page: its name, its state, and the way to the other pages.
function pageHead(run, here) {
  document.title = `${plain(run.name)} – ${(PAGES.find(([file]) => file === here) ?? ["", "Game"])[1]}`;
  const there = { people: ["index.html", "games.html"], evaluation: ["index.html", "games.html", "evaluation.html"] }[run.kind];
  const links = PAGES.filter(([file]) => !there || there.includes(file)).map(([file, title]) =>
    h("a", { href: file, "aria-current": file === here ? "page" : null }, title));
  const state = run.running ? "running" : run.total && run.step >= run.total ? "done" : "not running";
  const where = { people: "games with people", evaluation: `evaluation${run.running ? ", running" : ""}` }[run.kind] ?? `step ${number(run.step)}${run.total ? ` of ${number(run.total)}` : ""}, ${state}`;
  put(document.querySelector("header.top"), h("div", {}, h("strong", {}, plain(run.name)),
    h("span", { class: `state ${run.running ? "live" : ""}`, role: "status" }, where),
    h("nav", { "aria-label": "Pages" }, links)));
}

// A page is drawn by its own function, when all scripts are there. A game does not change any more.
addEventListener("DOMContentLoaded", () => {
  const page = document.body.dataset.page;
  SPIRAL.start({ index: overview, evaluation, games: list, game: replay }[page], { renew: page !== "game" });
});
