// The same as CommonJS.

import { useRoom } from "@greendot/react";
import { Avatar } from "@greendot/react/components";

export const avatar = () => Avatar({ user: "alice" });
export const room: () => number = () => useRoom<string>("lobby").messages[0]!.body.length;
