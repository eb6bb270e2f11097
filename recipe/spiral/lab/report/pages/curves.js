// The curves of a run, by the names of their metrics.
"use strict";

function reader(data) {
  const curve = (name, more = {}) => {
    const found = data.curves[name];
    return found ? { x: data.axes[found[0]], y: found[1], times: data.times, ...more } : null;
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

