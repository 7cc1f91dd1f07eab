/* What belongs to the page and not to the player: the settings drawer, the address bar,
   the status line, the notice that settings have changed, and the slider for beta. */
(function (root) {
"use strict";

const PAGE = "tab", STEP = "step", LAB = "lab-";
const find = (selector) => document.querySelector(selector);
const player = () => find("#watch-player .qp")?.qalign;

/** What in a link does not belong to a run. */
const apart = (key) => [PAGE, STEP, "__theme"].includes(key) || key.startsWith(LAB);
const query = () => new URL(root.location.href).searchParams;
const opened = new URLSearchParams(root.location.search);       // the link as it was opened
let ran = null, waiting = 0, position = null, live = false;

/** Change the address bar at most twice a second: browsers throttle more. */
function remember(changes) {
  position = { ...position, ...changes };
  if (waiting) return;
  waiting = root.setTimeout(() => {
    waiting = 0;
    const url = new URL(root.location.href);
    for (const [key, value] of Object.entries(position)) {
      if (value === null) url.searchParams.delete(key); else url.searchParams.set(key, value);
    }
    position = null;
    if (url.href !== root.location.href) root.history.replaceState(root.history.state, "", url);
  }, 500);
}

const Shell = {
  /** The link names a run of its own, so the recorded run is not what its step belongs to. */
  get linked() { return [...opened.keys()].some((key) => !apart(key)); },
  get step() { const n = Number(opened.get(STEP)); return opened.has(STEP) && Number.isInteger(n) && n >= 0 ? n : null; },
  /** Open the page that the link names. */
  open() { if (/^[a-z]+$/.test(opened.get(PAGE) ?? "")) find(`#tab-${opened.get(PAGE)}-button`)?.click(); },
  page(name) { remember({ [PAGE]: name === "watch" ? null : name }); },
  seek(t) { if (live || !Shell.linked) remember({ [STEP]: t }); },

  run(...values) {
    ran = JSON.stringify(values);
    live = true;
    Shell.settings(...values);
    Shell.drawer(false);
    player()?.expect(Shell.linked ? Shell.step : null);
    opened.delete(STEP);
    return values;
  },
  /** The run's settings for the address bar, as the server spelt them. */
  link(text) {
    const next = new URLSearchParams(text), kept = {};
    for (const key of query().keys()) if (!apart(key)) kept[key] = null;
    remember({ ...kept, ...Object.fromEntries(next) });
  },
  /** The lab's settings for the address bar. */
  lab(text) {
    const gone = [...query().keys(), ...Object.keys(position ?? {})].filter((key) => key.startsWith(LAB));
    remember({ ...Object.fromEntries(gone.map((key) => [key, null])), ...Object.fromEntries(new URLSearchParams(text)) });
  },
  settings(...values) {
    const stale = find("#watch-stale");
    player()?.setBurnIn(Number(values[10]) || 0);
    if (stale) stale.classList.toggle("q-on", ran !== null && ran !== JSON.stringify(values));
  },
  stop() { player()?.stop(); },

  drawer(open) {
    const drawer = find("#watch-drawer"), button = find("#watch-settings");
    if (!drawer) return;
    const on = open ?? !drawer.classList.contains("q-open");
    const was = drawer.classList.contains("q-open");
    drawer.classList.toggle("q-open", on);
    button?.setAttribute("aria-expanded", String(on));
    if (on) {
      Object.assign(drawer, { tabIndex: -1, role: "dialog", ariaLabel: "Settings of the next run" });
      drawer.dispatchEvent(new CustomEvent("q-open"));
      drawer.focus();       // not its first widget: a drop-down list opens when it gets the focus
    } else if (was) button?.focus({ preventScroll: true });
  },

  status(element, value) {
    let x;
    try { x = JSON.parse(value); } catch { return; }
    element.dataset.state = x.state;
    element.querySelector("span").textContent = x.text;
    if (x.query !== undefined) Shell.link(x.query);
    if (x.notice !== undefined && player()) player().tell(x.notice);
  },

  /** What can be done with the player's trace. */
  actions: {
    "Download trace"(api) {
      const end = api.trace.end ? "" : '{"type":"end","reason":"stopped","message":""}\n';
      const url = URL.createObjectURL(new Blob([api.text, end], { type: "application/x-ndjson" }));
      root.QAlign.h("a", { href: url, download: `qalign-seed-${api.trace.header.seed ?? 0}.jsonl` }).click();
      root.setTimeout(() => URL.revokeObjectURL(url), 1000);
    },
    "Open a trace"(api) {
      const file = root.QAlign.h("input", { type: "file", accept: ".jsonl,.ndjson,.json,.txt" });
      file.addEventListener("change", async () => {
        const [chosen] = file.files, { LIMITS, TraceError } = root.QAlign;
        try {
          if (chosen.size > LIMITS.characters) throw new TraceError("It is larger than 16 MB.");
          api.open(await chosen.text(), "Opened file");
          live = false;
        } catch (error) { api.tell(`This file was not opened. ${error.message}`); }
      });
      file.click();
    },
    async "Copy link"(api) {
      const link = root.location.href;
      try { await root.navigator.clipboard.writeText(link); api.tell("The link is on the clipboard."); } catch { api.tell(`Copy this link: ${link}`); }
    },
  },

  /** What the server says of a chain: { facts: [{ name, value, meaning }], charts: [{ title, axis, values }] }. */
  async diagnostics(ask, trace, chain, t, burnIn) {
    const { h, s, label, rule, plain } = root.QAlign, upto = (c) => Math.min(t, c.steps.length - 1);
    const rewards = trace.chains.map((c) => c.stateAt.slice(burnIn, upto(c) + 1).map((k) => c.steps[k].reward));
    const generated = trace.chains.reduce((n, c) => n + c.generated[upto(c)], 0);
    const d = await ask({ chain: trace.chains.indexOf(chain), generated, rewards }).catch(() => ({ error: "The server did not answer." }));
    if (d.error) return [h("p.hint", d.error)];
    const width = 300, height = 116, bottom = height - 20;
    const chart = ({ title, axis, values }) => {
      const lo = Math.min(0, ...values), hi = Math.max(1e-9, ...values), bar = (width - 34) / values.length;
      const y = (v) => 8 + (bottom - 8) * (hi - v) / (hi - lo), bars = values.map((v, k) => `M${32 + k * bar} ${y(0)}V${y(v)}h${Math.max(1, bar - 1)}V${y(0)}Z`).join("");
      return h("figure.panel", h("figcaption", title), s("svg.chart", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", aria: `${title} ${axis}` },
        s("path.bars", { d: bars }), rule("axis", 30, width, y(0)), label(26, y(hi) + 6, plain(Number(hi.toPrecision(2))), "end"), label(width / 2, height - 3, axis)));
    };
    return [h("p.hint", d.about), h("dl.facts", ...d.facts.flatMap((f) => [h("dt", f.name), h("dd", h("b", f.value), " ", f.meaning)])), h("div.charts", ...d.charts.map(chart))];
  },

  /** The logarithmic slider for beta, with what beta means in plain numbers. */
  beta(element, props, trigger, server, watch) {
    const host = element.querySelector(".q-beta"), make = (tag, props, ...children) => {
      const node = Object.assign(document.createElement(tag), props);
      node.append(...children);
      return node;
    };
    const LOW = -2, HIGH = 2;
    const slider = make("input", { type: "range", min: LOW, max: HIGH, step: 0.02, id: "q-beta-slider" });
    const box = make("input", { type: "number", min: 0.001, max: 1000, step: "any", ariaLabel: "Beta, as a number" });
    const odds = make("p", {}), spread = make("p", {}), best = make("p", {});
    const name = make("label", { htmlFor: "q-beta-slider" }, "β (beta): how much the reward may bend the model");
    host.replaceChildren(name, make("div", { className: "q-beta-row" }, slider, box),
      make("div", { className: "q-beta-ends" }, make("span", {}, "greedy for reward"), make("span", {}, "close to the model")), odds, spread, best);
    let facts = null;
    const few = (x) => (x >= 1e4 || x < 0.01 ? x.toExponential(1) : Number(x.toPrecision(3)).toString());
    const show = (beta) => {
      slider.value = Math.log10(beta);
      slider.setAttribute("aria-valuetext", `beta ${few(beta)}`);
      if (document.activeElement !== box) box.value = few(beta);
      odds.textContent = `A reward lead of 1 makes a text ${few(Math.exp(1 / beta))} times as likely.`;
      spread.textContent = facts?.spread ? `That is ${few(beta / facts.spread)} times the spread of this problem’s rewards (${few(facts.spread)}).` : "";
      const near = facts?.matching?.length ? facts.matching.reduce((a, b) => (Math.abs(Math.log(b[1] / beta)) < Math.abs(Math.log(a[1] / beta)) ? b : a)) : null;
      best.textContent = !near ? facts?.note || "" : Math.abs(Math.log(near[1] / beta)) < 0.25 ? `About as greedy as best-of-${near[0]}.`
        : beta < near[1] ? `Greedier than best-of-${near[0]}.` : `Less greedy than best-of-${near[0]}.`;
    };
    const change = (beta) => {
      if (!(beta >= 0.001 && beta <= 1000)) return;
      props.value = beta;
      show(beta);
      trigger("change");
    };
    slider.addEventListener("input", () => show(10 ** Number(slider.value)));
    slider.addEventListener("change", () => change(Number((10 ** Number(slider.value)).toPrecision(3))));
    box.addEventListener("change", () => change(Number(box.value)));
    watch("value", () => show(Number(props.value) || 1));
    find("#watch-drawer")?.addEventListener("q-open", async () => {
      const rewards = player()?.trace.base ?? [];
      if (!rewards.length) return;
      try { facts = await server.beta_facts(rewards.slice(0, 2000)); } catch { facts = null; }
      show(Number(props.value) || 1);
    });
    show(Number(props.value) || 1);
  },
};
root.QAlignShell = Shell;

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && find("#watch-drawer")?.classList.contains("q-open")) Shell.drawer(false);
});
document.addEventListener("click", (event) => {
  const drawer = find("#watch-drawer.q-open");
  if (drawer && event.target.isConnected && !event.target.closest("#watch-drawer, #watch-settings, .options, [role=listbox]")) Shell.drawer(false);
});
})(window);
