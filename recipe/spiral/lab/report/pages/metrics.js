// All metrics that a run has logged: a list to search in, and a chart of each that is chosen.
"use strict";

SPIRAL.start(async ({ again }) => {
  const run = await SPIRAL.load("run"), data = await SPIRAL.load("metrics");
  pageHead(run, "metrics.html");
  forgetCharts();
  const names = Object.keys(data.curves), main = document.querySelector("main");
  const search = h("input", { type: "search", id: "search", value: again ? document.querySelector("#search").value : decodeURIComponent(location.hash.slice(1)), placeholder: "for example val-core, entropy, timing_s" });
  const count = h("p", { class: "note", role: "status" }), grid = h("div", { class: "grid" });
  const show = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const fitting = names.filter((name) => words.every((word) => name.toLowerCase().includes(word)));
    forgetCharts();
    grid.replaceChildren(...fitting.slice(0, 60).map((name) => {
      const [axis, y] = data.curves[name];
      return lineChart(plain(name), `last: ${number(y.findLast((value) => value !== null) ?? null, 4)}`, [{ name: "", colour: "accent", x: data.axes[axis], y }]);
    }));
    count.textContent = fitting.length > 60 ? `${fitting.length} metrics; the first 60 are drawn` : counted(fitting.length, "metric");
    history.replaceState(null, "", `#${encodeURIComponent(search.value)}`);
  };
  search.addEventListener("input", show);
  put(main, h("h1", {}, "All metrics"), h("p", { class: "soft" }, "What each means: docs/metrics.md of the project."),
    h("label", { for: "search" }, "Find", search), count, grid);
  show();
});
