// A room's messages as they are to be shown: what was edited and taken back is so.

import type { RoomMessage } from "./wire.js";

/** A message as it is to be shown. */
export interface ShownMessage<Body = unknown> extends RoomMessage<Body> {
  edited: boolean;
  /** Taken back, or its author erased; `body` is null. */
  deleted: boolean;
  /** Number of the edit or deletion that was applied last. */
  changed: number;
}

/**
 * `shown` with `records` taken in, in any order and any number of times: sorted, each once, edits and deletions applied.
 * The same array if nothing changed. `limit` keeps the newest only.
 */
export function showMessages<Body>(
  shown: readonly ShownMessage<Body>[],
  records: readonly RoomMessage<Body>[],
  limit = Infinity,
): readonly ShownMessage<Body>[] {
  const bySeq = new Map(shown.map((message) => [message.seq, message]));
  let news = false;
  const put = (message: ShownMessage<Body>) => {
    news = true;
    bySeq.set(message.seq, message);
  };
  // Ascending: what is edited is there before its edit.
  for (const record of [...records].sort((a, b) => a.seq - b.seq)) {
    const erased = record.op === "erased";
    if (record.ref === null) {
      const known = bySeq.get(record.seq);
      if (!known) put({ ...record, edited: false, deleted: erased, changed: 0 });
      else if (erased && !known.deleted) put({ ...record, edited: false, deleted: true, changed: known.changed });
    } else {
      const known = bySeq.get(record.ref);
      if (!known || known.deleted || known.changed >= record.seq || erased) continue;
      if (record.op === "delete") put({ ...known, body: null as Body, deleted: true, changed: record.seq });
      else put({ ...known, body: record.body, edited: true, changed: record.seq });
    }
  }
  return news ? [...bySeq.values()].sort((a, b) => a.seq - b.seq).slice(-limit) : shown;
}
