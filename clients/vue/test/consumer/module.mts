// A program that has installed the package, with import: what it sees are the built types.

import { useRoom } from "@greendot/vue";

export const room: () => number = () => useRoom<string>("lobby").messages.value[0]!.body.length;
