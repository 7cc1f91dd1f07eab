/* The Compare page's panel: lays out the view that the server wrote (words and numbers are its
   own), moves along the ladder of budgets, and saves downloads. Texts go in as text only. */
(function (root) {
"use strict";

const SVG = "http://www.w3.org/2000/svg";
const ICONS = { yes: "M4 12.5l5 5L20 6.5", no: "M6 6l12 12M18 6L6 18" };

function make(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(props)) {
    if (value === undefined || value === null) continue;
    if (key.startsWith("data-") || key.startsWith("aria-")) node.setAttribute(key, value);
    else node[key] = value;
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}
function icon(name) {
  const svg = document.createElementNS(SVG, "svg"), path = document.createElementNS(SVG, "path");
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("class", "qc-icon");
  svg.setAttribute("aria-hidden", "true");
  path.setAttribute("d", ICONS[name]);
  svg.append(path);
  return svg;
}

function mark(right) {
  if (right === null) return null;
  return make("span", { className: "qc-mark", "data-right": right }, icon(right ? "yes" : "no"), right ? "right" : "wrong");
}

function bar(entry, recycled) {
  const both = recycled && entry.recycled_label;
  const length = make("i"), rail = make("div", { className: "qc-bar" }, length);
  length.style.width = `${Math.min(100, 100 * entry.share)}%`;
  if (both) {
    const outline = make("u", { title: `with rejected proposals: ${entry.recycled_label}` });
    outline.style.width = `${Math.min(100, 100 * entry.recycled)}%`;
    rail.append(outline);
  }
  return make("li", { className: entry.won ? "qc-won" : "" },
    make("div", { className: "qc-bar-name" }, make("span", { textContent: entry.name, title: entry.name }), entry.right ? icon("yes") : null),
    rail, make("em", { textContent: both ? entry.recycled_label : entry.label }));
}

function facts(rows) {
  return make("dl", { className: "qc-facts" }, ...rows.map(([what, value, why]) =>
    make("div", {}, make("dt", { textContent: what, title: why }), make("dd", { textContent: value }))));
}

function card(data, texts, recycled) {
  const said = data.answer ?? (data.open ? null : "no answer");
  const text = data.text === null ? "No response to show." : texts[data.text];
  return make("article", { className: `qc-card qc-${data.method}`, "data-method": data.method, "aria-label": data.name },
    make("div", {}, make("h3", { textContent: data.name }), make("p", { className: "qc-says", textContent: data.says })),
    make("div", { className: "qc-answer" },
      make("b", { className: data.answer === null ? "qc-words" : "", textContent: said ?? "One text, chosen whole" }), mark(data.correct)),
    make("p", { className: "qc-rule" }, make("span", { textContent: data.rule }),
      recycled && data.recycled ? make("small", { textContent: data.recycled }) : null),
    data.bars.length ? make("ol", { className: "qc-bars" }, ...data.bars.map((entry) => bar(entry, recycled)))
      : make("p", { className: "qc-no-bars", textContent: data.method === "bon" ? "No vote: one reward decides." : "No votes." }),
    make("div", { className: "qc-chosen" },
      make("h4", {}, make("span", { textContent: "Response shown" }), data.reward === null ? null : make("span", { textContent: `reward ${data.reward}` })),
      make("div", { className: "qc-text", tabIndex: 0, role: "region", ariaLabel: `${data.name}: chosen response`, textContent: text })),
    facts(data.facts));
}

/** A panel in `host`; `cut(budget, rung)` is told when another budget is looked at. */
function mount(host, { cut, save }) {
  let data = null, budget = "flops", at = null, recycled = false, stopped = false;
  const prompt = make("p", { className: "qc-prompt" }), known = make("p", { className: "qc-right-one" });
  const note = make("p", { className: "qc-note", hidden: true });
  const meter = make("progress", { max: 1, value: 0, ariaLabel: "Drawn so far" }), said = make("span");
  const progress = make("div", { className: "qc-progress" }, meter, said);
  const line = make("p", { className: "qc-line", "aria-live": "polite" });
  const buttons = [["flops", "Equal compute"], ["samples", "Equal samples"]].map(([key, words]) =>
    make("button", { type: "button", textContent: words, value: key, onclick: () => { budget = key; at = null; show(); tell(); } }));
  const slider = make("input", { type: "range", min: 0, step: 1, ariaLabel: "How much of the compute is used", className: "qc-n" });
  const scale = make("div", { className: "qc-scale" }, make("span", { textContent: "less" }), slider, make("span", { textContent: "all of it" }));
  const bench = make("div", { className: "qc-budget" }, line, make("div", { className: "qc-switch", role: "group", ariaLabel: "What is made equal" }, ...buttons), scale);
  const columns = make("div", { className: "qc-columns" });
  const waste = make("input", { type: "checkbox", className: "qc-waste", onchange: () => { recycled = waste.checked; show(); } });
  const tools = make("div", { className: "qc-tools" },
    make("label", { title: "Each rejected proposal counts with its chance alpha, the state with 1 − alpha" }, waste, "Count rejected proposals too (waste recycling)"),
    make("span", { className: "qc-spacer" }),
    ...["csv", "json"].map((kind) => make("button", { type: "button", className: `qc-save-${kind}`, textContent: `Download ${kind.toUpperCase()}`, onclick: () => save(kind) })),
    make("button", { type: "button", className: "qc-link", textContent: "Copy link", onclick: (event) => copy(event.currentTarget) }));
  host.classList.add("qc");
  host.replaceChildren(prompt, known, note, progress, bench, columns, tools);

  const rungs = () => data?.ladders[budget] ?? [];
  const rung = () => rungs()[at ?? rungs().length - 1];
  function tell() { if (rung()) cut({ budget, t: rung().t, n: rung().n }); }
  slider.addEventListener("input", () => {
    at = Number(slider.value) === rungs().length - 1 ? null : Number(slider.value);
    show();
  });
  slider.addEventListener("change", tell);

  async function copy(button) {
    try { await navigator.clipboard.writeText(root.location.href); button.textContent = "Link copied"; }
    catch { button.textContent = "Copy it from the address bar"; }
  }
  function show() {
    if (!data) return;
    if (!data.ladders[budget]) budget = data.budget;
    const live = data.state === "live" && !stopped;
    prompt.textContent = data.prompt;
    known.textContent = data.reference === null ? "" : `The right answer is ${data.reference}.`;
    note.hidden = !data.note;
    note.textContent = data.note;
    progress.hidden = !live;
    meter.max = data.progress.of;
    meter.value = data.progress.done;
    said.textContent = data.progress.text;
    const here = rung();
    bench.hidden = columns.hidden = !here;
    tools.hidden = !here || data.state === "live";
    if (!here) return;
    line.textContent = here.line;
    for (const button of buttons) {
      button.setAttribute("aria-pressed", String(button.value === budget));
      button.disabled = !data.ladders[button.value];
    }
    slider.max = Math.max(rungs().length - 1, 0);
    slider.value = at ?? rungs().length - 1;
    slider.setAttribute("aria-valuetext", here.line);
    scale.hidden = rungs().length < 2;
    // a text that someone has scrolled stays where it is while new samples arrive
    const scrolled = [...columns.querySelectorAll(".qc-text")].map((box) => [box.textContent, box.scrollTop]);
    columns.replaceChildren(...here.cards.map((one) => card(one, data.texts, recycled)));
    columns.querySelectorAll(".qc-text").forEach((box, k) => { if (scrolled[k]?.[0] === box.textContent) box.scrollTop = scrolled[k][1]; });
    host.dataset.state = live ? "live" : data.state;
    host.dataset.n = here.n;
  }
  return {
    view(text) {
      let next;
      try { next = JSON.parse(text); } catch { return; }
      if (stopped && next.state === "live") return;
      stopped = false;
      if (next.state === "live" || !data || data.state === "live") { budget = next.budget; at = null; }
      data = next;
      show();
    },
    stop() { stopped = data?.state === "live"; show(); },
    start() { stopped = false; },
    get state() { return { data, budget, at }; },
  };
}

/** Hand a text to the visitor as a file. */
function download(name, text) {
  const url = URL.createObjectURL(new Blob([text], { type: name.endsWith(".csv") ? "text/csv" : "application/json" }));
  const link = make("a", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  root.setTimeout(() => URL.revokeObjectURL(url), 10000);
}

root.QAlignCompare = { mount, download, panel: () => document.querySelector("#compare-panel .qc")?.qalignCompare };
})(window);
