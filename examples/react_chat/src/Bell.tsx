import { pushPermission, subscribePush } from "@greendot/client/push";
import { useGreendot, useInbox, useUnread } from "@greendot/react";
import { useEffect, useState } from "react";

export function Bell() {
  const unread = useUnread();
  const [isOpen, setOpen] = useState(false);
  return (
    <div className="bell">
      <button className="icon" aria-label={`Notifications, ${unread} unread`} aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
        🔔{unread > 0 && <b className="badge">{unread > 99 ? "99+" : unread}</b>}
      </button>
      {isOpen && <Notifications />}
    </div>
  );
}

function Notifications() {
  const client = useGreendot();
  const { notifications, hasOlder, loadOlder, markRead } = useInbox<{ title: string }>({ pageSize: 20 });
  const [offer, setOffer] = useState(pushPermission() === "granted" ? "" : "Notify me while I am away");
  const newest = notifications.at(-1)?.seq;
  useEffect(() => void (newest && markRead({ through: newest })), [newest]);
  const subscribe = () => subscribePush(client).then(() => setOffer(""), (error: Error) => setOffer(`No push: ${error.message}`));
  return (
    <section className="inbox" aria-label="Notifications">
      {notifications.length === 0 && <p>No notifications yet.</p>}
      <ol>{notifications.toReversed().map(({ id, body }) => <li key={id}>{body.title}</li>)}</ol>
      {hasOlder && <button className="plain" onClick={loadOlder}>Older notifications</button>}
      {offer && <button className="plain" onClick={subscribe}>{offer}</button>}
    </section>
  );
}
