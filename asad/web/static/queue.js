// Jobs, found by the server, and the story of one on demand.

import { duration, element, number, percent, row } from "./format.js";

export const parts = ["jobs", "queue"];

const [STATE, USER, NAME, CORES, SUBMIT, START, , ESTIMATED, CPU, PRESSURE, , , , HOST_BAR, GUEST_BAR] = Array(15).keys();
const MOST = 50;
const form = document.getElementById("filter");
const body = document.getElementById("jobs");
const dialog = document.getElementById("story");
let first = 0;

export function start(ask) {
  let timer = 0;
  const again = (from) => {
    first = Math.max(0, from);
    const { state, text } = form.elements;
    ask({ state: state.value, text: text.value, first, most: MOST });
  };
  form.addEventListener("submit", (event) => event.preventDefault());
  form.elements.state.addEventListener("change", () => again(0));
  form.elements.text.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(() => again(0), 400);
  });
  form.elements.back.addEventListener("click", () => again(first - MOST));
  form.elements.on.addEventListener("click", () => again(first + MOST));
  body.addEventListener("click", (event) => {
    const link = event.target.closest("button");
    if (link) explain(link.dataset.job);
  });
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close();
  });
  again(0);
}

export function draw({ jobs, queue, head }) {
  if (!queue) return;
  const nowS = head.now_s;
  const focused = document.activeElement?.dataset?.job;
  body.replaceChildren(...queue.order.filter((job) => jobs.has(job)).map((job) => line(job, jobs.get(job), nowS)));
  if (focused) body.querySelector(`[data-job="${CSS.escape(focused)}"]`)?.focus();
  first = queue.first;
  const shown = queue.order.length;
  const range = shown ? `${number(first + 1)} to ${number(first + shown)} of ${number(queue.found)}` : "none";
  const counts = Object.entries(queue.counts).map(([state, count]) => `${number(count)} ${state}`);
  const text = `${range}${counts.length ? ` (in all ${counts.join(", ")})` : ""}`;
  const found = document.getElementById("found");
  if (found.textContent !== text) found.textContent = text;
  form.elements.back.disabled = first === 0;
  form.elements.on.disabled = first + shown >= queue.found;
}

function line(job, cells, nowS) {
  const link = element("button", job, "link");
  link.type = "button";
  link.dataset.job = job;
  link.setAttribute("aria-label", `Job ${job}, its story`);
  const waits = cells[STATE] === "waiting" || cells[STATE] === "offered";
  const bar = waits ? cells[GUEST_BAR] : cells[STATE] === "guest" ? "" : cells[HOST_BAR];
  const why = bar ? `${waits ? "no guest" : "lends nothing"}: ${bar}` : "";
  const turn = waits && cells[ESTIMATED] !== null ? duration(cells[ESTIMATED] - nowS) : "–";
  return row([link, [cells[STATE], "word"], [cells[USER], "word"], [cells[NAME], "word name"], number(cells[CORES]),
    duration(nowS - (cells[START] ?? cells[SUBMIT])), percent(cells[CPU]), percent(cells[PRESSURE]), turn, [why, "word why"]]);
}

// The server renders it from the templates of the report, and escapes what users wrote.
async function explain(job) {
  const answer = await fetch(`explain?${new URLSearchParams({ job })}`);
  const close = element("button", "Close");
  close.type = "button";
  close.addEventListener("click", () => dialog.close());
  const story = new DOMParser().parseFromString(await answer.text(), "text/html");
  dialog.replaceChildren(...story.body.childNodes, close);
  if (!dialog.open) dialog.showModal();
  close.focus();
}
