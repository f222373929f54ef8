// The same with require.

import greendot = require("@greendot/client");
import stores = require("@greendot/client/stores");
import push = require("@greendot/client/push");

const client = new greendot.Greendot({ url: "wss://example.com", getToken: () => null });
client.presence.watch(["alice"], ({ state }) => console.log(state))();
const unread: number = stores.unreadSource(client).get();
console.log(unread);
void push.unsubscribePush(client);
