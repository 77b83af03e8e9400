// Who runs as a guest, where, and who gives what it needs.

import { duration, number, percent, row } from "./format.js";

export const parts = ["guests", "head"];

const body = document.getElementById("guest-rows");

export function draw({ guests, head }) {
  document.getElementById("no-guests").hidden = guests.size > 0;
  body.closest(".scroll").hidden = guests.size === 0;
  body.replaceChildren(...[...guests].map(([guest, it]) => {
    const given = Object.entries(it.from).map(([source, cores]) => `${source === "free" ? "free cores" : source} ${number(cores, 1)}`);
    const by = it.host ? `beside ${it.host}${it.share === null ? "" : `, ${percent(it.share)} of it`}` : given.join(", ");
    return row([guest, [it.user, "word"], [it.nodes.join(", "), "word"], number(it.needs || null, 1), [by || "–", "word"],
      duration(head.now_s - it.since_s), percent(it.pace), number(it.happiness, 2)]);
  }));
}
