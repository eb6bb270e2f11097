// All metrics that a run has logged, in groups: a chart of each that is looked for.
"use strict";

const MANY = 30;  // a group that is larger is divided by the next part of the names
const closed = new Set();

function groupsOf(names) {
  const first = (name) => name.split("/")[0], sizes = new Map(), groups = new Map();
  for (const name of names) sizes.set(first(name), (sizes.get(first(name)) ?? 0) + 1);
  for (const name of names) {
    const parts = name.split("/"), group = sizes.get(parts[0]) > MANY && parts.length > 2 ? parts.slice(0, 2).join("/") : parts[0];
    groups.set(group, [...groups.get(group) ?? [], name]);
  }
  return [...groups].sort(([a], [b]) => a < b ? -1 : 1);
}

SPIRAL.start(async ({ again }) => {
  const run = await SPIRAL.load("run"), data = await SPIRAL.load("metrics"), { curve, names } = reader(data);
  pageHead(run, "metrics.html");
  const main = document.querySelector("main"), groups = groupsOf(names);
  const search = h("input", { type: "search", id: "search", value: again ? document.querySelector("#search").value : decodeURIComponent(location.hash.slice(1)), placeholder: "for example val-core, entropy, timing_s" });
  const count = h("p", { class: "note", role: "status" }), index = h("nav", { class: "groups", "aria-label": "Groups" }), list = h("div", {});
  const show = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const fitting = groups.map(([group, all]) => [group, all.filter((name) => words.every((word) => name.toLowerCase().includes(word)))]).filter(([, all]) => all.length);
    forgetCharts();
    const parts = fitting.map(([group, all]) => [h("details", { class: "group", open: !closed.has(group), ontoggle: (event) => closed[event.target.open ? "delete" : "add"](group) }, h("summary", {}, h("h2", {}, plain(group)), ` ${all.length}`),
      h("div", { class: "grid" }, all.map((name) => lineChart(plain(name), `last: ${number(LAST(curve(name)) ?? null, 4)}`, [curve(name, { name: "", colour: "accent" })])))), group, all.length]);
    list.replaceChildren(...parts.map(([part]) => part));
    index.replaceChildren(...parts.map(([part, group, size]) => h("button", { type: "button", onclick: () => { part.open = true; part.scrollIntoView(); } }, `${plain(group)} `, h("span", { class: "soft" }, size))));
    count.textContent = counted(fitting.reduce((sum, [, all]) => sum + all.length, 0), "metric");
    history.replaceState(null, "", `#${encodeURIComponent(search.value)}`);
  };
  search.addEventListener("input", show);
  put(main, h("h1", {}, "All metrics"), h("p", { class: "soft" }, "What each means: docs/metrics.md of the project."),
    h("form", { class: "filters card", onsubmit: (event) => event.preventDefault() }, h("label", { for: "search", style: "grid-column:span 2" }, "Find", search), viewControls()), count, index, list);
  show();
});
