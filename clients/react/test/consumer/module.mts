// A program that has installed the package, with import: what it sees are the built types.

import { useRoom } from "@greendot/react";

export const room: () => number = () => useRoom<string>("lobby").messages[0]!.body.length;
