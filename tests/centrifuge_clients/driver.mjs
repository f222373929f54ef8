// Runs centrifuge-js for a test: reads one command per line, writes one event or answer per line.
import { createInterface } from 'node:readline';
import { Centrifuge } from 'centrifuge';
import { Centrifuge as Protobuf } from 'centrifuge/build/protobuf';
import WebSocket from 'ws';

const clients = {};
const subscriptions = {};
const tokens = {}; // answers to getToken, by client or by client and channel
// Protobuf clients have bytes where JSON clients have values.
const shown = (key, value) => (value instanceof Uint8Array ? new TextDecoder().decode(value) : value);
const write = (line) => process.stdout.write(`${JSON.stringify(line, shown)}\n`);

const EVENTS = ['connecting', 'connected', 'disconnected', 'publication', 'join', 'leave', 'subscribed', 'unsubscribed'];
const SUBSCRIPTION = ['subscribing', 'subscribed', 'unsubscribed', 'publication', 'join', 'leave'];

function forward(emitter, names, about) {
  for (const name of names) emitter.on(name, (context) => write({ ...about, event: name, context }));
  emitter.on('error', (context) => write({ ...about, event: 'error', context: { code: context.error.code, message: context.error.message } }));
}

const ops = {
  connect({ client, url, token, refreshed, options, protobuf }) {
    tokens[client] = refreshed;
    const getToken = async () => { write({ client, event: 'getToken', context: {} }); return tokens[client]; };
    clients[client] = new (protobuf ? Protobuf : Centrifuge)(url, {
      websocket: WebSocket, minReconnectDelay: 1, maxReconnectDelay: 20, ...(token && { token }), ...(refreshed && { getToken }), ...options,
    });
    forward(clients[client], EVENTS, { client });
    for (const channel of options?.channels ?? []) ops.subscribe({ client, channel });
    clients[client].connect();
  },
  subscribe({ client, channel, options, refreshed }) {
    const getToken = async () => { write({ client, channel, event: 'getToken', context: {} }); return refreshed; };
    const made = clients[client].newSubscription(channel, { minResubscribeDelay: 1, ...options, ...(refreshed && { getToken }) });
    subscriptions[`${client} ${channel}`] = made;
    forward(made, SUBSCRIPTION, { client, channel });
    made.subscribe();
  },
  unsubscribe: ({ client, channel }) => subscriptions[`${client} ${channel}`].unsubscribe(),
  publish: ({ client, channel, data, bytes }) => clients[client].publish(channel, bytes ? new TextEncoder().encode(bytes) : data),
  history: ({ client, channel, options }) => clients[client].history(channel, options),
  presence: ({ client, channel }) => clients[client].presence(channel),
  presenceStats: ({ client, channel }) => clients[client].presenceStats(channel),
  rpc: ({ client, method, data, bytes }) => clients[client].rpc(method, bytes ? new TextEncoder().encode(bytes) : data ?? {}),
  cut: ({ client }) => { clients[client]._transport._transport.terminate(); }, // the network is lost, without a close frame
  disconnect: ({ client }) => clients[client].disconnect(),
};

for await (const line of createInterface({ input: process.stdin })) {
  const { id, op, ...given } = JSON.parse(line);
  Promise.resolve().then(() => ops[op](given)).then(
    (result) => write({ id, result: result ?? null }),
    (error) => write({ id, error: { code: error.code ?? 0, message: error.message ?? String(error) } }),
  );
}
process.exit(0);
