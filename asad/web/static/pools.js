// What the pools of the nodes hold, and how much of it guests want.

import { number, percent, row } from "./format.js";

export const parts = ["nodes"];

const [LENT, GUESTS, POOL] = [3, 5, 8];
const MOST = 60;
const sentence = document.getElementById("pools");
const table = document.getElementById("pools-table");
let pools = [];

export function start() {
  table.addEventListener("toggle", () => fillTable());
}

export function draw({ nodes }) {
  const all = [...nodes].filter(([, node]) => node.length > POOL);
  document.getElementById("pool-parts").hidden = !all.length;
  if (!all.length) {
    sentence.textContent = "The share policy lends from no pools.";
    return;
  }
  pools = all.filter(([, node]) => node[POOL] > 0 || node[LENT] > 0);
  const sum = (column) => pools.reduce((total, [, node]) => total + (node[column] ?? 0), 0);
  const [held, wanted] = [sum(POOL), sum(LENT)];
  sentence.textContent = `${number(pools.length)} of ${number(all.length)} nodes have something in their pools: `
    + `${number(held, 1)} cores’ worth of CPU, of which guests want ${number(wanted, 1)}${held > 0 ? ` (${percent(wanted / held)})` : ""}.`;
  fillTable();
}

function fillTable() {
  if (!table.open) return;
  const shown = [...pools].sort(([, a], [, b]) => b[LENT] - a[LENT] || b[POOL] - a[POOL]).slice(0, MOST);
  table.querySelector("tbody").replaceChildren(...shown.map(([name, node]) => row([name, number(node[POOL], 1),
    number(node[LENT], 1), percent(node[POOL] > 0 ? node[LENT] / node[POOL] : null), number(node[GUESTS])])));
}
