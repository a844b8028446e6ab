// Small helpers: elements without innerHTML (pasted text is never parsed as markup), words, requests.

let words = {};

export async function loadWords(language) {
  const answer = await fetch(`/static/words-${language}.json`);
  words = await answer.json();
  document.documentElement.lang = language;
  document.title = word("page.title");
  for (const element of document.querySelectorAll("[data-word]")) element.textContent = word(element.dataset.word);
}

export function word(key, values = {}) {
  const template = words[key] ?? key;
  return template.replace(/\{(\w+)\}/g, (whole, name) => (name in values ? String(values[name]) : whole));
}

export function has(key) {
  return key in words;
}

export function el(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name === "class") element.className = value;
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name in element) element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined && child !== ""));
  return element;
}

export function fill(id, ...children) {
  document.getElementById(id).replaceChildren(...children.filter(Boolean));
}

// Where the server requires a key it is asked for, kept for this tab alone, and forgotten when the tab is closed.
const KEY = "oomdoc.key";

export function authorization() {
  const key = sessionStorage.getItem(KEY);
  return key ? { Authorization: `Bearer ${key}` } : {};
}

export function askForKey() {
  sessionStorage.removeItem(KEY);
  const form = document.getElementById("key-form");
  form.hidden = false;
  document.getElementById("key").focus();
  return new Promise((resolve) => {
    form.onsubmit = (event) => {
      event.preventDefault();
      sessionStorage.setItem(KEY, document.getElementById("key").value.trim());
      document.getElementById("key").value = "";
      form.hidden = true;
      resolve();
    };
  });
}

async function sent(path, body, signal, headers = {}) {
  const form = body instanceof FormData;
  const send = () => fetch(path, {
    method: "POST",
    headers: { ...(form ? {} : { "Content-Type": "application/json" }), ...authorization(), ...headers },
    body: form ? body : JSON.stringify(body),
    signal,
  });
  let answer = await send();
  while (answer.status === 401) {
    await askForKey();
    answer = await send();
  }
  return answer;
}

// Server-sent events: pieces go to `onDelta` as they come; the result is returned.
export async function converse(path, body, onDelta) {
  const answer = await sent(path, body, undefined, { Accept: "text/event-stream" });
  if (!answer.ok) throw new Error((await answer.json()).detail ?? answer.statusText);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  for (;;) {
    const { value, done } = await reader.read();
    held += value ?? "";
    const events = held.split("\n\n");
    held = events.pop();
    for (const event of events) {
      const [, name, data] = /^event: (\w+)\ndata: ([\s\S]*)$/.exec(event) ?? [];
      if (name === "delta") onDelta(JSON.parse(data).text);
      if (name === "result") return JSON.parse(data);
      if (name === "error") throw new Error(JSON.parse(data).detail);
    }
    if (done) throw new Error("the answer was cut off");
  }
}

export async function post(path, body, signal) {
  const answer = await sent(path, body, signal);
  const document = await answer.json();
  if (!answer.ok) throw new Error([document.where, document.detail, document.hint].filter(Boolean).join(": "));
  return document;
}

export const gib = (number) => (number ?? 0).toFixed(2);
export const percent = (number) => (number === null || number === undefined ? "?" : `${Math.round(100 * number)} %`);
