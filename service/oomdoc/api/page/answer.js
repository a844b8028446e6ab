// A diagnosis document as elements.

import { el, fill, gib, has, percent, post, word } from "./dom.js";
import { drawMemory, drawSliders } from "./memory.js";

const value = (v) => (v === null || v === undefined ? "–" : typeof v === "object" ? JSON.stringify(v) : String(v));

export function drawAnswer(found) {
  document.getElementById("answer").hidden = false;
  headline(found);
  causes(found);
  drawMemory(found.estimate);
  drawSliders(found.job);
  plans(found);
  cases(found);
  questions(found);
  facts(found);
  feedback(found);
}

// What a terminal's first screen says, in its order; answers kept by earlier versions have none.
function screen(found) {
  const { headline: head, answer, why, quotes, do: steps, sure, grid, further = [] } = found.screen;
  const said = [...answer];
  const part = (key, lines) => (lines.length ? el("div", {}, el("b", {}, word(key)), el("ul", {}, ...lines.map((line) => el("li", {}, line)))) : null);
  fill("headline",
    el("strong", {}, head || said.shift() || word("page.no-failure")),
    ...said.map((text) => el("p", {}, text)),
    grid.length ? el("pre", { tabIndex: 0 }, grid.join("\n")) : null,
    ...further.map((text) => el("p", {}, ...text.split("\n").flatMap((line) => [line, el("br")]))),
    part("screen.why", [...why, ...quotes]), part("screen.do", steps),
    sure ? el("p", { class: "soft" }, `${word("screen.how-sure")}: ${sure}`) : null,
    ...found.warnings.map((text) => el("p", { class: "soft" }, text)));
}

function headline(found) {
  document.getElementById("headline").classList.toggle("answered", found.verdict === "no-failure");
  if (found.screen) {
    screen(found);
    return;
  }
  const first = found.causes[0];
  const title = first && found.verdict !== "no-failure" ? title_of(first.cause) : word(`verdict.${found.verdict}`);
  fill("headline",
    el("strong", {}, title),
    first && found.verdict !== "no-failure" ? el("span", { class: "soft" }, `  ${first.cause} ${percent(first.probability)} · ${word(`verdict.${found.verdict}`)}`) : null,
    el("p", {}, found.summary || word("page.no-failure")),
    ...found.warnings.map((text) => el("p", { class: "soft" }, text)));
}

const title_of = (cause) => (has(`cause.${cause}.title`) ? word(`cause.${cause}.title`) : cause);

function causes(found) {
  const shown = found.causes.filter((cause) => cause.probability >= 0.02).slice(0, 3);
  fill("causes", shown.length ? el("h2", {}, word("page.causes")) : null, ...shown.map((cause, i) => {
    const box = el("details", { class: "cause", open: i === 0 },
      el("summary", {}, el("span", { class: "chance" }, percent(cause.probability)), `${title_of(cause.cause)} `, el("code", {}, cause.cause)),
      el("ul", {}, ...cause.why.map((why) => el("li", {}, why))));
    for (const place of cause.evidence.slice(0, 5)) {
      box.append(el("div", { class: "evidence" }, el("b", {}, `${place.source} · ${word("page.line", { line: place.line })}  `), el("mark", {}, place.text)));
    }
    return box;
  }));
}

function plans(found) {
  const shown = found.plans.map((plan, i) => el("div", { class: "plan" },
    el("h3", {}, `${i + 1}. ${has(`plan.${plan.name}`) ? word(`plan.${plan.name}`) : plan.name}`),
    el("p", { class: "soft" }, [...figures(plan), word(`safety.${plan.safety}`)].join(" · ")),
    el("ul", {}, ...plan.changes.map(change)),
    ...plan.notes.map((note) => el("p", { class: "soft" }, note)),
    plan.patch ? patch(plan.patch, i) : null));
  const alone = (found.single_fixes ?? []).map((single) => el("li", {}, single.instruction ?? `${single.key} → ${value(single.to)}`, ": ", `${gib(single.peak_gib)} GiB `,
    el("span", { class: single.fits ? "good" : "bad" }, single.fits === null ? "" : single.fits ? "✓" : "✗")));
  fill("plans", shown.length ? el("h2", {}, word("page.plans")) : null, ...shown,
    alone.length ? el("details", {}, el("summary", {}, word("page.alone")), el("ul", {}, ...alone)) : null);
}

// Instructions that no arithmetic judged have no figures.
function figures(plan) {
  if (plan.peak_gib === null) return [];
  return [word("page.peak", { peak: gib(plan.needed_gib ?? plan.peak_gib) }), word("page.probability", { probability: percent(plan.fits_probability) }),
    word("page.speed", { speed: plan.relative_speed.toFixed(2) })];
}

function change(item) {
  const saved = item.saves_gib >= 0.01 ? el("span", { class: "soft" }, ` ${word("page.saves", { gib: gib(item.saves_gib) })}`) : null;
  if (item.instruction) return el("li", {}, item.instruction, saved);
  return el("li", {}, el("code", {}, item.key), `: ${value(item.from)} → `, el("b", {}, value(item.to)), saved);
}

function patch(text, number) {
  const lines = text.split("\n").map((line) => el("span", { class: line.startsWith("+") ? "add" : line.startsWith("-") ? "remove" : "same" }, line || " "));
  const copy = el("button", { type: "button" }, word("page.copy"));
  copy.addEventListener("click", async () => {
    await navigator.clipboard.writeText(text);
    copy.textContent = word("page.copied");
  });
  const link = el("a", { href: URL.createObjectURL(new Blob([text], { type: "text/x-diff" })), download: `oomdoc-plan-${number + 1}.patch` }, word("page.download"));
  return el("div", {}, el("h3", {}, word("page.patch")), el("pre", { tabIndex: 0 }, ...lines), el("div", { class: "row" }, copy, link));
}

function cases(found) {
  fill("cases", found.matches.length ? el("h2", {}, word("page.cases")) : null, el("ul", {}, ...found.matches.slice(0, 5).map((match) =>
    el("li", {}, link(match), el("span", { class: "soft" }, `  ${match.case} · ${match.why.slice(0, 2).join("; ")}`),
      el("ul", {}, ...(match.fixes || []).slice(0, 3).map((fix) => el("li", {}, fix.text, el("span", { class: "soft" }, `  (${fix.standing})`))))))),
  ...threads(found));
}

function threads(found) {
  const alike = found.threads || [];
  return alike.length ? [el("h2", {}, word("page.threads")), el("ul", {}, ...alike.map((thread) =>
    el("li", {}, link({ url: thread.url, title: thread.url }), el("span", { class: "soft" }, `  ${thread.cause} · ${Math.round(100 * thread.likeness)} %`))))] : [];
}

function link(match) {
  return /^https:\/\//.test(match.url) ? el("a", { href: match.url, rel: "noreferrer noopener", target: "_blank" }, match.title) : match.title;
}

function questions(found) {
  if (!found.questions.length) return fill("questions");
  fill("questions", el("h2", {}, word("page.questions")), el("ul", {}, ...found.questions.map((q) => el("li", {}, el("code", {}, q.fact), ` ${q.why}`, q.how ? el("div", { class: "soft" }, q.how) : null))));
}

function facts(found) {
  const rows = Object.entries(found.facts).filter(([, fact]) => fact.stated);
  if (!rows.length) return fill("facts");
  fill("facts", el("details", {}, el("summary", {}, word("page.facts")), el("table", {}, ...rows.map(([name, fact]) =>
    el("tr", {}, el("td", {}, el("code", {}, name)), el("td", {}, value(fact.value)), el("td", { class: "soft" }, `${fact.source} · ${word("page.line", { line: fact.line })}`))))));
}

function feedback(found) {
  if (!found.id) return fill("feedback");
  const row = el("div", { class: "row" }, el("span", {}, word("page.helped")));
  for (const helpful of ["yes", "no"]) {
    row.append(el("button", { type: "button", onclick: async () => {
      await post("/v1/feedback", { diagnosis: found.id, helpful });
      row.replaceChildren(word("page.thanks"));
    } }, word(`page.${helpful}`)));
  }
  fill("feedback", row);
}
