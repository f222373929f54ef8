// Pictures of users: with a dot for their presence, alone or in a pile.

import type { Presence, Profile } from "@greendot/client";
import type { CSSProperties, ReactElement, ReactNode } from "react";
import { usePresence, useRoom } from "../index.js";

export interface Styled {
  /** Further class names, after the component's own one. */
  className?: string;
  style?: CSSProperties;
}

/** Join the component's own class name and those of the app. */
export const classes = (own: string, given?: string): string => (given ? `${own} ${given}` : own);

export interface FaceProps extends Styled {
  /** Id of the user, shown while the name is unknown. */
  user: string;
  /** Name and info of the user, from presence, a room, a message or a typer. */
  profile?: Partial<Profile> | undefined;
  /** Content in place of `info.avatar` and the initials. */
  children?: ReactNode;
}

/**
 * Picture of a user: `info.avatar` as an image (a URL or path) or as text (an emoji), else the initials. `info.colour` is the
 * background. The picture is hidden from assistive technology, so write the name beside it.
 */
export function Face({ user, profile, children, className, style }: FaceProps): ReactElement {
  const { avatar, colour } = (profile?.info ?? {}) as { avatar?: unknown; colour?: unknown };
  const isImage = typeof avatar === "string" && /^(https?:\/)?\//.test(avatar);
  const text = typeof avatar === "string" && avatar ? avatar : initials(profile?.name || user);
  const coloured = typeof colour === "string" ? { background: colour, ...style } : style;
  return (
    <span className={classes("gd-face", className)} style={coloured} aria-hidden="true">
      {children ?? (isImage ? <img src={avatar} alt="" /> : text)}
    </span>
  );
}

function initials(name: string): string {
  const words = name.trim().split(/\s+/);
  const chosen = words.length > 1 ? [words[0]!, words.at(-1)!] : words;
  return chosen.map((word) => [...word][0] ?? "").join("").toUpperCase();
}

type State = Presence["state"] | "unknown";

export interface AvatarProps extends Styled {
  /** Id of the user, who is watched while the component is mounted. */
  user: string;
  /** Name and info until the presence is known, for example from a room. */
  profile?: Partial<Profile> | undefined;
  /** Text for assistive technology. The default is "Alice, online". */
  label?: (name: string, state: State) => string;
  children?: ReactNode;
}

const named = (name: string, state: State): string => (state === "unknown" ? name : `${name}, ${state}`);

/** Picture of a user with a dot. `data-state` of both is online, idle, busy, offline, or unknown until the server has answered. */
export function Avatar({ user, profile, label = named, children, className, style }: AvatarProps): ReactElement {
  const person = usePresence(user);
  const state = person?.state ?? "unknown";
  const known = person ?? profile;
  return (
    <span className={classes("gd-avatar", className)} style={style} role="img" aria-label={label(known?.name || user, state)} data-state={state}>
      <Face user={user} profile={known}>{children}</Face>
      <span className="gd-dot" data-state={state} aria-hidden="true" />
    </span>
  );
}

interface PileOptions extends Styled {
  /** Maximum number of pictures, by default 5. The number of the others follows. */
  max?: number;
  /** Text for assistive technology. The default is "7 people". */
  label?: (count: number) => string;
  /** Text for assistive technology in place of "+2". The default is "2 more". */
  more?: (count: number) => string;
}

export type FacepileProps = PileOptions &
  (
    | {
        /** Room of which the users are shown. It is joined while the component is mounted. */
        room: string;
        users?: undefined;
      }
    | {
        /** Ids of the users, most important first. */
        users: readonly string[];
        room?: undefined;
      }
  );

/** Pictures of the users in a room, or of given users. Nothing if there are none. */
export function Facepile({ room, users, ...options }: FacepileProps): ReactElement {
  return room === undefined ? <Pile {...options} users={users ?? []} /> : <RoomPile {...options} room={room} />;
}

function RoomPile({ room, ...options }: PileOptions & { room: string }): ReactElement {
  const { present, profiles, count } = useRoom(room);
  return <Pile {...options} users={present} profiles={profiles} count={count ?? 0} />;
}

interface PileProps extends PileOptions {
  users: readonly string[];
  profiles?: ReadonlyMap<string, Profile>;
  count?: number;
}

const people = (count: number): string => (count === 1 ? "1 person" : `${count} people`);
const others = (count: number): string => `${count} more`;

function Pile({ users, profiles, count = 0, max = 5, label = people, more = others, className, style }: PileProps): ReactElement | null {
  const all = Math.max(count, users.length); // large rooms have a count only
  const shown = users.slice(0, max);
  const rest = all - shown.length;
  if (!all) return null;
  return (
    // The role is explicit, because Safari drops it for lists without markers.
    <ul className={classes("gd-facepile", className)} style={style} role="list" aria-label={label(all)} data-count={all}>
      {shown.map((user) => <li key={user} className="gd-facepile-user"><Avatar user={user} profile={profiles?.get(user)} /></li>)}
      {rest > 0 && <li className="gd-facepile-more"><span role="img" aria-label={more(rest)}>+{rest}</span></li>}
    </ul>
  );
}
