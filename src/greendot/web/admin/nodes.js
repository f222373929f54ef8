// Table of the cluster's nodes.

import { $, h, say } from "./dom.js";
import { ago, milliseconds, number, spoken } from "./format.js";

const LEVELS = { normal: "normal", shedding: "shedding signals", refusing: "refusing new work" };

/** Update the table. `at` is the server's time. */
export function showNodes(nodes, at) {
  $("nodes-section").hidden = !nodes;
  if (!nodes) return;
  const live = nodes.filter((node) => node.state === "live").length;
  say($("nodes-count"), `${live} live${nodes.length > live ? `, ${nodes.length - live} ended` : ""}`);
  const rows = $("nodes").tBodies[0];
  const wanted = new Set(nodes.map((node) => node.node));
  for (const row of [...rows.rows]) if (!wanted.has(row.dataset.node)) row.remove();
  nodes.forEach((node, index) => {
    let row = [...rows.rows].find((known) => known.dataset.node === node.node);
    if (!row) {
      row = makeRow(node.node);
      rows.insertBefore(row, rows.rows[index] ?? null);
    }
    fill(row, node, at);
  });
}

const COLUMNS = ["Load", "Lease", "Connections", "Users", "Sends/s", "Loop lag", "Redis", "Store", "Uptime"];

function makeRow(name) {
  const cells = COLUMNS.map((label, index) => h("td", { "data-label": label, class: index > 1 ? "number" : null }));
  const dot = h("span", { class: "dot", "aria-hidden": "true" });
  return h("tr", { "data-node": name }, h("th", { scope: "row" }, dot, h("code", {}, name)), ...cells);
}

function fill(row, node, at) {
  const gauges = node.gauges ?? {};
  const redis = gauges.redis_command_latency_us;
  const live = node.state === "live";
  const state = !live ? "offline" : !node.answered ? "idle" : node.level === "normal" ? "online" : "busy";
  row.querySelector(".dot").dataset.state = state;
  const texts = [
    live ? (node.answered ? LEVELS[node.level] : "no answer") : "ended",
    live ? `renewed ${ago(node.renewed_ago_ms)}` : "dead",
    number(gauges.ws_connections),
    number(gauges.ws_users_online),
    number(node.rates?.realtime_socket_send_total),
    milliseconds(gauges.realtime_loop_lag_ms),
    redis === undefined ? "–" : milliseconds(redis / 1000),
    milliseconds(gauges.store_latency_ms),
    node.started_at ? spoken(at - node.started_at) : "–",
  ];
  texts.forEach((text, index) => say(row.cells[index + 1], text));
  row.classList.toggle("warn", live && state !== "online");
}
