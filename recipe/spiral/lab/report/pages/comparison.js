// Several runs, or a sweep: the same metric of all of them.
"use strict";

const USUAL = [/^val-core\/[^/]+\/(nash_conv|optimal|avg@\d+)$/, /^val-core\/[^/]+\/[^/]+\/p[01]\/win$/, /^turns\/(entropy|invalid|response_tokens)$/, /^actor\/grad_norm$/, /^games\/[^/]+\/p0\/win$/];
const MOST = 24;
const SHARES = /\/(optimal|avg@\d+|win|draw|loss|invalid|truncated|no_answer|illegal|unreadable|short_reasoning|share)$/;
let chosen = "", single = false, search = 0;

async function chart(facts, place) {
  const data = await SPIRAL.load(`metric/${place}`), name = facts.metrics[place];
  const repeated = facts.groups.some(([, runs]) => runs.length > 1), lines = [];
  for (const [group, [title, runs]] of facts.groups.entries()) {
    const shade = PALETTE[group % PALETTE.length], [x, y, low, high] = data.groups[group];
    if (repeated && !single) { if (x.length) lines.push({ name: plain(title), x, y, low: runs.length > 1 ? low : null, high: runs.length > 1 ? high : null, colour: shade }); }
    else for (const run of runs) if (data.runs[run]) lines.push({ name: plain(facts.runs[run].name), x: data.runs[run][0], y: data.runs[run][1], times: facts.runs[run].times, colour: repeated ? shade : PALETTE[run % PALETTE.length], quiet: facts.runs.length > 6 });
  }
  return lineChart(plain(name), repeated && !single ? "Mean over the runs of a setting that have got so far, with the 95% interval of Student's t" : "", lines, { share: SHARES.test(name) });
}

// The settings in which the runs differ.
function differences({ runs, settings }) {
  const shown = (value) => value === null ? "–" : plain(typeof value === "string" ? value : JSON.stringify(value));
  return settings.length ? [h("details", { class: "settings", open: runs.length <= 6 }, h("summary", {}, h("h2", {}, "Settings that differ"), ` ${settings.length}`), h("div", { class: "card" },
    table([["key", ([key]) => h("code", {}, plain(key)), "wrap"], ...runs.map((run, at) => [plain(run.name), ([, values]) => shown(values[at]), "wrap"])], settings)))] : runs.length > 1 ? [h("p", { class: "note" }, "The runs have the same settings.")] : [];
}

SPIRAL.start(async () => {
  const facts = await SPIRAL.load("comparison");
  document.title = `Comparison of ${facts.runs.length} runs`;
  document.querySelector("header.top").replaceChildren(h("div", {}, h("strong", {}, `${facts.runs.length} runs`), h("span", { class: `state ${facts.running ? "live" : ""}`, role: "status" }, facts.running ? "running" : "none is running")));
  forgetCharts();
  const main = document.querySelector("main"), grid = h("div", { class: "grid" }), count = h("p", { class: "note", role: "status" });
  const show = async () => {
    const words = chosen.toLowerCase().split(/\s+/).filter(Boolean);
    const fits = words.length ? [(name) => words.every((word) => name.toLowerCase().includes(word))] : USUAL.map((usual) => (name) => usual.test(name));
    const places = fits.flatMap((fit) => [...facts.metrics.keys()].filter((place) => fit(facts.metrics[place])));
    forgetCharts();
    const mine = ++search, charts = await Promise.all(places.slice(0, MOST).map((place) => chart(facts, place)));
    if (mine !== search) return;
    grid.replaceChildren(...charts.filter(Boolean));
    count.textContent = places.length > MOST ? `${places.length} metrics; the first ${MOST} are drawn` : counted(places.length, "metric");
  };
  const words = h("input", { type: "search", id: "search", value: chosen, placeholder: "any metric; empty: the usual ones", oninput: () => { chosen = words.value; show(); } });
  const each = h("input", { type: "checkbox", id: "each", onchange: () => shown(each.checked) });
  const shown = (alone) => { each.checked = single = alone || view.hours; show(); };  // seeds are averaged over steps only
  each.checked = single;
  const repeated = facts.groups.some(([, runs]) => runs.length > 1);
  const swept = [...new Set(facts.runs.flatMap((run) => Object.keys(run.swept)))], measures = [...new Set(facts.runs.flatMap((run) => Object.keys(run.last)))].filter((name) => /nash_conv$|^val-core\/[^/]+\/p[01]\/win$/.test(name)).slice(0, 6);
  const groupOf = facts.runs.map((_, run) => facts.groups.findIndex(([, runs]) => runs.includes(run)));
  const shade = (run) => PALETTE[(repeated ? groupOf[facts.runs.indexOf(run)] : facts.runs.indexOf(run)) % PALETTE.length];
  const columns = [["run", (run) => [h("span", { class: "dot", style: `--c:var(--${shade(run)})`, "aria-hidden": "true" }), run.link ? h("a", { href: run.link }, plain(run.name)) : plain(run.name)], "wrap"], ...swept.map((key) => [plain(key), (run) => plain(run.swept[key])]), ["", (run) => plain(run.running ? "running" : run.status)], ["step", (run) => `${number(run.step)}${run.total ? ` of ${number(run.total)}` : ""}`, "n"],
    ...measures.map((name) => [plain(name.replace("val-core/", "")), (run) => name.endsWith("win") ? percent(run.last[name] ?? null, 1) : number(run.last[name] ?? null), "n"])];
  put(main, h("h1", {}, repeated ? "A sweep" : "Runs side by side"), h("div", { class: "card", style: "margin:1rem 0" }, table(columns, facts.runs)), ...differences(facts),
    h("form", { class: "filters card", style: "margin:1rem 0", onsubmit: (event) => event.preventDefault() }, h("label", { for: "search", style: "grid-column:span 2" }, "Metrics", words), viewControls(() => shown(single)), repeated ? h("label", {}, "Every run by itself", each) : null), count, grid);
  await show();
});
