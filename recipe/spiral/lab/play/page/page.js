// Shows the table's state, and sends what the person enters. All text is set as text, never as HTML.
"use strict";

const EVERY = 250; // milliseconds between two looks
const at = (id) => document.getElementById(id);
const fine = matchMedia("(pointer: fine)").matches; // with a touch screen, focus would open the keyboard
let state = null; // as it is shown, and as it came
let said = "";
let tables = []; // the one before, and the one that is drawn

function text(id, words) {
  const place = at(id);
  if (place.textContent !== words) place.textContent = words;
  place.hidden = !words && !["complaint", "status"].includes(id);
}

function status(words, look = "") {
  text("status", words);
  at("status").className = look;
}

// A button for each action that cannot be chosen on the board.
function showActions(now) {
  const shown = playedOn(now.table, now.legal) ? [] : now.legal;
  at("actions").replaceChildren(...shown.map((action) => h("button", { type: "button", onclick: () => enter(action) }, action)));
}

function showMoves(now) {
  at("moves").replaceChildren(...now.moves.map((move) => h("li", {}, `${move.name}: `, h("bdi", {}, move.said), move.response ? h("pre", {}, move.response) : null)));
}

// The table, and the text for whoever wants it; where there is nothing to draw, the text alone.
function showTable(now, begun) {
  const pictured = isPicture(now.table);
  if (begun) tables = [];
  if (now.table !== tables[1]) tables = [tables[1], now.table];
  if (at("table").hidden === pictured) at("text").open = !pictured;
  at("table").hidden = !pictured;
  const names = now.role === 0 ? ["you", now.opponent] : [now.opponent, "you"];
  if (pictured) at("table").replaceChildren(drawTable(now.table, tables[0], names, now.legal, now.phase === "yours" ? enter : null));
  text("observation", now.end ? now.end.board : now.observation);
  at("text").hidden = at("observation").hidden;
  at("text").querySelector("summary").textContent = now.end ? "The whole game in words" : "The game in words, as a model sees it";
}

function showEnd({ end, opponent }) {
  const [mine, other] = end.rewards;
  status(end.headline, mine > other ? "win" : mine < other ? "loss" : "");
  text("rewards", `Rewards: you ${signed(mine)}, ${opponent} ${signed(other)}.`);
  text("saved", end.saved);
}

function show(now) {
  const before = state, yours = now.phase === "yours", over = now.phase === "over", asked = !before || before.question !== now.question;
  state = now;
  document.title = `${yours ? "● " : ""}${now.game} against ${now.opponent}`;
  text("game", now.game);
  at("players").replaceChildren(h("span", { class: `dot p${now.role}` }), `You are player ${now.role}, `, h("span", { class: `dot p${1 - now.role}` }), `${now.opponent} is player ${1 - now.role}.`);
  status(yours ? "Your move" : `${now.opponent} is to move`, yours ? "" : "waiting");
  if (over) showEnd(now);
  text("why", now.end ? now.end.why : "");
  showTable(now, !before || now.moves.length < before.moves.length);
  at("form").hidden = over || !now.question;
  at("end").hidden = !over;
  at("entry").disabled = at("send").disabled = !yours;
  text("complaint", now.complaint);
  showActions(now);
  showMoves(now);
  if (yours && asked) {
    if (!now.complaint) at("entry").value = "";
    if (fine) at("entry").focus();
  }
  if (over && asked && fine) at("again").focus();
}

const signed = (reward) => (reward > 0 ? `+${reward}` : `${reward}`.replace("-", "−"));

// A second click is refused, and the next look says whether the program has ended.
async function enter(entry) {
  const request = { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ question: state.question, entry }) };
  await fetch("enter", request).catch(() => null);
}

async function look() {
  try {
    const answer = await fetch("state");
    if (!answer.ok) throw new Error(String(answer.status));
    const words = await answer.text();
    if (words !== said) show(JSON.parse(words));
    said = words;
  } catch {
    said = "";
    status("The program has ended, or cannot be reached. Looking for it", "waiting");
    at("form").hidden = at("end").hidden = true;
  }
  setTimeout(look, EVERY);
}

at("form").addEventListener("submit", (event) => { event.preventDefault(); enter(at("entry").value); });
at("again").addEventListener("click", () => enter(`${state.role}`));
at("swap").addEventListener("click", () => enter(`${1 - state.role}`));
look();
