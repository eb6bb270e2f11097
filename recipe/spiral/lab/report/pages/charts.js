// Charts: plotly drawn in the page's own colours, when they come into sight. Lines have their names at their ends.
"use strict";

// A run's curves, by the names of their metrics.
function reader(data) {
  const curve = (name, more = {}) => {
    const found = data.curves[name];
    return found ? { x: data.axes[found[0]], y: found[1], ...more } : null;
  };
  const names = Object.keys(data.curves);
  const withLimits = (core, aux, more) => {
    const line = curve(core, more), low = curve(`${aux}_low`), high = curve(`${aux}_high`);
    return line && low && high && low.y.length === line.y.length ? { ...line, low: low.y, high: high.y } : line;
  };
  return { curve, names, withLimits };
}

const FIRST = (line) => line?.y.find((value) => value !== null), LAST = (line) => line?.y.findLast((value) => value !== null);
const roleName = (role) => `player ${role}`;

function gamesOf(names, pattern) {
  return [...new Set(names.map((name) => name.match(pattern)?.[1]).filter(Boolean))].sort();
}

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const PALETTE = ["p0", "p1", "win", "third", "loss", "fourth", "draw"];
// Plotly reads some HTML in texts: names must not.
const label = (text) => plain(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");

let library = null;
const plotly = () => (library ??= SPIRAL.script("assets/plotly.min.js"));

const drawn = new Map();
const inSight = new IntersectionObserver((entries) => {
  for (const entry of entries) if (entry.isIntersecting) { inSight.unobserve(entry.target); drawNow(entry.target); }
}, { rootMargin: "300px" });

async function drawNow(plot) {
  await plotly();
  const spec = drawn.get(plot);
  if (!spec || !plot.isConnected || !plot.clientWidth) return;
  const [traces, layout] = spec(plot.clientWidth);
  Plotly.react(plot, traces, { ...layout, width: plot.clientWidth, height: plot.clientHeight }, { displayModeBar: false, responsive: true, doubleClick: "reset" });
  plot.dataset.drawn = "yes";
}

// Draws charts anew: those in sight now, the others when they come into sight.
function redraw() {
  for (const plot of drawn.keys()) {
    delete plot.dataset.drawn;
    inSight.unobserve(plot);
    inSight.observe(plot);
  }
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);

// A chart's card. `build` takes the plot's width and gives plotly's traces and layout.
function card(title, note, build, { wide = false, height = null, width = null, least = null, summary = "" } = {}) {
  const size = (height ? `height:${height}px;` : "") + (width ? `max-width:${width}px;` : "") + (least ? `min-width:${least}px` : "");
  const plot = h("div", { class: "plot", role: "img", "aria-label": `${title}. ${note}. ${summary}`, style: size || null });
  drawn.set(plot, build);
  inSight.observe(plot);
  return h("figure", { class: `card ${wide ? "wide" : ""}` }, h("h3", {}, title), note ? h("figcaption", {}, note) : null, least ? h("div", { class: "scroll" }, plot) : plot);
}

function forgetCharts() {
  for (const plot of drawn.keys()) { inSight.unobserve(plot); if (plot.data) Plotly.purge(plot); }
  drawn.clear();
}

function baseLayout({ share = false, zero = false, x = "step", range = null } = {}) {
  const touch = matchMedia("(pointer: coarse)").matches;
  const axis = { color: colour("soft"), gridcolor: colour("grid"), zeroline: false, linecolor: colour("line"), tickfont: { size: 11 }, fixedrange: touch };
  return {
    margin: { l: 44, r: 12, t: 8, b: 34 }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: colour("ink") },
    xaxis: { ...axis, showgrid: false, unifiedhovertitle: { text: "step %{x:,}" }, title: { text: x, font: { size: 11, color: colour("soft") }, standoff: 6 }, nticks: 7 },
    yaxis: { ...axis, tickformat: share ? ".2~%" : null, rangemode: zero || share ? "tozero" : "normal", range, nticks: 6 },
    showlegend: false, hovermode: "x unified", dragmode: touch ? false : "zoom",
    hoverlabel: { bgcolor: colour("card"), bordercolor: colour("line"), font: { size: 12, color: colour("ink") }, namelength: -1 },
  };
}

function seeThrough(hex, alpha) {
  const [r, g, b] = [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
  return `rgba(${r},${g},${b},${alpha})`;
}

// Heights in pixels, lowest first, moved so that texts there do not meet and none is above the plot.
function apart(heights, top, least = 14) {
  const placed = [];
  for (const height of heights) placed.push(Math.max(height, (placed.at(-1) ?? -Infinity) + least));
  for (let at = placed.length - 1, above = top + least; at >= 0; at--) above = placed[at] = Math.min(placed[at], above - least);
  return placed;
}

// Names right of the lines take a third of the plot at most; of a longer one the middle is left out, as settings differ
// at their ends. The whole name is in the hover.
const LETTER = 6.6, BESIDE = 14;
function shortened(name, width) {
  const letters = [...name], most = Math.max(7, Math.floor((.35 * width - BESIDE) / LETTER)), head = Math.floor((most - 1) / 3);
  return letters.length <= most ? name : [...letters.slice(0, head), "…", ...letters.slice(letters.length - (most - 1 - head))].join("");
}
const besides = (names) => BESIDE + LETTER * Math.max(0, ...names.map((name) => [...name].length));

// The range of the y axis, and names at the ends of lines.
function endNames(lines, layout, height, width) {
  const values = lines.flatMap((line) => [...line.y, ...(line.high ?? []), ...(line.low ?? [])]).filter((value) => value !== null);
  let [low, high] = [Math.min(...values), Math.max(...values)];
  if (layout.yaxis.rangemode === "tozero") { low = Math.min(0, low); high = Math.max(0, high); }
  if (low === 0 && high === 0) high = 1;
  layout.yaxis.exponentformat = Math.max(-low, high) < 1 ? "power" : "SI";  // not "500µ" of a learning rate
  const span = (high - low) || Math.abs(high) / 5 || 1;
  const [bottom, top] = layout.yaxis.range ??= [low - span * .04, high + span * .06];
  const ends = lines.filter((line) => line.name && !line.quiet).map((line) => ({ line, y: line.y.findLast((value) => value !== null) }))
    .filter(({ y }) => y !== undefined).sort((a, b) => a.y - b.y);
  if (!ends.length) return;
  const pixels = height - layout.margin.t - layout.margin.b;
  const natural = ends.map(({ y }) => (y - bottom) / (top - bottom) * pixels), placed = apart(natural, pixels);
  layout.annotations = ends.map(({ line, y }, at) => ({ xref: "paper", x: 1, xanchor: "left", xshift: 5, y, yshift: placed[at] - natural[at],
    text: label(shortened(line.name, width)), showarrow: false, font: { size: 12, color: line.colour } }));
  layout.margin.r = besides(ends.map(({ line }) => shortened(line.name, width)));
}

// Lines, with bands where `low` and `high` are given. A line: {name, x, y, low, high, colour, dash, thin, quiet}. Null is a
// line that the run does not have; of none there is no chart.
function lineChart(title, note, all, options = {}) {
  const lines = all.filter(Boolean);
  if (!lines.length) return null;
  const build = (width) => {
    const layout = baseLayout(options), traces = [];
    const coloured = lines.map((line, place) => ({ ...line, colour: colour(line.colour ?? PALETTE[place % PALETTE.length]) }));
    for (const line of coloured) {
      if (line.low) {
        traces.push({ x: line.x, y: line.low, mode: "lines", line: { width: 0 }, hoverinfo: "skip" });
        traces.push({ x: line.x, y: line.high, mode: "lines", line: { width: 0 }, fill: "tonexty", fillcolor: seeThrough(line.colour, .15), hoverinfo: "skip" });
      }
      traces.push({ x: line.x, y: line.y, name: label(line.name), mode: line.x.length < 12 && !line.thin ? "lines+markers" : "lines", connectgaps: true,
        opacity: line.thin ? .45 : 1, line: { color: line.colour, width: line.thin ? 1.2 : 2, dash: line.dash, shape: "linear" }, marker: { size: 5 },
        hovertemplate: options.share ? "%{y:.1%}" : "%{y:,.4~r}" });
    }
    endNames(coloured, layout, options.height ?? 230, width);
    return [traces, layout];
  };
  return card(title, note, build, { ...options, summary: summary(lines, options.share) });
}

// Shares that add up to one, or amounts on top of each other; as of `lineChart`.
function stackChart(title, note, found, options = {}) {
  const lines = found.filter(Boolean);
  if (!lines.length) return null;
  const build = (width) => {
    const layout = baseLayout({ ...options, range: options.full ? [0, 1] : null, zero: true });
    const traces = lines.map((line, place) => {
      const shade = colour(line.colour ?? PALETTE[place % PALETTE.length]);
      return { x: line.x, y: line.y, name: label(line.name), stackgroup: "all", mode: "lines", line: { width: .8, color: shade }, fillcolor: seeThrough(shade, .55),
        hovertemplate: options.share ? "%{y:.1%}" : "%{y:,.3~r}" };
    });
    const most = options.full ? 1 : Math.max(...lines[0].x.map((_, at) => lines.reduce((sum, line) => sum + (line.y[at] ?? 0), 0))) || 1;
    layout.yaxis.range = [0, options.full ? 1.001 : most * 1.05];  // a little more, so that 100% is written
    const names = [];
    let below = 0;
    for (const [place, line] of lines.entries()) {
      const height = line.y.at(-1) ?? 0;
      if (line.y.some((y) => y >= .01 * most)) names.push([below + height / 2, line.name, colour(line.colour ?? PALETTE[place % PALETTE.length])]);
      below += height;
    }
    const natural = names.map(([middle]) => middle / layout.yaxis.range[1] * 188), placed = apart(natural, 188);
    layout.annotations = names.map(([middle, text, shade], at) => ({ xref: "paper", x: 1, xanchor: "left", xshift: 5, y: middle, yshift: placed[at] - natural[at], text: label(shortened(text, width)), showarrow: false, font: { size: 12, color: shade } }));
    layout.margin.r = besides(lines.map((line) => shortened(line.name, width)));
    return [traces, layout];
  };
  return card(title, note, build, { ...options, summary: summary(lines, options.share) });
}

// The narrowest cell in pixels in which its figure is written; the hover has it in any case.
const WRITTEN = 36;
function heatMap(title, note, { x, y, z, text, hover, share = true, wide = true, scale = null }) {
  const height = 120 + 30 * y.length;
  const build = (width) => {
    const layout = baseLayout({ x: "" }), longest = (names) => Math.max(...names.map((name) => name.length));
    const left = Math.min(170, 20 + 6.5 * longest(y)), slanted = 6.8 * longest(x) > (width - left) / x.length;
    layout.xaxis = { ...layout.xaxis, type: "category", side: "top", tickangle: slanted ? -45 : 0, title: null };
    layout.yaxis = { ...layout.yaxis, type: "category", autorange: "reversed", tickformat: null, rangemode: "normal", range: undefined, nticks: undefined, showgrid: false };
    layout.margin = { l: left, r: slanted ? 60 : 10, t: slanted ? 20 + 4.6 * longest(x) : 30, b: 10 };
    layout.hovermode = "closest";
    const colours = scale ?? [[0, colour("loss")], [.5, colour("tint")], [1, colour("win")]];
    return [[{ type: "heatmap", x: x.map(label), y: y.map(label), z, text: text.map((row) => row.map((cell) => cell ?? "")), customdata: hover, texttemplate: (width - left) / x.length < WRITTEN ? "" : "%{text}", textfont: { size: 12, color: colour("ink") },
      hovertemplate: "%{customdata}<extra></extra>", colorscale: colours, zmin: 0, zmax: share ? 1 : undefined, showscale: false, xgap: 3, ygap: 3, opacity: .5 }], layout];
  };
  return card(title, note, build, { wide, height, width: 190 + 120 * x.length, least: 120 + 20 * x.length });
}

// Dots with intervals, one below the other: [{name, value, low, high, colour}].
function dotChart(title, note, rows, options = {}) {
  const height = 70 + 26 * rows.length;
  const build = () => {
    const layout = baseLayout(options);
    layout.yaxis = { ...layout.yaxis, type: "category", autorange: "reversed", tickformat: null, rangemode: "normal", range: undefined, nticks: undefined, showgrid: true };
    layout.xaxis = { ...layout.xaxis, showgrid: true, nticks: 5, tickformat: options.share ? ".0%" : null };
    layout.margin.l = Math.min(230, 20 + 6.6 * Math.max(...rows.map((row) => row.name.length)));
    layout.hovermode = "closest";
    return [[{ x: rows.map((row) => row.value), y: rows.map((row) => label(row.name)), mode: "markers", marker: { size: 9, color: rows.map((row) => colour(row.colour ?? "accent")) },
      error_x: { type: "data", symmetric: false, array: rows.map((row) => row.high - row.value), arrayminus: rows.map((row) => row.value - row.low), color: colour("soft"), thickness: 1.2, width: 0 },
      customdata: rows.map((row) => label(row.hover ?? "")), hovertemplate: "%{customdata}<extra></extra>" }], layout];
  };
  return card(title, note, build, { wide: true, height, ...options });
}

function summary(lines, share) {
  return lines.map((line) => `${line.name ? `${line.name}: ` : ""}${share ? percent(line.y.at(-1)) : number(line.y.at(-1))} at the end`).join("; ");
}
