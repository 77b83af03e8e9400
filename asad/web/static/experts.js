// Expert trees, drawn when they are opened, with the leaf that each reached last and how many hosts are at which.

import { clock, element, number, percent, row } from "./format.js";

export const parts = ["experts", "trees", "head"];

const NS = "http://www.w3.org/2000/svg";
const [WIDE, HIGH, STEP_X, STEP_Y] = [178, 38, 218, 48];
const place = document.getElementById("trees");
let built = null;

export function draw({ experts, trees, head }) {
  const none = !experts || !trees?.length;
  document.getElementById("no-experts").hidden = !none;
  document.getElementById("expert-parts").hidden = none;
  if (none) {
    const policy = head?.policies?.policy;
    if (policy) document.getElementById("no-experts").textContent = `The share policy ${policy} asks no experts: there are no trees to draw.`;
    return;
  }
  if (built !== trees) build(trees);
  const { last } = experts;
  const at = last ? `The share of ${last.job} was drawn last (${clock(last.time_s)}): it lends up to ${percent(last.share)}.`
    : "No share has been drawn yet of a job that runs.";
  document.getElementById("last-leaf").textContent = at;
  trees.forEach((tree, number_) => mark(place.children[number_], tree, experts, number_));
  applications(experts, trees);
}

function build(trees) {
  built = trees;
  place.replaceChildren(...trees.map((tree, at) => {
    const details = element("details", "", "tree");
    details.append(element("summary"), element("p", tree.about, "prose"));
    details.addEventListener("toggle", () => {
      if (details.open && !details.querySelector("svg")) details.append(picture(tree));
      if (details.marks) details.marks();
    });
    details.open = at === 0;
    return details;
  }));
}

function mark(details, tree, experts, at) {
  const last = experts.last?.leaves[at];
  const reached = experts.reached[at] ?? {};
  const summary = `${tree.name}: weight ${number(experts.weights[at], 3)}${last ? `, last leaf “${last}”` : ""}`;
  if (details.firstChild.textContent !== summary) details.firstChild.textContent = summary;
  details.marks = () => {
    for (const leaf of details.querySelectorAll("[data-leaf]")) {
      const hosts = reached[leaf.dataset.leaf] ?? 0;
      leaf.classList.toggle("last", leaf.dataset.leaf === last);
      leaf.classList.toggle("reached", hosts > 0);
      leaf.querySelector(".hosts").textContent = hosts ? `${number(hosts)} hosts` : "";
    }
    const svg = details.querySelector("svg");
    const where = Object.entries(reached).map(([leaf, hosts]) => `${leaf}: ${number(hosts)} hosts`).join("; ");
    svg?.setAttribute("aria-label", `Tree ${tree.name}. ${spoken(tree)} Reached now: ${where || "nothing"}.`);
  };
  if (details.open) details.marks();
}

function spoken(tree) {
  const tests = tree.nodes.map((it) => `${it.name} asks whether ${it.feature} is above ${it.above}: yes ${it.yes}, no ${it.no}, unknown ${it.unknown}.`);
  return tests.join(" ");
}

function svg(name, attributes, text = "") {
  const made = document.createElementNS(NS, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== "") made.textContent = text;
  return made;
}

// From left to right; what can be reached in several ways is drawn once, and referred to from the others.
function picture(tree) {
  const nodes = new Map(tree.nodes.map((it) => [it.name, it]));
  const leaves = new Map(tree.leaves.map((it) => [it.name, it]));
  const [drawn, boxes, edges] = [new Set(), [], []];
  let lines = 0;
  let deepest = 0;
  const put = (name, depth) => {
    deepest = Math.max(deepest, depth);
    const node = nodes.get(name);
    const again = drawn.has(name);
    drawn.add(name);
    const children = [];
    if (node && !again) {
      const ways = new Map();
      for (const answer of ["yes", "no", "unknown"]) ways.set(node[answer], [...(ways.get(node[answer]) ?? []), answer]);
      for (const [target, answers] of ways) children.push([put(target, depth + 1), answers.join(" or ")]);
    }
    const y = children.length ? (children[0][0] + children.at(-1)[0]) / 2 : lines++ * STEP_Y;
    boxes.push({ name, node, leaf: leaves.get(name), again, x: depth * STEP_X, y });
    for (const [to, answer] of children) edges.push({ x: depth * STEP_X, y, to, answer });
    return y;
  };
  put(tree.root, 0);
  const root = svg("svg", { width: deepest * STEP_X + WIDE + 4, height: lines * STEP_Y + 4, role: "img" });
  for (const { x, y, to, answer } of edges) {
    const [from, end] = [x + WIDE, x + STEP_X];
    const [y1, y2] = [y + HIGH / 2, to + HIGH / 2];
    root.append(svg("path", { class: "edge", d: `M${from} ${y1} C${from + 20} ${y1} ${from + 20} ${y2} ${end} ${y2}` }));
    root.append(svg("text", { class: "answer", x: from + 4, y: y2 - 4 }, answer.slice(0, 12)));
  }
  for (const box of boxes) root.append(drawBox(box, tree.actions));
  return root;
}

function drawBox({ name, node, leaf, again, x, y }, actions) {
  const group = svg("g", { transform: `translate(${x} ${y})` });
  group.append(svg("rect", { class: "box", x: 1, y: 1, width: WIDE - 2, height: HIGH - 2, rx: 4 }));
  group.append(svg("text", { x: 8, y: 16 }, (again ? `→ ${name}` : name).slice(0, 30)));
  let second = node ? `${node.feature} > ${node.above}` : "";
  if (leaf) {
    const mean = leaf.lend.reduce((sum, chance, at) => sum + chance * actions[at], 0);
    second = `lends ${percent(mean)} on average`;
    group.dataset.leaf = name;
    group.append(svg("text", { class: "hosts answer", x: WIDE - 8, y: 16, "text-anchor": "end" }));
  }
  group.append(svg("text", { class: "answer", x: 8, y: 31 }, second));
  return group;
}

function applications(experts, trees) {
  const table = document.getElementById("weights-table");
  table.hidden = !experts.applications.length;
  if (table.hidden) return;
  const heads = ["Application", "Rounds", ...trees.map((tree) => tree.name)].map((name) => {
    const cell = element("th", name);
    cell.scope = "col";
    return cell;
  });
  table.querySelector("thead tr").replaceChildren(...heads);
  table.querySelector("tbody").replaceChildren(...experts.applications.map(([name, rounds, weights]) =>
    row([name, number(rounds), ...weights.map((weight) => number(weight, 3))])));
}
