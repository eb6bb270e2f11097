// Opponents in training: ratings, who beat whom over the run, who was played.
"use strict";

// What the recorded games say.
function gameCharts(data) {
  const names = data.opponents.map(plain), played = (cell) => cell[0] + cell[1] + cell[2];
  const score = (cell) => played(cell) ? (cell[0] + cell[1] / 2) / played(cell) : null;
  const hover = data.results.map((row, y) => row.map((cell, x) => `${data.stretches[y]} against ${label(names[x])}<br>${cell[0]} won, ${cell[1]} drawn, ${cell[2]} lost`));
  const charts = [];
  if (data.ratings.length) charts.push(dotChart("Ratings", `Elo with 95% intervals, from the games of the training (Davidson's model; the mean of all is 0). The policy is another player in each stretch of the run. ${plain(data.note)}`,
    data.ratings.map(([name, value, low, high, games]) => ({ name: plain(name), value, low, high, colour: name.startsWith("policy, ") ? "p0" : "draw", hover: `${Math.round(value)} [${Math.round(low)}, ${Math.round(high)}], ${games} games` })), { x: "Elo" }));
  charts.push(heatMap("Head to head", "The policy's share of the points in a stretch of the run; a draw is half a point. Green: more than half, red: less.",
    { x: names, y: data.stretches, z: data.results.map((row) => row.map(score)), text: data.results.map((row) => row.map((cell) => played(cell) ? percent(score(cell)) : "")), hover }));
  charts.push(heatMap("Who was played", "Games in a stretch of the run", { x: names, y: data.stretches, z: data.results.map((row) => row.map((cell) => played(cell) || null)),
    text: data.results.map((row) => row.map((cell) => played(cell) || "")), hover, share: false, scale: [[0, colour("tint")], [1, colour("p0")]] }));
  return charts;
}

SPIRAL.start(async () => {
  const run = await SPIRAL.load("run"), data = await SPIRAL.load("pool"), all = reader(await SPIRAL.load("curves"));
  pageHead(run, "pool.html");
  forgetCharts();
  const main = document.querySelector("main"), charts = data ? gameCharts(data) : [];
  if (!run.has_pool) { main.replaceChildren(h("h1", {}, "Opponents"), h("p", {}, "The policy only played itself.")); return; }
  charts.push(lineChart("Won against thirds of the pool", "By age of the members; a draw is half a win", ["recent", "middle", "old"].map((age) => all.curve(`fsp/win/${age}`, { name: age })), { share: true }),
    lineChart("The policy's rating in training", "Elo, as the pool counts it, in all games together", [all.curve("fsp/rating", { name: "policy", colour: "p0" })]),
    lineChart("Members of the pool", "", [all.curve("fsp/size", { name: "", colour: "accent" })], { zero: true }));
  put(main, h("h1", {}, "Opponents"), data?.caveat ? h("p", { class: "note" }, plain(data.caveat)) : "", data?.ratings.length ? "" : h("p", { class: "note" }, `There are no ratings: ${data ? plain(data.note) : "no game with an opponent is recorded."}`), h("div", { class: "grid" }, charts));
});
