// The same with require.

import greendot = require("@greendot/client");
import push = require("@greendot/client/push");

const client = new greendot.Greendot({ url: "wss://example.com", getToken: () => null });
client.presence.watch(["alice"], ({ state }) => console.log(state))();
void push.unsubscribePush(client);
