// The same as CommonJS.

import { useRoom } from "@greendot/react";

export const room: () => number = () => useRoom<string>("lobby").messages[0]!.body.length;
