// The same with require.

import greendot = require("@greendot/client");

const client = new greendot.Greendot({ url: "wss://example.com", getToken: () => null });
client.presence.watch(["alice"], ({ state }) => console.log(state))();
