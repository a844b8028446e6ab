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

export async function post(path, body, signal) {
  const form = body instanceof FormData;
  const send = () => fetch(path, {
    method: "POST",
    headers: { ...(form ? {} : { "Content-Type": "application/json" }), ...authorization() },
    body: form ? body : JSON.stringify(body),
    signal,
  });
  let answer = await send();
  while (answer.status === 401) {
    await askForKey();
    answer = await send();
  }
  const document = await answer.json();
  if (!answer.ok) throw new Error([document.where, document.detail, document.hint].filter(Boolean).join(": "));
  return document;
}

export const gib = (number) => (number ?? 0).toFixed(2);
export const percent = (number) => (number === null || number === undefined ? "?" : `${Math.round(100 * number)} %`);
