// Decisions as they fall, the newest first; only what is new is added, so that a screen reader reads no more than that.

import { clock, element } from "./format.js";

export const parts = ["decisions"];

const MOST = 100;
const list = document.getElementById("decision-list");
let newest = -1;

export function draw({ decisions }, change) {
  if (change.whole || (decisions.length && decisions.at(-1)[0] < newest)) {
    list.replaceChildren();
    newest = -1;
  }
  for (const [at, decision] of decisions.slice(-MOST)) {
    if (at > newest) {
      list.prepend(entry(decision));
      newest = at;
    }
  }
  while (list.children.length > MOST) list.lastChild.remove();
  document.getElementById("no-decisions").hidden = list.children.length > 0;
}

function entry(decision) {
  const item = element("li");
  const on = decision.nodes.length ? ` on ${decision.nodes.join(", ")}` : "";
  const time = element("time", clock(decision.time_s));
  time.dateTime = new Date(decision.time_s * 1000).toISOString();
  item.append(time, ` ${decision.kind}: ${decision.jobs.join(" beside ")}${on} – ${decision.reason} `);
  const outcome = decision.outcome ? `${decision.verdict}: ${decision.outcome}` : decision.verdict;
  item.append(element("span", outcome, `outcome ${decision.verdict}`));
  return item;
}
