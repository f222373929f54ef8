import { pushPermission, subscribePush } from "@greendot/client/push";
import { useGreendot } from "@greendot/react";
import { InboxBell } from "@greendot/react/components";
import { useState } from "react";

export function Bell() {
  const client = useGreendot();
  const [offer, setOffer] = useState(pushPermission() === "granted" ? "" : "Notify me while I am away");
  const subscribe = () => subscribePush(client).then(() => setOffer(""), (error: Error) => setOffer(`No push: ${error.message}`));
  return <InboxBell readOnOpen footer={offer && <button className="plain" onClick={subscribe}>{offer}</button>} />;
}
