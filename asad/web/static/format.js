// Numbers and durations as the rest of asad writes them, and elements made from text alone: nothing here reads HTML.

const THIN = "\u202f";
const NONE = "–";

export function number(value, decimals = 0) {
  if (value === null || value === undefined || !Number.isFinite(value)) return NONE;
  const [whole, part] = Math.abs(value).toFixed(decimals).split(".");
  const grouped = whole.replace(/\B(?=(\d{3})+$)/g, THIN);
  return (value < 0 ? "−" : "") + grouped + (part ? `.${part}` : "");
}

export function percent(fraction) {
  return fraction === null || fraction === undefined ? NONE : `${number(fraction * 100)}${THIN}%`;
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return NONE;
  const left = Math.max(0, Math.round(seconds));
  const units = [["d", 86400, "h", 3600], ["h", 3600, "min", 60], ["min", 60, "s", 1]];
  for (const [large, length, small, part] of units) {
    if (left >= length) {
      const rest = Math.floor((left % length) / part);
      const text = `${number(Math.floor(left / length))}${THIN}${large}`;
      return rest ? `${text} ${rest}${THIN}${small}` : text;
    }
  }
  return `${left}${THIN}s`;
}

export function clock(timeS) {
  return timeS === null || timeS === undefined ? NONE : new Date(timeS * 1000).toLocaleString();
}

export function element(name, text = "", className = "") {
  const made = document.createElement(name);
  if (text !== "") made.textContent = text;
  if (className) made.className = className;
  return made;
}

// A row of a table: the first cell names it; a cell is text, a node, or [text, class].
export function row(cells) {
  const made = element("tr");
  cells.forEach((cell, at) => {
    const [content, className] = Array.isArray(cell) ? cell : [cell, ""];
    const td = element(at ? "td" : "th", "", className);
    if (!at) td.scope = "row";
    td.append(content instanceof Node ? content : String(content ?? NONE));
    made.append(td);
  });
  return made;
}

export function tiles(list, entries) {
  list.replaceChildren(...entries.map(([value, label, note]) => {
    const tile = element("div", "", "tile");
    tile.append(element("dd", value, "big"), element("dt", label), element("dd", note ?? "", "note"));
    return tile;
  }));
}

export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}
