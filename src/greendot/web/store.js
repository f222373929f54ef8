// Storage of this tab that survives a reload. Tabs share nothing: each tab may be another user.

const PREFIX = "greendot.";
const memory = new Map(); // used if the browser has no storage

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
    // The value lasts until the page is closed.
  }
}
