// The page's heart: takes what changes from the server, and has the panels drawn that show it.

import * as charts from "./charts.js";
import * as decisions from "./decisions.js";
import * as experts from "./experts.js";
import * as fragments from "./fragments.js";
import * as guests from "./guests.js";
import * as head from "./head.js";
import * as nodes from "./node_map.js";
import * as pools from "./pools.js";
import * as queue from "./queue.js";

const KEYED = ["nodes", "jobs", "guests", "fragments"];
const GROWING = { decisions: 200, samples: 720 };
const PANELS = [head, nodes, queue, pools, guests, decisions, experts, charts, fragments];

const view = {};
let source = null;
let query = new URLSearchParams();

function clear(parts) {
  for (const part of parts) view[part] = KEYED.includes(part) ? new Map() : part in GROWING ? [] : null;
}

function apply(change) {
  if (change.whole) clear([...KEYED, ...Object.keys(GROWING), ...Object.keys(view)]);
  for (const [part, value] of Object.entries(change)) {
    if (KEYED.includes(part)) {
      for (const key of value.drop) view[part].delete(key);
      for (const [key, one] of Object.entries(value.set)) view[part].set(key, one);
    } else if (part in GROWING) {
      const anew = view[part].length && value[0][0] <= view[part].at(-1)[0];
      view[part] = (anew ? value : view[part].concat(value)).slice(-GROWING[part]);
    } else {
      view[part] = value;
    }
  }
  const changed = new Set(Object.keys(change));
  for (const panel of PANELS) {
    if (panel.parts.some((part) => changed.has(part))) panel.draw(view, change);
  }
  document.documentElement.dataset.drawn = view.number;
  if (change.whole) performance.mark("drawn");
}

// Which jobs are shown is the server's to find; all else goes on as it was.
function connect() {
  source?.close();
  if (view.number) query.set("known", view.number);
  clear(["jobs"]);
  source = new EventSource(`events?${query}`);
  source.addEventListener("change", (event) => apply(JSON.parse(event.data)));
  source.addEventListener("error", () => head.lost(true));
  source.addEventListener("open", () => head.lost(false));
}

clear([...KEYED, ...Object.keys(GROWING)]);
for (const panel of [nodes, pools, charts]) panel.start();
const dark = matchMedia("(prefers-color-scheme: dark)");
dark.addEventListener("change", () => {
  for (const panel of [nodes, charts]) panel.recolour(view);
});
queue.start((wanted) => {
  query = new URLSearchParams(wanted);
  connect();
});
