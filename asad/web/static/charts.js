// What changed over time, by uPlot. Each chart's label says in words what its newest values are.

import { colour, number } from "./format.js";

export const parts = ["samples", "series"];

const COLOURS = ["#1f7fd1", "#00936b", "#c47a00", "#a4508b", "#7d8590", "#d1495b", "#5b8c5a", "#8d6cab", "#3aa6b9", "#b08968"];
const PLOTS = {
  "plot-cores": { title: "Cores over time", lines: ["allocated", "used", "lent"], decimals: 1 },
  "plot-pools": { title: "Pools over time", lines: ["pool", "lent"], decimals: 1, labels: ["given to the pools", "wanted by guests"] },
  "plot-gains": { title: "Core-hours lent", lines: ["lent_core_s"], decimals: 1, factor: 1 / 3600, labels: ["core-hours lent"] },
  "plot-weights": { title: "Weights of the experts", decimals: 3 },
};
const drawn = new Map();
let latest = null;

export function start() {
  new ResizeObserver(() => {
    for (const [id, { plot }] of drawn) {
      const width = document.getElementById(id).clientWidth;
      if (width) plot.setSize({ width, height: 220 });
    }
  }).observe(document.querySelector("main"));
}

export function recolour() {
  for (const { plot } of drawn.values()) plot.destroy();
  drawn.clear();
  if (latest) draw(latest);
}

export function draw(view) {
  const { samples, series } = view;
  latest = view;
  if (!series || !samples.length) return;
  const experts = series.slice(series.indexOf("saved_wait_s") + 1);
  for (const [id, kind] of Object.entries(PLOTS)) {
    const lines = kind.lines ?? experts;
    const place = document.getElementById(id);
    if (!lines.length || !place.clientWidth) continue;
    const columns = ["time_s", ...lines].map((name) => series.indexOf(name));
    const factor = kind.factor ?? 1;
    const data = columns.map((column, at) =>
      samples.map(([, values]) => (at && values[column] != null ? values[column] * factor : values[column] ?? null)));
    chart(id, place, kind, kind.labels ?? lines, data);
    const words = (kind.labels ?? lines).map((name, at) => `${name} ${number(data[at + 1].at(-1), kind.decimals)}`);
    place.setAttribute("aria-label", `${kind.title}; at last ${words.join(", ")}.`);
  }
}

function chart(id, place, kind, labels, data) {
  const known = drawn.get(id);
  if (known && known.labels.join() === labels.join()) {
    known.plot.setData(data);
    return;
  }
  known?.plot.destroy();
  const [ink, line] = [colour("--soft"), colour("--line")];
  const axis = { stroke: ink, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 } };
  const plot = new uPlot({
    width: place.clientWidth,
    height: 220,
    cursor: { drag: { x: false, y: false } },
    axes: [axis, { ...axis, size: 60 }],
    scales: { y: { range: (_, least, most) => [Math.min(0, least ?? 0), (most || 1) * 1.05] } },
    series: [{}, ...labels.map((label, at) => ({
      label,
      stroke: COLOURS[at % COLOURS.length],
      width: 2,
      dash: at >= COLOURS.length ? [6, 4] : [],
      points: { show: false },
      value: (_, value) => number(value, kind.decimals),
    }))],
  }, data, place);
  drawn.set(id, { plot, labels });
}
