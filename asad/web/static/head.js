// What the daemon is at, and the figures of the whole cluster.

import { clock, duration, number, percent, tiles } from "./format.js";

export const parts = ["head"];

const trouble = document.getElementById("trouble");
let lostServer = false;
let reported = "";

function warn() {
  const text = lostServer ? "The connection to the page’s server is lost; what is shown is old." : reported;
  trouble.hidden = !text;
  if (trouble.textContent !== text) trouble.textContent = text;
}

export function lost(isLost) {
  lostServer = isLost;
  warn();
}

export function draw({ head }) {
  const cluster = head.cluster ?? {};
  const who = { all: "everybody’s jobs", own: "your own jobs alone", none: "figures alone, for nobody knows who you are" };
  if (cluster.sentence) document.getElementById("facts").textContent = cluster.sentence;
  const words = [`Mode ${head.mode ?? "–"}${head.paused ? ", paused" : ""}`];
  if (head.cycle?.time_s) words.push(`${head.cycle.sentence} (${clock(head.cycle.time_s)}, ${number(head.cycle.wall_ms)} ms)`);
  if (head.actors?.silent) words.push(`${number(head.actors.silent)} node actors silent`);
  if (head.store_away) words.push("the state store does not take what is decided");
  words.push(`${head.viewer ? `You are ${head.viewer}` : "You"} and see ${who[head.sees]}`);
  const status = document.getElementById("cycle");
  const text = `${words.join(" · ")}.`;
  if (status.textContent !== text) status.textContent = text;
  reported = head.trouble ? `What is shown is old: ${head.trouble}` : "";
  warn();
  if (!cluster.nodes) return;
  tiles(document.getElementById("tiles"), [
    [number(cluster.nodes), "nodes", `${number(cluster.cores)} cores`],
    [percent(cluster.allocated_cores / cluster.cores), "allocated", `${number(cluster.allocated_cores)} cores`],
    [number(cluster.running), "running", `${number(cluster.waiting)} waiting`],
    [number(cluster.guests), "guests", `on ${number(cluster.shared_cores)} cores; ${number(cluster.offered)} offered`],
  ]);
  const gains = head.gains ?? {};
  tiles(document.getElementById("gain-tiles"), [
    [number(gains.lent_core_s / 3600, 1), "core-hours lent", "to guests that have ended"],
    [duration(gains.saved_wait_s), "of waiting saved", "against the estimate at the offer"],
    [number(gains.guests), "guests so far", `since ${clock(head.since_s)}`],
    [duration(gains.extended_s), "limits extended", "because lending took it"],
  ]);
}
