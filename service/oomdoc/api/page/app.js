// The page: what is pasted or dropped goes to the server, the answer is drawn, the chat goes on from it.

import { drawAnswer } from "./answer.js";
import { converse, el, fill, loadWords, post, word } from "./dom.js";

const $ = (id) => document.getElementById(id);
const HISTORY = "oomdoc.history";
const EXAMPLE = `model_name_or_path: Qwen/Qwen2.5-0.5B-Instruct
stage: dpo
finetuning_type: full
deepspeed: ds_z3_offload.json
cutoff_len: 4096
per_device_train_batch_size: 1
gradient_accumulation_steps: 8
fp16: true

8 x V100-PCIE-16GB
[rank3]:   File "transformers/loss/loss_utils.py", line 36, in fixed_cross_entropy
[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.64 GiB. GPU 3 has a total capacity of 15.77 GiB of which 1.41 GiB is free.`;

const state = { language: "en", files: [], session: null, pasted: "" };

async function start() {
  const kept = localStorage.getItem("oomdoc.language");
  const theme = localStorage.getItem("oomdoc.theme");
  if (theme) document.documentElement.dataset.theme = theme;
  await speak(kept ?? (navigator.language.startsWith("zh") ? "zh" : "en"));
  $("go").addEventListener("click", diagnose);
  $("text").addEventListener("keydown", (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) diagnose(); });
  $("example").addEventListener("click", () => { $("text").value = EXAMPLE; $("text").focus(); });
  $("clear").addEventListener("click", () => { $("text").value = ""; choose([]); $("text").focus(); });
  $("files").addEventListener("change", (event) => choose([...event.target.files]));
  $("language").addEventListener("click", () => speak(state.language === "en" ? "zh" : "en"));
  $("theme").addEventListener("click", turnTheme);
  $("say").addEventListener("submit", say);
  $("turn").addEventListener("keydown", (event) => { if (event.key === "Enter" && !event.shiftKey) { event.preventDefault(); $("say").requestSubmit(); } });
  $("forget").addEventListener("click", () => { localStorage.removeItem(HISTORY); drawHistory(); });
  for (const kind of ["dragover", "dragenter"]) document.addEventListener(kind, (event) => { event.preventDefault(); $("text").classList.add("over"); });
  for (const kind of ["dragleave", "drop"]) document.addEventListener(kind, (event) => { event.preventDefault(); $("text").classList.remove("over"); });
  document.addEventListener("drop", (event) => choose([...event.dataTransfer.files]));
  document.body.dataset.ready = "yes";
}

async function speak(language) {
  state.language = language;
  localStorage.setItem("oomdoc.language", language);
  await loadWords(language);
  $("text").placeholder = word("page.placeholder");
  $("turn").placeholder = word("page.chat-placeholder");
  drawHistory();
  if (state.found) await diagnose();
}

function turnTheme() {
  const dark = document.documentElement.dataset.theme === "dark" || (!document.documentElement.dataset.theme && matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.dataset.theme = dark ? "light" : "dark";
  localStorage.setItem("oomdoc.theme", document.documentElement.dataset.theme);
}

function choose(files) {
  state.files = files;
  fill("chosen", ...files.map((file) => el("li", {}, `${file.name} (${Math.ceil(file.size / 1024)} KiB)`)));
}

function tell(text, wrong = false) {
  $("status").textContent = text;
  $("status").classList.toggle("wrong", wrong);
}

async function diagnose() {
  const turning = Boolean(state.found) && state.pasted === $("text").value;
  const text = $("text").value;
  if (!text.trim() && !state.files.length) {
    tell(word("page.empty"));
    return $("text").focus();
  }
  $("go").disabled = true;
  tell(word("page.working"));
  try {
    state.found = await post("/v1/diagnose", body(text));
    if (!turning) {
      // A new question starts a new conversation; the same one in another language goes on.
      state.session = null;
      fill("turns");
    }
    state.pasted = text;
    drawAnswer(state.found);
    $("chat").hidden = false;
    remember(text || state.files.map((file) => file.name).join(", "), state.found);
    tell("");
    $("answer").focus({ preventScroll: turning });
  } catch (error) {
    tell(word("page.failed", { problem: error.message }), true);
  } finally {
    $("go").disabled = false;
  }
}

function body(text) {
  if (!state.files.length) return { text, lang: state.language };
  const form = new FormData();
  if (text.trim()) form.append("file", new Blob([text], { type: "text/plain" }), "pasted.txt");
  for (const file of state.files) form.append("file", file, file.name);
  form.append("lang", state.language);
  return form;
}

async function say(event) {
  event.preventDefault();
  const text = $("turn").value.trim();
  if (!text) return;
  $("turn").value = "";
  const shown = el("li", { class: "me" }, word("page.working"));
  $("turns").append(el("li", { class: "you" }, text), shown);
  let streamed = "";
  try {
    if (!state.session && state.pasted.trim()) state.session = (await post("/v1/chat", { text: state.pasted })).session;
    const turn = state.session ? { text, session: state.session } : { text };
    const reply = await converse("/v1/chat", turn, (piece) => (shown.textContent = streamed += piece));
    state.session = reply.session;
    shown.textContent = reply.answer;
  } catch (error) {
    shown.textContent = word("page.failed", { problem: error.message });
  }
  $("turns").lastElementChild.scrollIntoView({ block: "nearest" });
}

function remember(text, found) {
  const kept = JSON.parse(localStorage.getItem(HISTORY) ?? "[]");
  if (kept[0]?.text === text.slice(0, 20000)) kept.shift();
  kept.unshift({ at: new Date().toISOString(), cause: found.causes[0]?.cause ?? found.verdict, text: text.slice(0, 20000) });
  localStorage.setItem(HISTORY, JSON.stringify(kept.slice(0, 20)));
  drawHistory();
}

function drawHistory() {
  const kept = JSON.parse(localStorage.getItem(HISTORY) ?? "[]");
  $("forget").hidden = !kept.length;
  fill("history", ...(kept.length ? kept.map((entry) => el("li", {}, el("button", { type: "button", onclick: () => { $("text").value = entry.text; $("text").focus(); } },
    `${entry.at.slice(0, 16).replace("T", " ")}  ${entry.cause}`))) : [el("li", { class: "soft" }, word("page.history-empty"))]));
}

start();
