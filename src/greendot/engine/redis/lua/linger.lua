-- The connection is gone; the session counts for the grace. Answers what remains, or -1 if the session has moved on.
-- KEYS: presence bucket, nodes, seen bucket
-- ARGV: shift, field, channel, publish command, bus key,  session, incarnation, connection, grace, silent
local keys = { presence = KEYS[1], nodes = KEYS[2], seen = KEYS[3], field = ARGV[2] }
local session, node, conn, grace, silent = ARGV[6], ARGV[7], tonumber(ARGV[8]), tonumber(ARGV[9]), tonumber(ARGV[10])
local record = load_record(keys)
if not record then return -1 end
local now = clock(ARGV[1])
local before = told(record)
prune(record, keys.nodes, now)
local remaining = -1
for _, seat in ipairs(record.seats) do
  if seat.session == session and seat.node == node and seat.conn == conn then
    seat.deadline, seat.heard = now + grace, now - silent
    remaining = grace
  end
end
settle(record, before, keys, now, ARGV[3], ARGV[4], ARGV[5])
return remaining
