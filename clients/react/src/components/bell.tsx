// Bell with the number of unread notifications, and a panel with the newest ones.

import type { InboxEntry } from "@greendot/client";
import { type FocusEvent, type KeyboardEvent, type ReactElement, type ReactNode, type RefObject, useEffect, useId, useRef, useState } from "react";
import { useGreendot, useInbox, useUnread } from "../index.js";
import { classes, type Styled } from "./faces.js";

/** Texts of an `InboxBell`. */
export interface BellWords {
  title: string;
  /** Name of the button. */
  label(unread: number): string;
  /** Read out before an unread notification. */
  unread: string;
  readAll: string;
  older: string;
  empty: string;
  loading: string;
  failed(message: string): string;
}

const ENGLISH: BellWords = {
  title: "Notifications",
  label: (unread) => `Notifications, ${unread} unread`,
  unread: "Unread:",
  readAll: "Mark all as read",
  older: "Older notifications",
  empty: "No notifications yet.",
  loading: "Loading…",
  failed: (message) => `The notifications cannot be shown: ${message}`,
};

export interface InboxBellProps<Body = any> extends Styled {
  /** Content of a notification. The default is `title` or `text` of the body, else the kind. */
  children?: (entry: InboxEntry<Body>) => ReactNode;
  /** Called when the user chooses a notification, which is then read. The panel closes. */
  onSelect?: (entry: InboxEntry<Body>) => void;
  /** Whether opening the panel marks all notifications as read. By default they are marked as seen. */
  readOnOpen?: boolean;
  /** Number of notifications per page, by default 20. */
  pageSize?: number;
  icon?: ReactNode;
  /** Content at the end of the panel. */
  footer?: ReactNode;
  words?: Partial<BellWords>;
}

// Drawn in the colour of the text, because not every system has a bell among its emoji.
const BELL = (
  <svg viewBox="0 0 24 24" width="1.2em" height="1.2em" fill="none" stroke="currentColor" strokeWidth="1.8" strokeLinecap="round" strokeLinejoin="round">
    <path d="M6 10a6 6 0 0 1 12 0c0 5 2 6 2 7H4c0-1 2-2 2-7Z" />
    <path d="M10 20.5a2.2 2.2 0 0 0 4 0" />
  </svg>
);
const MOST_SHOWN = 99;
const ITEM = "data-notification";
// For screen readers only.
const HIDDEN = { position: "absolute", width: 1, height: 1, overflow: "hidden", clipPath: "inset(50%)", whiteSpace: "nowrap" } as const;

/**
 * Button with the number of unread notifications. It opens a panel with the newest ones. Arrow keys, Home and End move between
 * them. Escape, a click elsewhere, or leaving the panel with Tab closes it.
 */
export function InboxBell<Body = any>(props: InboxBellProps<Body>): ReactElement {
  const { icon = BELL, className, style } = props;
  const words = { ...ENGLISH, ...props.words };
  const unread = useUnread();
  const [isOpen, setOpen] = useState(false);
  const id = useId();
  const root = useRef<HTMLDivElement>(null);
  const button = useRef<HTMLButtonElement>(null);
  const close = () => {
    setOpen(false);
    button.current?.focus();
  };
  useClickElsewhere(root, isOpen, () => setOpen(false));
  const pressed = (event: KeyboardEvent) => {
    if (event.key === "Escape" && isOpen) close();
    else if (event.key === "ArrowDown" && event.target === button.current) setOpen(true);
    else if (!isOpen || !moved(root.current!, event.key)) return;
    event.preventDefault();
    event.stopPropagation();
  };
  // Without a related target the focus went to another window, or a focused button disappeared.
  const left = ({ relatedTarget }: FocusEvent) => {
    if (relatedTarget && !root.current!.contains(relatedTarget)) setOpen(false);
  };
  return (
    <div className={classes("gd-bell", className)} style={style} ref={root} onKeyDown={pressed} onBlur={left} data-unread={unread} data-open={isOpen}>
      <button type="button" className="gd-bell-button" ref={button} aria-haspopup="dialog" aria-expanded={isOpen} aria-controls={isOpen ? id : undefined} onClick={() => setOpen(!isOpen)}>
        <span className="gd-bell-icon" aria-hidden="true">{icon}</span>
        <span style={HIDDEN}>{words.label(unread)}</span>
        {unread > 0 && <span className="gd-badge" aria-hidden="true">{unread > MOST_SHOWN ? `${MOST_SHOWN}+` : unread}</span>}
      </button>
      <span role="status" style={HIDDEN}>{useNews() && words.label(unread)}</span>
      {isOpen && <Panel {...props} id={id} words={words} close={close} />}
    </div>
  );
}

/** Return whether the number has grown while the component is mounted: only then it is announced. */
function useNews(): boolean {
  const { inbox } = useGreendot();
  const [isMore, setMore] = useState(false);
  useEffect(() => {
    let last = inbox.unread;
    return inbox.on("badge", ({ unread }) => {
      setMore(unread > last);
      last = unread;
    });
  }, [inbox]);
  return isMore;
}

function useClickElsewhere(root: RefObject<HTMLElement | null>, isOpen: boolean, call: () => void): void {
  useEffect(() => {
    if (!isOpen) return;
    const pressed = ({ target }: Event) => root.current?.contains(target as Node) || call();
    document.addEventListener("pointerdown", pressed);
    return () => document.removeEventListener("pointerdown", pressed);
  }, [isOpen]);
}

/** Move the focus between the notifications. Returns whether the key does that. */
function moved(root: HTMLElement, key: string): boolean {
  const items = [...root.querySelectorAll<HTMLElement>(`[${ITEM}]`)];
  const at = items.indexOf(document.activeElement as HTMLElement);
  const next = { ArrowDown: Math.min(at + 1, items.length - 1), ArrowUp: Math.max(at - 1, 0), Home: 0, End: items.length - 1 }[key];
  if (next === undefined) return false;
  items[next]?.focus();
  return true;
}

function Panel<Body>({ id, words, close, children = summary, onSelect, readOnOpen, pageSize = 20, footer }: InboxBellProps<Body> & { id: string; words: BellWords; close: () => void }): ReactElement {
  const { notifications, hasOlder, loading, error, loadOlder, markRead, markSeen } = useInbox<Body>({ pageSize });
  const panel = useRef<HTMLElement>(null);
  const newest = notifications.at(-1)?.seq;
  const isAnyUnread = notifications.some(({ read_at }) => read_at === null);
  useEffect(() => panel.current!.focus(), []);
  useEffect(() => {
    if (newest) void (readOnOpen ? markRead : markSeen)({ through: newest });
  }, [newest, readOnOpen]);
  const select = (entry: InboxEntry<Body>) => {
    if (entry.read_at === null) void markRead(entry.id);
    if (!onSelect) return;
    close();
    onSelect(entry);
  };
  return (
    <section className="gd-inbox" id={id} ref={panel} role="dialog" aria-label={words.title} tabIndex={-1}>
      <header className="gd-inbox-head">
        <strong className="gd-inbox-title">{words.title}</strong>
        {isAnyUnread && <button type="button" className="gd-inbox-read" onClick={() => void markRead({ through: newest! })}>{words.readAll}</button>}
      </header>
      {error && <p className="gd-inbox-error" role="alert">{words.failed(error.message)}</p>}
      {!notifications.length && !error && <p className="gd-inbox-empty" role="status">{loading ? words.loading : words.empty}</p>}
      {notifications.length > 0 && (
        <ol className="gd-inbox-list" role="list">
          {[...notifications].reverse().map((entry) => (
            <li key={entry.id} className="gd-inbox-item" data-unread={entry.read_at === null} data-kind={entry.kind}>
              <button type="button" className="gd-notification" {...{ [ITEM]: "" }} onClick={() => select(entry)}>
                {entry.read_at === null && <span style={HIDDEN}>{words.unread} </span>}
                {children(entry)}
              </button>
            </li>
          ))}
        </ol>
      )}
      {hasOlder && <button type="button" className="gd-inbox-older" disabled={loading} onClick={() => void loadOlder()}>{words.older}</button>}
      {footer}
    </section>
  );
}

function summary({ body, kind }: InboxEntry<any>): ReactNode {
  return body?.title ?? body?.text ?? kind;
}
