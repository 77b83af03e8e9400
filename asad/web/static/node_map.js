// The cluster as a map: a field a node. The table below it is the same for who does not see it.

import { colour, number, percent, row } from "./format.js";

export const parts = ["nodes"];

const [CORES, ALLOCATED, USED, LENT, PRESSURE, GUESTS, CLOSED, SILENT] = [0, 1, 2, 3, 4, 5, 6, 7];
const PRESSED = 0.2;
const HEIGHT = 360;
const canvas = document.getElementById("map");
const sentence = document.getElementById("node");
const table = document.getElementById("nodes-table");
let nodes = new Map();
let names = [];
let chosen = -1;
let grid = { columns: 1, size: 20 };
let paints = {};

export function start() {
  canvas.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: grid.columns, ArrowUp: -grid.columns }[event.key];
    if (step === undefined || !names.length) return;
    event.preventDefault();
    choose(chosen < 0 ? 0 : Math.min(names.length - 1, Math.max(0, chosen + step)));
  });
  canvas.addEventListener("pointermove", (event) => {
    const [column, line] = [event.offsetX, event.offsetY].map((at) => Math.floor(at / grid.size));
    const at = line * grid.columns + column;
    if (column < grid.columns && at < names.length && at !== chosen) choose(at);
  });
  table.addEventListener("toggle", () => fillTable());
  new ResizeObserver(() => paint()).observe(canvas.parentElement);
  readPaints();
}

export function recolour() {
  readPaints();
  paint();
}

export function draw(view) {
  nodes = view.nodes;
  if (names.length !== nodes.size) names = [...nodes.keys()];
  paint();
  if (chosen >= 0) describe();
  fillTable();
  const sum = (column) => [...nodes.values()].reduce((total, node) => total + (node[column] ?? 0), 0);
  const pressed = [...nodes.values()].filter((node) => node[PRESSURE] > PRESSED).length;
  canvas.setAttribute("aria-label", `Map of ${number(nodes.size)} nodes: of ${number(sum(CORES))} cores `
    + `${number(sum(ALLOCATED))} are allocated, ${number(sum(USED))} really used, ${number(sum(LENT), 1)} lent; on `
    + `${number(pressed)} nodes a host waits for CPU.`);
}

function readPaints() {
  for (const name of ["allocated", "used", "lent", "pressed", "closed", "empty", "accent"]) paints[name] = colour(`--${name}`);
}

function fit(count, width) {
  for (let size = 64; size > 6; size -= 1) {
    const columns = Math.max(1, Math.floor(width / size));
    if (Math.ceil(count / columns) * size <= HEIGHT) return { columns, size };
  }
  return { columns: Math.max(1, Math.floor(width / 6)), size: 6 };
}

function paint() {
  const width = canvas.parentElement.clientWidth;
  if (!names.length || !width) return;
  grid = fit(names.length, width);
  const height = Math.ceil(names.length / grid.columns) * grid.size;
  const scale = devicePixelRatio || 1;
  canvas.style.height = `${height}px`;
  canvas.width = width * scale;
  canvas.height = height * scale;
  const pen = canvas.getContext("2d");
  pen.scale(scale, scale);
  names.forEach((name, at) => field(pen, nodes.get(name), at));
}

function field(pen, node, at) {
  const gap = grid.size > 14 ? 2 : 1;
  const side = grid.size - gap;
  const [x, y] = [(at % grid.columns) * grid.size, Math.floor(at / grid.columns) * grid.size];
  const bar = (part, from, wide) => {
    const high = Math.min(1, part / node[CORES]) * side;
    pen.fillRect(x + from, y + side - high, wide, high);
  };
  pen.fillStyle = paints.empty;
  pen.fillRect(x, y, side, side);
  pen.fillStyle = paints.allocated;
  bar(node[ALLOCATED], 0, side);
  pen.fillStyle = paints.used;
  bar(node[USED] ?? 0, 0, side / 2);
  pen.fillStyle = paints.lent;
  bar(node[LENT] ?? 0, side / 2, side / 2);
  if (node[CLOSED] || node[SILENT]) {
    pen.strokeStyle = paints.closed;
    pen.lineWidth = 1;
    pen.beginPath();
    pen.moveTo(x, y + side);
    pen.lineTo(x + side, y);
    pen.stroke();
  }
  if (node[PRESSURE] > PRESSED || at === chosen) {
    pen.strokeStyle = at === chosen ? paints.accent : paints.pressed;
    pen.lineWidth = 2;
    pen.strokeRect(x + 1, y + 1, side - 2, side - 2);
  }
}

function choose(at) {
  chosen = at;
  paint();
  describe();
}

function describe() {
  const name = names[chosen];
  const node = nodes.get(name);
  if (!node) return;
  const words = [`${name}: ${number(node[ALLOCATED])} of ${number(node[CORES])} cores allocated`,
    node[USED] === null ? "use not measured" : `${number(node[USED], 1)} really used`,
    `${number(node[LENT], 1)} lent to ${number(node[GUESTS])} guests`];
  if (node[PRESSURE] !== null) words.push(`its most pressed host waits for CPU ${percent(node[PRESSURE])} of the time`);
  if (node[CLOSED]) words.push(`takes no guests: ${node[CLOSED]}`);
  if (node[SILENT]) words.push("its actor is silent");
  const text = `${words.join(", ")}.`;
  if (sentence.textContent !== text) sentence.textContent = text;
}

function fillTable() {
  if (!table.open) return;
  table.querySelector("tbody").replaceChildren(...names.map((name) => {
    const node = nodes.get(name);
    const why = node[SILENT] ? "its actor is silent" : node[CLOSED];
    return row([name, number(node[CORES]), number(node[ALLOCATED]), number(node[USED], 1), number(node[LENT], 1),
      percent(node[PRESSURE]), number(node[GUESTS]), [why || "–", "word"]]);
  }));
}
