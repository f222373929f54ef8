// A program that has installed the package, with import: what it sees are the built types.

import { useRoom } from "@greendot/react";
import { Facepile, type FacepileProps } from "@greendot/react/components";

export const pile: FacepileProps = { room: "lobby", max: 3 };
export const shown = () => Facepile(pile);
export const room: () => number = () => useRoom<string>("lobby").messages[0]!.body.length;
