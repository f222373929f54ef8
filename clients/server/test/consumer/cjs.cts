// The same with require.

import greendot = require("@greendot/server");

const server = new greendot.Server({ url: "https://rt.example.com", apiKey: "key" });
server.notify("alice", "news", { issue: 9 }, { key: "news-9" }).then(({ id }) => console.log(id satisfies string | null));
