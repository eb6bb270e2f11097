// Shows the table's state, and sends what the person enters. All text is set as text, never as HTML.
"use strict";

const at = (id) => document.getElementById(id);
const fine = matchMedia("(pointer: fine)").matches; // with a touch screen, focus would open the keyboard
let state = null;
let choice = null; // whether responses are shown, when the person has chosen
let tables = []; // the one before, and the one that is drawn
let answered = null; // the question that was answered last: a second click comes before the next state

function text(id, words) {
  const place = at(id);
  if (place.textContent !== words) place.textContent = words;
  place.hidden = !words && !["complaint", "status"].includes(id);
}

function status(now) {
  if (now.phase === "yours") return "Your move";
  if (now.phase === "over") return now.end.headline;
  return `${now.opponent} is to move`;
}

// A button for each action that cannot be chosen on the board.
function showActions(now) {
  const shown = playedOn(now.table, now.legal) ? [] : now.actions;
  at("actions").replaceChildren(...shown.map((action) =>
    h("button", { type: "button", disabled: !now.legal.includes(action), onclick: () => enter(action) }, action)));
}

function showMoves(now) {
  const list = at("moves");
  const same = list.children.length < now.moves.length && now.phase !== "over" ? list.children.length : 0;
  if (list.children.length === now.moves.length && now.phase !== "over") return;
  if (!same) list.replaceChildren();
  for (const move of now.moves.slice(same)) {
    list.append(h("li", {}, `${move.name}: `, h("bdi", {}, move.action ?? (move.wrong ? "no legal move" : "has moved")),
      move.wrong ? h("span", { class: "wrong" }, ` (${move.wrong})`) : null, move.response ? h("pre", {}, move.response) : null));
  }
}

// The table, and the text for whoever wants it; where there is nothing to draw, the text alone.
function showTable(now, before) {
  const table = now.end ? now.end.table : now.table, pictured = isPicture(table);
  if (!before || now.moves.length < before.moves.length) tables = [];
  if (table !== tables[1]) tables = [tables[1], table];
  if (at("table").hidden === pictured) at("text").open = !pictured;
  at("table").hidden = !pictured;
  const names = now.role === 0 ? ["you", now.opponent] : [now.opponent, "you"];
  if (pictured) at("table").replaceChildren(drawTable(table, tables[0], names, now.legal, now.phase === "yours" ? enter : null));
  text("observation", now.end ? now.end.board : now.observation);
  at("text").hidden = at("observation").hidden;
  at("text").querySelector("summary").textContent = now.end ? "The whole game in words" : "The game in words, as a model sees it";
}

function show(now) {
  const before = state;
  state = now;
  const yours = now.phase === "yours";
  document.title = `${yours ? "● " : ""}${now.game} against ${now.opponent}`;
  text("game", now.game);
  at("players").replaceChildren(h("span", { class: `dot p${now.role}` }), `You are player ${now.role}, `, h("span", { class: `dot p${1 - now.role}` }), `${now.opponent} is player ${1 - now.role}.`);
  text("note", now.note);
  for (const name of document.querySelectorAll(".opponent")) name.textContent = now.opponent;
  text("status", status(now));
  at("status").classList.toggle("waiting", now.phase === "theirs");
  at("status").className = now.phase === "over" ? result(now.end.rewards) : now.phase === "theirs" ? "waiting" : "";
  text("why", now.end ? now.end.why : "");
  showTable(now, before);
  at("form").hidden = now.phase === "over" || !now.question;
  at("end").hidden = now.phase !== "over";
  at("entry").disabled = at("send").disabled = !yours;
  text("complaint", now.complaint);
  if (!before || before.question !== now.question || before.phase !== now.phase) showActions(now);
  at("responses").checked = choice ?? now.responses;
  at("responses").parentElement.hidden = !now.moves.some((move) => move.response);
  document.querySelector("main").classList.toggle("no-responses", !at("responses").checked);
  showMoves(now);
  if (now.end) {
    text("rewards", `Rewards: you ${signed(now.end.rewards[0])}, ${now.opponent} ${signed(now.end.rewards[1])}.`);
    text("saved", now.end.saved);
    text("seen", now.end.seen);
    at("hidden").hidden = !now.end.seen;
  }
  if (yours && (!before || before.question !== now.question)) {
    if (!now.complaint) at("entry").value = "";
    if (fine) at("entry").focus();
  }
  if (now.phase === "over" && (!before || before.phase !== "over") && fine) at("again").focus();
}

const signed = (reward) => (reward > 0 ? `+${reward}` : `${reward}`.replace("-", "−"));
const result = ([mine, other]) => (mine > other ? "win" : mine < other ? "loss" : "");

async function send(path, body) {
  const request = { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
  const reply = await fetch(path, request).catch(() => null); // the next look at the state says that the program has ended
  if (!reply || !reply.ok) answered = null;
}

function enter(words) {
  if (!state || state.phase !== "yours" || state.question === answered) return;
  answered = state.question;
  send("enter", { question: answered, entry: words });
}

function ended(why) {
  text("status", "The program has ended. Start it again to play on.");
  text("why", why);
  at("status").className = "";
  at("form").hidden = at("again").hidden = at("swap").hidden = true;
}

async function follow() {
  for (;;) {
    try {
      const answer = await fetch(`state?after=${state ? state.version : ""}`);
      if (!answer.ok) throw new Error(String(answer.status));
      const now = await answer.json();
      if (now.phase === "ended") return ended(now.why);
      show(now);
    } catch {
      state = answered = null;
      text("status", "The program has ended, or cannot be reached. Looking for it");
      at("status").className = "waiting";
      at("form").hidden = true;
      await new Promise((done) => setTimeout(done, 1500));
    }
  }
}

at("form").addEventListener("submit", (event) => { event.preventDefault(); enter(at("entry").value); });
at("again").addEventListener("click", () => send("again", { role: state.role }));
at("swap").addEventListener("click", () => send("again", { role: 1 - state.role }));
at("responses").addEventListener("change", (event) => {
  choice = event.target.checked;
  document.querySelector("main").classList.toggle("no-responses", !choice);
});
follow();
