// The memory bars and the sliders that re-price the job.

import { el, fill, gib, has, percent, post, word } from "./dom.js";

const KEPT_TERMS = 6;
const SLIDERS = [
  { field: "micro_batch", steps: [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64] },
  { field: "seq_len", steps: [256, 512, 1024, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 32768, 65536, 131072] },
  { field: "gpus", steps: [1, 2, 3, 4, 5, 6, 7, 8] },
];
const name = (kind, key) => (has(`${kind}.${key}`) ? word(`${kind}.${key}`) : key);

export function drawMemory(estimate) {
  if (!estimate || estimate.error) return fill("memory");
  const phases = Object.entries(estimate.phases).filter(([, phase]) => phase.terms && Object.keys(phase.terms).length);
  const largest = {};
  for (const [, phase] of phases) for (const [term, size] of Object.entries(phase.terms)) largest[term] = Math.max(largest[term] ?? 0, size);
  const shown = Object.keys(largest).sort((a, b) => largest[b] - largest[a]).slice(0, KEPT_TERMS);
  const full = Math.max(estimate.capacity_gib ?? 0, ...phases.map(([, phase]) => phase.total_gib)) * 1.04 || 1;
  fill("memory",
    el("h2", {}, word("page.memory")),
    el("p", { class: "soft" }, word("page.memory-note")),
    ...phases.map(([key, phase]) => bar(key, phase, shown, full, estimate)),
    el("ul", { class: "legend" }, ...shown.map((term, i) => el("li", {}, el("i", { class: `t${i}` }), `${name("term", term)} ${gib(largest[term])}`)),
      Object.keys(largest).length > shown.length ? el("li", {}, el("i", { class: "t6" }), "…") : null),
    verdict(estimate));
}

function bar(key, phase, shown, full, estimate) {
  const rest = Object.entries(phase.terms).filter(([term]) => !shown.includes(term)).reduce((sum, [, size]) => sum + size, 0);
  const parts = shown.map((term, i) => segment(i, phase.terms[term] ?? 0, full, name("term", term)));
  const strip = el("div", { class: "bar", role: "img", "aria-label": describe(phase) }, ...parts, segment(6, rest, full, "…"));
  if (estimate.capacity_gib) {
    const limit = el("b", { class: "limit", title: `${gib(estimate.capacity_gib)} GiB` });
    limit.style.left = `${(100 * estimate.capacity_gib) / full}%`;
    strip.append(limit);
  }
  return el("div", { class: "phase" },
    el("span", { class: key === estimate.peak_phase ? "name peak" : "name" }, name("phase", key)), strip,
    el("span", { class: "total" }, `${gib(phase.total_gib)} GiB`));
}

function segment(number, size, full, title) {
  const part = el("span", { class: `t${number}`, title: `${title} ${gib(size)} GiB` });
  part.style.width = `${(100 * size) / full}%`;
  return part;
}

function describe(phase) {
  return Object.entries(phase.terms).map(([term, size]) => `${name("term", term)} ${gib(size)} GiB`).join(", ");
}

function verdict(estimate) {
  const [low, high] = estimate.interval_gib.process ?? [0, 0];
  const line = el("p", {}, word("page.peak", { peak: gib(estimate.peak_gib.process) }), " · ", word("page.interval", { low: gib(low), high: gib(high) }));
  if (estimate.fits !== null && estimate.fits !== undefined) {
    const text = word(estimate.fits ? "page.fits" : "page.fits-not", { capacity: gib(estimate.capacity_gib) });
    line.append(" · ", el("span", { class: estimate.fits ? "good" : "bad" }, `${text} (${percent(estimate.fits_probability)})`));
  }
  return line;
}

export function drawSliders(job) {
  if (!job || (!job.model && !job.params_b)) return fill("whatif");
  const current = { ...job };
  let running = null;
  const reprice = async () => {
    running?.abort();
    running = new AbortController();
    const priced = { ...current };
    if (priced.gpus) { priced.world = priced.gpus * (priced.nodes ?? 1); delete priced.dp; }
    try {
      drawMemory(await post("/v1/estimate", { job: priced }, running.signal));
      document.getElementById("status").textContent = "";
    } catch (error) {
      if (error.name !== "AbortError") document.getElementById("status").textContent = word("page.failed", { problem: error.message });
    }
  };
  fill("whatif", el("h2", {}, word("page.what-if")), el("p", { class: "soft" }, word("page.what-if-note")),
    ...SLIDERS.map(({ field, steps }) => slider(field, steps, current, reprice)));
}

function slider(field, steps, current, changed) {
  const start = current[field] ?? (field === "seq_len" ? 2048 : 1);
  const all = [...new Set([...steps, start])].sort((a, b) => a - b);
  const shown = el("output", {}, String(start));
  const input = el("input", { type: "range", id: `slider-${field}`, min: 0, max: all.length - 1, step: 1, value: all.indexOf(start) });
  input.setAttribute("aria-valuetext", String(start));
  input.addEventListener("input", () => {
    current[field] = all[Number(input.value)];
    shown.textContent = String(current[field]);
    input.setAttribute("aria-valuetext", String(current[field]));
    changed();
  });
  return el("div", { class: "slider" }, el("label", { htmlFor: `slider-${field}` }, word(`page.${field}`)), input, shown);
}
