export { type BellWords, InboxBell, type InboxBellProps } from "./bell.js";
export { Avatar, type AvatarProps, Face, Facepile, type FacepileProps, type FaceProps, type Styled } from "./faces.js";
export { TypingLine, type TypingLineProps } from "./typing.js";
