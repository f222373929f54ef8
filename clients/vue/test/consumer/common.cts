// The same as CommonJS.

import { useRoom } from "@greendot/vue";

export const room: () => number = () => useRoom<string>("lobby").messages.value[0]!.body.length;
