// What this tab remembers over a reload. Two tabs are two people, so nothing is shared between them.

const PREFIX = "greendot.";
const memory = new Map(); // where the browser refuses to store anything

export function recall(key) {
  try {
    return JSON.parse(sessionStorage.getItem(PREFIX + key));
  } catch {
    return memory.get(key) ?? null;
  }
}

export function remember(key, value) {
  memory.set(key, value);
  try {
    sessionStorage.setItem(PREFIX + key, JSON.stringify(value));
  } catch {
    // It lasts as long as the page, then.
  }
}
