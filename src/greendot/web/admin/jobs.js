// Table of the cluster's jobs.

import { $, h, say } from "./dom.js";
import { moment, number, spoken, took } from "./format.js";

const COLUMNS = ["Schedule", "Last run", "Result", "Duration", "Next in", "Consecutive failures"];
const RESULTS = { ok: "done", running: "running", failed: "failed", stopped: "stopped", lost: "lost its lease" };
const DOTS = { ok: "online", running: "idle", stopped: "idle", failed: "busy", lost: "busy" };

/** Update the table, or hide it if there are no jobs. `at` is the server's time. */
export function showJobs(jobs, at) {
  $("jobs-section").hidden = !jobs?.length;
  if (!jobs?.length) return;
  const rows = $("jobs").tBodies[0];
  const wanted = new Set(jobs.map((job) => job.name));
  for (const row of [...rows.rows]) if (!wanted.has(row.dataset.job)) row.remove();
  for (const job of jobs) {
    let row = [...rows.rows].find((known) => known.dataset.job === job.name);
    if (!row) rows.append((row = makeRow(job.name)));
    fill(row, job, at);
  }
}

function makeRow(name) {
  const cells = COLUMNS.map((label, index) => h("td", { "data-label": label, class: index > 2 ? "number" : null }));
  const dot = h("span", { class: "dot", "aria-hidden": "true" });
  return h("tr", { "data-job": name }, h("th", { scope: "row" }, dot, h("code", {}, name)), ...cells);
}

function fill(row, job, at) {
  const run = job.run;
  row.querySelector(".dot").dataset.state = DOTS[run?.outcome] ?? "offline";
  const result = run ? [RESULTS[run.outcome], run.note || (run.done ? `${number(run.done)} items` : "")] : ["no run yet"];
  const texts = [
    job.schedule,
    run ? moment(run.started_at) : "–",
    result.filter(Boolean).join(": "),
    run?.ended_at ? took(run.ended_at - run.started_at) : "–",
    job.next_at > at ? spoken(job.next_at - at) : "now",
    number(job.failures),
  ];
  texts.forEach((text, index) => say(row.cells[index + 1], text));
  row.classList.toggle("warn", job.failures > 0);
}
