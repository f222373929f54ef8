// Tiles and plots for viewers of nodes, and for viewers of one tenant. Names are those of /metrics.

import { h, $, say } from "./dom.js";
import { closeWords, milliseconds, number, spoken } from "./format.js";
import { Plot } from "./plot.js";

const MOST_CODES = 6;
const age = (value) => (value === null ? "–" : value < 60 ? `${number(value)} s` : spoken(value * 1000));
const rate = (value) => (value === null ? "–" : `${number(value)}/s`);

const NODES = {
  tiles: [
    ["Connections", (v) => number(v["sums.ws_connections"])],
    ["Users", (v) => number(v["sums.ws_users_online"])],
    ["Published", (v) => rate(v["rates.realtime_pubsub_published_total"] ?? null)],
    ["Sent to sockets", (v) => rate(v["rates.realtime_socket_send_total"] ?? null)],
    ["Fan-out", (v) => fanOut(v)],
    ["Loop lag", (v) => milliseconds(v["worst.realtime_loop_lag_ms"])],
  ],
  panels: [
    { title: "Connections and users", format: number, lines: [
      ["sums.ws_connections", "connections"],
      ["sums.ws_users_online", "users"],
    ] },
    { title: "Published and sent", format: rate, extra: (v) => `fan-out ${fanOut(v)}`, lines: [
      ["rates.realtime_socket_send_total", "sent to sockets"],
      ["rates.realtime_pubsub_received_total", "received by nodes"],
      ["rates.realtime_pubsub_published_total", "published"],
    ] },
    { title: "Dropped, shed and slow", format: rate, lines: [
      ["rates.realtime_dropped_ephemeral_total", "dropped"],
      ["rates.realtime_shed_total", "shed"],
      ["rates.realtime_client_slow_total", "slow clients"],
      ["rates.realtime_client_slow_closed_total", "closed as too slow (4001)"],
    ] },
    { title: "Sockets closed, by code", format: rate, codes: true },
    { title: "Connects and reconnects", format: rate, lines: [
      ["rates.ws_connections_total", "new sockets"],
      ["rates.realtime_sessions_resumed_total", "sessions resumed"],
      ["rates.realtime_hellos_refused_total", "asked to retry"],
    ] },
    { title: "Recovery", format: rate, note: "reads of missed records for returning clients", lines: [
      ["rates.room_recovery_fetch_total", "rooms"],
      ["rates.notification_recovery_fetch_total", "inboxes"],
    ] },
    { title: "Drift repaired", format: rate, note: "sessions corrected in the engine", lines: [
      ["rates.presence_reconciliation_removed_total", "removed"],
      ["rates.presence_restored_sessions_total", "restored"],
    ] },
    { title: "Push queue", format: number, optional: true, note: "notifications that wait to be pushed", lines: [
      ["worst.push_queue_waiting", "held or waiting"],
      ["worst.push_queue_due", "due now"],
      ["worst.push_dead_letters", "dead letters"],
    ] },
    { title: "Age of the push queue", format: age, optional: true, note: "time since the oldest push was due", lines: [
      ["worst.push_queue_oldest_s", "oldest"],
    ] },
    { title: "Pushes, by provider", format: rate, optional: true, lines: [
      ["rates.push_fcm_sent_total", "FCM"],
      ["rates.push_apns_sent_total", "APNs"],
      ["rates.push_webpush_sent_total", "Web Push"],
      ["rates.push_webhook_sent_total", "webhook"],
      ["rates.push_given_up_total", "given up"],
    ] },
    { title: "Push decisions, by reason", format: rate, optional: true, lines: [
      ["rates.push_decided_offline_total", "offline: push now"],
      ["rates.push_decided_unseen_total", "unseen: push now"],
      ["rates.push_decided_active_total", "active: hold"],
      ["rates.push_decided_idle_total", "idle: hold"],
      ["rates.push_decided_seen_total", "seen: no push"],
      ["rates.push_decided_no_device_total", "no device: no push"],
    ] },
    { title: "Latency", format: milliseconds, note: "of the slowest node", lines: [
      ["worst.redis_command_latency_us", "Redis", 0.001],
      ["worst.store_latency_ms", "store"],
      ["worst.realtime_bus_lag_ms", "bus"],
    ] },
    { title: "Loop lag", format: milliseconds, note: "of the slowest node", lines: [
      ["worst.realtime_loop_lag_ms", "now"],
      ["worst.realtime_loop_lag_worst_ms", "worst of 15–30 s"],
    ] },
  ],
};

const TENANT = {
  tiles: [
    ["Connections", (v) => number(v["sums.tenant_connections"])],
    ["Users", (v) => number(v["sums.tenant_users_online"])],
    ["Sends", (v) => rate(v["rates.tenant_sends_total"] ?? null)],
    ["Refused", (v) => rate(v["rates.tenant_refused_total"] ?? null)],
  ],
  panels: [
    { title: "Connections and users", format: number, lines: [
      ["sums.tenant_connections", "connections"],
      ["sums.tenant_users_online", "users"],
    ] },
    { title: "Sends and refusals", format: rate, lines: [
      ["rates.tenant_sends_total", "sends"],
      ["rates.tenant_refused_total", "refused"],
    ] },
    { title: "Reconnects", format: rate, lines: [["rates.tenant_resumed_total", "sessions resumed"]] },
    { title: "Sockets closed, by code", format: rate, codes: true },
  ],
};

function fanOut(values) {
  const heard = values["rates.realtime_pubsub_received_total"];
  const sent = values["rates.realtime_socket_send_total"];
  return heard > 0 && sent !== undefined ? `× ${number(sent / heard)}` : "–";
}

/** Tiles and plots for one kind of key. */
export class Panels {
  constructor(nodes) {
    this.chosen = nodes ? NODES : TENANT;
    this.tiles = this.chosen.tiles.map(([label]) => h("dd", { "data-tile": label }, "–"));
    $("tiles").replaceChildren(
      ...this.chosen.tiles.map(([label], index) => h("div", { class: "tile" }, h("dt", {}, label), this.tiles[index])),
    );
    this.plots = this.chosen.panels.map((panel) => new Plot(panel));
    $("panels").replaceChildren(...this.plots.map((plot) => plot.element));
  }

  /** Update the tiles, and the plots with the last `seconds`. */
  show(history, seconds) {
    const latest = history.latest;
    if (!latest) return;
    this.chosen.tiles.forEach(([, text], index) => say(this.tiles[index], text(latest.values)));
    this.chosen.panels.forEach((panel, index) => {
      const lines = panel.codes ? codes(history, seconds) : panel.lines;
      const drawn = lines.map(([name, label, scale]) => ({
        name: name.slice(name.indexOf(".") + 1),
        label,
        points: history.series(name, seconds, scale),
      }));
      // Lines without values are left out, such as Redis on a server without it.
      const told = drawn.filter((line) => line.points.some(([, value]) => value !== null));
      this.plots[index].element.hidden = Boolean(panel.optional) && !told.length;
      this.plots[index].show(told.length ? told : drawn, seconds, latest.at);
      say(this.plots[index].extra, panel.extra ? panel.extra(latest.values) : "");
    });
  }
}

function codes(history, seconds) {
  const names = history.names("closes.", seconds).slice(0, MOST_CODES).sort();
  return names.map((name) => [name, `${name.slice(7)} ${closeWords(name.slice(7))}`]);
}
