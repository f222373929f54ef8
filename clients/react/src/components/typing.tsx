// Line with the users who type.

import type { ReactElement } from "react";
import { type TypingOptions, useTyping } from "../index.js";
import { classes, type Styled } from "./faces.js";

export interface TypingLineProps extends Styled, TypingOptions {
  room: string;
  /** Whether screen readers announce changes. The default is true. */
  live?: boolean;
}

/** "Alice and Bob are typing…". An empty line while no other user types, so that a page does not jump. */
export function TypingLine({ room, live = true, className, style, ...options }: TypingLineProps): ReactElement {
  const { text, count } = useTyping(room, options);
  return <p className={classes("gd-typing", className)} style={style} role={live ? "status" : undefined} data-count={count}>{text}</p>;
}
