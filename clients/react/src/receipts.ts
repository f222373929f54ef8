// Hook of a room's read receipts.

import { receiptsSource, type ReceiptState, seenBy } from "@greendot/client/stores";
import { useMemo } from "react";
import { useGreendot } from "./provider.js";
import { useSource } from "./source.js";

export interface UsedReceipts extends ReceiptState {
  /** Return the ids of the other users who have read the message `seq`. */
  seenBy(seq: number): string[];
}

/**
 * Return the read receipts of `room`: the last message that each user has read. The client is in the room while the component is mounted.
 * After a reconnect, the receipts are fetched again.
 */
export function useReceipts(room: string): UsedReceipts {
  const client = useGreendot();
  const state = useSource((client) => receiptsSource(client, room), room);
  return useMemo(() => ({ ...state, seenBy: (seq: number) => seenBy(client, state, seq) }), [client, state]);
}
